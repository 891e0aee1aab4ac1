"""Placements in the scheduler's fast lane, where a pod is bound as soon as it is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moorage.api.core import Pod
from moorage.core.cycle.decision import Decision
from moorage.core.engine.facts import Gone
from moorage.core.engine.placement import Found
from moorage.core.engine.pod_run import PodRun
from moorage.core.engine.scheduler import Scheduler
from moorage.simulator.pod_books import Event, LastAttempt, PodBooks, SimulatedAttempt, State, WaitingWork, bound_version

__all__ = ["FastPlacements"]


class FastPlacements(PodBooks):
    """The base of ``SimulatedCluster`` that places pods in the fast lane."""

    scheduler: Scheduler
    on_attempt: Callable[[SimulatedAttempt], None] | None
    on_result: Callable[[Decision], None] | None
    now: float

    def __init__(self) -> None:
        super().__init__()
        #: Time, serial number and event, as a heap.
        self._events: list[tuple[float, int, Event]] = []
        self._waiting_work: list[WaitingWork] = []

    def at(self, time_s: float, event: Event) -> None:
        """Schedule a fact, or a call, for a later time."""
        raise NotImplementedError

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
            found = lane.find(cycle, now) if before is None else lane.find_after(before, cycle, now)
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
        self.scheduler.lane.place(found, bound)
        if self.on_result is not None:
            self.on_result(found.decision)
        return found

    def _place_attempted(self, found: Found) -> None:
        """Place a pod, and call ``on_attempt`` while it is assumed."""
        state, lane, pod = self.scheduler.state, self.scheduler.lane, found.pod.pod
        facts = state.facts
        lane.assume(found)
        self._note(found.decision)
        if facts == state.facts or self._pods.get(found.pod.uid) is pod:  # otherwise on_attempt changed the pod
            lane.confirm(found, self._bound(pod, found.node))

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
