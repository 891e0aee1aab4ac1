"""Weighted sums of counts by topology domain, which follow the table's change log instead of being added up for each pod."""

from __future__ import annotations

from math import gcd
from typing import Final

import numpy as np

from moorage.state.change_log import RowLog
from moorage.state.columns import IntArray
from moorage.state.labels import IdCounts
from moorage.state.table import NodeTable

#: Counts by the values of one label, each with its weight.
Summands = tuple[tuple[IdCounts, int], ...]
#: The most sums that are kept for one table.
_KEPT: Final = 64
#: After more changed rows than this the sum is computed again.
_FEW: Final = 256


class WeightSum:
    """The sum for each value of a label; 0 for id 0. Ask ``follow`` before each use, and not while a what-if is open.

    ``values`` is updated in place, and ``changes`` logs the ids whose sum changed; both are replaced when all are added up
    again. All values are multiples of ``step``, and ``nonzero`` of them differ from zero.
    """

    def __init__(self, table: NodeTable, key: str, summands: Summands) -> None:
        self.key = key
        self._table, self._column = table, table.labels.column(key)
        self._summands = summands
        self.step = gcd(*(weight for _, weight in summands))
        self._add_up()

    def _add_up(self) -> None:
        changes, size = self._table.changes, len(self._column.values)
        self._position, self._nodes = changes.position, changes.nodes
        values = np.zeros(size, dtype=np.int64)
        for counts, weight in self._summands:
            values += counts.copy(size) * weight
        values[0] = 0
        self.values: IntArray = values
        self.nonzero = int(np.count_nonzero(values))
        self.changes = RowLog(1024)

    def follow(self) -> None:
        """Update the sums of rows that changed."""
        changes = self._table.changes
        behind = changes.position - self._position
        if changes.nodes == self._nodes and len(self.values) == len(self._column.values) and behind <= _FEW:
            rows = changes.since(self._position) if behind else []
            if rows is not None:
                self._position = changes.position
                for row in rows:
                    self._update(self._column.id_at(row))
                return
        self._add_up()

    def _update(self, at: int) -> None:
        value = 0
        if at:
            for counts, weight in self._summands:
                value += counts.of(at) * weight
        before = self.values.item(at)
        if value != before:
            self.nonzero += (value != 0) - (before != 0)
            self.values[at] = value
            self.changes.note(at)


class WeightSums:
    """The sums kept for one table, of which the least recently made one is dropped first."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._sums: dict[tuple[str, tuple[tuple[int, int], ...]], tuple[Summands, WeightSum]] = {}

    def of(self, key: str, summands: Summands) -> WeightSum:
        """Return the sum of these counts by the values of a label."""
        name = key, tuple([(id(counts), weight) for counts, weight in summands])  # the sum keeps these ids in use
        kept = self._sums.get(name)
        if kept is None:
            while len(self._sums) >= _KEPT:
                del self._sums[next(iter(self._sums))]
            kept = self._sums[name] = summands, WeightSum(self._table, key, summands)
        return kept[1]
