"""The answers of plugins that read only nodes, for every row: the part that different pod classes share.

Pods with different requests often have the same tolerations and node selectors. ``NodeParts`` computes the answers of those
plugins once for all such classes. When a node is updated, its row is judged again; when one is added or removed, all are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.cycle.removed_rows import NewRows, new_rows
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
        self._seen = _Seen(_other_nodes(steps), snapshot.table)
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
        #: Whether all rows are open; None until it is needed, and after a change.
        self._is_open: bool | None = None
        close_refused(self.allowed, self._filters(), self.states, pod, snapshot.nodes)
        for step, state in self._scoring(pod, snapshot):
            self._add(step, state, scored(step, state, snapshot.nodes))

    def _filters(self) -> Iterator[Step]:
        return (step for step in self._steps.filter if step.name not in self.skipped)

    def _scoring(self, pod: PodInfo, snapshot: Snapshot, names: Set[str] | None = None) -> list[tuple[Step, Any]]:
        """Return the Score plugins that are not skipped, with their states; ``names``: of these only, None: all."""
        pre_score, score = self._steps.pre_score, self._steps.score
        if names is not None:
            pre_score, score = (tuple(step for step in steps if step.name in names) for steps in (pre_score, score))
        asked: dict[str, Any] = {step.name: ask(step, "preScore", pod, snapshot, snapshot.nodes) for step in pre_score}
        states = [(step, asked.get(step.name, self.states.get(step.name, pod))) for step in score]
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

    # -- after nodes were added or removed ------------------------------------------------------------------------------

    def derived(self, rows: NewRows, pod: PodInfo, snapshot: Snapshot) -> NodePart | None:
        """Return the part for the rows after an open transaction added or removed nodes; None if it must be computed again."""
        table, seen = snapshot.table, self._seen
        if not self._is_current or self.narrowed is not None:
            return None
        again = rows.updated(table.changes.updates, seen.position)
        if again is None:
            return None
        made = NodePart.__new__(NodePart)
        made.__dict__.update(self.__dict__)
        made._seen = seen.now(table)
        made.allowed = rows.of(self.allowed)
        made._is_open = None
        if self.varying:
            made.varying = [one._replace(raw=rows.of(one.raw)) for one in self.varying]
        stay = seen.others_stay(table)
        reading = (step for step in self._steps.score if step.reuse.other_nodes is not None)
        sums_stay = stay or not any(step.name in self._summed for step in reading)
        made.total = rows.of(self.total) if self.total is not None and sums_stay else None
        if again:
            at = np.array(list(again), dtype=np.intp)
            if not made._update(at, at, pod, snapshot):
                return None
        return made if stay or made._score_all_again(pod, snapshot, sums_stay=sums_stay) else None

    def _score_all_again(self, pod: PodInfo, snapshot: Snapshot, *, sums_stay: bool) -> bool:
        """Score all rows by the plugins that read other nodes. Return False if a plugin's scores were all equal."""
        reading = {step.name for step in self._steps.score if step.reuse.other_nodes is not None} - self._summed
        asked = reading if sums_stay else reading | self._summed
        scoring, view = self._scoring(pod, snapshot, asked), snapshot.nodes
        of_each = (one for one in scoring if one[0].name in reading)
        if not all(self._score_again(step, state, view.row_numbers, view) for step, state in of_each):
            return False
        if not sums_stay:
            self.total = self._sum_of(scoring, view)
        return sums_stay or self.total is not None

    # -- keeping up ---------------------------------------------------------------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Return whether all rows are open and have the same score."""
        if self._is_open is None:
            self._is_open = bool(self.allowed.all())
        return self._is_open and self.total is None and not self.varying and not self.refused and self.is_sound

    @property
    def arrangement(self) -> int:
        """The arrangement of nodes that the part is computed for (see ``ChangeLog``)."""
        return self._seen.arrangement

    def follow(self, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Judge the rows of updated nodes again. Return False if the part cannot be used for these rows."""
        changes = snapshot.table.changes
        if self._is_current and self._seen.version != changes.nodes:
            if self.arrangement != changes.arrangement:
                return False
            self._is_current = False  # also if a plugin raises
            rows = self._seen.updated(snapshot.table)
            self._is_current = rows is not None and (not len(rows) or self._update(rows, rows, pod, snapshot))
        return self._is_current

    def catch_up(self, position: int, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Judge the nodes that were updated before a position of the log of updates, after which others were added or removed.

        Return False if that is impossible. The nodes must be in the same rows now and must not have changed since.
        """
        seen, table = self._seen, snapshot.table
        if not self._is_current or position <= seen.position:
            return self._is_current
        rows = table.changes.updates.since(seen.position, position)
        if rows is None or not seen.others_stay(table):
            return False
        at = np.array(sorted({row for row in rows if row < len(self.allowed)}), dtype=np.intp)
        if len(at):
            self._is_current = False  # also if a plugin raises
            self._is_current = self._update(at, at, pod, snapshot)
        seen.position = position
        return self._is_current

    def _update(self, rows: npt.NDArray[np.intp], at: npt.NDArray[np.intp], pod: PodInfo, snapshot: Snapshot) -> bool:
        """Judge nodes again and write the answers to ``rows`` of this part; ``at`` are their present rows in the table."""
        found = ask_pre_filters(self._steps.pre_filter, pod, snapshot)
        if not found.agrees_with(self.skipped, self.narrowed, refused=self.refused):
            return False
        self.states, self._is_open = found.states, None
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
        total = self._sum_of(scoring, view)
        if total is None:
            return False
        self.total[rows] = total
        return True

    def _sum_of(self, scoring: list[tuple[Step, Any]], view: NodeView) -> IntArray | None:
        """Return the sum of the scores of a view for ``total``; None if one is out of range."""
        total: IntArray | None = None
        for step, state in scoring:
            if step.name in self._summed:
                scores = scored(step, state, view)
                if not are_in_range(scores):
                    return None
                weighted = scores * np.int64(self._weights.get(step.name, 1))
                total = weighted if total is None else total + weighted
        return total


class _Seen:
    """The state of the table's nodes up to which a part is current."""

    __slots__ = ("_others", "_versions", "arrangement", "position", "version")

    def __init__(self, others: Sequence[Callable[[NodeTable], Hashable]], table: NodeTable) -> None:
        """``others``: the versions of what the answers for a row depend on beside its node."""
        self._others = others
        self._note(table)

    def _note(self, table: NodeTable) -> None:
        changes = table.changes
        self.version, self.arrangement, self.position = changes.nodes, changes.arrangement, changes.updates.position
        self._versions = [version(table) for version in self._others]

    def now(self, table: NodeTable) -> _Seen:
        """Return the present state."""
        return _Seen(self._others, table)

    def others_stay(self, table: NodeTable) -> bool:
        """Return whether the answers for rows that were not updated are still the same."""
        return [version(table) for version in self._others] == self._versions

    def updated(self, table: NodeTable) -> npt.NDArray[np.intp] | None:
        """Return the rows updated since the last call; None if the answers for other rows may have changed too."""
        rows = table.changes.updates.since(self.position)
        arrangement, versions = self.arrangement, self._versions
        self._note(table)
        if rows is None or arrangement != self.arrangement or versions != self._versions:
            return None
        return np.array(sorted(set(rows)), dtype=np.intp)


def _other_nodes(steps: Steps) -> list[Callable[[NodeTable], Hashable]]:
    named = {step.name: step.reuse.other_nodes for step in (*steps.pre_filter, *steps.filter, *steps.pre_score, *steps.score)}
    return [other_nodes for other_nodes in named.values() if other_nodes is not None]


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
        if part is not None and part.arrangement != snapshot.table.changes.arrangement:
            part = self._derived(part, pod, snapshot)
        if part is None or not part.follow(pod, snapshot):
            steps = self._steps.get(asked)
            if steps is None:
                steps = self._steps[asked] = Steps(self._profile, self.names - asked)
            part = NodePart(steps, self._profile.weights, pod, snapshot)
            while len(self._parts) >= max(1, min(_KEPT, _ROWS_KEPT // max(1, len(snapshot.table)))):
                del self._parts[next(iter(self._parts))]
        self._parts[key] = part
        return part

    @staticmethod
    def _derived(part: NodePart, pod: PodInfo, snapshot: Snapshot) -> NodePart | None:
        rows = new_rows(snapshot.table.changes, part.arrangement, len(part.allowed))
        return None if rows is None else part.derived(rows, pod, snapshot)
