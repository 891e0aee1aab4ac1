"""The ring of nodes: rows in the order of their names' hashes, used to break ties between scores."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt

__all__ = ["Ring"]


class Ring:
    """Rows sorted by hash. ``rows[place]`` is a row, ``place_of[row]`` its place."""

    def __init__(self, rows: npt.NDArray[np.intp], hashes: npt.NDArray[np.uint64]) -> None:
        """``rows`` and their ``hashes``, sorted by hash."""
        self.rows = rows
        self._sorted = hashes
        self._hashes = hashes.data  # which bisect reads faster than the array
        self.place_of: npt.NDArray[np.intp] = np.empty(len(self.rows), dtype=np.intp)
        self.place_of[self.rows] = np.arange(len(self.rows))
        #: ``rows`` and ``place_of`` as memory, which is faster to read one value of.
        self.row_at: memoryview = self.rows.data
        self.place_at: memoryview = self.place_of.data

    @classmethod
    def of(cls, hashes: npt.NDArray[np.uint64]) -> Ring:
        """Sort rows by hash; ``hashes`` has one entry per row."""
        rows = np.argsort(hashes, kind="stable")
        return cls(rows, hashes[rows])

    def with_row(self, row_hash: int) -> Ring:
        """Return the ring with one more row, the last."""
        place = bisect_right(self._hashes, row_hash)
        return Ring(np.insert(self.rows, place, len(self.rows)), np.insert(self._sorted, place, np.uint64(row_hash)))

    def without(self, row: int) -> Ring:
        """Return the ring without a row, whose number the last row takes."""
        place = self.place_at[row]
        rows = np.delete(self.rows, place)
        rows[rows == len(rows)] = row
        return Ring(rows, np.delete(self._sorted, place))

    def with_exchanged(self, row: int, other: int) -> Ring:
        """Return the ring with the numbers of two rows exchanged."""
        rows = self.rows.copy()
        rows[self.place_at[row]], rows[self.place_at[other]] = other, row
        return Ring(rows, self._sorted)

    def place_after(self, start: int) -> int:
        """Return the first place at or after a position on the ring; the number of rows if there is none."""
        return bisect_left(self._hashes, start)

    def first_best(self, scores: npt.NDArray[np.int64], start: int) -> int:
        """Return the row with the highest score; where several share it, the first at or after ``start``.

        ``scores`` are in ring order, shape (rows,), at least one.
        """
        at = bisect_left(self._hashes, start)
        later, earlier = scores[at:], scores[:at]
        if not len(later):
            return int(self.rows[earlier.argmax()])
        place = at + int(later.argmax())
        if len(earlier):
            before = int(earlier.argmax())
            if earlier[before] > scores[place]:
                place = before
        return int(self.rows[place])
