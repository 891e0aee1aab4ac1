"""Decide by topology domain: run plugins that judge domains once a domain instead of once a node.

Topology spread and pod affinity read pods all over the cluster, so a pod class cannot cache their verdicts. But they judge
domains: which values of a node label are closed to the pod, and what score each value gets. A plugin that declares
``Domains`` in its ``reuse`` does not run on rows; ``ByDomain`` adds its answers to the class's totals, in ring
order, and picks the best row.

The caller decides by row if a plugin lacks these forms, or has no answer by domain for the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.core.cycle.domain_places import Domains, OpenPlaces, selected
from moorage.core.cycle.judges import Steps
from moorage.core.cycle.ring_totals import RingTotals
from moorage.core.cycle.summed_places import CountedPlaces, SummedPlaces
from moorage.framework.answer_forms import FollowedScores, ScoresByCount
from moorage.framework.plugin_runner import are_in_range, ask, normalized
from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile, Step
from moorage.state.columns import BoolArray, IntArray, has_any
from moorage.state.labels import LabelColumn
from moorage.state.view import NodeView, PodInfo, Snapshot

#: Added to the total of a row in a closed domain, once per key: makes any total negative and cannot overflow.
_CLOSED: Final = -(1 << 52)
#: Up to this many domains are compared in plain Python: each NumPy call has a fixed cost.
_FEW: Final = 32
_NO_GAIN: IntArray = np.zeros(0, dtype=np.int64)
#: How many pod shapes are remembered as needing a decision by row.
_SHAPES_REMEMBERED: Final = 4096


class Pick(NamedTuple):
    """The picked row and the number of feasible rows; the row is -1 if there are none."""

    row: int
    feasible: int


class ByDomain:
    """The domain forms of one profile's plugins. The argument ``asked`` has the plugins that run for each pod of a class."""

    def __init__(self, profile: Profile) -> None:
        self.profile, self._weights = profile, profile.weights
        self._filters = {step.name: step.by_domain for step in profile.at("filter")}
        self._scores = {step.name: step.by_domain for step in profile.at("score")}
        #: Pod shapes for which a plugin had no answer by domain, so that it is not called for each such pod.
        self._by_row: set[bytes] = set()

    def closed(
        self, asked: tuple[Step, ...], found: PreFiltered, pod: PodInfo, nodes: NodeView
    ) -> Mapping[str, BoolArray] | None:
        """Return the domains closed to the pod by topology key, only for keys with any. None: decide by row."""
        closed: dict[str, BoolArray] = {}
        for step in asked:
            if step.name in found.skipped:
                continue
            form = self._filters[step.name]
            answer = None if form is None else ask(form, "filter", found.state_of(step, pod), nodes)
            if answer is None:
                return None
            for key, domains in answer:
                if has_any(domains) and not (domains.argmin() == 1 and _closes_nothing(domains, nodes.label(key))):
                    closed[key] = closed[key] | domains if key in closed else domains
        return closed

    def needs_rows(self, pod: PodInfo) -> bool:
        """Return whether a plugin had no answer by domain for a pod of this shape before: decide by row."""
        return bool(self._by_row) and pod.shape() in self._by_row

    def pick(self, rows: OpenRows, asked: Steps, found: PreFiltered, pod: PodInfo, start: int) -> Pick | None:
        """Add the domains' scores to the totals in ring order and return the best row; None: decide by row.

        ``start`` is the ring position that ties are broken from. With a single feasible row no plugin scores.
        """
        snapshot = rows.snapshot
        if rows.count < 2:
            return Pick(rows.only() if rows.count else -1, rows.count)
        view = snapshot.nodes if rows.are_all else _OpenNodes(snapshot, rows)
        gains = self._gains(asked.scoring(found, pod, view), view, rows)
        if gains is None:
            if len(self._by_row) >= _SHAPES_REMEMBERED:
                self._by_row.clear()
            self._by_row.add(pod.shape())
            return None
        return Pick(rows.best(gains, start), rows.count)

    def _gains(self, scoring: Iterable[tuple[Step, Any]], view: NodeView, rows: OpenRows) -> _Gains | None:
        """Return the amounts that domains and cells add to a row's total; None: decide by row."""
        counted: list[_Counted] = []
        gains: dict[str, IntArray] = {}
        for step, state in scoring:
            form = self._scores[step.name]
            answer = None if form is None else ask(form, "score", state, view)
            if answer is None:
                return None
            places: CountedPlaces | SummedPlaces | None = None
            if isinstance(answer, ScoresByCount):
                places = rows.counted_places(answer)
                if places is None:
                    return None
                key = answer.key
                gain = self._gain(step, state, answer.raw(places.most).ravel(), rows.cells_held(places))
            elif isinstance(answer, FollowedScores) and (places := rows.summed_places(answer)) is not None:
                key, held = answer.key, rows.cells_held(places)
                gain = places.gain_of(held)
                if gain is None:
                    gain = places.keep_gain(held, self._gain(step, state, places.raw, held))
            else:
                key, raw = answer[:2]
                gain = self._gain(step, state, raw, rows.held(key))
            if gain is None:
                return None
            if gain is _NO_GAIN:
                continue
            if places is not None:
                counted.append(_Counted(places.cells, gain))
            else:
                gains[key] = gains[key] + gain if key in gains else gain
        return _Gains(gains, counted)

    def _gain(self, step: Step, state: Any, raw: IntArray, held: Domains) -> IntArray | None:
        """Return what one plugin adds to the total of each domain or cell, of which some are ``held``.

        ``_NO_GAIN`` if all feasible rows get the same score; None if a score is out of range.
        """
        some = raw[held]
        if _all_alike(some):
            return _NO_GAIN
        scores = normalized(step, state, some)
        if not are_in_range(scores):
            return None
        return _spread_gain(scores, self._weights.get(step.name, 1), held, len(raw))


