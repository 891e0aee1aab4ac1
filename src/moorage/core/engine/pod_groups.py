"""Pod groups: their attempts, the binding or requeueing of their pods, and their condition (gate GenericWorkload).

When a pod of a group reaches the head of the queue, all waiting pods of the group leave the queue with it. ``GroupCycle``
finds a node for each of them that fits; a ``GroupAttempt`` then starts their binding cycles or requeues them.

Source  kube-scheduler, schedule_one_podgroup.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from moorage.api.devices import DeviceClass
from moorage.api.pod_groups import (
    POD_GROUP_INITIALLY_SCHEDULED,
    POD_GROUP_SCHEDULED,
    Condition,
    PodGroup,
    find_condition,
    with_condition,
)
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.engine.attempt import let_go
from moorage.core.engine.binding_cycle import BindingCycle
from moorage.core.engine.engine_state import EngineState
from moorage.core.engine.facts import Phase
from moorage.core.engine.failure_handler import FailureHandler, PreemptionExecutor
from moorage.core.engine.outbox import Decided, GroupAttempted
from moorage.core.extenders.consultation import Asking, without_asking
from moorage.core.groups.group_cycle import (
    SCHEDULED,
    UNSCHEDULABLE,
    WAITING,
    GroupCycle,
    GroupOutcome,
    GroupReport,
    MemberAttempt,
    PlacementWatch,
    QueuedGroup,
    refused,
)
from moorage.core.groups.group_tree_cycle import TreeCycle
from moorage.core.queue import QueuedPod
from moorage.errors import AttemptError, PluginError
from moorage.framework.effects import Effect, SetGroupCondition
from moorage.framework.placements import GroupInfo
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Status
from moorage.state.group_trees import GroupNode, tree_of
from moorage.state.pod_groups import group_key
from moorage.state.view import PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word.
DEALLOCATED: Final = "deallocation and deletion of ResourceClaims completed"
NO_PREEMPTION: Final = "default preemption plugin is not registered, workload aware preemption is disabled"
_ALL: Final = "all pods in a single pod group should have"
_FOUND: Final = "pod group preemption: found a placement for podgroup, preempting {} victims"
#: Filter plugins that look at one node alone, if the pod has no constraints towards others, and no volumes or claims.
_LOOK_AT_ONE_NODE: Final = frozenset([
    "DynamicResources", "InterPodAffinity", "NodeAffinity", "NodeDeclaredFeatures", "NodeName", "NodePorts", "NodeResourcesFit",
    "NodeUnschedulable", "NodeVolumeLimits", "PodTopologySpread", "TaintToleration", "VolumeBinding", "VolumeRestrictions",
    "VolumeZone",
])  # fmt: skip
_PREEMPTS: Final = "PreemptLowerPriority"
NOT_WITH_CONSTRAINTS: Final = "workload aware preemption is not supported for pod groups with scheduling constraints"


class GroupScheduler:
    """Takes the pods of a group out of the queue together, and schedules them together."""

    def __init__(
        self,
        state: EngineState,
        cycle: Cycle,
        binding_cycle: BindingCycle,
        failure_handler: FailureHandler,
        preemption: PreemptionExecutor,
    ) -> None:
        self.state = state
        self.cycle = cycle
        self.binding_cycle = binding_cycle
        self.failure_handler = failure_handler
        self.preemption = preemption
        #: What measures the placements of groups.
        self.watch: PlacementWatch | None = None

    def gather(self, first: QueuedPod, skip: Callable[[QueuedPod], bool]) -> list[QueuedPod]:
        """Take the other pods of a pod's group out of the queue.

        Returns the pods to schedule, by priority and then by age, without those for which ``skip`` returns True.
        """
        state = self.state
        snapshot = state.cluster.snapshot
        tree = tree_of(first.pod, snapshot) if state.gates.serves("CompositePodGroup") else None
        of_each = [snapshot.group_of(first.pod)] if tree is None else [*tree.pods(snapshot)]
        others = [pod for known in of_each if known is not None for pod in known.unscheduled if pod.uid != first.pod.uid]
        pods = [first, *(queued for pod in others if (queued := state.queue.pop_this(pod, state.now)) is not None)]
        pods.sort(key=lambda queued: (-queued.pod.priority, queued.initial_attempt or 0.0, queued.initial_order))
        pods = [queued for queued in pods if not skip(queued)]
        if not pods:
            state.queue.end_group(first.entry, Code.SUCCESS, state.now)
        return pods

    def attempt_for(self, pods: list[QueuedPod]) -> GroupAttempt:
        """Return the attempt for pods of one group. Pods that name different schedulers fail together."""
        names = [queued.pod.spec.scheduler_name for queued in pods]
        key, snapshot = group_key(pods[0].pod) or "/", self.state.cluster.snapshot
        if self.state.gates.serves("CompositePodGroup"):
            tree = tree_of(pods[0].pod, snapshot)
        else:
            known = snapshot.objects(PodGroup).get(key)
            tree = None if known is None else GroupNode(known)
        namespace, _, name = (key if tree is None else tree.group.key).partition("/")
        info = GroupInfo(namespace, name, tuple(queued.pod for queued in pods), tree)
        group = QueuedGroup(info, self.state.profiles[names[0]], tuple(pods))
        return GroupAttempt(self, group, _refusal_of(names))


class GroupAttempt:
    """An attempt to schedule the pods of one group. ``refusal`` is why it fails before it starts, or ""."""

    def __init__(self, groups: GroupScheduler, group: QueuedGroup, refusal: str) -> None:
        self._groups = groups
        self._state = groups.state
        self._group = group
        self._refusal = refusal
        self._settled = False
        self._placements: Mapping[str, int] = {}
        self._cost: list[int] = []

    @property
    def key(self) -> str:
        return self._group.info.key

    def run(self) -> Asking[None]:
        if self._refusal and not self._state.gates.emulated.groups_as_one:
            self._fail_all(self._refusal)
            return
        if self._state.gates.emulated.groups_as_one and (why := self._disagreement()):
            self._fail_all(why)
            for key in self._leaf_keys:
                self._set_condition(key, Status(Code.ERROR, "", (why,)))
            self._end(Code.ERROR)
            return
        outcome = yield from self._decide()
        for error in outcome.done_without:
            self._state.outbox.fault(error)
        self._settle(outcome)

    def run_alone(self) -> None:
        without_asking(self.run())

    def abort(self, fault: PluginError) -> None:
        for queued in () if self._settled else self._group.pods:
            let_go(queued, fault, self._state, self._groups.failure_handler)
        self._end(Code.ERROR)

    def cancel(self, why: str) -> None:
        for queued in self._group.pods:
            if self._state.queue.get(queued.pod.uid) is queued:
                self._groups.failure_handler.requeue(queued, Decision(queued.pod, error=AttemptError("", why)), "")
        self._end(Code.ERROR)

    def _end(self, code: Code) -> None:
        """Let the pods that failed wait together again, if their group is queued as one."""
        self._state.queue.end_group(self._group.pods[0].entry, code, self._state.now)

    @property
    def _leaf_keys(self) -> list[str]:
        tree = self._group.info.tree
        return [self.key] if tree is None else [leaf.key for leaf in tree.leaves()]

    def _fail_all(self, why: str) -> None:
        for queued in self._group.pods:
            if self._state.queue.get(queued.pod.uid) is queued:
                self._requeue(queued, Decision(queued.pod, error=AttemptError("", why)), "")

    def _disagreement(self) -> str:
        """Return in what a pod of the group, waiting or placed, differs from what all of them must share; "" if in nothing.

        Source  schedule_one_podgroup.go, validatePodGroup
        """
        info, snapshot = self._group.info, self._state.cluster.snapshot
        if info.tree is None:
            return f'podgroup.scheduling.k8s.io "{info.name}" not found'
        group, by_group = info.tree.group, self._state.gates["PodGroupPreemptionPolicy"]
        policy = (group.spec.preemption_policy if by_group else info.pods[0].spec.preemption_policy) or _PREEMPTS
        of_group = " as the pod group's preemption policy" if by_group else ""
        placed = (known.pod(uid) for known in info.tree.pods(snapshot) for uid in known.nodes)
        for pod in (*info.pods, *placed):
            if pod is None:
                continue
            own = pod.spec.preemption_policy or _PREEMPTS
            if pod.spec.scheduler_name != info.pods[0].spec.scheduler_name:
                return _refusal_of([info.pods[0].spec.scheduler_name, pod.spec.scheduler_name])
            if pod.priority != group.priority:
                shared = "the same priority as the pod group's priority"
                return f"{_ALL} {shared}, got {pod.priority} and {group.priority}"
            if own != policy:
                return f"{_ALL} the same preemption policy{of_group}, got {own} and {policy}"
        return ""

    # -- deciding --------------------------------------------------------------------------------------------------------

    def _decide(self) -> Asking[GroupOutcome]:
        state = self._state
        by_placement = state.gates["TopologyAwareWorkloadScheduling"]
        cycle = GroupCycle(
            self._group, self._groups.cycle, state.cluster, state.queue, by_placement, state.gates.emulated.groups_as_one,
            state.now, self._unreserve, state.outbox.fault, watch=self._groups.watch,
        )  # fmt: skip
        tree = self._group.info.tree
        attempt = cycle if tree is None or isinstance(tree.group, PodGroup) else TreeCycle(cycle, tree)
        self._placements = cycle.placements
        outcome = yield from attempt.run()
        outcome.preempting = tuple(cycle.preempting)
        before_preemption = outcome.status
        outcome.tried_as = before_preemption.code
        if state.gates["WorkloadAwarePreemption"] and outcome.status.code is Code.UNSCHEDULABLE:
            yield from self._preempt_for_group(attempt, outcome)
        for _, part in outcome.parts:
            part.untried, part.waiting, part.nominated = part.status, outcome.waiting, outcome.nominated
            if outcome.status.code is Code.ERROR:
                part.status = outcome.status
            else:
                for reason in outcome.status.reasons[len(before_preemption.reasons) :] * part.told:
                    part.status = _with_reason(part.status, reason)
        outcome.untried = before_preemption if state.gates.emulated.groups_as_one else outcome.status
        return outcome

    def _preempt_for_group(self, cycle: GroupCycle | TreeCycle, outcome: GroupOutcome) -> Asking[None]:
        """Search victims for the group as a whole and record the result in the outcome.

        Source  schedule_one_podgroup.go, runWorkloadAwarePreemption
        """
        found = yield from self._victims(cycle, outcome)
        if self._group.profile.pod_group_post_filter is not None:
            outcome.preempted = found.code if isinstance(found, Status) else Code.SUCCESS
        if not isinstance(found, Status):
            outcome.victims, outcome.waiting = found, True
            if self._state.gates.emulated.groups_as_one:
                outcome.status = _with_reason(outcome.status, _FOUND.format(len(found)))
        elif found.code is Code.ERROR:
            outcome.status = found
        else:
            if found.code is Code.UNSCHEDULABLE and self._deallocates:
                outcome.status = _with_reason(outcome.status, DEALLOCATED)
            outcome.status = _with_reason(outcome.status, found.message)
            if found.code is Code.SUCCESS:  # victims of an earlier attempt still terminate
                outcome.waiting = True
                outcome.nominated = {pod.uid: pod.status.nominated_node_name for pod in self._group.info.pods}

    @property
    def _deallocates(self) -> bool:
        """Return whether DynamicResources says before preemption that it has deallocated the claims of the group's pods.

        Source  kube-scheduler 1.37, dynamicresources.go, PodGroupPostFilter
        """
        tree, profile = self._group.info.tree, self._group.profile
        if tree is None or not isinstance(tree.group, PodGroup) or not self._state.gates.emulated.groups_as_one:
            return False
        by_topology = self._state.gates["TopologyAwareWorkloadScheduling"] and tree.group.topology_keys
        return not by_topology and any(step.name == "DynamicResources" for step in profile.at("postFilter"))

    def _victims(self, cycle: GroupCycle | TreeCycle, outcome: GroupOutcome) -> Asking[tuple[PodInfo, ...] | Status]:
        group, snapshot = self._group, self._state.cluster.snapshot
        step, as_one = group.profile.pod_group_post_filter, self._state.gates.emulated.groups_as_one
        if step is None:
            return Status(Code.UNSCHEDULABLE, "", (NO_PREEMPTION,))
        known = snapshot.objects(PodGroup).get(group.info.key) if group.info.tree is None else group.info.tree.group
        if known is None:
            missing = f'podgroup.scheduling.k8s.io "{group.info.name}" not found'
            return Status(Code.ERROR, "", (f"failed to get pod group object: {missing}",))
        if known.topology_keys and not as_one:
            return Status(Code.UNSCHEDULABLE, "", (NOT_WITH_CONSTRAINTS,))
        cycle.note_demands()

        fits = _Fitting(cycle, outcome, as_one, snapshot, group.profile)
        self._cost = fits.cost
        found: tuple[PodInfo, ...] | Status = yield from step.call(known, group.info.pods, snapshot, fits)
        return found

    def _unreserve(self, pod: PodInfo, node: str, effects: tuple[Effect, ...]) -> None:
        self._state.outbox.order(Phase.UNRESERVE, pod, node, effects)

    # -- settling --------------------------------------------------------------------------------------------------------

    def _settle(self, outcome: GroupOutcome) -> None:
        """Order the preemption, start binding cycles, requeue the other pods, and update the group's condition."""
        groups, group = self._groups, self._group
        for pod, result in outcome.preempting:  # before the pods are requeued, so that they wait for their preemption
            groups.failure_handler.displace(result)
            if result.victims or result.effects:
                groups.preemption.preempt(pod, result)
        if outcome.victims:
            groups.preemption.preempt_for_group(group.info, outcome.victims)
        settled = [(of, part, self._settle_part(of, part)) for of, part in outcome.parts or ((group, outcome),)]
        decisions = [decision for _, _, of_part in settled for decision in of_part]
        self._settled = True
        self._end(outcome.tried_as)
        groups.binding_cycle.settle_waits()
        for decision in decisions:
            held = self._state.bindings.held.get(decision.pod.uid)
            if held is not None and held.waits:
                groups.binding_cycle.publish(held)
        for at, (of, part, of_part) in enumerate(settled):
            self._set_condition(of.info.key, part.status)
            report = _report(of, part, of_part)
            if not at:
                report = self._of_all(report, outcome)
            self._state.outbox.put(GroupAttempted(report))

    def _of_all(self, report: GroupReport, outcome: GroupOutcome) -> GroupReport:
        """Return the first report of an attempt with what is said once for all groups of a tree."""
        tree, preempted = self._group.info.tree, outcome.preempted
        return replace(
            report,
            of_root=_result_of(outcome),
            placements=self._placements,
            preempted="" if preempted is None else preempted.value,
            victims=len(outcome.victims),
            preemptor="podgroup" if tree is None or isinstance(tree.group, PodGroup) else "compositepodgroup",
            **dict(zip(("disruptions", "violations"), self._cost, strict=False)),
        )

    def _settle_part(self, group: QueuedGroup, outcome: GroupOutcome) -> list[Decision]:
        """Start the binding cycles of a group's pods, or requeue them. Returns the decisions that were reported."""
        untried = (
            MemberAttempt(queued, Decision(queued.pod, group=outcome.untried)) for queued in group.pods[len(outcome.tried) :]
        )
        return [self._settle_pod(tried, outcome) for tried in (*outcome.tried, *untried)]

    def _settle_pod(self, tried: MemberAttempt, outcome: GroupOutcome) -> Decision:
        """Start the binding cycle of a pod, or requeue it. Returns the decision that was reported."""
        status, decision = outcome.status, tried.decision
        nominated = outcome.nominated.get(tried.queued.pod.uid) if outcome.waiting else None
        if status.code is Code.ERROR:
            if decision.code is not Code.ERROR or decision.group is not None:
                decision = Decision(tried.queued.pod, error=AttemptError("", status.message))
            return self._requeue(tried.queued, decision, "")
        if tried.fits:
            if status.code is Code.SUCCESS:
                publish = self._state.gates.emulated.groups_as_one
                return self._groups.binding_cycle.begin(tried.queued, self._group.profile, decision, publish=publish)
            if outcome.waiting:
                on = nominated if self._state.gates.emulated.groups_as_one else tried.node
                return self._requeue(tried.queued, replace(decision, node=None, group=status), on)
        if tried.fits or (tried.preempts and not outcome.waiting):
            why = refused(status) if self._state.gates.emulated.groups_as_one else _refusal(tried.permit)
            return self._requeue(tried.queued, replace(decision, node=None, group=why), "")
        result = decision.post_filter
        if result is not None:
            return self._requeue(tried.queued, decision, result.nominated)
        if nominated is not None:
            return self._requeue(tried.queued, decision, nominated)
        clears = decision.group is None and (decision.verdicts is None or decision.refused_after is not None)
        return self._requeue(tried.queued, decision, "" if clears else None)

    def _requeue(self, queued: QueuedPod, decision: Decision, nominated: str | None) -> Decision:
        self._state.outbox.put(Decided(decision))
        self._groups.failure_handler.requeue(queued, decision, nominated)
        return decision

    def _set_condition(self, key: str, status: Status) -> None:
        """Order the group's condition to be written if it changes. A group that was scheduled once stays so.

        Source  schedule_one_podgroup.go, updatePodGroupCondition
        """
        known = self._state.cluster.snapshot.objects(PodGroup).get(key)
        if known is None:
            missing = f'podgroup.scheduling.k8s.io "{key.partition("/")[2]}" not found'
            self._state.outbox.fault(AttemptError("", missing))
            return
        kind = POD_GROUP_INITIALLY_SCHEDULED if self._state.gates.emulated.groups_as_one else POD_GROUP_SCHEDULED
        condition = _condition_of(kind, status, known)
        held = find_condition(known, kind)
        if held is not None and held.status == "True" and condition.status != "True":
            return
        if with_condition(known, condition, None) is not known:
            effects = (SetGroupCondition(known, condition),)
            self._state.outbox.order(Phase.GROUP_STATUS, self._group.pods[0].pod, "", effects)


