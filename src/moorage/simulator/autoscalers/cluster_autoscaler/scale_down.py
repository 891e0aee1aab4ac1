"""Scale-down of cluster-autoscaler: which nodes are unneeded, which are removed now, and why the others stay.

A ``ScaleDownPlanner`` remembers since when a node is unneeded, and until when one that could not be removed is passed over.

Source  cluster-autoscaler at 87d9c45c02^, core/scaledown/planner, unneeded, unremovable, budgets, pdb,
        simulator/cluster.go, processors/scaledowncandidates
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Node, Pod, Taint
from moorage.api.selectors import SelectorError, compile_label_selector
from moorage.api.workloads import PodDisruptionBudget
from moorage.simulator.autoscalers.cluster_autoscaler.drain_rules import DrainContext, DrainOptions, MovesOfPods, pods_to_move
from moorage.simulator.autoscalers.cluster_autoscaler.eligibility import ScaleDownFlags, unremovable_reason
from moorage.simulator.autoscalers.cluster_autoscaler.packing import Packer, PackingSnapshot, unplaced
from moorage.simulator.autoscalers.cluster_autoscaler.scale_up import GroupSize, ResourceBounds, ScaleUpFlags

__all__ = ["DELETED", "NodeRemoval", "PlannerFlags", "ScaleDownPlanner", "Unremovable", "cropped", "is_ready"]

DELETED: Final = "ToBeDeletedByClusterAutoscaler"
_TAINT: Final = Taint(key=DELETED, effect="NoSchedule")


class PlannerFlags(Struct, frozen=True, kw_only=True):
    """Flags of cluster-autoscaler, with its defaults. Times are in seconds.

    ``unneeded_s``, ``unready_s``  --scale-down-unneeded-time, --scale-down-unready-time
    ``recheck_s``                  --unremovable-node-recheck-timeout
    ``parallel``, ``drains``       --max-scale-down-parallelism, --max-drain-parallelism
    """

    unneeded_s: float = 600.0
    unready_s: float = 1200.0
    recheck_s: float = 300.0
    parallel: int = 10
    drains: int = 1


class Unremovable(Struct, frozen=True):
    """Why a node is not removed: cluster-autoscaler's reason, a sentence, and the pod that keeps the node, if one does."""

    reason: str
    text: str = ""
    pod: str = ""


@dataclass(frozen=True)
class NodeRemoval:
    """A node that can be removed, with the pods that move, and those that are left to complete.

    ``risky``  its pods cannot leave at once without spending a budget
    """

    name: str
    pods: tuple[Pod, ...] = ()
    waiting: tuple[Pod, ...] = ()
    risky: bool = False