class _Counted(NamedTuple):
    """The cell of each place of the ring (see ``CountedPlaces``), and the amount that each cell adds to a total."""

    cells: npt.NDArray[np.intp]
    gain: IntArray


class _Gains(NamedTuple):
    """The amounts to add to a row's total: topology key → amount of each domain; and the amounts of cells."""

    by_key: Mapping[str, IntArray]
    counted: Sequence[_Counted] = ()


class OpenRows:
    """The rows that a pod may be placed on: those with a total, in domains that are not closed.

    They are counted and compared by domain if all closed domains are of one label with few values, else node by node.
    """

    __slots__ = (
        "_allowed", "_closed", "_held", "_key", "_open", "_places", "_scores", "_shut", "_table", "_totals",
        "count", "snapshot",
    )  # fmt: skip

    def __init__(self, scores: RingTotals, allowed: int, closed: Mapping[str, BoolArray], snapshot: Snapshot) -> None:
        """``allowed``: how many rows have a total"""
        table = snapshot.table
        self._scores, self._allowed, self._closed, self.snapshot, self._table = scores, allowed, closed, snapshot, table
        self._totals: IntArray | None = None
        self._held: dict[str, Domains] = {}
        self._key = next(iter(closed)) if len(closed) == 1 and not scores.is_brief else ""
        self._places = scores.places(self._key, table) if self._key else None
        self._open: OpenPlaces | None = None
        if not closed:
            self.count = allowed
        elif self._places is not None:
            self._shut: list[bool] = closed[self._key].tolist()
            self.count = allowed - sum(compress(self._places.open, self._shut))
        elif self._key:
            self._open = scores.open_places(self._key, closed[self._key], table)
            self._totals, self.count = self._open.totals, self._open.count
        else:
            self.count = int(np.count_nonzero(self.mask))

    @property
    def are_all(self) -> bool:
        """True if every row of the table is open."""
        return self.count == len(self._table)

    @property
    def totals(self) -> IntArray:
        """The totals in ring order, negative for rows that are not open."""
        if self._totals is None:
            totals = self._scores.in_ring
            for key, domains in self._closed.items():
                totals = totals + np.where(domains, _CLOSED, 0).take(self._table.domains_in_ring(key))
            self._totals = totals
        return self._totals

    @property
    def mask(self) -> BoolArray:
        """True for each place of the ring whose row is open."""
        return self.totals >= 0

    def held(self, key: str) -> Domains:
        """Return the values of a label that open rows have; a missing label counts as a value."""
        if not self._closed:
            return self._scores.domains(key, self._table)
        if key not in self._held:
            self._held[key] = self._find_held(key)
        return self._held[key]

    def _find_held(self, key: str) -> Domains:
        if self._places is not None and key == self._key:
            there = zip(self._places.open, self._shut, strict=True)
            return np.array([domain for domain, (count, shut) in enumerate(there) if count and not shut], dtype=np.intp)
        held = np.zeros(len(self._table.labels.column(key).values), dtype=bool)
        held[self._table.domains_in_ring(key)[self.mask]] = True
        return selected(held)

    def counted_places(self, answer: ScoresByCount) -> CountedPlaces | None:
        return self._scores.counted_places(answer.key, answer.matcher, self._table)

    def summed_places(self, answer: FollowedScores) -> SummedPlaces | None:
        return self._scores.summed_places(answer, self._table)

    def cells_held(self, places: CountedPlaces | SummedPlaces) -> npt.NDArray[np.intp]:
        """Return the cells that have an open row."""
        held = np.bincount(places.cells[self.mask], minlength=len(places.open)) if self._closed else places.open
        return held.nonzero()[0]

    def only(self) -> int:
        """Return the single open row."""
        return int(self._table.ring().rows[self.totals.argmax()])

    def best(self, added: _Gains, start: int) -> int:
        """Return the open row with the highest total and gains; where several share it, the first at or after ``start``."""
        gains = added.by_key
        if added.counted:
            return self._best_of_all(gains, start, added.counted)
        if not gains and self._open is not None:
            return self._open.first(start)
        if not gains and self._places is not None:
            return self._places.first([0] * len(self._shut), self._shut, start)
        keys = {*self._closed, *gains}
        if not keys:
            return self._scores.first_best(start)
        key = keys.pop()
        places = None if keys or self._scores.is_brief else self._scores.places(key, self._table)
        if places is not None:
            size = len(places.open)
            gain = gains[key].tolist() if key in gains else [0] * size
            shut = self._closed[key].tolist() if key in self._closed else [False] * size
            return places.first(gain, shut, start)
        return self._best_of_all(gains, start)

    def _best_of_all(self, gains: Mapping[str, IntArray], start: int, counted: Sequence[_Counted] = ()) -> int:
        totals = self.totals
        for cells, gain in counted:
            total = gain.take(cells, mode="clip")  # all are in range: clipping is faster than checking
            total += totals
            totals = total
        for key, worth in gains.items():
            total = worth.take(self._table.domains_in_ring(key), mode="clip")
            total += totals
            totals = total
        return self._table.ring().first_best(totals, start)


