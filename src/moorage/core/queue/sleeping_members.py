"""The waiting pods of each group (in backoff, unschedulable or gated), so that a group is activated without a search."""

from __future__ import annotations

from collections.abc import Callable

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
