"""The scheduling queue: every pod that needs a node, in exactly one place.

    active         ready; the QueueSort plugin's first choice is popped next
    backoff        its last attempt failed; becomes active when its backoff is over
    unschedulable  rejected by plugins; waits for an event that concerns one of them
    gated          held by a PreEnqueue plugin; not tried until that plugin allows it
    in flight      popped; ``requeue`` puts it back, ``done`` removes it

Nothing here reads a clock: calls that depend on time take ``now``, in seconds that never decrease. Equal calls, equal states.

Pods that waited five minutes are retried without an event, gated ones included (their plugin runs again). 1.36.2 leaves gated
pods out, which could block a preemptor forever; later releases fix that.

Source  kube-scheduler, backend/queue/scheduling_queue.go; for gated pods kubernetes pull requests 139162, 139330, 139331
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import floor, inf
from typing import Any, Final, NamedTuple

from moorage.api.feature_gates import FeatureGates
from moorage.core.queue.active_queue import ActiveQueue, SortKey
from moorage.core.queue.backoff import BackoffQueue
from moorage.core.queue.cluster_events import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE, is_repeat, own_changes
from moorage.core.queue.hints import HintOutcome, Hints, is_for_everyone
from moorage.core.queue.in_flight import Happening, InFlight
from moorage.core.queue.inspection import QueueInspection
from moorage.core.queue.nominator import Nominator
from moorage.core.queue.pre_enqueue import Gates, QueueProfile
from moorage.core.queue.queued_groups import GroupsOfPods
from moorage.core.queue.queued_pod import QueuedPod, QueuePlace
from moorage.core.queue.sleeping_members import SleepingMembers
from moorage.core.queue.unschedulable_pods import ShapeGroup, Unschedulable
from moorage.errors import LoopError, MoorageError, StateError
from moorage.framework.events import Action, ClusterEvent, Resource
from moorage.state.pod_info import PodInfo

#: How often the queue scans unschedulable pods for those that waited too long.
SCAN_INTERVAL_S: Final = 30.0

FORCE_ACTIVATE: Final = ClusterEvent(Resource.ANY, Action.ALL, "ForceActivate")
UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(Resource.ANY, Action.ALL, "UnschedulableTimeout")
_POD_ADDED: Final = str(ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD))
_POD_UPDATED: Final = str(ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE_OTHER))
_ATTEMPT_FAILED: Final = "ScheduleAttemptFailure"
_BACKOFF_COMPLETE: Final = "BackoffComplete"
_POPPED_EARLY: Final = "PopFromBackoffQ"

_DEFAULT_GATES: Final = FeatureGates()
#: The end of the backoff of pods that have none.
_BEFORE_ALL: Final = float("-inf")


#: A parked pod that an event woke, its group, and the event.
Woken = tuple[QueuedPod, ShapeGroup, str]


def _by_turn(ranked: tuple[float, Any, int, QueuedPod, ShapeGroup, str]) -> tuple[float, Any, int]:
    """Return by what pods are tried: active ones by QueueSort, then those in backoff by its end."""
    return ranked[:3]


class QueueTimes(NamedTuple):
    """How long pods wait, in seconds: in backoff, and unschedulable without an event that wakes them.

    ``start``: when the scheduler started; scans for pods that waited too long are timed from then
    """

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 10.0
    max_unschedulable_s: float = 300.0
    start: float = 0.0


STANDARD_TIMES: Final = QueueTimes()


class SchedulingQueue(QueueInspection, GroupsOfPods):
    """See the module's docstring.

    ``sort_key``   the QueueSort plugin's; all profiles share one
    ``profiles``   by scheduler name
    ``on_fault``   receives the error of every plugin that fails here; the pod stays gated, or is retried
    ``incoming``   (place, event) → number of pods that entered it, as ``queue_incoming_pods_total`` counts them; without those
                   of groups that are queued as one, which are ``members_in``; ``groups_in`` counts these groups
    """

    #: How often a pod may become active in a second without a backoff; None: as often as plugins wake it, as in simulated time.
    most_active: int | None = None

    def __init__(
        self,
        sort_key: SortKey,
        profiles: Mapping[str, QueueProfile],
        *,
        on_fault: Callable[[MoorageError], None],
        times: QueueTimes = STANDARD_TIMES,
        gates: FeatureGates = _DEFAULT_GATES,
    ) -> None:
        self._max_unschedulable_s, self._on_fault = times.max_unschedulable_s, on_fault
        self._features = gates
        self._nominates_gated = self._features.emulated.nominates_gated_pods
        self._pop_from_backoff = gates["SchedulerPopFromBackoffQ"]
        self._grouping = gates["GenericWorkload"]
        self._groups = {} if self._grouping and gates.emulated.groups_as_one else None
        self._pods: dict[str, QueuedPod] = {}
        self._active = ActiveQueue(sort_key)
        self._backoff = BackoffQueue(sort_key, times.initial_backoff_s, times.max_backoff_s, self._pop_from_backoff)
        self._parked = Unschedulable()
        self._in_flight = InFlight()
        self._gates = Gates(profiles, on_fault)
        self._hints = Hints({name: profile.wakes for name, profile in profiles.items()}, on_fault)
        #: While hints are off, any event that a plugin names retries the pods in flight, whichever plugins reject them.
        self._any_event_retries = not gates["SchedulerQueueingHints"]
        self._nominator = Nominator(self._pods)
        self._asleep = SleepingMembers()
        self._order = 0
        #: The last cluster state in which no pod could be popped early from backoff.
        self._no_early_pop_in = -1
        #: While facts of one moment come in: the groups of parked pods that they woke, each with the event; else None.
        self._woken: dict[ShapeGroup, str] | None = None
        self._start = self._next_scan = times.start
        self.incoming: dict[tuple[str, str], int] = Counter()
        self.members_in: Counter[tuple[str, str]] = Counter()
        self.groups_in: Counter[tuple[str, str]] = Counter()

    # -- add, update and delete pods ----------------------------------------------------------------------------------

    def add(self, pod: PodInfo, now: float) -> QueuePlace:
        """Add a pod that needs a node. Update it instead if it is in the queue already.

        Raises  StateError if no profile has the pod's scheduler name
        """
        known = self._pods.get(pod.uid)
        if known is not None:
            known.deleted = False
            return self.update(known.pod, pod, now)
        return self._to_active(self._enter(pod, now), _POD_ADDED, now)

    def add_new(self, pods: Iterable[PodInfo], now: float) -> None:
        """Add pods that are not in the queue, and whose scheduler names have profiles, with the result of ``add`` for each."""
        known, active, hold, nominated = self._pods, self._active, self._gates.hold, self._nominator.node_by_uid
        keeps = self._nominates_gated
        count = 0
        for pod in pods:
            queued = known[pod.uid] = QueuedPod(pod, now, self._next_order())
            if keeps and pod.status.nominated_node_name:
                self._nominator.nominate(pod, None)
            if hold(queued):
                self._park(queued, _POD_ADDED)
                continue
            queued.initial_attempt, queued.initial_order = now, self._next_order()
            active.push(queued)
            count += 1
            if pod.status.nominated_node_name or pod.uid in nominated:
                self._nominator.nominate(pod, None)
        if count:
            self.incoming["active", _POD_ADDED] += count

    def put_back(self, pod: PodInfo, now: float) -> None:
        """Undo the removal of a pod that was active, untried and not nominated. It must not be in the queue."""
        queued = self._pods[pod.uid] = QueuedPod(pod, now, self._next_order(), initial_attempt=now)
        queued.initial_order = self._next_order()
        if self._join(queued, _POD_ADDED, now) is None:
            self._active.push(queued)
            self.incoming["active", _POD_ADDED] += 1

    def update(self, old: PodInfo, new: PodInfo, now: float) -> QueuePlace:
        """Apply an update of a pod that is not assumed. Add the pod if it is not in the queue.

        An unschedulable pod moves if a hint of a plugin that rejected it says so. If the update clears a nomination, pods of
        the same priority or below may take the room that was kept for the pod.
        """
        if self._woken:
            self._wake_now(now)
        if old.uid != new.uid:
            self.delete(old, now)
            return self.add(new, now)
        queued = self._pods.get(new.uid)
        if queued is None:
            return self._to_active(self._enter(new, now), _POD_UPDATED, now)
        if not is_repeat(old, new):
            self._follow(queued, old, new, now)
            previous = old.status.nominated_node_name
            if previous and previous != new.status.nominated_node_name:
                self._wake_for_freed_room(old, now)
        return queued.place

    def delete(self, pod: PodInfo, now: float, *, bound: bool = False) -> QueuedPod | None:
        """Remove a pod that was deleted, or ``bound`` by any client. Return its queue entry, if there is one.

        A pod in flight stays so until its attempt ends, and is not requeued then. If room was kept for the pod, others of its
        priority or below may take it; a pod that this scheduler assumed before the bind has no nomination left.
        """
        if self._woken and pod.uid in self._pods:
            self._wake_now(now)
        kept_room = self._nominator.forget(pod.uid)
        queued = self._pods.get(pod.uid)
        if queued is not None and queued.place is QueuePlace.IN_FLIGHT:
            queued.deleted = True
        elif queued is not None:
            self._take_out(queued)
            del self._pods[pod.uid]
            self._leave_group(queued, _POD_ADDED, now)
        if kept_room or (pod.status.nominated_node_name and not bound):
            self._wake_for_freed_room(pod, now)
        return queued

    def _follow(self, queued: QueuedPod, old: PodInfo, new: PodInfo, now: float) -> None:
        queued.pod = new
        self._nominator.touch(new.uid)
        changes = own_changes(old, new, self._features)
        if queued.place is QueuePlace.IN_FLIGHT:
            for event in changes:
                self._in_flight.record(event, old, new)
            return
        self._nominator.update(old, new)
        if queued.place is QueuePlace.ACTIVE:
            self._active.push(queued)
        elif queued.place is QueuePlace.BACKOFF:
            self._backoff.push(queued)
        else:
            for event in changes:
                outcome = self._hints.outcome(queued, event, old, new)
                if outcome is not HintOutcome.SKIP:
                    self._parked.discard(queued)
                    self._move(queued, outcome, str(event), now)
                    if not queued.parked:
                        return
            self._parked.regroup(queued)

    def _wake_for_freed_room(self, pod: PodInfo, now: float) -> None:
        self.event(ASSIGNED_POD_DELETE, pod, None, now, only=lambda other: other.priority <= pod.priority)

    # -- attempts -----------------------------------------------------------------------------------------------------

    def pop(self, now: float, state: int = 0) -> QueuedPod | None:
        """Return the next pod and begin its attempt, or return None. End the attempt with ``done`` or ``requeue``.

        While no pod is active, a rejected pod may be popped before its backoff ends (gate SchedulerPopFromBackoffQ). Pods of
        groups return straight to backoff, so they are popped early only if ``state``, a number that changes with the cluster,
        has changed since their last attempt (kube-scheduler retries them repeatedly in one state, with the same outcome).
        """
        self.tick(now)
        queued = self._active.pop()
        if queued is None:
            queued = self._pop_early(state)
            if queued is None:
                return None
            if (group := self._group_of(queued)) is not None:
                self._take_all_out(group, queued)
                self._move_checked(group, QueuePlace.BACKOFF, _POPPED_EARLY, now, active=True)
                self._active.discard(queued)
            else:
                self.incoming["active", _POPPED_EARLY] += 1
        self._begin_attempt(queued)
        return queued

    def first_active(self, now: float) -> QueuedPod | None:
        """Return the active pod that ``pop`` would return, without popping it; None if no pod is active."""
        self.tick(now)
        return self._active.peek()

    def first_if_quiet(self, now: float, *, beside_nominated: bool = False) -> QueuedPod | None:
        """Return the pod that ``pop`` would return, without popping it.

        None if it was tried before, or if any pod is in backoff, in flight or nominated. ``beside_nominated``: others may be.
        """
        if now >= self._next_scan:
            self.tick(now)
        first, nominated = self._active.peek(), self._nominator.node_by_uid
        if first is None or first.attempts or (nominated and (not beside_nominated or first.pod.uid in nominated)):
            return None
        return first if len(self._active.entries) + len(self._parked.entries) == len(self._pods) else None

    def take_first(self, queued: QueuedPod) -> None:
        """Pop the pod that ``first_if_quiet`` returned, and end its attempt at once, as ``done`` does."""
        self.drop_first(queued.pod.uid)
        queued.attempts += 1
        queued.place = QueuePlace.IN_FLIGHT

    def drop_first(self, uid: str) -> None:
        """Remove the pod that ``first_if_quiet`` returned. Its queue entry must not be used any more."""
        self._active.pop()
        del self._pods[uid]

    def _pop_early(self, state: int) -> QueuedPod | None:
        if not self._grouping:
            return self._backoff.pop_early()
        if self._no_early_pop_in == state:
            return None
        queued = self._backoff.pop_early(lambda queued: queued.tried_at != state)
        if queued is None:
            self._no_early_pop_in = state
        return queued

    def pop_this(self, pod: PodInfo, now: float) -> QueuedPod | None:
        """Pop this pod, wherever it waits; return None if it is gated, in flight or not in the queue.

        Source  scheduling_queue.go, PopSpecificPod
        """
        self.activate([pod], now)
        queued = self._pods.get(pod.uid)
        if queued is None or queued.place is not QueuePlace.ACTIVE:
            return None
        self._active.discard(queued)
        self._begin_attempt(queued)
        return queued

    def _begin_attempt(self, queued: QueuedPod) -> None:
        self._asleep.discard(queued.pod.uid)
        self._begin_group(queued)
        queued.attempts += 1
        queued.place = QueuePlace.IN_FLIGHT
        self._nominator.touch(queued.pod.uid)
        self._in_flight.begin(queued.pod.uid)

    def done(self, uid: str) -> None:
        """End a pod's last attempt and remove it: it is bound, being bound, deleted, or another scheduler's."""
        self._in_flight.end(uid)
        queued = self._pods.get(uid)
        if queued is not None and queued.place is QueuePlace.IN_FLIGHT:
            self._nominator.forget(uid)
            del self._pods[uid]

    def pass_over(self, uid: str) -> None:
        """End the attempt of a pod that is being deleted. It stays nominated, by name only, until its deletion completes."""
        queued, node = self._pods.get(uid), self._nominator.node_of(uid)
        self.done(uid)
        if queued is not None and node is not None:
            self._nominator.leave(queued.pod, node)

    def requeue(
        self, queued: QueuedPod, now: float,
        *, rejected_by: Iterable[str] = (), pending_on: Iterable[str] = (), waits: bool = False,
    ) -> QueuePlace | None:  # fmt: skip
        """Take a pod back after a failed attempt. Return its new place; None if it was deleted meanwhile.

        ``rejected_by`` and ``pending_on``: plugins that rejected it; if both are empty, the attempt ended in an error and the
        pod is retried after backoff. A pod that failed after ``done`` (in binding) may be requeued too, if the caller knows
        that it still exists unbound, and has set ``queued.pod`` to its newest version. It is retried after backoff too, or if
        it ``waits``, after an event.

        Raises  StateError if the pod is waiting in the queue already
        """
        uid = queued.pod.uid
        held = self._pods.get(uid)
        if held is not None and (held is not queued or held.place is not QueuePlace.IN_FLIGHT):
            raise StateError(f"pod {queued.pod.key} ({uid}) came back from an attempt, but it is {held.place.value} already")
        if queued.deleted:
            self.done(uid)
            return None
        self._nominator.touch(uid)
        queued.note_failure(frozenset(rejected_by), frozenset(pending_on))
        queued.timestamp = now
        queued.order = self._next_order()
        missed = self._in_flight.since(uid) if held is not None else None
        outcome = HintOutcome.SKIP if waits and missed is None else self._outcome_of_attempt(queued, missed)
        self._in_flight.end(uid)
        self._pods[uid] = queued
        group = self._group_of(queued)
        if group is not None and group.trying:
            group.returned[uid] = queued
            return queued.place
        return self._move(queued, outcome, _ATTEMPT_FAILED, now)

    def _outcome_of_attempt(self, queued: QueuedPod, missed: list[Happening] | None) -> HintOutcome:
        """Return where a failed pod goes. ``missed``: the events during its attempt; None if they were not logged.

        A pod of a group is always retried after its backoff: plugins name events that help a pod, not those that help a group.
        """
        if missed is None or not queued.rejecters or self._goes_with_a_group(queued):
            return HintOutcome.AFTER_BACKOFF
        if self._any_event_retries and any(not is_for_everyone(event) for event, _, _ in missed):
            return HintOutcome.AFTER_BACKOFF
        outcome = HintOutcome.SKIP
        for event, old, new in missed:
            found = self._hints.outcome(queued, event, old, new)
            if found is HintOutcome.AT_ONCE:
                return found
            if found is HintOutcome.AFTER_BACKOFF:
                outcome = found
                if not queued.pending_plugins:
                    break
        return outcome

    def _goes_with_a_group(self, queued: QueuedPod) -> bool:
        return self._grouping and queued.pod.spec.scheduling_group is not None

    # -- what moves waiting pods --------------------------------------------------------------------------------------

    def event(self, event: ClusterEvent, old: Any, new: Any, now: float, only: Callable[[PodInfo], bool] | None = None) -> int:
        """Move the unschedulable pods that an event may help, as the hints of their plugins say. Return how many moved.

        Pods are passed as ``PodInfo``, other objects as they are; ``old`` is None for additions, ``new`` for deletions.
        ``only`` selects which unschedulable pods may move; the event is logged for pods in flight in any case.
        """
        if not self.heeds_events:
            return 0
        if self._woken is not None:
            if only is None and event == ASSIGNED_POD_DELETE and self._note_woken(event, old, new):
                return 0
            self._wake_now(now)
        known: dict[QueuedPod, HintOutcome | None] = {}
        if is_for_everyone(event):
            parked = list(self._parked)
        else:
            interest = self._hints.interest(event)
            if interest is None:
                return 0
            rejecters = interest.rejecters(old, new)
            groups = self._parked.rejected_by(rejecters)
            known = dict(self._hints.outcomes(interest, groups, event, old, new)) if groups else known
            parked = self._parked.in_order(known, rejecters) if known else []
        if only is not None:
            parked = [queued for queued in parked if only(queued.pod)]
        moved = self._wake(parked, known, Happening(event, old, new), now) if parked else 0
        self._in_flight.record(event, old, new)
        return moved

    @property
    def heeds_events(self) -> bool:
        """False while an event can change nothing: no pod is unschedulable, gated or in flight."""
        return bool(self._parked.entries or self._in_flight.begun_at)

    def _wake(
        self, parked: list[QueuedPod], known: Mapping[QueuedPod, HintOutcome | None], happened: Happening, now: float
    ) -> int:
        """Move pods by their ``known`` outcomes; run the hints of pods without one. Return how many pods moved."""
        moved = 0
        label = str(happened.event)
        for queued in parked:
            outcome = known.get(queued) or self._hints.outcome(queued, *happened)
            if outcome is HintOutcome.SKIP or not queued.parked:  # a plugin may have activated it just now
                continue
            self._parked.discard(queued)
            self._move(queued, outcome, label, now)
            moved += not queued.parked
        return moved

    # -- pods that are woken together -----------------------------------------------------------------------------------

    def begin_moment(self) -> None:
        """Begin to tell the facts of one moment. Pods that they wake stay where they are until ``end_moment``."""
        if self._max_unschedulable_s == inf and self._pop_from_backoff and not self._grouping:
            self._woken = {}

    def end_moment(self, now: float) -> list[Woken]:
        """Return the pods that the facts of this moment woke, in the order in which they would be tried.

        They are still parked: call ``move`` or ``fail_again`` for each in turn. If any other pod is about to be tried, or may
        be woken when one of them is placed, all are moved and none is returned.
        """
        woken, self._woken = self._woken, None
        if not woken:
            return []
        busy = self._active or self._backoff or self._in_flight.begun_at or self._nominator.node_by_uid
        gated = any(group.filed_as_gated for group in woken)
        if busy or gated or self._parked.rejected_by(self._hints.concerned(ASSIGNED_POD_ADD)):
            self._wake_groups(woken, now)
            return []
        key, backoff = self._active.rank, self._backoff
        long_ago = backoff.over_since(now)
        ranked = [
            (
                backoff.until(queued) if queued.timestamp >= long_ago and backoff.holds(queued, now) else _BEFORE_ALL,
                key(queued),
                queued.order,
                queued,
                group,
                label,
            )
            for group, label in woken.items()
            for queued in group.pods.values()
        ]
        ranked.sort(key=_by_turn)
        return [one[3:] for one in ranked]

    def move(self, woken: Iterable[Woken], now: float) -> None:
        """Move pods as the event says that woke them: after their backoff."""
        for queued, _, label in woken:
            if queued.parked:
                self._parked.discard(queued)
                self._move(queued, HintOutcome.AFTER_BACKOFF, label, now)

    def fail_again(self, queued: QueuedPod, now: float) -> None:
        """Leave a parked pod as if it had been popped, failed as in its last attempt, and been requeued."""
        queued.attempts += 1
        queued.unschedulable_count += 1
        queued.timestamp, queued.order, queued.backoff_until = now, self._next_order(), None

    def _note_woken(self, event: ClusterEvent, old: Any, new: Any) -> bool:
        """Note which groups an event wakes. Return False if each pod must hear of it."""
        interest = self._hints.interest(event)
        if interest is None:
            return True
        assert self._woken is not None
        found = {}
        for group in self._parked.rejected_by(interest.rejecters(old, new)):
            if group in self._woken:
                continue
            one = group.other_than(()) if interest.goes_by_shape(group) else None
            if one is None or old.uid in group.pods:
                return False
            outcome = self._hints.outcome(one, event, old, new)
            if outcome is HintOutcome.AT_ONCE:
                return False
            if outcome is not HintOutcome.SKIP:
                found[group] = str(event)
        self._woken.update(found)
        return True

    def _wake_now(self, now: float) -> None:
        """Move the pods that were woken in this moment; each pod hears the other facts of it."""
        woken, self._woken = self._woken, None
        if woken:
            self._wake_groups(woken, now)

    def _wake_groups(self, woken: Mapping[ShapeGroup, str], now: float) -> None:
        """Move the pods of these groups."""
        found = [(queued, group, label) for group, label in woken.items() for queued in group.pods.values()]
        found.sort(key=lambda one: self._parked.entries[one[0].pod.uid].serial)
        self.move(found, now)

    def activate(self, pods: Iterable[PodInfo], now: float) -> None:
        """Make waiting pods active at once, unless they are gated; retry pods in flight when they are requeued."""
        if self._woken:
            self._wake_now(now)
        for pod in pods:
            queued = self._pods.get(pod.uid)
            if queued is None or queued.place is QueuePlace.ACTIVE:
                continue
            if queued.place is QueuePlace.IN_FLIGHT:
                if not self._goes_with_a_group(queued):  # pods of groups are always retried
                    self._in_flight.record(FORCE_ACTIVATE, None, pod)
                continue
            from_backoff = queued.place is QueuePlace.BACKOFF
            if from_backoff and queued.held_back and not queued.rejecters and self._backoff.holds(queued, now):
                continue
            self._take_out(queued)
            self._to_active(queued, FORCE_ACTIVATE.label, now, from_backoff=from_backoff)

    def pods(self) -> Iterator[PodInfo]:
        """Yield all pods that are in the queue or being tried."""
        return (queued.pod for queued in list(self._pods.values()))

    def retry_rejected(self, plugins: Iterable[str], now: float) -> None:
        """Make the pods active that one of these plugins rejected, unless they are gated or in backoff."""
        wanted = frozenset(plugins)
        self.activate([queued.pod for queued in list(self._parked) if not wanted.isdisjoint(queued.rejecters)], now)

    def asleep_in(self, group: str) -> tuple[str, ...]:
        """Return the UIDs of a group's pods that ``activate`` would move; takes time in proportion to them."""
        return self._asleep.of(group)

    def tick(self, now: float) -> None:
        """End the backoffs that are over at ``now``, and retry pods that have been unschedulable for too long."""
        if len(self._backoff):
            for queued in self._backoff.pop_completed(now):
                self._to_active(queued, _BACKOFF_COMPLETE, now, from_backoff=True)
        if now >= self._next_scan:
            scan = self._start + SCAN_INTERVAL_S * floor((now - self._start) / SCAN_INTERVAL_S)
            self._next_scan = scan + SCAN_INTERVAL_S
            self._retry_older(scan, now)

    def _retry_older(self, scan: float, now: float) -> None:
        retried = False
        while (queued := self._parked.oldest()) is not None and queued.waiting_since < scan - self._max_unschedulable_s:
            self._parked.discard(queued)
            group = self._group_of(queued)
            for one in (queued,) if group is None else group.members.values():
                one.flushed_at = scan
            self._move(queued, HintOutcome.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT.label, now)
            queued.was_flushed = not queued.parked
            retried = True
        if retried:
            self._in_flight.record(UNSCHEDULABLE_TIMEOUT, None, None)

    def next_deadline(self, now: float) -> float | None:
        """Return when ``tick`` next has something to do (``now`` if it has already), or None if only events can move pods."""
        if not self._pods:
            return None
        times = [t for t in (self._backoff.next_completion(), self.next_retry()) if t is not None]
        return max(now, min(times)) if times else None

    def next_retry(self) -> float | None:
        """Return the time of the scan that next retries an unschedulable pod; None if no scan will."""
        oldest = self._parked.oldest()
        if oldest is None or self._max_unschedulable_s == inf:
            return None
        scans = floor((oldest.waiting_since + self._max_unschedulable_s - self._start) / SCAN_INTERVAL_S) + 1
        return self._start + SCAN_INTERVAL_S * scans

    # -- nominations --------------------------------------------------------------------------------------------------

    def nominate(self, pod: PodInfo, node: str | None) -> None:
        """Nominate a pod to a node, if it is in the queue. "" ends its nomination; None takes the node from its status."""
        queued = self._pods.get(pod.uid)
        if queued is None or queued.deleted:
            self._nominator.forget(pod.uid)
            return
        self._nominator.nominate(pod, node)

    def end_nomination(self, uid: str) -> None:
        """End the nomination of a pod that is now assumed on a node: the assumption keeps the room from now on."""
        self._nominator.forget(uid)

    def nomination(self, uid: str) -> str | None:
        """Return the node that a pod is nominated to; None if it is not nominated."""
        return self._nominator.node_of(uid)

    @property
    def nominated(self) -> Mapping[str, tuple[PodInfo, ...]]:
        """Node name → pods nominated to it, by descending priority, then in the order of their nomination."""
        return self._nominator.lists

    # -- undo ----------------------------------------------------------------------------------------------------------

    def save(self) -> Callable[[], None]:
        """Return a function that restores the whole queue; takes time in proportion to the waiting pods."""
        pods, incoming = self._pods.copy(), (self.incoming.copy(), self.members_in.copy(), self.groups_in.copy())
        numbers = self._order, self._no_early_pop_in, self._next_scan
        places: tuple[Any, ...] = (self._active, self._backoff, self._parked, self._in_flight, self._nominator, self._asleep)
        saved = [*(queued.save() for queued in pods.values()), *(place.save() for place in places), self._save_groups()]

        def restore() -> None:
            self._pods.clear()
            self._pods.update(pods)
            self._order, self._no_early_pop_in, self._next_scan = numbers
            self.incoming, self.members_in, self.groups_in = incoming
            for undo in saved:
                undo()

        return restore

    # -- moves between places -----------------------------------------------------------------------------------------

    def _enter(self, pod: PodInfo, now: float) -> QueuedPod:
        if not self._gates.serve(pod.spec.scheduler_name):
            raise StateError(f"pod {pod.key} names scheduler {pod.spec.scheduler_name}, which no profile has")
        queued = self._pods[pod.uid] = QueuedPod(pod, now, self._next_order())
        if pod.status.nominated_node_name and self._nominates_gated:
            self._nominator.nominate(pod, None)
        return queued

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _take_out(self, queued: QueuedPod) -> None:
        """Remove a waiting pod from its place."""
        self._asleep.discard(queued.pod.uid)
        if queued.place is QueuePlace.ACTIVE:
            self._active.discard(queued)
        elif queued.place is QueuePlace.BACKOFF:
            self._backoff.discard(queued)
        else:
            self._parked.discard(queued)

    def _move(self, queued: QueuedPod, outcome: HintOutcome, label: str, now: float) -> QueuePlace:
        """Put a pod that is in no place into the one that ``outcome`` names."""
        place = self._join(queued, label, now)
        if place is not None:
            return place
        if outcome is HintOutcome.SKIP:
            return self._park(queued, label)
        if outcome is HintOutcome.AFTER_BACKOFF and self._backoff.holds(queued, now):
            return self._to_backoff(queued, label, now)
        return self._to_active(queued, label, now)

    def _to_active(self, queued: QueuedPod, label: str, now: float, *, from_backoff: bool = False) -> QueuePlace:
        """Make a pod active, unless PreEnqueue gates it. PreEnqueue has run already for pods that come from backoff."""
        place = self._join(queued, label, now)
        if place is not None:
            return place
        checked = from_backoff and self._pop_from_backoff
        if (group := self._group_of(queued)) is not None:
            self._take_all_out(group, queued)
            (self._move_checked if checked else self._move_group)(group, queued.place, label, now, active=True)
            return queued.place
        if not checked and self._gates.hold(queued):
            return self._park(queued, label)
        if self.most_active is not None and label != _BACKOFF_COMPLETE and queued.is_too_active(now, self.most_active):
            return self._hold_back(queued, label, now)
        return self._make_active(queued, label, now)

    def _hold_back(self, queued: QueuedPod, label: str, now: float) -> QueuePlace:
        """Let a pod back off, as after an error, that plugins make active again and again; each time longer."""
        queued.held_back += 1
        queued.unschedulable_plugins = queued.pending_plugins = frozenset()  # with plugins it might be popped early
        queued.consecutive_errors, queued.backoff_until = queued.held_back, self._backoff.ends(now, queued.held_back)
        text = f"pod {queued.pod.key} becomes active more than {self.most_active} times a second ({label}); it backs off now"
        self._on_fault(LoopError(f"{text}: a plugin activates or wakes it without anything new"))
        return self._to_backoff(queued, label, now)

    def _make_active(self, queued: QueuedPod, label: str, now: float) -> QueuePlace:
        if queued.initial_attempt is None:
            queued.initial_attempt, queued.initial_order = now, self._next_order()
        queued.place = QueuePlace.ACTIVE
        self._asleep.discard(queued.pod.uid)
        self._active.push(queued)
        if not queued.entry:
            self.incoming["active", label] += 1
        pod = queued.pod
        if label in (_POD_ADDED, _POD_UPDATED) and (pod.status.nominated_node_name or pod.uid in self._nominator.node_by_uid):
            self._nominator.nominate(pod, None)
        return QueuePlace.ACTIVE

    def _to_backoff(self, queued: QueuedPod, label: str, now: float) -> QueuePlace:
        if (group := self._group_of(queued)) is not None:
            self._take_all_out(group, queued)
            (self._move_group if self._pop_from_backoff else self._move_checked)(group, queued.place, label, now, active=False)
            return queued.place
        if self._pop_from_backoff and self._gates.hold(queued):
            return self._park(queued, label)
        return self._begin_backoff(queued, label)

    def _begin_backoff(self, queued: QueuedPod, label: str) -> QueuePlace:
        queued.place = QueuePlace.BACKOFF
        self._asleep.add(queued)
        self._no_early_pop_in = -1
        self._backoff.push(queued)
        if not queued.entry:
            self.incoming["backoff", label] += 1
        return QueuePlace.BACKOFF

    def _park(self, queued: QueuedPod, label: str) -> QueuePlace:
        if not queued.parked and not queued.entry:
            self.incoming["unschedulable", label] += 1
        queued.place = QueuePlace.GATED if queued.gated else QueuePlace.UNSCHEDULABLE
        self._parked.add(queued)
        self._asleep.add(queued)
        return queued.place
