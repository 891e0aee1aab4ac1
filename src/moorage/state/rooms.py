"""Rooms: all that plugins which read only sums can read of a row, as one number.

A node's room is its allocatable resources and the sums of its pods' requests. Rows with equal numbers have equal rooms, so one
answer of such a plugin stands for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moorage.state.change_log import RowLog
from moorage.state.columns import Column, RowSpace

__all__ = ["Rooms"]

#: The most rooms whose numbers are remembered. When there are more, a room that occurs again gets a new number.
_KEPT: Final = 65_536


class Rooms:
    """The room of each row. Numbers are never reused, and two numbers may stand for equal rooms."""

    def __init__(self, space: RowSpace, changes: RowLog, sums: Sequence[Column]) -> None:
        """``sums``: the columns that make up a room: the number of the allocatable set, and sums of requests. It may grow."""
        self._space = space
        self._changes = changes
        self._sums = sums
        self._column = space.column()
        self._position = 0
        self._numbers: dict[tuple[int, ...], int] = {}
        self._given = 0

    def followed(self) -> Column:
        """Return the number of each row's room, up to date. No what-if may be open."""
        position, behind = self._changes.position, self._changes.position - self._position
        if behind == 1 and self._changes.last < self._space.rows:  # otherwise the row is gone
            self._position = position
            self._renumber(self._changes.last)
        elif behind:
            changed = self._changes.since(self._position)
            self._position = position
            for row in range(self._space.rows) if changed is None else dict.fromkeys(changed):
                if row < self._space.rows:
                    self._renumber(row)
        return self._column

    def _renumber(self, row: int) -> int:
        room = tuple([column.cells[row] for column in self._sums])
        number = self._numbers.get(room)
        if number is None:
            if len(self._numbers) >= _KEPT:
                self._numbers.clear()
            self._given += 1
            number = self._numbers[room] = self._given
        self._column.cells[row] = number
        return number
