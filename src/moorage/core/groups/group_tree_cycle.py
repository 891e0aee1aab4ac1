"""The scheduling cycle of a tree of pod groups (gate CompositePodGroup): from the root down, each level within the one above.

A composite group is tried on one placement after another. On each, the groups below are tried in turn, each within the nodes of
that placement and beside those before it, as long as enough of them may fit; of the placements on which enough do, the one with
the highest score is used. What fits stays assumed until the whole tree has been tried. A group whose parent fails, fails.

Source  kube-scheduler 1.37, schedule_one_podgroup.go, podGroupSchedulingRecursiveAlgorithm
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from moorage.api.pod_groups import CompositePodGroup, PodGroup
from moorage.core.extenders.consultation import Asking
from moorage.core.groups.group_cycle import (
    SCHEDULED,
    UNSCHEDULABLE,
    AssumedMember,
    GroupCycle,
    GroupOutcome,
    MemberAttempt,
    QueuedGroup,
    refused,
)
from moorage.framework.placements import GroupInfo, Placement, run_placement_generate
from moorage.framework.verdicts import Code, Status
from moorage.state.group_trees import GroupNode
from moorage.state.pod_groups import group_key
from moorage.state.view import NodeView

_CHILD_FAILED = "composite pod group evaluation failed due to child error: {}"


class _Result(Struct, eq=False):
    """What became of a group; ``tried`` are its pods if it is a pod group. ``of``: the group above whose status it has."""

    status: Status
    tried: tuple[MemberAttempt, ...] = ()
    of: _Result | None = None

    @property
    def origin(self) -> _Result:
        return self.of or self


_Results = dict[str, _Result]


class TreeCycle:
    """One attempt for a whole tree, in the place of a ``GroupCycle``. ``whole`` is the cycle of all its pods."""

    def __init__(self, whole: GroupCycle, tree: GroupNode) -> None:
        self._whole, self._tree = whole, tree
        self.preempting = whole.preempting
        self.note_demands, self.holds = whole.note_demands, whole.holds
        whole.uids = frozenset(queued.pod.uid for queued in whole.group.pods)
        self._cycles = {leaf.key: self._cycle_of(GroupNode(leaf)) for leaf in tree.leaves()}

    def _group(self, node: GroupNode) -> QueuedGroup:
        """Return a group of the tree with its pods of this attempt."""
        group, whole = node.group, self._whole.group
        keys = {leaf.key for leaf in node.leaves()}
        pods = tuple(queued for queued in whole.pods if group_key(queued.pod) in keys)
        info = GroupInfo(group.metadata.namespace, group.name, tuple(queued.pod for queued in pods), node)
        return QueuedGroup(info, whole.profile, pods)

    def _cycle_of(self, leaf: GroupNode) -> GroupCycle:
        return replace(self._whole, group=self._group(leaf), part_of_tree=True)

    def run(self, *, post_filter: bool = True) -> Asking[GroupOutcome]:
        """Try to place the tree, then undo it all. No pod preempts by itself, whatever ``post_filter``."""
        results: _Results = {}
        kept: list[AssumedMember] = []
        try:
            root = yield from self._try(self._tree, None, results, kept)
        finally:
            self._whole.take_back(kept)
        if root.status.code is Code.SUCCESS and not kept:
            root.status = UNSCHEDULABLE
        self._complete(self._tree, results, root)
        parts = []
        for node in self._tree.nodes():
            if isinstance(node.group, PodGroup):
                result = results[node.entry]
                told = sum(one.origin is result.origin for one in results.values())
                parts.append((self._cycles[node.group.key].group, GroupOutcome(result.tried, result.status, told=told)))
        tried = tuple(one for _, part in parts for one in part.tried)
        return GroupOutcome(tried, root.status, parts=tuple(parts))

    def _complete(self, node: GroupNode, results: _Results, above: _Result) -> None:
        """Give a group without a result, or one that fits under a parent that failed, the status of its parent."""
        own = results.get(node.entry)
        if own is None or (above.status.code is not Code.SUCCESS and own.status.code is Code.SUCCESS):
            own = results[node.entry] = _Result(above.status, of=above.origin)
        for child in node.children:
            self._complete(child, results, own)

    # -- one group ------------------------------------------------------------------------------------------------------

    def _try(self, node: GroupNode, within: NodeView | None, results: _Results, kept: list[AssumedMember]) -> Asking[_Result]:
        """Try a group within these nodes. ``results`` gets what became of it and of those below; what fits stays assumed."""
        if isinstance(node.group, CompositePodGroup):
            result = yield from self._by_placement(node, within, results, kept)
        else:
            cycle = self._cycles[node.group.key]
            cycle.within = within
            outcome = yield from cycle.run(post_filter=False, may_place_none=True)
            result = _Result(outcome.status, outcome.tried)
            if result.status.code is Code.SUCCESS:
                self._keep(cycle, result.tried, kept)
        results[node.entry] = result
        return result

    @staticmethod
    def _keep(cycle: GroupCycle, tried: Iterable[MemberAttempt], kept: list[AssumedMember]) -> None:
        for one in tried:
            if one.node is not None:
                cycle.keep(one, one.node, kept)

    def _by_placement(
        self, node: GroupNode, within: NodeView | None, results: _Results, kept: list[AssumedMember]
    ) -> Asking[_Result]:
        whole, group = self._whole, self._group(node)
        placements = run_placement_generate(group.profile, group.info, whole.cluster.snapshot, within)
        if isinstance(placements, Status):
            return _Result(placements)
        first: tuple[_Result, _Results] | None = None
        possible: list[tuple[Placement, _Results, GroupOutcome]] = []
        for placement in placements:
            below: _Results = {}
            held: list[AssumedMember] = []
            try:
                result = yield from self._children(node, placement.nodes, below, held)
            finally:
                whole.take_back(held)
            if result.status.code is Code.ERROR:
                return result
            first = first or (result, below)
            if result.status.code is Code.SUCCESS:
                possible.append((placement, below, GroupOutcome(tuple(self._placed(node, below)), result.status)))
        assert first is not None
        if not possible:
            results.update(first[1])
            text = f"0/{len(placements)} placements are available, first placement status: {first[0].status.reasons[0]}"
            return _Result(refused(Status(Code.UNSCHEDULABLE, "", (text,))))
        best = possible[0][2]
        if len(possible) > 1:
            best = self._cycle_of(node).best([(placement, outcome) for placement, _, outcome in possible])
            if best.status.code is not Code.SUCCESS:
                return _Result(best.status)
        results.update(next(below for _, below, outcome in possible if outcome is best))
        for one in best.tried:
            self._keep(self._cycles[group_key(one.queued.pod) or ""], (one,), kept)
        return _Result(best.status)

    def _children(self, node: GroupNode, within: NodeView, below: _Results, held: list[AssumedMember]) -> Asking[_Result]:
        """Try the groups below one in turn, as long as enough of them may fit."""
        whole, info = self._whole, self._group(node).info
        remaining, scheduled = len(node.children), 0
        status = whole.feasible(info, scheduled, remaining)
        if status.code in {Code.UNSCHEDULABLE, Code.ERROR}:
            return _Result(status)
        for child in node.children:
            result = yield from self._try(child, within, below, held)
            if result.status.code is Code.ERROR:
                return _Result(Status(Code.ERROR, "", (_CHILD_FAILED.format(result.status.message),)))
            remaining -= 1
            scheduled += result.status.code is Code.SUCCESS
            status = whole.feasible(info, scheduled, remaining)
            if status.code in {Code.UNSCHEDULABLE, Code.ERROR}:
                break
        if status.code is not Code.SUCCESS:
            whole.take_back(held)
            held.clear()
        return _Result(refused(status) if status.code is Code.WAIT else status)

    def _placed(self, node: GroupNode, results: _Results) -> Iterable[MemberAttempt]:
        """Yield the pods that fit in groups below, with all groups in between."""
        for child in node.children:
            result = results.get(child.entry, _Result(UNSCHEDULABLE))
            if result.status.code is SCHEDULED.code:
                yield from (one for one in result.tried if one.node is not None)
                yield from self._placed(child, results)
