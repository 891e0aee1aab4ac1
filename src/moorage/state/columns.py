"""Columns: one value of every node, kept as one growing NumPy array.

A ``RowSpace`` owns the number of rows and every column created in it: adding a node grows all columns, and removing one moves
the last row into the gap in all of them. Holders keep the ``Column`` and read ``.view`` each time: the array behind it is
replaced when the space grows.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def has_any(values: npt.NDArray[Any]) -> bool:
    """Return whether a value, none of which is negative, is above zero. Several times faster than ``any()``."""
    return len(values) > 0 and bool(values.item(values.argmax()))


def both(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    """Return the rows that are in both masks; None stands for all rows."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """Return the numbers from each start on, as many as its count, range after range; shape (sum of the counts,)."""
    return np.repeat(starts + counts - counts.cumsum(), counts) + np.arange(counts.sum())


#: From so many rows on, NumPy adds to them faster than a loop.
_MANY_ROWS: Final = 16


def add_at(columns: Iterable[tuple[Column, int]], rows: list[int]) -> None:
    """Add to each column its number on these rows, as often as each row is named."""
    for column, count in columns:
        if len(rows) >= _MANY_ROWS:
            np.add.at(column.data, rows, count)
        else:
            for row in rows:
                column.data[row] += count


class Column:
    """One value per row. ``view`` is the used part of the array, shape (rows,); writes to it change the column.

    ``cells`` is the memory of ``data``: to read or write one value it is several times faster than the array.
    """

    __slots__ = ("__weakref__", "_space", "cells", "data")

    def __init__(self, space: RowSpace, dtype: npt.DTypeLike) -> None:
        self._space = space
        self.hold(np.zeros(space.capacity, dtype=dtype))

    def hold(self, data: npt.NDArray[Any]) -> None:
        """Replace the array, with room for more rows."""
        self.data: npt.NDArray[Any] = data
        self.cells: memoryview = data.data

    @property
    def view(self) -> npt.NDArray[Any]:
        return self.data[: self._space.rows]

    def shift(self, row: int, by: int) -> None:
        """Add to the value of a row."""
        try:
            self.cells[row] += by
        except ValueError:  # int64 overflows in an array
            self.data[row] += by


class RowSpace:
    """The rows that all columns of one table share."""

    def __init__(self) -> None:
        self.rows = 0
        self.capacity = 16
        self._columns: weakref.WeakSet[Column] = weakref.WeakSet()
        #: The same columns in a list, which is read several times faster; None once there is a new one.
        self._listed: list[Column] | None = None

    def column(self, dtype: npt.DTypeLike = np.int64) -> Column:
        """Return a new column of zeros that grows and moves with this space."""
        made = Column(self, dtype)
        self._columns.add(made)
        self._listed = None
        return made

    def _list(self) -> list[Column]:
        listed = self._listed
        if listed is None:
            listed = self._listed = list(self._columns)
        return listed

    def append(self) -> int:
        """Add a row of zeros and return its index."""
        if self.rows == self.capacity:
            self.capacity *= 2
            for column in self._columns:
                column.hold(np.concatenate([column.data, np.zeros(self.capacity - self.rows, dtype=column.data.dtype)]))
        self.rows += 1
        return self.rows - 1

    def remove(self, row: int) -> int:
        """Remove a row: the last row moves into its place. Return the index that moved (``row`` itself if it was last)."""
        last = self.rows - 1
        for column in self._list():
            cells = column.cells
            cells[row] = cells[last]
            cells[last] = 0
        self.rows = last
        return last

    def insert(self, row: int) -> int:
        """Undo ``remove``: add a row of zeros. The row that has its place now moves to the end; return its index there."""
        last = self.append()
        if row != last:
            for column in self._list():
                cells = column.cells
                cells[last] = cells[row]
                cells[row] = 0
        return last

    def save(self, row: int) -> Callable[[], None]:
        """Return a function that writes the values of a row again, in the columns that exist now."""
        saved = [(column, column.cells[row]) for column in self._list()]

        def restore() -> None:
            for column, value in saved:
                column.cells[row] = value

        return restore