def _spread_gain(scores: IntArray, weight: int, held: Domains, size: int) -> IntArray:
    """Return the weighted scores at the domains that are ``held``, and 0 at the others, of ``size`` domains in all."""
    weighted = scores if weight == 1 else scores * weight
    if isinstance(held, slice):
        gain = np.empty(size, dtype=np.int64)
        gain[: held.start] = 0
    else:
        gain = np.zeros(size, dtype=np.int64)
    gain[held] = weighted
    return gain


def _closes_nothing(domains: BoolArray, column: LabelColumn) -> bool:
    """Return whether no node is closed: only nodes without the label would be, and every node has it."""
    return column.is_everywhere and domains.tobytes().find(1, 1) < 0


def _all_alike(raw: IntArray) -> bool:
    if len(raw) > _FEW:
        first = raw.item(0)
        return bool(raw.item(raw.argmax()) == first and raw.item(raw.argmin()) == first)  # mostly faster than comparing all
    values: list[int] = raw.tolist()
    return min(values) == max(values)


class _OpenNodes(NodeView):
    """The open rows in the order of the ring, looked up only when a plugin reads them, which few do."""

    __slots__ = ("_open", "_rows")

    def __init__(self, snapshot: Snapshot, rows: OpenRows) -> None:
        self.snapshot = snapshot
        self.table = snapshot.table
        self._open = rows
        self._rows: npt.NDArray[np.intp] | None = None

    @property
    def rows(self) -> npt.NDArray[np.intp]:  # type: ignore[override]  # a slot in the base class that is never set
        if self._rows is None:
            self._rows = self.table.ring().rows[self._open.mask]
        return self._rows

    def __len__(self) -> int:
        return self._open.count

    @property
    def is_whole(self) -> bool:
        return False

    def domains_held(self, key: str) -> BoolArray:
        column, there = self.label(key), self._open.held(key)
        if isinstance(there, slice):  # all values
            return column.domains
        held = np.zeros(len(column.values), dtype=bool)
        held[there] = True
        held[0] = False
        return held
