"""DefaultPreemption of 1.37: groups are victims as a whole, texts say what was found, and a group waits for its victims.

Pods that have not started are victims in the reverse of the order in which they came, and a pod that violates a budget takes
nothing from others.

Source    kube-scheduler 1.37, plugins/defaultpreemption/default_preemption.go; framework/preemption/podgrouppreemption.go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from moorage.api.pod_groups import PodGroup
from moorage.core.cycle.group_preemption import Fits, group_victims
from moorage.core.extenders.consultation import Asking
from moorage.core.preemption.candidates import Candidate, PreemptionSearch, VictimRules, find_candidates
from moorage.core.preemption.victim_units import Units
from moorage.framework.points import Attempt, PostFilterResult
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Code, Hold, Status, Verdicts
from moorage.plugins.default_preemption import UNDER_WAY_FOR_GROUP, DefaultPreemption
from moorage.state.group_trees import tree_of
from moorage.state.view import PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word.
FOUND: Final = "preemption: found a potential placement for pod on node {}, preempting {} victims"
FOR_GROUP: Final = "pod group preemption: "
UNDER_WAY: Final = "ongoing preemption on nominated nodes"


class DefaultPreemptionV137(DefaultPreemption):
    ranks_in_turn = True
    spends_first_budget_only = True
    _trees = False

    def attach(self, handle: Handle) -> None:
        super().attach(handle)
        self._trees = handle.gates.serves("CompositePodGroup")

    def pre_enqueue(self, pod: PodInfo) -> Hold | None:
        tree = tree_of(pod, self._handle.snapshot) if self._trees and self._is_async and self._handle is not None else None
        if tree is None or self._handle is None:
            return super().pre_enqueue(pod)
        under_way = self._handle.evicting_for(tree.group.metadata.uid)
        return Hold.because(UNDER_WAY_FOR_GROUP, unresolvable=True) if under_way else None

    def nominate(self, pod: PodInfo, attempt: Attempt, best: Candidate) -> PostFilterResult:
        found = super().nominate(pod, attempt, best)
        victims = best.victims
        units = Units(attempt.snapshot, earliest=True, trees=self._trees) if self._for_groups else None
        return replace(
            found,
            reasons=(FOUND.format(found.nominated, len(victims.pods)),),
            disruptions=0 if units is None else units.disruptions(victims.pods),
            violations=victims.violations,
        )

    def pod_group_post_filter(
        self, group: PodGroup, pods: Sequence[PodInfo], snapshot: Snapshot, fits: Fits
    ) -> Asking[tuple[PodInfo, ...] | Status]:
        if all(pod.spec.preemption_policy != "Never" for pod in pods) and self._victims_leave(group, pods, snapshot):
            return Status(Code.SUCCESS, "", (f"{FOR_GROUP}{UNDER_WAY}",))
        budgets = self.budgets(snapshot)
        units = Units(snapshot, earliest=True, trees=self._trees)
        found = yield from group_victims(group, pods, units, budgets, fits)
        if not isinstance(found, Status):
            return found
        return Status(found.code, found.plugin, (f"{FOR_GROUP}{found.message}",))

    def candidates(self, attempt: Attempt, percentage: int, absolute: int) -> PreemptionSearch:
        known = self._for_groups and attempt.snapshot.objects(PodGroup)
        units = Units(attempt.snapshot, earliest=True, trees=self._trees) if known else None
        rules = VictimRules(self.budgets(attempt.snapshot), self._ranking, units)
        return find_candidates(attempt, percentage, absolute, rules)

    def has_lesser(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        return super().has_lesser(pod, snapshot) or bool(self._for_groups and snapshot.objects(PodGroup))

    def may_help(self, pod: PodInfo, verdicts: Verdicts, snapshot: Snapshot) -> bool:
        return super().may_help(pod, verdicts, snapshot) or bool(self._for_groups and snapshot.objects(PodGroup))

    def _victims_leave(self, group: PodGroup, pods: Sequence[PodInfo], snapshot: Snapshot) -> bool:
        """Return whether a victim of an earlier attempt still terminates on a node to which a pod of the group is nominated."""
        units, table = Units(snapshot, earliest=True, trees=self._trees), snapshot.table
        rows = {table.row_of.get(pod.status.nominated_node_name) for pod in pods} - {None}
        return any(
            units.priority(other) < group.priority and self.is_leaving(other)
            for row in rows
            if row is not None
            for other in table.pods[row].values()
        )
