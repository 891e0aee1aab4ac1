"""What preemption evicts as one: a pod, or all placed pods of a group that may only be disrupted as a whole.

The priority of a group is that of its pods, too. ``Units`` knows the units of a cluster; ``select_units`` chooses those that
make room for a single pod on a node, since 1.37: a group goes or stays with all its pods, on whichever nodes they are.

Source  kube-scheduler 1.36 and 1.37, framework/preemption/types.go, util.go; plugins/defaultpreemption/default_preemption.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from moorage.api.pod_groups import CompositePodGroup, PodGroup
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.core.preemption.reprieve import NOBODY_LESSER, Victims
from moorage.core.preemption.row_importance import NOT_STARTED, started
from moorage.framework.post_filter import WhatIf
from moorage.framework.verdicts import Status
from moorage.state.group_trees import AnyGroup, below, entry_key
from moorage.state.pod_groups import group_key
from moorage.state.view import PodInfo, Snapshot


@dataclass(slots=True, eq=False)
class Unit:
    """Pods that are evicted or reprieved together, each with its row. ``earliest``: see ``Units``."""

    priority: int
    pods: list[tuple[int, PodInfo]] = field(default_factory=list)
    earliest: bool = False
    is_tree: bool = False

    def __iter__(self) -> Iterator[PodInfo]:
        return (pod for _, pod in self.pods)

    @property
    def importance(self) -> tuple[int, bool, bool, int, int]:
        """Sort key, the most important first: higher priority, trees before groups before pods, larger groups, earlier start.

        A group starts with its first pod, in 1.36 the first in node order. A pod of a group that may be disrupted pod by pod
        ranks as a group of one.
        """
        grouped = self.pods[0][1].spec.scheduling_group is not None
        return -self.priority, not self.is_tree, not grouped, -len(self.pods) if grouped else 0, self.start

    @property
    def start(self) -> int:
        """When it started, in the units of ``started``."""
        return min(map(started, self)) if self.earliest else started(self.pods[0][1])


class Units:
    """The units of a cluster. ``earliest``: a group starts with the pod of it that started first, as since 1.37.

    ``trees``: groups may have parents (gate CompositePodGroup); the highest one that is disrupted as a whole is the unit.
    """

    def __init__(self, snapshot: Snapshot, *, earliest: bool, trees: bool = False) -> None:
        self._composites: Mapping[str, CompositePodGroup] = snapshot.objects(CompositePodGroup) if trees else {}
        self.table = snapshot.table
        self._groups: Mapping[str, PodGroup] = snapshot.objects(PodGroup)
        self._snapshot = snapshot
        self.earliest = earliest

    def _group_of(self, pod: PodInfo) -> PodGroup | None:
        return self._groups.get(group_key(pod) or "")

    def grouped(self, row: int) -> bool:
        """Return whether a pod of a known group is on the row."""
        return any(pod.spec.scheduling_group and self._group_of(pod) for pod in self.table.pods[row].values())

    def priority(self, pod: PodInfo) -> int:
        """Return the priority that a pod has as a victim: that of its group, if it is known."""
        group = self._group_of(pod)
        return pod.priority if group is None else list(self._and_above(group))[-1].priority

    def _and_above(self, group: PodGroup) -> Iterator[AnyGroup]:
        passed: set[str] = set()
        found: AnyGroup | None = group
        while found is not None:
            yield found
            passed.add(entry_key(found))
            above = self._composites.get(found.parent_key or "")
            found = above if above is not None and entry_key(above) not in passed else None

    def _whole(self, pod: PodInfo) -> AnyGroup | None:
        """Return the highest group of a pod that is disrupted as a whole, if any."""
        group = self._group_of(pod)
        whole = [one for one in self._and_above(group) if one.disrupted_as_one] if group is not None else []
        return whole[-1] if whole else None

    def disruptions(self, victims: Iterable[PodInfo]) -> int:
        """Return how many groups that are evicted as a whole, and single pods of other groups, these pods are."""
        grouped = (pod for pod in victims if pod.spec.scheduling_group is not None)
        return len({pod.uid if (whole := self._whole(pod)) is None else entry_key(whole) for pod in grouped})

    def all(self) -> list[Unit]:
        """Return all placed pods and groups as units, in the order of the nodes and of the pods on them."""
        units: dict[str, Unit] = {}
        for row in self.table.rows_in_turn().tolist():
            for pod in self.table.pods[row].values():
                whole = self._whole(pod)
                if whole is not None:
                    priority = self.priority(pod) if self.earliest else whole.priority
                    made = Unit(priority, [], self.earliest, isinstance(whole, CompositePodGroup))
                    unit = units.setdefault(f"group {entry_key(whole)}", made)
                else:
                    unit = units[f"pod {pod.uid}"] = Unit(self.priority(pod) if self.earliest else pod.priority)
                unit.pods.append((row, pod))
        return list(units.values())

    def on(self, row: int) -> list[Unit]:
        """Return the units with a pod on the row, in the order of its pods, each with its pods on all rows."""
        units: dict[str, Unit] = {}
        for pod in self.table.pods[row].values():
            whole = self._whole(pod)
            if whole is None:
                units[f"pod {pod.uid}"] = Unit(self.priority(pod), [(row, pod)])
            elif f"group {entry_key(whole)}" not in units:
                is_tree = isinstance(whole, CompositePodGroup)
                made = Unit(self.priority(pod), list(self._placed(whole)), self.earliest, is_tree)
                units[f"group {entry_key(whole)}"] = made
        return list(units.values())

    def _placed(self, whole: AnyGroup) -> Iterator[tuple[int, PodInfo]]:
        for known in below(whole, self._snapshot).pods(self._snapshot):
            for uid, node in known.nodes.items():
                row, pod = self.table.row_of.get(node), known.pod(uid)
                if row is not None and pod is not None:
                    yield row, self.table.pods[row].get(uid, pod)


def select_units(pod: PodInfo, row: int, node: WhatIf, units: Iterable[Unit], budgets: Budgets) -> Victims | Status:
    """Return the victims for ``pod`` on a node, whose ``units`` these are, or why evicting them does not help.

    On return the what-if has the victims removed.
    """
    lesser = sorted((unit for unit in units if unit.priority < pod.priority), key=lambda unit: unit.importance)
    if not lesser:
        return NOBODY_LESSER
    for unit in lesser:
        _remove(unit, row, node)
    refused = node.refused_by()
    if refused is not None:
        return refused
    violating = budgets.violating(lesser)
    costly = _not_spared(node, row, [unit for unit, over in zip(lesser, violating, strict=True) if over])
    gone = [*costly, *_not_spared(node, row, [unit for unit, over in zip(lesser, violating, strict=True) if not over])]
    gone = ranked_again(gone, lesser)
    exceeding = [over for unit, over in zip(lesser, violating, strict=True) if unit in costly]
    return Victims(tuple(one for unit in gone for one in unit), tuple(chain.from_iterable(exceeding)))


def ranked_again(gone: Iterable[Unit], lesser: Iterable[Unit]) -> list[Unit]:
    """Return some of the ``lesser`` units, which are ranked, the most important first; ties as ``again_by_importance``."""
    turns = {id(unit): at for at, unit in enumerate(lesser)}
    return sorted(gone, key=lambda unit: (unit.importance, turns[id(unit)] if unit.start == NOT_STARTED else 0))


def _remove(unit: Unit, row: int, node: WhatIf) -> None:
    for at, pod in unit.pods:
        if at == row:
            node.remove(pod)
        else:
            node.miss(at, pod)


def _not_spared(node: WhatIf, row: int, units: Sequence[Unit]) -> list[Unit]:
    """Put the units back in turn. If the preemptor no longer fits beside one, remove that one again; return those removed."""
    left_off: list[Unit] = []
    for unit in units:
        for at, pod in unit.pods:
            if at == row:
                node.add(pod)
            else:
                node.miss(at, pod, back=True)
        if not node.fits():
            _remove(unit, row, node)
            left_off.append(unit)
    return left_off
