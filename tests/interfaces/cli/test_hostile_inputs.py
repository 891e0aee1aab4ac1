"""What a stranger may write into an object: each hostile value ends in an answer or one clear error within a second."""

from __future__ import annotations

import json
from time import process_time

import pytest

from tests.api.cel.hostile_values import scale

pytestmark = pytest.mark.slow

MOST_S = 1.0
MANY = 10_000
DIGITS = "9" * 1_000_000
#: Stands for a number that JSON has and Python does not write.
NUMBER = "@number@"
NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"a": "b"}},
    "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}},
}  # fmt: skip


def node(**fields):
    return {**NODE, **fields}


def pod(metadata=None, requests=None, **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": requests or {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **(metadata or {})},
        "spec": {"containers": [container], **spec},
    }


def chosen(expression):
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def apart(*terms):
    return pod(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}})


def spread(when):
    constraint = {"maxSkew": 1, "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"a": "b"}}}
    return pod(
        {"labels": {"a": "b"}}, topologySpreadConstraints=[{**constraint, "topologyKey": f"k{at}"} for at in range(MANY)]
    )


def cron(schedule):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    spec = {"schedule": schedule, "jobTemplate": {"spec": {"template": template}}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec}


def slices(devices, generation=1):
    spec = {"driver": "a.b", "nodeName": "n1", "pool": {"name": "n", "generation": generation, "resourceSliceCount": 1}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {**spec, "devices": devices},
    }


def named(prefix):
    return {f"{prefix}{at}": "x" for at in range(10 * MANY)}


def keys(**more):
    return [{"key": f"k{at}", **more} for at in range(MANY)]


LABELLED = {"labelSelector": {"matchLabels": {"a": "b"}}}
#: Objects, or text of one; NUMBER in it is replaced by the number.
HOSTILE = {
    "a number of a million digits": [pod(requests={"cpu": NUMBER}), DIGITS],
    "a number beyond doubles": [pod(requests={"cpu": NUMBER}), "1e999999"],
    "a text of a million digits": pod(requests={"cpu": DIGITS}),
    "a huge exponent": pod(requests={"cpu": "1e999999999", "memory": "1e-999999999"}),
    "a priority of a million digits": [pod(priority=NUMBER), DIGITS],
    "deep lists": [pod(x=NUMBER), "[" * 100_000 + "]" * 100_000],
    "deep maps": [pod(x=NUMBER), '{"a":' * 100_000 + "1" + "}" * 100_000],
    "a selector of 100,000 values": chosen({"key": "a", "operator": "In", "values": [*named("v")]}),
    "a selector with a long number": chosen({"key": "a", "operator": "Gt", "values": [DIGITS]}),
    "a pod selector of 100,000 values": apart({
        "topologyKey": "a", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": [*named("v")]}]},
    }),
    "a selector of 10,000 expressions": apart(
        {"topologyKey": "a", "labelSelector": {"matchExpressions": keys(operator="Exists")}}
    ),
    "10,000 affinity terms": apart(*({"topologyKey": f"k{at}", **LABELLED} for at in range(MANY))),
    "10,000 hard spread constraints": spread("DoNotSchedule"),
    "10,000 soft spread constraints": spread("ScheduleAnyway"),
    "a huge annotation": pod({"annotations": {"a": "x" * 3_000_000}}),
    "100,000 annotations": pod({"annotations": named("a")}),
    "20,000 labels": pod({"labels": {f"a{at}": "x" for at in range(2 * MANY)}}),
    "a long name": pod({"name": "a-" * 500_000}),
    "a name of many dots": pod({"name": "a." * 500_000 + "A"}),
    "10,000 tolerations": pod(tolerations=keys(operator="Exists")),
    "10,000 gates": pod(schedulingGates=[{"name": f"a.b/k{at}"} for at in range(MANY)]),
    "10,000 volumes": pod(volumes=[{"name": f"v{at}", "persistentVolumeClaim": {"claimName": f"c{at}"}} for at in range(MANY)]),
    "10,000 resources": pod(requests={f"x.io/r{at}": "1" for at in range(MANY)}),
    "a time of many digits": pod({"creationTimestamp": f"2020-01-01T00:00:00.{DIGITS}Z"}),
    "a year of many digits": pod({"creationTimestamp": f"{DIGITS[:100_000]}-01-01T00:00:00Z"}),
    "10,000 taints": node(spec={"taints": keys(effect="NoSchedule")}),
    "a huge node": node(status={"allocatable": {"cpu": "1e9999", "memory": "1e999999999", "pods": "9e99999"}}),
    "a quota of huge amounts": {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"cpu": "1e9999", "pods": "1e9999999"}},
    },
    "a schedule that never comes": cron("0 0 31 2 *"),
    "a schedule of 100,000 parts": cron(",".join(["0-59/1"] * 100_000) + " * * * *"),
    "a schedule of a huge range": cron("0-999999999 * * * *"),
    "a budget of a million digits": {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": f"{DIGITS}%", "selector": {}},
    },
    "two thousand million replicas": {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "replicas": 2**31 - 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    },
    "a long version of a device": slices([{"name": "d", "attributes": {"v": {"version": f"1.0.0-{'1.' * 500_000}1"}}}]),
    "a huge capacity of a device": slices([{"name": "d", "capacity": {"m": {"value": "1e999999999"}}}]),
    "a generation of a million digits": [slices([], NUMBER), DIGITS],
    "an endless service network": {
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "c"}, "spec": {"cidrs": ["::/0"]},
    },
}  # fmt: skip


