"""Unschedulable pods: pods that plugins rejected or gate, until an event that concerns these plugins.

The pods are grouped by shape and by the plugins that rejected them, and the groups are indexed by plugin. So an event visits
only the groups that it may help, and hints that read only a pod's shape run once for a group: ten thousand replicas that lack
CPU cost one call when a small node is added, and nothing when a label changes. A gated pod is indexed under its gating plugin
alone, since no other plugin can ungate it.

Source  kube-scheduler, backend/queue/unschedulable_pods.go
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import NamedTuple

from moorage.core.queue.heap import LazyHeap
from moorage.core.queue.queued_pod import QueuedPod

#: Scheduler name and plugin name.
Rejecter = tuple[str, str]


class ShapeGroup:
    """Unschedulable pods of one shape, by UID, that the same ``plugins`` of one ``profile`` rejected."""

    __slots__ = ("filed_as_gated", "filed_under", "key", "plugins", "pods", "profile")

    def __init__(self, key: Hashable, first: QueuedPod) -> None:
        self.key = key
        self.pods: dict[str, QueuedPod] = {}
        self.profile = first.profile
        self.plugins = first.rejecters
        names = [first.gated_by] if first.gated_by else sorted(self.plugins)
        #: The plugins under which the group is indexed.
        self.filed_under: tuple[Rejecter, ...] = tuple((self.profile, name) for name in names)
        self.filed_as_gated = bool(first.gated_by)

    def other_than(self, uids: Collection[str]) -> QueuedPod | None:
        """Return any pod with another UID; None if there is none."""
        return next((queued for uid, queued in self.pods.items() if uid not in uids), None)


class _Entry(NamedTuple):
    """A pod, its group, and a number that grows with each added pod."""

    queued: QueuedPod
    group: ShapeGroup
    serial: int


class Unschedulable:
    """Unschedulable pods by rejecting plugin and by age. A pod's rejecters and gate must not change while it is in here."""

    def __init__(self) -> None:
        #: By UID. Read it only.
        self.entries: dict[str, _Entry] = {}
        self._groups: dict[Hashable, ShapeGroup] = {}
        self._by_rejecter: dict[Rejecter, dict[ShapeGroup, None]] = {}
        self._by_age: LazyHeap[QueuedPod] = LazyHeap()
        self._serial = 0
        self.gated = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[QueuedPod]:
        """Yield all pods in the order they were added."""
        return (entry.queued for entry in self.entries.values())

    def add(self, queued: QueuedPod) -> None:
        """Add a pod that is not in here yet."""
        uid = queued.pod.uid
        self._serial += 1
        self.entries[uid] = _Entry(queued, self._join(queued), self._serial)
        self._by_age.push(uid, queued.waiting_since, queued.order, queued)
        self.gated += queued.gated

    def regroup(self, queued: QueuedPod) -> None:
        """Move a changed pod to its new group; its place in the order stays. Do nothing if it is not in here."""
        entry = self.entries.get(queued.pod.uid)
        if entry is None:
            return
        self._leave(queued.pod.uid, entry.group)
        self.entries[queued.pod.uid] = entry._replace(group=self._join(queued))

    def _join(self, queued: QueuedPod) -> ShapeGroup:
        """Add a pod to its group."""
        pod = queued.pod
        plugins = queued.unschedulable_plugins, queued.pending_plugins
        key = (queued.profile, *plugins, queued.gated_by, pod.waiting_shape())
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = ShapeGroup(key, queued)
            for rejecter in group.filed_under:
                self._by_rejecter.setdefault(rejecter, {})[group] = None
        group.pods[pod.uid] = queued
        return group

    def _leave(self, uid: str, group: ShapeGroup) -> None:
        """Remove a pod from its group, and the group with its last pod."""
        del group.pods[uid]
        if group.pods:
            return
        del self._groups[group.key]
        for rejecter in group.filed_under:
            bucket = self._by_rejecter[rejecter]
            del bucket[group]
            if not bucket:
                del self._by_rejecter[rejecter]

    def save(self) -> Callable[[], None]:
        """Return a function that restores the pods, and their order under every plugin."""
        parked, by_age, serial, gated = self.entries.copy(), self._by_age.save(), self._serial, self.gated
        groups = [(group, group.pods.copy()) for group in self._groups.values()]
        by_rejecter = {rejecter: bucket.copy() for rejecter, bucket in self._by_rejecter.items()}

        def restore() -> None:
            self.entries, self._by_rejecter, self._serial, self.gated = parked, by_rejecter, serial, gated
            self._groups = {group.key: group for group, _ in groups}
            for group, pods in groups:
                group.pods = pods
            by_age()

        return restore

    def discard(self, queued: QueuedPod) -> None:
        uid = queued.pod.uid
        entry = self.entries.pop(uid, None)
        if entry is None:
            return
        self._leave(uid, entry.group)
        self._by_age.discard(uid)
        self.gated -= queued.gated

    def rejected_by(self, rejecters: Iterable[Rejecter]) -> list[ShapeGroup]:
        """Return the groups that any of these plugins rejected or gates, each once."""
        found: dict[ShapeGroup, None] = {}
        for rejecter in rejecters:
            if rejecter in self._by_rejecter:
                found.update(self._by_rejecter[rejecter])
        return list(found)

    def in_order(self, pods: Iterable[QueuedPod], rejecters: Iterable[Rejecter]) -> list[QueuedPod]:
        """Return those of ``pods`` that are in here, by the first of ``rejecters`` that rejected each, then by age."""
        rank = {rejecter: number for number, rejecter in enumerate(rejecters)}
        ranked = []
        for queued in pods:
            entry = self.entries.get(queued.pod.uid)
            if entry is None:
                continue
            first = min(rank.get(rejecter, len(rank)) for rejecter in entry.group.filed_under)
            ranked.append((first, entry.serial, queued))
        ranked.sort(key=lambda one: one[:2])
        return [queued for _, _, queued in ranked]

    def oldest(self) -> QueuedPod | None:
        """Return the pod that has waited longest since it was last tried."""
        return self._by_age.peek()
