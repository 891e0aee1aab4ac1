"""The books of a simulated cluster: its pods by UID and by name, with their records and last attempts; and its fast lane."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import count, takewhile
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from moorage.api.core import ENDED_PHASES, Node, Pod, PodSpec
from moorage.core.cycle.decision import Decision
from moorage.core.engine.facts import Gone, News, Work
from moorage.core.engine.placer import Found
from moorage.core.engine.pod_run import PodRun
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import CopyError
from moorage.simulator.pod_collector import PodCollector
from moorage.state.pod_info import PodInfo
from moorage.state.pod_names import PodNames


class State:
    """The states of a pod in a simulation."""

    PENDING = "Pending"
    PLACED = "Placed"
    FINISHED = "Finished"
    PREEMPTED = "Preempted"
    DELETED = "Deleted"


def wants_a_node(pod: Pod) -> bool:
    """Return True for a pod that a scheduler should place: without a node, neither finished nor terminating."""
    return not pod.spec.node_name and pod.status.phase not in ENDED_PHASES and pod.metadata.deletion_timestamp is None


def is_placed(obj: object) -> bool:
    """Return True for a pod that has a node and has not ended."""
    return isinstance(obj, Pod) and bool(obj.spec.node_name) and obj.status.phase not in ENDED_PHASES


class ArrivalKind(Enum):
    """How a new object may be reported: alone, or together with others of its kind."""

    ALONE = "alone"
    PLACED = "placed"
    WAITING = "waiting"


def arrival_of(schedulers: Container[str], obj: object) -> ArrivalKind:
    """Return how an object may be reported. ``schedulers``: the scheduler names that have a profile."""
    if not isinstance(obj, Pod):
        return ArrivalKind.ALONE
    if obj.spec.node_name:
        return ArrivalKind.ALONE if obj.status.phase in ENDED_PHASES else ArrivalKind.PLACED
    waits = wants_a_node(obj) and obj.spec.scheduler_name in schedulers
    return ArrivalKind.WAITING if waits and not obj.spec.resource_claims else ArrivalKind.ALONE


class PodRecord(Struct, gc=False):
    """The record of a pod that was pending, or that was evicted or deleted. Times are seconds of simulated time.

    ``message`` is the reason why the last attempt failed; empty if it succeeded or there was none. Decisions are not recorded,
    because each is as large as the cluster.
    """

    pod: Pod
    arrived_s: float
    state: str = State.PENDING
    node: str = ""
    placed_s: float | None = None
    attempts: int = 0
    message: str = ""
    nominated: str = ""
    preempted_by: str = ""
    replaced: str = ""
    ended_s: float | None = None


def bound_version(pod: Pod, node: str) -> Pod:
    """Return a pod without a nomination as it is once bound. Setting fields of unshared copies is faster than ``replace``."""
    bound: Pod = pod.__copy__()  # type: ignore[attr-defined]  # faster than copy()
    spec: PodSpec = pod.spec.__copy__()  # type: ignore[attr-defined]
    force_setattr(spec, "node_name", node)
    force_setattr(bound, "spec", spec)
    return bound


# -- under way ---------------------------------------------------------------------------------------------------------

#: A fact, or a call that may report facts or schedule further events.
Event: TypeAlias = News | Callable[[], None]


class LastAttempt(Struct, frozen=True, gc=False):
    """The last attempt for a pod: the scheduler's revision and facts at that time, and the attempts since that fact."""

    revision: int
    facts: int
    times: int


class WaitingWork(NamedTuple):
    """Work that waits for the effect at index ``at``, an ``Until``, until its condition holds or its deadline passes."""

    work: Work
    at: int
    deadline_s: float


