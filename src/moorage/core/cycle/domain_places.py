"""A pod class's totals by the domains of one label, kept while totals and domains change one at a time.

Where a label has few values, ``DomainPlaces`` compares domains instead of nodes. Where it has many, such as the host name,
``OpenPlaces`` keeps the totals without closed domains: few domains open or close between two pods of a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.core.cycle.top_places import TopPlaces
from moorage.state.columns import BoolArray, IntArray
from moorage.state.node_tree import Ring
from moorage.state.table import NodeTable

#: Some ids of a label's values, as an index of arrays with one entry for each value.
Domains = npt.NDArray[np.intp] | slice

#: Stands in for the total of a refused row: below any total, whatever is added to it.
REFUSED: Final = -(1 << 62)
#: If more domains open or close at once than this, all totals are written again.
_FEW_CHANGES: Final = 64


def selected(mask: BoolArray) -> Domains:
    """Return the ids that are marked. Slices and numbers are faster indexes than masks."""
    if mask[1:].all():
        return slice(0 if mask[0] else 1, None)
    return np.flatnonzero(mask)


class DomainPlaces:
    """One pod class's totals by domain. ``totals`` are in ring order; refused places have negative ones.

    ``open`` is how many places of each domain are not refused.
    """

    __slots__ = ("_domain_at", "_highest", "_left", "_ring", "_tied", "_totals", "domains", "open")

    def __init__(self, ring: Ring, totals: IntArray, domains: npt.NDArray[np.intp], size: int) -> None:
        """``domains``: the id of each place's domain, all below ``size``."""
        self._ring = ring
        self._totals = totals
        self.domains = domains
        self._domain_at: memoryview = domains.data
        self.open: list[int] = np.bincount(domains[totals >= 0], minlength=size).tolist()
        self._highest = [0] * size
        #: For each domain one byte for each place of the ring, 1 where the total is the domain's highest; None while unknown.
        self._tied: list[bytearray | None] = [None] * size
        self._left = [0] * size

    def knows(self, table: NodeTable, key: str) -> bool:
        """Return whether the label has the same values on the same nodes as before."""
        return self.domains is table.domains_in_ring(key) and len(self.open) == len(table.labels.column(key).values)

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
        inside: BoolArray = self.domains == domain
        highest = int(self._totals[inside].max())
        inside &= self._totals == highest
        self._highest[domain], self._left[domain] = highest, int(np.count_nonzero(inside))
        tied = self._tied[domain] = bytearray(inside.tobytes())
        return tied


class OpenPlaces:
    """One pod class's totals in ring order, ``REFUSED`` in closed domains. ``count`` is how many places are open."""

    __slots__ = ("_all", "_by_domain", "_cells", "_closed", "_domain_at", "_starts", "_top", "count", "domains", "totals")

    def __init__(self, ring: Ring, totals: IntArray, domains: npt.NDArray[np.intp], closed: BoolArray) -> None:
        """``totals`` are the class's own, of all places; ``domains``: the id of each place's domain."""
        self._all = totals
        self.domains = domains
        self._domain_at: memoryview = domains.data
        self._by_domain = np.argsort(domains, kind="stable")
        self._starts = np.searchsorted(domains[self._by_domain], np.arange(len(closed) + 1))
        self.totals: IntArray = totals.copy()
        self._cells: memoryview = self.totals.data
        self._top = TopPlaces(ring, self.totals)
        self._write_all(closed)

    def _write_all(self, closed: BoolArray) -> None:
        self._closed = closed.copy()
        np.copyto(self.totals, np.where(closed.take(self.domains), REFUSED, self._all))
        self.count = int(np.count_nonzero(self.totals >= 0))
        self._top.forget(self.totals)

    def knows_domains(self, table: NodeTable, key: str) -> bool:
        """Return whether the label has the same values on the same nodes as before. ``knows`` checks for new values."""
        return self.domains is table.domains_in_ring(key)

    def knows(self, closed: BoolArray) -> bool:
        """Return whether the label still has as many values as before; ``closed`` has one entry for each."""
        return len(closed) == len(self._closed)

    def follow(self, closed: BoolArray) -> None:
        """Follow the domains that opened or closed."""
        differs = closed ^ self._closed
        marks = differs.tobytes()
        first = marks.find(1)  # mostly the only one, found faster than by ``nonzero``
        changed = [first] if marks.find(1, first + 1) < 0 <= first else differs.nonzero()[0].tolist()
        if len(changed) > _FEW_CHANGES:
            self._write_all(closed)
            return
        for domain in changed:
            is_closed = bool(closed[domain])
            self._closed[domain] = is_closed
            for place in self._by_domain[self._starts[domain] : self._starts[domain + 1]].tolist():
                self._write(place, REFUSED if is_closed else int(self._all[place]))

    def changed(self, place: int, total: int) -> None:
        """Follow the change of one place's total, which the caller has written."""
        if not self._closed[self._domain_at[place]]:
            self._write(place, total)

    def _write(self, place: int, total: int) -> None:
        self.count += (total >= 0) - (self._cells[place] >= 0)
        self._cells[place] = total
        self._top.changed(place, total)

    def first(self, start: int) -> int:
        """Return the open row with the highest total; where several share it, the first at or after ``start``."""
        return self._top.first(start)
