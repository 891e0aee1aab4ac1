"""The scheduler: facts in, outputs out. No I/O, no clock, no threads.

``observe`` takes a fact, ``step`` makes one attempt, ``take`` returns what the engine decided and what it needs done. The
asyncio loop and the simulator drive the same object; only they know the time.

A pod's way: ``EventHandlers`` queue it, ``step`` pops it and runs a ``PodAttempt``, ``BindingCycle`` binds it or
``FailureHandler`` requeues it, and ``PreemptionExecutor`` evicts its victims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, NoReturn

from moorage.api.core import Object, Pod
from moorage.api.feature_gates import FeatureGates
from moorage.api.pod_groups import PodGroup
from moorage.core.binding.binding import Binding
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.search import EVERYWHERE, SearchScope
from moorage.core.engine.attempt import PodAttempt, SchedulingAttempt, Stages
from moorage.core.engine.binding_cycle import BindingCycle
from moorage.core.engine.engine_state import STANDARD_SETTINGS, EngineSettings, EngineState
from moorage.core.engine.event_handlers import EventHandlers
from moorage.core.engine.extender_session import ExtenderSession
from moorage.core.engine.facts import NO_LONGER_WANTED, BindsDone, Done, Fact, Gone, Seen, Work, WriteLost, Wrote
from moorage.core.engine.failure_handler import FailureHandler, PreemptionExecutor
from moorage.core.engine.fast_lane import FastLane
from moorage.core.engine.known_pods import KnownPods
from moorage.core.engine.outbox import Output, Skipped
from moorage.core.engine.placer import Found
from moorage.core.engine.pod_groups import GroupScheduler
from moorage.core.engine.pod_run import PodRun
from moorage.core.queue import QueuedPod, SchedulingQueue
from moorage.core.queue.pre_enqueue import queue_profile, sort_key
from moorage.errors import RAISED, AttemptError, CopyError, MoorageError
from moorage.framework.handle import Refresh
from moorage.framework.profile import Profile, writes_pods
from moorage.framework.registry import Handle, NamedKinds, WaitingPod, named_kinds
from moorage.state.cluster import ClusterState, Snapshot
from moorage.state.group_trees import root_of, tree_of
from moorage.state.pod_groups import group_key
from moorage.state.pod_info import PodInfo

#: As a tuple: making a union costs more than the test.
_NEWS: Final = (Seen, Gone)


class Scheduler:
    """Queue, cluster and cycle for a set of profiles.

    ``build_profiles`` gets the scheduler as the plugins' handle and returns the profiles, which share one QueueSort plugin.
    Times are seconds on any clock that never goes back; the same clock for every call.
    """

    def __init__(
        self,
        cycle: Cycle,
        gates: FeatureGates,
        build_profiles: Callable[[Handle], Mapping[str, Profile]],
        settings: EngineSettings = STANDARD_SETTINGS,
    ) -> None:
        self.cycle = cycle
        self.max_disks = settings.max_disks
        self.state = state = EngineState(gates, settings.parts.cluster)
        if cycle.verification is not None:
            cycle.verification.on_difference = state.outbox.fault
        self.preemption = PreemptionExecutor(state)
        state.profiles = profiles = build_profiles(self)
        self._reads_outside = any(profile.outside for profile in profiles.values())
        state.cluster.custom_kinds = frozenset(map(str, self.named_kinds.kinds))
        state.queue = settings.parts.queue(
            sort_key(next(iter(profiles.values())).at("queueSort")[0], state.outbox.fault),
            {name: queue_profile(profile, cycle.extenders, gates) for name, profile in profiles.items()},
            on_fault=state.outbox.fault,
            times=settings.times,
            gates=gates,
        )
        if gates.serves("CompositePodGroup"):
            state.queue.entry_of = self._entry_of
        state.queue.knows_group = self._knows_group
        self.failure_handler = FailureHandler(state, self.preemption)
        self.binding_cycle = BindingCycle(state, cycle, self.failure_handler)
        self.event_handlers = EventHandlers(state, self.binding_cycle)
        self.pod_groups = GroupScheduler(state, cycle, self.binding_cycle, self.failure_handler, self.preemption)
        self._session = ExtenderSession(state.outbox)
        self.lane = FastLane(state)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise CopyError(
            "a scheduler cannot be copied or pickled; make another one (for a simulation: prepare(options)) and let it"
            " observe the same facts: with the same seed it decides the same"
        )

    def _entry_of(self, pod: PodInfo) -> str | None:
        tree = tree_of(pod, self.snapshot)
        return group_key(pod) if tree is None else tree.entry

    def _knows_group(self, pod: PodInfo) -> bool:
        group = self.snapshot.objects(PodGroup).get(group_key(pod) or "")
        return group is not None and (not self.gates.serves("CompositePodGroup") or root_of(group, self.snapshot) is not None)

    # -- what plugins may reach (framework.registry.Handle) and drivers may read -----------------------------------------

    @property
    def gates(self) -> FeatureGates:
        return self.state.gates

    @property
    def snapshot(self) -> Snapshot:
        return self.state.cluster.snapshot

    @property
    def cluster(self) -> ClusterState:
        return self.state.cluster

    @property
    def queue(self) -> SchedulingQueue:
        return self.state.queue

    @property
    def profiles(self) -> Mapping[str, Profile]:
        return self.state.profiles

    @property
    def now(self) -> float:
        """The driver's clock in seconds, as of the latest fact or step."""
        return self.state.now

    @property
    def unix_s(self) -> float:
        """The time of day at the latest fact or step, in seconds since 1970."""
        return self.state.now + self.state.unix_offset_s

    @cached_property
    def named_kinds(self) -> NamedKinds:
        """The kinds that plugins name in ``wakes_on`` beyond Kubernetes' own."""
        return named_kinds(self.state.profiles.values())

    @property
    def writes_pods(self) -> bool:
        """True if a plugin changes pods, which needs the right to update them."""
        return any(writes_pods(plugin) for profile in self.state.profiles.values() for plugin in profile.plugins.values())

    def waiting(self) -> Iterator[WaitingPod]:
        """Yield the pods that Permit holds, in the order they arrived there."""
        yield from self.state.bindings.waiting()

    @property
    def has_waiting(self) -> bool:
        """True if Permit holds a pod."""
        return self.state.bindings.has_waiting

    def evicting_for(self, uid: str) -> bool:
        """Return True while evictions for this pod or pod group are under way."""
        return self.preemption.evicting_for(uid)

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move pending pods to the active queue."""
        self.state.queue.activate(pods, self.state.now)
        self.state.alert()

    def activate_group(self, pod: PodInfo) -> None:
        """Move the pending pods of the pod's group to the active queue."""
        groups = self.state.cluster.groups
        group = None if groups is None else groups.of(pod)
        if group is not None and (asleep := self.state.queue.asleep_in(group_key(pod) or "")):
            self.activate(group.unscheduled_among(asleep))

    @property
    def pods(self) -> KnownPods:
        return KnownPods(self.state)

    def retry(self, pods: Iterable[PodInfo], after_s: float) -> None:
        """Move pending pods to the active queue after so many seconds."""
        self.state.retries.add(pods, self.state.now + max(0.0, after_s))
        self.state.alert()

    def refresh(
        self, plugin: str, every_s: float, run: Callable[[], Any], stand_in: Callable[[], object] | None = None
    ) -> None:
        """Have the driver run a refresh of outside data."""
        self.state.outside.refreshes.append(Refresh(plugin, max(0.001, every_s), run, stand_in))

    @property
    def reads_outside(self) -> bool:
        """True if a plugin reads data from outside the cluster, so that answers may change without a fact."""
        return self._reads_outside

    def _note_outside(self) -> None:
        """Retry the pods that plugins rejected whose outside data has changed, and those whose time has come."""
        state = self.state
        if self._reads_outside and (changed := state.outside.changed(state.profiles.values())):
            state.revision += 1
            state.queue.retry_rejected(changed, state.now)
        due = state.retries.next()
        if due is not None and due <= state.now:
            state.revision += 1
            state.queue.activate(state.retries.take(state.now), state.now)

    def binding_of(self, uid: str) -> Binding | None:
        """Return the binding of a pod between its decision and the end of its binding cycle."""
        return self.state.bindings.by_uid.get(uid)

    def is_unconfirmed(self, obj: Object) -> bool:
        """Return True while no watch has reported this answer to one of our writes."""
        return self.event_handlers.answers.is_open(obj)

    # -- facts in --------------------------------------------------------------------------------------------------------

    def observe(self, fact: Fact, now: float) -> None:
        """Take one fact: an object event, the outcome of work or of a write, or an extender's answer.

        While an attempt waits for extenders, object events are held back until it ends.

        Raises  QuantityError for a placed pod whose requests cannot be parsed; the event is then ignored
        """
        self.state.now = now
        if isinstance(fact, _NEWS):
            if self._session.attempt is None:
                self.event_handlers.handle(fact)
            else:
                self._session.take(fact)
        elif isinstance(fact, Done):
            self._done(fact)
        elif isinstance(fact, BindsDone):
            self.binding_cycle.accepted(fact.tickets)
        elif isinstance(fact, Wrote):
            self.event_handlers.wrote(fact)
        elif isinstance(fact, WriteLost):
            self.event_handlers.write_lost(fact)
        else:
            self._session.take(fact)

    def observe_placed(self, pods: Sequence[Pod], now: float) -> bool:
        """Take many pods on nodes that have not ended at once, if all are new and the queue is empty.

        Return False, with nothing changed, if that is not so; then report the pods one by one.
        """
        self.state.now = now
        return self._session.attempt is None and self.event_handlers.add_placed(pods)

    def observe_waiting(self, pods: Sequence[Pod], now: float) -> bool:
        """Take many pods that need a node from this scheduler, and are not being deleted, at once, if all are new.

        Return False, with nothing changed, if that is not so, or if a pod may concern others; then report them one by one.
        """
        self.state.now = now
        return self._session.attempt is None and self.event_handlers.add_waiting(pods)

    def observe_confirmed(self, facts: Sequence[Seen], start: int, now: float) -> int:
        """Take facts about pods, from index ``start`` on, that say only that an assumed pod is bound.

        Return how many were taken: those up to the first that says more, which needs ``observe``.
        """
        self.state.now = now
        return 0 if self._session.attempt is not None else self.event_handlers.confirm(facts, start)

    def _done(self, fact: Done) -> None:
        if not self.preemption.evicted(fact.ticket, fact.error):
            self.binding_cycle.done(fact)

    # -- one attempt -----------------------------------------------------------------------------------------------------

    def step(self, now: float) -> bool:
        """Continue or fail the waits that ended, then make one attempt.

        Returns True if an attempt ended; False if no pod is ready or the attempt waits for extenders.
        """
        self.state.now = now
        self.binding_cycle.settle_waits()
        self._note_outside()
        attempt = self._session.attempt
        if attempt is None:
            found = self.lane.find(self.cycle, now)
            if isinstance(found, Found):
                self._begin(found.queued, [], partial(self.lane.order_bind, found))
                return True
            while (queued := self.state.queue.pop(now, self.state.revision)) is not None:
                attempt = self._attempt_for(queued, EVERYWHERE)
                if attempt is not None:
                    return self._make(attempt)
            return False
        return self._resume(attempt)

    def place_run(self, now: float, most: int) -> list[Binding]:
        """Place up to ``most`` pods that the fast lane takes, as as many ``step`` calls would, and return their bindings.

        The driver reports the decision of each binding and answers the bind of its ``ticket``. The outbox holds neither. The
        list is empty if the next pod needs ``step``.
        """
        self.state.now = now
        run: list[Binding] = []
        if self._session.attempt is not None or self.state.outbox:
            return run
        self._note_outside()
        lane, before = self.lane, None
        while len(run) < most and (found := lane.find(self.cycle, now, before)) is not None:
            if isinstance(found, PodRun):
                before = None
                while len(run) < most and (copy := found.find_next(now)) is not None:
                    if not self._begin(copy[0], run, partial(found.begin_bind, *copy)):
                        return run
            elif self._begin(found.queued, run, partial(lane.begin_bind, found)):
                before = found
            else:
                break
        return run

    def _begin(self, queued: QueuedPod, run: list[Binding], begin: Callable[[], Binding]) -> bool:
        """Begin the bind of a pod and add it to the run. Return False if the pod's attempt was aborted."""
        try:
            run.append(begin())
        except RAISED as error:
            self._abort(self._attempt_of(queued, EVERYWHERE), error)
            return False
        return True

    def attempt(self, pod: PodInfo, now: float, scope: SearchScope = EVERYWHERE) -> bool:
        """Make one attempt for this pod before all others, or for its group; ``scope`` applies to a pod without a group.

        Returns True if the attempt ended; False if it waits for extenders, or if there was none, because the pod is not in the
        queue, a plugin gates it, or another attempt waits for extenders.
        """
        self.state.now = now
        queued = None if self._session.attempt is not None else self.state.queue.pop_this(pod, now)
        attempt = None if queued is None else self._attempt_for(queued, scope)
        return attempt is not None and self._make(attempt)

    def _make(self, attempt: SchedulingAttempt) -> bool:
        if self.cycle.extenders:
            self._session.begin(attempt)
            return self._resume(attempt)
        try:
            attempt.run_alone()
        except RAISED as error:
            self._abort(attempt, error)
        return True

    def _attempt_for(self, queued: QueuedPod, scope: SearchScope) -> SchedulingAttempt | None:
        """Return the attempt for a pod that left the queue; None if it needs none."""
        state = self.state
        if not state.is_in_group(queued.pod):
            if self.skip(queued):
                return None
            return self._attempt_of(queued, scope)
        pods = self.pod_groups.gather(queued, self.skip)
        return self.pod_groups.attempt_for(pods) if pods else None

    def _attempt_of(self, queued: QueuedPod, scope: SearchScope) -> PodAttempt:
        return PodAttempt(queued, self.state, Stages(self.cycle, self.binding_cycle, self.failure_handler), scope)

    def skip(self, queued: QueuedPod) -> bool:
        """End the attempt for a pod that is being deleted or already assumed. Returns False for any other."""
        state = self.state
        pod = queued.pod
        if not pod.terminating and state.cluster.node_of(pod.uid) is None:
            return False
        if pod.terminating:
            state.outbox.put(Skipped(pod))
            state.queue.pass_over(pod.uid)
        else:
            state.queue.done(pod.uid)
        return True

    def _resume(self, attempt: SchedulingAttempt) -> bool:
        try:
            if not self._session.resume(self.state.now):
                return False
        except RAISED as error:
            self._abort(attempt, error)
        self._apply_held_back()
        return True

    def _abort(self, attempt: SchedulingAttempt, error: BaseException) -> None:
        """End an attempt after an unexpected exception: its pods hold nothing and are retried after their backoff."""
        fault = AttemptError("", f"scheduling {attempt.key} failed: {type(error).__name__}: {error}")
        self.state.outbox.fault(fault)
        attempt.abort(fault)

    def _apply_held_back(self, more: Iterable[Seen | Gone] = ()) -> None:
        """Apply the events that were held back while an attempt waited."""
        for fact in (*more, *self._session.end()):
            try:
                self.observe(fact, self.state.now)
            except MoorageError as error:
                self.state.outbox.fault(error)

    # -- ending ----------------------------------------------------------------------------------------------------------

    def break_off(self, now: float, why: str) -> None:
        """Cancel the attempt that waits for extenders, if there is one, because no answer will arrive."""
        self.state.now = now
        attempt = self._session.attempt
        if attempt is None:
            return
        held_back = self._session.end()
        attempt.cancel(why)
        self._apply_held_back(held_back)

    def end_waits(self, now: float) -> None:
        """Reject every pod that Permit holds, because no plugin can allow it any more."""
        self.state.now = now
        self.binding_cycle.reject_waits()

    # -- outputs ---------------------------------------------------------------------------------------------------------

    def take(self) -> list[Output]:
        """Remove and return what the engine produced, oldest first.

        Work that is no longer wanted is answered here, and the outputs that result are in the next ``take``.
        """
        wanted: list[Output] = []
        for output in self.state.outbox.drain():
            if isinstance(output, Work) and not self.is_wanted(output.ticket):
                self._done(Done(output.ticket, NO_LONGER_WANTED, 0))
            else:
                wanted.append(output)
        return wanted

    def is_wanted(self, ticket: int) -> bool:
        """Return True if work that was taken is still of use; it is not once its pod is deleted, preempted or bound.

        Ask before each effect, and while one waits. Answer work that is given up with ``Done`` and NO_LONGER_WANTED. A
        ``Cancel`` output names work that may be cancelled at once.
        """
        return self.state.bindings.is_wanted(ticket)

    @property
    def waits_for_extenders(self) -> bool:
        """True while an attempt waits for extenders."""
        return self._session.attempt is not None

    @property
    def is_resting(self) -> bool:
        """True if ``step`` would do nothing, and ``take`` would return nothing, until a fact arrives."""
        state = self.state
        return not (len(state.queue) or state.outbox or state.bindings.held or self._session.attempt)

    def next_deadline(self) -> float | None:
        """Return when ``step`` may have work although no fact arrives, in engine seconds; None if never."""
        state, session = self.state, self._session
        due = state.queue.next_deadline(state.now) if session.attempt is None else session.due(state.now)
        held = state.bindings.next_deadline(state.now) if state.bindings.held else None
        times = [one for one in (due, held, state.retries.next()) if one is not None]
        return min(times) if times else None
