"""The scheduling cycle of a pod group: its pods are tried on one state of the cluster, each with the earlier ones placed.

The pods are tried in order. A pod that finds a node is assumed and reserved there, so that the next pod takes it into account;
Permit decides whether enough pods fit; since 1.37 PlacementFeasible does, before the first pod and after each. When all pods
have been tried, this is undone: an attempt changes nothing. The caller then binds the pods, or returns them to the queue.

With topology constraints (gate TopologyAwareWorkloadScheduling) the pods are tried on each placement, and the best is used.

Source  kube-scheduler, schedule_one_podgroup.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as with_fields
from functools import lru_cache
from typing import Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from moorage.api.pod_groups import PodGroup
from moorage.core.binding.binding import Binding
from moorage.core.binding.binding_plugins import permit, reserve, unreserve
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.cycle_input import CycleInput
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.search import EVERYWHERE, SearchScope, draw_by_name
from moorage.core.extenders.consultation import Asking
from moorage.core.queue import SchedulingQueue
from moorage.core.queue.queued_pod import QueuedPod
from moorage.errors import PluginError
from moorage.framework.effects import Effect
from moorage.framework.placements import GroupInfo, Placement, Proposal, run_placement_generate, run_placement_score
from moorage.framework.plugin_runner import ask
from moorage.framework.post_filter import PostFilterResult
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Status
from moorage.state.cluster import ClusterState
from moorage.state.view import NodeView, PodInfo

# The pods and the result of one attempt to place a pod group.
#
# Source  kube-scheduler, schedule_one_podgroup.go, algorithmResult and podGroupAlgorithmResult

# kube-scheduler's own texts, kept word for word.
_UNSCHEDULABLE: Final = "pod group is unschedulable"
UNSCHEDULABLE: Final = Status(Code.UNSCHEDULABLE, "", (_UNSCHEDULABLE,))
WAITING: Final = Status(Code.UNSCHEDULABLE, "", (_UNSCHEDULABLE, "pod group is waiting for preemption to complete"))
SCHEDULED: Final = Status(Code.SUCCESS)


def refused(status: Status) -> Status:
    """Return the status of a group that is refused for the reasons of ``status``."""
    return Status(Code.UNSCHEDULABLE, status.plugin, (_UNSCHEDULABLE, *status.reasons))


class QueuedGroup(Struct, eq=False):
    """The pods of one group that are to be placed together, in the order they are tried."""

    info: GroupInfo
    profile: Profile
    pods: tuple[QueuedPod, ...]


@lru_cache(maxsize=64)
def _without_filters(profile: Profile, idle: frozenset[str]) -> Profile:
    """Return the profile without these plugins at PreFilter and Filter."""
    steps = {
        point: tuple(step for step in at if step.name not in idle) if point in {"preFilter", "filter"} else at
        for point, at in profile.steps.items()
    }
    return with_fields(profile, steps=steps)


class MemberAttempt(Struct, eq=False):
    """The result for one pod of a group.

    ``node``      a node that the pod fits on; None if there is none
    ``preempts``  the pod fits there only after victims are deleted
    ``permit``    Permit's answer for that node: SUCCESS, or WAIT with reasons; None if Permit did not run, or rejected the pod
    """

    queued: QueuedPod
    decision: Decision
    node: str | None = None
    preempts: bool = False
    permit: Status | None = None

    @property
    def fits(self) -> bool:
        """True if the pod can be bound to its node at once."""
        return self.node is not None and not self.preempts


class GroupOutcome(Struct, eq=False):
    """The result of an attempt to schedule a pod group.

    ``tried``      attempts in the order of the pods; fewer if the group's attempt ended early
    ``status``     SUCCESS: the pods that fit are bound; else no pod is bound now
    ``waiting``    the group can be scheduled when the preemption in progress has ended
    ``preempting`` results of PostFilter, each with its pod; they are applied even if the group fails
    ``victims``    pods to evict for the group as a whole
    ``nominated``  UID → the node that a pod gets once they are gone
    ``untried``    the status of pods that were not tried: that of the group, since 1.37 before preemption
    ``tried_as``   the code of ``status`` before preemption
    ``preempted``  the result of preemption for the group as a whole; None if none was tried
    ``parts``      of a tree: its pod groups, each with its own result
    ``told``       of a pod group in a tree: how often its message says what became of preemption. kube-scheduler adds that once
                   for each group above and below that has the same status
    """

    tried: tuple[MemberAttempt, ...]
    status: Status
    waiting: bool = False
    preempting: tuple[tuple[PodInfo, PostFilterResult], ...] = ()
    victims: tuple[PodInfo, ...] = ()
    nominated: dict[str, str] = field(default_factory=dict)
    untried: Status = UNSCHEDULABLE
    tried_as: Code = Code.UNSCHEDULABLE
    preempted: Code | None = None
    parts: tuple[tuple[QueuedGroup, GroupOutcome], ...] = ()
    told: int = 1

    @property
    def done_without(self) -> tuple[PluginError, ...]:
        """The errors of extenders that failed and were skipped."""
        return tuple(fault for one in self.tried for fault in one.decision.done_without)


class PlacementWatch(Struct, frozen=True):
    """Measures placements: ``clock`` returns seconds, ``timer`` gets the result, the profile and the duration."""

    clock: Callable[[], float]
    timer: Callable[[str, str, float], None]


class GroupReport(Struct, frozen=True):
    """An attempt for a group, for logs and metrics. ``result`` is the label that kube-scheduler's metrics have for it.

    ``of_root``     for the whole tree, on the first report of an attempt; "" on those of its other groups
    ``scheduled``, ``unscheduled``  how many of its pods were placed and not placed; ``could_go``: how many had found a node
    ``placements``  how many were ``generated``, ``feasible`` and ``infeasible``, for preemption too
    ``preempted``   the result of preemption for the group, "" without; ``victims``: how many pods it evicts
    ``disruptions``, ``violations``  how many groups, or pods of groups, it evicts as one; how often it violates a budget
    ``preemptor``   ``podgroup`` or ``compositepodgroup``
    """

    key: str
    profile: str
    result: str
    message: str
    scheduled: int
    unscheduled: int
    could_go: int = 0
    placements: Mapping[str, int] = {}
    preempted: str = ""
    victims: int = 0
    of_root: str = ""
    disruptions: int = 0
    violations: int = 0
    preemptor: str = "podgroup"


_OTHER_FAILED: Final = "failed to schedule other pod from a pod group: {}"
_WAITS: Final = "one or more plugins asked to wait and no plugin rejected pod"


class AssumedMember(Struct, eq=False):
    """A pod that is assumed for the length of the attempt, and the node it was nominated to before."""

    binding: Binding
    nomination: str | None


class GroupCycle(Struct, eq=False):
    """One attempt for one group.

    ``as_one``: the group is refused as one (``Release.groups_as_one``).
    ``part_of_tree``: the group is one of a tree, and tried ``within`` the placement of the group above.
    ``undo`` gets the effects that undo a reservation; ``fault`` gets the errors that plugins raise meanwhile.
    """

    group: QueuedGroup
    cycle: Cycle
    cluster: ClusterState
    queue: SchedulingQueue
    by_placement: bool
    as_one: bool
    now: float
    undo: Callable[[PodInfo, str, tuple[Effect, ...]], None]
    fault: Callable[[PluginError], None]
    preempting: list[tuple[PodInfo, PostFilterResult]] = field(default_factory=list)
    demands: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    uids: frozenset[str] = frozenset()
    part_of_tree: bool = False
    within: NodeView | None = None
    #: Placements by what became of them; see ``GroupReport``.
    placements: Counter[str] = field(default_factory=Counter)
    #: What measures the evaluation of each placement.
    watch: PlacementWatch | None = None

    def run(self, *, post_filter: bool = True, may_place_none: bool = False) -> Asking[GroupOutcome]:
        """Try to place the group. ``post_filter`` False: only check whether it fits, without preemption for single pods.

        ``may_place_none``: a group with enough pods on nodes succeeds even if none of the others fits, as part of a tree.
        """
        post_filter = post_filter and not self.as_one
        if self.by_placement:
            outcome = yield from self._by_placement(post_filter)
        else:
            outcome = yield from self._in_turn(SearchScope(post_filter=post_filter) if not post_filter else EVERYWHERE)
        none_fits = outcome.status.code is Code.SUCCESS and not any(one.fits for one in outcome.tried)
        if self.as_one and none_fits and not may_place_none:
            outcome.status = UNSCHEDULABLE
        return outcome

    def holds(self, tried: Sequence[MemberAttempt]) -> Asking[bool]:
        """Return whether each pod that found a node before still fits it, with the earlier ones there; nothing else is tried.

        A plugin that had nothing to refuse when the pod found its node is not asked again, even if it has now.

        Source  framework/preemption/podgrouppreemption.go, reprieveVictim
        """
        assumed: list[AssumedMember] = []
        try:
            for one in tried:
                row = self.cluster.table.row_of.get(one.node or "")
                if row is not None:
                    found = one.decision.found
                    idle = frozenset() if found is None else frozenset(found.skipped)
                    scope = SearchScope(np.array([row]), post_filter=False)
                    again = yield from self._try(one.queued, scope, assumed, idle)
                    if again.node is None:
                        return False
        finally:
            self.take_back(assumed)
        return True

    # -- the pods in turn ---------------------------------------------------------------------------------------------

    def _in_turn(self, scope: SearchScope) -> Asking[GroupOutcome]:
        return (yield from (self._while_feasible(scope) if self.as_one else self._one_by_one(scope)))

    def _while_feasible(self, scope: SearchScope) -> Asking[GroupOutcome]:
        """Try each pod in turn on the nodes of the scope while enough of them may fit, then undo it all.

        Source  schedule_one_podgroup.go, podGroupSchedulingDefaultAlgorithm
        """
        known, remaining = self.cluster.snapshot.group(self.group.info.key), len(self.group.pods)
        placed = 0 if known is None else known.scheduled_count
        status = self.feasible(self.group.info, placed, remaining)
        if status.code is Code.UNSCHEDULABLE:
            return GroupOutcome((), refused(status))
        tried: list[MemberAttempt] = []
        assumed: list[AssumedMember] = []
        try:
            for queued in self.group.pods if status.code is not Code.ERROR else ():
                one = yield from self._try(queued, scope, assumed)
                tried.append(one)
                if one.node is None and not one.decision.code.is_rejection:
                    status = Status(Code.ERROR, "", (_OTHER_FAILED.format(one.decision.message),))
                    break
                remaining -= 1
                placed += one.node is not None
                status = self.feasible(self.group.info, placed, remaining)
                if status.code in {Code.UNSCHEDULABLE, Code.ERROR}:
                    break
        finally:
            self.take_back(assumed)
        return GroupOutcome(tuple(tried), refused(status) if status.code is Code.WAIT else status)

    def feasible(self, info: GroupInfo, placed: int, remaining: int) -> Status:
        """Ask the PlacementFeasible plugins whether enough of a group can be placed; the first that does not agree decides."""
        for step in self.group.profile.placement_feasible:
            try:
                status = ask(step, "placementFeasible", info, placed, remaining)
            except PluginError as error:
                return Status(Code.ERROR, step.name, (f"failed to evaluate placement feasibility: {error}",))
            if isinstance(status, Status) and status.code is not Code.SUCCESS:
                return status
        return SCHEDULED

    def _one_by_one(self, scope: SearchScope) -> Asking[GroupOutcome]:
        """Try each pod in turn on the nodes of the scope, then undo it all."""
        tried: list[MemberAttempt] = []
        assumed: list[AssumedMember] = []
        status, waiting, preempts = UNSCHEDULABLE, False, False
        try:
            for queued in self.group.pods:
                one = yield from self._try(queued, scope, assumed)
                tried.append(one)
                if one.node is None:
                    if one.decision.code.is_rejection:
                        continue  # the pods that fit may still be enough for Permit
                    status, waiting = Status(Code.ERROR, "", (_OTHER_FAILED.format(one.decision.message),)), False
                    break
                preempts |= one.preempts
                if one.permit is not None and one.permit.code is Code.SUCCESS:
                    status, waiting = (WAITING, True) if preempts else (SCHEDULED, False)
        finally:
            self.take_back(assumed)
        return GroupOutcome(tuple(tried), status, waiting)

    def _try(
        self, queued: QueuedPod, scope: SearchScope, assumed: list[AssumedMember], idle: frozenset[str] = frozenset()
    ) -> Asking[MemberAttempt]:
        """Find a node for one pod, and assume it there unless Reserve or Permit says no. The filters ``idle`` are not asked."""
        pod = queued.pod
        decision = yield from self._decide(pod, scope, idle)
        if self.as_one and decision.post_filter is not None:
            decision = replace(decision, post_filter=None)
        outcome = decision.post_filter
        if outcome is not None and (outcome.victims or outcome.effects or outcome.displaced):
            self.preempting.append((pod, outcome))
        node = decision.node or (outcome.nominated if outcome is not None else None)
        if not node:
            return MemberAttempt(queued, decision)
        binding = self._assume(queued, decision, node, assumed)
        status = reserve(binding) or (None if self.as_one else permit(binding, self.now))
        if status is not None:
            self._take_back(assumed.pop())
            return MemberAttempt(queued, replace(decision, node=None, post_filter=None, refused_after=status))
        said = Status(Code.WAIT, "", (*binding.waits_for, _WAITS)) if binding.waits else SCHEDULED
        return MemberAttempt(queued, decision, node, decision.node is None, said)

    def _assume(self, queued: QueuedPod, decision: Decision, node: str, assumed: list[AssumedMember]) -> Binding:
        """Count a pod on its node until it is taken back."""
        pod = queued.pod
        binding = Binding.begin(queued, self.group.profile, decision, node)
        assumed.append(AssumedMember(binding, self.queue.nomination(pod.uid)))
        self.cluster.assume(binding.assumed, node)
        if not self.as_one:  # since 1.37 pods of a group see what those before them demand
            self._pass_over_demands(pod, node)
        self.queue.end_nomination(pod.uid)
        return binding

    def keep(self, tried: MemberAttempt, node: str, kept: list[AssumedMember]) -> None:
        """Count a pod that was tried on its node again, with what plugins reserve for it, until it is taken back."""
        reserve(self._assume(tried.queued, tried.decision, node, kept))

    def take_back(self, assumed: list[AssumedMember]) -> None:
        """Undo assumptions, the latest first."""
        for entry in reversed(assumed):
            self._take_back(entry)

    def _decide(self, pod: PodInfo, scope: SearchScope, idle: frozenset[str]) -> Asking[Decision]:
        profile = _without_filters(self.group.profile, idle) if idle else self.group.profile
        snapshot, nominated = self.cluster.snapshot, self.queue.nominated
        if self.cycle.extenders:
            return (yield from self.cycle.deciding(CycleInput(profile, pod, snapshot, nominated, scope)))
        return self.cycle.decide(profile, pod, snapshot, nominated, scope)

    def _take_back(self, entry: AssumedMember) -> None:
        binding = entry.binding
        effects = unreserve(binding, self.fault)
        self.cluster.forget(binding.pod.uid)
        self.cluster.snapshot.unheard.discard(binding.pod.uid)
        if entry.nomination is not None:
            self.queue.nominate(binding.pod, entry.nomination)
        if effects:
            self.undo(binding.pod, binding.node, effects)

    # -- what the others hear of it ---------------------------------------------------------------------------------

    def _pass_over_demands(self, pod: PodInfo, node: str) -> None:
        """Make plugins ignore the affinity terms of a tried pod on ``node`` if no pod there had terms before the attempt."""
        self.cluster.snapshot.unheard.add_user(pod)
        if not pod.has_affinity:
            return
        demanding, refusing = self._demands_on(node)
        if not demanding or not refusing:
            where = self.cluster.snapshot.node(node)
            domain_of = where.domain if where is not None else lambda key: 0
            self.cluster.snapshot.unheard.add(pod, domain_of, scoring=not demanding, filtering=not refusing)

    def note_demands(self) -> None:
        """Record which nodes have pods with affinity terms, before victims are removed for a trial."""
        if any(queued.pod.has_affinity for queued in self.group.pods):
            for node in self.cluster.table.row_of:
                self._demands_on(node)

    def _demands_on(self, node: str) -> tuple[bool, bool]:
        """Return two flags: other pods on the node have affinity terms; they have required anti-affinity terms.

        Other pods are those that are not tried in this attempt.
        """
        known = self.demands.get(node)
        if known is None:
            self.uids = self.uids or frozenset(queued.pod.uid for queued in self.group.pods)
            row = self.cluster.table.row_of.get(node)
            on_row = {} if row is None else self.cluster.table.pods[row]
            others = [other for uid, other in on_row.items() if uid not in self.uids and other.has_affinity]
            known = self.demands[node] = bool(others), any(other.required_anti_affinity for other in others)
        return known

    # -- one placement after another ----------------------------------------------------------------------------------

    def _by_placement(self, post_filter: bool) -> Asking[GroupOutcome]:
        group, snapshot = self.group, self.cluster.snapshot
        placements = run_placement_generate(group.profile, group.info, snapshot, self.within)
        if isinstance(placements, Status):
            return GroupOutcome((), placements)
        self.placements["generated"] += len(placements)
        first: GroupOutcome | None = None
        possible: list[tuple[Placement, GroupOutcome]] = []
        for placement in placements:
            begun = 0.0 if self.watch is None else self.watch.clock()
            outcome = yield from self._in_turn(self._scope(placement, post_filter))
            if outcome.status.code is Code.ERROR:
                return outcome
            first = first or outcome
            result = "feasible" if outcome.status.code is Code.SUCCESS else "infeasible"
            self.placements[result] += 1
            if self.watch is not None:
                self.watch.timer(result, group.profile.scheduler_name, self.watch.clock() - begun)
            if outcome.status.code is Code.SUCCESS or outcome.waiting:
                possible.append((placement, outcome))
        assert first is not None
        if not possible:
            text = f"0/{len(placements)} placements are available, first placement status: {first.status.reasons[0]}"
            status = Status(Code.UNSCHEDULABLE, "", (text,))
            return GroupOutcome(first.tried, refused(status) if self.as_one else status)
        return possible[0][1] if len(possible) == 1 else self.best(possible)

    def _scope(self, placement: Placement, post_filter: bool) -> SearchScope:
        rows = None if len(placement.nodes) == len(self.cluster.table) else placement.nodes.row_numbers
        return SearchScope(rows, post_filter)

    def best(self, possible: list[tuple[Placement, GroupOutcome]]) -> GroupOutcome:
        """Return the outcome of the placement with the highest score. The seed breaks ties."""
        proposals = [
            Proposal(placement, tuple((one.queued.pod, one.node) for one in outcome.tried if one.node is not None))
            for placement, outcome in possible
        ]
        scores = run_placement_score(self.group.profile, self.group.info, proposals, self.cluster.snapshot)
        if isinstance(scores, Status):
            return GroupOutcome((), scores)
        highest = max(scores.total)
        of_name = {
            placement.name: outcome
            for (placement, outcome), total in zip(possible, scores.total, strict=True)
            if total == highest
        }
        return of_name[draw_by_name(list(of_name), self._identity(), self.cycle.seed)]

    def _identity(self) -> str:
        group = self.cluster.snapshot.objects(PodGroup).get(self.group.info.key)
        return (group.metadata.uid if group is not None else "") or self.group.info.key
