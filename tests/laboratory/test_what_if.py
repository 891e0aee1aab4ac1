"""Changes of an input before a question: workloads are scaled, objects replaced."""

from __future__ import annotations

import copy
import json

import pytest

from moorage.errors import InputError
from moorage.interfaces.cli.main import main
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.edit.object_edits import replaced
from moorage.laboratory.edit.scaling import parse_scaled, scale
from moorage.laboratory.edit.what_if import InputChanges
from moorage.simulator.pod_creation import create_pods

CREATED = "2025-01-01T00:00:00Z"


def node(name, cpu="8"):
    status = {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def template(cpu="1", **labels):
    requests = {"requests": {"cpu": cpu}}
    return {
        "metadata": {"labels": {"app": "web", **labels}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": requests}]},
    }


def workload(kind, replicas, version="apps/v1", name="web", cpu="1", owner=None, **more):
    metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": CREATED}
    selector = {"app": "web"} if kind == "ReplicationController" else {"matchLabels": {"app": "web"}}
    spec = {"replicas": replicas, "selector": selector, "template": template(cpu), **more}
    return {"apiVersion": version, "kind": kind, "metadata": metadata | _owned(owner), "spec": spec}


def _owned(owner):
    if owner is None:
        return {}
    kind, name = owner
    return {"ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}]}


def pod(name, owner, at="", ready=True, **more):
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": CREATED,
        "labels": {"app": "web"},
    }
    status = {"phase": "Running" if at else "Pending"}
    if ready and at:
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}]
    spec = template()["spec"] | ({"nodeName": at} if at else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | _owned(owner) | more, "spec": spec, "status": status}


def read(*documents):
    return read_given(copy.deepcopy(list(documents)))


def names(cluster):
    return sorted(one.name for one in create_pods(cluster).cluster.pods)


RS = ("ReplicaSet", "web")
SET = [
    node("a"), node("b"), workload("ReplicaSet", 4),
    pod("web-1", RS, "a"), pod("web-2", RS, "a"), pod("web-3", RS, "b", ready=False), pod("web-4", RS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("replicas", "left"),
    [(4, {1, 2, 3, 4}), (3, {1, 2, 3}), (2, {1, 2}), (0, set())],
    ids=["as it is", "the pod without a node goes first", "then the one that is not ready", "none"],
)
def test_a_replica_set_loses_pods_in_its_controllers_order(replicas, left):
    assert names(scale(read(*SET), parse_scaled(f"rs/web={replicas}"))) == [f"web-{n}" for n in sorted(left)]


def test_of_two_on_one_node_one_goes_first():
    documents = [
        node("a"),
        node("b"),
        workload("ReplicaSet", 3),
        pod("web-1", RS, "b"),
        pod("web-2", RS, "a"),
        pod("web-3", RS, "a"),
    ]
    assert "web-1" in names(scale(read(*documents), parse_scaled("rs/web=2")))


def test_a_workload_that_lacks_pods_gets_fewer():
    documents = [node("a"), workload("ReplicaSet", 5), pod("web-1", RS, "a"), pod("web-2", RS, "a")]
    assert len(names(scale(read(*documents), parse_scaled("rs/web=3")))) == 3
    assert len(names(scale(read(*documents), parse_scaled("rs/web=9")))) == 9


def test_a_stateful_set_loses_the_highest_numbers():
    owner = ("StatefulSet", "web")
    documents = [node("a"), workload("StatefulSet", 3), *(pod(f"web-{n}", owner, "a") for n in range(3))]
    assert names(scale(read(*documents), parse_scaled("sts/web=1"))) == ["web-0"]
    assert names(scale(read(*documents), parse_scaled("sts/web=4"))) == ["web-0", "web-1", "web-2", "web-3"]


def deployed(replicas):
    return [
        node("a"), node("b"), workload("Deployment", replicas),
        *(workload("ReplicaSet", size, name=name, owner=("Deployment", "web")) for name, size in (("old", 1), ("new", 3))),
    ]  # fmt: skip


def test_the_oldest_replica_set_of_a_deployment_shrinks_first():
    documents = deployed(4)
    documents[-1]["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "2"}
    assert [one.spec.replicas for one in scale(read(*documents), parse_scaled("deploy/web=2")).replica_sets] == [0, 2]
    grown = create_pods(scale(read(*documents), parse_scaled("deploy/web=6"))).cluster
    assert [one.spec.replicas for one in grown.replica_sets] == [1, 5]
    with pytest.raises(InputError, match="Deployment web decides on its replicas; scale that"):
        scale(read(*documents), parse_scaled("rs/new=2"))


def test_a_deployment_that_has_no_replica_set_yet():
    documents = [node("a"), workload("Deployment", 3)]
    for replicas in (0, 1, 5):
        assert len(names(scale(read(*documents), parse_scaled(f"deployment/default/web={replicas}")))) == replicas


def test_a_name_in_two_namespaces_must_be_told_apart():
    other = workload("ReplicaSet", 2)
    other["metadata"] |= {"namespace": "other", "uid": "other"}
    with pytest.raises(InputError, match=r"write one of replicaset/default/web, replicaset/other/web"):
        scale(read(workload("ReplicaSet", 2), other), parse_scaled("rs/web=1"))


# -- objects that replace others -----------------------------------------------------------------------------------------


def test_an_object_keeps_its_identity_and_its_status():
    later = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"disk": "ssd"}}}
    (found,) = replaced(read(node("a")), read(later)).nodes
    assert (found.labels["disk"], found.status.allocatable["cpu"]) == ("ssd", "8")
    (found,) = replaced(read(node("a")), read(node("a", "2"))).nodes
    assert found.status.allocatable["cpu"] == "2"


