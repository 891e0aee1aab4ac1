"""From a pod group's attempt to what becomes of each of its pods, and of the group's condition.

When the turn of a pod comes that names a group, all pods of the group that wait are taken out of the queue with it. The attempt
(see ``group_cycle``) says who could go where; here they are sent there, or back to the queue with the reason why.

Source  kube-scheduler, schedule_one_podgroup.go
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from moorage.api.pod_groups import POD_GROUP_SCHEDULED, Condition, PodGroup, find_condition, with_condition
from moorage.cycle.cycle import Cycle
from moorage.cycle.decision import Decision
from moorage.cycle.extenders import Asking
from moorage.engine.binding_cycle import Binding
from moorage.engine.preemption_executor import Evicting
from moorage.engine.facts import Phase
from moorage.engine.group_cycle import GroupCycle
from moorage.engine.group_outcome import WAITING, GroupOutcome, GroupReport, QueuedGroup, Tried
from moorage.errors import AttemptError, MoorageError
from moorage.framework.effects import Effect, SetGroupCondition
from moorage.framework.features import FeatureGates
from moorage.framework.placements import GroupInfo
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Status
from moorage.queue import QueuedPod
from moorage.state.pod_groups import group_key
from moorage.state.pod_info import PodInfo

__all__ = ["Grouping"]

# kube-scheduler's own texts, kept word for word.
NO_PREEMPTION: Final = "default preemption plugin is not registered, workload aware preemption is disabled"
NOT_WITH_CONSTRAINTS: Final = "workload aware preemption is not supported for pod groups with scheduling constraints"


class Grouping(Evicting):
    """The part of the scheduler that deals with pod groups (gate GenericWorkload)."""

    cycle: Cycle
    faults: list[MoorageError]
    skipped: list[PodInfo]

    def __init__(self, gates: FeatureGates) -> None:
        super().__init__(gates)
        #: Attempts for groups; whoever drives the engine may empty it.
        self.groups: list[GroupReport] = []
        #: What became of the pods of the group that was tried last, as far as it was not told yet.
        self._decided: deque[Decision] = deque()

    @abstractmethod
    def _commit(self, queued: QueuedPod, profile: Profile, decision: Decision, *, expects: bool = True) -> Decision: ...
    @abstractmethod
    def _settle_waits(self) -> None: ...
    @abstractmethod
    def _expect(self, binding: Binding) -> None: ...
    @abstractmethod
    def _nominate(self, pod: PodInfo, node: str | None, *, was_told: bool = False) -> None: ...

    def _displace(self, outcome: PostFilterResult) -> None:
        """End the nominations of those who have to make room. Where all victims are going already, nothing is begun.

        Source  framework/preemption/executor.go, prepareCandidateAsync
        """
        if outcome.victims or not self.gates["SchedulerAsyncPreemption"]:
            for other in outcome.displaced:
                self._nominate(other, "")

    @property
    def is_telling(self) -> bool:
        """True while there is more to tell of what became of a group's pods: the next steps do."""
        return bool(self._decided)

    # -- whose turn it is ---------------------------------------------------------------------------------------------

    def _skips(self, queued: QueuedPod) -> bool:
        """Pass over a pod that is being deleted, or that is assumed already. Returns False for any other."""
        if not queued.pod.terminating and self.cluster.node_of(queued.pod.uid) is None:
            return False
        if queued.pod.terminating:
            self.skipped.append(queued.pod)
            self.queue.pass_over(queued.pod.uid)
        else:
            self.queue.done(queued.pod.uid)
        return True

    def _gathered(self, first: QueuedPod) -> list[QueuedPod]:
        """Take the others of a pod's group out of the queue. Returns those that are to be placed, in order."""
        known = self.cluster.snapshot.group_of(first.pod)
        others = [] if known is None else [pod for pod in known.unscheduled if pod.uid != first.pod.uid]
        pods = [first, *(queued for pod in others if (queued := self.queue.pop_this(pod, self.now)) is not None)]
        pods.sort(key=lambda queued: (-queued.pod.priority, queued.initial_attempt or 0.0, queued.initial_order))
        return [queued for queued in pods if not self._skips(queued)]

    def _group_of(self, pods: list[QueuedPod]) -> QueuedGroup | str:
        """Return the group of the pods; if they do not go together, why not."""
        names = [queued.pod.spec.scheduler_name for queued in pods]
        other = next((name for name in names if name != names[0]), None)
        if other is not None:
            return (
                f'all pods in a single pod group should have the same .spec.schedulerName set, got: "{other}" and "{names[0]}"'
            )
        namespace, _, name = (group_key(pods[0].pod) or "/").partition("/")
        info = GroupInfo(namespace, name, tuple(queued.pod for queued in pods))
        return QueuedGroup(info, self.profiles[names[0]], tuple(pods))

    def _group_attempt(self, group: QueuedGroup) -> Asking[GroupOutcome]:
        by_placement = self.gates["TopologyAwareWorkloadScheduling"]
        attempt = GroupCycle(
            group, self.cycle, self.cluster, self.queue, by_placement, self.now, self._undo_reserved, self.faults.append
        )
        outcome = yield from attempt.run()
        outcome.preempting = tuple(attempt.preempting)
        if self.gates["WorkloadAwarePreemption"] and outcome.status.code is Code.UNSCHEDULABLE:
            yield from self._make_room(group, attempt, outcome)
        return outcome

    def _make_room(self, group: QueuedGroup, attempt: GroupCycle, outcome: GroupOutcome) -> Asking[None]:
        """Look for victims for the group as a whole, and note in the outcome what came of it.

        Source  schedule_one_podgroup.go, runWorkloadAwarePreemption
        """
        found = yield from self._victims(group, attempt)
        if not isinstance(found, Status):
            outcome.victims, outcome.waiting = found, True
        elif found.code is Code.ERROR:
            outcome.status = found
        else:
            status = outcome.status
            outcome.status = Status(status.code, status.plugin, (*status.reasons, found.message))

    def _victims(self, group: QueuedGroup, attempt: GroupCycle) -> Asking[tuple[PodInfo, ...] | Status]:
        plugin = group.profile.plugins.get("DefaultPreemption")
        look_for = getattr(plugin, "pod_group_post_filter", None)
        if look_for is None:
            return Status(Code.UNSCHEDULABLE, "", (NO_PREEMPTION,))
        known = self.cluster.snapshot.objects(PodGroup).get(group.info.key)
        if known is None:
            missing = f'podgroup.scheduling.k8s.io "{group.info.name}" not found'
            return Status(Code.ERROR, "", (f"failed to get pod group object: {missing}",))
        if known.topology_keys:
            return Status(Code.UNSCHEDULABLE, "", (NOT_WITH_CONSTRAINTS,))

        attempt.note_demands()

        def fits() -> Asking[Status]:
            return (yield from attempt.run(post_filter=False)).status

        found: tuple[PodInfo, ...] | Status = yield from look_for(known, group.info.pods, self.cluster.snapshot, fits)
        return found

    def _undo_reserved(self, pod: PodInfo, node: str, effects: tuple[Effect, ...]) -> None:
        self._order(Phase.UNRESERVE, pod, node, effects)

    # -- what becomes of it -------------------------------------------------------------------------------------------

    def _settle_group(self, group: QueuedGroup, outcome: GroupOutcome) -> None:
        """Do what the outcome says; what became of each pod is told by the next steps."""
        for pod, wanted in outcome.preempting:  # before the pods come back, so that they wait until it is done
            self._displace(wanted)
            if wanted.victims or wanted.effects:
                self._preempt(pod, wanted)
        if outcome.victims:
            self._preempt_for_group(group.info, outcome.victims)
        missing = (Tried(queued, Decision(queued.pod, group=outcome.status)) for queued in group.pods[len(outcome.tried) :])
        decisions = [self._settle_member(one, group, outcome) for one in (*outcome.tried, *missing)]
        self._decided.extend(decisions)
        self._settle_waits()
        for decision in decisions:
            held = self._held.get(decision.pod.uid)
            if held is not None and held.waits:
                self._expect(held)
        self._tell_condition(group, outcome.status)
        scheduled = sum(decision.node is not None for decision in decisions)
        result = _result_of(outcome)
        message = outcome.status.message
        could_go = sum(one.node is not None for one in outcome.tried)
        key, profile = group.info.key, group.profile.scheduler_name
        self.groups.append(GroupReport(key, profile, result, message, scheduled, len(decisions) - scheduled, could_go))

    def _settle_member(self, one: Tried, group: QueuedGroup, outcome: GroupOutcome) -> Decision:
        """Send a pod on its way to its node, or back to the queue. Returns the decision as it turned out."""
        status, decision = outcome.status, one.decision
        if status.code is Code.ERROR:
            if decision.code is not Code.ERROR or decision.group is not None:
                decision = Decision(one.queued.pod, error=AttemptError("", status.message))
            return self._back_in_queue(one.queued, decision, "")
        if one.fits:
            if status.code is Code.SUCCESS:
                return self._commit(one.queued, group.profile, decision, expects=False)
            if outcome.waiting:
                return self._back_in_queue(one.queued, replace(decision, node=None, group=status), one.node)
        if one.fits or (one.preempts and not outcome.waiting):
            return self._back_in_queue(one.queued, replace(decision, node=None, group=_refusal(one.permit)), "")
        wanted = decision.post_filter
        if wanted is not None:
            return self._back_in_queue(one.queued, decision, wanted.nominated)
        clears = decision.group is None and (decision.verdicts is None or decision.refused_after is not None)
        return self._back_in_queue(one.queued, decision, "" if clears else None)

    def _back_in_queue(self, queued: QueuedPod, decision: Decision, nominated: str | None) -> Decision:
        queued.tried_at = self.revision
        back = self.queue.requeue(queued, self.now, rejected_by=decision.rejected_by, pending_on=decision.pending_on)
        if back is not None:
            self._nominate(queued.pod, nominated)
        return decision

    def _fail_all(self, pods: Iterable[QueuedPod], why: str) -> None:
        """Put the pods of a group back that was not tried to an end."""
        for queued in pods:
            if self.queue.get(queued.pod.uid) is queued:
                decision = Decision(queued.pod, error=AttemptError("", why))
                self._decided.append(self._back_in_queue(queued, decision, ""))

    # -- the group's condition ----------------------------------------------------------------------------------------

    def _tell_condition(self, group: QueuedGroup, status: Status) -> None:
        """Have the group's condition written, if it says something new. A group once scheduled stays so.

        Source  schedule_one_podgroup.go, updatePodGroupCondition
        """
        known = self.cluster.snapshot.objects(PodGroup).get(group.info.key)
        if known is None:
            self.faults.append(AttemptError("", f'podgroup.scheduling.k8s.io "{group.info.name}" not found'))
            return
        condition = _condition_of(status, known)
        held = find_condition(known, POD_GROUP_SCHEDULED)
        if held is not None and held.status == "True" and condition.status != "True":
            return
        if with_condition(known, condition, None) is not known:
            self._order(Phase.GROUP_STATUS, group.pods[0].pod, "", (SetGroupCondition(known, condition),))


def _refusal(permit: Status | None) -> Status:
    """What a pod is told that could have gone somewhere, had there been enough of its group."""
    said = permit.message if permit is not None else ""
    return Status(Code.UNSCHEDULABLE, "", (WAITING.reasons[0], said))


def _result_of(outcome: GroupOutcome) -> str:
    if outcome.status.code is Code.SUCCESS:
        return "scheduled"
    if outcome.status.code is Code.ERROR:
        return "error"
    return "waiting_on_preemption" if outcome.waiting else "unschedulable"


def _condition_of(status: Status, group: PodGroup) -> Condition:
    generation = group.metadata.generation
    if status.code is Code.SUCCESS:
        return Condition(type=POD_GROUP_SCHEDULED, status="True", reason="Scheduled", observed_generation=generation)
    reason = "SchedulerError" if status.code is Code.ERROR else "Unschedulable"
    return Condition(
        type=POD_GROUP_SCHEDULED, status="False", reason=reason, message=status.message, observed_generation=generation
    )
