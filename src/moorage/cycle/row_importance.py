"""The pods of each row, the most important first, as arrays, cached until the row changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import is_not
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.cycle.importance import by_importance
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

__all__ = ["RankedPods", "Ranking"]


#: The lowest priority of a row without pods.
_NO_PODS: Final = 2**63 - 1


class RankedPods(NamedTuple):
    """Pods of one row, the most important first.

    ``facts`` has one row per pod: its priority, then what it adds to the node's sums (see ``WhatIfs``): 1 for the pod count,
    and its request of each resource.
    """

    pods: tuple[PodInfo, ...]
    facts: IntArray


class Ranking:
    """A cache of the ranked pods of a node table, which follows the table's change log."""

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._resources: tuple[str, ...] = ()
        self._layout = 0
        self._position = 0
        self._kept: dict[int, RankedPods] = {}
        #: The lowest priority of the pods on each row; and the mapping of each row's pods, to detect rows that moved.
        self._lowest: IntArray = np.zeros(0, dtype=np.int64)
        self._held: list[dict[str, PodInfo]] = []

    def have_lesser(self, table: NodeTable, rows: npt.NDArray[np.intp], priority: int) -> BoolArray:
        """Return for each row whether it has a pod of lower priority."""
        self._follow(table)
        lesser: BoolArray = self._lowest[rows] < priority
        return lesser

    def of(self, table: NodeTable, rows: Iterable[int]) -> list[RankedPods]:
        """Return the ranked pods of each row."""
        self._follow(table)
        kept = self._kept
        ranked: list[RankedPods] = []
        for row in rows:
            known = kept.get(row)
            if known is None:
                known = kept[row] = _ranked(table, row, self._resources)
            ranked.append(known)
        return ranked

    def _follow(self, table: NodeTable) -> None:
        """Drop the rows that changed since the last call."""
        changes = table.changes
        resources = table.resources_requested
        changed = changes.since(self._position) if table is self._table else None
        if changed is None or resources != self._resources:
            self._kept.clear()
        if changed is None:
            self._held, self._lowest = [], np.zeros(0, dtype=np.int64)
        if changed is None or changes.layout != self._layout:
            changed = [*(changed or ()), *self._moved(table)]
        for row in dict.fromkeys(changed):
            self._kept.pop(row, None)
            if row < len(table):
                self._lowest[row] = _lowest(table.pods[row])
        self._table, self._resources = table, resources
        self._layout, self._position = changes.layout, changes.position

    def _moved(self, table: NodeTable) -> list[int]:
        """Resize the arrays to the rows of the table. Return the rows that are new or belong to another node than before."""
        held, self._held = self._held, table.pods.copy()
        kept = min(len(held), len(table))
        self._lowest = np.concatenate([self._lowest[:kept], np.zeros(len(table) - kept, dtype=np.int64)])
        moved = np.flatnonzero(np.fromiter(map(is_not, table.pods, held), dtype=bool, count=kept))
        return [*moved.tolist(), *range(kept, len(table))]


def _lowest(pods: Mapping[str, PodInfo]) -> int:
    return min([pod.priority for pod in pods.values()], default=_NO_PODS)


def _ranked(table: NodeTable, row: int, resources: tuple[str, ...]) -> RankedPods:
    pods = by_importance(table.pods[row].values())
    facts = [(pod.priority, 1, *(pod.requests.get(name, 0) for name in resources)) for pod in pods]
    return RankedPods(tuple(pods), np.array(facts, dtype=np.int64).reshape(len(pods), 2 + len(resources)))