def test_other_objects_are_added_and_namespaces_kept():
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "red"}}}
    after = replaced(read(space, node("a")), read(pod("web-1", None)))
    assert [one.name for one in after.pods] == ["web-1"]
    assert after.namespaces[0].metadata.labels["team"] == "red"


def test_a_pod_without_a_node_is_new():
    later = pod("web-1", None)
    del later["metadata"]["creationTimestamp"]
    (found,) = replaced(read(node("a"), pod("web-1", None, "a")), read(later)).pods
    assert (found.spec.node_name, found.metadata.creation_timestamp) == ("", None)


def test_another_template_replaces_all_pods():
    documents = [
        *deployed(2)[:3],
        workload("ReplicaSet", 2, owner=("Deployment", "web")),
        pod("web-1", RS, "a"),
        pod("web-2", RS, "b"),
    ]
    same = replaced(read(*documents), read(documents[2]))
    assert names(same) == ["web-1", "web-2"]
    fresh = create_pods(replaced(read(*documents), read(workload("Deployment", 2, cpu="2")))).cluster
    assert [one.spec.containers[0].resources.requests["cpu"] for one in fresh.pods] == ["2", "2"]
    assert not {"web-1", "web-2"} & {one.name for one in fresh.pods}
    fewer = replaced(read(*documents), read(workload("Deployment", 1)))
    assert len(names(fewer)) == 1


def test_quotas_give_back_what_pods_that_go_used():
    status = {"hard": {"pods": "2"}, "used": {"pods": "2"}}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"pods": "2"}},
    }
    documents = [
        *deployed(2)[:3], workload("ReplicaSet", 2, owner=("Deployment", "web")), pod("web-1", RS, "a"), pod("web-2", RS, "b"),
        {**quota, "status": status},
    ]  # fmt: skip
    assert create_pods(replaced(read(*documents), read(workload("Deployment", 2, cpu="2")))).refused == ()


def test_what_is_done_is_said_in_order():
    changes = InputChanges(edits=("node/a unschedulable=true",), cordoned=("b",), scaled=(parse_scaled("rs/web=2"),))
    assert changes.texts() == ("cordon b", "scale replicaset/web=2", "node/a unschedulable=true")


def test_simulate_compares_with_the_run_before(capsys, tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a", "2"), workload("ReplicaSet", 3)]}))
    args = ["simulate", "-f", str(path), "--add-nodes", "like=a,count=1", "--scale", "rs/web=4"]
    with pytest.raises(SystemExit) as ended:
        main(args)
    first, *lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0
    assert first.startswith("4 placed on 2 nodes (")
    assert lines[:2] == [
        "  before: 2 placed, 1 pending on 1 node", "  with the changes: add 1 node like a · scale replicaset/web=4",
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        main([*args, "-o", "json"])
    report = json.loads(capsys.readouterr().out)
    assert report["before"]["pods"]["pending"] == 1
    assert report["changes"] == ["add 1 node like a", "scale replicaset/web=4"]
