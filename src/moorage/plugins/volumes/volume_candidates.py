"""Free volumes that match a claim, smallest first, grouped by the nodes that can access them.

Most claims differ in nothing that decides which volumes match, so equal claims share one list, which is updated for each volume
added or removed. From it follow the first volumes that each row can access. For volumes whose affinity requires one label to
have one of some values, as for all local volumes, an array by the label's values is kept up to date value by value.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np

from moorage.api.core import NodeSelector
from moorage.plugins.volumes.volume_reach import Reach, rows_reaching
from moorage.state.columns import IntArray
from moorage.state.labels import LabelColumn
from moorage.state.view import NodeView

__all__ = ["CandidateList", "Rank", "Ranked"]

#: A volume's size in nano-bytes, for exact comparison, and its name.
Rank = tuple[int, str]
#: A volume by its rank, and its number.
Ranked = tuple[Rank, int]


class CandidateList:
    """Numbers of volumes, sorted by their ranks."""

    def __init__(self) -> None:
        self._all: list[Ranked] = []
        self._rank_of: dict[int, Rank] = {}
        self._everywhere: list[Ranked] = []
        self._by_label: dict[str, _ByValue] = {}
        self._otherwise: dict[NodeSelector, list[Ranked]] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first(self) -> Ranked | None:
        """The smallest of all volumes, whatever nodes can access it."""
        return self._all[0] if self._all else None

    def add(self, volume: Ranked, reach: Reach) -> None:
        insort(self._all, volume)
        self._rank_of[volume[1]] = volume[0]
        if reach.required is not None:
            by_value = self._by_label.setdefault(reach.required.key, _ByValue())
            for value in dict.fromkeys(reach.required.values):
                by_value.add(value, volume)
        elif reach.affinity is None:
            insort(self._everywhere, volume)
        else:
            insort(self._otherwise.setdefault(reach.affinity, []), volume)

    def remove(self, volume: Ranked, reach: Reach) -> None:
        """Remove a volume that was added with the same reach."""
        _take(self._all, volume)
        del self._rank_of[volume[1]]
        if reach.required is not None:
            by_value = self._by_label[reach.required.key]
            for value in dict.fromkeys(reach.required.values):
                by_value.remove(value, volume)
            if not by_value:
                del self._by_label[reach.required.key]
        elif reach.affinity is None:
            _take(self._everywhere, volume)
        else:
            there = self._otherwise[reach.affinity]
            _take(there, volume)
            if not there:
                del self._otherwise[reach.affinity]

    def first_per_row(self, nodes: NodeView, depth: int) -> IntArray:
        """Return the first volumes that each row can access, in order; shape (depth, rows), -1 where there are no more."""
        sources = []
        if self._everywhere:
            sources.append(np.repeat(_firsts(self._everywhere, depth)[:, None], len(nodes), axis=1))
        for key, by_value in self._by_label.items():
            column = nodes.label(key)
            sources.append(by_value.firsts(column, depth)[:, nodes.ids(column)])
        for affinity, volumes in self._otherwise.items():
            sources.append(np.where(rows_reaching(affinity, nodes), _firsts(volumes, depth)[:, None], -1))
        if not sources:
            return np.full((depth, len(nodes)), -1, dtype=np.int64)
        return sources[0] if len(sources) == 1 else self._merged(sources, depth)

    def _merged(self, sources: Sequence[IntArray], depth: int) -> IntArray:
        """Merge several arrays of volumes and return the first ones, row by row."""
        stacked = np.concatenate(sources)
        found, at = np.unique(stacked, return_inverse=True)
        known = [number for number in found.tolist() if number >= 0]
        known.sort(key=self._rank_of.__getitem__)
        place_of = {number: place for place, number in enumerate(known)}
        places = np.array([place_of.get(number, len(known)) for number in found.tolist()], dtype=np.int64)
        best = np.sort(places[at.reshape(stacked.shape)], axis=0)[:depth]
        numbers: IntArray = np.array([*known, -1], dtype=np.int64)[best]
        return numbers


class _ByValue:
    """Volumes by the label value they require; and for a column of that label, the first volumes of each value id."""

    def __init__(self) -> None:
        self._at: dict[str, list[Ranked]] = {}
        self._column: LabelColumn | None = None
        #: How many values of the column are filled in. The array has shape (depth, values or more), -1 for no more volumes.
        self._known = 0
        self._firsts = np.full((1, 0), -1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._at)

    def add(self, value: str, volume: Ranked) -> None:
        insort(self._at.setdefault(value, []), volume)
        self._changed(value)

    def remove(self, value: str, volume: Ranked) -> None:
        there = self._at[value]
        _take(there, volume)
        if not there:
            del self._at[value]
        self._changed(value)

    def firsts(self, column: LabelColumn, depth: int) -> IntArray:
        """Return the first volumes for each of the column's values; shape (depth, values)."""
        if column is not self._column or depth > len(self._firsts):
            self._column, self._known = column, 0
            self._firsts = np.full((depth, 0), -1, dtype=np.int64)
        values = column.values
        if len(values) > self._firsts.shape[1]:
            more = max(2 * self._firsts.shape[1], len(values)) - self._firsts.shape[1]
            self._firsts = np.concatenate([self._firsts, np.full((len(self._firsts), more), -1, dtype=np.int64)], axis=1)
        for value_id in range(self._known, len(values)):
            self._fill(value_id, values[value_id])
        self._known = len(values)
        return self._firsts[:depth, : self._known]

    def _changed(self, value: str) -> None:
        value_id = self._column.find(value) if self._column is not None else -1
        if 0 <= value_id < self._known:
            self._fill(value_id, value)

    def _fill(self, value_id: int, value: str | None) -> None:
        volumes = self._at.get(value, ()) if value is not None else ()
        self._firsts[:, value_id] = _firsts(volumes, len(self._firsts)) if volumes else -1


def _firsts(volumes: Sequence[Ranked], depth: int) -> IntArray:
    numbers = [number for _, number in volumes[:depth]]
    return np.array([*numbers, *[-1] * (depth - len(numbers))], dtype=np.int64)


def _take(volumes: list[Ranked], volume: Ranked) -> None:
    del volumes[bisect_left(volumes, volume)]
