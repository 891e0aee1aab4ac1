"""Test how workloads become pods: the missing number, stable names, and the owners that a cluster would set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Pod
from moorage.api.documents.object_fields import SAFE_ALPHABET
from moorage.basis.inputs.files import InputFile
from moorage.errors import InputError
from moorage.rules.workloads.missing_pods import Indexes, parse_indexes
from moorage.simulator import pod_factory as templates
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.owners import controller_of
from moorage.simulator.workloads import expand

GROUPS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "ResourceClaimTemplate": "resource.k8s.io/v1",
}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}}
SELECTOR = {"matchLabels": {"app": "a"}}


def made(kind: str, spec: dict, name: str = "a", status: dict | None = None, **metadata: object) -> dict:
    head = {"apiVersion": GROUPS.get(kind, "v1"), "kind": kind, "metadata": {"name": name, **metadata}}
    return {**head, "spec": spec, "status": status or {}}


def template(**spec: object) -> dict:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}], **spec}}


def pod(name: str, owner: tuple[str, str] | None = None, phase: str = "Running", uid: str = "", **more: object) -> dict:
    metadata: dict = {"labels": {"app": "a"}, **more}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "uid": uid, "controller": True}]
    return made("Pod", {"containers": [{"name": "c"}]}, name, {"phase": phase}, **metadata)


def read(*objects: dict) -> ClusterInput:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return read_sources([InputFile("in", text.encode())], validated=False)


def expanded(*objects: dict, cron_jobs: bool = True) -> ClusterInput:
    return expand(read(*objects), cron_jobs=cron_jobs)


def new_pods(*objects: dict) -> list[Pod]:
    cluster = read(*objects)
    return list(expand(cluster).pods[len(cluster.pods) :])


def node(name: str, taints: list[dict] | None = None, **labels: str) -> dict:
    return made("Node", {"taints": taints or []}, name, labels=labels)


REPLICAS = {  # the workload's replicas → pods
    "unset, one": ({}, 1),
    "as given": ({"replicas": 3}, 3),
    "none": ({"replicas": 0}, 0),
}


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"])
@pytest.mark.parametrize(("spec", "number"), REPLICAS.values(), ids=REPLICAS)
def test_replicas(kind, spec, number):
    selector = {"app": "a"} if kind == "ReplicationController" else SELECTOR
    pods = new_pods(made(kind, {"selector": selector, "template": TEMPLATE, **spec}))
    assert len(pods) == number
    assert len({one.uid for one in pods}) == number
    assert all(one.spec.containers[0].name == "c" and one.namespace == "default" for one in pods)


def test_a_deployments_pods_belong_to_a_replica_set():
    cluster = expanded(made("Deployment", {"replicas": 2, "selector": SELECTOR, "template": TEMPLATE}, "web"))
    (replica_set,) = cluster.replica_sets
    mark = replica_set.metadata.labels["pod-template-hash"]
    assert replica_set.metadata.name == f"web-{mark}"
    assert controller_of(replica_set.metadata).name == "web"
    assert replica_set.spec.selector.match_labels == {"app": "a", "pod-template-hash": mark}
    for one in cluster.pods:
        base, _, suffix = one.name.rpartition("-")
        assert base == replica_set.metadata.name
        assert len(suffix) == 5
        assert set(suffix) <= set(SAFE_ALPHABET)
        assert one.labels == {"app": "a", "pod-template-hash": mark}
        owner = controller_of(one.metadata)
        assert (owner.kind, owner.name, owner.uid) == ("ReplicaSet", replica_set.metadata.name, replica_set.metadata.uid)


def test_copies_share_one_spec():
    pods = new_pods(made("ReplicaSet", {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE}))
    assert len({id(one.spec) for one in pods}) == 1


def replica_set(name: str, replicas: int, owner: str | None = "web", revision: str = "1", uid: str = "") -> dict:
    metadata: dict = {"annotations": {"deployment.kubernetes.io/revision": revision}, "labels": {"app": "a"}}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Deployment", "name": owner, "uid": "", "controller": True}]
    if uid:
        metadata["uid"] = uid
    return made("ReplicaSet", {"replicas": replicas, "selector": SELECTOR, "template": TEMPLATE}, name, **metadata)


def deployment(replicas: int, **more: object) -> dict:
    return made("Deployment", {"replicas": replicas, "selector": SELECTOR, "template": TEMPLATE, **more}, "web")


DEPLOYMENTS = {  # the input → new pods
    "the replica set and its pods exist": (
        [deployment(2), replica_set("web-1", 2), pod("p", ("ReplicaSet", "web-1")), pod("q", ("ReplicaSet", "web-1"))],
        0,
    ),
    "one pod is missing": ([deployment(2), replica_set("web-1", 2), pod("p", ("ReplicaSet", "web-1"))], 1),
    "an ended pod does not count": (
        [deployment(1), replica_set("web-1", 1), pod("p", ("ReplicaSet", "web-1"), "Failed")],
        1,
    ),
    "a terminating pod does not count": (
        [deployment(1), replica_set("web-1", 1), pod("p", ("ReplicaSet", "web-1"), deletionTimestamp="2024-01-01T00:00:00Z")],
        1,
    ),
    "excess pods stay": ([deployment(1), replica_set("web-1", 3)], 3),
    "the deployment wants more": ([deployment(5), replica_set("web-1", 1), replica_set("web-2", 1, revision="2")], 5),
    "a replica set without owner is adopted": ([deployment(2), replica_set("web-1", 2, owner=None)], 2),
    "pods refer to a missing replica set": (
        [deployment(3), pod("p", ("ReplicaSet", "web-x"), labels={"app": "a", "pod-template-hash": "x"}, uid="u1")],
        2,
    ),
    "paused before its first pod": ([deployment(3, paused=True)], 0),
    "paused later": ([deployment(3, paused=True), replica_set("web-1", 3)], 3),
    "terminating": ([{**deployment(3), "metadata": {"name": "web", "deletionTimestamp": "2024-01-01T00:00:00Z"}}], 0),
}


@pytest.mark.parametrize(("objects", "number"), DEPLOYMENTS.values(), ids=DEPLOYMENTS)
def test_deployments_count_existing_pods(objects, number):
    assert len(new_pods(*objects)) == number


def test_the_newest_replica_set_is_scaled_up():
    cluster = expanded(deployment(5), replica_set("web-1", 2, revision="9"), replica_set("web-2", 1, revision="10"))
    assert {one.metadata.name: one.spec.replicas for one in cluster.replica_sets} == {"web-1": 2, "web-2": 3}


def test_a_paused_deployment_is_reported():
    assert expanded(deployment(3, paused=True)).report.notes == (
        "Deployment default/web is paused before its first pod: none made",
    )


def test_a_replica_set_that_pods_refer_to_keeps_its_name_and_uid():
    there = pod("p", ("ReplicaSet", "web-x"), labels={"app": "a", "pod-template-hash": "x"}, uid="u1")
    cluster = expanded(deployment(2), there)
    (made_up,) = cluster.replica_sets
    assert (made_up.metadata.name, made_up.metadata.uid) == ("web-x", "u1")
    assert controller_of(cluster.pods[1].metadata).uid == "u1"


OWNERSHIP = {  # the existing pod, the replica set's UID → new pods of two
    "by name, without UIDs": (pod("p", ("ReplicaSet", "rs")), "", 1),
    "by UID": (pod("p", ("ReplicaSet", "rs"), uid="u1"), "u1", 1),
    "of an earlier set of that name": (pod("p", ("ReplicaSet", "rs"), uid="u0"), "u1", 2),
    "of another kind": (pod("p", ("Job", "rs")), "", 2),
    "without an owner, adopted": (pod("p"), "u1", 1),
    "without an owner, other labels": (pod("p", labels={"app": "b"}), "u1", 2),
    "without an owner, ended": (pod("p", phase="Succeeded"), "u1", 2),
    "elsewhere": (pod("p", ("ReplicaSet", "rs"), namespace="other"), "", 2),
}


@pytest.mark.parametrize(("there", "uid", "number"), OWNERSHIP.values(), ids=OWNERSHIP)
def test_which_pods_belong_to_the_replica_set(there, uid, number):
    assert len(new_pods(replica_set("rs", 2, owner=None, uid=uid), there)) == number


def test_an_adopted_pod_gets_one_owner():
    cluster = expanded(replica_set("rs-1", 1, owner=None), replica_set("rs-2", 1, owner=None), pod("p"))
    assert Counter(controller_of(one.metadata).name for one in cluster.pods) == {"rs-1": 1, "rs-2": 1}
    assert cluster.pods[0].name == "p"


def test_an_invalid_selector_is_rejected_with_its_object():
    broken = {"matchExpressions": [{"key": "a", "operator": "Foo"}]}
    with pytest.raises(
        InputError, match=r'^ReplicaSet default/a: spec.selector: .*"Foo" is not a valid label selector operator'
    ):
        expanded(made("ReplicaSet", {"selector": broken, "template": TEMPLATE}))


# -- stateful sets ------------------------------------------------------------------------------------------------------

CLAIM = {"metadata": {"name": "data", "labels": {"x": "y"}}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}


def stateful(**spec: object) -> dict:
    return made("StatefulSet", {"replicas": 2, "selector": SELECTOR, "template": TEMPLATE, "serviceName": "s", **spec}, "db")


ORDINALS = {
    "from zero": (stateful(), [], ["db-0", "db-1"]),
    "from a start": (stateful(ordinals={"start": 5}), [], ["db-5", "db-6"]),
    "a gap": (stateful(replicas=3), [pod("db-1", ("StatefulSet", "db"))], ["db-0", "db-2"]),
    "adopted by its name": (stateful(), [pod("db-0")], ["db-1"]),
    "another name is not adopted": (stateful(), [pod("other")], ["db-0", "db-1"]),
}


@pytest.mark.parametrize(("workload", "there", "names"), ORDINALS.values(), ids=ORDINALS)
def test_stateful_sets_number_their_pods(workload, there, names):
    assert [one.name for one in new_pods(workload, *there)] == names


def test_stateful_pods_have_their_name_index_and_claims():
    shadowed = template(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "old"}}, {"name": "tmp"}])
    cluster = expanded(stateful(volumeClaimTemplates=[CLAIM], template=shadowed))
    first = cluster.pods[0]
    assert first.labels["statefulset.kubernetes.io/pod-name"] == "db-0"
    assert first.labels["apps.kubernetes.io/pod-index"] == "0"
    assert first.labels["controller-revision-hash"]
    claims = [volume.persistent_volume_claim for volume in first.spec.volumes]
    assert [volume.name for volume in first.spec.volumes] == ["data", "tmp"]
    assert claims[0].claim_name == "data-db-0"
    assert [claim.key for claim in cluster.persistent_volume_claims] == ["default/data-db-0", "default/data-db-1"]
    assert cluster.persistent_volume_claims[0].metadata.labels == {"x": "y", "app": "a"}
    assert cluster.persistent_volume_claims[0].spec.resources.requests == {"storage": "1Gi"}


def test_an_existing_claim_is_kept():
    there = made("PersistentVolumeClaim", {"volumeName": "pv-7"}, "data-db-0")
    cluster = expanded(stateful(volumeClaimTemplates=[CLAIM]), there)
    assert [claim.spec.volume_name for claim in cluster.persistent_volume_claims] == ["pv-7", ""]


# -- daemon sets --------------------------------------------------------------------------------------------------------


def daemon(**spec: object) -> dict:
    return made("DaemonSet", {"selector": SELECTOR, "template": template(**spec)}, "agent")


def taint(effect: str, key: str = "k") -> list[dict]:
    return [{"key": key, "effect": effect}]


NODES = [
    node("plain"),
    node("east", zone="east"),
    node("kept-off", taint("NoSchedule")),
    node("thrown-off", taint("NoExecute")),
    node("disliked", taint("PreferNoSchedule")),
    node("cordoned", taint("NoSchedule", "node.kubernetes.io/unschedulable")),
    node("not-ready", taint("NoExecute", "node.kubernetes.io/not-ready")),
    node("offline", taint("NoSchedule", "node.kubernetes.io/network-unavailable")),
]
USUAL = ["plain", "east", "disliked", "cordoned", "not-ready"]
IN_EAST = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}]}
DAEMONS = {
    "the default tolerations of daemon pods": ({}, USUAL),
    "host network": ({"hostNetwork": True}, [*USUAL, "offline"]),
    "additional tolerations": (
        {"tolerations": [{"key": "k", "operator": "Exists"}]}, [*USUAL[:2], "kept-off", "thrown-off", *USUAL[2:]],
    ),
    "node selector": ({"nodeSelector": {"zone": "east"}}, ["east"]),
    "node affinity": (
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": IN_EAST}}}, ["east"],
    ),
    "affinity that no node matches": (
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}, [],
    ),
    "one node by name": ({"nodeName": "plain"}, ["plain"]),
}  # fmt: skip


def tied(one: Pod) -> str:
    (term,) = one.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    (field,) = term.match_fields
    assert (field.key, field.operator, term.match_expressions) == ("metadata.name", "In", ())
    return field.values[0]


@pytest.mark.parametrize(("spec", "names"), DAEMONS.values(), ids=DAEMONS)
def test_daemon_sets_run_on_eligible_nodes(spec, names):
    assert [tied(one) for one in new_pods(*NODES, daemon(**spec))] == names


def daemon_pod(spec: dict, phase: str = "Running") -> dict:
    owner = {"kind": "DaemonSet", "name": "agent", "controller": True}
    return made("Pod", spec, "p", {"phase": phase}, ownerReferences=[owner])


ON_B = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}
DAEMON_PODS = {  # an existing pod → nodes without a daemon pod, of a and b
    "running": (daemon_pod({"nodeName": "a"}), ["b"]),
    "pending for b": (
        daemon_pod({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ON_B}}}, "Pending"),
        ["a"],
    ),
    "failed": (daemon_pod({"nodeName": "a"}, "Failed"), ["a", "b"]),
}


@pytest.mark.parametrize(("there", "names"), DAEMON_PODS.values(), ids=DAEMON_PODS)
def test_nodes_that_have_their_daemon_pod(there, names):
    assert [tied(one) for one in new_pods(node("a"), node("b"), daemon(), there)] == names


def test_daemon_pods_keep_other_affinity_and_get_labels():
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "z", "operator": "Exists"}]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}, "podAntiAffinity": {}}
    workload = daemon(affinity=affinity)
    workload["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "7"}
    (one,) = new_pods(node("a"), workload)
    assert len(one.spec.affinity.node_affinity.preferred_during_scheduling_ignored_during_execution) == 1
    assert one.spec.affinity.pod_anti_affinity is not None
    assert one.labels["pod-template-generation"] == "7"
    assert one.labels["controller-revision-hash"]
    assert sorted((t.key.rpartition("/")[2], t.effect) for t in one.spec.tolerations) == [
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("not-ready", "NoExecute"),
        ("pid-pressure", "NoSchedule"),
        ("unreachable", "NoExecute"),
        ("unschedulable", "NoSchedule"),
    ]


# -- jobs ---------------------------------------------------------------------------------------------------------------


def job(status: dict | None = None, **spec: object) -> dict:
    return made("Job", {"template": template(restartPolicy="Never"), **spec}, "j", status)


def done(name: str, **annotations: str) -> dict:
    return pod(name, ("Job", "j"), "Succeeded", annotations={f"batch.kubernetes.io/{k}": v for k, v in annotations.items()})


JOBS = {  # the job, its existing pods → new pods
    "neither set": (job(), [], 1),
    "only parallelism": (job(parallelism=3), [], 3),
    "only parallelism, after a success": (job(parallelism=3), [done("p")], 0),
    "only completions": (job(completions=3), [], 1),
    "both": (job(completions=5, parallelism=2), [], 2),
    "fewer remain": (job({"succeeded": 4}, completions=5, parallelism=3), [], 1),
    "some running": (job(completions=5, parallelism=3), [pod("p", ("Job", "j"))], 2),
    "all succeeded": (job(completions=2, parallelism=3), [done("p"), done("q")], 0),
    "no parallelism": (job(parallelism=0), [], 0),
    "suspended": (job(suspend=True), [], 0),
    "complete": (job({"conditions": [{"type": "Complete", "status": "True"}]}), [], 0),
    "failed": (job({"conditions": [{"type": "Failed", "status": "True"}]}), [], 0),
    "a failed pod does not count": (job({"conditions": [{"type": "FailureTarget", "status": "True"}]}), [], 1),
    "managed by another controller": (job(managedBy="kueue.x-k8s.io/multikueue"), [], 0),
    "managed by the job controller": (job(managedBy="kubernetes.io/job-controller"), [], 1),
}


@pytest.mark.parametrize(("workload", "there", "number"), JOBS.values(), ids=JOBS)
def test_jobs(workload, there, number):
    assert len(new_pods(workload, *there)) == number


def test_indexed_jobs_number_their_pods():
    status = {"completedIndexes": "0,2-3", "failedIndexes": "5"}
    running = pod("p", ("Job", "j"), annotations={"batch.kubernetes.io/job-completion-index": "1"})
    pods = new_pods(job(status, completions=9, parallelism=4, completionMode="Indexed"), running)
    assert [one.name.rpartition("-")[0] for one in pods] == ["j-4", "j-6", "j-7"]
    assert pods[0].metadata.annotations["batch.kubernetes.io/job-completion-index"] == "4"
    assert pods[0].labels["batch.kubernetes.io/job-completion-index"] == "4"


def test_jobs_label_their_pods():
    (one,) = new_pods(job())
    assert one.labels["job-name"] == one.labels["batch.kubernetes.io/job-name"] == "j"
    assert one.labels["controller-uid"] == controller_of(one.metadata).uid
    (own,) = new_pods(job(manualSelector=True, selector=SELECTOR))
    assert own.labels == {"app": "a"}


INDEXES = {
    "": (),
    "1": ((1, 1),),
    "1,3-5,7": ((1, 1), (3, 5), (7, 7)),
    "3,1-2": ((1, 3),),
    "1-5,2-3": ((1, 5),),
    "8-12": ((8, 9),),
    "x,2-,-3,4-y,6": ((2, 2), (6, 6)),
    "5-3": (),
    "0-99999999999999999": ((0, 9),),
}


@pytest.mark.parametrize(("text", "spans"), INDEXES.items())
def test_index_lists(text, spans):
    assert parse_indexes(text, 10).spans == spans


@settings(max_examples=50)
@given(numbers=st.lists(st.integers(0, 30)), end=st.integers(0, 30))
def test_index_spans_are_sets(numbers, end):
    found = Indexes().with_numbers(numbers)
    assert len(found) == len(set(numbers))
    assert list(found.free_below(end)) == [number for number in range(end) if number not in numbers]


HUGE = 2_000_000_000
TOO_MANY = {
    "replica set": made("ReplicaSet", {"replicas": HUGE, "selector": SELECTOR, "template": TEMPLATE}),
    "deployment": made("Deployment", {"replicas": HUGE, "selector": SELECTOR, "template": TEMPLATE}),
    "stateful set": made("StatefulSet", {"replicas": HUGE, "selector": SELECTOR, "template": TEMPLATE}),
    "job": made("Job", {"parallelism": HUGE, "completions": HUGE, "completionMode": "Indexed", "template": TEMPLATE}),
}


@pytest.mark.parametrize("workload", TOO_MANY.values(), ids=TOO_MANY)
def test_more_pods_than_any_cluster_holds_are_rejected(workload, monkeypatch):
    monkeypatch.setattr(templates, "MAX_PODS", 100)
    with pytest.raises(InputError, match="there would be more than 100, the most that can be simulated"):
        expanded(workload)


def test_indexes_of_a_huge_job_are_not_listed():
    status = {"completedIndexes": f"0-{HUGE - 2}"}
    (last,) = new_pods(job(status, completions=HUGE, parallelism=5, completionMode="Indexed"))
    assert last.name.startswith(f"j-{HUGE - 1}-")


def cron(**spec: object) -> dict:
    return made("CronJob", {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}, **spec}, "nightly")


def running_job(owner: str, status: dict | None = None) -> dict:
    return made(
        "Job", {"suspend": True, "template": TEMPLATE}, "now", status,
        ownerReferences=[{"kind": "CronJob", "name": owner, "controller": True}],
    )  # fmt: skip


CRON_JOBS = {
    "starts its next job": (cron(), [], 1),
    "suspended": (cron(suspend=True), [], 0),
    "one running, concurrency allowed": (cron(concurrencyPolicy="Allow"), [running_job("nightly")], 1),
    "one running, concurrency forbidden": (cron(concurrencyPolicy="Forbid"), [running_job("nightly")], 0),
    "one has ended": (
        cron(concurrencyPolicy="Forbid"), [running_job("nightly", {"conditions": [{"type": "Complete", "status": "True"}]})], 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("workload", "there", "number"), CRON_JOBS.values(), ids=CRON_JOBS)
def test_cron_jobs(workload, there, number):
    cluster = expanded(workload, *there)
    assert len(cluster.pods) == number
    assert len(cluster.jobs) == number + len(there)
    assert len(expanded(workload, *there, cron_jobs=False).pods) == 0


# -- claims created with pods ---------------------------------------------------------------------------------------------


def test_ephemeral_volumes_get_their_claims():
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}}
    alone = pod("p")
    alone["spec"]["volumes"] = [volume]
    cluster = expanded(alone, made("ReplicaSet", {"selector": SELECTOR, "template": template(volumes=[volume]), "replicas": 2}))
    names = [claim.metadata.name for claim in cluster.persistent_volume_claims]
    assert names == [f"{one.name}-scratch" for one in cluster.pods]
    assert controller_of(cluster.persistent_volume_claims[0].metadata).name == "p"
    assert cluster.persistent_volume_claims[0].spec.storage_class_name == "fast"


def test_an_invalid_claim_template_is_rejected_with_its_position():
    volume = {"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": "x"}}}}
    broken = pod("p")
    broken["spec"]["volumes"] = [volume]
    with pytest.raises(InputError, match=r"^Pod default/p: spec.volumes\[0\].ephemeral.volumeClaimTemplate"):
        expanded(broken)


def test_device_claims_are_created_from_templates():
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "own", "resourceClaimName": "mine"}]}
    claim = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    cluster = expanded(
        made("ReplicaSet", {"selector": SELECTOR, "template": template(**spec), "replicas": 2}),
        made("ResourceClaimTemplate", {"metadata": {"labels": {"x": "y"}}, "spec": claim}, "t"),
    )
    assert len(cluster.resource_claims) == 2
    for one, made_claim in zip(cluster.pods, cluster.resource_claims, strict=True):
        (status,) = one.status.resource_claim_statuses
        assert (status.name, status.resource_claim_name) == ("gpu", made_claim.metadata.name)
        assert made_claim.metadata.labels == {"x": "y"}
        assert made_claim.spec.devices.requests[0].exactly.device_class_name == "gpu"
        assert controller_of(made_claim.metadata).uid == one.uid
    again = expand(cluster)
    assert again.resource_claims == cluster.resource_claims


# -- all together ---------------------------------------------------------------------------------------------------------

ALL = [
    *NODES,
    deployment(3),
    replica_set("rs", 2, owner="another"),
    stateful(volumeClaimTemplates=[CLAIM]),
    daemon(),
    job(completions=4, parallelism=3, completionMode="Indexed"),
    cron(),
    made("ReplicationController", {"replicas": 2, "template": TEMPLATE}, "old"),
]


def test_expansion_is_idempotent():
    once = expanded(*ALL)
    assert len(once.pods) == 3 + 2 + 2 + len(USUAL) + 3 + 1 + 2
    assert expand(once, cron_jobs=False).pods == once.pods


@pytest.mark.slow
@settings(max_examples=30)
@given(keep=st.sets(st.integers(0, 12)), replicas=st.integers(0, 6))
def test_only_missing_pods_are_created_again(keep, replicas):
    workload = made("ReplicaSet", {"replicas": replicas, "selector": SELECTOR, "template": TEMPLATE}, "rs")
    full = expanded(workload)
    there = [pod(one.name, ("ReplicaSet", "rs")) for i, one in enumerate(full.pods) if i in keep]
    pods = expanded(workload, *there).pods
    assert len(pods) == replicas
    assert len({one.name for one in pods}) == replicas


@pytest.mark.slow
def test_every_process_creates_the_same_pods(tmp_path: Path):
    (tmp_path / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": ALL}))
    code = (
        "import sys, msgspec; from moorage.simulator.cluster_reader import read\n"
        "from moorage.simulator.workloads import expand\n"
        "c = expand(read([sys.argv[1]], validated=False)); "
        "print(msgspec.json.encode([c.pods, c.replica_sets, c.persistent_volume_claims]).decode())"
    )
    root = Path(__file__).parents[2]
    runs = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(runs) == 1
