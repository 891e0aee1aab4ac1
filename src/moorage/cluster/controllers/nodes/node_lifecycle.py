"""The node lifecycle controller: mark and taint nodes without heartbeats, and mark their pods as not ready.

The heartbeat of a node is its lease, or its status where it has no lease. Taints follow from conditions and from
``unschedulable``. All nodes are handled immediately: upstream rate-limits tainting per zone, and pauses where most of a zone
is lost.

Source  kubernetes, pkg/controller/nodelifecycle/node_lifecycle_controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import EventStep, Later, SetStatus, Step, Update

#: Seconds without a heartbeat before a node counts as lost; more where its lease is longer.
GRACE_S: Final = 50.0
_STARTUP_S: Final = 60.0
_NAMESPACE: Final = "kube-node-lease"
_PREFIX: Final = "node.kubernetes.io/"
_REPORTED: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
#: Labels and their deprecated names.
_OLD_LABELS: Final = {f"kubernetes.io/{name}": f"beta.kubernetes.io/{name}" for name in ("os", "arch")}
#: Conditions that, when true, taint the node; and the names of the taints.
_TAINTED_BY: Final = {
    "MemoryPressure": "memory-pressure", "DiskPressure": "disk-pressure", "PIDPressure": "pid-pressure",
    "NetworkUnavailable": "network-unavailable",
}  # fmt: skip
_OURS: Final = frozenset([*(_PREFIX + name for name in (*_TAINTED_BY.values(), "not-ready", "unreachable", "unschedulable"))])


class NodeLifecycle:
    name = "node-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.NODES or (event.kind is k8s.LEASES and event.latest["metadata"]["namespace"] == _NAMESPACE):
            yield k8s.name_of(event.latest)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        node = world.get(k8s.NODES, "", key)
        if node is None:
            return
        left_s = _lost_at(node, world.get(k8s.LEASES, _NAMESPACE, key)) - now
        status = _lost(node, now) if left_s < 0 else k8s.status_of(node)
        if status != k8s.status_of(node):
            yield SetStatus(k8s.NODES, node, status)
            yield EventStep(k8s.NODES, node, "Normal", "NodeNotReady", f"Node {key} status is now: NodeNotReady")
            node = {**node, "status": status}
        if left_s >= 0:
            yield Later(left_s + 0.001)
        held, labels = k8s.spec_of(node).get("taints") or [], k8s.labels_of(node)
        taints, named = _with_ours(held, wanted_taints(node), now), with_old_labels(labels)
        if taints != held or named != labels:
            metadata = {**node["metadata"], **({"labels": named} if named else {})}
            yield Update(k8s.NODES, {**node, "metadata": metadata, "spec": {**k8s.spec_of(node), "taints": taints}})
        if not k8s.is_condition_true(k8s.status_of(node), "Ready"):
            for pod in filter(k8s.is_ready, world.pods_on(key)):
                conditions = k8s.with_condition(k8s.status_of(pod)["conditions"], "Ready", "False", now)
                yield SetStatus(k8s.PODS, pod, {**k8s.status_of(pod), "conditions": conditions})
                yield EventStep(k8s.PODS, pod, "Warning", "NodeNotReady", "Node is not ready")


def with_old_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return a node's labels with the deprecated beta.kubernetes.io ones, set to the values of the current ones."""
    return {**labels, **{old: labels[name] for name, old in _OLD_LABELS.items() if name in labels}}


def _lost_at(node: Document, lease: Document | None) -> float:
    """Return when a node counts as lost unless it sends another heartbeat, in seconds since 1970."""
    ready = k8s.condition_of(node, "Ready") or {}
    beat = k8s.seconds(ready.get("lastHeartbeatTime"))
    if lease is None:
        return beat + GRACE_S if beat else k8s.seconds(node["metadata"].get("creationTimestamp")) + _STARTUP_S
    lasts_s = int(k8s.spec_of(lease).get("leaseDurationSeconds") or 0)
    return max(beat, k8s.seconds(k8s.spec_of(lease).get("renewTime"))) + max(GRACE_S, 1.25 * lasts_s)


def _lost(node: Document, now: float) -> Document:
    """Return the status of a lost node: the conditions that it reported become Unknown."""
    conditions: Any = k8s.status_of(node).get("conditions") or ()
    for name in _REPORTED:
        held = k8s.condition_of(node, name)
        if held is not None and held.get("status") == "Unknown":
            continue
        if held is None:
            reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
        else:
            reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
        beat = (held or {}).get("lastHeartbeatTime") or node["metadata"].get("creationTimestamp")
        conditions = k8s.with_condition(conditions, name, "Unknown", now, reason, message, lastHeartbeatTime=beat)
    return {**k8s.status_of(node), "conditions": list(conditions)}


def wanted_taints(node: Document) -> list[tuple[str, str]]:
    """Return keys and effects of the taints that follow from a node's conditions and spec."""
    ready = k8s.condition_of(node, "Ready") or {}
    wanted = []
    if ready.get("status") != "True":
        key = _PREFIX + ("not-ready" if ready.get("status") == "False" else "unreachable")
        wanted = [(key, "NoSchedule"), (key, "NoExecute")]
    if not ready:
        wanted = [(_PREFIX + "not-ready", "NoSchedule")]
    for name, short in _TAINTED_BY.items():
        if k8s.is_condition_true(k8s.status_of(node), name):
            wanted.append((_PREFIX + short, "NoSchedule"))
    if k8s.spec_of(node).get("unschedulable"):
        wanted.append((_PREFIX + "unschedulable", "NoSchedule"))
    return wanted


def _with_ours(held: list[dict[str, Any]], wanted: list[tuple[str, str]], now: float) -> list[dict[str, Any]]:
    """Return the taints with those that this controller manages set to ``wanted``; all others are preserved."""
    kept = [one for one in held if one.get("key") not in _OURS or (one["key"], one.get("effect")) in wanted]
    there = {(one.get("key"), one.get("effect")) for one in kept}
    added = [
        {"key": key, "effect": effect, "timeAdded": k8s.stamp(now)} for key, effect in wanted if (key, effect) not in there
    ]
    return [*kept, *added]