def text_of(hostile):
    """Return the JSON of a hostile object."""
    if isinstance(hostile, list):
        return json.dumps(hostile[0]).replace(f'"{NUMBER}"', hostile[1])
    return json.dumps(hostile)


#: Beside a hostile pod or node, what meets it.
BESIDE = {"10,000 taints": pod(tolerations=keys(operator="Exists"))}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_object_is_answered_soon(moorage, tmp_path, name):
    path = tmp_path / "cluster.yaml"
    others = [json.dumps(one) for one in (NODE, BESIDE.get(name, pod({"name": "other"}))) if one["kind"] not in name]
    path.write_text("\n---\n".join([text_of(HOSTILE[name]), *others]), encoding="utf-8")
    for command in (["simulate", "-f", path], ["explain", "other", "-f", path]):
        begun = process_time()
        ran = moorage(*command)
        assert process_time() - begun < MOST_S * scale()
        assert ran.status in {0, 1, 2}
        assert "Traceback" not in ran.err
        if ran.status == 1:
            assert ran.err.startswith("error: ")
            assert len(ran.err) < 8192


CONFIGS = {
    "deep lists": '{"profiles": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a weight of a million digits": '{"profiles": [{"plugins": {"score": {"enabled": [{"name": "NodeAffinity", "weight": '
        + DIGITS + "}]}}}]}",
    "a huge duration": '{"podInitialBackoffSeconds": 99999999999999999999999999, "leaderElection": '
        '{"leaseDuration": "999999999h"}}',
    "a duration of a million digits": f'{{"leaderElection": {{"leaseDuration": "{DIGITS}h"}}}}',
    "1,000 profiles": json.dumps({"profiles": [{"schedulerName": f"s{at}"} for at in range(MANY // 10)]}),
    "arguments of a million digits": '{"profiles": [{"pluginConfig": [{"name": "InterPodAffinity", "args": '
         f'{{"hardPodAffinityWeight": {DIGITS}}}}}]}}]}}',
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_hostile_configuration_is_refused_soon(moorage, tmp_path, name):
    path = tmp_path / "config.yaml"
    head = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", '
    path.write_text(head + CONFIGS[name][1:], encoding="utf-8")
    begun = process_time()
    ran = moorage("config", "validate", path)
    assert process_time() - begun < 2 * MOST_S * scale()
    assert ran.status in {0, 1}
    assert "Traceback" not in ran.err + ran.out
    assert len(ran.err + ran.out) < 1 << 20
