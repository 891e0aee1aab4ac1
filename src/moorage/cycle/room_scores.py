"""The answers of plugins that read only sums, cached by room, for one pod class.

A class that comes back after hundreds of other placements finds as many changed rows, but few rooms that it has not seen:
``find`` looks all of them up with a handful of array operations.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.state.columns import IntArray

__all__ = ["REFUSED_ROOM", "RoomScores"]

#: Stands in for the score of a refused room.
REFUSED_ROOM: Final = -1
#: The most rooms that one class caches, a power of two.
_MOST: Final = 4096
#: The length of the array at first, a power of two. It grows.
_FEWEST: Final = 16
#: An entry is the room's number, and in the lower bits its score plus one.
_BITS: Final = 24
_LOW: Final = (1 << _BITS) - 1


class RoomScores:
    """Room → score, ``REFUSED_ROOM`` if refused. A room drops another one that has the same place among the entries.

    Rooms are numbered in the order they first occur, so the most recent ones have places of their own.
    """

    __slots__ = ("_cells", "_entries", "_mask")

    def __init__(self) -> None:
        self._make(_FEWEST)

    def _make(self, size: int) -> None:
        self._entries: IntArray = np.zeros(size, dtype=np.int64)
        self._cells: memoryview = self._entries.data
        self._mask = size - 1

    def get(self, room: int) -> int | None:
        """Return the score of a room; None if it is unknown."""
        entry: int = self._cells[room & self._mask]
        return (entry & _LOW) - 1 if entry >> _BITS == room else None

    def keep(self, room: int, score: int) -> None:
        """Cache a room's score."""
        if score >= _LOW:
            return
        if self._cells[room & self._mask]:
            self._grow()
        self._cells[room & self._mask] = room << _BITS | score + 1

    def _grow(self, rooms: int = 0) -> None:
        """Make place for so many more rooms, or for twice as many as now."""
        before, size = self._entries, self._mask + 1
        if size < _MOST:
            self._make(min(_MOST, max(2 * size, 1 << (8 * rooms).bit_length())))
            known = before[before != 0]
            self._entries[known >> _BITS & self._mask] = known

    def find(self, rooms: IntArray) -> tuple[IntArray, npt.NDArray[np.intp]]:
        """Return the scores of many rooms, and the indexes of those that are unknown, whose scores mean nothing."""
        entries = self._entries[rooms & self._mask]
        unknown = (entries >> _BITS) != rooms
        entries &= _LOW
        entries -= 1
        return entries, unknown.nonzero()[0]

    def keep_all(self, rooms: IntArray, scores: IntArray) -> None:
        """Cache the scores of many rooms."""
        if scores.item(scores.argmax()) < _LOW:
            if 2 * len(rooms) > self._mask:
                self._grow(len(rooms))
            self._entries[rooms & self._mask] = rooms << _BITS | scores + 1
