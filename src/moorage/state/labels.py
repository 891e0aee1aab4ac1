"""Labels, taints and features as columns of small integers.

A label key becomes a column of value ids when a rule first asks for it: id 0 is "absent", and every distinct value is judged
once. Sets (of taints, of features) are interned whole in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from moorage.state.columns import BoolArray, Column, RowSpace

__all__ = ["Ids", "InternedColumn", "LabelColumns"]

Ids = npt.NDArray[np.int32]
T = TypeVar("T", bound=Hashable)


class InternedColumn(Generic[T]):
    """A column whose values are rarely distinct: ``ids`` a row, ``values`` by id. Id 0 holds ``absent``.

    Values are never dropped, so ids stay good for as long as the table lives.
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

    def set(self, row: int, value: T) -> None:
        self._column.data[row] = self.intern(value)

    def intern(self, value: T) -> int:
        """Return the id of ``value``, new or known."""
        known = self._id_of.get(value)
        if known is None:
            known = self._id_of[value] = len(self.values)
            self.values.append(value)
        return known

    def find(self, value: T) -> int:
        """Return the id of ``value``, or -1 if no row ever held it."""
        return self._id_of.get(value, -1)

    def judge(self, verdict: Callable[[T], bool]) -> BoolArray:
        """Ask ``verdict`` once per distinct value; shape (len(values),). Index it with ``ids`` to spread it over rows."""
        return np.fromiter((verdict(value) for value in self.values), dtype=bool, count=len(self.values))

    def spread(self, ids: Ids, ask: Callable[[T], int], dtype: npt.DTypeLike = np.bool_) -> npt.NDArray[Any]:
        """Ask once per distinct value that ``ids`` holds and give each entry its answer; shape of ``ids``."""
        few = len(ids) < 32  # then counting costs more than it saves
        held = sorted(set(ids.tolist())) if few else np.flatnonzero(np.bincount(ids, minlength=len(self.values)))
        answers = np.zeros(len(self.values), dtype=dtype)
        answers[held] = [ask(self.values[at]) for at in held]
        return answers.take(ids)


class LabelColumns:
    """The nodes' labels, one interned column per key that anybody asked about."""

    def __init__(self, space: RowSpace) -> None:
        self._space = space
        self._columns: dict[str, InternedColumn[str | None]] = {}
        self._labels: list[Mapping[str, str]] = []

    def of(self, row: int) -> Mapping[str, str]:
        return self._labels[row]

    def column(self, key: str) -> InternedColumn[str | None]:
        """Return the column of ``key``; made from the labels of all rows the first time."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = InternedColumn[str | None](self._space, None)
            for row, labels in enumerate(self._labels):
                column.set(row, labels.get(key))
        return column

    def append(self, labels: Mapping[str, str]) -> None:
        self._labels.append(labels)
        self._fill(len(self._labels) - 1)

    def replace(self, row: int, labels: Mapping[str, str]) -> None:
        self._labels[row] = labels
        self._fill(row)

    def remove(self, row: int) -> None:
        """Forget a row's labels; the last row's move into its place (the columns themselves are moved by the space)."""
        last = self._labels.pop()
        if row < len(self._labels):
            self._labels[row] = last

    def _fill(self, row: int) -> None:
        labels = self._labels[row]
        for key, column in self._columns.items():
            column.set(row, labels.get(key))
