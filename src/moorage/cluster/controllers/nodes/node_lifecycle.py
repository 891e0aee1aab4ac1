"""The node lifecycle controller: mark and taint nodes without heartbeats, and mark their pods as not ready.

The heartbeat of a node is its lease, or its status where it has no lease. Taints follow from conditions and from
``unschedulable``. All nodes are handled immediately: upstream rate-limits tainting per zone, and pauses where most of a zone
is lost.

Source  kubernetes, pkg/controller/nodelifecycle/node_lifecycle_controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from moorage.api.core import Taint, Toleration
from moorage.api.decode import decode
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.api.node_selectors import tolerates
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import DeleteStep, EventStep, Later, SetStatus, Step, Update

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


# -- taint eviction ----------------------------------------------------------------------------------------------------
# The taint eviction controller: delete pods from nodes with NoExecute taints that they do not tolerate, or no longer do.
#
# Source  kubernetes, pkg/controller/tainteviction/taint_eviction.go

_MESSAGE: Final = "Taint manager: deleting due to NoExecute taint"


class TaintEviction:
    """Keeps, by the UID of a pod, when it first saw taints without ``timeAdded`` on the pod's node."""

    name = "taint-eviction-controller"

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.PODS:
            if event.new is None:
                self._since.pop(k8s.uid_of(event.latest), None)
            elif event.old is None or _where(event.old) != _where(event.new):
                yield k8s.key_of(event.new)
        elif event.kind is k8s.NODES and event.new is not None and _taints(event.old) != _taints(event.new):
            for pod in world.pods_on(k8s.name_of(event.new)):
                yield k8s.key_of(pod)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        pod = world.find(k8s.PODS, key)
        node = None if pod is None else world.get(k8s.NODES, "", k8s.spec_of(pod).get("nodeName", ""))
        if pod is None or k8s.is_ending(pod):
            return
        taints = _taints(node)
        if not taints:
            self._since.pop(k8s.uid_of(pod), None)
            return
        lasts_s = _tolerates_s(pod, taints)
        if lasts_s is None:
            return
        left_s = self._began(pod, taints, now) + lasts_s - now
        if left_s > 0:
            yield Later(left_s)
            return
        conditions = k8s.status_of(pod).get("conditions") or ()
        marked = k8s.with_condition(conditions, "DisruptionTarget", "True", now, "DeletionByTaintManager", _MESSAGE)
        yield SetStatus(k8s.PODS, pod, {**k8s.status_of(pod), "conditions": marked})
        text = f"Marking for deletion Pod {k8s.namespace_of(pod)}/{k8s.name_of(pod)}"
        yield EventStep(k8s.PODS, pod, "Normal", "TaintManagerEviction", text)
        yield DeleteStep(k8s.PODS, pod)

    def _began(self, pod: Document, taints: list[dict[str, Any]], now: float) -> float:
        added = [k8s.seconds(one.get("timeAdded")) for one in taints]
        if all(added):
            return max(added)
        return self._since.setdefault(k8s.uid_of(pod), now)


def _where(pod: Document) -> tuple[Any, Any]:
    return k8s.spec_of(pod).get("nodeName"), k8s.spec_of(pod).get("tolerations")


def _taints(node: Document | None) -> list[dict[str, Any]]:
    held = k8s.spec_of(node).get("taints") if node is not None else None
    return [one for one in held or () if one.get("effect") == "NoExecute"]


def _tolerates_s(pod: Document, taints: Iterable[dict[str, Any]]) -> float | None:
    """Return for how many seconds a pod tolerates all of these taints; None for unlimited."""
    tolerations = k8s.spec_of(pod).get("tolerations") or ()
    read = [(decode(one, Toleration, ""), one.get("tolerationSeconds")) for one in tolerations]
    limits = []
    for taint in taints:
        held = decode(taint, Taint, "")
        lasting = [lasts_s for toleration, lasts_s in read if tolerates(toleration, held)]
        if not lasting:
            return 0.0
        if lasting[0] is not None:
            limits.append(max(0.0, float(lasting[0])))
    return min(limits, default=None)
