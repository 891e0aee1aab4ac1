"""The best places of the ring for one pod class, kept while totals change one row at a time.

Many nodes share the highest total, and a pod takes the first of them from its own place. While few totals change between two
pods, the places that share the highest are kept as bytes, so that a search costs the same in a cluster of any size.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np

from moorage.state.columns import IntArray
from moorage.state.node_tree import Ring

#: Fewer tied places than this are not worth keeping: they are used up after as many pods.
_WORTH_KEEPING: Final = 8
#: How many searches compare all totals after one that found too few tied places, or after many changes at once.
_PAUSE: Final = 16
_FIRST: Final = 2


class TopPlaces:
    """Finds the best row. ``totals`` are in ring order; call ``changed`` after each change of one, or ``forget`` after many."""

    __slots__ = ("_count", "_highest", "_pause", "_ring", "_tied", "_totals")

    def __init__(self, ring: Ring, totals: IntArray) -> None:
        self._ring = ring
        self._totals = totals
        #: One byte for each place, 1 where the total is the highest; None while it is unknown.
        self._tied: bytearray | None = None
        self._highest = 0
        self._count = 0
        #: How many searches compare all totals before the tied places are found: many classes have one pod.
        self._pause = _FIRST

    def forget(self, totals: IntArray) -> None:
        """Start again after many totals changed. They may soon change again, so the next searches compare all."""
        self._totals, self._tied, self._pause = totals, None, _PAUSE

    def changed(self, place: int, total: int) -> None:
        """Follow the change of one place's total, which the caller has written."""
        tied = self._tied
        if tied is None:
            return
        if total > self._highest:
            self._tied = None
        elif total == self._highest:
            self._count += not tied[place]
            tied[place] = 1
        elif tied[place]:
            tied[place] = 0
            self._count -= 1
            if not self._count:
                self._tied = None

    def first(self, start: int) -> int:
        """Return the row with the highest total; where several share it, the first at or after ``start``."""
        if self._tied is None and not self._find():
            return self._ring.first_best(self._totals, start)
        tied = self._tied
        assert tied is not None
        ring = self._ring
        place = tied.find(1, bisect_left(ring.hash_at, start))
        row: int = ring.row_at[place if place >= 0 else tied.find(1)]
        return row

    def _find(self) -> bool:
        """Find the tied places. Return False if keeping them is not worth it."""
        if self._pause:
            self._pause -= 1
            return False
        highest = self._totals.max()
        mask = self._totals == highest
        self._count = int(np.count_nonzero(mask))
        if self._count < _WORTH_KEEPING:
            self._pause = _PAUSE
            return False
        self._highest = int(highest)
        self._tied = bytearray(mask.tobytes())
        return True
