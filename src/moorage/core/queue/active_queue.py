"""The active queue: pods that are ready for a scheduling attempt, in the order of the QueueSort plugin.

Pods that the plugin ranks equal are popped in the order they entered or re-entered the queue.

Source  kube-scheduler, backend/queue/active_queue.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from moorage.core.queue.heap import LazyHeap
from moorage.core.queue.queued_pod import QueuedPod

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
