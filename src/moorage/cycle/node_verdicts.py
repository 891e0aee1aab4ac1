"""The answers of plugins that read only nodes, for every row: the part that different pod classes share.

Pods with different requests often have the same tolerations and node selectors. ``NodeParts`` computes the answers of those
plugins once for all such classes; they are valid until a node is added, removed or changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from moorage.framework.plugin_runner import are_in_range, ask, normalized, refused_rows, scored
from moorage.framework.profile import Profile, Step
from moorage.framework.reuse import Scope
from moorage.framework.verdicts import SKIP, Hold, Narrow
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["NodePart", "NodeParts", "Steps", "Varying", "ask_pre_filters", "both", "close_refused"]

#: Parts cached at a time, and the rows of all of them together.
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
    """The answers of some PreFilter plugins: states, names of those that skip, rows left (None: all), and if one rejects."""

    states: dict[str, Any]
    skipped: set[str]
    narrowed: BoolArray | None
    refused: bool


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
    """The answers for one pod. Arrays have one entry per row of the table and are read-only by convention.

    ``states`` and ``skipped`` are PreFilter's; ``refused``: a PreFilter plugin rejected the pod
    ``narrowed``    the rows that PreFilter left; None: all
    ``allowed``     the rows that no Filter plugin refuses
    ``total``       sum of the weighted scores; None if they are all equal. ``everywhere``: a constant to add to each row
    ``varying``     scores that are not in the sum yet
    ``is_sound``    False if a score is out of range: the caller then takes the full path, which reports the error
    """

    def __init__(self, steps: Steps, weights: Mapping[str, int], pod: PodInfo, snapshot: Snapshot) -> None:
        self.states, self.skipped, self.narrowed, self.refused = ask_pre_filters(steps.pre_filter, pod, snapshot)
        narrowed = self.narrowed
        self.allowed: BoolArray = np.ones(len(snapshot.table), dtype=bool) if narrowed is None else narrowed.copy()
        self.total: IntArray | None = None
        self.everywhere = 0
        self.varying: list[Varying] = []
        self.is_sound = True
        asked = (step for step in steps.filter if step.name not in self.skipped)
        close_refused(self.allowed, asked, self.states, pod, snapshot.nodes)
        self._score(steps, weights, pod, snapshot)

    def _score(self, steps: Steps, weights: Mapping[str, int], pod: PodInfo, snapshot: Snapshot) -> None:
        states: dict[str, Any] = {step.name: ask(step, "preScore", pod, snapshot, snapshot.nodes) for step in steps.pre_score}
        for step in steps.score:
            state = states.get(step.name, self.states.get(step.name, pod))
            if state is not SKIP:
                self._add(step, state, scored(step, state, snapshot.nodes), weights.get(step.name, 1))

    def _add(self, step: Step, state: Any, raw: IntArray, weight: int) -> None:
        alike = bool((raw == raw[:1]).all())
        scales = step.normalize is not None
        if scales and not alike:
            self.varying.append(Varying(step, state, raw.astype(np.int64), weight))
            return
        scores = normalized(step, state, raw[:1]) if scales else raw
        self.is_sound = self.is_sound and are_in_range(scores)
        if alike:
            self.everywhere += int(scores[0]) * weight if len(scores) else 0
        else:
            weighted = scores * np.int64(weight)
            self.total = weighted if self.total is None else self.total + weighted


class NodeParts:
    """The parts of one profile's classes. The least recently used one is dropped first."""

    def __init__(self, profile: Profile, scopes: Mapping[str, Scope]) -> None:
        self._profile = profile
        #: The plugins that read only nodes.
        self.names = frozenset(name for name, scope in scopes.items() if scope is Scope.NODE)
        self._nodes_seen = -1
        self._parts: dict[Hashable, NodePart] = {}
        self._steps: dict[frozenset[str], Steps] = {}

    def of(self, key: Hashable, asked: frozenset[str], pod: PodInfo, snapshot: Snapshot) -> NodePart:
        """Return the part for this key. It leaves out plugins ``asked`` about each pod."""
        if self._nodes_seen != snapshot.table.changes.nodes:
            self._nodes_seen = snapshot.table.changes.nodes
            self._parts.clear()
        part = self._parts.pop(key, None)
        if part is None:
            steps = self._steps.get(asked)
            if steps is None:
                steps = self._steps[asked] = Steps(self._profile, self.names - asked)
            part = NodePart(steps, self._profile.weights, pod, snapshot)
            while len(self._parts) >= max(1, min(_KEPT, _ROWS_KEPT // max(1, len(snapshot.table)))):
                del self._parts[next(iter(self._parts))]
        self._parts[key] = part
        return part
