"""Stateful sets: order, numbers, claims, and rollouts from the last to the first."""

import time

import pytest

from moorage.cluster.controllers.upkeep.garbage_collector import GarbageCollector
from moorage.rules.workloads.stateful_set import StatefulSets

DB = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}, annotations: {moorage.dev/ready-seconds: "5"}}
    spec: {containers: [{name: c, image: "db:1"}]}
"""


@pytest.fixture
def empty(lab):
    made = lab(StatefulSets(), GarbageCollector())
    yield made
    assert made.reports == []


@pytest.fixture
def cluster(empty):
    empty.apply(DB)
    empty.advance(30)
    return empty


def image(n):
    def change(held):
        held["spec"]["template"]["spec"]["containers"][0]["image"] = f"db:{n}"

    return change


def images(cluster):
    return [
        pod["spec"]["containers"][0]["image"] for pod in sorted(cluster.all("pods"), key=lambda pod: pod["metadata"]["name"])
    ]


def test_pods_are_created_in_order(empty):
    empty.apply(DB)
    seen = []
    for _ in range(4):
        empty.advance(1)
        seen.append(sorted(empty.names("pods")))
        empty.advance(4)
    assert seen == [["db-0"], ["db-0", "db-1"], ["db-0", "db-1", "db-2"], ["db-0", "db-1", "db-2"]]
    assert empty.counts("statefulsets", "db") == {
        "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": 3,
        "updatedReplicas": 3, "collisionCount": 0,
    }  # fmt: skip
    pod = empty.get("pods", "db-1")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-1", "db")
    labels = pod["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "db-1"
    assert labels["apps.kubernetes.io/pod-index"] == "1"
    assert labels["controller-revision-hash"] == empty.get("statefulsets", "db")["status"]["updateRevision"]


def test_parallel_management_creates_pods_at_once(empty):
    empty.apply(DB.replace("replicas: 3", "replicas: 3\n  podManagementPolicy: Parallel\n  ordinals: {start: 5}"))
    empty.settle()
    assert sorted(empty.names("pods")) == ["db-5", "db-6", "db-7"]


def test_scaling_down_deletes_the_last_pod_first(cluster):
    for name in ("db-1", "db-2"):
        cluster.edit("pods", name, lambda pod: pod["metadata"]["annotations"].update({"moorage.dev/stop-seconds": "5"}))
    cluster.patch("statefulsets", "db", replicas=1)
    cluster.advance(2)
    ending = {pod["metadata"]["name"] for pod in cluster.all("pods") if pod["metadata"].get("deletionTimestamp")}
    assert ending == {"db-2"}
    cluster.advance(5)
    assert cluster.get("pods", "db-1")["metadata"].get("deletionTimestamp")
    cluster.advance(10)
    assert cluster.names("pods") == ["db-0"]


def test_a_rollout_replaces_pods_from_last_to_first(cluster):
    cluster.edit("statefulsets", "db", image(2))
    cluster.advance(1)
    assert images(cluster) == ["db:1", "db:1", "db:2"]
    status = cluster.get("statefulsets", "db")["status"]
    assert status["currentRevision"] != status["updateRevision"]
    cluster.advance(6)
    assert images(cluster) == ["db:1", "db:2", "db:2"]
    cluster.advance(20)
    assert images(cluster) == ["db:2"] * 3
    status = cluster.get("statefulsets", "db")["status"]
    assert status["currentRevision"] == status["updateRevision"]


def test_the_partition_keeps_the_first_ones(cluster):
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    cluster.patch("statefulsets", "db", updateStrategy=rolling)
    cluster.edit("statefulsets", "db", image(2))
    cluster.advance(30)
    assert images(cluster) == ["db:1", "db:1", "db:2"]
    cluster.delete("pods", "db-0")
    cluster.advance(30)
    assert images(cluster) == ["db:1", "db:1", "db:2"], "below the partition a pod comes back as it was"


def test_max_unavailable_replaces_several_at_a_time(empty):
    cluster = empty
    cluster.apply(DB.replace("selector:", "podManagementPolicy: Parallel\n  selector:", 1))
    cluster.advance(30)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    cluster.patch("statefulsets", "db", updateStrategy=strategy)
    cluster.edit("statefulsets", "db", image(2))
    cluster.advance(1)
    assert images(cluster) == ["db:1", "db:2", "db:2"]


def test_on_delete_waits_for_the_deletion(cluster):
    cluster.patch("statefulsets", "db", updateStrategy={"type": "OnDelete"})
    cluster.edit("statefulsets", "db", image(2))
    cluster.advance(10)
    assert images(cluster) == ["db:1"] * 3
    cluster.delete("pods", "db-1")
    cluster.advance(10)
    assert images(cluster) == ["db:1", "db:2", "db:1"]


def test_a_failed_pod_is_recreated(cluster):
    uid = cluster.get("pods", "db-1")["metadata"]["uid"]
    cluster.edit("pods", "db-1", lambda pod: pod["status"].update(phase="Failed"), subresource="status")
    cluster.advance(10)
    assert cluster.get("pods", "db-1")["metadata"]["uid"] != uid


CLAIM = """
  volumeClaimTemplates:
  - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
