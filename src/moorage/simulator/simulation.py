"""A cluster in virtual time: the engine's own queue, cycle and plugins, driven by events instead of a clock.

The simulation is what the API server, the kubelets and time itself are to a live scheduler. It tells the engine what
happens, does the work the engine asks for, and jumps from one moment at which something can happen to the next. Backoffs,
hints, waits and grace periods take their time, but no wall-clock time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, NoReturn

from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Pod, PodCondition
from moorage.api.meta import Object
from moorage.api.pod_groups import with_condition
from moorage.cycle.decision import Decision
from moorage.cycle.search_scope import EVERYWHERE, Scope
from moorage.engine.facts import NO_LONGER_WANTED, Answered, Done, Gone, News, Phase, Query, Seen, Work
from moorage.engine.group_outcome import GroupReport
from moorage.engine.outbox import Decided, GroupAttempted, PluginFault, Revoked
from moorage.engine.scheduler import Scheduler
from moorage.errors import CopyError, MoorageError, StateError
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
)
from moorage.simulator.claim_controller import ClaimController
from moorage.simulator.device_driver import DeviceDrivers
from moorage.simulator.pod_collector import PodCollector
from moorage.simulator.replacing import REPLACING, REPLACING_ELSEWHERE, replacement
from moorage.simulator.storage_controller import StorageController
from moorage.state.pod_info import PodInfo

__all__ = ["PodRecord", "SimulatedAttempt", "Simulation", "State", "wants_a_node"]

#: A pod that failed so often, with nothing in the cluster having changed meanwhile, is not waited for.
PATIENCE = 10


class State:
    """Where a pod has got to."""

    PENDING = "Pending"
    PLACED = "Placed"
    FINISHED = "Finished"
    PREEMPTED = "Preempted"
    DELETED = "Deleted"


def wants_a_node(pod: Pod) -> bool:
    """True for a pod that some scheduler should place: it has no node, has not ended and is not about to go."""
    return not pod.spec.node_name and pod.status.phase not in ENDED_PHASES and pod.metadata.deletion_timestamp is None


@dataclass(slots=True)
class PodRecord:
    """What became of one pod that was to be placed, or was taken away. Times are seconds of simulated time.

    ``message`` says why the last attempt came to nothing; it is empty if it did not, or there was none. The decision itself is
    not kept: what it holds is as large as the cluster.
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


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """One decision, and when it was made."""

    time_s: float
    number: int
    decision: Decision


class _Tried(NamedTuple):
    """When a pod was tried last: the scheduler's revision and facts then, and how often since that fact."""

    revision: int
    facts: int
    times: int


class _Parked(NamedTuple):
    """Work that goes on with the effect ``at``, an ``Until``, once that is met or its deadline has passed."""

    work: Work
    at: int
    deadline_s: float


