"""The scheduler as one machine: facts in, decisions out. No I/O, no clock, no threads.

``observe`` takes in what happened, ``step`` makes one attempt for the pod whose turn it is, ``take_work`` hands out what has to
be done to the world. The asyncio loop and the simulator drive this same object; only they know what time it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from moorage.api.core import Namespace, Node, Pod
from moorage.api.durations import format_duration
from moorage.api.meta import Value
from moorage.cycle.cycle import Cycle
from moorage.cycle.decision import Decision
from moorage.engine.binding import Binding, bind_effects, permit, pre_bind_effects, reserve, unreserve
from moorage.engine.facts import Done, Fact, Gone, Phase, Work
from moorage.engine.pod_reading import pod_reader
from moorage.errors import PluginError
from moorage.framework.effects import Effect, Evict
from moorage.framework.events import ClusterEvent
from moorage.framework.features import FeatureGates
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import Profile
from moorage.framework.registry import WaitingPod
from moorage.framework.verdicts import Code, Status
from moorage.queue import (
    ASSIGNED_POD_DELETE,
    QueuedPod,
    QueueProfile,
    SchedulingQueue,
    assigned_pod_events,
    node_events,
    object_events,
)
from moorage.state.cluster import Cluster, Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["Scheduler"]


class Scheduler:
    """Queue, cluster and cycle for a set of profiles.

    ``profiles`` may be given after construction, because plugins want the scheduler as their handle. Times are seconds on
    any clock that never goes back; the same one for every call.
    """

    def __init__(self, cycle: Cycle, gates: FeatureGates) -> None:
        self.cycle = cycle
        self.gates = gates
        self._read = pod_reader(gates)
        self.cluster = Cluster()
        self.now = 0.0
        self.profiles: Mapping[str, Profile] = {}
        self.queue: SchedulingQueue
        #: Plugins that raised in hints or PreEnqueue, oldest first; whoever drives the engine may empty it.
        self.faults: list[PluginError] = []
        #: Grows with every change of the state: two attempts at the same revision come to the same decision.
        self.revision = 0
        #: Grows with every fact: unlike ``revision``, not with what the scheduler assumes and takes back.
        self.facts = 0
        self._bindings: dict[str, Binding] = {}
        self._by_ticket: dict[int, tuple[Phase, str]] = {}
        self._work: list[Work] = []
        self._revoked: list[Decision] = []
        self._evicting: dict[int, str] = {}
        self._tickets = 0

    # -- what plugins may reach (framework.registry.Handle) --------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        return self.cluster.snapshot

    def waiting(self) -> Iterator[WaitingPod]:
        """Yield the pods that Permit holds, in the order they came."""
        yield from [binding for binding in self._bindings.values() if binding.waits]

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move pending pods to the active queue."""
        self.queue.activate(pods, self.now)

    def evicting_for(self, uid: str) -> bool:
        """True while evictions that this pod asked for are under way."""
        return uid in self._evicting.values()

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
        sort_key = next(iter(profiles.values())).at("queueSort")[0].call
        self.queue = SchedulingQueue(
            sort_key,
            {name: QueueProfile.of(profile) for name, profile in profiles.items()},
            on_fault=self.faults.append,
            initial_backoff_s=initial_backoff_s,
            max_backoff_s=max_backoff_s,
            max_unschedulable_s=max_unschedulable_s,
            gates=self.gates,
        )

    # -- facts in -----------------------------------------------------------------------------------------------------

    def observe(self, fact: Fact, now: float) -> None:
        """Take in one fact."""
        self.now = now
        if isinstance(fact, Done):
            self._done(fact)
            return
        self.revision += 1
        self.facts += 1
        obj = fact.obj
        if isinstance(obj, Pod):
            finished = obj.status.phase in {"Succeeded", "Failed"}
            if isinstance(fact, Gone) or finished:
                self._pod_gone(obj)
            else:
                self._pod_seen(PodInfo(self._read(obj)))
        elif isinstance(obj, Node):
            self._node(obj, gone=isinstance(fact, Gone))
        elif isinstance(fact, Gone):
            self._tell(object_events(old := self._drop(obj), None), old, None)
        else:
            self._tell(object_events(old := self._keep(obj), obj), old, obj)

    def _keep(self, obj: Value) -> Value | None:
        if isinstance(obj, Namespace):
            return self.cluster.set_namespace(obj)
        return self.cluster.set_object(obj)

    def _drop(self, obj: Value) -> Value | None:
        if isinstance(obj, Namespace):
            return self.cluster.remove_namespace(obj.metadata.name)
        return self.cluster.remove_object(obj)

    def _tell(self, events: Iterable[ClusterEvent], old: object, new: object) -> None:
        for event in events:
            self.queue.event(event, old, new, self.now)

    def _node(self, node: Node, *, gone: bool) -> None:
        old = self.cluster.remove_node(node.name) if gone else self.cluster.set_node(node)
        new = None if gone else node
        if old is not None or new is not None:
            self._tell(node_events(old, new, self.gates), old, new)

    def _pod_seen(self, pod: PodInfo) -> None:
        if pod.spec.node_name:
            self._placed(pod)
        elif pod.spec.scheduler_name in self.profiles:
            self._pending(pod)

    def _placed(self, pod: PodInfo) -> None:
        """A pod is on a node: ours confirmed, somebody else's, or one that changed where it is."""
        self._bindings.pop(pod.uid, None)
        self.queue.delete(pod, self.now, bound=True)
        was_assumed = self.cluster.is_assumed(pod.uid)
        before = self.cluster.place(pod, pod.spec.node_name)
        if was_assumed:
            before = None
        self._tell(assigned_pod_events(before, pod, self.gates), before, pod)

    def _pending(self, pod: PodInfo) -> None:
        if self.cluster.is_assumed(pod.uid):
            if pod.terminating:
                self._assumed_deleted(pod.uid)
            return
        known = self.queue.get(pod.uid)
        if known is None:
            self.queue.add(pod, self.now)
        else:
            self.queue.update(known.pod, pod, self.now)

    def _pod_gone(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if self.cluster.is_assumed(uid):
            self._assumed_deleted(uid)
            return
        placed = self.cluster.remove_pod(uid)
        if placed is not None:
            self._tell([ASSIGNED_POD_DELETE], placed, None)
        self.queue.delete(PodInfo(pod), self.now)

    def _assumed_deleted(self, uid: str) -> None:
        """A pod was deleted on its way to its node: free the room at once, whatever is still under way."""
        binding = self._bindings.pop(uid, None)
        node = self.cluster.node_of(uid)
        pod = self.cluster.forget(uid)
        if binding is not None:
            self.queue.done(uid)
            unreserve(binding)
        if pod is not None and node is not None:
            self.queue.event(ASSIGNED_POD_DELETE, pod.on(node), None, self.now)

    # -- one attempt --------------------------------------------------------------------------------------------------

    def step(self, now: float) -> Decision | None:
        """Make one attempt for the pod whose turn it is. Returns None if no pod is ready.

        Also lets waits that ended go on or give up, and wakes what is due.
        """
        self.now = now
        self._settle_waits()
        self.queue.tick(now)
        queued = self.queue.pop(now)
        while queued is not None and (queued.pod.terminating or self.cluster.node_of(queued.pod.uid) is not None):
            self.queue.done(queued.pod.uid)
            queued = self.queue.pop(now)
        if queued is None:
            return None
        profile = self.profiles[queued.pod.spec.scheduler_name]
        decision = self.cycle.decide(profile, queued.pod, self.cluster.snapshot, self.queue.nominated)
        if decision.node is None:
            self._failed(queued, decision)
            return decision
        return self._commit(queued, profile, decision)

    def next_deadline(self) -> float | None:
        """Return when ``step`` could have something to do although no fact came; None if never."""
        deadlines = [binding.deadline for binding in self._bindings.values() if binding.waits]
        due = self.queue.next_deadline(self.now)
        return min([*deadlines, *([] if due is None else [due])], default=None)

    def take_work(self) -> list[Work]:
        """Hand over what has to be done, oldest first."""
        work, self._work = self._work, []
        return work

    def take_revoked(self) -> list[Decision]:
        """Hand over decisions that came to nothing after ``step`` returned them: a wait in vain, a failed binding."""
        revoked, self._revoked = self._revoked, []
        return revoked

    def _commit(self, queued: QueuedPod, profile: Profile, decision: Decision) -> Decision:
        """Assume, Reserve, Permit; then bind, wait, or give up. Returns the decision as it turned out."""
        node = decision.node
        assert node is not None
        binding = Binding(queued, profile, decision, node)
        self.cluster.assume(queued.pod, node)
        self.queue.end_nomination(queued.pod.uid)
        self.revision += 1
        status = reserve(binding) or permit(binding, self.now)
        if status is not None:
            return self._back_out(binding, status)
        self._bindings[queued.pod.uid] = binding
        if not binding.waits:
            self._pre_bind(binding)
        return decision

    def _settle_waits(self) -> None:
        for binding in [b for b in self._bindings.values() if b.waits or b.ticket is None]:
            if binding.ticket is not None:
                continue
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
        for binding in list(self._bindings.values()):
            if binding.waits:
                binding.reject(binding.pending[0], f"still waiting at plugin {binding.pending[0]} when the run ended")
        self._settle_waits()

    # -- binding ------------------------------------------------------------------------------------------------------

    def _pre_bind(self, binding: Binding) -> None:
        self.queue.done(binding.pod.uid)
        effects = pre_bind_effects(binding)
        if isinstance(effects, Status):
            self._give_up(binding, effects)
        elif effects:
            self._ask_for(Phase.PRE_BIND, binding, effects)
        else:
            self._bind(binding)

    def _bind(self, binding: Binding) -> None:
        effects = bind_effects(binding)
        if isinstance(effects, Status):
            self._give_up(binding, effects)
        else:
            self._ask_for(Phase.BIND, binding, effects)

    def _ask_for(self, phase: Phase, binding: Binding, effects: tuple[Effect, ...]) -> None:
        binding.ticket = self._order(phase, binding.pod, binding.node, effects)
        self._by_ticket[binding.ticket] = (phase, binding.pod.uid)

    def _order(self, phase: Phase, pod: PodInfo, node: str, effects: tuple[Effect, ...] = ()) -> int:
        self._tickets += 1
        self._work.append(Work(self._tickets, phase, pod, node, effects))
        return self._tickets

    def _done(self, fact: Done) -> None:
        if self._evicting.pop(fact.ticket, None) is not None:
            return
        phase, uid = self._by_ticket.pop(fact.ticket, (None, ""))
        binding = self._bindings.get(uid)
        if phase is None or binding is None or binding.ticket != fact.ticket:
            return
        if fact.error is not None:
            self._give_up(binding, Status(Code.ERROR, "", (fact.error,)))
        elif phase is Phase.PRE_BIND:
            self._bind(binding)
        else:
            self._bound(binding)

    def _bound(self, binding: Binding) -> None:
        del self._bindings[binding.pod.uid]
        for step in binding.profile.at("postBind"):
            try:
                step.call(binding.state_of(step), binding.pod, binding.node)
            except Exception as error:
                raise PluginError(step.name, f"failed in postBind: {type(error).__name__}: {error}") from error

    def _give_up(self, binding: Binding, status: Status) -> None:
        self._bindings.pop(binding.pod.uid, None)
        self._revoked.append(self._back_out(binding, status))

    def _back_out(self, binding: Binding, status: Status) -> Decision:
        """Take back the assumption, wake those who may use the room, and put the pod back in the queue."""
        unreserve(binding)
        self.cluster.forget(binding.pod.uid)
        self.revision += 1
        failed = replace(binding.decision, node=None, refused_after=status)
        pod = binding.pod.on(binding.node)
        if status.code.is_rejection:
            self._failed(binding.queued, failed)
            self.queue.event(ASSIGNED_POD_DELETE, pod, None, self.now, lambda other: other.uid != pod.uid)
        else:
            self.queue.event(ASSIGNED_POD_DELETE, pod, None, self.now)
            self._failed(binding.queued, failed)
        return failed

    # -- failure ------------------------------------------------------------------------------------------------------

    def _failed(self, queued: QueuedPod, decision: Decision) -> None:
        """Put the pod back where it belongs, and see to nomination and victims."""
        self.queue.requeue(queued, self.now, rejected_by=decision.rejected_by, pending_on=decision.pending_on)
        outcome = decision.post_filter
        for other in outcome.displaced if outcome is not None else ():
            self._nominate(other, "")
        nominated = outcome.nominated if outcome is not None else "" if self._clears_nomination(decision) else None
        if nominated is not None:
            self._nominate(queued.pod, nominated)
        if outcome is not None and (outcome.victims or outcome.effects):
            self._preempt(queued.pod, outcome)

    def _nominate(self, pod: PodInfo, node: str) -> None:
        """Keep room for a pod on a node, or ("") no longer; and let the API know."""
        had = self.queue.nomination(pod.uid) or pod.status.nominated_node_name
        self.queue.nominate(pod, node)
        if node or had:
            self._order(Phase.NOMINATE, pod, node)

    def _preempt(self, pod: PodInfo, outcome: PostFilterResult) -> None:
        """Send victims away. One that Permit still holds on its node just gives it up."""
        scheduler = pod.spec.scheduler_name
        evictions: list[Effect] = []
        for victim in outcome.victims:
            held = self._bindings.get(victim.uid)
            if held is not None and held.ticket is None:
                held.reject("DefaultPreemption", "preempted")
            else:
                evictions.append(Evict(victim, pod, f"{scheduler}: preempting to accommodate a higher priority pod"))
        effects = (*outcome.effects, *evictions)
        if effects:
            self._evicting[self._order(Phase.PREEMPT, pod, outcome.nominated or "", effects)] = pod.uid

    @staticmethod
    def _clears_nomination(decision: Decision) -> bool:
        return decision.error is not None or decision.verdicts is None or decision.refused_after is not None
