"""The best places of the ring for one sheet, of all and by the domains of one label, kept while totals change one at a time.

Many nodes share the highest total, and a pod takes the first of them from its own place. While few totals change between two
pods, ``TopPlaces`` keeps the places that share the highest as bytes, so that a search costs the same in a cluster of any size.

Where a label has few values, ``DomainPlaces`` compares domains instead of nodes. Where it has many, such as the host name,
``OpenPlaces`` keeps the totals without closed domains: few domains open or close between two pods with equal keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.state.columns import BoolArray, IntArray
from moorage.state.ring import Ring
from moorage.state.table import NodeTable

#: Some ids of a label's values, as an index of arrays with one entry for each value.
Domains = npt.NDArray[np.intp] | slice

#: Stands in for the total of a refused row: below any total, whatever is added to it.
REFUSED: Final = -(1 << 62)
#: Fewer tied places than this are not worth keeping: they are used up after as many pods.
_WORTH_KEEPING: Final = 8
#: How many searches compare all totals after one that found too few tied places, or after many changes at once; and at first,
#: as many sheets serve one pod.
_PAUSE, _FIRST = 16, 2
#: If more domains open or close at once than this, all totals are written again.
_FEW_CHANGES: Final = 64


def selected(mask: BoolArray) -> Domains:
    """Return the ids that are marked. Slices and numbers are faster indexes than masks."""
    if mask[1:].all():
        return slice(0 if mask[0] else 1, None)
    return np.flatnonzero(mask)


class TopPlaces:
    """Finds the best row. ``totals`` are in ring order; call ``changed`` after each change of one, or ``forget`` after many.

    ``tied`` has one byte for each place, 1 where the total is the ``highest``; None while it is unknown.
    """

    __slots__ = ("_count", "_pause", "_ring", "_totals", "highest", "tied")

    def __init__(self, ring: Ring, totals: IntArray) -> None:
        self._ring, self._totals = ring, totals
        self.tied: bytearray | None = None
        self.highest = self._count = 0
        #: How many searches compare all totals before the tied places are found.
        self._pause = _FIRST

    def forget(self, totals: IntArray) -> None:
        """Start again after many totals changed. They may soon change again, so the next searches compare all."""
        self._totals, self.tied, self._pause = totals, None, _PAUSE

    def changed(self, place: int, total: int) -> None:
        """Follow the change of one place's total, which the caller has written."""
        tied = self.tied
        if tied is None:
            return
        if total > self.highest:
            self.tied = None
        elif total == self.highest:
            self._count += not tied[place]
            tied[place] = 1
        elif tied[place]:
            tied[place] = 0
            self._count -= 1
            if not self._count:
                self.tied = None

    def first(self, start: int) -> int:
        """Return the row with the highest total; where several share it, the first at or after ``start``."""
        tied, ring = self.tied, self._ring
        if tied is None:
            self._pause -= 1
            if self._pause >= 0:
                return ring.first_best(self._totals, start)
            tied = self.find()
            if self._count < _WORTH_KEEPING:
                self.tied, self._pause = None, _PAUSE
        place = tied.find(1, bisect_left(ring.hash_at, start))
        row: int = ring.row_at[place if place >= 0 else tied.find(1)]
        return row

    def find(self, inside: BoolArray | None = None) -> bytearray:
        """Return the tied places, of all or of those ``inside``."""
        totals = self._totals
        self.highest = int((totals if inside is None else totals[inside]).max())
        mask: BoolArray = totals == self.highest
        if inside is not None:
            mask &= inside
        self._count = int(np.count_nonzero(mask))
        self.tied = bytearray(mask.tobytes())
        return self.tied


class DomainPlaces:
    """One sheet's totals by domain. ``totals`` are in ring order; refused places have negative ones.

    ``open`` is how many places of each domain are not refused.
    """

    __slots__ = ("_domain_at", "_ring", "_tops", "domains", "open")

    def __init__(self, ring: Ring, totals: IntArray, domains: npt.NDArray[np.intp], size: int) -> None:
        """``domains``: the id of each place's domain, all below ``size``."""
        self._ring, self.domains = ring, domains
        self._domain_at: memoryview = domains.data
        self.open: list[int] = np.bincount(domains[totals >= 0], minlength=size).tolist()
        self._tops = [TopPlaces(ring, totals) for _ in range(size)]

    def knows(self, table: NodeTable, key: str) -> bool:
        """Return whether the label has the same values on the same nodes as before."""
        return self.domains is table.domains_in_ring(key) and len(self.open) == len(table.labels.column(key).values)

    def changed(self, place: int, before: int, total: int) -> None:
        """Follow the change of one place's total, which the caller has written."""
        domain = self._domain_at[place]
        self.open[domain] += (total >= 0) - (before >= 0)
        self._tops[domain].changed(place, total)

    def first(self, gains: Sequence[int], closed: Sequence[bool], start: int) -> int:
        """Return the row with the highest total plus its domain's gain, the first at or after ``start`` of those that tie.

        At least one place must be open in a domain that is not ``closed``.
        """
        best, candidates = -1, []
        for domain, count in enumerate(self.open):
            if not count or closed[domain]:
                continue
            top = self._tops[domain]
            tied = top.tied or top.find(self.domains == domain)
            total = top.highest + gains[domain]
            if total > best:
                best, candidates = total, [tied]
            elif total == best:
                candidates.append(tied)
        after = self._ring.place_after(start)
        places = [place for tied in candidates if (place := tied.find(1, after)) >= 0]
        row: int = self._ring.row_at[min(places) if places else min(tied.find(1) for tied in candidates)]
        return row


class OpenPlaces:
    """One sheet's totals in ring order, ``REFUSED`` in closed domains. ``count`` is how many places are open."""

    __slots__ = (
        "_all", "_by_domain", "_cells", "_closed", "_domain_at", "_starts", "_top", "count", "domains", "is_stale", "totals",
    )  # fmt: skip

    def __init__(self, ring: Ring, totals: IntArray, domains: npt.NDArray[np.intp], closed: BoolArray) -> None:
        """``totals`` are the sheet's own, of all places; ``domains``: the id of each place's domain."""
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
        #: Whether many totals changed, so that all are read again.
        self.is_stale = False
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
        if self.is_stale:
            self._write_all(closed)
            return
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
