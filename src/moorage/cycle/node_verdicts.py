"""The answers of plugins that read only nodes, for every row: the part that different pod classes share.

Pods with different requests often have the same tolerations and node selectors. ``NodeParts`` computes the answers of those
plugins once for all such classes. When a node is updated, its row is judged again; when one is added or removed, all are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.cycle.removed_rows import GONE, MovedRows
from moorage.framework.plugin_runner import are_in_range, ask, normalized, refused_rows, refuses, scored
from moorage.framework.profile import Profile, Step
from moorage.framework.reuse import Scope
from moorage.framework.verdicts import SKIP, Hold, Narrow
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable
from moorage.state.view import NodeView

__all__ = ["FEW", "NodePart", "NodeParts", "Steps", "Varying", "ask_pre_filters", "both", "close_refused"]

#: Up to this many changed rows are judged one by one; more are judged as columns.
FEW = 8
#: The most parts that are cached, and the most rows in all of them together.
_KEPT = 64
_ROWS_KEPT = 4_000_000


class Steps:
    """Some plugins of a profile, by name, at PreFilter, Filter, PreScore and Score."""

    def __init__(self, profile: Profile, names: frozenset[str]) -> None:
        pre_filter, filter_, pre_score, score = (
            tuple(step for step in profile.at(point) if step.name in names)
            for point in ("preFilter", "filter", "preScore", "score")
        )
        self.pre_filter, self.filter, self.pre_score, self.score = pre_filter, filter_, pre_score, score
        #: The Filter and Score plugins with their form for one node, or None.
        self.filter_nodes = tuple((step, step.single) for step in filter_)
        self.score_nodes = tuple((step, step.single) for step in score)

    def __bool__(self) -> bool:
        return bool(self.filter or self.pre_score or self.score)


class PreFilters(NamedTuple):
    """The answers of some PreFilter plugins.

    ``states`` by plugin, the plugins that ``skipped``, the rows left as a mask (``narrowed``; None: all), and whether a plugin
    ``refused`` the pod.
    """

    states: dict[str, Any]
    skipped: set[str]
    narrowed: BoolArray | None
    refused: bool

    def agrees_with(self, skipped: Set[str], narrowed: BoolArray | None, *, refused: bool) -> bool:
        """Return whether these answers equal the given ones, not counting the states."""
        if self.skipped != skipped or self.refused != refused:
            return False
        if self.narrowed is None or narrowed is None:
            return self.narrowed is narrowed
        return bool((self.narrowed == narrowed).all())


def ask_pre_filters(steps: Iterable[Step], pod: PodInfo, snapshot: Snapshot) -> PreFilters:
    """Run PreFilter of all these plugins for a pod."""
    states: dict[str, Any] = {}
    skipped: set[str] = set()
    narrowed: BoolArray | None = None
    refused = False
    for step in steps:
        answer = ask(step, "preFilter", pod, snapshot)
        if answer is SKIP:
            skipped.add(step.name)
        elif isinstance(answer, Hold):
            refused = True
        elif isinstance(answer, Narrow):
            narrowed = both(narrowed, snapshot.nodes.named(answer.nodes))
            states[step.name] = answer.state
        else:
            states[step.name] = answer
    return PreFilters(states, skipped, narrowed, refused)


def both(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    """Return the rows that are in both masks; None stands for all rows."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def close_refused(
    open_rows: BoolArray, steps: Iterable[Step], states: Mapping[str, Any], pod: PodInfo, nodes: NodeView
) -> None:
    """Clear in ``open_rows`` the rows of a view that Filter plugins refuse."""
    for step in steps:
        refused = refused_rows(step, states.get(step.name, pod), nodes)
        if refused is not None:
            open_rows &= ~refused


class Varying(NamedTuple):
    """Unequal raw scores, one per row, of a plugin whose final scores depend on which rows are feasible."""

    step: Step
    state: Any
    raw: IntArray
    weight: int


