"""Sheets: the columns of one pod's keys, their sum, and how a pod is decided with them.

When a pod is placed, one row changes: the columns judge it again, the sheet adds it up again, and the next copy of the pod
takes the best row. Plugins that read more than a node and its pods (topology, volumes) run for every pod; their answers are
added to the sums, by topology domain where they can.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import structs

from moorage.core.cycle.column import FEW, KeyColumn, Varying
from moorage.core.cycle.decision import Feasible, Quick
from moorage.core.cycle.domain_verdicts import ByDomain, OpenRows
from moorage.core.cycle.judges import Steps, ask_pre_filters
from moorage.core.cycle.nominated_rows import NominatedRows, Rivals
from moorage.core.cycle.pod_signatures import KnownShape
from moorage.core.cycle.ring_totals import RingTotals
from moorage.core.cycle.search import draw, first_from, ring_position
from moorage.core.preemption.filter_input import FilterInput
from moorage.core.preemption.what_if import Nominated, judge_with_nominated
from moorage.framework.plugin_runner import check_range, normalized, refused_rows, scored
from moorage.framework.post_filter import PreFiltered
from moorage.state.columns import both
from moorage.state.view import BoolArray, IntArray, NodeView, PodInfo, Snapshot

_FIT: Final = "NodeResourcesFit"
#: Answers about rooms with nominated pods that one sheet caches.
_CROWDED_KEPT: Final = 4096


class Split(NamedTuple):
    """How the plugins of a profile share the work for pods with the same keys.

    ``asked``  run for each pod; ``on_rows``: read the pods of a row and fill the last column
    ``idle``   PreFilter plugins with nothing to do
    """

    asked: Steps
    on_rows: Steps
    idle: frozenset[str]


class Sheet:
    """The sum of some columns, one entry per row, negative where a column refuses the row.

    ``columns``  that of the plugins which read the pods of a row comes last
    """

    def __init__(
        self, by_domain: ByDomain, split: Split, columns: Sequence[KeyColumn], snapshot: Snapshot, *, is_brief: bool
    ) -> None:
        """``is_brief``: the sheet serves few decisions."""
        changes, asked = snapshot.table.changes, split.asked
        self._profile, self._by_domain, self._asked, self._idle = by_domain.profile, by_domain, asked, split.idle
        self._columns, self.on_rows = columns, columns[-1]
        self._is_brief = is_brief
        self.arrangement, self._nodes_seen, self.position = changes.arrangement, changes.nodes, changes.position
        self._narrowed: BoolArray | None = None
        self._collect()
        #: The worths of rooms, if nothing else tells rows apart and the sheet serves one pod.
        self._of_rooms = columns[-1].of_rooms if not self._varying and self._narrowed is None else None
        if self._of_rooms is None or any(column.entries for column in columns[:-1]):
            self._add_up()
        else:
            self._count = self._of_rooms.feasible
        self._asks_none = not asked and not asked.pre_filter
        self._is_for_all = self._asks_none and self._narrowed is None
        self._ring: RingTotals | None = None
        self._allowed: BoolArray | None = None
        #: (room, requests of the nominated pods) → whether the pod fits there.
        self._crowded: dict[Hashable, bool] = {}
        self._nominated_rows: NominatedRows | None = None

    def _add_up(self) -> None:
        """Add up all rows."""
        self._of_rooms = None
        self.on_rows.spread()
        #: What is added up; the last one is that of the plugins which read the pods of a row.
        self._parts: list[IntArray] = [part for column in self._columns if (part := column.dense()) is not None]
        self._total = self._sum(slice(None))
        self._count = int(np.count_nonzero(self._total >= 0))
        #: For each of ``_varying``, the highest raw score of a row that is not refused.
        self._highest: list[int] = []
        if self._varying and self._count:
            self._scale()
        self._part_cells = [part.data for part in self._parts]
        self._cells: memoryview = self._total.data

    def _add_up_again(self) -> None:
        """Add up all rows after scores changed in many of them."""
        self._add_up()
        self._ring = self._allowed = None

    def _sum(self, rows: npt.NDArray[np.intp] | slice) -> IntArray:
        """Return the total of some rows, without what all rows have in common."""
        if len(self._parts) == 1:
            total: IntArray = self._parts[0][rows]
            return total.copy() if isinstance(rows, slice) else total
        total = self._parts[0][rows] + self._parts[1][rows]
        for part in self._parts[2:]:
            total += part[rows]
        return total

    def _scale(self) -> None:
        """Add the scores that depend on the highest raw score."""
        self._highest = self._highest_now()
        for varying, highest in zip(self._varying, self._highest, strict=True):
            scores = varying.scaled(highest)
            if scores is None:
                self._nodes_sound = False
            else:
                self._parts.insert(0, scores)
                self._total += scores

    def _highest_now(self) -> list[int]:
        return [varying.highest(self._total) for varying in self._varying]

    def _collect(self) -> None:
        """Take PreFilter's results and the scores that vary from the columns."""
        states: dict[str, Any] = {}
        skips = [self._idle]
        self._refused, self._nodes_sound = False, True
        self._varying: list[Varying] = []
        for column in self._columns:
            found = column.found
            if found.states:
                states.update(found.states)
            if found.skipped:
                skips.append(found.skipped)
            if found.refused:
                self._refused = True
            if found.narrowed is not None:
                self._narrowed = both(self._narrowed, found.narrowed)
            if column.varying:
                self._varying += column.varying
            if not column.is_sound:
                self._nodes_sound = False
        self._found = PreFiltered(states, frozenset().union(*skips))

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def refresh(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Add up the rows that changed since the last pod. False: the sheet must be made again."""
        changes = snapshot.table.changes
        if changes.nodes != self._nodes_seen and not self.follows(pod, snapshot):
            return False
        behind, column = changes.position - self.position, self.on_rows
        if not behind:
            return True
        if self._of_rooms is not None:
            return False
        rows = None if behind == 1 else changes.many_since(self.position, len(self._total))
        if behind > 1 and rows is None:
            return False
        changed = rows if column.position == self.position else None
        if column.position != changes.position and not column.follow(pod, snapshot, changed):
            self._nodes_seen = -1
            return False
        self._allowed = None
        if rows is None:
            if changes.last < len(self._total):  # otherwise the row is gone
                self._take_row(changes.last)
        elif len(rows) > FEW:
            self._take_rows(rows)
        else:
            for row in dict.fromkeys(rows.tolist()):
                self._take_row(row)
        self.position = changes.position
        if self._varying and (self.on_rows.varying or (self._count and self._highest_now() != self._highest)):
            self._add_up_again()
        return True

    def follows(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Follow the updates of nodes. False: the sheet must be made again."""
        changes = snapshot.table.changes
        if changes.nodes != self._nodes_seen:
            if self.arrangement != changes.arrangement or self._nodes_seen < 0:
                return False
            self._nodes_seen = -1
            if not all(column.follow(pod, snapshot) for column in self._columns):
                return False
            self._nodes_seen = changes.nodes
            self._collect()
            if self._varying:
                self._add_up_again()
                self.position = changes.position
            elif self._ring is not None:
                self._ring.follow_nodes(snapshot.table)
        return True

    def _take_row(self, row: int) -> None:
        """Add up one row."""
        total = 0
        for cells in self._part_cells:
            total += cells[row]
        before = self._cells[row]
        if total == before:
            return
        self._cells[row] = total
        if (total < 0) is not (before < 0):
            self._count += 1 if before < 0 else -1
        if self._ring is not None:
            self._ring.write(row, total)

    def _take_rows(self, rows: npt.NDArray[np.intp]) -> None:
        """Add up many rows. A row may be listed more than once."""
        totals = self._sum(rows)
        self._total[rows] = totals
        if self._count < len(self._total) or totals.item(totals.argmin()) < 0:
            self._count = int(np.count_nonzero(self._total >= 0))
        if self._ring is not None:
            self._ring.write_many(rows, totals)

    @property
    def is_for_all(self) -> bool:
        """Return whether the answers hold for every pod with these keys, because no plugin runs for each of them."""
        return self._is_for_all and not self._refused

    @property
    def allowed(self) -> BoolArray:
        """The rows that no column refuses, as a mask that must not be changed."""
        if self._allowed is None:
            self._allowed = self._total >= 0
        return self._allowed

    def admits(self, row: int, pod: PodInfo, snapshot: Snapshot) -> PreFiltered | None:
        """Judge one row, without nominated pods. Return PreFilter's results; None if a Filter plugin refuses the row.

        Call it only while the sheet ``follows`` and ``is_for_all``.
        """
        for cells in self._part_cells[:-1]:  # the last one is that of the pods of a row
            if cells[row] < 0:
                return None
        return self._found if self.on_rows.at(row, pod, snapshot) >= 0 else None

    # -- deciding -----------------------------------------------------------------------------------------------------

    def pick(self, pod: PodInfo, snapshot: Snapshot, nominated: Nominated, seed: int) -> Quick | None:
        """Return the decision; None if it takes the full path."""
        if not self._count or self._refused or not self._nodes_sound or not self.on_rows.is_sound:
            return None
        if self._is_for_all and not nominated:
            return Quick(self._first_best(snapshot, ring_position(pod.uid, seed)), self._count, self._found)
        if self._of_rooms is not None:
            self._add_up()
        left = self._pre_filtered(pod, snapshot)
        if left is None:
            return None
        found, narrowed = left
        rivals = self._rivals(pod, snapshot, nominated) if nominated else None
        if narrowed is None and rivals is None:
            quick = self._decide_by_domain(pod, snapshot, found, seed)
            if quick is not None:
                return self._counted(quick, None) if quick.feasible else None
        return self._counted(self._decide_by_row(pod, snapshot, left, rivals, seed), narrowed)

    def _first_best(self, snapshot: Snapshot, start: int) -> int:
        """Return the row with the highest total; where several share it, the first at or after ``start`` on the ring."""
        if self._of_rooms is not None:
            return self._of_rooms.first_best(snapshot.table, start)
        if self._ring is not None or not self._is_brief:
            return self._ring_of(snapshot).first_best(start)
        total = self._total
        best = total.item(total.argmax())
        return first_from(snapshot.table, (total == best).nonzero()[0], start)

    def _ring_of(self, snapshot: Snapshot) -> RingTotals:
        """Return the totals in the order of the ring."""
        if self._ring is None:
            self._ring = RingTotals(self._total, snapshot.table, is_brief=self._is_brief)
        return self._ring

    def decide_copy(self, uid: str, like: PodInfo, snapshot: Snapshot, seed: int) -> Quick | None:
        """Do ``refresh`` and ``pick`` while no pod is nominated. Call it only if the sheet ``is_for_all``.

        ``uid``: the pod's; ``like``: any pod with these keys, which plugins may read in its place
        """
        if not self.refresh(like, snapshot) or not self._count:
            return None
        if not self._nodes_sound or not self.on_rows.is_sound:
            return None
        ring = self._ring or self._ring_of(snapshot)
        return Quick(ring.first_best(ring_position(uid, seed)), self._count, self._found)

    def _counted(self, quick: Quick | None, narrowed: BoolArray | None) -> Quick | None:
        """Return the decision with ``among`` set to the number of rows that PreFilter left."""
        rows = both(self._narrowed, narrowed)
        if rows is None or quick is None:
            return quick
        return structs.replace(quick, among=int(np.count_nonzero(rows)))

    def _rivals(self, pod: PodInfo, snapshot: Snapshot, nominated: Nominated) -> Rivals | BoolArray | None:
        """Return the effect of nominated pods on the allowed rows; None if they have none on this pod.

        If all plugins read only sums, it is a mask of the rows on which the pod does not fit beside them. Otherwise it is the
        rows with nominated pods, and these pods.
        """
        rows = self._nominated_rows
        if rows is None or rows.priority != pod.priority:
            rows = self._nominated_rows = NominatedRows(pod.priority, len(self._total))
        if not self.on_rows.plan.by_room or self._asked.filter:
            return rows.rivals(pod, nominated, snapshot.table, self.allowed) or None
        return rows.closed(
            pod, nominated, snapshot.table, self.allowed,
            lambda row, rivals: self._fits_beside(rivals, row, pod, snapshot, self._found),
        )  # fmt: skip

    def feasible(self, pod: PodInfo, snapshot: Snapshot) -> Feasible:
        """Return the rows that no Filter plugin refuses, without regard to nominated pods."""
        if self._of_rooms is not None:
            self._add_up()
        left = None if self._refused else self._pre_filtered(pod, snapshot)
        if left is None:
            return Feasible(np.zeros(len(self._total), dtype=bool), 0, self._found)
        if self._is_for_all:
            return Feasible(self.allowed, self._count, self._found, frozenset())
        beside = None
        if self._narrowed is None and left.narrowed is None:
            asked = (*self._asked.pre_filter, *self._asked.filter)
            beside = frozenset([step.name for step in asked if step.name not in left.found.skipped])
        rows = self._feasible(pod, snapshot, left, None)
        if rows is None:
            return Feasible(self.allowed, self._count, left.found, beside)
        return Feasible(rows, int(np.count_nonzero(rows)), left.found, beside)

    def lacks_room(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Return whether no row is feasible, and of plugins that read a row's pods only the fit of resources refuses."""
        if self._refused or not self._is_for_all:
            return False
        skipped = self._found.skipped
        if any(step.name != _FIT for step in self.on_rows.steps.filter if step.name not in skipped):
            return False
        return self.feasible(pod, snapshot).number == 0

    def _decide_by_domain(self, pod: PodInfo, snapshot: Snapshot, found: PreFiltered, seed: int) -> Quick | None:
        """Decide by topology domain; None if a plugin has to see rows. ``feasible`` is 0 if nothing is feasible."""
        if not self._asked:
            return Quick(self._first_best(snapshot, ring_position(pod.uid, seed)), self._count, found)
        closed = self._by_domain.closed(self._asked.filter, found, pod, snapshot.nodes)
        if closed is None:
            return None
        if closed:
            for varying, highest in zip(self._varying, self._highest, strict=True):
                if not varying.reaches(highest, self._total, closed, snapshot.nodes):
                    return None  # the scores of the open rows may depend on a lower one
        if self._by_domain.needs_rows(pod):
            return None
        rows = OpenRows(self._ring_of(snapshot), self._count, closed, snapshot)
        pick = self._by_domain.pick(rows, self._asked, found, pod, ring_position(pod.uid, seed))
        return None if pick is None else Quick(pick.row, pick.feasible, found)

    def _decide_by_row(
        self, pod: PodInfo, snapshot: Snapshot, left: _Left, rivals: Rivals | BoolArray | None, seed: int
    ) -> Quick | None:
        feasible, found = self._feasible(pod, snapshot, left, rivals), left.found
        rows = np.flatnonzero(self.allowed if feasible is None else feasible)
        if not len(rows):
            return None
        if len(rows) == 1:
            return Quick(int(rows[0]), 1, found)
        totals: IntArray = self._total[rows]
        for varying, before in zip(self._varying, self._highest, strict=True):
            raw = varying.raw[rows]
            highest = raw.item(raw.argmax())
            if highest != before:
                scores, added = varying.scaled(highest), varying.scaled(before)
                if scores is None or added is None:
                    return None
                totals = totals + scores[rows] - added[rows]
        extra = self._asked_scores_of(pod, snapshot, found, rows) if self._asked.score else None
        if extra is not None:
            totals = totals + extra
        best = rows[totals == totals.item(totals.argmax())]
        return Quick(draw(snapshot.table, best, pod.uid, seed), len(rows), found)

    def _pre_filtered(self, pod: PodInfo, snapshot: Snapshot) -> _Left | None:
        """Run the PreFilter plugins that run for each pod; None if one of them rejects the pod."""
        if not self._asked.pre_filter:
            return _Left(self._found)
        states, skipped, narrowed, refused = ask_pre_filters(self._asked.pre_filter, pod, snapshot)
        if refused:
            return None
        return _Left(PreFiltered({**self._found.states, **states}, self._found.skipped | skipped), narrowed)

    def _feasible(self, pod: PodInfo, snapshot: Snapshot, left: _Left, rivals: Rivals | BoolArray | None) -> BoolArray | None:
        """Return which rows are feasible; None if they are exactly those that the columns allow."""
        found, narrowed = left
        feasible = None if narrowed is None else self.allowed & narrowed
        for step in self._asked.filter:
            if step.name not in found.skipped:
                refused = refused_rows(step, found.state_of(step, pod), snapshot.nodes)
                if refused is not None:
                    feasible = (self.allowed if feasible is None else feasible) & ~refused
        if rivals is None:
            return feasible
        feasible = self.allowed.copy() if feasible is None else feasible
        if isinstance(rivals, np.ndarray):
            return feasible & ~rivals
        for row, pods in rivals.items():
            if feasible[row]:
                feasible[row] = self._fits_beside(pods, row, pod, snapshot, found)
        return feasible

    def _fits_beside(self, rivals: Sequence[PodInfo], row: int, pod: PodInfo, snapshot: Snapshot, found: PreFiltered) -> bool:
        """Return whether a row is feasible with its nominated pods. If plugins read only sums, equal sums share one answer."""
        asked = FilterInput(self._profile, found, pod)
        if not self.on_rows.plan.by_room or self._asked.filter:
            return judge_with_nominated(asked, snapshot, row, rivals) is None
        present = snapshot.table.pods[row]
        key = (
            snapshot.table.rooms.followed().cells[row],
            tuple([rival.needs.key for rival in rivals if rival.uid not in present]),
        )
        fits = self._crowded.get(key)
        if fits is None:
            if len(self._crowded) >= _CROWDED_KEPT:
                self._crowded.clear()
            fits = self._crowded[key] = judge_with_nominated(asked, snapshot, row, rivals) is None
        return fits

    def _asked_scores_of(
        self, pod: PodInfo, snapshot: Snapshot, found: PreFiltered, rows: npt.NDArray[np.intp]
    ) -> IntArray | None:
        """Score the feasible rows by the plugins that run for each pod; None if all of them skip."""
        view = snapshot.nodes if len(rows) == len(snapshot.table) else NodeView(snapshot, rows)
        total: IntArray | None = None
        for step, state in self._asked.scoring(found, pod, view):
            scores = normalized(step, state, scored(step, state, view), view)
            check_range(step, scores, view)
            weight = self._profile.weights.get(step.name, 1)
            weighted = scores if weight == 1 else scores * weight
            total = weighted if total is None else total + weighted
        return total


class _Left(NamedTuple):
    """What the PreFilter plugins that run for each pod left of the rows: their results, and the rows, None for all."""

    found: PreFiltered
    narrowed: BoolArray | None = None


class ShapeRoute(NamedTuple):
    """A known shape and the sheet of its keys. ``has_terms``: placing a pod of the shape may change the keys."""

    known: KnownShape
    sheet: Sheet
    has_terms: bool