class _Fitting:
    """Tells whether a group fits the table as it stands: in 1.36 by trying it again each time.

    Since 1.37 it is tried once, and then asked whether its pods still fit the nodes that they got.
    """

    def __init__(
        self, cycle: GroupCycle | TreeCycle, outcome: GroupOutcome, as_one: bool, snapshot: Snapshot, profile: Profile
    ) -> None:
        self._cycle, self._outcome, self._as_one, self._table = cycle, outcome, as_one, snapshot.table
        self._placed: dict[int, list[MemberAttempt]] = {}
        #: How many groups are evicted as one, or pods of other groups, and how many victims violate a budget.
        self.cost: list[int] = []
        #: Whether the pods of the group may depend on what happens on nodes other than their own.
        self._looks_around = bool(snapshot.objects(DeviceClass)) or any(
            step.name not in _LOOK_AT_ONE_NODE for step in profile.at("filter")
        )

    def __call__(self) -> Asking[Status]:
        if self._placed:
            every = [one for of_row in self._placed.values() for one in of_row]
            return SCHEDULED if (yield from self._cycle.holds(every)) else UNSCHEDULABLE
        tried = yield from self._cycle.run(post_filter=False)
        if self._as_one and tried.status.code is Code.SUCCESS:
            for one in tried.tried:
                if one.node is not None:
                    self._placed.setdefault(self._table.row_of.get(one.node, -1), []).append(one)
                    self._outcome.nominated[one.queued.pod.uid] = one.node
                    self._looks_around |= not _is_plain(one.queued.pod)
        return tried.status

    def beside(self, came_back: Iterable[tuple[int, PodInfo]]) -> Asking[Status]:
        """Return the same as a call, if the group fitted before these pods came back to the table."""
        back = list(came_back)
        if not self._placed or self._looks_around or any(pod.required_anti_affinity for _, pod in back):
            return (yield from self())
        for row in {row for row, _ in back} & self._placed.keys():
            if not (yield from self._cycle.holds(self._placed[row])):
                return UNSCHEDULABLE
        return SCHEDULED


