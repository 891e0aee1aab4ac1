"""The queue of pods that wait for their backoff.

A pod waits 1 s after its first failure, then twice as long each time, 10 s at most. Failures are counted in two ways: how often
plugins rejected the pod, and how many attempts in a row ended in an error; after an error the second count sets the backoff.
Pods that failed with an error wait in a separate heap and are never popped early, because their wait spares the API server.
So do groups that are queued as one, since 1.37: no plugin is known to have rejected the group as a whole.

Time is divided into windows of one second. With ``pop_early`` (gate SchedulerPopFromBackoffQ) a backoff ends with the window
it falls in, and pods of one window are ranked as the active queue ranks them, so that popping early respects priority.

Source  kube-scheduler, backend/queue/backoff_queue.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import floor, sqrt

from moorage.core.queue.active_queue import SortKey
from moorage.core.queue.heap import LazyHeap
from moorage.core.queue.queued_pod import QueuedPod

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
