"""The scores of one decision as a function of one node's usage, computed for each amount without scoring all nodes again.

Only the raw scores of that node change; normalisation then runs over all feasible nodes. Equal raw scores are normalised once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moorage.framework.plugin_runner import Scores, ask, normalized, scored
from moorage.framework.prefilter_state import PreFiltered
from moorage.framework.profile import Profile, Step
from moorage.framework.reuse import Scope
from moorage.framework.verdicts import Skip
from moorage.state.cluster import Snapshot
from moorage.state.columns import Column, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["ScoreModel"]


class ScoreModel:
    """The Score plugins that may read the usage of a node, with their states, and the scores of a decision."""

    def __init__(self, profile: Profile, found: PreFiltered, pod: PodInfo, snapshot: Snapshot, scores: Scores) -> None:
        self._profile = profile
        self._snapshot = snapshot
        self._scores = scores
        self._view = NodeView(snapshot, scores.rows)
        states: dict[str, Any] = {}
        for step in profile.at("preScore"):
            answer = ask(step, "preScore", pod, snapshot, self._view)
            if not isinstance(answer, Skip):
                states[step.name] = answer
        steps = [step for step in profile.at("score") if step.name in scores.raw]
        self._state_of = {one.name: states.get(one.name, found.states.get(one.name, pod)) for one in steps}
        self._steps = [step for step in steps if _may_read_usage(step)]

    def totals_by_usage(self, at: int, resource: str) -> Callable[[int], IntArray]:
        """Return a function from an amount, added to what is requested of a resource on a row, to the totals of all rows.

        ``at`` is the position of the row among the scored rows.
        """
        row = int(self._scores.rows[at])
        table = self._snapshot.table
        columns: list[Column] = [table.requested(resource)]
        columns += {"cpu": [table.nonzero_cpu], "memory": [table.nonzero_memory]}.get(resource, [])
        alone = self._snapshot.nodes.at(row)
        known: dict[tuple[int, ...], IntArray] = {}

        def totals(amount: int) -> IntArray:
            raw = self._raw(alone, columns, row, amount)
            if raw not in known:
                known[raw] = self._total(at, raw)
            return known[raw]

        return totals

    def _raw(self, alone: NodeView, columns: Sequence[Column], row: int, amount: int) -> tuple[int, ...]:
        held = [int(column.data[row]) for column in columns]
        try:
            for column, value in zip(columns, held, strict=True):
                column.data[row] = value + amount
            return tuple(int(scored(step, self._state_of[step.name], alone)[0]) for step in self._steps)
        finally:
            for column, value in zip(columns, held, strict=True):
                column.data[row] = value

    def _total(self, at: int, raw: Sequence[int]) -> IntArray:
        total = self._scores.total
        for step, value in zip(self._steps, raw, strict=True):
            if value != self._scores.raw[step.name][at]:
                changed = self._scores.raw[step.name].copy()
                changed[at] = value
                share = normalized(step, self._state_of[step.name], changed, self._view)
                total = total - self._scores.final[step.name] + share * self._profile.weights.get(step.name, 1)
        return total

    def totals_with(self, plugin: str, raw: IntArray) -> IntArray:
        """Return the totals with the raw scores of one plugin replaced."""
        step = next(one for one in self._profile.at("score") if one.name == plugin)
        share = normalized(step, self._state_of[plugin], raw, self._view)
        return self._scores.total - self._scores.final[plugin] + share * self._profile.weights.get(plugin, 1)


def _may_read_usage(step: Step) -> bool:
    return step.reuse.scope not in {Scope.NODE, Scope.DOMAIN}
