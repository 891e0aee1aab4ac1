"""What is owned goes with its owner, or stays, as the deletion says."""

import pytest

from moorage.api.documents.object_fields import REPLICA_SETS
from moorage.cluster.controllers.upkeep.garbage_collector import GarbageCollector
from moorage.rules.workloads.deployment import Deployments
from moorage.rules.workloads.replica_set import ReplicaSets

SHOP = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}, annotations: {moorage.dev/stop-seconds: "5"}}
    spec: {containers: [{name: c, image: "shop:1"}]}
"""


@pytest.fixture
def cluster(lab):
    made = lab(Deployments(), ReplicaSets(REPLICA_SETS), GarbageCollector())
    made.apply(SHOP)
    made.settle()
    yield made
    assert made.reports == []


def left(cluster):
    return [len(cluster.all(resource)) for resource in ("deployments", "replicasets", "pods")]


def test_background_deletion_deletes_the_owner_first(cluster):
    cluster.delete("deployments", "shop", propagationPolicy="Background")
    assert left(cluster) == [0, 1, 3]
    cluster.settle()
    assert left(cluster) == [0, 0, 3]
    cluster.advance(6)
    assert left(cluster) == [0, 0, 0]


def test_foreground_deletion_deletes_the_owner_last(cluster):
    cluster.delete("deployments", "shop", propagationPolicy="Foreground")
    cluster.settle()
    assert left(cluster) == [1, 1, 3]
    assert all(pod["metadata"].get("deletionTimestamp") for pod in cluster.all("pods"))
    cluster.advance(6)
    assert left(cluster) == [0, 0, 0]


def test_orphans_stay_and_are_adopted_again(cluster):
    before = cluster.names("pods")
    cluster.delete("deployments", "shop", propagationPolicy="Orphan")
    cluster.settle()
    assert left(cluster) == [0, 1, 3]
    assert cluster.all("replicasets")[0]["metadata"].get("ownerReferences") in (None, [])
    cluster.apply(SHOP)
    cluster.settle()
    assert left(cluster) == [1, 1, 3]
    assert cluster.names("pods") == before


def a_map(name, *owners):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": list(owners)}}


def owner(cluster, name, **more):
    held = cluster.get("configmaps", name)
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": held["metadata"]["uid"], **more}


def test_one_remaining_owner_keeps_a_dependent(cluster):
    for name in ("a", "b"):
        cluster.apply(a_map(name))
    cluster.apply(a_map("c", owner(cluster, "a"), owner(cluster, "b")))
    cluster.delete("configmaps", "a")
    cluster.settle()
    assert [ref["name"] for ref in cluster.get("configmaps", "c")["metadata"]["ownerReferences"]] == ["b"]
    cluster.delete("configmaps", "b")
    cluster.settle()
    assert cluster.get("configmaps", "c") is None


def test_an_owner_that_never_existed_counts_as_deleted(cluster):
    cluster.apply(a_map("lost", {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "missing"}))
    cluster.settle()
    assert cluster.get("configmaps", "lost") is None


def test_an_owner_of_an_unserved_kind_keeps_its_dependents(cluster):
    cluster.apply(a_map("kept", {"apiVersion": "acme.io/v1", "kind": "Rocket", "name": "x", "uid": "missing"}))
    cluster.settle()
    assert cluster.get("configmaps", "kept") is not None


def test_only_blocking_dependents_delay_the_owner(cluster):
    cluster.apply(a_map("a"))
    cluster.apply(a_map("b", owner(cluster, "a")))
    cluster.edit("configmaps", "b", lambda one: one["metadata"].update(finalizers=["example.com/hold"]))
    cluster.delete("configmaps", "a", propagationPolicy="Foreground")
    cluster.settle()
    assert cluster.get("configmaps", "a") is None
    assert cluster.get("configmaps", "b")["metadata"]["deletionTimestamp"]


def test_a_blocking_dependent_with_a_finalizer_delays_its_owner(cluster):
    cluster.apply(a_map("a"))
    cluster.apply(a_map("b", owner(cluster, "a", blockOwnerDeletion=True)))
    cluster.edit("configmaps", "b", lambda one: one["metadata"].update(finalizers=["example.com/hold"]))
    cluster.delete("configmaps", "a", propagationPolicy="Foreground")
    cluster.settle()
    assert cluster.get("configmaps", "a") is not None
    cluster.edit("configmaps", "b", lambda one: one["metadata"].update(finalizers=[]))
    cluster.settle()
    assert cluster.get("configmaps", "a") is None


def test_an_owner_in_another_namespace_does_not_count(cluster):
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far"}})
    cluster.apply(a_map("a"))
    cluster.apply(
        {**a_map("b", owner(cluster, "a")), "metadata": {**a_map("b", owner(cluster, "a"))["metadata"], "namespace": "far"}}
    )
    cluster.settle()
    assert cluster.get("configmaps", "b", "far") is None


def test_objects_that_own_each_other_are_all_deleted(lab):
    cluster = lab(GarbageCollector())
    names = ["one", "two", "three"]
    for name in names:
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    for name, owner in zip(names, [*names[1:], names[0]], strict=True):
        uid = cluster.get("configmaps", owner)["metadata"]["uid"]
        ref = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        cluster.edit("configmaps", name, lambda held, ref=ref: held["metadata"].update(ownerReferences=[ref]))
    cluster.settle()
    cluster.delete("configmaps", "one", propagationPolicy="Foreground")
    cluster.settle()
    assert not set(names) & set(cluster.names("configmaps"))