class _Budgets:
    """Disruption budgets, and what the removals so far leave of them."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self.left: list[PodDisruptionBudget] = list(budgets)
        self._select = [_selects(budget) for budget in self.left]

    def go_together(self, pods: Iterable[Pod]) -> bool:
        """Return True if the pods can all leave at once."""
        held = list(pods)
        return all(
            sum(map(selects, held)) <= max(budget.status.disruptions_allowed, 0)
            for budget, selects in zip(self.left, self._select, strict=True)
        )

    def spend(self, pods: Iterable[Pod]) -> None:
        held = list(pods)
        for at, (budget, selects) in enumerate(zip(self.left, self._select, strict=True)):
            count = sum(map(selects, held))
            if count:
                allowed = budget.status.disruptions_allowed - count
                self.left[at] = replace(budget, status=replace(budget.status, disruptions_allowed=allowed))


def _selects(budget: PodDisruptionBudget) -> Callable[[Pod], bool]:
    try:
        selector = compile_label_selector(budget.spec.selector)
    except SelectorError:
        return lambda pod: False
    return lambda pod: pod.namespace == budget.namespace and selector.matches(pod.metadata.labels)


def is_ready(node: Node) -> bool:
    """Return True for a node whose condition Ready is true; a node without the condition counts as ready."""
    return all(one.status == "True" for one in node.status.conditions if one.type == "Ready")


@dataclass
class ScaleDownPlanner:
    """See the module's description.

    ``replicas``  as for ``DrainContext``
    """

    flags: PlannerFlags = field(default_factory=PlannerFlags)
    rules: ScaleDownFlags = field(default_factory=ScaleDownFlags)
    drain: DrainOptions = field(default_factory=DrainOptions)
    replicas: Callable[[str, str, str], int | Literal["absent"] | None] | None = None

    def __post_init__(self) -> None:
        #: Node → since when it is unneeded, and its removal.
        self.unneeded: dict[str, tuple[float, NodeRemoval]] = {}
        #: Node → why it is not removed, as of the last update.
        self.reasons: dict[str, Unremovable] = {}
        self._until: dict[str, float] = {}
        self._packer = Packer()
        self._interval_s = self.flags.unneeded_s
        self._updated_s: float | None = None

    def next_change_s(self, now_s: float) -> float:
        """Return when time alone changes something: a node was unneeded for long enough, or is looked at again."""
        times = [since + self.flags.unneeded_s for since, _ in self.unneeded.values()] + list(self._until.values())
        return min((time_s for time_s in times if time_s >= now_s), default=float("inf"))

    def update(
        self, packed: PackingSnapshot, nodes: Sequence[Node], groups: Mapping[str, GroupSize], group_of: Mapping[str, str],
        budgets: Iterable[PodDisruptionBudget], leaving: Collection[str], now_s: float,
    ) -> None:  # fmt: skip
        """Find out which nodes are unneeded.

        ``nodes``     those that exist, in their order
        ``group_of``  node → its group
        ``leaving``   nodes that are being deleted
        """
        if self._updated_s is not None:
            self._interval_s = min(self._interval_s, now_s - self._updated_s)
        self._updated_s = now_s
        self.reasons = {}
        self._until = {name: until_s for name, until_s in self._until.items() if until_s > now_s and name in packed.order}
        packed.fork()
        names = {node.name for node in nodes} - set(leaving)
        budget = _Budgets(budgets)
        found: list[NodeRemoval] = []
        eligible = []
        for node in self._candidates(packed, nodes, groups, group_of, now_s):
            if node.name in leaving:
                continue
            if node.name in self._until:
                self.reasons[node.name] = Unremovable("RecentlyUnremovable")
                continue
            why, text = unremovable_reason(node, packed.pods(node.name), self.rules, now_s)
            if why:
                self.reasons[node.name] = Unremovable(why, text)
            else:
                eligible.append(node)
        limit = self._limit()
        for node in eligible:
            if len(found) >= limit:
                break
            removal = self._simulated(packed, node, names, budget, now_s)
            if isinstance(removal, Unremovable):
                self.reasons[node.name] = removal
                self._until[node.name] = now_s + self.flags.recheck_s
                continue
            names.discard(node.name)
            budget.spend(removal.pods)
            found.append(removal)
        packed.revert()
        self.unneeded = {one.name: (self.unneeded.get(one.name, (now_s,))[0], one) for one in found}
        self._packer.forget_old()

    def _candidates(
        self, packed: PackingSnapshot, nodes: Iterable[Node], groups: Mapping[str, GroupSize], group_of: Mapping[str, str],
        now_s: float,
    ) -> list[Node]:  # fmt: skip
        """Return the nodes of groups above their minimum: empty ones first, then those that were unneeded before."""
        open_ = [
            node for node in nodes
            if (group := groups.get(group_of.get(node.name, ""))) is not None and group.target > group.least
        ]  # fmt: skip
        context = DrainContext(now_s, (), None)

        def rank(node: Node) -> tuple[bool, bool, bool]:
            moves = pods_to_move(packed.pods(node.name), self.drain, context)
            is_empty = moves.blocking is None and not moves.pods
            return not is_empty, is_empty and bool(moves.waiting), node.name not in self.unneeded

        return sorted(open_, key=rank)

    def moves(self, packed: PackingSnapshot, name: str, budgets: Sequence[PodDisruptionBudget], now_s: float) -> MovesOfPods:
        """Return what happens to the pods of a node that is removed."""
        return pods_to_move(packed.pods(name), self.drain, DrainContext(now_s, budgets, self.replicas))

    def _simulated(
        self, packed: PackingSnapshot, node: Node, names: Collection[str], budget: _Budgets, now_s: float
    ) -> NodeRemoval | Unremovable:
        """Move the pods of a node elsewhere, and keep that if all find a place."""
        moves = self.moves(packed, node.name, budget.left, now_s)
        if moves.blocking is not None:
            pod, status = moves.blocking
            return Unremovable(f"BlockedByPod: {status.reason}", status.text, pod.key)
        pods = tuple(moves.pods)
        packed.fork()
        for pod in pods:
            packed.take(pod)
        self._leave_ghost(packed, node)
        homeless = [unplaced(pod) for pod in pods]
        found = self._packer.pack(packed, homeless, {*names} - {node.name}, all_or_nothing=True)
        if len(found) != len(pods):
            packed.revert()
            stuck = next((pod.key for pod in pods if pod.metadata.uid not in found), "")
            return Unremovable("NoPlaceToMovePods", f"can reschedule only {len(found)} out of {len(pods)} pods", stuck)
        packed.remove(node.name)
        packed.commit()
        return NodeRemoval(node.name, pods, tuple(moves.waiting), not budget.go_together(pods))

    def _leave_ghost(self, packed: PackingSnapshot, node: Node) -> None:
        """Leave the node as a domain of topology spread, without pods, and closed to them."""
        for pod in packed.pods(node.name):
            packed.take(pod)
        packed.change(replace(node, spec=replace(node.spec, taints=(*node.spec.taints, _TAINT))))

    def judge(
        self, packed: PackingSnapshot, node: Node, group: GroupSize | None, budgets: Iterable[PodDisruptionBudget], now_s: float
    ) -> NodeRemoval | Unremovable:
        """Return whether a node alone could be removed, with the pods that would move, or why not. Delays do not count."""
        why, text = unremovable_reason(node, packed.pods(node.name), self.rules, now_s, autoscaled=group is not None)
        if why or group is None:
            return Unremovable(why, text)
        if group.target <= group.least:
            text = f"node group {group.name} has its minimum of {group.least} nodes"
            return Unremovable("NodeGroupMinSizeReached", text)
        packed.fork()
        found = self._simulated(packed, node, set(packed.order), _Budgets(budgets), now_s)
        packed.revert()
        return found

    def _limit(self) -> int:
        """Return how many unneeded nodes are looked for at most."""
        parallel = self.flags.parallel
        interval_s = max(self._interval_s, 1e-9)
        rounds = int(max(self.flags.unneeded_s, interval_s) / interval_s)
        return min(len(self.unneeded) + 2 * parallel, parallel * rounds + parallel)

    def removable(
        self, packed: PackingSnapshot, groups: Mapping[str, GroupSize], group_of: Mapping[str, str], leaving: Collection[str],
        flags: ScaleUpFlags, now_s: float,
    ) -> tuple[list[NodeRemoval], list[NodeRemoval]]:  # fmt: skip
        """Return the nodes that were unneeded for long enough: empty ones, and those to drain."""
        bounds = ResourceBounds([packed.node(name) for name in packed.order], flags, lowest=True)
        sizes = {name: group.target for name, group in groups.items()}
        going = [group_of.get(name) for name in leaving]
        held = sorted(self.unneeded.values(), key=lambda one: (bool(one[1].pods), one[1].name))
        found: list[NodeRemoval] = []
        for since_s, removal in held:
            node, group = packed.node(removal.name), groups[group_of[removal.name]]
            ready = is_ready(node)
            threshold_s = self.flags.unneeded_s if ready else self.flags.unready_s
            if threshold_s > 0 and since_s + threshold_s >= now_s:
                self.reasons[removal.name] = Unremovable("NotUnneededLongEnough" if ready else "NotUnreadyLongEnough")
            elif sizes[group.name] - going.count(group.name) <= group.least:
                self.reasons[removal.name] = Unremovable("NodeGroupMinSizeReached")
            elif not bounds.consume(node, 1):
                self.reasons[removal.name] = Unremovable("MinimalResourceLimitExceeded")
            else:
                sizes[group.name] -= 1
                found.append(removal)
        for removal in found:
            if removal.waiting:
                self.reasons[removal.name] = Unremovable("BlockedByOnCompletionPod")
        going_now = [one for one in found if not one.waiting]
        drains = sorted((one for one in going_now if one.pods), key=lambda one: one.risky)
        return [one for one in going_now if not one.pods], drains


def cropped(
    empty: Sequence[NodeRemoval], drains: Sequence[NodeRemoval], group_of: Mapping[str, str], flags: PlannerFlags,
    leaving_empty: int, leaving_drained: int,
) -> tuple[list[NodeRemoval], list[NodeRemoval]]:  # fmt: skip
    """Return the nodes whose deletion may begin now, beside those that are being deleted, group by group.

    Source  cluster-autoscaler at 87d9c45c02^, core/scaledown/budgets/budgets.go
    """
    left = flags.parallel - leaving_empty - leaving_drained
    first = _by_group(empty, group_of)[: max(left, 0)]
    drain_left = min(left - len(first), flags.drains - leaving_drained)
    return first, _by_group(drains, group_of)[: max(drain_left, 0)]


def _by_group(removals: Iterable[NodeRemoval], group_of: Mapping[str, str]) -> list[NodeRemoval]:
    held: dict[str, list[NodeRemoval]] = {}
    for one in removals:
        held.setdefault(group_of.get(one.name, ""), []).append(one)
    return [one for found in held.values() for one in found]
