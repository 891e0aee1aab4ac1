"""Nodes that fall silent, taints that drive pods away, and pods whose node is gone."""

import pytest

from moorage.api.documents.object_fields import REPLICA_SETS
from moorage.cluster.controllers.nodes.hollow_nodes import NodeShape, make_nodes
from moorage.cluster.controllers.nodes.kubelets import lease_seconds
from moorage.cluster.controllers.nodes.node_lifecycle import NodeLifecycle, wanted_taints
from moorage.cluster.controllers.nodes.taint_eviction import TaintEviction
from moorage.cluster.controllers.upkeep.pod_garbage_collector import PodGarbageCollector
from moorage.errors import InputError
from moorage.rules.workloads.replica_set import ReplicaSets

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: i}], tolerations: %s}
"""


@pytest.fixture
def cluster(lab):
    made = lab(NodeLifecycle(), TaintEviction(), PodGarbageCollector(), ReplicaSets(REPLICA_SETS))
    yield made
    assert made.reports == []


def down(cluster, name, value="true"):
    cluster.edit("nodes", name, lambda node: node["metadata"].update(annotations={"moorage.dev/down": value}))


def taints(cluster, name):
    return [
        (one["key"].partition("/")[2], one["effect"]) for one in cluster.get("nodes", name).get("spec", {}).get("taints", ())
    ]


def with_taint(key="k", effect="NoExecute"):
    return lambda node: node.setdefault("spec", {}).update(taints=[{"key": key, "value": "v", "effect": effect}])


def test_nodes_report_and_hold_leases(cluster):
    node = cluster.get("nodes", "n1")
    assert cluster.condition("nodes", "n1", "Ready") == ("True", "KubeletReady")
    assert {one["type"] for one in node["status"]["addresses"]} == {"InternalIP", "Hostname"}
    lease = cluster.get("leases", "n1", "kube-node-lease")
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    cluster.advance(600)
    renewed = cluster.get("leases", "n1", "kube-node-lease")["spec"]["renewTime"]
    assert lease["spec"]["renewTime"] < renewed
    assert cluster.condition("nodes", "n1", "Ready") == ("True", "KubeletReady")


def test_leases_of_many_nodes_renew_less_often():
    assert [lease_seconds(nodes) for nodes in (1, 200, 1000)] == [40, 40, 200]


def test_a_silent_node_is_tainted_and_recovers(cluster):
    cluster.apply(POD % "[]")
    cluster.advance(1)
    down(cluster, "n1")
    cluster.advance(45)
    assert taints(cluster, "n1") == []
    cluster.advance(20)
    assert cluster.condition("nodes", "n1", "Ready") == ("Unknown", "NodeStatusUnknown")
    assert taints(cluster, "n1") == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
    assert cluster.condition("pods", "web", "Ready")[0] == "False"
    down(cluster, "n1", "false")
    cluster.advance(1)
    assert cluster.condition("nodes", "n1", "Ready") == ("True", "KubeletReady")
    assert taints(cluster, "n1") == []
    assert cluster.condition("pods", "web", "Ready")[0] == "True"


def test_pods_leave_a_silent_node_after_five_minutes_and_are_replaced(cluster):
    cluster.apply("""
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
""")
    cluster.settle()
    down(cluster, "n1")
    cluster.edit("nodes", "n1", lambda node: node.setdefault("spec", {}).update(unschedulable=True))
    cluster.advance(335)
    assert sum(bool(pod["metadata"].get("deletionTimestamp")) for pod in cluster.all("pods")) == 0
    cluster.advance(25)
    ending = [pod for pod in cluster.all("pods") if pod["metadata"].get("deletionTimestamp")]
    assert [pod["spec"]["nodeName"] for pod in ending] == ["n1"]
    assert len(cluster.all("pods")) == 4
    assert cluster.condition("pods", ending[0]["metadata"]["name"], "DisruptionTarget") == ("True", "DeletionByTaintManager")
    cluster.delete("nodes", "n1")
    cluster.advance(39)
    assert len(cluster.all("pods")) == 4
    cluster.advance(2)
    assert len(cluster.all("pods")) == 3
    assert {pod["spec"]["nodeName"] for pod in cluster.all("pods")} == {"n2", "n3"}


def test_a_node_that_never_reported_status_has_a_condition(lab):
    made = lab(NodeLifecycle(), nodes=0)
    made.add_node("mute", annotations={"moorage.dev/down": "true"})
    made.settle()
    assert taints(made, "mute") == [("not-ready", "NoSchedule")]
    made.advance(61)
    assert made.condition("nodes", "mute", "Ready") == ("Unknown", "NodeStatusNeverUpdated")


def test_cordoning_taints(cluster):
    cluster.patch_spec = cluster.edit("nodes", "n1", lambda node: node.setdefault("spec", {}).update(unschedulable=True))
    cluster.settle()
    assert taints(cluster, "n1") == [("unschedulable", "NoSchedule")]
    cluster.edit("nodes", "n1", lambda node: node["spec"].update(unschedulable=False))
    cluster.settle()
    assert taints(cluster, "n1") == []


WANTED = {
    "well": ({"Ready": "True"}, []),
    "not ready": ({"Ready": "False"}, [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]),
    "short of memory": ({"Ready": "True", "MemoryPressure": "True"}, [("memory-pressure", "NoSchedule")]),
    "without a network": ({"Ready": "True", "NetworkUnavailable": "True"}, [("network-unavailable", "NoSchedule")]),
}


@pytest.mark.parametrize(("conditions", "expected"), WANTED.values(), ids=WANTED)
def test_node_conditions_set_taints(conditions, expected):
    node = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": t, "status": s} for t, s in conditions.items()]}}
    assert [(key.partition("/")[2], effect) for key, effect in wanted_taints(node)] == expected


BEARS = {  # tolerations, gone after so many seconds; None: it stays
    "no toleration": ("[]", 0),
    "all of them without a limit": ("[{operator: Exists}]", None),
    "for a while": ('[{key: k, operator: Equal, value: v, effect: NoExecute, tolerationSeconds: 30}]', 30),
    "another value": ('[{key: k, operator: Equal, value: x, effect: NoExecute}]', 0),
    "the first match counts": ("[{operator: Exists}, {operator: Exists, effect: NoExecute, tolerationSeconds: 5}]", None),
}  # fmt: skip


@pytest.mark.parametrize(("tolerations", "after"), BEARS.values(), ids=BEARS)
def test_a_no_execute_taint_evicts_pods(cluster, tolerations, after):
    cluster.apply(POD % tolerations)
    cluster.settle()
    cluster.edit("nodes", "n1", with_taint())
    if after is None:
        cluster.advance(1000)
        assert cluster.get("pods", "web") is not None
        return
    cluster.advance(max(0, after - 1))
    assert (cluster.get("pods", "web") is None) is (after == 0)
    cluster.advance(2)
    assert cluster.get("pods", "web") is None


def test_a_taint_removed_in_time_spares_the_pod(cluster):
    cluster.apply(POD % "[{operator: Exists, tolerationSeconds: 30, effect: NoExecute}]")
    cluster.settle()
    cluster.edit("nodes", "n1", with_taint())
    cluster.advance(20)
    cluster.edit("nodes", "n1", lambda node: node["spec"].update(taints=[]))
    cluster.advance(20)
    cluster.edit("nodes", "n1", with_taint())
    cluster.advance(20)
    assert cluster.get("pods", "web") is not None


def test_other_taint_effects_evict_no_pod(cluster):
    cluster.apply(POD % "[]")
    cluster.settle()
    cluster.edit("nodes", "n1", with_taint(effect="NoSchedule"))
    cluster.advance(100)
    assert cluster.get("pods", "web") is not None


def test_pods_on_an_out_of_service_node_are_deleted_at_once(cluster):
    cluster.apply(POD % "[{operator: Exists}]")
    cluster.settle()
    down(cluster, "n1")
    cluster.advance(70)
    cluster.delete("pods", "web")
    cluster.advance(100)
    assert cluster.get("pods", "web") is not None
    cluster.edit("nodes", "n1", with_taint("node.kubernetes.io/out-of-service"))
    cluster.settle()
    assert cluster.get("pods", "web") is None


def test_deprecated_labels_mirror_the_current_ones(cluster):
    cluster.add_node("new", labels={"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "x"})
    cluster.add_node("bare", labels={"beta.kubernetes.io/os": "plan9"})
    cluster.settle()
    labels = cluster.get("nodes", "new")["metadata"]["labels"]
    assert (labels["beta.kubernetes.io/os"], labels["beta.kubernetes.io/arch"]) == ("linux", "arm64")
    assert cluster.get("nodes", "bare")["metadata"]["labels"] == {"beta.kubernetes.io/os": "plan9"}
    cluster.edit("nodes", "new", lambda node: node["metadata"]["labels"].update({"beta.kubernetes.io/os": "windows"}))
    cluster.settle()
    assert cluster.get("nodes", "new")["metadata"]["labels"]["beta.kubernetes.io/os"] == "linux"
    (made,) = make_nodes(1, NodeShape())
    assert made["metadata"]["labels"]["beta.kubernetes.io/os"] == "linux"


def test_created_nodes_are_identical_and_spread_over_zones():
    made = list(make_nodes(12, NodeShape(cpu="4", memory="8Gi", pods=20, zones=2)))
    assert [one["metadata"]["name"] for one in made][:2] == ["node-01", "node-02"]
    assert {one["metadata"]["labels"]["topology.kubernetes.io/zone"] for one in made} == {"zone-1", "zone-2"}
    assert made[0]["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi", "pods": "20", "ephemeral-storage": "100Gi"}


REFUSED = {
    "no quantity": (1, NodeShape(cpu="lots"), "--node-cpu: lots is not a quantity"),
    "nothing": (1, NodeShape(memory="0"), "--node-memory: 0 must be positive"),
    "too many": (60_000, NodeShape(), "--nodes: 60000 exceeds the maximum of 50000"),
}


@pytest.mark.parametrize(("count", "shape", "said"), REFUSED.values(), ids=REFUSED)
def test_invalid_node_descriptions_are_rejected(count, shape, said):
    with pytest.raises(InputError, match=said):
        make_nodes(count, shape)
