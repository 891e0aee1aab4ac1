"""A cluster in virtual time: the engine with its queue, cycle and plugins, driven by simulated events.

The simulation takes the place of the API server, the kubelets and the clock. It passes facts to the engine, carries out the
engine's effects, and jumps from one event to the next. Backoff, queueing hints, permit waits and grace periods take simulated
time only.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Node, Object, Pod, PodCondition
from moorage.api.documents.object_fields import stable_uid
from moorage.api.gc_pause import collector_paused
from moorage.api.pod_groups import with_condition
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.search import EVERYWHERE, SearchScope
from moorage.core.engine.facts import NO_LONGER_WANTED, Answered, Done, Gone, News, Phase, Query, Seen, Work
from moorage.core.engine.outbox import Decided, GroupAttempted, PluginFault, Revoked
from moorage.core.engine.scheduler import Scheduler
from moorage.core.groups.group_cycle import GroupReport
from moorage.errors import RAISED, MoorageError, PluginError, StateError
from moorage.framework.effects import (
    Amend,
    BindPod,
    BindThrough,
    Call,
    Delete,
    Effect,
    Evict,
    Question,
    SetGroupCondition,
    Until,
    Write,
)  # fmt: skip
from moorage.framework.plugin_runner import failure_text
from moorage.simulator.alike_failures import FailingAlike
from moorage.simulator.claim_controller import ClaimController
from moorage.simulator.decision_messages import Messages
from moorage.simulator.device_driver import DeviceDrivers
from moorage.simulator.pod_collector import PodCollector
from moorage.simulator.pod_records import (
    Event,
    LastAttempt,
    PodBooks,
    PodRecord,
    SimulatedAttempt,
    State,
    WaitingWork,
    arrival_of,
    timestamp,
    wants_a_node,
)
from moorage.simulator.replacements import REPLACING, REPLACING_ELSEWHERE, replacement
from moorage.simulator.storage_controller import NOTED, StorageController
from moorage.simulator.zero_time_loops import ZeroTimeLoops
from moorage.state.pod_info import PodInfo

__all__ = ["Event", "PodRecord", "SimulatedAttempt", "SimulatedCluster", "State", "wants_a_node"]

#: After a pod has failed this often without a change in the cluster, the run may end while it is pending.
MAX_FUTILE_ATTEMPTS = 10


@dataclass
class SimulatedCluster(PodBooks):
    """Events in time order, and the pods they concern.

    ``on_attempt`` is called with every decision. ``durations`` maps a pod's UID to the seconds it runs once bound; other pods
    never finish. ``ask`` sends a question to an extender, which takes no simulated time.
    """

    scheduler: Scheduler
    on_attempt: Callable[[SimulatedAttempt], None] | None = None
    durations: dict[str, float] = field(default_factory=dict)
    now: float = 0.0
    records: dict[str, PodRecord] = field(default_factory=dict)
    #: Records of pods that were preempted, evicted or deleted with their node, including those in ``records``.
    victims: dict[str, PodRecord] = field(default_factory=dict)
    #: Pods that were scheduled only by the final retry: some plugin's queueing hint missed the event that helped them.
    overslept: list[str] = field(default_factory=list)
    ask: Callable[[Question], bytes] | None = None
    #: False: drop the record of a pod when it ends, so that an endless run needs no more memory over time.
    keeps_records: bool = True
    #: The number of pods so far that a scheduler of this simulation should place.
    arrived: int = 0
    #: Called with the record of each pod that ends, is evicted or is deleted.
    on_end: Callable[[PodRecord], None] | None = None
    #: Called with each record of a pod that has just been bound.
    on_placed: Callable[[PodRecord], None] | None = None
    #: Called with the next time before time passes.
    on_advance: Callable[[float], None] | None = None
    #: Called with each decision of ``run`` after its effects. Copies are then still placed in runs, unlike with ``on_attempt``.
    on_decision: Callable[[Decision], None] | None = None
    #: Called with each decision, also of single attempts, and with each that is revoked. Copies are then still placed in runs.
    on_result: Callable[[Decision], None] | None = None
    #: Called in place of the callbacks of decisions with how many waiting pods fail as before; without it, each is decided.
    on_repeats: Callable[[int], None] | None = None
    #: Let waiting pods that are alike fail together where nothing differs, in ``run`` without an end.
    fails_together: bool = True

    def __post_init__(self) -> None:
        PodBooks.__init__(self)
        #: The pod that last kept the run from being settled; it is checked first, so that most checks look at one pod.
        self._may_fit = ""
        #: The time at which ``steps`` ends; None: it ends only when nothing more can happen.
        self._until_s: float | None = None
        #: The last attempt for each pod group.
        self.groups: dict[str, GroupReport] = {}
        #: Errors of plugins and extenders that did not end an attempt.
        self.faults: list[MoorageError] = []
        #: Refresh of a plugin's outside data, by its position → when its stand-in is next called.
        self._refresh_at: dict[int, float] = {}
        self._decisions: list[Decision] = []
        self._alike = FailingAlike(self.scheduler, self.records, self._last_attempts)
        self._loops = ZeroTimeLoops(self._own_plugins)
        self._messages = Messages()
        self.storage = StorageController(self.scheduler.snapshot, self._tell)
        self.devices = DeviceDrivers(self.scheduler.snapshot, self._tell)
        self._claims = ClaimController(self.scheduler.snapshot, self._pods, self._tell)
        self._collector = PodCollector(
            self._pods, self._arrival_of, self.scheduler.cluster.pods_without_node, self._delete_orphan
        )

    # -- facts --------------------------------------------------------------------------------------------------------

    def load(self, objects: Iterable[Object]) -> None:
        """Report the objects that exist from the start to the engine."""
        with collector_paused():
            identified = (obj if obj.metadata.uid else self._identified(obj) for obj in objects)
            for kind, group in groupby(identified, key=partial(arrival_of, self.scheduler.profiles)):
                found = [*group]
                if not self._take_together(kind, found):
                    for obj in found:
                        self._tell(Seen(obj))
        self.devices.begin()

    def run(self, until_s: float | None = None) -> None:
        """Run until nothing more can happen that would change an outcome; with ``until_s``, until that time."""
        self._until_s = until_s
        if until_s is None and self.fails_together and not self._hears_each_decision and not self._has_own_plugins:
            self._alike.begin([pod.spec.priority or 0 for pod in self._pods.values()], self.on_repeats)
        self._run_steps()
        self._alike.end(self._messages, self.now)
        if until_s is not None:
            self.now = max(self.now, until_s)
            return
        self._try_all_once()
        self.scheduler.end_waits(self.now)
        self._deliver()

    @property
    def _hears_each_decision(self) -> bool:
        """Whether a callback wants the decision of each attempt."""
        wanting = self.on_attempt, self.on_decision, self.on_result
        return self.ask is not None or (self.on_repeats is None and any(one is not None for one in wanting))

    def _run_steps(self) -> None:
        for decision in self.steps():
            if self.on_decision is not None:
                self.on_decision(decision)

    def _try_all_once(self) -> None:
        """Retry the pending pods a last time. A pod that fits now was not woken by the event that helped it."""
        revision = self.scheduler.state.revision
        waiting = [
            record.pod
            for uid, record in self.records.items()
            if record.state == State.PENDING and uid in self._last_attempts and self._last_attempts[uid].revision != revision
        ]
        if not waiting:
            return
        self.scheduler.activate([PodInfo(pod) for pod in waiting])
        self._run_steps()
        self.overslept = [pod.key for pod in waiting if self.records[pod.metadata.uid].state != State.PENDING]

    def steps(self) -> Iterator[Decision]:
        """Run, and yield each decision after its effects were carried out.

        Raises  LoopError if something goes on for good without time passing
        """
        self._loops = ZeroTimeLoops(self._own_plugins)
        while True:
            self._process_due()
            if not self.scheduler.is_resting:
                yield from self._place_quickly()
            if self.scheduler.is_resting:
                if not self._advance():
                    return
                continue
            attempted = self.scheduler.step(self.now)
            self._decisions = []
            delivered = self._deliver()
            for decision in self._decisions:
                binding = self.scheduler.binding_of(decision.pod.uid) if decision.node is not None else None
                self._loops.note_attempt(self.now, decision, () if binding is None else binding.pending)
            if attempted:
                yield from (decisions := self._decisions)
                quiet = self._planned() is None and bool(decisions) and decisions[-1].node is None
                if quiet and (self._is_settled() or self._repeats(decisions[-1].pod.uid)):
                    return
            elif not delivered and not self._advance():
                return

    def _own_plugins(self) -> list[str]:
        """Return the names of the plugins that run and are not Moorage's own."""
        running = [one for profile in self.scheduler.profiles.values() for one in profile.plugins.items()]
        own = (name for name, plugin in running if not type(plugin).__module__.startswith("moorage.plugins."))
        return list(dict.fromkeys(own))

    def _process_due(self) -> None:
        """Process the events that are due, the controllers, and work that waits for them."""
        is_moment = self._alike.is_on and bool(self._events) and self._events[0][0] <= self.now
        if is_moment:
            self._alike.begin_moment(self.now)
        while self._events and self._events[0][0] <= self.now:
            self._loops.note_event(self.now)
            event = heapq.heappop(self._events)[2]
            if isinstance(event, Struct):
                self._tell(event)
            else:
                event()
        if is_moment:
            self._alike.end_moment(self.now)
        if self.scheduler.state.outside.refreshes:
            self._refresh()
        self._collector.act(self.now)
        self.storage.act()
        self._claims.act()
        if self._waiting_work:
            self._resume_waiting()

    def _refresh(self) -> None:
        """Call the stand-ins of refreshes whose time has come."""
        for at, refresh in enumerate(self.scheduler.state.outside.refreshes):
            if refresh.stand_in is None or self.now < self._refresh_at.get(at, self.now):
                continue
            self._refresh_at[at] = self.now + refresh.every_s
            try:
                refresh.stand_in()
            except RAISED as error:
                self.faults.append(PluginError(refresh.plugin, f"failed in a refresh: {failure_text(error)}"))

    def _ask_extender(self, query: Query) -> None:
        """Send a question to an extender and pass its reply to the engine."""
        assert self.ask is not None
        try:
            fact = Answered(query.ticket, self.ask(query.question))
        except MoorageError as error:
            fact = Answered(query.ticket, error=str(error))
        self.scheduler.observe(fact, self.now)

    # -- one attempt --------------------------------------------------------------------------------------------------

    def tell(self, facts: Iterable[News]) -> None:
        """Report facts now."""
        for fact in facts:
            self._tell(fact)
        self.catch_up()

    def delete(self, uid: str) -> None:
        """Delete a pod at once, without a replacement."""
        pod = self._pods[uid]
        record = self.records.get(uid)
        if record is not None:
            record.state = State.DELETED
        self._tell(Gone(pod))
        self.catch_up()

    def evict(self, uid: str, grace_s: float | None = None) -> None:
        """Evict a pod: it is deleted after ``grace_s`` seconds (None: its own grace period) and then replaced."""
        pod = self._pods[uid]
        record = self.records.get(uid) or PodRecord(pod, 0.0, node=pod.spec.node_name)
        record.state = State.DELETED
        self.victims[uid] = record
        if grace_s is not None and grace_s <= 0:
            self._tell(Gone(pod))
        else:
            self._terminate(pod, grace_s, "EvictionByEvictionAPI", "Eviction API: evicting")
        self.catch_up()

    def attempt(self, pod: Pod, scope: SearchScope = EVERYWHERE) -> None:
        """Attempt one pending pod now, before all others, and carry out the effects; time does not advance."""
        self.catch_up()
        self.scheduler.attempt(PodInfo(pod), self.now, scope)
        while self.scheduler.waits_for_extenders:
            self._deliver()
            self.scheduler.step(self.now)
        self._deliver()
        self.catch_up()

    def catch_up(self) -> None:
        """Process everything that the controllers, and work that waits for them, can do at this time."""
        delivered = True
        while delivered:
            self._process_due()
            delivered = self._deliver()

    # -- the passage of time ------------------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        """Return True if retrying the pending pods would change nothing.

        Each pod has failed in the present state of the cluster, or so often since the last fact that it would fail again even
        if other pods released their nodes.
        """
        if self._waiting_work or self._awaits_retry():
            return False
        waits = self.scheduler.has_waiting
        if self._may_fit and self._is_open(self._may_fit, waits):
            return False
        # Pods are mostly tried in the order they were added, so a search from the end soon finds one that is still open.
        self._may_fit = next((uid for uid in reversed(self.records) if self._is_open(uid, waits)), "")
        return not self._may_fit

    def _repeats(self, uid: str) -> bool:
        """Return True if a pod failed many times in an unchanged cluster, and so would all others that wait for no event.

        A pod whose attempts end with an error is retried again and again, as in kube-scheduler, while the others stay parked.
        """
        if self._waiting_work or self.scheduler.has_waiting or not self._cannot_fit(uid, others_wait=True):
            return False
        if self._awaits_retry():
            return False
        return self._all_repeat()

    def _awaits_retry(self) -> bool:
        """Return True if a plugin retries a pod later that has not failed very often since the last fact."""
        retries = self.scheduler.state.retries
        return retries.next() is not None and any(not self._is_futile(pod.uid) for _, pods in retries for pod in pods)

    def _is_futile(self, uid: str) -> bool:
        """Return True for a pod that does not wait, or that failed so often since the last fact that it is given up."""
        record, tried = self.records.get(uid), self._last_attempts.get(uid)
        if record is None or record.state != State.PENDING:
            return True
        return tried is not None and tried.facts == self.scheduler.state.facts and tried.times >= MAX_FUTILE_ATTEMPTS

    def _only_repeats(self) -> bool:
        """Return True if all due attempts would repeat earlier ones in an unchanged state, as groups do without events."""
        return self.scheduler.cluster.groups is not None and not self.scheduler.has_waiting and self._all_repeat()

    def _groups_wait_idly(self) -> bool:
        """Return True if all that is due are attempts of groups that failed in this state of the cluster.

        kube-scheduler repeats them after each backoff. Here they wait for the next event, like other pods that were rejected,
        unless a plugin of the user's runs, whose answer may depend on the time.
        """
        scheduler = self.scheduler
        if scheduler.cluster.groups is None or scheduler.state.bindings.held or scheduler.has_waiting or self._has_own_plugins:
            return False
        revision, last = scheduler.state.revision, self._last_attempts
        return all(
            queued.entry and (tried := last.get(queued.pod.uid)) is not None and tried.revision == revision
            for queued in scheduler.queue.in_backoff
        )

    @cached_property
    def _has_own_plugins(self) -> bool:
        return bool(self._own_plugins())

    def _all_repeat(self) -> bool:
        """Return True if every pending pod waits for an event, or would fail again."""
        queued = ((uid, self.scheduler.queue.get(uid)) for uid, one in self.records.items() if one.state == State.PENDING)
        return all(one is None or one.parked or self._cannot_fit(uid, others_wait=False) for uid, one in queued)

    def _is_open(self, uid: str, others_wait: bool) -> bool:
        """Return True for a pending pod that another attempt might place."""
        return self.records[uid].state == State.PENDING and not self._cannot_fit(uid, others_wait)

    def _cannot_fit(self, uid: str, others_wait: bool) -> bool:
        tried = self._last_attempts.get(uid)
        if tried is None:
            return self._is_gated(uid)
        if self._timeouts.get(uid, 0) >= MAX_FUTILE_ATTEMPTS:
            return True
        if tried.facts == self.scheduler.state.facts and tried.times >= MAX_FUTILE_ATTEMPTS:
            return True
        return not others_wait and (tried.revision == self.scheduler.state.revision or self._is_gated(uid))

    def _is_gated(self, uid: str) -> bool:
        queued = self.scheduler.queue.get(uid)
        return queued is not None and queued.gated

    def next_event_s(self) -> float | None:
        """Return the next time at which something can happen; None if there is none."""
        times = [one.deadline_s for one in self._waiting_work]
        if (planned := self._planned()) is not None:
            times.append(planned)
        due = self.scheduler.next_deadline()
        if not times and (due is None or self._is_settled() or self._only_repeats()):
            return None
        if times and due is not None and due < min(times) and self._groups_wait_idly():
            due = None
        return max(self.now, min(times if due is None else [*times, due]))

    def _advance(self) -> bool:
        """Jump to the next time at which something can happen; return False if there is none before the end of the run."""
        if self._alike.woken and self._alike.go_on(self.now):
            return True
        then = self.next_event_s()
        if then is None or (self._until_s is not None and then > self._until_s):
            return False
        if self.on_advance is not None and then > self.now:
            self.on_advance(then)
        self.now = then
        return True

    @property
    def is_at_rest(self) -> bool:
        """True if nothing more happens until there is another fact."""
        if self._planned() is not None or self._waiting_work:
            return False
        return self.scheduler.next_deadline() is None or self._is_settled() or self._only_repeats()

    def _planned(self) -> float | None:
        """Return the time of the next event that does not depend on the scheduler; None if there is none."""
        times = [self._collector.due(), self._events[0][0] if self._events else None]
        if self._until_s is not None and self._refresh_at and len(self.scheduler.queue):
            times.append(min(self._refresh_at.values()))
        known = [one for one in times if one is not None]
        return min(known) if known else None

    # -- effects of the engine ----------------------------------------------------------------------------------------

    def _tell(self, fact: News) -> None:
        if not isinstance(fact, Done) and not fact.obj.metadata.uid:
            fact = type(fact)(self._identified(fact.obj))
        if isinstance(fact, Done) or not isinstance(fact.obj, Pod):
            self.scheduler.observe(fact, self.now)
            if isinstance(fact, Done):
                return
            if isinstance(fact.obj, Node):
                self._collector.note(fact, self.now)
            elif isinstance(fact.obj, NOTED):
                self.storage.note(fact)
                self.devices.note(fact)
                self._claims.note(fact)
            return
        if isinstance(fact, Seen):
            self._seen(fact.obj)
        elif self._pods.pop(uid := fact.obj.metadata.uid, None) is None:
            return
        else:
            del self._came[uid]
            self._ended(uid)
        self.scheduler.observe(fact, self.now)
        self._claims.note(fact)
        if self._collector.gone:
            self._collector.note(fact, self.now)

    def _identified(self, obj: Object) -> Any:
        """Return an object without a UID with one: that of the pod that has its name, or one made of its kind and name."""
        meta, is_pod = obj.metadata, isinstance(obj, Pod)
        space = meta.namespace or ("default" if is_pod else "")
        uid = (self._named.get(space, meta.name) if is_pod else None) or stable_uid(type(obj).__name__, space, meta.name)
        return replace(obj, metadata=replace(meta, namespace=space, uid=uid))

    def _seen(self, pod: Pod) -> None:
        """Record a pod that is new or changed. A pod with the name of another replaces it."""
        meta, pods = pod.metadata, self._pods
        uid = meta.uid
        holder = self._named.get(meta.namespace, meta.name)
        if holder != uid:
            if holder in pods:
                self._tell(Gone(pods[holder]))
            self._named.put(meta.namespace, meta.name, uid)
        if uid not in pods:
            self._arrivals += 1
            self._came[uid] = self._arrivals
        pods[uid] = pod
        record = self.records.get(uid)
        if record is None and wants_a_node(pod) and pod.spec.scheduler_name in self.scheduler.state.profiles:
            self.records[uid] = PodRecord(pod, self.now)
            self.arrived += 1
            if self._alike.is_on:
                self._alike.see(pod.spec.priority or 0)
        elif record is not None and record.state == State.PENDING and pod.spec.node_name:
            self._note_placed(record, pod.spec.node_name, self.now)

    def _deliver(self) -> bool:
        """Record the engine's decisions and carry out its effects. Return True if there were any effects."""
        ordered = False
        for output in self.scheduler.take() if self.scheduler.state.outbox else ():
            match output:
                case Work():
                    ordered = True
                    self._carry_out(output)
                case Decided(decision):
                    self._note(decision)
                    self._decisions.append(decision)
                case Revoked(decision):
                    self._note_revoked(decision)
                case Query() if self.ask is not None:
                    ordered = True
                    self._ask_extender(output)
                case GroupAttempted(report):
                    self.groups[report.key] = report
                case PluginFault(error):
                    self.faults.append(error)
        return ordered

    def _carry_out(self, work: Work) -> None:
        if not work.phase.is_answered:
            if work.phase is Phase.NOMINATE:
                self._nominate(work)
            for effect in work.effects:
                self._perform(effect)
            return
        self._continue(work, 0)

    def _continue(self, work: Work, start: int, deadline_s: float | None = None) -> None:
        """Carry out the effects from index ``start`` on, until one has to wait. ``deadline_s`` applies to the first of them."""
        faults: list[str] = []
        failed_at = -1
        for at in range(start, len(work.effects)):
            try:
                if not self.scheduler.is_wanted(work.ticket):
                    raise StateError(NO_LONGER_WANTED)
                effect = work.effects[at]
                if not isinstance(effect, Until):
                    self._perform(effect)
                    continue
                parked = WaitingWork(work, at, self.now + effect.timeout_s if deadline_s is None else deadline_s)
                if not self._is_met(effect, parked):
                    self._waiting_work.append(parked)
                    return
                deadline_s = None
            except RAISED as failed:
                faults.append(str(failed) if isinstance(failed, MoorageError) else f"{type(failed).__name__}: {failed}")
                failed_at = at
                if work.phase is not Phase.UNRESERVE:
                    break
        self.scheduler.observe(Done(work.ticket, "; ".join(faults) or None, failed_at), self.now)
        self._deliver()

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, BindPod):
            self._bind(effect)
        elif isinstance(effect, BindThrough):  # the extender is not called: it would bind a pod of the real cluster
            self._bind(BindPod(effect.pod, effect.node))
        elif isinstance(effect, Evict):
            self._evict(effect)
        elif isinstance(effect, Write):
            self._tell(Seen(effect.obj))
            if effect.made is not None:
                effect.made(effect.obj)
        elif isinstance(effect, Amend):
            self._amend(effect)
        elif isinstance(effect, SetGroupCondition):
            change = partial(with_condition, condition=effect.condition, now=timestamp(self.now))
            self._amend(Amend(effect.group, change, "status", or_gone=True))
        elif isinstance(effect, Delete):
            self._tell(Gone(effect.obj))
        elif isinstance(effect, Call):
            effect.stand_in()
        if isinstance(effect, Write | Amend) and effect.settled is not None:
            effect.settled()

    def _amend(self, effect: Amend) -> None:
        metadata = effect.obj.metadata
        held: Object | None
        if isinstance(effect.obj, Pod):
            held = self._pods.get(metadata.uid)
        else:
            held = self.scheduler.snapshot.objects(type(effect.obj)).get(effect.obj.key)
        if held is None or (metadata.uid and held.metadata.uid != metadata.uid):
            if effect.or_gone:
                return
            raise StateError(f"{type(effect.obj).__name__} {metadata.namespace}/{metadata.name} is gone")
        changed = effect.change(held)
        if changed != held:
            self._tell(Seen(changed))

    # -- waits --------------------------------------------------------------------------------------------------------

    def _is_met(self, effect: Until, parked: WaitingWork) -> bool:
        """Return whether the awaited condition holds after the controllers have acted."""
        self.storage.act()
        self.devices.act()
        if effect.is_met():
            return True
        if parked.deadline_s <= self.now:
            uid = parked.work.pod.uid
            self._timeouts[uid] = self._timeouts.get(uid, 0) + 1
            raise StateError(f"{effect.what}: context deadline exceeded")
        return False

    def _resume_waiting(self) -> None:
        parked, self._waiting_work = self._waiting_work, []
        for one in parked:
            self._continue(one.work, one.at, one.deadline_s)

    def _bind(self, effect: BindPod) -> None:
        uid = effect.pod.uid
        pod = self._pods.get(uid)
        if pod is None or pod.spec.node_name:
            why = "it is gone" if pod is None else f"it is on {pod.spec.node_name} already"
            raise StateError(f"bind {effect.pod.key} to {effect.node}: {why}")
        bound = replace(pod, spec=replace(pod.spec, node_name=effect.node), status=replace(pod.status, nominated_node_name=""))
        self._end_later(bound)
        self._tell(Seen(bound))

    def _nominate(self, work: Work) -> None:
        pod = self._pods.get(work.pod.uid)
        record = self.records.get(work.pod.uid)
        if pod is None or pod.spec.node_name:
            return
        if record is not None:
            record.nominated = work.node
        if pod.status.nominated_node_name != work.node:
            self._tell(Seen(replace(pod, status=replace(pod.status, nominated_node_name=work.node))))

    def _evict(self, effect: Evict) -> None:
        pod = self._pods.get(effect.victim.uid)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return
        record = self.records.get(effect.victim.uid) or PodRecord(pod, 0.0, State.PLACED, pod.spec.node_name)
        record.state, record.preempted_by = State.PREEMPTED, (effect.group or effect.preemptor).key
        self.victims[effect.victim.uid] = record
        self._terminate(pod, None, "PreemptionByScheduler", effect.message)

    def _terminate(self, pod: Pod, grace_s: float | None, reason: str, message: str) -> None:
        """Mark a pod as terminating and delete it after its grace period."""
        if grace_s is None:
            own = pod.spec.termination_grace_period_seconds
            grace_s = 30 if own is None else own
        marked = self.leaving(pod, PodCondition(type="DisruptionTarget", status="True", reason=reason, message=message))
        self._tell(Seen(marked))
        self.at(self.now + grace_s, Gone(marked))

    def leaving(self, pod: Pod, condition: PodCondition | None = None) -> Pod:
        """Return a pod as it is once its deletion has begun, with one more condition."""
        more = () if condition is None else (condition,)
        return replace(
            pod,
            metadata=replace(pod.metadata, deletion_timestamp=timestamp(self.now)),
            status=replace(pod.status, conditions=(*pod.status.conditions, *more)),
        )

    def _delete_orphan(self, pod: Pod) -> None:
        """Delete a pod whose node is deleted. A terminating pod has been replaced already, or is a victim and will be."""
        if pod.metadata.deletion_timestamp is None:
            record = self.records.get(pod.metadata.uid) or PodRecord(pod, 0.0, node=pod.spec.node_name)
            record.state = State.DELETED
            self.victims[pod.metadata.uid] = record
        self._tell(Gone(pod))

    def _ended(self, uid: str) -> None:
        record = self.records.get(uid) or self.victims.get(uid)
        if record is None:
            return
        record.ended_s = self.now
        if record.state == State.PLACED:
            record.state = State.FINISHED
        elif record.state == State.PENDING:
            record.state = State.DELETED
        elif uid in self.victims:
            self._replace(record)
        if self.on_end is not None:
            self.on_end(record)
        if not self.keeps_records:
            self._forget(record.pod)

    def _replace(self, record: PodRecord) -> None:
        """Create the replacement for a victim, as its controller would."""
        fresh = replacement(record.pod, REPLACING if record.state == State.PREEMPTED else REPLACING_ELSEWHERE)
        if fresh is not None:
            record.replaced = fresh.name
            self._loops.note_replaced(self.now, record.pod.metadata.uid, fresh.metadata.uid, fresh.key)
            if record.pod.metadata.uid in self.durations:  # the new pod begins the work again
                self.durations[fresh.metadata.uid] = self.durations[record.pod.metadata.uid]
            self.at(self.now, Seen(fresh))

    def _note_revoked(self, decision: Decision) -> None:
        self._loops.note_revoked(self.now, decision)
        record = self.records.get(decision.pod.uid)
        if record is not None:
            record.message = decision.message
            self._report(record, decision)

    def _note(self, decision: Decision) -> None:
        state, record = self.scheduler.state, self.records.get(decision.pod.uid)
        if record is None:
            return
        if self._alike.is_on:
            self._alike.note(decision)
        self._note_attempt(record, self._messages.of(decision), LastAttempt(state.revision, state.facts, 1))
        self._report(record, decision)

    def _report(self, record: PodRecord, decision: Decision) -> None:
        if self.on_attempt is not None:
            self.on_attempt(SimulatedAttempt(self.now, record.attempts, decision))
        if self.on_result is not None:
            self.on_result(decision)
