"""The scheduling cycle of a pod group: its pods are tried on one state of the cluster, each with the earlier ones placed.

The pods are tried in order. A pod that finds a node is assumed and reserved there, so that the next pod takes it into account;
Permit decides whether enough pods fit. When all pods have been tried, this is undone: an attempt changes nothing. The caller
then binds the pods, or returns them to the queue.

With topology constraints (gate TopologyAwareWorkloadScheduling) the pods are tried on each placement, and the best is used.

Source  kube-scheduler, schedule_one_podgroup.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from moorage.api.pod_groups import PodGroup
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.search import EVERYWHERE, SearchScope, draw_by_name
from moorage.core.engine.binding import Binding
from moorage.core.engine.binding_plugins import permit, reserve, unreserve
from moorage.core.engine.group_outcome import SCHEDULED, UNSCHEDULABLE, WAITING, GroupOutcome, MemberAttempt, QueuedGroup
from moorage.core.extenders.consultation import Asking
from moorage.core.queue import QueuedPod, SchedulingQueue
from moorage.errors import PluginError
from moorage.framework.effects import Effect
from moorage.framework.placements import Placement, Proposal, run_placement_generate, run_placement_score
from moorage.framework.points import PostFilterResult
from moorage.framework.verdicts import Code, Status
from moorage.state.cluster import ClusterState
from moorage.state.pod_info import PodInfo

__all__ = ["GroupCycle"]

_WAITS: Final = "one or more plugins asked to wait and no plugin rejected pod"


class _Assumed(Struct, eq=False):
    """A pod that is assumed for the length of the attempt, and the node it was nominated to before."""

    binding: Binding
    nomination: str | None


class GroupCycle(Struct, eq=False):
    """One attempt for one group.

    ``undo`` gets the effects that undo a reservation; ``fault`` gets the errors that plugins raise meanwhile.
    """

    group: QueuedGroup
    cycle: Cycle
    cluster: ClusterState
    queue: SchedulingQueue
    by_placement: bool
    now: float
    undo: Callable[[PodInfo, str, tuple[Effect, ...]], None]
    fault: Callable[[PluginError], None]
    preempting: list[tuple[PodInfo, PostFilterResult]] = field(default_factory=list)
    demands: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    uids: frozenset[str] = frozenset()

    def run(self, *, post_filter: bool = True) -> Asking[GroupOutcome]:
        """Try to place the group. ``post_filter`` False: only check whether it fits, without preemption for single pods."""
        if self.by_placement:
            return (yield from self._by_placement(post_filter))
        return (yield from self._one_by_one(SearchScope(post_filter=post_filter) if not post_filter else EVERYWHERE))

    # -- the pods in turn ---------------------------------------------------------------------------------------------

    def _one_by_one(self, scope: SearchScope) -> Asking[GroupOutcome]:
        """Try each pod in turn on the nodes of the scope, then undo it all."""
        tried: list[MemberAttempt] = []
        assumed: list[_Assumed] = []
        status, waiting, preempts = UNSCHEDULABLE, False, False
        try:
            for queued in self.group.pods:
                one = yield from self._try(queued, scope, assumed)
                tried.append(one)
                if one.node is None:
                    if one.decision.code.is_rejection:
                        continue  # the pods that fit may still be enough for Permit
                    text = f"failed to schedule other pod from a pod group: {one.decision.message}"
                    status, waiting = Status(Code.ERROR, "", (text,)), False
                    break
                preempts |= one.preempts
                if one.permit is not None and one.permit.code is Code.SUCCESS:
                    status, waiting = (WAITING, True) if preempts else (SCHEDULED, False)
        finally:
            for entry in reversed(assumed):
                self._take_back(entry)
        return GroupOutcome(tuple(tried), status, waiting)

    def _try(self, queued: QueuedPod, scope: SearchScope, assumed: list[_Assumed]) -> Asking[MemberAttempt]:
        """Find a node for one pod, and assume it there unless Reserve or Permit says no."""
        pod = queued.pod
        decision = yield from self._decide(pod, scope)
        outcome = decision.post_filter
        if outcome is not None and (outcome.victims or outcome.effects or outcome.displaced):
            self.preempting.append((pod, outcome))
        node = decision.node or (outcome.nominated if outcome is not None else None)
        if not node:
            return MemberAttempt(queued, decision)
        binding = Binding.begin(queued, self.group.profile, decision, node)
        entry = _Assumed(binding, self.queue.nomination(pod.uid))
        self.cluster.assume(pod, node)
        self._pass_over_demands(pod, node)
        assumed.append(entry)
        self.queue.end_nomination(pod.uid)
        status = reserve(binding) or permit(binding, self.now)
        if status is not None:
            assumed.pop()
            self._take_back(entry)
            return MemberAttempt(queued, replace(decision, node=None, post_filter=None, refused_after=status))
        said = Status(Code.WAIT, "", (*binding.waits_for, _WAITS)) if binding.waits else SCHEDULED
        return MemberAttempt(queued, decision, node, decision.node is None, said)

    def _decide(self, pod: PodInfo, scope: SearchScope) -> Asking[Decision]:
        profile, snapshot, nominated = self.group.profile, self.cluster.snapshot, self.queue.nominated
        if self.cycle.extenders:
            return (yield from self.cycle.deciding(profile, pod, snapshot, nominated, scope))
        return self.cycle.decide(profile, pod, snapshot, nominated, scope)

    def _take_back(self, entry: _Assumed) -> None:
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
        placements = run_placement_generate(self.group.profile, self.group.info, self.cluster.snapshot)
        if isinstance(placements, Status):
            return GroupOutcome((), placements)
        first: GroupOutcome | None = None
        possible: list[tuple[Placement, GroupOutcome]] = []
        for placement in placements:
            outcome = yield from self._one_by_one(self._scope(placement, post_filter))
            if outcome.status.code is Code.ERROR:
                return outcome
            first = first or outcome
            if outcome.status.code is Code.SUCCESS or outcome.waiting:
                possible.append((placement, outcome))
        assert first is not None
        if not possible:
            reason = first.status.reasons[0]
            text = f"0/{len(placements)} placements are available, first placement status: {reason}"
            return GroupOutcome(first.tried, Status(Code.UNSCHEDULABLE, "", (text,)))
        return possible[0][1] if len(possible) == 1 else self._best(possible)

    def _scope(self, placement: Placement, post_filter: bool) -> SearchScope:
        rows = None if len(placement.nodes) == len(self.cluster.table) else placement.nodes.row_numbers
        return SearchScope(rows, post_filter)

    def _best(self, possible: list[tuple[Placement, GroupOutcome]]) -> GroupOutcome:
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
