"""The queue of pods that may be tried at once, and the queue of pods that wait for their backoff.

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
from typing import Any

from moorage.core.queue.heap import LazyHeap
from moorage.core.queue.queued_pod import QueuedPod

# The active queue: pods that are ready for a scheduling attempt, in the order of the QueueSort plugin.
#
# Pods that the plugin ranks equal are popped in the order they entered or re-entered the queue.
#
# Source  kube-scheduler, backend/queue/active_queue.go

#: Returns QueueSort's key of a queued pod; the pod with the least key is popped first.
SortKey = Callable[[QueuedPod], Any]


class ActiveQueue:
    """Ready pods."""

    def __init__(self, sort_key: SortKey) -> None:
        self._sort_key = sort_key
        self._heap: LazyHeap[QueuedPod] = LazyHeap()
        #: ``pop`` removes and returns the first pod, ``peek`` returns it; None if there is none.
        self.pop, self.peek = self._heap.pop, self._heap.peek
        #: UID → heap entry, to test membership and to count the pods.
        self.entries = self._heap.entries

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._heap)

    def rank(self, queued: QueuedPod) -> Any:
        """Return QueueSort's key of a pod."""
        return self._sort_key(queued)

    def push(self, queued: QueuedPod) -> None:
        """Add a pod, or rank it again after it changed."""
        self._heap.push(queued.pod.uid, self._sort_key(queued), queued.order, queued)

    def save(self) -> Callable[[], None]:
        """Return a function that restores the queue."""
        return self._heap.save()

    def discard(self, queued: QueuedPod) -> None:
        self._heap.discard(queued.pod.uid)
