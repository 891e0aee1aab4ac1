"""Unschedulable pods: those that plugins rejected or gate, until an event that concerns those plugins.

The pods are indexed by rejecting plugin, so that an event visits only the pods it may help: twenty thousand pods that lack CPU
cost nothing when a label changes. A gated pod is indexed under its gating plugin alone, since no other plugin can ungate it.

Source  kube-scheduler, backend/queue/unschedulable_pods.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from moorage.queue.heap import LazyHeap
from moorage.queue.queued_pod import QueuedPod

__all__ = ["Rejecter", "Unschedulable"]

#: Scheduler name and plugin name.
Rejecter = tuple[str, str]


class Unschedulable:
    """Unschedulable pods by rejecting plugin and by age. A pod's rejecters and gate must not change while it is in here."""

    def __init__(self) -> None:
        self._parked: dict[str, tuple[QueuedPod, tuple[Rejecter, ...]]] = {}
        self._by_rejecter: dict[Rejecter, dict[str, QueuedPod]] = {}
        self._by_age: LazyHeap[QueuedPod] = LazyHeap()
        self._rejecters: dict[tuple[str, frozenset[str]], tuple[Rejecter, ...]] = {}
        self.gated = 0

    def __len__(self) -> int:
        return len(self._parked)

    def __iter__(self) -> Iterator[QueuedPod]:
        """Yield all pods in the order they were added."""
        return (queued for queued, _ in self._parked.values())

    def add(self, queued: QueuedPod) -> None:
        """Add a pod that is not in here yet."""
        uid = queued.pod.uid
        filed_under = self._filing(queued)
        for rejecter in filed_under:
            bucket = self._by_rejecter.get(rejecter)
            if bucket is None:
                bucket = self._by_rejecter[rejecter] = {}
            bucket[uid] = queued
        self._parked[uid] = (queued, filed_under)
        self._by_age.push(uid, queued.waiting_since, queued.order, queued)
        self.gated += queued.gated

    def save(self) -> Callable[[], None]:
        """Return a function that restores the pods, and their order under every plugin."""
        parked, by_age, gated = self._parked.copy(), self._by_age.save(), self.gated
        by_rejecter = {rejecter: bucket.copy() for rejecter, bucket in self._by_rejecter.items()}

        def restore() -> None:
            self._parked, self._by_rejecter, self.gated = parked, by_rejecter, gated
            by_age()

        return restore

    def _filing(self, queued: QueuedPod) -> tuple[Rejecter, ...]:
        if queued.gated_by:
            return ((queued.profile, queued.gated_by),)
        kind = (queued.profile, queued.rejecters)
        known = self._rejecters.get(kind)
        if known is None:
            known = self._rejecters[kind] = tuple((kind[0], plugin) for plugin in sorted(kind[1]))
        return known

    def discard(self, queued: QueuedPod) -> None:
        uid = queued.pod.uid
        parked = self._parked.pop(uid, None)
        if parked is None:
            return
        for rejecter in parked[1]:
            bucket = self._by_rejecter[rejecter]
            del bucket[uid]
            if not bucket:
                del self._by_rejecter[rejecter]
        self._by_age.discard(uid)
        self.gated -= queued.gated

    def rejected_by(self, rejecters: Iterable[Rejecter]) -> list[QueuedPod]:
        """Return the pods that any of these plugins rejected or gates, each once."""
        buckets = [bucket for rejecter in rejecters if (bucket := self._by_rejecter.get(rejecter))]
        if len(buckets) == 1:
            return list(buckets[0].values())
        found: dict[str, QueuedPod] = {}
        for bucket in buckets:
            found.update(bucket)
        return list(found.values())

    def oldest(self) -> QueuedPod | None:
        """Return the pod that has waited longest since it was last tried."""
        return self._by_age.peek()
