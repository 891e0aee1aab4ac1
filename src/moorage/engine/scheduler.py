"""The scheduler as one machine: facts in, decisions out. No I/O, no clock, no threads.

``observe`` takes in what happened, ``step`` makes one attempt for the pod whose turn it is, ``take_work`` hands out what has to
be done to the world. The asyncio loop and the simulator drive this same object; only they know what time it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn

from msgspec.structs import replace

from moorage.api.durations import format_duration
from moorage.cycle.cycle import Cycle
from moorage.cycle.decision import Decision
from moorage.cycle.extender_wire import EXTENDER
from moorage.cycle.extenders import Asking
from moorage.engine.extender_session import Conversation
from moorage.engine.binding_cycle import (
    Binding,
    bind_effects,
    permit,
    post_bind,
    pre_bind_effects,
    reserve,
    unreserve,
    what_went_wrong,
)
from moorage.engine.facts import NO_LONGER_WANTED, Answered, Done, Fact, Gone, Phase, Query, Seen, Work, WriteLost, Wrote
from moorage.engine.group_outcome import GroupOutcome, QueuedGroup
from moorage.engine.grouping import Grouping
from moorage.engine.queueing import queue_profile, sort_key
from moorage.errors import AttemptError, CopyError, MoorageError
from moorage.framework.effects import Effect
from moorage.framework.features import FeatureGates
from moorage.framework.profile import Profile
from moorage.framework.registry import WaitingPod
from moorage.framework.verdicts import Code, Status
from moorage.queue import (
    ASSIGNED_POD_DELETE,
    Place,
    QueuedPod,
    SchedulingQueue,
)
from moorage.state.pod_info import PodInfo

__all__ = ["Scheduler"]


class Scheduler(Grouping):
    """Queue, cluster and cycle for a set of profiles.

    ``profiles`` may be given after construction, because plugins want the scheduler as their handle. Times are seconds on
    any clock that never goes back; the same one for every call. ``max_disks`` is for rules of earlier releases: the number that
    kube-scheduler took from ``KUBE_MAX_PD_VOLS``.
    """

    def __init__(self, cycle: Cycle, gates: FeatureGates, max_disks: int | None = None) -> None:
        super().__init__(gates)
        self.cycle: Cycle = cycle
        self.max_disks = max_disks
        #: What has to be added to the scheduler's clock to get seconds since 1970, as whoever drives the engine knows it.
        self.unix_offset_s = 0.0
        #: Plugins that raised where it ends no attempt (PreEnqueue, hints, Unreserve, PostBind), oldest first; whoever
        #: drives the engine may empty it.
        self.faults: list[MoorageError] = []
        #: Pods whose turn came while they were being deleted; whoever drives the engine may empty it.
        self.skipped: list[PodInfo] = []
        self._work: list[Work] = []
        self._revoked: list[Decision] = []
        #: Called when a plugin wants something, which may be between two steps: the next step should not be waited for.
        self.alert: Callable[[], None] = lambda: None
        self._tickets = 0
        self._asking = Conversation()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise CopyError(
            "a scheduler cannot be copied or pickled; make another one (for a simulation: prepare(options)) and let it"
            " observe the same facts: with the same seed it decides the same"
        )

    # -- what plugins may reach (framework.registry.Handle) --------------------------------------------------------------

    @property
    def unix_s(self) -> float:
        """The time of day at the latest fact or step, in seconds since 1970."""
        return self.now + self.unix_offset_s

    def waiting(self) -> Iterator[WaitingPod]:
        """Yield the pods that Permit holds, in the order they came."""
        yield from [binding for binding in self._held.values() if binding.waits and binding.verdict is None]

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move pending pods to the active queue."""
        self.queue.activate(pods, self.now)
        self.alert()

    def binding_of(self, uid: str) -> Binding | None:
        """Return what is known of a pod on its way from its decision to its binding."""
        return self._bindings.get(uid)

    # -- setting up ---------------------------------------------------------------------------------------------------

    def use(
        self,
        profiles: Mapping[str, Profile],
        *,
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        max_unschedulable_s: float = 300.0,
    ) -> None:
        """Give the scheduler its profiles, which share one QueueSort plugin. Call once, before any fact."""
        self.profiles = profiles
        self.cluster.custom_kinds = frozenset(map(str, self.named_kinds.kinds))
        self.queue = SchedulingQueue(
            sort_key(next(iter(profiles.values())).at("queueSort")[0], self.faults.append),
            {name: queue_profile(profile, self.cycle.extenders) for name, profile in profiles.items()},
            on_fault=self.faults.append,
            initial_backoff_s=initial_backoff_s,
            max_backoff_s=max_backoff_s,
            max_unschedulable_s=max_unschedulable_s,
            gates=self.gates,
        )

    # -- facts in -----------------------------------------------------------------------------------------------------

    def observe(self, fact: Fact, now: float) -> None:
        """Take in one fact. A pod that has another's name, but its own UID, tells that the other is gone.

        While an attempt waits for extenders, what happens to objects is kept back until it has ended: it decides on the cluster
        as it was when it began.

        Raises  QuantityError for a placed pod whose requests cannot be read; the fact is then as good as never told
        """
        self.now = now
        if isinstance(fact, Done):
            self._done(fact)
        elif isinstance(fact, Wrote):
            self._wrote(fact)
        elif isinstance(fact, WriteLost):
            self._write_lost(fact)
        elif self._asking.entity is not None or isinstance(fact, Answered):
            self._asking.take(fact)
        else:
            self._changed(fact)

    def _end_held(self, binding: Binding) -> None:
        """End an attempt that nothing is under way for, because the pod needs no node any more."""
        self._drop_binding(binding)
        self.queue.done(binding.pod.uid)
        effects = unreserve(binding, self.faults.append)
        if effects:
            self._order(Phase.UNRESERVE, binding.pod, binding.node, effects)

    def _drop_binding(self, binding: Binding) -> None:
        self._bindings.pop(binding.pod.uid, None)
        self._held.pop(binding.pod.uid, None)

    # -- one attempt --------------------------------------------------------------------------------------------------

    def step(self, now: float) -> Decision | None:
        """Make one attempt for the pod whose turn it is. Returns None if no pod is ready, or the attempt waits for extenders.

        Also lets waits that ended go on or give up, and wakes what is due.
        """
        self.now = now
        if self._decided:
            return self._decided.popleft()
        self._settle_waits()
        if self._asking.entity is not None:
            return self._go_on(self._asking.entity)
        entity = self._next()
        if entity is not None:
            return self._attempt(entity)
        return self._decided.popleft() if self._decided else None

    def _next(self) -> QueuedPod | QueuedGroup | None:
        """Take out of the queue whose turn it is: a pod, or a group of pods."""
        while (queued := self.queue.pop(self.now, self.revision)) is not None:
            if not self._is_of_a_group(queued.pod):
                if not self._skips(queued):
                    return queued
                continue
            pods = self._gathered(queued)
            group = self._group_of(pods) if pods else None
            if isinstance(group, QueuedGroup):
                return group
            if group is not None:
                self._fail_all(pods, group)
                break
        return None

    def _attempt(self, entity: QueuedPod | QueuedGroup) -> Decision | None:
        try:
            if isinstance(entity, QueuedPod) and not self.cycle.extenders:
                profile = self.profiles[entity.pod.spec.scheduler_name]
                return self._settle(entity, self.cycle.decide(profile, entity.pod, self.cluster.snapshot, self.queue.nominated))
            self._asking.begin(entity, self._asked_attempt(entity))
        except Exception as error:
            return self._broken_off(entity, error)
        return self._go_on(entity)

    def _asked_attempt(self, entity: QueuedPod | QueuedGroup) -> Asking[Decision | GroupOutcome]:
        """Begin an attempt that may have to ask extenders."""
        if isinstance(entity, QueuedGroup):
            return (yield from self._group_attempt(entity))
        profile = self.profiles[entity.pod.spec.scheduler_name]
        return (yield from self.cycle.deciding(profile, entity.pod, self.cluster.snapshot, self.queue.nominated))

    def _settle(self, entity: QueuedPod | QueuedGroup, came_to: Decision | GroupOutcome) -> Decision:
        if isinstance(entity, QueuedGroup) and isinstance(came_to, GroupOutcome):
            self._settle_group(entity, came_to)
            return self._decided.popleft()
        assert isinstance(entity, QueuedPod)
        assert isinstance(came_to, Decision)
        if came_to.node is None:
            self._failed(entity, came_to)
            return came_to
        return self._commit(entity, self.profiles[entity.pod.spec.scheduler_name], came_to)

    def _go_on(self, entity: QueuedPod | QueuedGroup) -> Decision | None:
        """Let the attempt that asks extenders go on; None if it has to wait."""
        try:
            came_to = self._asking.go_on(self.now)
            if came_to is None:
                return None
            self.faults += came_to.done_without
            decision: Decision | None = self._settle(entity, came_to)
        except Exception as error:
            decision = self._broken_off(entity, error)
        self._catch_up()
        return decision

    def _catch_up(self, late: Iterable[Seen | Gone] = ()) -> None:
        """Take in what was kept back while an attempt waited."""
        for fact in (*late, *self._asking.end()):
            try:
                self.observe(fact, self.now)
            except MoorageError as error:
                self.faults.append(error)

    def break_off(self, now: float, why: str) -> None:
        """End the attempt that waits for extenders, if there is one: nobody is going to bring their answers."""
        self.now = now
        entity = self._asking.entity
        if entity is None:
            return
        late = self._asking.end()
        if isinstance(entity, QueuedGroup):
            self._fail_all(entity.pods, why)
        else:
            self._failed(entity, Decision(entity.pod, error=AttemptError("", why)))
        self._catch_up(late)

    @property
    def asks(self) -> bool:
        """True while an attempt waits for extenders."""
        return self._asking.entity is not None

    def take_queries(self) -> list[Query]:
        """Hand over what extenders are to be asked now, all of it at the same time."""
        queries, self._asking.queries = self._asking.queries, []
        return queries

    def _broken_off(self, entity: QueuedPod | QueuedGroup, error: Exception) -> Decision | None:
        """End an attempt that nobody foresaw the end of: the pod holds nothing, and is tried again after its backoff."""
        key = entity.info.key if isinstance(entity, QueuedGroup) else entity.pod.key
        fault = AttemptError("", f"scheduling {key} failed: {type(error).__name__}: {error}")
        self.faults.append(fault)
        if isinstance(entity, QueuedPod):
            return self._let_go(entity, fault)
        told = {decision.pod.uid for decision in self._decided}
        self._decided.extend(self._let_go(queued, fault) for queued in entity.pods if queued.pod.uid not in told)
        return self._decided.popleft() if self._decided else None

    def _let_go(self, queued: QueuedPod, fault: AttemptError) -> Decision:
        uid = queued.pod.uid
        binding = self._bindings.get(uid)
        if binding is not None:
            self._drop_binding(binding)
        self.cluster.forget(uid)
        self.revision += 1
        decision = Decision(queued.pod, error=fault)
        if queued.place is Place.IN_FLIGHT or self.queue.get(uid) is None:
            self._failed(queued, decision)
        return decision

    def next_deadline(self) -> float | None:
        """Return when ``step`` could have something to do although no fact came; None if never."""
        deadlines = [
            binding.deadline if binding.waits and binding.verdict is None else self.now for binding in self._held.values()
        ]
        if self._decided:
            return self.now
        due = self.queue.next_deadline(self.now) if self._asking.entity is None else self._asking.due(self.now)
        return min([*deadlines, *([] if due is None else [due])], default=None)

    def take_work(self) -> list[Work]:
        """Hand over what has to be done, oldest first."""
        if not self._work:
            return []
        ordered, self._work = self._work, []
        work = []
        for order in ordered:
            if self.is_wanted(order.ticket):
                work.append(order)
            else:
                self._done(Done(order.ticket, NO_LONGER_WANTED, 0))
        return work

    def is_wanted(self, ticket: int) -> bool:
        """Say whether work that was handed over is still of use; it is not once its pod is deleted, preempted or placed.

        Ask before each effect, and while one waits; work that is given up is answered with ``Done`` and NO_LONGER_WANTED. What
        need not be waited for to its end is told in ``broken_off``.
        """
        phase, uid = self._by_ticket.get(ticket, (None, ""))
        if phase is None or phase is Phase.UNRESERVE:
            return True
        binding = self._bindings.get(uid)
        return binding is not None and binding.ticket == ticket and binding.wanted

    def take_revoked(self) -> list[Decision]:
        """Hand over decisions that came to nothing after ``step`` returned them: a wait in vain, a failed binding."""
        if not self._revoked:
            return []
        revoked, self._revoked = self._revoked, []
        return revoked

    def _commit(self, queued: QueuedPod, profile: Profile, decision: Decision, *, expects: bool = True) -> Decision:
        """Assume, Reserve, Permit; then bind, wait, or give up. Returns the decision as it turned out.

        ``expects``: others are told where the pod is going to be if Permit holds it.
        """
        node = decision.node
        assert node is not None
        binding = Binding.begin(queued, profile, decision, node, self.alert)
        self.cluster.assume(queued.pod, node)
        self.queue.end_nomination(queued.pod.uid)
        self.revision += 1
        status = reserve(binding) or permit(binding, self.now)
        if status is not None:
            return self._back_out(binding, status)
        self._bindings[queued.pod.uid] = self._held[queued.pod.uid] = binding
        if not binding.waits:
            self._pre_bind(binding)
        elif expects:
            self._expect(binding)
        return decision

    def _settle_waits(self) -> None:
        for binding in list(self._held.values()):
            if binding.verdict is not None:
                self._give_up(binding, binding.verdict)
            elif not binding.waits:
                self._pre_bind(binding)
            elif binding.deadline <= self.now:
                late = min(binding.waits, key=lambda plugin: (binding.waits[plugin], plugin))
                waited = format_duration(round(binding.patience[late] * 1e9))
                text = f"rejected due to timeout after waiting {waited} at plugin {late}"
                self._give_up(binding, Status(Code.UNSCHEDULABLE, late, (text,)))

    def end_waits(self, now: float) -> None:
        """Let every pod that Permit holds give up its node: nobody is left who could allow it."""
        self.now = now
        for binding in self._held.values():
            if binding.waits:
                binding.reject(binding.pending[0], f"still waiting at plugin {binding.pending[0]} when the run ended")
        self._settle_waits()

    # -- binding ------------------------------------------------------------------------------------------------------

    def _pre_bind(self, binding: Binding) -> None:
        self.queue.done(binding.pod.uid)
        self._held.pop(binding.pod.uid, None)
        effects = pre_bind_effects(binding)
        if isinstance(effects, Status):
            self._give_up(binding, effects)
        elif effects:
            self._expect(binding)
            self._ask_for(Phase.PRE_BIND, binding, effects)
        else:
            self._bind(binding)

    def _bind(self, binding: Binding) -> None:
        effects = bind_effects(binding, self.cycle.extenders)
        if isinstance(effects, Status):
            self._give_up(binding, effects)
        else:
            self._ask_for(Phase.BIND, binding, effects)

    def _expect(self, binding: Binding) -> None:
        """Let others (a cluster autoscaler, say) know where a pod is going to be whose binding takes its time.

        Source  schedule_one.go, bindingCycle
        """
        if self.gates["NominatedNodeNameForExpectation"] and not binding.expected:
            binding.expected = True
            if binding.pod.status.nominated_node_name != binding.node:
                self._order(Phase.EXPECT, binding.pod, binding.node)

    def _ask_for(self, phase: Phase, binding: Binding, effects: tuple[Effect, ...]) -> None:
        binding.ticket = self._order(phase, binding.pod, binding.node, effects)
        self._by_ticket[binding.ticket] = (phase, binding.pod.uid)

    def _order(self, phase: Phase, pod: PodInfo, node: str, effects: tuple[Effect, ...] = ()) -> int:
        self._tickets += 1
        self._work.append(Work(self._tickets, phase, pod, node, effects))
        return self._tickets

    def _done(self, fact: Done) -> None:
        if fact.ticket in self._evicting:
            self._evicted(self._evicting.pop(fact.ticket), fact.error)
            return
        phase, uid = self._by_ticket.pop(fact.ticket, (None, ""))
        binding = self._bindings.get(uid)
        if phase is None or binding is None or binding.ticket != fact.ticket:
            return
        if phase is Phase.BIND and (fact.error is None or binding.bound_to == binding.node):
            self._drop_binding(binding)
            post_bind(binding, self.faults.append)
            if binding.returned and binding.latest is not None and self.cluster.node_of(uid) is None:
                self.queue.add(binding.latest, self.now)
        elif phase is Phase.UNRESERVE:
            self._undone(binding, fact.error)
        elif phase is Phase.PRE_BIND and fact.error is None and binding.wanted:
            self._bind(binding)
        elif phase is Phase.BIND and binding.may_do_without_extender and binding.wanted:
            self.faults.append(AttemptError(EXTENDER, fact.error or ""))
            binding.may_do_without_extender, binding.extender_failed = False, True
            self._bind(binding)
        else:
            self._give_up(binding, what_went_wrong(binding, fact))

    def _give_up(self, binding: Binding, status: Status) -> None:
        self._drop_binding(binding)
        self._revoked.append(self._back_out(binding, status))

    def _back_out(self, binding: Binding, status: Status) -> Decision:
        """Take back the assumption, wake those who may use the room, and put the pod back in the queue.

        A pod that left something behind in the world comes back when that is undone.
        """
        effects = unreserve(binding, self.faults.append)
        self.cluster.forget(binding.pod.uid)
        self.revision += 1
        failed = replace(binding.decision, node=None, refused_after=status)
        if effects:
            binding.failed = failed
            self._bindings[binding.pod.uid] = binding
            self._ask_for(Phase.UNRESERVE, binding, effects)
        pod = binding.pod.on(binding.node)
        if status.code.is_rejection:
            self._come_back(binding, failed)
            self.queue.event(ASSIGNED_POD_DELETE, pod, None, self.now, lambda other: other.uid != pod.uid)
        else:
            self.queue.event(ASSIGNED_POD_DELETE, pod, None, self.now)
            self._come_back(binding, failed)
        return failed

    def _undone(self, binding: Binding, error: str | None) -> None:
        """Let a pod come back. What could not be undone is tried again if the next attempt fails as well."""
        self._drop_binding(binding)
        if error is not None:
            self.faults.append(AttemptError("", f"undoing what was reserved for {binding.pod.key}: {error}"))
        if binding.failed is not None:
            self._come_back(binding, binding.failed)

    def _come_back(self, binding: Binding, failed: Decision) -> None:
        """Queue the newest version of a pod that failed on its way, unless it was deleted or placed meanwhile.

        One that is still being undone has to wait.
        """
        if binding.pod.uid in self._bindings:
            return
        if (binding.withdrawn and not binding.returned) or binding.bound_to:
            self.queue.done(binding.pod.uid)
            return
        binding.queued.pod = binding.latest or binding.queued.pod
        self._failed(binding.queued, failed, expected=binding.expected)

    # -- failure ------------------------------------------------------------------------------------------------------

    def _failed(self, queued: QueuedPod, decision: Decision, *, expected: bool = False) -> None:
        """Put the pod back where it belongs, and see to nomination and victims. ``expected``: others took it for placed."""
        if self.queue.requeue(queued, self.now, rejected_by=decision.rejected_by, pending_on=decision.pending_on) is None:
            return
        outcome = decision.post_filter
        if outcome is not None:
            self._displace(outcome)
        nominated = outcome.nominated if outcome is not None else "" if self._clears_nomination(decision) else None
        self._nominate(queued.pod, nominated, was_told=expected)
        if outcome is not None and (outcome.victims or outcome.effects):
            self._preempt(queued.pod, outcome)

    def _nominate(self, pod: PodInfo, node: str | None, *, was_told: bool = False) -> None:
        """Keep room for a pod that is waiting on a node, or ("") no longer, and let the API know; None: where the API says."""
        if self.queue.get(pod.uid) is None:
            return
        had = self.queue.nomination(pod.uid) or pod.status.nominated_node_name
        self.queue.nominate(pod, node)
        if node or (node is not None and (had or was_told)):
            self._order(Phase.NOMINATE, pod, node)

    @staticmethod
    def _clears_nomination(decision: Decision) -> bool:
        return decision.error is not None or decision.verdicts is None or decision.refused_after is not None
