"""Test that the pods of a deleted node are deleted as by pod garbage collection, and that their controllers replace them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.devices import ResourceClaim
from moorage.basis.inputs.files import InputFile
from moorage.core.engine.facts import Gone, Seen
from moorage.report.run_document import as_data
from moorage.report.tables import render
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.simulate import Options
from tests.simulator.test_simulation import check_settled, node, pod, run, states

# -- a node is deleted during a run ----------------------------------------------------------------------------------------


def placed(simulation):
    return {record.pod.name: record.node for record in simulation.records.values() if record.state == "Placed"}


def lost(simulation):
    found = {**simulation.records, **simulation.victims}
    return {one.pod.name: (one.node, one.replaced) for one in found.values() if one.state == "Deleted"}


def test_pods_of_a_deleted_node_are_deleted_and_replaced_after_forty_seconds():
    there = pod("there", owner="ReplicaSet", nodeName="n1")
    simulation, seen = run([node("n1"), node("n2"), there], later=[(10.0, Gone(node("n1")))])
    ((name, (where, replacement)),) = lost(simulation).items()
    assert (name, where) == ("there", "n1")
    assert placed(simulation) == {replacement: "n2"}
    assert seen == [(50.0, replacement, "n2")]
    assert simulation.scheduler.cluster.pod_count == 1
    check_settled(simulation)


def test_pods_placed_in_the_run_are_deleted_too():
    simulation, _ = run([node("n1"), pod("p", owner="Job")], later=[(10.0, Gone(node("n1"))), (20.0, Seen(node("n2")))])
    assert [where for where, _ in lost(simulation).values()] == ["n1"]
    assert list(placed(simulation).values()) == ["n2"]
    assert states(simulation)["p"] == "Deleted"


OWNERS = {  # the controller's kind, and whether it replaces the pod
    "Deployment's": ("ReplicaSet", True),
    "a replication controller's": ("ReplicationController", True),
    "a stateful set's": ("StatefulSet", True),
    "a job's": ("Job", True),
    "a daemon's": ("DaemonSet", False),
    "a static pod": ("Node", False),
    "a stranger's": ("Rocket", False),
    "without a controller": (None, False),
}


@pytest.mark.parametrize(("owner", "is_replaced"), OWNERS.values(), ids=OWNERS)
def test_which_controllers_replace_the_pod(owner, is_replaced):
    there = pod("there-0", owner=owner, nodeName="n1")
    simulation, _ = run([node("n1"), node("n2"), there], later=[(1.0, Gone(node("n1")))])
    assert len(placed(simulation)) == is_replaced
    if owner == "StatefulSet":
        assert placed(simulation) == {"there-0": "n2"}


def test_a_node_that_returns_in_time_keeps_its_pods():
    there = pod("there", owner="ReplicaSet", nodeName="n1")
    simulation, _ = run([node("n1"), there], later=[(10.0, Gone(node("n1"))), (45.0, Seen(node("n1")))])
    assert not lost(simulation)
    assert simulation.scheduler.cluster.node_of(there.uid) == "n1"
    assert simulation.now == 45.0


def test_an_ended_pod_on_a_deleted_node_stays():
    over = replace(pod("over", owner="Job", nodeName="n1"), status=replace(pod("x").status, phase="Succeeded"))
    simulation, seen = run([node("n1"), over], later=[(1.0, Gone(node("n1")))])
    assert not lost(simulation)
    assert not seen


# -- a node is missing from the input -------------------------------------------------------------------------------------


def obj(kind, name, version="v1", namespace="default", owner=None, labels=None, **parts):
    metadata = {"name": name, "uid": f"{kind}-{name}", **({"namespace": namespace} if namespace else {})}
    if owner is not None:
        kind_of, name_of = owner.split("/")
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind_of, "name": name_of, "uid": f"{kind_of}-{name_of}", "controller": True}
        ]
    return {"apiVersion": version, "kind": kind, "metadata": {**metadata, **({"labels": labels} if labels else {})}, **parts}


def a_node(name):
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return obj(
        "Node",
        name,
        namespace="",
        status={"allocatable": amounts, "capacity": amounts},
        labels={"kubernetes.io/hostname": name},
    )


SPEC = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}


def on(where, name, owner=None, labels=None, **more):
    status = more.pop("status", {"phase": "Running"})
    return obj("Pod", name, owner=owner, labels=labels or {"app": "x"}, spec={**SPEC, "nodeName": where, **more}, status=status)


def workload(kind, name, replicas, version="apps/v1", **more):
    template = {"metadata": {"labels": {"app": "x"}}, "spec": SPEC}
    counted = {} if kind == "DaemonSet" else {"replicas": replicas}
    return obj(kind, name, version, spec={**counted, "selector": {"matchLabels": {"app": "x"}}, "template": template, **more})


def result_of(*objects, **options):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    _, result = simulate_cluster(read_sources([InputFile("in", text.encode())]), Options(**options))
    return result


def lost_pods_notes(result):
    return [note.text for note in result.notes if note.kind == "LostPods"]


def outcomes(result):
    return sorted((one.name, one.state, one.node, one.replaced_by) for one in result.pods)


def test_pods_of_a_node_missing_from_a_dump_are_deleted_and_replaced():
    replica_set = workload("ReplicaSet", "web", 3)
    pods = [on(where, f"web-{n}", "ReplicaSet/web") for n, where in enumerate(("n1", "n1", "n2"))]
    result = result_of(a_node("n2"), replica_set, *pods)
    new = [one.name for one in result.pods if one.state == "Placed"]
    assert outcomes(result)[:2] == [("web-0", "Deleted", "n1", new[0]), ("web-1", "Deleted", "n1", new[1])]
    assert len(new) == 2
    (text,) = lost_pods_notes(result)
    assert text == (
        "2 pods were on 1 node not in the input (n1) and are gone with it, as pod garbage collection would have it;"
        " controllers replace 2. If the node exists, add it to the input"
    )
    assert not [note for note in result.notes if note.kind == "MissingReference"]
    table = render(result)
    assert table.startswith("2 placed, 2 deleted with their node on 1 node ")
    assert "Deleted with their node:" in table
    assert as_data(result)["summary"]["pods"]["deleted"] == 2


def test_a_controller_creates_no_more_pods_than_it_wants():
    pods = [on(where, f"web-{n}", "ReplicaSet/web") for n, where in enumerate(("n1", "n1", "n2"))]
    result = result_of(a_node("n2"), workload("ReplicaSet", "web", 1), *pods)
    assert [state for _, state, _, _ in outcomes(result)] == ["Deleted", "Deleted"]
    assert "controllers replace 0" in lost_pods_notes(result)[0]


KNOWN = {  # the workload in the input, its pod on a missing node, and the new pod's name (None: any; "": none)
    "a stateful set": (workload("StatefulSet", "db", 1, serviceName="db"), ("db-0", "StatefulSet/db"), "db-0"),
    "a daemon set": (workload("DaemonSet", "agent", 0), ("agent-1", "DaemonSet/agent"), "agent"),
    "a deployment whose replica set is missing": (
        workload("Deployment", "web", 1), ("web-5d4f-abc", "ReplicaSet/web-5d4f"), None,
    ),
    "a job": (
        obj("Job", "once", "batch/v1", spec={"template": {"spec": {**SPEC, "restartPolicy": "Never"}}}),
        ("once-1", "Job/once"), None,
    ),
    "no workload: a replica set's pod": (None, ("web-5d4f-abc", "ReplicaSet/web-5d4f"), None),
    "no workload: a stateful set's pod": (None, ("db-3", "StatefulSet/db"), "db-3"),
    "no workload: a daemon's pod": (None, ("agent-1", "DaemonSet/agent"), ""),
    "no workload at all": (None, ("lonely", None), ""),
}  # fmt: skip


@pytest.mark.parametrize(("known", "there", "new_name"), KNOWN.values(), ids=KNOWN)
def test_workloads_of_the_input_and_owners_of_pods_replace_pods(known, there, new_name):
    labels = {"app": "x", **({"pod-template-hash": "5d4f"} if "5d4f" in there[0] else {})}
    result = result_of(a_node("n2"), *([known] if known else []), on("n1", *there, labels=labels))
    new = [one for one in result.pods if one.state == "Placed"]
    gone = [one for one in result.pods if one.state == "Deleted"]
    assert [one.name for one in gone] == [there[0]]
    if new_name == "":
        assert not new
    elif new_name == "agent":  # a daemon pod of the present node, which replaces nothing
        assert (len(new), gone[0].replaced_by) == (1, "")
    else:
        assert [one.name for one in new] == [gone[0].replaced_by]
        assert new_name is None or new[0].name == new_name


def test_terminating_pods_on_a_missing_node_are_replaced_once():
    ending = on("n1", "web-0", "ReplicaSet/web")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    result = result_of(a_node("n2"), ending)
    assert outcomes(result) == [("web-0", "Deleted", "n1", "")]


def test_a_file_with_only_pods_keeps_them_with_a_note():
    result = result_of(on("n1", "web-0", "ReplicaSet/web"), on("n2", "web-1"))
    assert not result.pods
    assert not lost_pods_notes(result)
    assert [note.text for note in result.notes if note.kind == "MissingReference"] == [
        "2 Pods refer to 2 Nodes not in the input: n1, n2"
    ]


def test_devices_and_volumes_of_lost_pods_are_released():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "Pod-p", "controller": True}
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
    allocation = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n1", "device": "d0"}]}}
    status = {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": "p", "uid": "Pod-p"}]}
    shared = obj("ResourceClaim", "shared", "resource.k8s.io/v1", spec={"devices": devices}, status=status)
    shared["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    own = obj("ResourceClaim", "own", "resource.k8s.io/v1", spec={"devices": devices})
    scratch = obj(
        "PersistentVolumeClaim", "p-scratch",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""},
    )  # fmt: skip
    for one in (own, scratch):
        one["metadata"]["ownerReferences"] = [owner]
    device_class = obj("DeviceClass", "gpu", "resource.k8s.io/v1", namespace="", spec={})
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [
        a_node("n2"), device_class, shared, own, scratch, on("n1", "p"),
    ]})  # fmt: skip
    cluster, _ = simulate_cluster(read_sources([InputFile("in", text.encode())]), Options())
    (left,) = cluster.resource_claims
    assert isinstance(left, ResourceClaim)
    assert (left.metadata.name, left.status.allocation, left.status.reserved_for) == ("shared", None, ())
    assert not cluster.persistent_volume_claims


NODES = ("n1", "n2", "n3")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    wanted=st.integers(0, 5), where=st.lists(st.sampled_from(NODES), max_size=6), there=st.sets(st.sampled_from(NODES)),
    kind=st.sampled_from(["ReplicaSet", "StatefulSet"]), known=st.booleans(),
)  # fmt: skip
def test_each_workload_has_its_number_of_pods_whatever_nodes_are_missing(wanted, where, there, kind, known):
    pods = [on(node, f"web-{n}", f"{kind}/web") for n, node in enumerate(where)]
    result = result_of(*map(a_node, sorted(there)), *([workload(kind, "web", wanted)] if known else []), *pods)
    kept = [node for node in where if node in there or not there]
    new = [one for one in result.pods if one.state in {"Placed", "Pending"}]
    gone = [one for one in result.pods if one.state == "Deleted"]
    assert len(gone) == len(where) - len(kept)
    assert sum(node.pods for node in result.nodes) == (len(kept) if there else 0) + len(result.in_state("Placed"))
    assert {one.replaced_by for one in gone} - {""} <= {one.name for one in new}
    if not known:
        assert len(new) == len(gone)
    elif kind == "ReplicaSet":
        assert len(new) == max(0, wanted - len(kept))
    else:
        alive = {f"web-{n}" for n, node in enumerate(where) if node in there or not there}
        assert {one.name for one in new} == {f"web-{n}" for n in range(wanted)} - alive
