"""The active queue: pods that are ready for a scheduling attempt, in the order of the QueueSort plugin.

Pods that the plugin ranks equal are popped in the order they entered or re-entered the queue.

Source  kube-scheduler, backend/queue/active_queue.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from moorage.core.queue.heap import LazyHeap
from moorage.core.queue.queued_pod import QueuedPod
from moorage.state.pod_groups import group_key

__all__ = ["ActiveQueue", "SleepingMembers", "SortKey"]


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


# -- sleeping members --------------------------------------------------------------------------------------------------
# The waiting pods of each group (in backoff, unschedulable or gated), so that a group is activated without a search.


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
