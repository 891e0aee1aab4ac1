"""Preemption for a pod group: find the victims anywhere in the cluster that make room for the whole group.

``group_victims`` removes all pods and groups of lower priority. If the group then fits, it reprieves them one by one, the most
important first; those that leave too little room are the victims. A group that may only be disrupted as a whole
(``disruptionMode: PodGroup``, or ``all`` since 1.37) is removed or reprieved as one unit.

The caller passes ``fits``, which checks the group against the table as it stands; its method ``beside``, if it has one, does so
knowing that the group fitted before some pods came back. Its ``cost``, if it has one, gets the numbers of ``GroupReport``. The
table is restored at the end.

Source  kube-scheduler, framework/preemption/podgrouppreemption.go, types.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from moorage.core.extenders.consultation import Asking
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.core.preemption.victim_units import Unit, Units, ranked_again
from moorage.framework.verdicts import Code, Status
from moorage.state.group_trees import AnyGroup
from moorage.state.table import NodeTable
from moorage.state.view import PodInfo

# kube-scheduler's own texts, kept word for word.
NEVER: Final = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"

#: Checks whether the group fits the table as it stands; SUCCESS if it does.
Fits = Callable[[], Asking[Status]]


def group_victims(
    group: AnyGroup, pods: Iterable[PodInfo], units: Units, budgets: Budgets, fits: Fits
) -> Asking[tuple[PodInfo, ...] | Status]:
    """Return the victims that make room for ``pods`` of a group; a status if preemption does not help.

    Where groups of ``units`` start with the ``earliest`` pod, victims are ordered and counted as since 1.37.
    """
    if any(pod.spec.preemption_policy == "Never" for pod in pods):
        return Status(Code.UNSCHEDULABLE, "", (NEVER,))
    lesser = [unit for unit in units.all() if unit.priority < group.priority]
    if not lesser:
        return Status(Code.UNRESOLVABLE, "", (NO_VICTIMS,))
    stage = _Stage(units.table)
    beside: Callable[[list[tuple[int, PodInfo]]], Asking[Status]] | None = getattr(fits, "beside", None)
    cost: list[int] = getattr(fits, "cost", [])
    try:
        for unit in lesser:
            stage.remove(unit)
        status = yield from fits()
        if status.code is not Code.SUCCESS:
            return status
        lesser.sort(key=lambda unit: unit.importance)
        violating = budgets.violating(lesser, first_only=not units.earliest)
        turns = sorted(zip(lesser, violating, strict=True), key=lambda turn: not turn[1])
        gone: list[Unit] = []
        violations = 0
        for unit, over in turns:
            stage.put_back(unit)
            status = yield from (fits() if beside is None else beside(unit.pods))
            if status.code is not Code.SUCCESS:
                stage.remove(unit)
                gone.append(unit)
                violations += len(over)
    finally:
        stage.restore()
    gone = ranked_again(gone, lesser) if units.earliest else sorted(gone, key=lambda unit: unit.importance)
    cost[:] = sum(unit.pods[0][1].spec.scheduling_group is not None for unit in gone), violations
    return tuple(pod for unit in gone for pod in unit)


class _Stage:
    """The node table with some pods removed, until ``restore``."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._before: dict[int, list[PodInfo]] = {}

    def remove(self, unit: Unit) -> None:
        for row, pod in unit.pods:
            self._before.setdefault(row, list(self._table.pods[row].values()))
            self._table.remove_pod(row, pod)

    def put_back(self, unit: Unit) -> None:
        for row, pod in unit.pods:
            self._table.add_pod(row, pod)

    def restore(self) -> None:
        """Put all pods back, in their original order."""
        for row, pods in self._before.items():
            for pod in list(self._table.pods[row].values()):
                self._table.remove_pod(row, pod)
            for pod in pods:
                self._table.add_pod(row, pod)
