"""Preemption for a pod group: find the victims anywhere in the cluster that make room for the whole group.

``group_victims`` removes all pods and groups of lower priority. If the group then fits, it reprieves them one by one, the most
important first; those that leave too little room are the victims. A group that may only be disrupted as a whole
(``disruptionMode: PodGroup``) is removed or reprieved as one unit.

The caller passes ``fits``, which checks the group against the table as it stands. The table is restored at the end.

Source  kube-scheduler, framework/preemption/podgrouppreemption.go, types.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from moorage.api.pod_groups import PodGroup
from moorage.core.extenders.consultation import Asking
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.core.preemption.row_importance import started
from moorage.framework.verdicts import Code, Status
from moorage.state.cluster import Snapshot
from moorage.state.pod_groups import group_key
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

__all__ = ["Fits", "group_victims"]

# kube-scheduler's own texts, kept word for word.
NEVER: Final = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"

#: Checks whether the group fits the table as it stands; SUCCESS if it does.
Fits = Callable[[], Asking[Status]]


@dataclass(slots=True)
class _Unit:
    """Pods that are evicted or reprieved together, each with its row."""

    priority: int
    pods: list[tuple[int, PodInfo]] = field(default_factory=list)

    @property
    def importance(self) -> tuple[int, bool, int, int]:
        """Sort key, the most important first: higher priority, groups before pods, larger groups, earlier start.

        A group's start is that of its first pod in node order, as in kube-scheduler. A pod of a group that may be disrupted
        pod by pod ranks as a group of one.
        """
        first = self.pods[0][1]
        grouped = first.spec.scheduling_group is not None
        return -self.priority, not grouped, -len(self.pods) if grouped else 0, started(first)


def group_victims(
    group: PodGroup, pods: Iterable[PodInfo], snapshot: Snapshot, budgets: Budgets, fits: Fits
) -> Asking[tuple[PodInfo, ...] | Status]:
    """Return the victims that make room for ``pods`` of a group; a status if preemption does not help."""
    if any(pod.spec.preemption_policy == "Never" for pod in pods):
        return Status(Code.UNSCHEDULABLE, "", (NEVER,))
    lesser = [unit for unit in _units(snapshot) if unit.priority < group.priority]
    if not lesser:
        return Status(Code.UNRESOLVABLE, "", (NO_VICTIMS,))
    stage = _Stage(snapshot.table)
    try:
        for unit in lesser:
            stage.remove(unit)
        status = yield from fits()
        if status.code is not Code.SUCCESS:
            return status
        gone: list[_Unit] = []
        for unit in _in_turn(sorted(lesser, key=lambda unit: unit.importance), budgets):
            stage.put_back(unit)
            status = yield from fits()
            if status.code is not Code.SUCCESS:
                stage.remove(unit)
                gone.append(unit)
    finally:
        stage.restore()
    gone.sort(key=lambda unit: unit.importance)
    return tuple(pod for unit in gone for _, pod in unit.pods)


def _units(snapshot: Snapshot) -> list[_Unit]:
    """Return all placed pods and groups as units, in the order of the nodes and of the pods on them."""
    groups = snapshot.objects(PodGroup)
    units: dict[str, _Unit] = {}
    for row in snapshot.table.rows_in_turn().tolist():
        for pod in snapshot.table.pods[row].values():
            group = groups.get(group_key(pod) or "")
            if group is not None and group.disrupted_as_one:
                unit = units.setdefault(f"group {group.key}", _Unit(group.priority))
            else:
                unit = units[f"pod {pod.uid}"] = _Unit(pod.priority)
            unit.pods.append((row, pod))
    return list(units.values())


def _in_turn(units: Sequence[_Unit], budgets: Budgets) -> Iterator[_Unit]:
    """Yield the units in the order they are reprieved: those that would violate a disruption budget first."""
    exceeding = budgets.exceeding([[pod for _, pod in unit.pods] for unit in units])
    yield from (unit for unit, exceeds in zip(units, exceeding, strict=True) if exceeds)
    yield from (unit for unit, exceeds in zip(units, exceeding, strict=True) if not exceeds)


class _Stage:
    """The node table with some pods removed, until ``restore``."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._before: dict[int, list[PodInfo]] = {}

    def remove(self, unit: _Unit) -> None:
        for row, pod in unit.pods:
            self._before.setdefault(row, list(self._table.pods[row].values()))
            self._table.remove_pod(row, pod)

    def put_back(self, unit: _Unit) -> None:
        for row, pod in unit.pods:
            self._table.add_pod(row, pod)

    def restore(self) -> None:
        """Put all pods back, in their original order."""
        for row, pods in self._before.items():
            for pod in list(self._table.pods[row].values()):
                self._table.remove_pod(row, pod)
            for pod in pods:
                self._table.add_pod(row, pod)
