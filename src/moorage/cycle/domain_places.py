"""The best places of the ring in each domain of one label, kept while totals change one row at a time.

Where a label has few values, the pick among nodes that differ only by domain compares domains instead of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from moorage.state.columns import BoolArray, IntArray
from moorage.state.ring import Ring

__all__ = ["DomainPlaces"]


class DomainPlaces:
    """One pod class's totals by domain. ``totals`` are in ring order; refused places have negative ones.

    ``open`` is how many places of each domain are not refused.
    """

    __slots__ = ("_domain_at", "_domains", "_highest", "_left", "_ring", "_tied", "_totals", "open")

    def __init__(self, ring: Ring, totals: IntArray, domains: npt.NDArray[np.intp], size: int) -> None:
        """``domains``: the id of each place's domain, all below ``size``."""
        self._ring = ring
        self._totals = totals
        self._domains = domains
        self._domain_at: memoryview = domains.data
        self.open: list[int] = np.bincount(domains[totals >= 0], minlength=size).tolist()
        self._highest = [0] * size
        #: For each domain one byte for each place of the ring, 1 where the total is the domain's highest; None while unknown.
        self._tied: list[bytearray | None] = [None] * size
        self._left = [0] * size

    def changed(self, place: int, before: int, total: int) -> None:
        """Follow the change of one place's total, which the caller has written."""
        domain = self._domain_at[place]
        self.open[domain] += (total >= 0) - (before >= 0)
        tied = self._tied[domain]
        if tied is None:
            return
        if total > self._highest[domain]:
            self._tied[domain] = None
        elif total == self._highest[domain]:
            self._left[domain] += not tied[place]
            tied[place] = 1
        elif tied[place]:
            tied[place] = 0
            self._left[domain] -= 1
            if not self._left[domain]:
                self._tied[domain] = None

    def first(self, gains: Sequence[int], closed: Sequence[bool], start: int) -> int:
        """Return the row with the highest total plus its domain's gain, the first at or after ``start`` of those that tie.

        At least one place must be open in a domain that is not ``closed``.
        """
        best, candidates = -1, []
        for domain, count in enumerate(self.open):
            if not count or closed[domain]:
                continue
            tied = self._tied[domain] or self._find(domain)
            total = self._highest[domain] + gains[domain]
            if total > best:
                best, candidates = total, [tied]
            elif total == best:
                candidates.append(tied)
        after = self._ring.place_after(start)
        places = [place for tied in candidates if (place := tied.find(1, after)) >= 0]
        row: int = self._ring.row_at[min(places) if places else min(tied.find(1) for tied in candidates)]
        return row

    def _find(self, domain: int) -> bytearray:
        inside: BoolArray = self._domains == domain
        highest = int(self._totals[inside].max())
        inside &= self._totals == highest
        self._highest[domain], self._left[domain] = highest, int(np.count_nonzero(inside))
        tied = self._tied[domain] = bytearray(inside.tobytes())
        return tied
