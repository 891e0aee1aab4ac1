"""The cached scores of a pod class: one total per row, ready for the pick.

Raw scores are cached, because normalization may depend on the highest raw score among the feasible rows. A plugin whose raw
scores are all equal (no taints, no preferences) adds one constant; only if they differ is the highest looked up at each pick.
``KeptScores`` holds the scores that depend on the pods of a row; ``node_part`` holds those that depend on the node alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from moorage.cycle.counted_places import CountedPlaces
from moorage.cycle.domain_places import REFUSED, DomainPlaces, Domains, OpenPlaces, selected
from moorage.cycle.node_verdicts import NodePart, Varying
from moorage.cycle.removed_rows import NewRows
from moorage.cycle.row_judge import RowJudge
from moorage.cycle.summed_places import SummedPlaces
from moorage.cycle.top_places import TopPlaces
from moorage.framework.plugin_runner import normalized, scored
from moorage.framework.profile import Step
from moorage.framework.reuse import FollowedScores
from moorage.state.change_log import RowLog
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.counts import PodMatcher
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable
from moorage.state.view import NodeView

__all__ = ["REFUSED", "KeptScores"]

#: The most ``CountedPlaces`` that one class caches, and the most rows in all of them together.
_COUNTED_KEPT = 64
_COUNTED_ROWS_KEPT = 2_000_000
#: The length of the log of rows that were opened or closed, which ``CountedPlaces`` read.
_FLIPS_KEPT = 4096
#: Up to this many changed places are passed on to ``DomainPlaces`` and ``OpenPlaces`` one by one.
_FEW_PLACES = 64
#: Labels with more values than this are compared node by node.
_FEW_DOMAINS = 32


class KeptScores:
    """Totals over the plugins whose scores are cached. Call ``score_all`` or ``take_worths`` before the scores are used."""

    def __init__(self, part: NodePart, judge: RowJudge) -> None:
        self._part = part
        self._judge = judge
        self._plan = judge.plan
        #: True if a plugin normalizes its scores.
        self.must_sum_up = judge.plan.must_sum_up
        #: True if the scores serve few decisions: an open transaction added or removed nodes.
        self.is_brief = False
        self._raws: list[IntArray] = []

    def score_all(self, pod: PodInfo, view: NodeView, allowed: BoolArray) -> None:
        """Score all rows. ``allowed`` is the class's own array of rows that may be picked."""
        self._allowed, self._ring = allowed, view.table.ring()
        # Copies if the arrays are written to later: a plugin may keep its own.
        copies = self.must_sum_up
        judge = self._judge
        self._raws = [scored(step, judge.state(step, pod), view).astype(np.int64, copy=copies) for step, _ in self._plan.scores]
        self._sum_up(pod)

    def take_worths(self, worths: IntArray, allowed: BoolArray, table: NodeTable) -> None:
        """Set the scores of all rows to their ``worths``. ``allowed``: see ``score_all``. Only if the plan is ``by_room``."""
        self._allowed, self._ring = allowed, table.ring()
        self._varying = list(self._part.varying)
        self._start(worths + self._part.everywhere)

    def derived(
        self, rows: NewRows, part: NodePart, judge: RowJudge, allowed: BoolArray, table: NodeTable
    ) -> KeptScores | None:
        """Return the scores for the rows after an open transaction added or removed nodes; None: compute them again.

        ``part`` is derived from this one's, and ``allowed`` belongs to the class. The scores of added nodes are still missing.
        """
        before = self._part.total
        if self.must_sum_up or (before is None) != (part.total is None):
            return None
        made = KeptScores.__new__(KeptScores)
        made.__dict__.update(self.__dict__)
        made._part, made._judge, made.is_brief = part, judge, table.changes.is_rearranged
        made._allowed, made._ring, made._varying = allowed, table.ring(), list(part.varying)
        made._start(rows.of(self._total if before is None else self._total - before))
        return made

    def follow_nodes(self, table: NodeTable) -> None:
        """Prepare for rows whose nodes were updated."""
        self._domains.clear()
        for key in [key for key, places in self._places.items() if not places.knows(table, key)]:
            del self._places[key]
        for key in [key for key, places in self._open_places.items() if not places.knows_domains(table, key)]:
            del self._open_places[key]

    def _sum_up(self, pod: PodInfo) -> None:
        """Compute every row's total, without the plugins whose scores depend on the highest feasible raw score."""
        total: IntArray | None = None
        everywhere = self._part.everywhere
        self._varying = list(self._part.varying)
        for (step, _), weight, raw in zip(self._plan.scores, self._plan.weights, self._raws, strict=True):
            if step.normalize is None:
                self._judge.check(raw)
                weighted = raw if weight == 1 else raw * weight
                total = weighted if total is None else total + weighted
            elif (raw == raw[0]).all():
                everywhere += int(self._scaled(step, self._judge.state(step, pod), raw[:1])[0]) * weight
            else:
                self._varying.append(Varying(step, self._judge.state(step, pod), raw, weight))
        self._start(np.full(len(self._allowed), everywhere) if total is None else total + everywhere)

    def _start(self, total: IntArray) -> None:
        """Begin with these totals of all rows, which lack only the part of the nodes."""
        self._total: IntArray = total if self._part.total is None else total + self._part.total
        open_total = (
            self._total if self._allowed.item(self._allowed.argmin()) else np.where(self._allowed, self._total, REFUSED)
        )
        self._in_ring: IntArray = open_total.take(self._ring.rows)
        #: The totals in ring order, ``REFUSED`` for refused rows; None if they depend on which rows are feasible.
        self.in_ring: IntArray | None = None if self._varying else self._in_ring
        self._total_cells, self._in_ring_cells = self._total.data, self._in_ring.data
        self._top = TopPlaces(self._ring, self._in_ring)
        self._places: dict[str, DomainPlaces] = {}
        self._open_places: dict[str, OpenPlaces] = {}
        self._domains: dict[str, Domains] = {}
        self._counted: dict[tuple[str, PodMatcher], CountedPlaces] = {}
        self._summed: dict[str, SummedPlaces] = {}
        #: The log of rows that were opened or closed, which the counted and summed places read.
        self._flips = RowLog(_FLIPS_KEPT)

    def _scaled(self, step: Step, state: Any, raw: IntArray) -> IntArray:
        scores = normalized(step, state, raw)
        self._judge.check(scores)
        return scores

    # -- the pick -----------------------------------------------------------------------------------------------------

    def totals(self, rows: npt.NDArray[np.intp]) -> IntArray:
        """Return the totals of ``rows``, which must be all feasible rows: scores are normalized over them."""
        totals: IntArray = self._total[rows]
        for step, state, raw, weight in self._varying:
            totals = totals + self._scaled(step, state, raw[rows]) * weight
        return totals

    def first_best(self, start: int, feasible: BoolArray | None = None) -> int:
        """Return the row with the highest total; where several share it, the first at or after ``start`` on the ring.

        ``feasible`` marks the rows to choose from; None: all with a total. Call it only if ``in_ring`` is not None.
        """
        if feasible is None:
            return self._top.first(start)
        return self._ring.first_best(np.where(feasible.take(self._ring.rows), self._in_ring, REFUSED), start)

    def places(self, key: str, table: NodeTable) -> DomainPlaces | None:
        """Return the best places of each domain of a label; None if it has many. Call it only if ``in_ring`` is not None."""
        found = self._places.get(key)
        if found is None:
            size = len(table.labels.column(key).values)
            if size > _FEW_DOMAINS:
                return None
            found = self._places[key] = DomainPlaces(self._ring, self._in_ring, table.domains_in_ring(key), size)
        return found

    def open_places(self, key: str, closed: BoolArray, table: NodeTable) -> OpenPlaces:
        """Return the totals without the closed domains of a label. Call it only if ``in_ring`` is not None."""
        found = self._open_places.get(key)
        if found is None or not found.knows(closed):
            found = OpenPlaces(self._ring, self._in_ring, table.domains_in_ring(key), closed)
            self._open_places[key] = found
        else:
            found.follow(closed)
        return found

    def counted_places(self, key: str, matcher: PodMatcher, table: NodeTable) -> CountedPlaces | None:
        """Return the cells of a label and a matcher; None if there are many. Call it only if ``in_ring`` is not None."""
        found = self._counted.pop((key, matcher), None)
        if found is None or not found.knows(table, key) or not found.follow():
            while len(self._counted) >= max(1, min(_COUNTED_KEPT, _COUNTED_ROWS_KEPT // len(table))):
                del self._counted[next(iter(self._counted))]
            found = CountedPlaces(table, self._in_ring, self._flips, key, matcher)
        self._counted[key, matcher] = found  # ordered by last use
        return found if found.are_few else None

    def summed_places(self, answer: FollowedScores, table: NodeTable) -> SummedPlaces | None:
        """Return the cells of an answer; None if there are many. Call it only if ``in_ring`` is not None."""
        found = self._summed.get(answer.key)
        if found is None or not found.knows(answer):
            found = self._summed[answer.key] = SummedPlaces(table, self._in_ring, self._flips, answer)
            return found if found.are_few else None
        return found if found.follow(answer.raw) else None

    def domains(self, key: str, table: NodeTable) -> Domains:
        """Return the values of a label that rows with a total have; a missing label counts as a value."""
        found = self._domains.get(key)
        if found is None:
            held = np.zeros(len(table.labels.column(key).values), dtype=bool)
            held[table.domains_in_ring(key)[self._in_ring >= 0]] = True
            found = self._domains[key] = selected(held)
        return found

    # -- changes ------------------------------------------------------------------------------------------------------

    def set_row(self, row: int, worth: int | None, snapshot: Snapshot, pod: PodInfo) -> None:
        """Update one row's total from its worth, to which the node's own part is added; None if the row is refused."""
        if worth is None:
            self._write(self._ring.place_at[row], REFUSED)
        elif self.must_sum_up:
            self.rescore(snapshot.nodes.at(row), self._allowed[row : row + 1], pod)
        else:
            part = self._part
            total = worth + part.everywhere
            if part.total is not None:
                total += part.total.item(row)
            self._total_cells[row] = total
            self._write(self._ring.place_at[row], total)

    def _write(self, place: int, total: int) -> None:
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

    def rescore(self, view: NodeView, allowed: BoolArray, pod: PodInfo) -> None:
        """Score some rows again; ``allowed`` marks those that may be picked."""
        if not self.must_sum_up:
            self.set_rows(view.row_numbers, self._judge.worths(view, allowed, pod), allowed)
            return
        for (step, _), raw in zip(self._plan.scores, self._raws, strict=True):
            raw[view.row_numbers] = scored(step, self._judge.state(step, pod), view)
        self._sum_up(pod)

    def set_rows(self, rows: npt.NDArray[np.intp], worths: IntArray, allowed: BoolArray) -> None:
        """Update the totals of rows, of which only those that are ``allowed`` may be picked. A row may be listed twice."""
        part = self._part
        totals = worths + part.everywhere
        if part.total is not None:
            totals += part.total[rows]
        self._total[rows] = totals
        places = self._ring.place_of[rows]
        written = totals if np.count_nonzero(allowed) == len(allowed) else np.where(allowed, totals, REFUSED)
        if self._places or self._open_places:
            self._tell_places(places, written)
        if self._counted or self._summed:
            for row in rows[(self._in_ring[places] >= 0) != (written >= 0)].tolist():
                self._flips.note(row)
        self._in_ring[places] = written
        self._top.forget(self._in_ring)
        self._domains.clear()

    def _tell_places(self, places: npt.NDArray[np.intp], totals: IntArray) -> None:
        if len(places) > _FEW_PLACES:
            self._places.clear()
            self._open_places.clear()
            return
        before = self._in_ring[places]
        for place, old, new in dict.fromkeys(zip(places.tolist(), before.tolist(), totals.tolist(), strict=True)):
            for by_domain in self._places.values():
                by_domain.changed(place, old, new)
            for open_places in self._open_places.values():
                open_places.changed(place, new)
