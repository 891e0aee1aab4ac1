"""Replica sets: as many pods as asked for, whose they are, and which go first."""

import pytest

from moorage.api.documents.object_fields import CONTROLLERS, REPLICA_SETS, stamp
from moorage.rules.workloads.deletion_order import deletion_order
from moorage.rules.workloads.replica_set import ReplicaSets

WEB = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
"""
STRAY = """
apiVersion: v1
kind: Pod
metadata: {name: stray, labels: {app: web}}
spec: {containers: [{name: c, image: i}]}
"""


@pytest.fixture
def cluster(lab):
    made = lab(ReplicaSets(REPLICA_SETS))
    made.apply(WEB)
    made.settle()
    return made


def owner(pod):
    return [ref["name"] for ref in pod["metadata"].get("ownerReferences", ()) if ref.get("controller")]


def test_pods_are_created_run_and_counted(cluster):
    pods = cluster.all("pods")
    assert len(pods) == 3
    assert all(owner(pod) == ["web"] and pod["status"]["phase"] == "Running" for pod in pods)
    assert cluster.counts("replicasets", "web") == {
        "replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 3, "availableReplicas": 3, "terminatingReplicas": 0,
        "observedGeneration": 1,
    }  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 5, 250])
def test_a_replica_set_scales_up_and_down(cluster, size):
    cluster.patch("replicasets", "web", replicas=size)
    cluster.settle()
    assert len(cluster.all("pods")) == size
    assert cluster.counts("replicasets", "web")["replicas"] == size


def test_a_lost_pod_is_replaced(cluster):
    before = set(cluster.names("pods"))
    cluster.delete("pods", min(before), gracePeriodSeconds=0)
    cluster.settle()
    assert len(set(cluster.names("pods")) - before) == 1


def test_a_slowly_terminating_pod_is_replaced_at_once(cluster):
    name = cluster.names("pods")[0]
    cluster.edit("pods", name, lambda pod: pod["metadata"].update(annotations={"moorage.dev/stop-seconds": "20"}))
    cluster.delete("pods", name)
    cluster.settle()
    assert len(cluster.all("pods")) == 4
    assert cluster.counts("replicasets", "web")["terminatingReplicas"] == 1
    cluster.advance(21)
    assert len(cluster.all("pods")) == 3


def test_an_orphan_pod_is_adopted_and_a_surplus_pod_deleted(lab):
    made = lab(ReplicaSets(REPLICA_SETS))
    made.apply(STRAY)
    made.advance(60)
    made.apply(WEB)
    made.settle()
    assert owner(made.get("pods", "stray")) == ["web"]
    assert len(made.all("pods")) == 3
    made.apply(STRAY.replace("stray", "late"))
    made.settle()
    assert len(made.all("pods")) == 3


def test_a_pod_with_changed_labels_is_released(cluster):
    name = cluster.names("pods")[0]
    cluster.edit("pods", name, lambda pod: pod["metadata"].update(labels={"app": "db"}))
    cluster.settle()
    assert owner(cluster.get("pods", name)) == []
    assert len(cluster.all("pods", app="web")) == 3


def test_pods_are_available_after_they_were_ready_for_a_while(lab):
    made = lab(ReplicaSets(REPLICA_SETS))
    made.apply(WEB.replace("replicas: 3", "replicas: 3\n  minReadySeconds: 30"))
    made.settle()
    assert made.counts("replicasets", "web").get("availableReplicas", 0) == 0
    made.advance(31)
    assert made.counts("replicasets", "web")["availableReplicas"] == 3


def test_replication_controllers_do_the_same(lab):
    made = lab(ReplicaSets(CONTROLLERS))
    made.apply("""
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  replicas: 2
  selector: {app: old}
  template: {metadata: {labels: {app: old}}, spec: {containers: [{name: c, image: i}]}}
""")
    made.settle()
    assert made.counts("replicationcontrollers", "old")["readyReplicas"] == 2


def test_a_terminating_replica_set_creates_no_pods(cluster):
    cluster.delete("replicasets", "web", propagationPolicy="Foreground")
    cluster.delete("pods", cluster.names("pods")[0], gracePeriodSeconds=0)
    cluster.settle()
    assert len(cluster.all("pods")) == 2


NOW = 1_750_001_000.0


def a_pod(name, node="n1", phase="Running", ready=100, born=500, restarts=0, cost=None):
    conditions = [] if ready is None else [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(NOW - ready)}]
    said = {} if cost is None else {"controller.kubernetes.io/pod-deletion-cost": cost}
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": stamp(NOW - born), "annotations": said},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": [{"name": "c", "restartCount": restarts}]},
    }


ORDERS = {
    "without a node": (a_pod("a", node="", phase="Pending", ready=None), a_pod("b")),
    "pending": (a_pod("a", phase="Pending", ready=None), a_pod("b")),
    "not ready": (a_pod("a", ready=None), a_pod("b")),
    "of lower cost": (a_pod("b", cost="-5"), a_pod("a", cost="3")),
    "of no readable cost": (a_pod("b", cost="many"), a_pod("a", cost="3")),
    "ready for less time": (a_pod("b", ready=2), a_pod("a", ready=400)),
    "of like age, by uid": (a_pod("a", ready=120), a_pod("b", ready=100)),
    "restarted more often": (a_pod("b", restarts=4), a_pod("a")),
    "younger": (a_pod("b", born=10), a_pod("a")),
}


def in_order(pods, related=()):
    return [pod["metadata"]["name"] for pod in deletion_order(pods, related, NOW)]


@pytest.mark.parametrize(("first", "second"), ORDERS.values(), ids=ORDERS)
def test_the_deletion_order_of_pods(first, second):
    expected = [first["metadata"]["name"], second["metadata"]["name"]]
    assert in_order([first, second]) == in_order([second, first]) == expected


def test_the_pod_on_the_most_crowded_node_is_deleted_first():
    alone, crowded = a_pod("a", node="n1", ready=1), a_pod("b", node="n2", ready=400)
    assert in_order([alone, crowded], [alone, crowded, a_pod("c", node="n2")]) == ["b", "a"]


def test_a_set_with_rejected_pods_reports_its_count_without_generated_names(lab):
    cluster = lab(ReplicaSets(REPLICA_SETS))
    spec = {"priorityClassName": "nope", "containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": spec}
    cluster.apply({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "set"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template},
    })  # fmt: skip
    cluster.settle()
    status = cluster.get("replicasets", "set")["status"]
    (condition,) = status.pop("conditions")
    assert status == {"replicas": 0, "terminatingReplicas": 0, "observedGeneration": 1}
    assert condition["message"] == 'pods "set-" is forbidden: no PriorityClass with name nope was found'