"""


def with_claims(cluster, policy=""):
    cluster.apply(DB.rstrip() + CLAIM + policy)
    for number in range(3):
        cluster.settle()
        name = f"data-db-{number}"
        cluster.edit("persistentvolumeclaims", name, lambda claim: claim["status"].update(phase="Bound"), subresource="status")
        cluster.advance(10)


def test_each_pod_has_its_own_retained_claims(empty):
    with_claims(empty)
    assert empty.names("persistentvolumeclaims") == ["data-db-0", "data-db-1", "data-db-2"]
    claim = empty.get("persistentvolumeclaims", "data-db-1")
    assert claim["metadata"]["labels"] == {"app": "db"}
    (volume,) = [one for one in empty.get("pods", "db-1")["spec"]["volumes"] if one["name"] == "data"]
    assert volume["persistentVolumeClaim"] == {"claimName": "data-db-1"}
    empty.patch("statefulsets", "db", replicas=1)
    empty.advance(10)
    assert len(empty.names("persistentvolumeclaims")) == 3


KEPT = {
    "with the set": ("whenDeleted: Delete", 3, 0),
    "with their pods": ("whenScaled: Delete", 1, 1),
    "with either": ("whenDeleted: Delete, whenScaled: Delete", 1, 0),
}


@pytest.mark.parametrize(("policy", "scaled", "deleted"), KEPT.values(), ids=KEPT)
def test_claims_are_deleted_by_retention_policy(empty, policy, scaled, deleted):
    with_claims(empty, f"  persistentVolumeClaimRetentionPolicy: {{{policy}}}\n")
    empty.patch("statefulsets", "db", replicas=1)
    empty.advance(10)
    assert len(empty.names("persistentvolumeclaims")) == scaled
    empty.delete("statefulsets", "db")
    empty.advance(10)
    assert len(empty.names("persistentvolumeclaims")) == deleted


def owned(cluster, name, **more):
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "0", **more}
    cluster.edit("persistentvolumeclaims", name, lambda claim: claim["metadata"].update(ownerReferences=[owner]))


def test_a_claim_with_another_controller_stays(empty):
    with_claims(empty)
    empty.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}})
    uid = empty.get("configmaps", "other")["metadata"]["uid"]
    owned(empty, "data-db-1", uid=uid, controller=True)
    owned(empty, "data-db-2", uid=uid)
    empty.patch("statefulsets", "db", persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete", "whenDeleted": "Delete"})
    empty.advance(10)
    assert not any("conflicting" in one["message"] for one in empty.all("events"))  # nothing had to be put right
    empty.patch("statefulsets", "db", replicas=0)
    empty.advance(20)
    assert empty.names("pods") == []
    assert empty.names("persistentvolumeclaims") == ["data-db-1", "data-db-2"]
    (left,) = empty.get("persistentvolumeclaims", "data-db-2")["metadata"]["ownerReferences"]
    assert left["kind"] == "ConfigMap"  # who owns it beside the pod keeps it


def test_a_claim_taken_over_by_another_controller_is_released(empty):
    with_claims(empty, "  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}\n")
    empty.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}})
    mine = empty.get("persistentvolumeclaims", "data-db-1")["metadata"]["ownerReferences"]
    assert [one["kind"] for one in mine] == ["StatefulSet"]
    uid = empty.get("configmaps", "other")["metadata"]["uid"]
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid, "controller": True}
    refs = [{**mine[0], "controller": False}, other]
    empty.edit("persistentvolumeclaims", "data-db-1", lambda claim: claim["metadata"].update(ownerReferences=refs))
    empty.edit("pods", "db-1", lambda pod: pod["metadata"]["labels"].update(look="again"))
    empty.advance(10)
    assert [one["kind"] for one in empty.get("persistentvolumeclaims", "data-db-1")["metadata"]["ownerReferences"]] == [
        "ConfigMap"
    ]
    told = [one["message"] for one in empty.all("events") if one["reason"] == "ConflictingController"]
    assert told[0].startswith("PersistentVolumeClaim data-db-1 has a conflicting OwnerReference")


def test_events_have_the_texts_of_kubernetes(cluster):
    told = {one["message"] for one in cluster.all("events") if one["involvedObject"]["kind"] == "StatefulSet"}
    name = cluster.names("statefulsets")[0]
    assert f"Create Pod {name}-0 in StatefulSet {name} successful" in told
    (first, *_) = cluster.all("pods")
    assert first["metadata"]["generateName"] == f"{name}-"
    assert all("controller.kubernetes.io/hash" in one["metadata"]["labels"] for one in cluster.all("controllerrevisions"))


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_any_number_of_replicas_is_created_in_batches(empty, policy):
    empty.apply(DB.replace("replicas: 3", f"replicas: 100000000\n  podManagementPolicy: {policy}"))
    empty.manager.step()
    most = 1 if policy == "OrderedReady" else 100
    assert len(empty.names("pods")) == most
    began = time.process_time()
    empty.manager.step()
    assert len(empty.names("pods")) == (1 if policy == "OrderedReady" else 200)
    assert time.process_time() - began < 2


def test_scaling_down_from_any_number_of_replicas(empty):
    empty.apply(DB.replace("replicas: 3", "replicas: 100000000\n  podManagementPolicy: Parallel"))
    empty.manager.step()
    empty.edit("statefulsets", "db", lambda held: held["spec"].update(replicas=2))
    empty.advance(60)
    assert empty.names("pods") == ["db-0", "db-1"]
