"""Labels, taints, features and images of nodes as columns.

A label key becomes a column of value ids when a plugin first reads it: id 0 means "absent", and every distinct value is judged
once. Sets (of taints, of features) are interned as single values in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from moorage.state.columns import BoolArray, Column, IntArray, RowSpace

Ids = npt.NDArray[np.int32]
T = TypeVar("T", bound=Hashable)
N = TypeVar("N", bound=np.generic)


class InternedColumn(Generic[T]):
    """A column with few distinct values: one of ``ids`` per row, ``values`` by id. Id 0 holds ``absent``.

    Values are never dropped, so ids stay valid for the lifetime of the table.
    """

    __slots__ = ("_column", "_id_of", "values")

    def __init__(self, space: RowSpace, absent: T) -> None:
        self._column: Column = space.column(np.int32)
        self.values: list[T] = [absent]
        self._id_of: dict[T, int] = {absent: 0}

    @property
    def ids(self) -> Ids:
        """Shape (rows,), int32: which of ``values`` each row holds."""
        return self._column.view

    def id_at(self, row: int) -> int:
        """Return the id of one row's value."""
        found: int = self._column.cells[row]
        return found

    def set(self, row: int, value: T) -> None:
        self._column.data[row] = self.intern(value)

    def intern(self, value: T) -> int:
        """Return the id of ``value``; assign a new one if it has none."""
        known = self._id_of.get(value)
        if known is None:
            known = self._id_of[value] = len(self.values)
            self.values.append(value)
        return known

    def find(self, value: T) -> int:
        """Return the id of ``value``, or -1 if no row ever held it."""
        return self._id_of.get(value, -1)

    def judge(self, verdict: Callable[[T], bool]) -> BoolArray:
        """Call ``verdict`` once per distinct value; shape (len(values),). Index it with ``ids`` to spread it over rows."""
        return np.fromiter((verdict(value) for value in self.values), dtype=bool, count=len(self.values))

    def spread(self, ids: Ids, ask: Callable[[T], int], dtype: npt.DTypeLike = np.bool_) -> npt.NDArray[Any]:
        """Call ``ask`` once per distinct value in ``ids`` and return each entry's answer; shape of ``ids``."""
        if len(self.values) == 1:
            return np.full(len(ids), ask(self.values[0]), dtype=dtype)
        few = len(ids) < 32  # then counting costs more than it saves
        held = sorted(set(ids.tolist())) if few else np.flatnonzero(np.bincount(ids, minlength=len(self.values)))
        answers = np.zeros(len(self.values), dtype=dtype)
        answers[held] = [ask(self.values[at]) for at in held]
        return answers.take(ids)


class IdCounts:
    """A count for each id of a growing set of ids."""

    __slots__ = ("_above", "_above_cells", "_cells", "_counts")

    def __init__(self, counts: IntArray | None = None) -> None:
        self._hold(np.zeros(8, dtype=np.int64) if counts is None else counts)

    def _hold(self, counts: IntArray) -> None:
        self._counts = counts
        self._cells: memoryview = counts.data  # faster for single values
        self._above: BoolArray = counts > 0
        self._above_cells: memoryview = self._above.data

    def add(self, at: int, by: int) -> None:
        if at >= len(self._cells):
            room = np.zeros(max(2 * len(self._counts), at + 1) - len(self._counts), dtype=np.int64)
            self._hold(np.concatenate([self._counts, room]))
        count = self._cells[at] = self._cells[at] + by
        self._above_cells[at] = count > 0

    def of(self, at: int) -> int:
        return self._cells[at] if at < len(self._counts) else 0

    def copy(self, size: int) -> IntArray:
        """Return the counts of the ids below ``size``; every id with a count must be below it. A fresh array."""
        return _first(self._counts, size)

    def above(self, size: int) -> BoolArray:
        """Return which of the ids below ``size`` have a count above zero. A fresh array; faster than ``copy``."""
        return _first(self._above, size)


def _first(values: npt.NDArray[N], size: int) -> npt.NDArray[N]:
    """Return a copy of the first values, with zeros at the end if there are fewer."""
    known = values[:size]
    if len(known) == size:
        return known.copy()
    whole = np.zeros(size, dtype=values.dtype)
    whole[: len(known)] = known
    return whole


