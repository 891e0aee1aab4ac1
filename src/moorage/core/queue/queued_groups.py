"""Groups as entries of the queue: since 1.37 a group's pods wait in one place, and are tried, gated and delayed as one.

A group has a place in the order, a count of failed attempts and a backoff of its own; its pods carry copies of them. If a
plugin gates one pod, the others wait with it. A pod that is added, or that failed to be bound, joins its group where it waits.
After an attempt the pods that came back wait together for the group's backoff, whatever events happened. But if the attempt
succeeded for others of the group, they are active at once and keep their turn, so that the group may preempt for them. The pods
of a group that does not exist, or of a tree without its root, are gated and counted apart: they are incomplete.

Source  kube-scheduler 1.37, backend/queue/scheduling_queue.go, addPodGroupMember, AddAttemptedPodGroupIfNeeded
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

from moorage.core.queue.backoff import BackoffQueue
from moorage.core.queue.pre_enqueue import Gates
from moorage.core.queue.queued_pod import QueuedPod, QueuePlace, save_fields
from moorage.framework.verdicts import Code
from moorage.state.pod_groups import group_key
from moorage.state.pod_info import PodInfo

_ATTEMPT_FAILED = "ScheduleAttemptFailure"
_REGROUPED = "PodGroupUpdate"
_LABELS = {QueuePlace.ACTIVE: "active", QueuePlace.BACKOFF: "backoff"}


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
    """The part of a scheduling queue that moves groups. ``_groups`` is None while pods of groups are queued one by one.

    ``members_in`` counts pods of groups by (place, event): a pod that joins or leaves a group lets all its pods come again.
    ``groups_in`` counts the groups, trees aside, that came from another place.
    """

    members_in: Counter[tuple[str, str]]
    groups_in: Counter[tuple[str, str]]
    _groups: dict[str, GroupEntry] | None
    _gates: Gates
    _backoff: BackoffQueue
    #: Returns the key of the group that a pod is queued with: that of its group, or of the root of its group's tree.
    entry_of: Callable[[PodInfo], str | None] = staticmethod(group_key)
    #: Returns whether the group of a pod and those above it exist.
    knows_group: Callable[[PodInfo], bool] = staticmethod(lambda pod: True)

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
            self._move_group(group, place, label, now, active=True)
            return queued.place
        self._count(group, label, place)
        return queued.place

    def _move_group(self, group: GroupEntry, origin: QueuePlace | None, label: str, now: float, *, active: bool) -> None:
        """Make the waiting pods of a group active, or begin their backoff; all are gated if PreEnqueue gates one of them.

        ``origin``: their place before, if they had one
        """
        members = list(group.members.values())
        if len([member for member in members if not self._gates.hold(member)]) == len(members):
            self._move_checked(group, origin, label, now, active=active)
            return
        self._gate_with(group, members, label)
        self._count_moved(group, label, origin)

    def _move_checked(self, group: GroupEntry, origin: QueuePlace | None, label: str, now: float, *, active: bool) -> None:
        """Do the same for pods that PreEnqueue let pass."""
        for member in list(group.members.values()):
            if active:
                self._make_active(member, label, now)
            else:
                self._begin_backoff(member, label)
        self._count_moved(group, label, origin)

    def _count_moved(self, group: GroupEntry, label: str, origin: QueuePlace | None) -> None:
        if origin is not QueuePlace.GATED or group.place is not origin:
            self._count(group, label, origin)

    def _count(self, group: GroupEntry, label: str, origin: QueuePlace | None) -> None:
        """Count a group and its pods where they wait now.

        Source  backend/queue/scheduling_queue.go, recordIncomingEntitiesMetrics
        """
        first = next(iter(group.members.values()))
        if not self.knows_group(first.pod):
            return
        place = _LABELS.get(first.place, "unschedulable"), label
        self.members_in[place] += len(group.members)
        if first.entry == group_key(first.pod) and (origin is None or place[0] != _LABELS.get(origin, "unschedulable")):
            self.groups_in[place] += 1

    def _take_all_out(self, group: GroupEntry, but: QueuedPod | None = None) -> None:
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
            place = group.place
            self._take_all_out(group, queued)
            self._move_group(group, place, label, now, active=not waits)
        elif group.members:
            self._count(group, label, group.place)

    def regroup(self, now: float) -> None:
        """Move the waiting pods whose trees of groups have another root than before to their new groups."""
        waiting = [member for group in (self._groups or {}).values() for member in group.members.values()]
        moved = [queued for queued in waiting if self.entry_of(queued.pod) != queued.entry]
        for queued in moved:
            self._take_out(queued)
            self._leave_group(queued, _REGROUPED, now)
            queued.entry = ""
            self._join(queued, _REGROUPED, now)

    def end_without(self, key: str, now: float) -> None:
        """Gate the waiting pods of a group that exists no more."""
        group = (self._groups or {}).get(key)
        if group is not None and group.place in _LABELS:
            self._take_all_out(group)
            self._move_group(group, None, _REGROUPED, now, active=True)

    @property
    def incomplete(self) -> Iterator[QueuedPod]:
        """The waiting pods whose group does not exist, or one above it."""
        for group in (self._groups or {}).values():
            if group.place is QueuePlace.GATED and not self.knows_group(next(iter(group.members.values())).pod):
                yield from group.members.values()

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
            group.unschedulable_count = group.consecutive_errors = 0
        if code is not Code.SUCCESS or not returned:
            group.timestamp, group.order = now, self._next_order()
        if code is not Code.SUCCESS:
            rejected = code is not Code.ERROR
            group.unschedulable_count += rejected
            group.consecutive_errors = 0 if rejected else group.consecutive_errors + 1
            failures = group.consecutive_errors or group.unschedulable_count
            group.backoff_until = self._backoff.ends(now, failures, len(returned) + len(group.members))
        for queued in (*group.members.values(), *returned.values()):
            group.take(queued)
        if not group.members:
            del self._groups[key]
            return
        waits = code is not Code.SUCCESS and self._backoff.holds(next(iter(group.members.values())), now)
        self._move_group(group, None, _ATTEMPT_FAILED, now, active=not waits)

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
