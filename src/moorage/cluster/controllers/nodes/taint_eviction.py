"""The taint eviction controller: delete pods from nodes with NoExecute taints that they do not tolerate, or no longer do.

Source  kubernetes, pkg/controller/tainteviction/taint_eviction.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.api.core import Taint, Toleration
from moorage.api.decode import decode
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.api.node_selectors import tolerates
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import DeleteStep, EventStep, Later, SetStatus, Step

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