class LabelColumn(InternedColumn[str | None]):
    """The column of one label key. It counts the rows of each value, so that topology domains need no search."""

    __slots__ = ("_count", "_domains", "_everywhere", "_held", "_population")

    def __init__(self, space: RowSpace) -> None:
        super().__init__(space, None)
        self._population = IdCounts()
        self._held: BoolArray | None = None
        self._domains: BoolArray | None = None

    @property
    def is_everywhere(self) -> bool:
        """True when every row has the label."""
        if self._held is None:
            self._count_held()
        return self._everywhere

    @property
    def held(self) -> BoolArray:
        """For each of ``values``, absence included, whether a row holds it; shape (values,), read-only."""
        held = self._held
        return self._count_held() if held is None or len(held) < len(self.values) else held

    @property
    def domains(self) -> BoolArray:
        """``held`` with False for absence, which is no domain; shape (values,), read-only."""
        held = self.held
        if self._domains is None:
            self._domains = held.copy()
            self._domains[0] = False
        return self._domains

    @property
    def domain_count(self) -> int:
        """The number of values, other than absence, that a row holds."""
        if self._held is None:
            self._count_held()
        return self._count

    def _count_held(self) -> BoolArray:
        """Compute which values are held, and the properties that derive from it."""
        held: BoolArray = self._population.copy(len(self.values)) > 0
        self._held, self._domains = held, None
        self._everywhere = not held.item(0)
        self._count = int(np.count_nonzero(held[1:]))
        return held

    def fill(self, values: Sequence[str | None]) -> None:
        """Set the values of all rows of a new column."""
        id_of = {value: self.intern(value) for value in dict.fromkeys(values)}
        self.ids[:] = [id_of[value] for value in values]
        self._population = IdCounts(np.bincount(self.ids, minlength=len(self.values)))
        self._held = None

    def come(self, row: int, value: str | None) -> None:
        """Set the value of a new row."""
        self.set(row, value)
        self._populate(self.intern(value), 1)

    def change(self, row: int, value: str | None) -> None:
        self._populate(int(self.ids[row]), -1)
        self.come(row, value)

    def go(self, value: str | None) -> None:
        """Stop counting a row that held ``value``; the ``RowSpace`` moves the column itself."""
        self._populate(self.intern(value), -1)

    def _populate(self, value: int, by: int) -> None:
        self._population.add(value, by)
        self._held = None


class LabelColumns:
    """The nodes' labels, with one interned column per key that was read and that some node has.

    Keys that no node has share one column, so reading thousands of them costs next to nothing.
    """

    def __init__(self, space: RowSpace) -> None:
        self._space = space
        self._columns: dict[str, LabelColumn] = {}
        #: The labels of each row.
        self.by_row: list[Mapping[str, str]] = []
        #: How many nodes have each key.
        self._there: Counter[str] = Counter()
        self._nowhere = LabelColumn(space)

    def of(self, row: int) -> Mapping[str, str]:
        return self.by_row[row]

    def is_anywhere(self, key: str) -> bool:
        """Return False for a key that no node has, nor had since it was first read."""
        return key in self._there or key in self._columns

    def column(self, key: str) -> LabelColumn:
        """Return the column of ``key``; the first call after a node has it builds it from the labels of all rows."""
        column = self._columns.get(key)
        if column is None:
            if key not in self._there:
                return self._nowhere
            column = self._columns[key] = LabelColumn(self._space)
            column.fill([labels.get(key) for labels in self.by_row])
        return column

    def append(self, labels: Mapping[str, str]) -> None:
        self.by_row.append(labels)
        self._come(len(self.by_row) - 1, labels)

    def insert(self, row: int, labels: Mapping[str, str]) -> None:
        """Undo ``remove``: the labels of the row move to the end (the ``RowSpace`` moves the columns)."""
        by_row = self.by_row
        by_row.append(labels)
        by_row[row], by_row[-1] = by_row[-1], by_row[row]
        self._come(row, labels)

    def _come(self, row: int, labels: Mapping[str, str]) -> None:
        self._there.update(labels.keys())
        self._nowhere.come(row, None)
        for key, column in self._columns.items():
            column.come(row, labels.get(key))

    def replace(self, row: int, labels: Mapping[str, str]) -> None:
        before = self.by_row[row]
        self._forget(before.keys() - labels.keys())
        self._there.update(labels.keys() - before.keys())
        self.by_row[row] = labels
        for key in {key for key, _ in before.items() ^ labels.items()}:
            if key in self._columns:
                self._columns[key].change(row, labels.get(key))

    def remove(self, row: int) -> None:
        """Remove a row's labels; the last row's labels move into its place (the ``RowSpace`` moves the columns)."""
        self._forget(self.by_row[row])
        self._nowhere.go(None)
        for key, column in self._columns.items():
            column.go(self.by_row[row].get(key))
        last = self.by_row.pop()
        if row < len(self.by_row):
            self.by_row[row] = last

    def _forget(self, labels: Iterable[str]) -> None:
        for key in labels:
            self._there[key] -= 1
            if not self._there[key]:
                del self._there[key]
