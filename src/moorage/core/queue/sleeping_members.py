"""The waiting pods of each group (in backoff, unschedulable or gated), so that a group is activated without a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import floor, sqrt

from moorage.core.queue.backoff import SortKey
from moorage.core.queue.heap import LazyHeap
from moorage.core.queue.queued_pod import QueuedPod
from moorage.state.pod_groups import group_key


class SleepingMembers:
    """Group → UIDs of its waiting pods. Pods without a group are ignored."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, None]] = {}
        self._group_of: dict[str, str] = {}

    def add(self, queued: QueuedPod) -> None:
        """Add a pod that begins to wait, or still waits in another place."""
        if queued.pod.spec.scheduling_group is None:
            return
        uid, group = queued.pod.uid, group_key(queued.pod) or ""
        self.discard(uid)
        self._group_of[uid] = group
        self._by_group.setdefault(group, {})[uid] = None

    def discard(self, uid: str) -> None:
        """Remove a pod that no longer waits; do nothing if it is not in here."""
        group = self._group_of.pop(uid, None) if self._group_of else None
        if group is None:
            return
        members = self._by_group[group]
        del members[uid]
        if not members:
            del self._by_group[group]

    def of(self, group: str) -> tuple[str, ...]:
        """Return the UIDs of a group's waiting pods."""
        return tuple(self._by_group.get(group, ()))

    def save(self) -> Callable[[], None]:
        """Return a function that restores all groups."""
        by_group = {group: members.copy() for group, members in self._by_group.items()}
        group_of = self._group_of.copy()

        def restore() -> None:
            self._by_group, self._group_of = by_group, group_of

        return restore


#: Doubling stops mattering long before this many failures, and floats stay finite.
_MAX_DOUBLINGS = 62


class BackoffQueue:
    """Pods in backoff. A ``max_s`` of 0 disables backoff."""

    def __init__(self, sort_key: SortKey, initial_s: float, max_s: float, pop_early: bool) -> None:
        self._sort_key = sort_key
        self._initial_s = initial_s
        self._max_s = max_s
        self._pop_early = pop_early
        self._rejected: LazyHeap[QueuedPod] = LazyHeap()
        self._errored: LazyHeap[QueuedPod] = LazyHeap()

    def __len__(self) -> int:
        return len(self._rejected) + len(self._errored)

    def __bool__(self) -> bool:
        return bool(self._rejected) or bool(self._errored)

    def __iter__(self) -> Iterator[QueuedPod]:
        yield from self._rejected
        yield from self._errored

    def delay_s(self, failures: int, pods: int = 1) -> float:
        """Return how long a pod, or a group of ``pods``, waits after that many failures; a large group may wait longer."""
        if failures <= 0:
            return 0.0
        return min(self._initial_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), self._max_s * sqrt(pods))

    def ends(self, start: float, failures: int, pods: int = 1) -> float:
        """Return when a backoff that begins at ``start`` ends; minus infinity if there is none."""
        if self._max_s == 0 or failures == 0:
            return float("-inf")
        ends = start + self.delay_s(failures, pods)
        return floor(ends) if self._pop_early else ends

    def over_since(self, now: float) -> float:
        """Return a time such that the backoff of any single pod that began before it is over at ``now``."""
        return floor(now) - self._max_s

    def until(self, queued: QueuedPod) -> float:
        """Return when the pod's backoff ends; minus infinity if it has no backoff."""
        if queued.backoff_until is None:
            queued.backoff_until = self.ends(queued.timestamp, queued.consecutive_errors or queued.unschedulable_count)
        return queued.backoff_until

    def holds(self, queued: QueuedPod, now: float) -> bool:
        """Return True while the pod must wait: until after its backoff ends, with ``pop_early`` until after that window."""
        return self.until(queued) >= (floor(now) if self._pop_early else now)

    def push(self, queued: QueuedPod) -> None:
        """Add a pod, or rank it again after it changed."""
        ends = self.until(queued)
        if queued.entry or not (queued.unschedulable_plugins or queued.pending_plugins):
            self._errored.push(queued.pod.uid, ends, queued.order, queued)
        elif self._pop_early:
            self._rejected.push(queued.pod.uid, (ends, self._sort_key(queued)), queued.order, queued)
        else:
            self._rejected.push(queued.pod.uid, ends, queued.order, queued)

    def save(self) -> Callable[[], None]:
        """Return a function that restores the queue."""
        rejected, errored = self._rejected.save(), self._errored.save()

        def restore() -> None:
            rejected()
            errored()

        return restore

    def discard(self, queued: QueuedPod) -> None:
        if not self._rejected.discard(queued.pod.uid):
            self._errored.discard(queued.pod.uid)

    def pop_completed(self, now: float) -> Iterator[QueuedPod]:
        """Remove and yield the pods whose backoff was over when the second of ``now`` began."""
        second = floor(now)
        for heap in (self._rejected, self._errored):
            while (first := heap.peek()) is not None and self.until(first) < second:
                heap.pop()
                yield first

    def pop_early(self, may: Callable[[QueuedPod], bool] | None = None) -> QueuedPod | None:
        """Remove and return the next pod before its backoff ends; skip pods that failed with an error or fail ``may``."""
        if not self._pop_early:
            return None
        passed_over: list[QueuedPod] = []
        while (queued := self._rejected.pop()) is not None and may is not None and not may(queued):
            passed_over.append(queued)
        for other in passed_over:
            self.push(other)
        return queued

    def next_completion(self) -> float | None:
        """Return the first whole second at which a pod's backoff is over; None if there are no pods."""
        firsts = [first for heap in (self._rejected, self._errored) if (first := heap.peek()) is not None]
        return min((floor(self.until(first)) + 1.0 for first in firsts), default=None)
