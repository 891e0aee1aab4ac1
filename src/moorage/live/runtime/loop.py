"""The loop that drives the engine on a live cluster: it feeds facts, makes attempts, and starts the resulting work.

``Loop.run`` processes facts as long as the process lives, so that a standby's cache is warm. ``Loop.act`` makes it schedule:
the caller runs it while this replica leads; when it is cancelled, the loop makes no new attempt and waits for work under way.

Everything runs in one thread, and only the loop calls the engine. Each step is short, so that watches are read in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any, Final

from moorage.api.core import ENDED_PHASES, Pod
from moorage.api.pod_groups import PodGroup
from moorage.core.engine.facts import Answered, BindsDone, Done, Fact, Gone, Phase, Query, Seen, Work
from moorage.core.engine.outbox import Cancel, Decided, GroupAttempted, Output, PluginFault, Preempted, Revoked, Skipped
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import RAISED, MoorageError
from moorage.live.runtime.attempt_metrics import ASSIGNED_ADDED, UNOBSERVED, UNSCHEDULED_ADDED, AttemptObserver, Observers
from moorage.live.runtime.bind_verifier import Confirmer
from moorage.live.runtime.executor import EffectExecutor
from moorage.live.runtime.inbox import FactSource, Inbox
from moorage.live.runtime.ports import Clocks, ClusterWriter, Extenders
from moorage.live.runtime.refreshes import keep_fresh
from moorage.live.runtime.status_writer import StatusWriter
from moorage.state.pod_info import PodInfo

#: The pause after an attempt that raised; doubled after each further one.
_PAUSE_S = 0.001
#: How often the time of day, which may be set, is compared with the clock.
_OFFSET_S = 1.0
#: How often plugins are asked for the version of their outside data while pods wait and nothing else happens.
_OUTSIDE_S = 1.0


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """Limits of the loop.

    ``inbox``      facts that wait before watches block
    ``facts``, ``attempts``   the most per turn of the loop; ``run``: the most pods that the fast lane places in a turn
    ``in_flight``  pieces of work under way
    ``drain_s``    seconds to wait for work under way at the end of ``act``
    """

    inbox: int = 10_000
    facts: int = 1000
    attempts: int = 16
    run: int = 48
    in_flight: int = 500
    drain_s: float = 5.0


USUAL: Final = LoopLimits()


class _Kind(Enum):
    """Facts that the engine can take together: pods without a node, and pods on nodes."""

    WAITING = "waiting"
    PLACED = "placed"
    OTHER = "other"


class Loop:
    """One scheduler on one cluster. ``may_act`` says, right before a bind or an eviction, whether this replica still leads.

    ``follower`` holds the attempts and the work that are under way.
    """

    def __init__(
        self, scheduler: Scheduler, inbox: Inbox, cluster: ClusterWriter, clocks: Clocks, *,
        observers: Observers = UNOBSERVED, may_act: Callable[[float], bool] = lambda now: True,
        extenders: Extenders | None = None, limits: LoopLimits = USUAL,
    ) -> None:  # fmt: skip
        self.scheduler = scheduler
        self.inbox = inbox
        scheduler.state.alert = inbox.poke
        #: Set once the engine has the first list of every source.
        self.synced = asyncio.Event()
        self._clock, self._unix, self._limits = clocks.monotonic, clocks.unix, limits
        self._report, self._measures = observers.report, observers.measures
        release = scheduler.gates.emulated
        self._status_writer = StatusWriter(cluster, clocks.monotonic, clocks.wall, observers.report, release)
        self._confirmer = Confirmer(cluster, inbox, clocks.monotonic, scheduler, observers.report)
        self._carrier = EffectExecutor(
            cluster, inbox, self._status_writer, clocks, scheduler, self._confirmer, may_act=may_act, extenders=extenders,
            retries_binds=release.retries_binds,
        )  # fmt: skip
        self.follower = AttemptObserver(scheduler, observers.log, observers.measures)
        self._preempting: dict[int, PodInfo] = {}
        self._may_act = may_act
        self._acting = False
        #: When the time of day is next compared with the clock.
        self._offset_due = 0.0
        #: When the attempt that waits for extenders began; None if none waits.
        self._began: float | None = None
        #: Event label → how long the engine took for each fact of this turn; and until when, on the loop's clock.
        self._took: dict[str, list[float]] = {}
        self._took_until = 0.0
        #: Attempts begun, and facts or attempts that raised.
        self.attempts = 0
        self.faults = 0
        self._failing = 0

    @property
    def dropped_events(self) -> int:
        return self._status_writer.dropped

    def use_core_events(self) -> None:
        """Write Events of core/v1 from now on, because ``events.k8s.io/v1`` is not served."""
        self._status_writer.use_core_events()

    # -- the two tasks -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Process facts, and schedule while ``act`` runs. Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._status_writer.run())
            tasks.create_task(self._confirmer.run())
            for refresh in self.scheduler.state.outside.refreshes:
                tasks.create_task(keep_fresh(refresh, self.inbox.poke, self._report), name=f"refresh of {refresh.plugin}")
            while True:
                busy = self._turn()
                if self._failing:
                    # Repeated failures must not starve the network or fill the log.
                    await self.inbox.wait(min(1.0, _PAUSE_S * 2 ** min(self._failing, 10)))
                if busy:
                    await asyncio.sleep(0)
                elif not self._failing:
                    await self.inbox.wait(self._pause())

    async def act(self) -> None:
        """Schedule until cancelled, then wait for work under way."""
        await self.synced.wait()
        self._acting = True
        self.inbox.poke()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            # Only plugins know the pods that Permit holds. The next leader schedules them, so nothing is reported here.
            self._deliver()
            self.scheduler.end_waits(self._clock())
            self._deliver(reports=False)
            self._acting = False
            self.scheduler.break_off(self._clock(), "broken off while shutting down")
            await self._carrier.drain(self._limits.drain_s)

    async def flush(self, patience_s: float) -> None:
        """Write the queued events, for at most ``patience_s``. Call it after ``act`` has ended, while ``run`` still runs."""
        await self._status_writer.flush(patience_s)

    # -- one turn ----------------------------------------------------------------------------------------------------------

    def _turn(self) -> bool:
        """Process some facts and make some attempts. Return whether there is more to do at once."""
        if self._unix is not None and self._clock() >= self._offset_due:
            now = self._clock()
            self.scheduler.state.unix_offset_s, self._offset_due = self._unix() - now, now + _OFFSET_S
        self._take_in()
        more = (self._place_run() or self._attempt()) if self._is_free() else False
        self._deliver()
        return more or len(self.inbox) > 0

    def _take_in(self) -> None:
        self._took.clear()
        self._took_until = self._clock()
        for kind, facts in groupby(self.inbox.take(self._limits.facts), _kind_of):
            self._take_alike(kind, [*facts])
        if self._took:
            self.follower.handled(self._took)
        if not self.synced.is_set() and self.inbox.is_whole:
            self.synced.set()

    def _take_alike(self, kind: _Kind, facts: Sequence[Any]) -> None:
        """Pass facts of one kind to the engine, many at a time if that makes no difference."""
        together = len(facts) > 1 and self.follower.may_count_events
        if kind is _Kind.WAITING and together and self._take_waiting([fact.obj for fact in facts]):
            self._count(UNSCHEDULED_ADDED, len(facts))
            return
        at = 0
        while at < len(facts):
            count = 0
            if kind is _Kind.PLACED and together and self.scheduler.cluster.assumed:
                count = self.scheduler.observe_confirmed(facts, at, self._took_until)
                self._count(ASSIGNED_ADDED, count)
            if not count:
                count, one = 1, facts[at]
                if isinstance(one, FactSource):
                    one.close()
                else:
                    self._count(self._observe(one, self._took_until), 1)
            at += count

    def _take_waiting(self, pods: Sequence[Pod]) -> bool:
        """Pass pods without a node to the engine together. Return False if they must be passed one by one."""
        profiles = self.scheduler.profiles
        if any(pod.spec.scheduler_name not in profiles or pod.metadata.deletion_timestamp is not None for pod in pods):
            return False
        try:
            return self.scheduler.observe_waiting(pods, self._took_until)
        except RAISED as error:  # passed one by one, each pod that has no fault is taken
            self._survived(_words(error))
            return False

    def _count(self, label: str, count: int) -> None:
        """Note that the engine has taken so many facts since the last call, with this event label, "" for none."""
        now = self._clock()
        if label and count:
            self._took.setdefault(label, []).extend([(now - self._took_until) / count] * count)
        self._took_until = now

    def _is_free(self) -> bool:
        """Return whether an attempt may be made; never while the engine has only a part of a list."""
        free = self._acting and len(self._carrier) < self._limits.in_flight and self.inbox.is_whole
        return free and self._may_act(self._clock())

    def _pause(self) -> float | None:
        """Return the seconds until the engine's next deadline; None if there is none."""
        if not self._is_free():
            return 1.0 if self._acting else None
        due = self.scheduler.next_deadline()
        pause = None if due is None else max(0.001, due - self._clock())
        if self.scheduler.reads_outside and len(self.scheduler.queue):  # outside data changes without a fact
            return _OUTSIDE_S if pause is None else min(pause, _OUTSIDE_S)
        return pause

    def _observe(self, fact: Fact, now: float) -> str:
        """Pass a fact to the engine. Return its event label; see ``AttemptObserver.label_of``."""
        if isinstance(fact, Gone) and isinstance(fact.obj, Pod):
            self._status_writer.forget(fact.obj.uid)
        elif isinstance(fact, Gone) and isinstance(fact.obj, PodGroup):
            self._status_writer.forget_group(fact.obj.metadata.uid)
        label = self.follower.label_of(fact)
        try:
            self.scheduler.observe(fact, now)
        except RAISED as error:
            self._survived(f"{_name(fact)}: {_words(error)}")
        if isinstance(fact, BindsDone):
            self.follower.binds_done(fact.tickets, now)
        elif isinstance(fact, Done):
            self.follower.done(fact, now)
            preemptor = self._preempting.pop(fact.ticket, None)
            if preemptor is not None and fact.error is not None:
                self._report(f"preemption for {preemptor.key}: {fact.error}")
                self.scheduler.activate([preemptor])
        return label

    def _place_run(self) -> bool:
        """Let the fast lane place pods, and bind them together. Return whether it placed any."""
        if self._began is not None:
            return False
        self._deliver()
        began = self._clock()
        if self._measures is not None:
            self._measures.began()
        most = min(self._limits.run, self._limits.in_flight - len(self._carrier))
        try:
            run = self.scheduler.place_run(began, most)
        except RAISED as error:
            self._failing += 1
            self._survived(f"an attempt: {_words(error)}")
            return True
        if not run:
            return False
        self._failing = 0
        self.attempts += len(run)
        self.follower.placed(run, began, self._clock())
        self._carrier.bind_run(run)
        return True

    def _attempt(self) -> bool:
        """Make a few attempts. Return whether the last one found a pod to try."""
        for _ in range(self._limits.attempts):
            now = self._clock()
            began, self._began = now if self._began is None else self._began, None
            if self._measures is not None and began == now:
                self._measures.began()
            try:
                attempted = self.scheduler.step(now)
            except RAISED as error:
                self._failing += 1
                self._survived(f"an attempt: {_words(error)}")
                return True
            self._failing = 0
            self._deliver(began)
            if not attempted:
                self._began = began if self.scheduler.waits_for_extenders else None
                return False
        return True

    # -- what the engine produced ------------------------------------------------------------------------------------------

    def _deliver(self, began: float | None = None, *, reports: bool = True) -> None:
        """Report the engine's decisions and start its work.

        ``began`` is when the attempt began; None for now. ``reports`` False keeps revoked decisions from logs, metrics and
        events.
        """
        now = self._clock()
        for output in self.scheduler.take():
            match output:
                case Work():
                    self._start(output, now)
                case Query():
                    self._carrier.put(output)
                case Cancel(ticket):
                    self._carrier.break_off(ticket)
                case Revoked() if not reports:
                    pass
                case _:
                    self._report_output(output, now if began is None else began, now)

    def _report_output(self, output: Output, began: float, now: float) -> None:
        match output:
            case Decided(decision):
                self.attempts += 1
                self.follower.attempted(decision, began, self._clock())
                if decision.node is None:
                    self._status_writer.failed(decision)
            case Revoked(decision):
                self.follower.revoked(decision, now)
                self._status_writer.failed(decision)
            case GroupAttempted(report):
                self.follower.grouped(report, began, self._clock())
            case Skipped(pod):
                self.follower.skipped(pod)
                self._status_writer.skipped(pod.pod)
            case Preempted(eviction):
                self._status_writer.preempted(eviction, " (in kube-scheduler memory).")
            case PluginFault(error):
                self._survived(str(error))

    def _start(self, work: Work, now: float) -> None:
        if self._acting:
            if work.phase is Phase.PREEMPT:
                self._preempting[work.ticket] = work.pod
            if work.phase.is_answered:
                self.follower.started(work, now)
            self._carrier.start(work)
        elif work.phase.is_answered:
            self.inbox.put_now(Done(work.ticket, "not begun: this scheduler is shutting down"))

    def _survived(self, line: str) -> None:
        self.faults += 1
        self._report(line)


def _kind_of(fact: Fact | FactSource) -> _Kind:
    if type(fact) is not Seen or type(fact.obj) is not Pod or fact.obj.status.phase in ENDED_PHASES:
        return _Kind.OTHER
    return _Kind.PLACED if fact.obj.spec.node_name else _Kind.WAITING


def _name(fact: Fact) -> str:
    if isinstance(fact, BindsDone):
        return f"the outcome of work {', '.join(map(str, fact.tickets))}"
    if isinstance(fact, Done | Answered):
        return f"the outcome of work {fact.ticket}"
    metadata = getattr(fact.obj, "metadata", None)
    return f"{type(fact.obj).__name__} {getattr(metadata, 'namespace', '')}/{getattr(metadata, 'name', '')}"


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, MoorageError) else f"{type(error).__name__}: {error}"
