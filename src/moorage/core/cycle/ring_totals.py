"""The totals of a sheet in the order of the ring, ready for the pick: the best row of all, of each domain, of each cell.

What is kept for one way to pick is made when a pod first needs it, and follows the totals as they change one at a time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.core.cycle.domain_places import DomainPlaces, Domains, OpenPlaces, TopPlaces, selected
from moorage.core.cycle.summed_places import CountedPlaces, SummedPlaces
from moorage.framework.answer_forms import FollowedScores
from moorage.state.change_log import RowLog
from moorage.state.columns import BoolArray, IntArray
from moorage.state.counts import PodMatcher
from moorage.state.table import NodeTable

#: The most ``CountedPlaces`` that one sheet keeps, and the most rows in all of them together.
_COUNTED_KEPT: Final = 64
_COUNTED_ROWS_KEPT: Final = 2_000_000
#: The length of the log of rows that were opened or closed, which ``CountedPlaces`` read.
_FLIPS_KEPT: Final = 4096
#: Up to this many changed places are passed on to ``DomainPlaces`` and ``OpenPlaces`` one by one.
_FEW_PLACES: Final = 64
#: Labels with more values than this are compared node by node.
_FEW_DOMAINS: Final = 32


class RingTotals:
    """The totals of all rows. ``in_ring`` has them in ring order, negative for refused rows."""

    def __init__(self, totals: IntArray, table: NodeTable, *, is_brief: bool) -> None:
        """``is_brief``: the totals serve few decisions."""
        self._ring = table.ring()
        self.is_brief = is_brief
        self.in_ring: IntArray = totals.take(self._ring.rows)
        self._in_ring_cells: memoryview = self.in_ring.data
        self._top = TopPlaces(self._ring, self.in_ring)
        self._places: dict[str, DomainPlaces] = {}
        self._open_places: dict[str, OpenPlaces] = {}
        self._domains: dict[str, Domains] = {}
        self._counted: dict[tuple[str, PodMatcher], CountedPlaces] = {}
        self._summed: dict[str, SummedPlaces] = {}
        #: The log of rows that were opened or closed, which the counted and summed places read.
        self._flips = RowLog(_FLIPS_KEPT)

    def follow_nodes(self, table: NodeTable) -> None:
        """Prepare for rows whose nodes were updated."""
        self._domains.clear()
        for key in [key for key, places in self._places.items() if not places.knows(table, key)]:
            del self._places[key]
        for key in [key for key, places in self._open_places.items() if not places.knows_domains(table, key)]:
            del self._open_places[key]

    # -- the pick -----------------------------------------------------------------------------------------------------

    def first_best(self, start: int) -> int:
        """Return the row with the highest total; where several share it, the first at or after ``start`` on the ring."""
        return self._top.first(start)

    def places(self, key: str, table: NodeTable) -> DomainPlaces | None:
        """Return the best places of each domain of a label; None if it has many."""
        found = self._places.get(key)
        if found is None:
            size = len(table.labels.column(key).values)
            if size > _FEW_DOMAINS:
                return None
            found = self._places[key] = DomainPlaces(self._ring, self.in_ring, table.domains_in_ring(key), size)
        return found

    def open_places(self, key: str, closed: BoolArray, table: NodeTable) -> OpenPlaces:
        """Return the totals without the closed domains of a label."""
        found = self._open_places.get(key)
        if found is None or not found.knows(closed):
            found = OpenPlaces(self._ring, self.in_ring, table.domains_in_ring(key), closed)
            self._open_places[key] = found
        else:
            found.follow(closed)
        return found

    def counted_places(self, key: str, matcher: PodMatcher, table: NodeTable) -> CountedPlaces | None:
        """Return the cells of a label and a matcher; None if there are many."""
        found = self._counted.pop((key, matcher), None)
        if found is None or not found.knows(table, key) or not found.follow():
            while len(self._counted) >= max(1, min(_COUNTED_KEPT, _COUNTED_ROWS_KEPT // len(table))):
                del self._counted[next(iter(self._counted))]
            found = CountedPlaces(table, self.in_ring, self._flips, key, matcher)
        self._counted[key, matcher] = found  # ordered by last use
        return found if found.are_few else None

    def summed_places(self, answer: FollowedScores, table: NodeTable) -> SummedPlaces | None:
        """Return the cells of an answer; None if there are many."""
        found = self._summed.get(answer.key)
        if found is None or not found.knows(answer):
            found = self._summed[answer.key] = SummedPlaces(table, self.in_ring, self._flips, answer)
            return found if found.are_few else None
        return found if found.follow(answer.raw) else None

    def domains(self, key: str, table: NodeTable) -> Domains:
        """Return the values of a label that rows with a total have; a missing label counts as a value."""
        found = self._domains.get(key)
        if found is None:
            held = np.zeros(len(table.labels.column(key).values), dtype=bool)
            held[table.domains_in_ring(key)[self.in_ring >= 0]] = True
            found = self._domains[key] = selected(held)
        return found

    # -- changes ------------------------------------------------------------------------------------------------------

    def write(self, row: int, total: int) -> None:
        """Update the total of one row."""
        place = self._ring.place_at[row]
        before = self._in_ring_cells[place]
        if before == total:
            return
        if (before < 0 or total < 0) and (before >= 0) != (total >= 0):
            self._domains.clear()
            self._flips.note(self._ring.row_at[place])
        self._in_ring_cells[place] = total
        self._top.changed(place, total)
        if self._places:
            for places in self._places.values():
                places.changed(place, before, total)
        if self._open_places:
            for open_places in self._open_places.values():
                open_places.changed(place, total)

    def write_many(self, rows: npt.NDArray[np.intp], totals: IntArray) -> None:
        """Update the totals of rows. A row may be listed twice."""
        places = self._ring.place_of[rows]
        if self._places or self._open_places:
            self._tell_places(places, totals)
        flipped = rows[(self.in_ring[places] >= 0) != (totals >= 0)].tolist()
        for row in flipped:
            self._flips.note(row)
        if flipped:
            self._domains.clear()
        self.in_ring[places] = totals
        self._top.forget(self.in_ring)

    def _tell_places(self, places: npt.NDArray[np.intp], totals: IntArray) -> None:
        if len(places) > _FEW_PLACES:
            self._places.clear()
            for open_places in self._open_places.values():
                open_places.is_stale = True
            return
        before = self.in_ring[places]
        for place, old, new in dict.fromkeys(zip(places.tolist(), before.tolist(), totals.tolist(), strict=True)):
            for by_domain in self._places.values():
                by_domain.changed(place, old, new)
            for open_places in self._open_places.values():
                open_places.changed(place, new)