@dataclass
class Simulation:
    """Events in time order, and the pods they are about.

    ``on_attempt`` is told of every decision as it is made. ``durations`` maps a pod's UID to the seconds it runs once bound;
    pods without one run for ever. ``ask`` puts a question to an extender; it takes no simulated time.
    """

    scheduler: Scheduler
    on_attempt: Callable[[SimulatedAttempt], None] | None = None
    durations: dict[str, float] = field(default_factory=dict)
    now: float = 0.0
    records: dict[str, PodRecord] = field(default_factory=dict)
    #: Pods that were preempted or deleted with their node, those among ``records`` included.
    victims: dict[str, PodRecord] = field(default_factory=dict)
    #: Pods that found a place only in a last retry: some plugin's hint missed the event that helped them.
    overslept: list[str] = field(default_factory=list)
    ask: Callable[[Question], bytes] | None = None

    def __post_init__(self) -> None:
        self._events: list[tuple[float, int, News]] = []
        self._serial = 0
        self._pods: dict[str, Pod] = {}
        self._named: dict[tuple[str, str], str] = {}
        self._tried: dict[str, _Tried] = {}
        #: The pod that last kept the run from being settled; asked first, so that not all are asked after every attempt.
        self._may_fit = ""
        self._parked: list[_Parked] = []
        self._waited_in_vain: dict[str, int] = {}
        #: When ``steps`` ends at the latest; None: when nothing more can happen.
        self._until_s: float | None = None
        #: The last attempt for each pod group.
        self.groups: dict[str, GroupReport] = {}
        #: Errors of plugins and extenders that ended no attempt.
        self.faults: list[MoorageError] = []
        self._decisions: list[Decision] = []
        self.storage = StorageController(self.scheduler.snapshot, self._tell)
        self.devices = DeviceDrivers(self.scheduler.snapshot, self._tell)
        self._claims = ClaimController(self.scheduler.snapshot, self._pods, self._tell)
        self._collector = PodCollector(self._pods, self._lose)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise CopyError(
            "a simulation cannot be copied or pickled; call prepare(options) again and load the same objects: with the same"
            " seed it runs the same way"
        )

    # -- what happens -------------------------------------------------------------------------------------------------

    def load(self, objects: Iterable[Object]) -> None:
        """Tell the engine of objects that exist from the start."""
        for obj in objects:
            self._tell(Seen(obj))
        self.devices.begin()

    def at(self, time_s: float, fact: News) -> None:
        """Let something happen later."""
        self._serial += 1
        heapq.heappush(self._events, (time_s, self._serial, fact))

    def run(self, until_s: float | None = None) -> None:
        """Go on until nothing more can happen that would change an answer; with ``until_s``, until that time."""
        self._until_s = until_s
        for _ in self.steps():
            pass
        if until_s is not None:
            self.now = max(self.now, until_s)
            return
        self._try_all_once()
        self.scheduler.end_waits(self.now)
        self._deliver()

    def _try_all_once(self) -> None:
        """Try the pending pods a last time. One that finds a place now was not woken by the event that helped it."""
        revision = self.scheduler.state.revision
        waiting = [
            record.pod
            for uid, record in self.records.items()
            if record.state == State.PENDING and uid in self._tried and self._tried[uid].revision != revision
        ]
        if not waiting:
            return
        self.scheduler.activate([PodInfo(pod) for pod in waiting])
        for _ in self.steps():
            pass
        self.overslept = [pod.key for pod in waiting if self.records[pod.metadata.uid].state != State.PENDING]

    def steps(self) -> Iterator[Decision]:
        """Run, yielding each decision once its work is done."""
        while True:
            self._let_happen()
            attempted = self.scheduler.step(self.now)
            self._decisions = []
            delivered = self._deliver()
            if attempted:
                yield from (decisions := self._decisions)
                quiet = self._planned() is None and bool(decisions) and decisions[-1].node is None
                if quiet and self._is_settled():
                    return
            elif not delivered and not self._advance():
                return

    def _let_happen(self) -> None:
        """Let happen what is due now, and let the controllers and the work that waits for them do all they can."""
        while self._events and self._events[0][0] <= self.now:
            self._tell(heapq.heappop(self._events)[2])
        self._collector.act(self.now)
        self.storage.act()
        self._claims.act()
        self._look_at_parked()

    def _ask_extender(self, query: Query) -> None:
        """Put a question to an extender and pass its answer to the engine."""
        assert self.ask is not None
        try:
            fact = Answered(query.ticket, self.ask(query.question))
        except MoorageError as error:
            fact = Answered(query.ticket, error=str(error))
        self.scheduler.observe(fact, self.now)

    # -- one attempt --------------------------------------------------------------------------------------------------

    @property
    def pods(self) -> Mapping[str, Pod]:
        """All pods that exist, by UID, in the order they came."""
        return self._pods

    def pod_named(self, key: str) -> Pod | None:
        """Return the pod of this ``namespace/name``, if there is one."""
        namespace, _, name = key.partition("/")
        pod = self._pods.get(self._named.get((namespace, name), ""))
        return pod if pod is not None and pod.key == key else None

    def tell(self, facts: Iterable[News]) -> None:
        """Let things happen now."""
        for fact in facts:
            self._tell(fact)

    def delete(self, uid: str) -> None:
        """Delete a pod at once. Its controller makes no other."""
        pod = self._pods[uid]
        record = self.records.get(uid)
        if record is not None:
            record.state = State.DELETED
        self._tell(Gone(pod))

    def evict(self, uid: str, grace_s: float | None = None) -> None:
        """Evict a pod: it leaves after ``grace_s`` seconds (None: the pod's own grace period), and is then replaced."""
        pod = self._pods[uid]
        record = self.records.get(uid) or PodRecord(pod, 0.0, node=pod.spec.node_name)
        record.state = State.DELETED
        self.victims[uid] = record
        self._leave(pod, grace_s, "EvictionByEvictionAPI", "Eviction API: evicting")
        self.catch_up()

    def attempt(self, pod: Pod, scope: Scope = EVERYWHERE) -> None:
        """Try one waiting pod now, before all others, and do what follows at this moment; time does not go on."""
        self.catch_up()
        self.scheduler.attempt(PodInfo(pod), self.now, scope)
        while self.scheduler.waits_for_extenders:
            self._deliver()
            self.scheduler.step(self.now)
        self._deliver()
        self.catch_up()

    def catch_up(self) -> None:
        """Let the controllers, and the work that waits for them, do all that they can do at this moment."""
        delivered = True
        while delivered:
            self._let_happen()
            delivered = self._deliver()

    # -- one moment to the next ---------------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        """True when trying the pending pods again would change nothing.

        Each has failed in the very state that the cluster is in now, or so often since the last fact that waiting for others
        to give up their nodes is no use either.
        """
        if self._parked:
            return False
        waits = any(True for _ in self.scheduler.waiting())
        if self._may_fit and self._is_open(self._may_fit, waits):
            return False
        # Pods are mostly tried in the order they came, so the one that stays open for longest is found from the end.
        self._may_fit = next((uid for uid in reversed(self.records) if self._is_open(uid, waits)), "")
        return not self._may_fit

    def _only_repeats(self) -> bool:
        """True if all that is due is tried in the state that it failed in: groups, which come back without an event."""
        if self.scheduler.cluster.groups is None or any(True for _ in self.scheduler.waiting()):
            return False
        queued = ((uid, self.scheduler.queue.get(uid)) for uid, one in self.records.items() if one.state == State.PENDING)
        return all(one is None or one.parked or self._is_hopeless(uid, others_wait=False) for uid, one in queued)

    def _is_open(self, uid: str, others_wait: bool) -> bool:
        """True for a pending pod that another attempt might place."""
        return self.records[uid].state == State.PENDING and not self._is_hopeless(uid, others_wait)

    def _is_hopeless(self, uid: str, others_wait: bool) -> bool:
        tried = self._tried.get(uid)
        if tried is None:
            return self._is_gated(uid)
        if self._waited_in_vain.get(uid, 0) >= PATIENCE:
            return True
        if tried.facts == self.scheduler.state.facts and tried.times >= PATIENCE:
            return True
        return not others_wait and (tried.revision == self.scheduler.state.revision or self._is_gated(uid))

    def _is_gated(self, uid: str) -> bool:
        queued = self.scheduler.queue.get(uid)
        return queued is not None and queued.gated

    def _advance(self) -> bool:
        """Jump to the next moment at which something can happen; False if there is none."""
        due = self.scheduler.next_deadline()
        planned = self._planned()
        parked = min((one.deadline_s for one in self._parked), default=None)
        if planned is None and parked is None and (due is None or self._is_settled() or self._only_repeats()):
            return False
        then = max(self.now, min(t for t in (due, planned, parked) if t is not None))
        if self._until_s is not None and then > self._until_s:
            return False
        self.now = then
        return True

    def _planned(self) -> float | None:
        """Return when something happens next whatever the scheduler does; None if nothing does."""
        collected = self._collector.due()
        return min([*([] if collected is None else [collected]), *(event[0] for event in self._events[:1])], default=None)

    # -- doing what the engine asks -----------------------------------------------------------------------------------

    def _tell(self, fact: News) -> None:
        if isinstance(fact, Done) or not isinstance(fact.obj, Pod):
            self.scheduler.observe(fact, self.now)
            self.storage.note(fact)
            self.devices.note(fact)
            self._claims.note(fact)
            self._collector.note(fact, self.now)
            return
        if isinstance(fact, Seen):
            self._seen(fact.obj)
        elif self._pods.pop(fact.obj.metadata.uid, None) is None:
            return
        else:
            self._ended(fact.obj.metadata.uid)
        self.scheduler.observe(fact, self.now)
        self._claims.note(fact)
        self._collector.note(fact, self.now)

    def _seen(self, pod: Pod) -> None:
        """Keep books of a pod that is new or changed. One that has another's name takes its place."""
        uid, name = pod.metadata.uid, (pod.metadata.namespace, pod.metadata.name)
        holder = self._pods.get(self._named.get(name, ""))
        if holder is not None and holder.metadata.uid != uid:
            self._tell(Gone(holder))
        self._named[name] = uid
        self._pods[uid] = pod
        record = self.records.get(uid)
        if record is None and wants_a_node(pod) and pod.spec.scheduler_name in self.scheduler.profiles:
            self.records[uid] = PodRecord(pod, self.now)
        elif record is not None and record.state == State.PENDING and pod.spec.node_name:
            record.state, record.node, record.placed_s = State.PLACED, pod.spec.node_name, self.now

    def _deliver(self) -> bool:
        """Record what the engine decided and carry out what it ordered. Returns True if it ordered anything."""
        ordered = False
        for output in self.scheduler.take():
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
        self._go_on(work, 0)

    def _go_on(self, work: Work, start: int, deadline_s: float | None = None) -> None:
        """Carry out the effects from ``start`` on, until one has to be waited for. ``deadline_s`` is for that very one."""
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
                parked = _Parked(work, at, self.now + effect.timeout_s if deadline_s is None else deadline_s)
                if not self._is_met(effect, parked):
                    self._parked.append(parked)
                    return
                deadline_s = None
            except Exception as failed:
                faults.append(str(failed) if isinstance(failed, MoorageError) else f"{type(failed).__name__}: {failed}")
                failed_at = at
                if work.phase is not Phase.UNRESERVE:
                    break
        self.scheduler.observe(Done(work.ticket, "; ".join(faults) or None, failed_at), self.now)
        self._deliver()

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, BindPod):
            self._bind(effect)
        elif isinstance(effect, BindThrough):  # the extender is not told: it would bind a pod of the real cluster
            self._bind(BindPod(effect.pod, effect.node))
        elif isinstance(effect, Evict):
            self._evict(effect)
        elif isinstance(effect, Write):
            self._tell(Seen(effect.obj))
        elif isinstance(effect, Amend):
            self._amend(effect)
        elif isinstance(effect, SetGroupCondition):
            change = partial(with_condition, condition=effect.condition, now=_timestamp(self.now))
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

    # -- waiting for others -------------------------------------------------------------------------------------------

    def _is_met(self, effect: Until, parked: _Parked) -> bool:
        """Say whether what is waited for has come about, once everybody else has done what they can."""
        self.storage.act()
        self.devices.act()
        if effect.is_met():
            return True
        if parked.deadline_s <= self.now:
            uid = parked.work.pod.uid
            self._waited_in_vain[uid] = self._waited_in_vain.get(uid, 0) + 1
            raise StateError(f"{effect.what}: context deadline exceeded")
        return False

    def _look_at_parked(self) -> None:
        parked, self._parked = self._parked, []
        for one in parked:
            self._go_on(one.work, one.at, one.deadline_s)

    def _bind(self, effect: BindPod) -> None:
        uid = effect.pod.uid
        pod = self._pods.get(uid)
        if pod is None or pod.spec.node_name:
            why = "it is gone" if pod is None else f"it is on {pod.spec.node_name} already"
            raise StateError(f"bind {effect.pod.key} to {effect.node}: {why}")
        bound = replace(pod, spec=replace(pod.spec, node_name=effect.node), status=replace(pod.status, nominated_node_name=""))
        if uid in self.durations:
            self.at(self.now + self.durations[uid], Gone(bound))
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
        self._leave(pod, None, "PreemptionByScheduler", effect.message)

    def _leave(self, pod: Pod, grace_s: float | None, reason: str, message: str) -> None:
        """Delete a pod after its grace period."""
        if grace_s is None:
            own = pod.spec.termination_grace_period_seconds
            grace_s = 30 if own is None else own
        condition = PodCondition(type="DisruptionTarget", status="True", reason=reason, message=message)
        marked = replace(
            pod,
            metadata=replace(pod.metadata, deletion_timestamp=_timestamp(self.now)),
            status=replace(pod.status, conditions=(*pod.status.conditions, condition)),
        )
        self._tell(Seen(marked))
        self.at(self.now + grace_s, Gone(marked))

    def _lose(self, pod: Pod) -> None:
        """Delete a pod whose node is gone. One that was being deleted has been replaced, or is a victim, which will be."""
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

    def _replace(self, record: PodRecord) -> None:
        """Do what a victim's controller would: make a new pod in its place."""
        fresh = replacement(record.pod, REPLACING if record.state == State.PREEMPTED else REPLACING_ELSEWHERE)
        if fresh is not None:
            record.replaced = fresh.name
            self.at(self.now, Seen(fresh))

    def _note_revoked(self, decision: Decision) -> None:
        record = self.records.get(decision.pod.uid)
        if record is not None:
            record.message = decision.message
            if self.on_attempt is not None:
                self.on_attempt(SimulatedAttempt(self.now, record.attempts, decision))

    def _note(self, decision: Decision) -> None:
        record = self.records.get(decision.pod.uid)
        if record is None:
            return
        record.attempts += 1
        record.message = decision.message
        facts = self.scheduler.state.facts
        before = self._tried.get(decision.pod.uid)
        times = 1 + (before.times if before is not None and before.facts == facts else 0)
        self._tried[decision.pod.uid] = _Tried(self.scheduler.state.revision, facts, times)
        if self.on_attempt is not None:
            self.on_attempt(SimulatedAttempt(self.now, record.attempts, decision))


def _timestamp(seconds: float) -> str:
    """Simulated time as the API writes times: seconds since the run began, on the day that Unix time began."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"1970-01-{1 + days % 28:02}T{hour:02}:{minute:02}:{second:02}Z"
