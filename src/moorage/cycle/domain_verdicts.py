"""Decide by topology domain: run plugins that judge domains once a domain instead of once a node.

Topology spread and pod affinity read pods all over the cluster, so a pod class cannot cache their verdicts. But they judge
domains: which values of a node label are closed to the pod, and what score each value gets. A plugin that declares
``Domains`` in its ``reuse`` does not run on rows; ``ByDomain`` adds its answers to the class's totals, in ring
order, and picks the best row.

The caller decides by row if a plugin lacks these forms, or has no answer by domain for the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.framework.plugin_runner import are_in_range, ask, normalized
from moorage.framework.prefilter_state import PreFiltered
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import SKIP
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable
from moorage.state.view import NodeView

__all__ = ["ByDomain", "Pick"]


#: Added to the total of a row in a closed domain, once per key: makes any total negative and cannot overflow.
_CLOSED: Final = -(1 << 52)
#: Up to this many domains are compared in plain Python: each NumPy call has a fixed cost.
_FEW: Final = 32
#: How many pod shapes are remembered as needing a decision by row.
_SHAPES_REMEMBERED: Final = 4096


class Pick(NamedTuple):
    """The picked row and the number of feasible rows; the row is -1 if there are none."""

    row: int
    feasible: int


class ByDomain:
    """The domain forms of one profile's plugins. ``asked`` in its methods are the plugins that run for each pod of a class."""

    def __init__(self, profile: Profile) -> None:
        self._weights = profile.weights
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
            if form is None:
                return None
            for key, domains in ask(form, "filter", found.state_of(step, pod), nodes):
                if domains.any():
                    closed[key] = closed[key] | domains if key in closed else domains
        return closed

    def pick(
        self,
        in_ring: IntArray,
        allowed: int,
        closed: Mapping[str, BoolArray],
        scoring: DomainScoring,
        snapshot: Snapshot,
        start: int,
    ) -> Pick | None:
        """Add the domains' scores to the totals in ring order and return the best row; None: decide by row.

        ``allowed`` is how many rows have a total. ``start`` is the ring position that ties are broken from. With a single
        feasible row no plugin scores.
        """
        if self._by_row and scoring.shape in self._by_row:
            return None
        table = snapshot.table
        ring = table.ring()
        for key, domains in closed.items():
            in_ring = in_ring + np.where(domains, _CLOSED, 0).take(table.domains_in_ring(key))
        open_places: BoolArray | None = None
        feasible = allowed
        if closed or allowed < len(in_ring):
            open_places = in_ring >= 0
            feasible = int(np.count_nonzero(open_places))
        if feasible < 2:
            return Pick(int(ring.rows[in_ring.argmax()]) if feasible else -1, feasible)
        gains = self._gains(scoring, snapshot, open_places if feasible < len(in_ring) else None)
        if gains is None:
            if len(self._by_row) >= _SHAPES_REMEMBERED:
                self._by_row.clear()
            self._by_row.add(scoring.shape)
            return None
        for key, worth in gains.items():
            in_ring = in_ring + worth.take(table.domains_in_ring(key))
        return Pick(ring.first_best(in_ring, start), feasible)

    def _gains(
        self, scoring: DomainScoring, snapshot: Snapshot, open_places: BoolArray | None
    ) -> Mapping[str, IntArray] | None:
        """Return what each domain adds to a row's total, by topology key; ``open_places`` None: all are open."""
        table = snapshot.table
        view = snapshot.nodes if open_places is None else _OpenNodes(snapshot, open_places)
        states = scoring.states(view)
        gains: dict[str, IntArray] = {}
        for step in scoring.steps(states):
            form = self._scores[step.name]
            answer = None if form is None else ask(form, "score", scoring.state(step, states), view)
            if answer is None:
                return None
            key, raw = answer
            held = _held(table, key, open_places)
            some = raw[held]
            if _all_alike(some):
                continue  # all feasible rows get the same score
            scores = normalized(step, scoring.state(step, states), some)
            if not are_in_range(scores):
                return None
            gain = np.zeros(len(raw), dtype=np.int64)
            gain[held] = scores * self._weights.get(step.name, 1)
            gains[key] = gains[key] + gain if key in gains else gain
        return gains


def _all_alike(raw: IntArray) -> bool:
    if len(raw) > _FEW:
        return bool((raw == raw[0]).all())
    values: list[int] = raw.tolist()
    return min(values) == max(values)


class _OpenNodes(NodeView):
    """The rows at the open places of the ring, looked up only when a plugin reads them, which few do."""

    __slots__ = ("_open_places", "_rows")

    def __init__(self, snapshot: Snapshot, open_places: BoolArray) -> None:
        self.snapshot = snapshot
        self.table = snapshot.table
        self._open_places = open_places
        self._rows: npt.NDArray[np.intp] | None = None

    @property
    def rows(self) -> npt.NDArray[np.intp]:  # type: ignore[override]  # a slot in the base class that is never set
        if self._rows is None:
            self._rows = self.table.ring().rows[self._open_places]
        return self._rows


def _held(table: NodeTable, key: str, open_places: BoolArray | None) -> BoolArray:
    """Return for each value of a label, absence included, whether an open row has it."""
    column = table.labels.column(key)
    if open_places is None:
        return column.held
    held = np.zeros(len(column.values), dtype=bool)
    held[table.domains_in_ring(key)[open_places]] = True
    return held


class DomainScoring:
    """The PreScore and Score plugins that run for one pod."""

    def __init__(self, pre: tuple[Step, ...], score: tuple[Step, ...], found: PreFiltered, pod: PodInfo) -> None:
        self._pre = pre
        self._score = score
        self._found = found
        self._pod = pod

    @property
    def shape(self) -> bytes:
        return self._pod.shape()

    def states(self, feasible: NodeView) -> Mapping[str, Any]:
        """Run PreScore and return each plugin's state, or ``SKIP``."""
        return {step.name: ask(step, "preScore", self._pod, feasible.snapshot, feasible) for step in self._pre}

    def steps(self, states: Mapping[str, Any]) -> list[Step]:
        """Return the Score plugins whose PreScore did not skip."""
        return [step for step in self._score if states.get(step.name) is not SKIP]

    def state(self, step: Step, states: Mapping[str, Any]) -> Any:
        return states[step.name] if step.name in states else self._found.states.get(step.name, self._pod)
