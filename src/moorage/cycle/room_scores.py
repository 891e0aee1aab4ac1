"""The answers of plugins that read only sums, cached by room, for one pod class or for several at once.

A class that comes back after hundreds of other placements finds as many changed rows, but few rooms that it has not seen:
``find`` looks all of them up with a handful of array operations. ``joined_rooms`` fills the scores of many classes together.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.state.columns import IntArray
from moorage.state.distinct_rooms import KEY_BITS

__all__ = ["LOW", "REFUSED_ROOM", "RoomScores", "entries_of"]

#: Stands in for the score of a refused room.
REFUSED_ROOM: Final = -1
#: The most rooms that one class caches, a power of two.
_MOST: Final = 4096
#: The length of the array at first, a power of two. It grows.
_FEWEST: Final = 16
#: An entry is the room's number, and in the lower bits its score plus one.
_BITS: Final = KEY_BITS
#: Scores from here on do not fit into an entry.
LOW: Final = (1 << _BITS) - 1


def entries_of(rooms: IntArray, scores: IntArray) -> IntArray:
    """Return the entries of rooms and their scores, all below ``LOW``."""
    return rooms << _BITS | scores + 1


class RoomScores:
    """Room → score, ``REFUSED_ROOM`` if refused. A room drops another one that has the same place among the entries.

    Rooms are numbered in the order they first occur, so the most recent ones have places of their own.
    """

    __slots__ = ("_cells", "_entries", "_mask")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin without scores."""
        self._use(np.zeros(_FEWEST, dtype=np.int64))

    def _use(self, entries: IntArray) -> None:
        self._entries = entries
        self._cells: memoryview = entries.data
        self._mask = len(entries) - 1

    def move_to(self, entries: IntArray) -> None:
        """Keep the scores in this array from now on. It has zeros, and its length is a power of two."""
        known = self._entries[self._entries != 0]
        self._use(entries)
        entries[known >> _BITS & self._mask] = known

    def get(self, room: int) -> int | None:
        """Return the score of a room; None if it is unknown."""
        entry: int = self._cells[room & self._mask]
        return (entry & LOW) - 1 if entry >> _BITS == room else None

    def keep(self, room: int, score: int) -> None:
        """Cache a room's score."""
        if score >= LOW:
            return
        if self._cells[room & self._mask]:
            self._grow()
        self._cells[room & self._mask] = room << _BITS | score + 1

    def _grow(self, rooms: int = 0) -> None:
        """Make place for so many more rooms, or for twice as many as now."""
        size = self._mask + 1
        if size < _MOST:
            self.extend(min(_MOST, max(2 * size, 1 << (8 * rooms).bit_length())))

    def extend(self, size: int) -> None:
        """Make the array longer."""
        self.move_to(np.zeros(size, dtype=np.int64))

    def numbers_at(self, columns: npt.NDArray[np.intp]) -> IntArray:
        """Return the numbers of the rooms at some places of the entries, 0 where there is none."""
        return self._entries[columns] >> _BITS

    def put(self, columns: npt.NDArray[np.intp], entries: IntArray) -> None:
        """Write entries to these places."""
        self._entries[columns] = entries

    def find(self, rooms: IntArray) -> tuple[IntArray, npt.NDArray[np.intp]]:
        """Return the scores of many rooms, and the indexes of those that are unknown, whose scores mean nothing."""
        entries = self._entries[rooms & self._mask]
        unknown = (entries >> _BITS) != rooms
        entries &= LOW
        entries -= 1
        return entries, unknown.nonzero()[0]

    def keep_all(self, rooms: IntArray, scores: IntArray) -> None:
        """Cache the scores of many rooms."""
        if scores.item(scores.argmax()) < LOW:
            if 2 * len(rooms) > self._mask:
                self._grow(len(rooms))
            self._entries[rooms & self._mask] = entries_of(rooms, scores)
