"""One row for each distinct room: plugins that read only sums run on these rows, and their answers hold for all rows.

Machines come in few sizes and replicas fill them equally, so a large cluster has few distinct rooms. From one call to the next
only changed rows are read again. While most rooms differ, no rooms are tracked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.state.change_log import ChangeLog, RowLog
from moorage.state.columns import BoolArray, Column, RowSpace
from moorage.state.ring import Ring

# Rooms: all that plugins which read only sums can read of a row, as one number.
#
# A node's room is its allocatable resources and the sums of its pods' requests. Rows with equal numbers have equal rooms, so
# one answer of such a plugin stands for all of them.

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


#: In clusters with fewer rows than this, running on all rows is as fast: each call into NumPy has a fixed cost.
_WORTH_IT: Final = 1024
#: All rows are read again, by a few array operations, after more than this many changes and more than one in so many rows.
_FEW: Final = 64
_MANY: Final = 16
#: A free index is used for another room once one in so many is free.
_FREE_SHARE: Final = 3
#: How many places of the ring are searched first, at least.
_FIRST_SEARCHED: Final = 256


class RoomRows(NamedTuple):
    """``rows`` has a row for each distinct room; ``which`` has, for each row of the table, its room's index in ``rows``.

    ``held``: how many rows have the room. If none has, ``rows`` has a row with another room there.

    Shapes  rows, held (rooms,); which (rows,)
    """

    rows: npt.NDArray[np.intp]
    held: npt.NDArray[np.int64]
    which: npt.NDArray[np.intp]


class DistinctRooms:
    """The distinct rooms of one table. Each has an index, which may be used for another room once no row has this one."""

    def __init__(self, space: RowSpace, changes: ChangeLog, rooms: Rooms, ring: Callable[[], Ring]) -> None:
        self._space = space
        self._changes = changes
        self._rooms = rooms
        self._ring_now = ring
        #: The index of the room at each place of ``_ring``; None until a search needs it.
        self._at_place: npt.NDArray[np.int32] | None = None
        self._ring: Ring | None = None
        #: The index of each row's room, up to date for the first ``_followed`` rows.
        self._index = space.column(np.intp)
        self._followed = 0
        #: By a room's index: the room's number; and one of its rows and the number of its rows, with place for more.
        self._number_of: list[int] = []
        self._hold(np.zeros((2, 0), dtype=np.int64))
        self._index_of: dict[int, int] = {}
        #: The indexes of rooms that no row has, in the order in which their last row left. A room that returns finds its own.
        self._free: dict[int, None] = {}
        self._position = 0
        self._moved = -1
        self._paused_until = 0

    def _hold(self, columns: npt.NDArray[np.int64]) -> None:
        self._columns = columns
        self._rows, self._held = columns[0].data, columns[1].data

    def find(self) -> RoomRows | None:
        """Return the rows; None if there are so many distinct rooms that it saves nothing. No what-if may be open."""
        if not self._is_up_to_date(self._changes.position):
            return None
        columns, size = self._columns, len(self._number_of)
        return RoomRows(columns[0, :size], columns[1, :size], self._index.view)

    def _is_up_to_date(self, position: int) -> bool:
        """Follow the rows up to this position. False: there are too many rooms."""
        rows, changes, behind = self._space.rows, self._changes, position - self._position
        if rows < _WORTH_IT or position < self._paused_until:
            return False
        near = (behind <= _FEW or behind <= rows // _MANY) and self._moved == changes.moved
        numbers = self._rooms.followed()
        changed = ([changes.last] if behind == 1 else changes.since(self._position)) if near else None
        if changed is None:
            self._start(numbers.view)
        elif changed:
            self._follow(changed, numbers.cells)
        self._position, self._moved, self._followed = position, changes.moved, rows
        if len(self._number_of) - len(self._free) > rows // 2:
            self._paused_until, self._moved = position + rows, -1
            return False
        return True

    def first(self, marked: BoolArray, start: int) -> int:
        """Return the first row at or after ``start`` on the ring whose room is marked. One must be; call ``find`` before.

        ``marked`` has one entry for each distinct room.
        """
        ring, at_place = self._ring_now(), self._at_place
        if at_place is None or self._ring is not ring:
            at_place = self._at_place = self._index.view[ring.rows].astype(np.int32)
            self._ring = ring
        after, rooms = ring.place_after(start), marked.nonzero()[0]
        room, length = int(rooms[0]) if len(rooms) == 1 else -1, _FIRST_SEARCHED
        if room >= 0:
            length = max(length, 2 * len(at_place) // max(self._held[room], 1))
        place = _first_of(at_place, after, len(at_place), room, marked, length)
        if place < 0:
            place = _first_of(at_place, 0, after, room, marked, length)
        return int(ring.row_at[place])

    def _start(self, numbers: npt.NDArray[np.int64]) -> None:
        distinct, first, index, held = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
        self._index.view[:] = index
        self._at_place = None
        self._hold(np.zeros((2, 2 * len(distinct)), dtype=np.int64))
        self._columns[:, : len(distinct)] = first, held
        self._number_of = distinct.tolist()
        self._index_of = {number: at for at, number in enumerate(self._number_of)}
        self._free.clear()

    def _follow(self, changed: list[int], numbers: memoryview) -> None:
        index, without_row = self._index.cells, set[int]()
        places = None if self._at_place is None else self._at_place.data
        place_at = None if places is None or self._ring is None else self._ring.place_at
        for row in dict.fromkeys(changed):
            number = numbers[row]
            at = self._index_of.get(number)
            if at is None:
                at = self._index_for(number)
            if not self._held[at]:
                self._rows[at] = row
                self._free.pop(at, None)
            self._held[at] += 1
            if row < self._followed:
                before = index[row]
                self._leave(before)
                if self._rows[before] == row and before != at:
                    without_row.add(before)
            index[row] = at
            if place_at is not None and places is not None and row < len(place_at):
                places[place_at[row]] = at
        for at in without_row:
            if self._held[at] and index[self._rows[at]] != at:
                self._rows[at] = int((self._index.view == at).argmax())

    def _index_for(self, number: int) -> int:
        """Return an index for a room that has none: one that is free, if many are, otherwise a new one."""
        if _FREE_SHARE * len(self._free) > len(self._number_of):
            at = next(iter(self._free))
            del self._index_of[self._number_of[at]]
            self._number_of[at] = number
        else:
            at = len(self._number_of)
            self._number_of.append(number)
            if at == self._columns.shape[1]:
                self._hold(np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1))
        self._index_of[number] = at
        return at

    def _leave(self, at: int) -> None:
        """Count one row less for the room with this index; free the index if that was the last row."""
        self._held[at] -= 1
        if not self._held[at]:
            self._free[at] = None


def _first_of(at_place: npt.NDArray[np.int32], begin: int, end: int, room: int, marked: BoolArray, length: int) -> int:
    """Return the first place from ``begin`` to ``end`` with a marked room; -1: none.

    ``room``: the only marked one, -1 if they are more. ``length``: how many places are searched first; then four times as many
    """
    while begin < end:
        part = at_place[begin : min(begin + length, end)]
        hits = part == room if room >= 0 else marked.take(part)
        found = int(hits.argmax())
        if hits.item(found):
            return begin + found
        begin, length = begin + length, 4 * length
    return -1
