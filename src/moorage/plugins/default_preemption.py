"""DefaultPreemption: evict pods of lower priority from the node where this does the least harm.

Reads     priority and preemptionPolicy of the pod; priority, start time and labels of placed pods; disruption budgets
Finds     a node to nominate the pod to, and the victims there; or the reason why preemption does not help
Gates     a pod whose victims are being evicted, until the evictions are done
Source    kube-scheduler 1.36, plugins/defaultpreemption/default_preemption.go; framework/preemption/*.go

What-ifs with the profile's Filter plugins decide whether the pod fits without the victims; see
``moorage.core.preemption.candidates``. The driver of the engine carries out the evictions. If it does so before the next
attempt, as in a simulation, the plugin never gates a pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from moorage.api.feature_gates import FeatureGates
from moorage.api.pod_groups import PodGroup
from moorage.api.requirements import aggregate
from moorage.api.workloads import PodDisruptionBudget
from moorage.core.cycle.group_preemption import Fits, group_victims
from moorage.core.extenders.consultation import Asking
from moorage.core.preemption.candidates import Candidate, PreemptionSearch, VictimRules, choose, find_candidates
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.core.preemption.row_importance import Ranking
from moorage.core.preemption.victim_units import Units
from moorage.errors import Fault
from moorage.framework import points
from moorage.framework.args import Int32, PluginArgs
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.post_filter import Consult
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Code, Hold, Status, Verdicts, fit_error
from moorage.state.pod_groups import group_key
from moorage.state.row_priorities import RowPriorities
from moorage.state.view import PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word: people search their events for them.
NEVER = "not eligible due to preemptionPolicy=Never."
VICTIMS_TERMINATING = "not eligible due to a terminating pod on the nominated node."
GROUPS_PREEMPT_TOGETHER = "not eligible due to workload aware preemption enabled"
GROUPS_ARE_PLACED = "not eligible due to placement-based pod group scheduling limitation"
NO_GROUP = "pod group for pod not found"
NO_CANDIDATE = "no candidate node for preemption"
UNDER_WAY = "waiting for the preemption for this pod to be finished"
UNDER_WAY_FOR_GROUP = "waiting for the preemption for this pod group to be finished"

POD_DELETED = ClusterEvent(Resource.POD, Action.DELETE)


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """How many candidates to look for: a percentage of the nodes that may help, and a minimum number."""

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        at = f"{path}." if path else ""
        share, least = f"{at}minCandidateNodesPercentage", f"{at}minCandidateNodesAbsolute"
        percentage, absolute = self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute
        found: list[Fault] = []
        if not 0 <= percentage <= 100:
            found.append(Fault("Invalid value", share, "not in valid range [0, 100]", percentage))
        if absolute < 0:
            found.append(Fault("Invalid value", least, "not in valid range [0, inf)", absolute))
        if percentage == 0 and absolute == 0:
            together = "cannot be zero at the same time as {}"
            found.append(Fault("Invalid value", share, together.format("minCandidateNodesAbsolute"), percentage))
            found.append(Fault("Invalid value", least, together.format("minCandidateNodesPercentage"), absolute))
        return found


def _signature(pod: PodInfo) -> points.Signature:
    return {
        "spec.priority": pod.priority,
        "spec.preemptionPolicy": pod.spec.preemption_policy,
        "spec.schedulingGroup": pod.spec.scheduling_group,
        "status.nominatedNodeName": pod.status.nominated_node_name,
    }


class DefaultPreemption(
    points.PreEnqueuePlugin,
    points.PostFilterPlugin,
    points.PodGroupPostFilterPlugin,
    points.EnqueueExtensions,
    points.Attachable,
    points.Reusable,
):
    name = "DefaultPreemption"
    Args = DefaultPreemptionArgs
    #: Whether pods that have not started rank as they came, rather than in reverse; and how budgets are counted.
    ranks_in_turn = False
    spends_first_budget_only = False
    reuse = points.Reuse(signature=_signature, signature_reads=())

    def __init__(self, args: DefaultPreemptionArgs | None = None) -> None:
        self._args = args or DefaultPreemptionArgs()
        self._gates = FeatureGates()
        self._is_async = self._for_groups = False
        self._handle: Handle | None = None
        self._ranking = Ranking(in_turn=self.ranks_in_turn)
        self._priorities = RowPriorities()

    def attach(self, handle: Handle) -> None:
        self._gates = handle.gates
        self._is_async, self._for_groups = handle.gates["SchedulerAsyncPreemption"], handle.gates["WorkloadAwarePreemption"]
        self._handle = handle

    def pre_enqueue(self, pod: PodInfo) -> Hold | None:
        if self._handle is None or not self._is_async:
            return None
        if self._for_groups and pod.spec.scheduling_group is not None:
            group = self._handle.snapshot.objects(PodGroup).get(group_key(pod) or "")
            under_way = group is not None and self._handle.evicting_for(group.metadata.uid)
            return Hold.because(UNDER_WAY_FOR_GROUP, unresolvable=True) if under_way else None
        return Hold.because(UNDER_WAY, unresolvable=True) if self._handle.evicting_for(pod.uid) else None

    def wakes_on(self) -> Iterator[Wake]:
        # This plugin rejects pods only at PreEnqueue. The plugins that the victims' deletion satisfies wake the pod.
        if self._gates["SchedulerAsyncPreemption"]:
            yield Wake(POD_DELETED, when=lambda pod, old, new: False, by_shape=True)

    def post_filter(self, pod: PodInfo, attempt: points.Attempt) -> points.PostFilterResult | Consult[Candidate]:
        why_not = self.ineligible(pod, attempt)
        if why_not:
            return points.PostFilterResult(Code.UNSCHEDULABLE, (f"preemption: {why_not}",))
        search = self.search(attempt)
        return self.nominate_best(pod, attempt, search.candidates) if search.candidates else _no_candidate(search)

    def nominate_best(
        self, pod: PodInfo, attempt: points.Attempt, candidates: Sequence[Candidate]
    ) -> points.PostFilterResult | Consult[Candidate]:
        """Nominate the pod to the candidate where preemption does the least harm, after the extenders have filtered them."""

        def choice(left: Sequence[Candidate]) -> points.PostFilterResult:
            if not left:
                return points.PostFilterResult(Code.UNSCHEDULABLE, (f"preemption: {NO_CANDIDATE}",))
            return self.nominate(pod, attempt, choose(left))

        return Consult(candidates, choice) if attempt.consults else choice(candidates)

    def nominate(self, pod: PodInfo, attempt: points.Attempt, best: Candidate) -> points.PostFilterResult:
        """Nominate the pod to the candidate's node and list the victims to evict there."""
        return points.PostFilterResult(
            Code.SUCCESS,
            nominated=attempt.snapshot.table.nodes[best.row].name,
            victims=self.to_evict(best),
            displaced=tuple(o for o in attempt.nominated(best.row) if o.priority < pod.priority and o.spec.containers),
        )

    def to_evict(self, best: Candidate) -> tuple[PodInfo, ...]:
        """Return the victims that are not being deleted already."""
        return tuple(victim for victim in best.victims.pods if not victim.terminating)

    def pod_group_post_filter(
        self, group: PodGroup, pods: Sequence[PodInfo], snapshot: Snapshot, fits: Fits
    ) -> Asking[tuple[PodInfo, ...] | Status]:
        """Return the victims for a group that does not fit, or why preemption does not help (gate WorkloadAwarePreemption).

        ``fits`` returns whether the group fits on the table as it stands. This method moves pods on the table and restores it.
        """
        return group_victims(group, pods, Units(snapshot, earliest=False), self.budgets(snapshot), fits)

    def budgets(self, snapshot: Snapshot) -> Budgets:
        """Return the disruption budgets of a cluster."""
        return Budgets(snapshot.objects(PodDisruptionBudget).values(), first_only=self.spends_first_budget_only)

    def search(self, attempt: points.Attempt) -> PreemptionSearch:
        """Find the nodes on which evicting pods would help."""
        args = self._args
        return self.candidates(attempt, args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute)

    def candidates(self, attempt: points.Attempt, percentage: int, absolute: int) -> PreemptionSearch:
        """Find nodes on which evicting pods would help, as many as these limits ask for; see ``find_candidates``."""
        return find_candidates(attempt, percentage, absolute, VictimRules(self.budgets(attempt.snapshot), self._ranking))

    def has_lesser(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Return whether any node has a pod of lower priority."""
        rows = np.arange(len(snapshot.table))
        return bool(self._ranking.have_lesser(snapshot.table, rows, pod.priority).any())

    def priorities(self, rows: Sequence[int], snapshot: Snapshot) -> set[int]:
        """Return the priorities of the pods on these rows."""
        return self._priorities.on(snapshot.table, rows)

    def may_help(self, pod: PodInfo, verdicts: Verdicts, snapshot: Snapshot) -> bool:
        """Return True if a node that is refused for reasons that eviction might resolve has a pod of lower priority."""
        rows = verdicts.rows_with(Code.UNSCHEDULABLE)
        return len(rows) > 0 and bool(self._ranking.have_lesser(snapshot.table, rows, pod.priority).any())

    def ineligible(self, pod: PodInfo, attempt: points.Attempt) -> str:
        """Return why the pod may not preempt; empty if it may.

        A pod that has already preempted waits for its victims to terminate, unless its nominated node is now unresolvable.
        Source  default_preemption.go, PostFilter and PodEligibleToPreemptOthers
        """
        if pod.spec.scheduling_group is not None and (why_not := self._ineligible_in_group(pod, attempt)):
            return why_not
        if pod.spec.preemption_policy == "Never":
            return NEVER
        row = attempt.snapshot.table.row_of.get(pod.status.nominated_node_name)
        if row is None:
            return ""
        status = attempt.verdicts.status(row)
        if status is not None and status.code is Code.UNRESOLVABLE:
            return ""
        on_node = attempt.snapshot.table.pods[row].values()
        leaving = any(other.priority < pod.priority and self.is_leaving(other) for other in on_node)
        return VICTIMS_TERMINATING if leaving else ""

    @staticmethod
    def is_leaving(other: PodInfo) -> bool:
        """Return whether a pod that preempted before waits for this pod of its nominated node to terminate."""
        return _was_preempted(other)

    def _ineligible_in_group(self, pod: PodInfo, attempt: points.Attempt) -> str:
        """Return why a pod of a group may not preempt by itself; empty if it may."""
        if self._gates["TopologyAwareWorkloadScheduling"]:
            group = attempt.snapshot.objects(PodGroup).get(group_key(pod) or "")
            if group is None:
                return NO_GROUP
            if group.spec.scheduling_constraints is not None:
                return GROUPS_ARE_PLACED
        return GROUPS_PREEMPT_TOGETHER if self._gates["WorkloadAwarePreemption"] else ""


def _was_preempted(pod: PodInfo) -> bool:
    """Return True for a terminating pod that a scheduler has preempted."""
    if not pod.terminating:
        return False
    disrupted = next((condition for condition in pod.status.conditions if condition.type == "DisruptionTarget"), None)
    return disrupted is not None and disrupted.status == "True" and disrupted.reason == "PreemptionByScheduler"


def _no_candidate(search: PreemptionSearch) -> points.PostFilterResult:
    """Report that no candidate was found, and clear an earlier nomination."""
    if search.errors:
        text = aggregate(search.errors)
        return points.PostFilterResult(Code.ERROR, (f"preemption: {text}",))
    return points.PostFilterResult(Code.UNSCHEDULABLE, (f"preemption: {fit_error(search.verdicts)}",), nominated="")
