"""The rows with nominated pods that a pod must leave room for, and the sums of these pods, followed from attempt to attempt.

Each failing attempt judges all these rows, and each preemptor nominates one more, so a row is computed only when it changes. A
list of nominated pods is compared by identity: the nominator replaces a list when it changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

__all__ = ["Contended", "ContendedRows"]

#: The most priorities whose rows are kept up to date; more are rare, and each takes memory in proportion to the nodes.
_PRIORITIES: Final = 8


class Contended(NamedTuple):
    """The nominated pods that a pod must leave room for, summed by row.

    ``rows`` marks the rows with such pods. ``sums`` are their sums on each row: the number of pods, then each resource.
    ``uncounted`` are rows where such a pod requests a resource without a column; their sums are incomplete.

    Shapes  rows (rows,); sums (rows, 1 + resources)
    """

    rows: BoolArray
    sums: IntArray
    uncounted: frozenset[int]


class ContendedRows:
    """The contended rows of one cluster, for pods of several priorities."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._table = snapshot.table
        self._followed: dict[int, _Followed] = {}

    def of(self, pod: PodInfo, nominated: Mapping[str, Sequence[PodInfo]]) -> Contended | None:
        """Return the rows for a pod; None if they cannot be followed: the mapping may change, or a what-if is open."""
        table = self._table
        if not isinstance(nominated, MappingProxyType) or table.rows_in_what_ifs:
            return None
        followed = self._followed.pop(pod.priority, None)
        if followed is None or followed.version != _version(table):
            followed = _Followed(table, pod.priority)
        self._followed[pod.priority] = followed
        while len(self._followed) > _PRIORITIES:
            del self._followed[next(iter(self._followed))]
        followed.follow(nominated)
        return followed.without(pod.uid)


def _version(table: NodeTable) -> tuple[int, tuple[str, ...]]:
    return table.changes.layout, table.resources_requested


class _Followed:
    """The contended rows for pods of one priority, while no node is added or removed and no resource becomes known."""

    def __init__(self, table: NodeTable, priority: int) -> None:
        self.version = _version(table)
        self._table = table
        self._priority = priority
        self._columns = {name: number for number, name in enumerate(table.resources_requested, 1)}
        self._nominated: Mapping[str, Sequence[PodInfo]] = {}
        self._position = table.changes.position
        self._row_of: dict[str, int] = {}
        self._rows: BoolArray = np.zeros(len(table), dtype=bool)
        self._sums: IntArray = np.zeros((len(table), 1 + len(self._columns)), dtype=np.int64)
        self._uncounted: set[int] = set()

    def follow(self, nominated: Mapping[str, Sequence[PodInfo]]) -> None:
        """Take in the nominations and rows that changed since the last call."""
        table, before = self._table, self._nominated
        changed = table.changes.since(self._position)
        self._position = table.changes.position
        rows = set(np.flatnonzero(self._rows).tolist() if changed is None else (row for row in changed if self._rows[row]))
        if nominated is not before:
            names = [name for name, pods in nominated.items() if before.get(name) is not pods]
            names += [name for name in before if name not in nominated]
            for pod in (pod for name in names for pod in before.get(name, ())):
                self._row_of.pop(pod.uid, None)
            rows |= {table.row_of[name] for name in names if name in table.row_of}
            self._nominated = nominated
        for row in rows:
            self._set(row, self._sums, self._rows, self._uncounted)

    def _set(self, row: int, sums: IntArray, rows: BoolArray, uncounted: set[int], but: str = "") -> None:
        """Compute one row again, without the nomination of the pod with the UID ``but``."""
        nominated = self._nominated.get(self._table.nodes[row].name, ())
        contenders = [pod for pod in nominated if pod.priority >= self._priority and pod.uid != but]
        present = self._table.pods[row]
        rows[row] = bool(contenders)
        sums[row] = 0
        uncounted.discard(row)
        for pod in contenders:
            self._row_of[pod.uid] = row
            if pod.uid in present:
                continue
            sums[row, 0] += 1
            for name, amount in pod.requests.items():
                if name in self._columns:
                    sums[row, self._columns[name]] += amount
                elif amount:
                    uncounted.add(row)

    def without(self, uid: str) -> Contended:
        """Return the rows for a pod, without its own nomination."""
        row = self._row_of.get(uid)
        if row is None:
            return Contended(self._rows, self._sums, frozenset(self._uncounted))
        rows, sums, uncounted = self._rows.copy(), self._sums.copy(), set(self._uncounted)
        self._set(row, sums, rows, uncounted, but=uid)
        return Contended(rows, sums, frozenset(uncounted))
