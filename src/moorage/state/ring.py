"""The ring of nodes: rows in the order of their names' hashes, used to break ties between scores."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from moorage.state.lazy import lazy

V = TypeVar("V", bound=np.generic)


class Ring:
    """Rows sorted by hash. ``rows[place]`` is a row, ``place_of[row]`` its place."""

    def __init__(self, rows: npt.NDArray[np.intp], hashes: npt.NDArray[np.uint64]) -> None:
        """``rows`` and their ``hashes`` are sorted by hash."""
        self.rows = rows
        self._sorted = hashes
        #: The hashes and ``rows`` as memoryviews, which bisect reads faster than an array, as one value is.
        self.hash_at: memoryview = hashes.data
        self.row_at: memoryview = rows.data

    @lazy
    def place_of(self) -> npt.NDArray[np.intp]:
        """The place of each row."""
        places = np.empty(len(self.rows), dtype=np.intp)
        places[self.rows] = np.arange(len(self.rows))
        return places

    @lazy
    def place_at(self) -> memoryview:
        """``place_of``, from which one value is read faster."""
        return self.place_of.data

    @classmethod
    def of(cls, hashes: npt.NDArray[np.uint64]) -> Ring:
        """Sort rows by hash; ``hashes`` has one entry per row."""
        rows = np.argsort(hashes, kind="stable")
        return cls(rows, hashes[rows])

    def with_row(self, row_hash: int) -> Ring:
        """Return the ring with one more row, the last."""
        place = bisect_right(self.hash_at, row_hash)
        return Ring(_inserted(self.rows, place, len(self.rows)), _inserted(self._sorted, place, row_hash))

    def without(self, row: int) -> Ring:
        """Return the ring without a row; the last row takes its number."""
        place, last = self.place_at[row], len(self.rows) - 1
        rows = np.concatenate((self.rows[:place], self.rows[place + 1 :]))
        hashes = np.concatenate((self._sorted[:place], self._sorted[place + 1 :]))
        if row != last:
            moved = self.place_at[last]
            rows[moved - (moved > place)] = row
        return Ring(rows, hashes)

    def place_after(self, start: int) -> int:
        """Return the first place at or after a position on the ring; the number of rows if there is none."""
        return bisect_left(self.hash_at, start)

    def first_best(self, scores: npt.NDArray[np.int64], start: int) -> int:
        """Return the row with the highest score; where several share it, the first at or after ``start``.

        ``scores`` are in ring order, shape (rows,), at least one.
        """
        at = bisect_left(self.hash_at, start)
        later, earlier = scores[at:], scores[:at]
        if not len(later):
            return int(self.rows[earlier.argmax()])
        place = at + int(later.argmax())
        if len(earlier):
            before = int(earlier.argmax())
            if earlier[before] > scores[place]:
                place = before
        return int(self.rows[place])


def _inserted(values: npt.NDArray[V], at: int, value: int) -> npt.NDArray[V]:
    """Return the same as ``np.insert``, several times faster."""
    longer = np.empty(len(values) + 1, dtype=values.dtype)
    longer[:at], longer[at], longer[at + 1 :] = values[:at], value, values[at:]
    return longer
