"""How many instances fit: known answers, the closed form, and a plain loop over fresh attempts as the oracle."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moorage
from moorage.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo"
JOB = ROOT / "examples" / "capacity" / "job.yaml"


def node(name, cpu="4", memory="8Gi", pods=10, **labels):
    amounts = {"cpu": str(cpu), "memory": memory, "pods": str(pods)}
    labels = {"kubernetes.io/hostname": name, **labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }


def pod(name="t", cpu="1", memory="1Gi", on="", labels=None, **spec):
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    containers = [{"name": "c", "image": "i", "resources": resources, "ports": spec.pop("ports", [])}]
    if on:
        spec["nodeName"] = on
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def zoned(*cpus):
    return [node(f"n{at}", cpu=cpu, zone=f"z{at % 2}") for at, cpu in enumerate(cpus)]


SELF = {"labelSelector": {"matchLabels": {"app": "t"}}}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**SELF, "topologyKey": "zone"}]}}
TOGETHER = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**SELF, "topologyKey": "zone"}]}}
SPREAD = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **SELF}]
APP = {"app": "t"}


@pytest.fixture(scope="module")
def demo():
    return moorage.Cluster.read(DEMO)


def test_the_demo(demo):
    before = demo.digest()
    found = demo.capacity(JOB)
    assert (found.instances, found.upper_bound, found.fail_type, found.proof.kind) == (19, 19, "Unschedulable", "bound")
    assert [(group.group, len(group.nodes), group.each) for group in found.per_group[:1]] == [("general", 5, (5, 5, 4, 4, 1))]
    assert [(one.plugin, one.resource, one.nodes) for one in found.binding] == [("NodeResourcesFit", "cpu", 5)]
    more = {(one.change, one.group or one.resource): one.more for one in found.gains}
    assert more == {
        ("node", "general"): 7, ("node", "gpu"): 0, ("uncordon", "general"): 7,
        ("resource", "cpu"): 4, ("resource", "memory"): 0,
    }  # fmt: skip
    # 51.55 Gi were free on the five nodes; the instances request 1 Gi each.
    assert found.stranded == {"cpu": 1150, "memory": int(51.55078125 * 2**30) - 19 * 2**30}
    assert found.message.startswith("0/8 nodes are available: ")
    assert found.text().startswith("19 more instances of job fit; then cpu is exhausted on all 5 eligible nodes.\n")
    assert demo.digest() == before


def test_a_limit(demo):
    found = demo.capacity(JOB, limit=3, gains=False)
    assert (found.instances, found.fail_type, found.message) == (3, "LimitReached", "Maximum number of pods simulated: 3")


def test_a_template_by_name_is_what_its_controller_would_create_next(demo):
    by_name, short = demo.capacity("deployment/web", gains=False), demo.capacity("web", gains=False)
    assert by_name.instances == short.instances == 5
    assert by_name.upper_bound is None
    assert "spreading" in by_name.no_bound
    with demo.transaction():
        demo.run()
        web = demo.get("deployment/web")
        demo.apply(web.replace(spec=web.spec.replace(replicas=web.spec.replicas + 8)))
        placed = [bool(one) for one in demo.schedule() if "/web-" in one.pod]
    assert placed == [True] * 5 + [False] * 3


def test_a_mix_counts_whole_units(demo):
    found = demo.capacity({"web": ("web", 3), "job": (JOB, 2)}, gains=False)
    assert (found.instances, sum(found.per_node.values())) == (1, 5)
    assert found.unplaced
    assert found.blocked_by.startswith("default/web-")


def test_replicas_are_a_question_of_yes_or_no(demo):
    no = demo.capacity({"web": ("web", 3), "job": (JOB, 20)}, replicas=True)
    assert (no.holds, [(part.template, part.left_over) for part in no.parts]) == (False, [("web", 0), ("job", 4)])
    yes = demo.capacity({"web": ("web", 3), "job": (JOB, 16)}, replicas=True)
    assert (yes.holds, sum(yes.per_node.values())) == (True, 19)


BOUNDS = {  # template, instances, upper bound
    "resources": (pod(), 4 + 2, 4 + 2),
    "the number of pods": (pod(cpu="10m", memory="1Mi"), 20, 20),
    "a host port: one a node": (pod(ports=[{"containerPort": 1, "hostPort": 80}]), 2, 2),
    "apart from itself: one a zone": (pod(labels=APP, affinity=APART), 2, 2),
    "together with itself": (pod(labels=APP, affinity=TOGETHER), 4, None),
    "spread over zones": (pod(labels=APP, topologySpreadConstraints=SPREAD), 5, None),
    "spread by pods of another kind": (pod(topologySpreadConstraints=SPREAD), 6, 6),
    "nothing fits": (pod(cpu="5"), 0, 0),
}


@pytest.mark.parametrize(("template", "instances", "bound"), BOUNDS.values(), ids=BOUNDS)
def test_upper_bounds(template, instances, bound):
    cluster = moorage.Cluster.from_objects(*zoned(4, 2))
    found = cluster.capacity(template, gains=False)
    if "podAffinity" in str(template):  # one zone takes them all: the first instance decides which
        assert found.instances in {4, 2}
    else:
        assert found.instances == instances
    assert found.upper_bound == bound


@st.composite
def worlds(draw):
    """Return nodes, placed and pending pods, and a template; some with rules that count pods."""
    nodes = [
        node(f"n{at}", cpu=f"{draw(st.integers(1, 60)) * 100}m", memory=f"{draw(st.integers(1, 16))}Gi",
             pods=draw(st.integers(1, 12)), zone=f"z{draw(st.integers(0, 2))}")
        for at in range(draw(st.integers(1, 5)))
    ]  # fmt: skip
    placed = [
        pod(f"p{at}", cpu=f"{draw(st.integers(0, 9)) * 100}m", memory="256Mi", on=f"n{at % len(nodes)}", labels=APP)
        for at in range(draw(st.integers(0, 4)))
    ]
    pending = [pod(f"w{at}", cpu="700m", memory="512Mi") for at in range(draw(st.integers(0, 3)))]
    rules = draw(st.sampled_from([{}, {}, {"affinity": APART}, {"affinity": TOGETHER}, {"topologySpreadConstraints": SPREAD}]))
    template = pod(cpu=f"{draw(st.integers(1, 12)) * 100}m", memory=f"{draw(st.integers(1, 20)) * 128}Mi", labels=APP, **rules)
    return [*nodes, *placed, *pending], template, bool(rules)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(worlds())
def test_the_count_equals_fresh_attempts_and_the_closed_form(world):
    objects, template, counts_pods = world
    cluster = moorage.Cluster.from_objects(*objects)
    before = cluster.digest()
    found = cluster.capacity(template, gains=False)
    assert cluster.digest() == before
    assert found.instances == sum(found.per_node.values()) == plain_count(objects, template)
    if found.upper_bound is not None:
        assert found.instances <= found.upper_bound
    if not counts_pods:
        assert found.instances == found.upper_bound == closed_form(objects, template)


def plain_count(objects, template):
    """Count with a fresh cluster, one attempt after the other."""
    cluster = moorage.Cluster.from_objects(*objects)
    cluster.run()
    for number in range(1000):
        name = f"{template['metadata']['name']}-{number}"
        cluster.add({**template, "metadata": {**template["metadata"], "name": name, "uid": found_uid(name)}})
        if not cluster.schedule([name])[0]:
            return number
    raise AssertionError("endless")


def found_uid(name):
    """Return the UID that instances have: it breaks ties."""
    from moorage.api.documents.object_fields import stable_uid

    return stable_uid("Pod", "default", f"{name}/capacity")


def closed_form(objects, template):
    cluster = moorage.Cluster.from_objects(*objects)
    cluster.run()
    nodes = cluster.nodes.columns()
    wants = template["spec"]["containers"][0]["resources"]["requests"]
    cpu, memory = int(wants["cpu"].removesuffix("m")), int(wants["memory"].removesuffix("Mi")) << 20
    total = 0
    for at in range(len(nodes["name"])):
        free = [nodes[name][at] - nodes[f"{name}_requested"][at] for name in ("cpu_milli", "memory_bytes")]
        total += max(0, min(free[0] // cpu, free[1] // memory, nodes["pods_allowed"][at] - nodes["pods"][at]))
    return total


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(worlds())
def test_gains_are_what_a_changed_input_gives(world):
    objects, template, _ = world
    objects = [one for one in objects if one["kind"] == "Node" or one["spec"].get("nodeName")]
    found = moorage.Cluster.from_objects(*objects).capacity(template)
    for gain in found.gains:
        changed = [*objects, twin(objects, gain.nodes[0])] if gain.change == "node" else [more_cpu(one) for one in objects]
        if gain.resource != "memory":
            assert plain_count(changed, template) - found.instances == gain.more


def twin(objects, name):
    like = next(one for one in objects if one["metadata"]["name"] == name)
    labels = {**like["metadata"]["labels"], "kubernetes.io/hostname": f"{name}-new"}
    return {**like, "metadata": {"name": f"{name}-new", "labels": labels}}


def more_cpu(obj):
    if obj["kind"] != "Node":
        return obj
    held = obj["status"]["allocatable"]
    milli = int(held["cpu"].removesuffix("m"))
    return {**obj, "status": {"allocatable": {**held, "cpu": f"{milli + milli // 10}m"}}}


def test_preemption_only_when_asked():
    low = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
    full = [pod(f"p{at}", on="n0") for at in range(3)]
    cluster = moorage.Cluster.from_objects(low, node("n0"), *full)
    template = pod(priorityClassName="high")
    without = cluster.capacity(template)
    assert without.instances == 1
    assert without.upper_bound == 1
    found = cluster.capacity(template, preempt=True)
    assert (found.instances, len(found.preempted), found.upper_bound) == (4, 3, None)


def test_claims_of_a_stateful_set_are_its_own():
    classes = {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    }  # fmt: skip
    volumes = [
        {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"pv{at}"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local"},
        }
        for at in range(2)
    ]  # fmt: skip
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}},
    }
    template = {"metadata": {"labels": APP}, "spec": pod()["spec"]}
    stateful = {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"serviceName": "db", "selector": {"matchLabels": APP}, "template": template, "volumeClaimTemplates": [claim]},
    }  # fmt: skip
    found = moorage.Cluster.from_objects(node("n0"), classes, *volumes).capacity(stateful, gains=False)
    assert (found.instances, found.upper_bound, found.parts[0].kind) == (2, None, "StatefulSet")


def test_a_pod_for_a_scheduler_that_does_not_exist_is_placed_by_one_that_does():
    found = moorage.Cluster.from_objects(node("n0")).capacity(pod(schedulerName="other"), gains=False)
    assert found.instances == 4
    assert "no profile has the name other" in found.assumptions[0].value


def test_a_gated_template_never_fits():
    found = moorage.Cluster.from_objects(node("n0")).capacity(pod(schedulingGates=[{"name": "wait"}]), gains=False)
    assert (found.instances, found.fail_type) == (0, "Unschedulable")


def test_limit_ranges_set_requests():
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
              "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}}]}}  # fmt: skip
    template = pod()
    template["spec"]["containers"][0]["resources"] = {}
    found = moorage.Cluster.from_objects(node("n0"), limits).capacity(template, gains=False)
    assert (found.instances, found.parts[0].requests) == (2, {"cpu": 2000})


def quota(**hard):
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}


def test_quotas_stop_the_count():
    objects = [node("n0", cpu=8, memory="16Gi"), quota(**{"requests.cpu": "5"}), pod("there", on="n0"), pod("waits")]
    found = moorage.Cluster.from_objects(*objects).capacity(pod(), gains=False)
    assert (found.instances, found.fail_type) == (3, "Quota")
    assert found.message == (
        'pods "t-3" is forbidden: exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=5, limited: requests.cpu=5'
    )
    assert moorage.Cluster.from_objects(*objects).capacity(pod(), quota=False).instances == 6
    mix = moorage.Cluster.from_objects(*objects).capacity({"a": (pod("a"), 1), "b": (pod("b"), 1)}, gains=False)
    assert (mix.instances, mix.fail_type, mix.unplaced) == (1, "Quota", ("default/a-1",))


WRONG = {
    "no such thing": ("deployment/none", "no such file"),
    "two pods": ([pod("a"), pod("b")], "one pod or one workload"),
    "no pod": ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}, "one pod or one workload; found none"),
    "a number below 1": ({"web": (pod(), 0)}, "give a whole number from 1"),
}


@pytest.mark.parametrize(("template", "says"), WRONG.values(), ids=WRONG)
def test_wrong_templates(template, says):
    cluster = moorage.Cluster.from_objects(node("n0"))
    if isinstance(template, list):
        template = {"apiVersion": "v1", "kind": "List", "items": template}
    with pytest.raises(InputError, match=says):
        cluster.capacity(template)


@pytest.mark.skipif(not os.environ.get("MOORAGE_LONG_TESTS"), reason="takes a while: MOORAGE_LONG_TESTS=1 runs it")
def test_25_000_instances_on_5_000_nodes():
    objects = [node(f"n{at}", cpu=16, memory="64Gi", pods=110) for at in range(5000)]
    objects += [pod(f"p{at}-{i}", on=f"n{at}", labels={"app": f"a{i}"}) for at in range(5000) for i in range(10)]
    cluster = moorage.Cluster.from_objects(*objects)
    cluster.simulation  # noqa: B018 (loads the objects)
    loop = min(cpu_seconds(lambda: sum(range(1000))) for _ in range(1000))
    spent = cpu_seconds(lambda: cluster.capacity(pod(cpu="1200m")))
    assert spent <= 5 * loop / 9e-6


def cpu_seconds(call):
    begin = time.process_time()
    call()
    return time.process_time() - begin


def test_objects_of_the_templates_file_exist_before_the_first_instance(tmp_path):
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeName": "pv", "storageClassName": "",
                 "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"},
    }  # fmt: skip
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/data"}},
    }  # fmt: skip
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    template = pod(priorityClassName="high", volumes=volumes)
    items = [high, claim, volume, template]
    path = tmp_path / "template.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    found = moorage.Cluster.from_objects(node("n0")).capacity(path)
    assert (found.instances, found.upper_bound, found.assumptions) == (4, 4, ())
    assert [one.resource for one in found.binding] == ["cpu"]