class NodePart:
    """The answers for one pod. Arrays have one entry per row of the table; other readers do not write to them.

    ``states`` and ``skipped`` are PreFilter's; ``refused``: a PreFilter plugin rejected the pod
    ``narrowed``    the rows that PreFilter left; None: all
    ``allowed``     the rows that no Filter plugin refuses
    ``total``       sum of the weighted scores; None if they are all equal. ``everywhere``: a constant to add to each row
    ``varying``     scores that are not in the sum yet
    ``is_sound``    False if a score is out of range: the caller then takes the full path, which reports the error
    """

    def __init__(self, steps: Steps, weights: Mapping[str, int], pod: PodInfo, snapshot: Snapshot) -> None:
        self._steps = steps
        self._weights = weights
        self._seen = _Seen(steps, snapshot.table)
        #: False once a change was found that the part cannot follow.
        self._is_current = True
        self.states, self.skipped, self.narrowed, self.refused = ask_pre_filters(steps.pre_filter, pod, snapshot)
        narrowed = self.narrowed
        self.allowed: BoolArray = np.ones(len(snapshot.table), dtype=bool) if narrowed is None else narrowed.copy()
        self.total: IntArray | None = None
        self.everywhere = 0
        self.varying: list[Varying] = []
        self.is_sound = True
        #: Plugin whose raw scores are all equal → that score; and the plugins whose scores are in ``total``.
        self._alike: dict[str, int] = {}
        self._summed: set[str] = set()
        close_refused(self.allowed, self._filters(), self.states, pod, snapshot.nodes)
        for step, state in self._scoring(pod, snapshot):
            self._add(step, state, scored(step, state, snapshot.nodes))

    def _filters(self) -> Iterator[Step]:
        return (step for step in self._steps.filter if step.name not in self.skipped)

    def _scoring(self, pod: PodInfo, snapshot: Snapshot) -> list[tuple[Step, Any]]:
        """Return the Score plugins that are not skipped, with their states."""
        asked: dict[str, Any] = {
            step.name: ask(step, "preScore", pod, snapshot, snapshot.nodes) for step in self._steps.pre_score
        }
        states = [(step, asked.get(step.name, self.states.get(step.name, pod))) for step in self._steps.score]
        return [(step, state) for step, state in states if state is not SKIP]

    def _add(self, step: Step, state: Any, raw: IntArray) -> None:
        weight = self._weights.get(step.name, 1)
        alike = bool((raw == raw[:1]).all())
        scales = step.normalize is not None
        if scales and not alike:
            self.varying.append(Varying(step, state, raw.astype(np.int64), weight))
            return
        scores = normalized(step, state, raw[:1]) if scales else raw
        self.is_sound = self.is_sound and are_in_range(scores)
        if alike:
            self._alike[step.name] = int(raw[0]) if len(raw) else 0
            self.everywhere += int(scores[0]) * weight if len(scores) else 0
        else:
            self._summed.add(step.name)
            weighted = scores * np.int64(weight)
            self.total = weighted if self.total is None else self.total + weighted

    # -- keeping up ---------------------------------------------------------------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Return whether all rows are open and have the same score."""
        return self.total is None and not self.varying and not self.refused and bool(self.allowed.all())

    @property
    def arrangement(self) -> int:
        """The arrangement of nodes that the part is computed for (see ``ChangeLog``)."""
        return self._seen.arrangement

    def follow(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Judge the rows of updated nodes again. Return False if the part must be computed again."""
        if self._is_current and self._seen.version != snapshot.table.changes.nodes:
            self._is_current = False  # also if a plugin raises
            rows = self._seen.updated(snapshot.table)
            self._is_current = rows is not None and self._update(rows, rows, pod, snapshot)
        return self._is_current

    def follow_without(self, moved: MovedRows, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Like ``follow``, while an open transaction has removed nodes; rows keep their numbers. False: do not use the part."""
        updated = self._seen.updated_without(snapshot.table) if self._is_current else None
        if not updated:
            return updated is not None
        self._is_current = False  # also if a plugin raises
        present = moved.present(updated, len(self.allowed))
        self._seen.owed.update(row for row, at in present.items() if at == GONE)
        left = {row: at for row, at in present.items() if at != GONE}
        rows, at = (np.fromiter(numbers, dtype=np.intp, count=len(left)) for numbers in (left, left.values()))
        self._is_current = self._update(rows, at, pod, snapshot)
        return self._is_current

    def _update(self, rows: npt.NDArray[np.intp], at: npt.NDArray[np.intp], pod: PodInfo, snapshot: Snapshot) -> bool:
        """Judge nodes again and write the answers to ``rows`` of this part; ``at`` are their present rows in the table."""
        found = ask_pre_filters(self._steps.pre_filter, pod, snapshot)
        if not found.agrees_with(self.skipped, self.narrowed, refused=self.refused):
            return False
        self.states = found.states
        view = NodeView(snapshot, at)
        if len(rows) <= FEW:
            for row, now in zip(rows.tolist(), at.tolist(), strict=True):
                self.allowed[row] = (self.narrowed is None or self.narrowed[row]) and self._lets(pod, snapshot, now)
        else:
            allowed = np.ones(len(rows), dtype=bool) if self.narrowed is None else self.narrowed[rows]
            close_refused(allowed, self._filters(), self.states, pod, view)
            self.allowed[rows] = allowed
        scoring = self._scoring(pod, snapshot)
        if {step.name for step, _ in scoring} != {*self._alike, *self._summed, *(one.step.name for one in self.varying)}:
            return False
        if not all(self._score_again(step, state, rows, view) for step, state in scoring):
            return False
        return self._sum_again(scoring, rows, view)

    def _lets(self, pod: PodInfo, snapshot: Snapshot, row: int) -> bool:
        """Return whether no Filter plugin refuses a row."""
        node = snapshot.nodes.one(row)
        for step, single in self._steps.filter_nodes:
            if step.name in self.skipped:
                continue
            if refuses(step, single, self.states.get(step.name, pod), node, snapshot.nodes):
                return False
        return True

    def _score_again(self, step: Step, state: Any, rows: npt.NDArray[np.intp], view: NodeView) -> bool:
        """Score some rows again. Return False if a plugin's scores were all equal and no longer are."""
        if step.name in self._summed:
            return True
        raw = scored(step, state, view)
        if step.name in self._alike:
            alike = self._alike[step.name]
            return raw.tolist() == [alike] * len(raw) if len(raw) <= FEW else bool((raw == alike).all())
        for one in self.varying:
            if one.step is step:
                one.raw[rows] = raw
        return True

    def _sum_again(self, scoring: list[tuple[Step, Any]], rows: npt.NDArray[np.intp], view: NodeView) -> bool:
        """Write the scores of some rows in ``total``. Return False if one is out of range."""
        if self.total is None:
            return True
        total = np.zeros(len(rows), dtype=np.int64)
        for step, state in scoring:
            if step.name in self._summed:
                scores = scored(step, state, view)
                if not are_in_range(scores):
                    return False
                total += scores * np.int64(self._weights.get(step.name, 1))
        self.total[rows] = total
        return True


class _Seen:
    """The state of the table's nodes up to which a part is current."""

    def __init__(self, steps: Steps, table: NodeTable) -> None:
        named = {
            step.name: step.reuse.other_nodes for step in (*steps.pre_filter, *steps.filter, *steps.pre_score, *steps.score)
        }
        self._others = [other_nodes for other_nodes in named.values() if other_nodes is not None]
        #: Rows that were updated and removed, to be judged when they are back.
        self.owed: set[int] = set()
        self._note(table)

    def _note(self, table: NodeTable) -> None:
        self.version, self.arrangement = table.changes.nodes, table.changes.arrangement
        self._position = table.changes.updates.position
        self._versions = [version(table) for version in self._others]

    def updated_without(self, table: NodeTable) -> list[int] | None:
        """Return the same where nodes were removed, under the numbers that the rows had when they were updated."""
        if any(version(table) != before for version, before in zip(self._others, self._versions, strict=True)):
            return None
        rows = table.changes.updates.since(self._position)
        self._position = table.changes.updates.position
        return rows

    def updated(self, table: NodeTable) -> npt.NDArray[np.intp] | None:
        """Return the rows updated since the last call; None if the answers for other rows may have changed too."""
        rows = table.changes.updates.since(self._position)
        arrangement, versions = self.arrangement, self._versions
        self._note(table)
        if rows is None or arrangement != self.arrangement or versions != self._versions:
            return None
        changed = np.array(sorted(self.owed.union(rows)), dtype=np.intp)
        self.owed.clear()
        return changed


class NodeParts:
    """The parts of one profile's classes. The least recently used one is dropped first."""

    def __init__(self, profile: Profile, scopes: Mapping[str, Scope]) -> None:
        self._profile = profile
        #: The plugins that read only nodes.
        self.names = frozenset(name for name, scope in scopes.items() if scope is Scope.NODE)
        self._parts: dict[Hashable, NodePart] = {}
        self._steps: dict[frozenset[str], Steps] = {}

    def of(self, key: Hashable, asked: frozenset[str], pod: PodInfo, snapshot: Snapshot) -> NodePart:
        """Return the part for this key, without the plugins ``asked``, which run for each pod."""
        part = self._parts.pop(key, None)
        if part is None or not part.follow(pod, snapshot):
            steps = self._steps.get(asked)
            if steps is None:
                steps = self._steps[asked] = Steps(self._profile, self.names - asked)
            part = NodePart(steps, self._profile.weights, pod, snapshot)
            while len(self._parts) >= max(1, min(_KEPT, _ROWS_KEPT // max(1, len(snapshot.table)))):
                del self._parts[next(iter(self._parts))]
        self._parts[key] = part
        return part