def _is_plain(pod: PodInfo) -> bool:
    """Return True for a pod whose fit on a node depends on no other node."""
    return not (pod.has_affinity or pod.spec.topology_spread_constraints or pod.spec.resource_claims or pod.volumes is not None)


def _refusal_of(schedulers: list[str]) -> str:
    """Return why pods that name these schedulers cannot be placed together; "" if they name one."""
    other = next((name for name in schedulers if name != schedulers[0]), None)
    if other is None:
        return ""
    return f'all pods in a single pod group should have the same .spec.schedulerName set, got: "{other}" and "{schedulers[0]}"'


def _refusal(permit: Status | None) -> Status:
    """Return the status of a pod that found a node while its group did not."""
    text = permit.message if permit is not None else ""
    return Status(Code.UNSCHEDULABLE, "", (WAITING.reasons[0], text))


def _report(group: QueuedGroup, outcome: GroupOutcome, decisions: Iterable[Decision]) -> GroupReport:
    scheduled = sum(decision.node is not None for decision in decisions)
    return GroupReport(
        group.info.key,
        group.profile.scheduler_name,
        _result_of(outcome),
        outcome.status.message,
        scheduled,
        len(group.pods) - scheduled,
        sum(tried.node is not None for tried in outcome.tried),
    )


def _result_of(outcome: GroupOutcome) -> str:
    if outcome.status.code is Code.SUCCESS:
        return "scheduled"
    if outcome.status.code is Code.ERROR:
        return "error"
    return "waiting_on_preemption" if outcome.waiting else "unschedulable"


def _with_reason(status: Status, reason: str) -> Status:
    return Status(status.code, status.plugin, (*status.reasons, reason))


def _condition_of(kind: str, status: Status, group: PodGroup) -> Condition:
    generation = group.metadata.generation
    if status.code is Code.SUCCESS:
        return Condition(type=kind, status="True", reason="Scheduled", observed_generation=generation)
    reason = "SchedulerError" if status.code is Code.ERROR else "Unschedulable"
    return Condition(type=kind, status="False", reason=reason, message=status.message, observed_generation=generation)
