"""The pod garbage collector: delete pods without a node, on missing or out-of-service nodes, and excess ended pods.

Source  kubernetes, pkg/controller/podgc/gc_controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.pod_collection import QUARANTINE_S
from moorage.rules.workloads.steps import DeleteStep, Later, SetStatus, Step

#: The number of ended pods that are kept.
MOST_ENDED: Final = 12_500


_OUT: Final = "node.kubernetes.io/out-of-service"


class PodGarbageCollector:
    """Keys are node names, ``/`` with the key of a pod without a node, and "" for the ended pods.

    Keeps the time since which each node is missing.
    """

    name = "pod-garbage-collector"

    def __init__(self) -> None:
        self._missing: dict[str, float] = {}
        self._ended: set[str] = set()

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.NODES:
            yield k8s.name_of(event.latest)
        elif event.kind is k8s.PODS:
            node = k8s.spec_of(event.latest).get("nodeName")
            if not node and event.new is not None and k8s.is_ending(event.new):
                yield f"/{k8s.key_of(event.new)}"
            if node and event.new is not None and (world.get(k8s.NODES, "", node) is None or k8s.is_ending(event.latest)):
                yield node
            yield from self._count(event)

    def _count(self, event: ObjectChange) -> Iterator[str]:
        uid = event.latest["metadata"]["uid"]
        if event.new is None or k8s.phase_of(event.latest) not in ENDED_PHASES:
            self._ended.discard(uid)
            return
        self._ended.add(uid)
        if len(self._ended) > MOST_ENDED:
            yield ""

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        if not key:
            yield from self._clear(world)
            return
        if key.startswith("/"):
            pod = world.find(k8s.PODS, key[1:])
            if pod is not None and k8s.is_ending(pod) and not k8s.spec_of(pod).get("nodeName"):
                yield from _lost(pod, now, "")
            return
        node = world.get(k8s.NODES, "", key)
        if node is not None:
            self._missing.pop(key, None)
            yield from _from_broken(node, world, now)
            return
        pods = world.pods_on(key)
        if not pods:
            self._missing.pop(key, None)
            return
        since = self._missing.setdefault(key, now)
        if now - since < QUARANTINE_S:
            yield Later(since + QUARANTINE_S - now)
            return
        for pod in pods:
            yield from _lost(pod, now, "PodGC: node no longer exists")

    @staticmethod
    def _clear(world: ObjectIndex) -> Iterator[Step]:
        over = sorted((pod for pod in world.all(k8s.PODS) if k8s.phase_of(pod) in ENDED_PHASES), key=k8s.age_order)
        for pod in over[: max(0, len(over) - MOST_ENDED)]:
            yield DeleteStep(k8s.PODS, pod, grace_s=0)


def _from_broken(node: Document, world: ObjectIndex, now: float) -> Iterator[Step]:
    """Yield the deletion of terminating pods on a node with the out-of-service taint."""
    out = any(one.get("key") == _OUT for one in k8s.spec_of(node).get("taints") or ())
    if not out or k8s.is_condition_true(k8s.status_of(node), "Ready"):
        return
    for pod in world.pods_on(k8s.name_of(node)):
        if k8s.is_ending(pod):
            yield from _lost(pod, now, "")


def _lost(pod: Document, now: float, message: str) -> Iterator[Step]:
    if k8s.phase_of(pod) not in ENDED_PHASES:
        status = {**k8s.status_of(pod), "phase": "Failed"}
        if message:
            conditions = status.get("conditions") or ()
            status["conditions"] = k8s.with_condition(conditions, "DisruptionTarget", "True", now, "DeletionByPodGC", message)
        yield SetStatus(k8s.PODS, pod, status)
    yield DeleteStep(k8s.PODS, pod, grace_s=0)
