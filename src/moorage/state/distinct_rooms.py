"""One row for each distinct room: plugins that read only sums run on these rows, and their answers hold for all rows.

Machines come in few sizes and replicas fill them equally, so a large cluster has few distinct rooms. From one call to the next
only changed rows are read again. While most rooms differ, no rooms are tracked.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.state.change_log import ChangeLog
from moorage.state.columns import RowSpace
from moorage.state.rooms import Rooms

__all__ = ["DistinctRooms", "RoomRows"]

#: In clusters with fewer rows than this, running on all rows is as fast: each call into NumPy has a fixed cost.
_WORTH_IT: Final = 1024
#: All rows are read again, by a few array operations, after more than this many changes and more than one in so many rows.
_FEW: Final = 64
_MANY: Final = 16


class RoomRows(NamedTuple):
    """``rows`` has a row for each distinct room; ``which`` has, for each row of the table, its room's index in ``rows``.

    ``rows`` may contain rows that no entry of ``which`` refers to.

    Shapes  rows (rooms,); which (rows,)
    """

    rows: npt.NDArray[np.intp]
    which: npt.NDArray[np.intp]


class DistinctRooms:
    """The distinct rooms of one table. Each has an index, which is reused for another room once no row has this one."""

    def __init__(self, space: RowSpace, changes: ChangeLog, rooms: Rooms) -> None:
        self._space = space
        self._changes = changes
        self._rooms = rooms
        #: The index of each row's room, up to date for the first ``_followed`` rows.
        self._index = space.column(np.intp)
        self._followed = 0
        #: By a room's index: one of its rows, the room's number, and the number of its rows.
        self._rows = array("q")
        self._number_of: list[int] = []
        self._held: list[int] = []
        self._index_of: dict[int, int] = {}
        self._free: list[int] = []
        self._position = 0
        self._moved = -1
        self._paused_until = 0

    def find(self) -> RoomRows | None:
        """Return the rows; None if there are so many distinct rooms that it saves nothing. No what-if may be open."""
        rows, changes = self._space.rows, self._changes
        if rows < _WORTH_IT or changes.position < self._paused_until:
            return None
        numbers = self._rooms.followed()
        few = changes.position - self._position <= max(_FEW, rows // _MANY)
        changed = changes.since(self._position) if few and self._moved == changes.moved else None
        if changed is None:
            self._start(numbers.view)
        else:
            self._follow(changed, numbers.cells)
        self._position, self._moved, self._followed = changes.position, changes.moved, rows
        if len(self._rows) > rows // 2:
            self._paused_until, self._moved = changes.position + rows, -1
            return None
        return RoomRows(np.array(self._rows, dtype=np.intp), self._index.view)

    def _start(self, numbers: npt.NDArray[np.int64]) -> None:
        distinct, first, index, held = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
        self._index.view[:] = index
        self._rows = array("q", first.tolist())
        self._number_of, self._held = distinct.tolist(), held.tolist()
        self._index_of = {number: at for at, number in enumerate(self._number_of)}
        self._free.clear()

    def _follow(self, changed: list[int], numbers: memoryview) -> None:
        index, without_row = self._index.cells, set[int]()
        for row in dict.fromkeys(changed):
            number = numbers[row]
            at = self._index_of.get(number)
            if at is None:
                at = self._open(number, row)
            self._held[at] += 1
            if row < self._followed:
                before = index[row]
                self._leave(before)
                if self._rows[before] == row and before != at:
                    without_row.add(before)
            index[row] = at
        for at in without_row:
            if self._held[at] and index[self._rows[at]] != at:
                self._rows[at] = int((self._index.view == at).argmax())

    def _open(self, number: int, row: int) -> int:
        """Return a new index for a room that no row had before; ``row`` is the first that has it."""
        if self._free:
            at = self._free.pop()
            self._rows[at], self._number_of[at], self._held[at] = row, number, 0
        else:
            at = len(self._rows)
            self._rows.append(row)
            self._number_of.append(number)
            self._held.append(0)
        self._index_of[number] = at
        return at

    def _leave(self, at: int) -> None:
        """Count one row less for the room with this index; free the index if that was the last row."""
        self._held[at] -= 1
        if not self._held[at]:
            del self._index_of[self._number_of[at]]
            self._free.append(at)