class PodBooks:
    """The base of ``SimulatedCluster``, which fills the books and adds the fields without a value here.

    Pods that the scheduler's fast lane places are bound as soon as they are decided.
    """

    scheduler: Scheduler
    on_attempt: Callable[[SimulatedAttempt], None] | None
    on_result: Callable[[Decision], None] | None
    on_placed: Callable[[PodRecord], None] | None
    now: float
    durations: dict[str, float]
    records: dict[str, PodRecord]
    victims: dict[str, PodRecord]
    arrived: int
    _collector: PodCollector

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._numbers: dict[str, int] = {}
        #: The number of the first of some pods that arrived together, and their UIDs; ``_came`` moves them to ``_numbers``.
        self._unnumbered: list[tuple[int, list[str]]] = []
        self._arrivals = 0
        self._named = PodNames()
        self._last_attempts: dict[str, LastAttempt] = {}
        #: The last attempt that was entered for a pod without one; others at the same state share it.
        self._latest: LastAttempt | None = None
        #: UID → how often its work waited until the deadline.
        self._timeouts: dict[str, int] = {}
        #: Time, serial number and event, as a heap.
        self._events: list[tuple[float, int, Event]] = []
        self._serial = 0
        self._waiting_work: list[WaitingWork] = []

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise CopyError(
            "a simulation cannot be copied or pickled; call prepare(options) again and load the same objects: with the same"
            " seed it runs the same way"
        )

    @property
    def _came(self) -> dict[str, int]:
        """UID → the number of the pod in order of arrival. Many runs never need it."""
        while self._unnumbered:
            first, uids = self._unnumbered.pop()
            self._numbers.update(zip(uids, count(first), strict=False))
        return self._numbers

    def _arrival_of(self, uid: str) -> int:
        return self._came[uid]

    @property
    def pods(self) -> Mapping[str, Pod]:
        """All pods that exist, by UID."""
        return self._pods

    def nodes_in_order(self) -> list[Node]:
        """Return the nodes in the order in which they were added."""
        table = self.scheduler.cluster.table
        return [table.nodes[row] for row in table.arrival.view.argsort(kind="stable").tolist()]

    def pods_in_order(self) -> list[Pod]:
        """Return all pods that exist, in order of arrival."""
        return [self._pods[uid] for uid in sorted(self._pods, key=self._came.__getitem__)]

    def state_of(self, pod: PodInfo) -> str:
        """Return the state of a pod that exists; without a record, it was placed from the start or waits for no one here."""
        record = self.records.get(pod.uid)
        return record.state if record is not None else State.PLACED if pod.spec.node_name else State.PENDING

    def pending_pods(self) -> list[Pod]:
        """Return the pods that wait for a node, in the order of their records."""
        return [record.pod for record in self.records.values() if record.state == State.PENDING]

    def newest_first(self) -> Iterator[Pod]:
        """Yield the pods that exist, the last arrival first."""
        return reversed(self._pods.values())

    @property
    def arrivals(self) -> int:
        """The number of pods that have arrived, whether they exist or not."""
        return self._arrivals

    def arrived_after(self, arrivals: int) -> list[Pod]:
        """Return the pods that exist and arrived after so many others, in the order of their arrival.

        A pod is left out if a rollback put back an older one after it came.
        """
        newest = takewhile(lambda pod: self._came[pod.metadata.uid] > arrivals, self.newest_first())
        return sorted(newest, key=lambda pod: self._came[pod.metadata.uid])

    def knows(self, uid: str) -> bool:
        """Return True for the UID of a pod that exists, or has a record."""
        return uid in self._pods or uid in self.records

    def pod_named(self, key: str) -> Pod | None:
        """Return the pod of this ``namespace/name``, if it exists."""
        namespace, _, name = key.partition("/")
        pod = self._pods.get(self._named.get(namespace, name) or "")
        return pod if pod is not None and pod.key == key else None

    def _new_names(self, pods: Sequence[Pod]) -> PodNames | None:
        """Return the names of the pods, if neither the UID nor the name of any is known, and none occurs twice."""
        names = self._named.of_new(pods)
        books: list[dict[str, Any]] = [book for book in (self._pods, self.records) if book]
        if names is None or not books:
            return names
        uids = names.uids()
        return names if all(book.keys().isdisjoint(uids) for book in books) else None

    def _take_together(self, kind: ArrivalKind, pods: Sequence[Any]) -> bool:
        """Report pods together, which takes less time. Return False if they must be reported one by one."""
        if kind is ArrivalKind.PLACED:
            return self._take_placed(pods)
        return kind is ArrivalKind.WAITING and self._take_waiting(pods)

    def _take_placed(self, pods: Sequence[Any]) -> bool:
        """Report pods on nodes together. Return False if one of them may concern more than its node."""
        names = None if self._collector.gone else self._new_names(pods)
        if names is None or not self.scheduler.observe_placed(pods, self.now):
            return False
        self._enter(pods, names)
        return True

    def _take_waiting(self, pods: Sequence[Any]) -> bool:
        """Report pods that want a node from us and use no resource claims together. Return False if not all of them are new."""
        names = None if self._collector.gone else self._new_names(pods)
        if names is None or not self.scheduler.observe_waiting(pods, self.now):
            return False
        self._enter(pods, names)
        now = self.now
        for pod in pods:
            self.records[pod.metadata.uid] = PodRecord(pod, now)
        self.arrived += len(pods)
        return True

    def _enter(self, pods: Sequence[Pod], names: PodNames) -> None:
        """Enter new pods, which have these names, in the books."""
        uids = [pod.metadata.uid for pod in pods]
        self._pods.update(zip(uids, pods, strict=True))
        self._unnumbered.append((self._arrivals + 1, uids))
        self._arrivals += len(pods)
        self._named.take(names)

    def _place(self, pod: Pod, node: str, now: float) -> Pod:
        """Record that a pod is bound. Return its bound version."""
        uid = pod.metadata.uid
        bound = self._pods[uid] = bound_version(pod, node)
        record = self.records.get(uid)
        if record is not None and record.state == State.PENDING:
            self._note_placed(record, node, now)
        return bound

    def _note_placed(self, record: PodRecord, node: str, now: float) -> None:
        """Record that a pending pod is placed. No other attempt follows."""
        record.state, record.node, record.placed_s = State.PLACED, node, now
        self._last_attempts.pop(record.pod.metadata.uid, None)
        if self.on_placed is not None:
            self.on_placed(record)

    def _note_attempt(self, record: PodRecord, message: str, attempt: LastAttempt) -> None:
        """Record an attempt for a pod."""
        record.attempts += 1
        record.message = message
        uid = record.pod.metadata.uid
        before = self._last_attempts.get(uid)
        if before is None:
            last = self._latest
            attempt = self._latest = last if last == attempt else attempt
        else:
            times = before.times + 1 if before.facts == attempt.facts else attempt.times
            attempt = LastAttempt(attempt.revision, attempt.facts, times)
        self._last_attempts[uid] = attempt

    def _forget(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        for book in (self.records, self.victims, self._last_attempts, self._timeouts, self.durations):
            book.pop(uid, None)
        self._named.drop(pod.metadata.namespace, pod.metadata.name, uid)

    # -- the fast lane -------------------------------------------------------------------------------------------------

    def at(self, time_s: float, event: Event) -> None:
        """Schedule a fact, or a call, for a later time."""
        self._serial += 1
        heapq.heappush(self._events, (time_s, self._serial, event))

    def _process_due(self) -> None:
        raise NotImplementedError

    def _note(self, decision: Decision) -> None:
        raise NotImplementedError

    def _place_quickly(self) -> Iterator[Decision]:
        """Place pods in the scheduler's fast lane and yield the decisions, until a pod needs an attempt."""
        scheduler, state, lane = self.scheduler, self.scheduler.state, self.scheduler.lane
        before: Found | None = None
        while not self._waiting_work and not state.outbox and not scheduler.waits_for_extenders:
            state.now = now = self.now
            cycle, facts = scheduler.cycle, state.facts
            found = lane.find(cycle, now, before)
            if isinstance(found, PodRun):
                yield from self._place_copies(found)
                before, facts = None, found.facts
            elif found is None or self._pods.get(found.pod.uid) is not found.pod.pod:
                return
            else:
                before = self._place_found(found)
                revision, facts = state.revision, state.facts
                yield found.decision
                if revision != state.revision or cycle is not scheduler.cycle:
                    before = None
            if facts != state.facts or now != self.now or (self._events and self._events[0][0] <= now):
                self._process_due()
                before = None

    def _place_copies(self, run: PodRun) -> Iterator[Decision]:
        """Place the pods of a run and yield the decisions, until anything else happens."""
        state, now, bind = self.scheduler.state, self.now, self._bind_now
        while (
            run.revision == state.revision
            and now == self.now
            and not (self._events and self._events[0][0] <= now)
            and not self._waiting_work
            and not state.outbox
            and run.cycle is self.scheduler.cycle
            and self.on_attempt is None
        ):
            decision = run.place_next(now, bind)
            if decision is None:
                return
            if self.on_result is not None:
                self.on_result(decision)
            yield decision

    def _place_found(self, found: Found) -> Found | None:
        """Place a pod. Return it if copies may follow it in a run."""
        bound = self._bind_now(found.pod.pod, found.node) if self.on_attempt is None else None
        if bound is None:
            self._place_attempted(found)
            return None
        self.scheduler.state.placer.place(found, bound)
        if self.on_result is not None:
            self.on_result(found.decision)
        return found

    def _place_attempted(self, found: Found) -> None:
        """Place a pod, and call ``on_attempt`` while it is assumed."""
        state, pod = self.scheduler.state, found.pod.pod
        facts = state.facts
        state.placer.assume(found)
        self._note(found.decision)
        if facts == state.facts or self._pods.get(found.pod.uid) is pod:  # otherwise on_attempt changed the pod
            state.placer.confirm(found, self._bound(pod, found.node))

    def _bind_now(self, pod: Pod, node: str) -> Pod | None:
        """Record a pod's attempt and that it is bound, before the engine places it.

        Return its bound version; None if another version of the pod exists.
        """
        uid = pod.metadata.uid
        if self._pods.get(uid) is not pod:
            return None
        record = self.records.get(uid)
        if record is not None and record.state == State.PENDING:  # no other attempt follows
            record.attempts += 1
            record.message = ""
            record.state, record.node, record.placed_s = State.PLACED, node, self.now
            if self.on_placed is not None:
                self.on_placed(record)
        elif record is not None:
            state = self.scheduler.state
            self._note_attempt(record, "", LastAttempt(state.revision + 1, state.facts, 1))
        bound = self._pods[uid] = bound_version(pod, node)
        if self.durations:
            self._end_later(bound)
        return bound

    def _bound(self, pod: Pod, node: str) -> Pod:
        """Bind a pod whose attempt is recorded, and return its bound version."""
        bound = self._place(pod, node, self.now)
        self._end_later(bound)
        return bound

    def _end_later(self, bound: Pod) -> None:
        duration_s = self.durations.get(bound.metadata.uid)
        if duration_s is not None:
            self.at(self.now + duration_s, Gone(bound))


# -- simulated attempt -------------------------------------------------------------------------------------------------

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """A decision and its time. ``number`` counts the attempts for the pod."""

    time_s: float
    number: int
    decision: Decision


def in_turn(*callbacks: Callable[[_T], None] | None) -> Callable[[_T], None] | None:
    """Return a callback that passes its argument to each of these; None if there is none."""
    called = [one for one in callbacks if one is not None]
    if len(called) < 2:
        return called[0] if called else None

    def pass_on(heard: _T) -> None:
        for one in called:
            one(heard)

    return pass_on


# -- simulated time ----------------------------------------------------------------------------------------------------


_START: Final = datetime(1970, 1, 1)  # noqa: DTZ001 (simulated time has no zone)
#: The last second of the year 9999, the last that the format can write.
_LAST_S: Final = int((datetime(9999, 12, 31, 23, 59, 59) - _START).total_seconds())  # noqa: DTZ001


def timestamp(seconds: float) -> str:
    """Return simulated time in the API's format: seconds since the run began, counted from the start of Unix time."""
    moment = _START + timedelta(seconds=min(int(seconds), _LAST_S))
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
