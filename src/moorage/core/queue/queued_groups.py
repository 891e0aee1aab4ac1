"""Groups as entries of the queue: since 1.37 a group's pods wait in one place, and are tried, gated and delayed as one.

A group has a place in the order, a count of failed attempts and a backoff of its own; its pods carry copies of them. If a
plugin gates one pod, the others wait with it. A pod that is added, or that failed to be bound, joins its group where it waits.
After an attempt the pods that came back wait together for the group's backoff, whatever events happened. But if the attempt
succeeded for others of the group, they are active at once and keep their turn, so that the group may preempt for them.

Source  kube-scheduler 1.37, backend/queue/scheduling_queue.go, addPodGroupMember, AddAttemptedPodGroupIfNeeded
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct, field

from moorage.core.queue.backoff import BackoffQueue
from moorage.core.queue.pre_enqueue import Gates
from moorage.core.queue.queued_pod import QueuedPod, QueuePlace, save_fields
from moorage.framework.verdicts import Code
from moorage.state.pod_groups import group_key
from moorage.state.pod_info import PodInfo

_ATTEMPT_FAILED = "ScheduleAttemptFailure"
_REGROUPED = "PodGroupUpdate"


class GroupEntry(Struct, eq=False):
    """The pods of one group that wait, by UID, or those that came back from its attempt.

    ``timestamp``, ``order``, ``unschedulable_count``, ``consecutive_errors``, ``backoff_until``: as of a ``QueuedPod``, for all
    ``trying``  an attempt is under way; ``returned`` are the pods that it failed so far
    """

    timestamp: float
    order: int
    members: dict[str, QueuedPod] = field(default_factory=dict)
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    backoff_until: float = float("-inf")
    trying: bool = False
    returned: dict[str, QueuedPod] = field(default_factory=dict)

    @property
    def place(self) -> QueuePlace | None:
        """The place of its waiting pods; None if none waits."""
        return next((member.place for member in self.members.values()), None)

    def take(self, queued: QueuedPod) -> None:
        """Make a pod one of those that wait."""
        self.members[queued.uid] = queued
        queued.timestamp, queued.order, queued.backoff_until = self.timestamp, self.order, self.backoff_until


class GroupsOfPods:
    """The part of a scheduling queue that moves groups. ``_groups`` is None while pods of groups are queued one by one."""

    _groups: dict[str, GroupEntry] | None
    _gates: Gates
    _backoff: BackoffQueue
    #: Returns the key of the group that a pod is queued with: that of its group, or of the root of its group's tree.
    entry_of: Callable[[PodInfo], str | None] = staticmethod(group_key)

    def _next_order(self) -> int:
        raise NotImplementedError

    def _take_out(self, queued: QueuedPod) -> None:
        raise NotImplementedError

    def _park(self, queued: QueuedPod, label: str) -> QueuePlace:
        raise NotImplementedError

    def _make_active(self, queued: QueuedPod, label: str, now: float) -> QueuePlace:
        raise NotImplementedError

    def _begin_backoff(self, queued: QueuedPod, label: str) -> QueuePlace:
        raise NotImplementedError

    def _group_of(self, queued: QueuedPod) -> GroupEntry | None:
        """Return the group that a pod is queued with, if groups are queued as one."""
        return self._groups.get(queued.entry) if self._groups is not None and queued.entry else None

    def _join(self, queued: QueuedPod, label: str, now: float) -> QueuePlace | None:
        """Put a pod that is in no place where its group waits, or make a new group active; None if it goes with no group."""
        if self._groups is None or queued.pod.spec.scheduling_group is None:
            return None
        if not queued.entry:
            queued.entry = self.entry_of(queued.pod) or ""
        key = queued.entry
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = GroupEntry(now, self._next_order())
        elif queued.uid in group.members:
            return None
        place = group.place
        group.take(queued)
        if place is QueuePlace.GATED:
            self._gate_with(group, (queued,), label)
        elif self._gates.hold(queued):
            self._take_all_out(group, queued)
            self._gate_with(group, group.members.values(), label)
        elif place is not QueuePlace.BACKOFF:
            self._make_active(queued, label, now)
        elif self._backoff.holds(queued, now):
            self._begin_backoff(queued, label)
        else:  # the group's backoff is over, and it was not moved yet
            self._take_all_out(group, queued)
            self._move_group(group, label, now, active=True)
        return queued.place

    def _move_group(self, group: GroupEntry, label: str, now: float, *, active: bool, checked: bool = False) -> None:
        """Make the waiting pods of a group active, or begin their backoff.

        All wait if PreEnqueue gates one of them; it does not run again for pods that it has ``checked``.
        """
        members = list(group.members.values())
        if not checked and len([member for member in members if not self._gates.hold(member)]) < len(members):
            self._gate_with(group, members, label)
            return
        for member in members:
            if active:
                self._make_active(member, label, now)
            else:
                self._begin_backoff(member, label)

    def _take_all_out(self, group: GroupEntry, but: QueuedPod) -> None:
        """Remove the waiting pods of a group from their place, without ``but``, which is in none."""
        for member in group.members.values():
            if member is not but:
                self._take_out(member)

    def _gate_with(self, group: GroupEntry, members: Iterable[QueuedPod], label: str) -> None:
        """Park pods of a group of which a plugin gates one; those that no plugin gates show its reason."""
        gated = next(member for member in group.members.values() if member.gated)
        for member in members:
            if not member.gated:
                member.gated_by, member.gate = gated.gated_by, gated.gate
            self._park(member, label)

    def _leave_group(self, queued: QueuedPod, label: str, now: float) -> None:
        """Remove a pod that is in no place any more from its group. The others have to pass PreEnqueue again, unless gated."""
        group = self._group_of(queued)
        if group is None or group.members.pop(queued.uid, None) is None:
            return
        if self._groups is not None and not group.members and not group.trying:
            del self._groups[queued.entry]
        elif group.place is QueuePlace.ACTIVE or group.place is QueuePlace.BACKOFF:
            waits = group.place is QueuePlace.BACKOFF and self._backoff.holds(next(iter(group.members.values())), now)
            self._take_all_out(group, queued)
            self._move_group(group, label, now, active=not waits)

    def regroup(self, now: float) -> None:
        """Move the waiting pods whose trees of groups have another root than before to their new groups."""
        waiting = [member for group in (self._groups or {}).values() for member in group.members.values()]
        moved = [queued for queued in waiting if self.entry_of(queued.pod) != queued.entry]
        for queued in moved:
            self._take_out(queued)
            self._leave_group(queued, _REGROUPED, now)
            queued.entry = ""
            self._join(queued, _REGROUPED, now)

    def _begin_group(self, queued: QueuedPod) -> None:
        """Record that a pod leaves its group's place for an attempt."""
        group = self._group_of(queued)
        if group is not None:
            group.members.pop(queued.uid, None)
            group.trying = True

    def end_group(self, key: str, code: Code, now: float) -> None:
        """End the attempt of a group with this result: the pods that it failed wait together from now on.

        Do nothing if groups are not queued as one, or if no attempt of the group is under way.
        """
        group = None if self._groups is None else self._groups.get(key)
        if self._groups is None or group is None or not group.trying:
            return
        group.trying = False
        returned, group.returned = group.returned, {}
        if code is Code.SUCCESS:
            group.consecutive_errors = 0
        else:
            rejected = code is not Code.ERROR
            group.unschedulable_count += rejected
            group.consecutive_errors = 0 if rejected else group.consecutive_errors + 1
            group.timestamp, group.order = now, self._next_order()
            failures = group.consecutive_errors or group.unschedulable_count
            group.backoff_until = self._backoff.ends(now, failures, len(returned) + len(group.members))
        for queued in (*group.members.values(), *returned.values()):
            group.take(queued)
        if not group.members:
            del self._groups[key]
            return
        waits = code is not Code.SUCCESS and self._backoff.holds(next(iter(group.members.values())), now)
        self._move_group(group, _ATTEMPT_FAILED, now, active=not waits)

    def _save_groups(self) -> Callable[[], None]:
        """Return a function that restores the groups; the fields of their pods are saved with the pods."""
        if self._groups is None:
            return lambda: None
        groups = self._groups
        known, saved = groups.copy(), [save_fields(group, ("members", "returned")) for group in groups.values()]

        def restore() -> None:
            groups.clear()
            groups.update(known)
            for undo in saved:
                undo()

        return restore
