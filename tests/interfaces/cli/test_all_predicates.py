"""``alwaysCheckAllPredicates``: every filter that rejects a node reports it, not only the first."""

from __future__ import annotations

import json

import pytest

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: small, labels: {disk: hdd}}
spec: {unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}
status: {allocatable: {cpu: "1", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Node
metadata: {name: large, labels: {disk: hdd}}
status: {allocatable: {cpu: "8", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: held}
spec: {nodeName: large, containers: [{name: c, resources: {requests: {memory: 6Gi}}}]}
"""
POD = """\
---
apiVersion: v1
kind: Pod
metadata: {{name: picky-{at}}}
spec:
  priority: {priority}
  nodeSelector: {{disk: {disk}}}
  containers: [{{name: c, resources: {{requests: {{cpu: "4", memory: 4Gi}}}}}}]
"""
FIRST = "0/2 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable."
TAINT = "1 node(s) had taint {node.kubernetes.io/unschedulable: }, that the pod didn't tolerate"
ALL = f"0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, {TAINT}, 1 node(s) were unschedulable"
TOLD = {  # is every predicate asked, the disk that pods ask for, what they hear
    "by the first": (False, "hdd", FIRST),
    "by the first, of more": (False, "ssd", FIRST),
    "by all": (True, "hdd", f"{ALL}."),
    "by all, of more": (True, "ssd", f"{ALL}, 2 node(s) didn't match Pod's node affinity/selector."),
}


def ran(moorage, folder, pods, check_all):
    predicates = ["GeneralPredicates", "PodToleratesNodeTaints"]
    policy = {
        "apiVersion": "v1", "kind": "Policy", "alwaysCheckAllPredicates": check_all,
        "predicates": [{"name": name} for name in predicates],
    }  # fmt: skip
    (folder / "policy.json").write_text(json.dumps(policy))
    (folder / "cluster.yaml").write_text(CLUSTER + pods)
    return json.loads(moorage("simulate", "-f", folder / "cluster.yaml", "--config", folder / "policy.json", "-o", "json").out)


@pytest.mark.parametrize(("check_all", "disk", "message"), TOLD.values(), ids=TOLD)
def test_the_reported_reasons(moorage, tmp_path, check_all, disk, message):
    """Pods alike are decided by what is known of the first: they hear the same."""
    report = ran(moorage, tmp_path, "".join(POD.format(at=at, priority=0, disk=disk) for at in range(3)), check_all)
    assert [pod["message"] for pod in report["pods"] if pod["name"] != "held"] == [message] * 3


@pytest.mark.parametrize("check_all", [False, True])
@pytest.mark.parametrize(("disk", "outcome"), [("hdd", ("Placed", "large")), ("ssd", ("Pending", None))])
def test_the_decision_for_a_pod_is_the_same(moorage, tmp_path, check_all, disk, outcome):
    """A pod preempts on the node that it may use, and evicts no pod where another filter rejects it."""
    report = ran(moorage, tmp_path, POD.format(at=0, priority=10, disk=disk), check_all)
    (pod,) = (one for one in report["pods"] if one["name"] == "picky-0")
    assert (pod["state"], pod.get("node")) == outcome
