"""The scores of a pod class, kept for every row and summed up, ready for the pick.

Raw scores are kept, because what a raw score comes to may hang on the highest raw score among the feasible rows. Plugins whose
raw scores are all alike (no taints, no preferences) come to one constant; only where they differ is the highest looked for.
What plugins say that look at nodes alone is elsewhere (see ``node_part``); kept here is what hangs on the pods of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from moorage.cycle.node_part import NodePart, Steps, Varying
from moorage.framework.profile import Step
from moorage.framework.running import MAX_SCORE, are_in_range, ask, normalized, scored
from moorage.framework.verdicts import SKIP
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = ["REFUSED", "KeptScores"]

#: Stands in for the total of a refused row: below any total, whatever is added to it.
REFUSED = -(1 << 62)


class KeptScores:
    """Totals over the plugins that need not be asked about each pod.

    ``allowed`` is the class's own array of rows that may be picked. Not ``is_sound`` any more when a plugin scored out of
    range: then the long way has to be taken, which says so.
    """

    def __init__(
        self, steps: Steps, weights: Mapping[str, int], part: NodePart, found: Mapping[str, Any], pod: PodInfo,
        view: NodeView, allowed: BoolArray,
    ) -> None:  # fmt: skip
        self._part = part
        self._broken = not part.is_sound
        self._allowed = allowed
        self._ring = view.table.ring()
        states = {step.name: ask(step, "preScore", pod, view.snapshot, view) for step in steps.pre_score}
        self._states = {**found, **states}
        kept = [pair for pair in steps.score_nodes if states.get(pair[0].name) is not SKIP]
        self._one_row = kept
        # What is written to must not be the plugin's own.
        raws = [scored(step, self._state(step, pod), view).astype(np.int64) for step, _ in kept]
        #: Weight and raw scores; the latter are kept up to date only where all has to be summed up again and again.
        self._weighed = [(weights.get(step.name, 1), raw) for (step, _), raw in zip(kept, raws, strict=True)]
        self._must_sum_up = any(getattr(step.plugin, "normalize", None) is not None for step, _ in kept)
        #: True when equal rooms (see ``NodeTable.room``) have equal raw scores, as far as those hang on pods.
        self.by_room = not self._must_sum_up and all(getattr(step.plugin, "sums_only", False) for step, _ in kept)
        self._sum_up(pod)

    def is_sound(self) -> bool:
        return not self._broken

    def _state(self, step: Step, pod: PodInfo) -> Any:
        return self._states.get(step.name, pod)

    def _sum_up(self, pod: PodInfo) -> None:
        """Work out every row's total; plugins whose outcome hangs on the highest feasible raw score are left for later."""
        total: IntArray | None = self._part.total
        everywhere = self._part.everywhere
        self._varying = list(self._part.varying)
        for (step, _), (weight, raw) in zip(self._one_row, self._weighed, strict=True):
            if getattr(step.plugin, "normalize", None) is None:
                self._check(raw)
                weighted = raw if weight == 1 else raw * weight
                total = weighted if total is None else total + weighted
            elif (raw == raw[0]).all():
                everywhere += int(self._scaled(step, self._state(step, pod), raw[:1])[0]) * weight
            else:
                self._varying.append(Varying(step, self._state(step, pod), raw, weight))
        self._total: IntArray = np.full(len(self._allowed), everywhere) if total is None else total + everywhere
        open_total = self._total if self._allowed.all() else np.where(self._allowed, self._total, REFUSED)
        self._in_ring: IntArray = open_total.take(self._ring.rows)

    def _scaled(self, step: Step, state: Any, raw: IntArray) -> IntArray:
        scores = normalized(step, state, raw)
        self._check(scores)
        return scores

    def _check(self, scores: IntArray) -> None:
        self._broken = self._broken or not are_in_range(scores)

    # -- the pick -----------------------------------------------------------------------------------------------------

    def totals(self, rows: npt.NDArray[np.intp]) -> IntArray:
        """Return the totals of the feasible rows (all of them: the highest raw score is looked for among them)."""
        totals: IntArray = self._total[rows]
        for step, state, raw, weight in self._varying:
            totals = totals + self._scaled(step, state, raw[rows]) * weight
        return totals

    @property
    def in_ring(self) -> IntArray | None:
        """The totals in ring order, ``REFUSED`` where a row is; None if they hang on which rows are feasible."""
        return None if self._varying else self._in_ring

    # -- changes ------------------------------------------------------------------------------------------------------

    def worth_of_row(self, row: int, node: NodeInfo, snapshot: Snapshot, pod: PodInfo) -> int:
        """Ask about one row again; returns the weighted sum of the scores that hang on pods, for ``set_row``."""
        worth = 0
        for (step, single), (weight, _) in () if self._must_sum_up else zip(self._one_row, self._weighed, strict=True):
            state = self._state(step, pod)
            if single is None:
                score = int(scored(step, state, snapshot.nodes.at(row))[0])
            else:
                score = int(ask(single, "score", state, node))
            if not 0 <= score <= MAX_SCORE:
                self._broken = True
            worth += score * weight
        return worth

    def set_row(self, row: int, worth: int | None, snapshot: Snapshot, pod: PodInfo) -> None:
        """Sum up one row anew. None: it is refused. What hangs on nodes alone stands."""
        if worth is None:
            self._in_ring[self._ring.place_of[row]] = REFUSED
        elif self._must_sum_up:
            self.rescore(snapshot.nodes.at(row), self._allowed[row : row + 1], pod)
        else:
            part = self._part
            total = worth + part.everywhere + (0 if part.total is None else part.total.item(row))
            self._total[row] = self._in_ring[self._ring.place_of[row]] = total

    def rescore(self, view: NodeView, allowed: BoolArray, pod: PodInfo) -> None:
        """Work out some rows again; ``allowed`` says which of them may be picked."""
        rows = view.row_numbers
        part = self._part
        totals = np.full(len(rows), part.everywhere) if part.total is None else part.total[rows] + part.everywhere
        for (step, _), (weight, raw) in zip(self._one_row, self._weighed, strict=True):
            scores = scored(step, self._state(step, pod), view)
            if self._must_sum_up:
                raw[rows] = scores
            else:
                self._check(scores)
                totals += scores if weight == 1 else scores * weight
        if self._must_sum_up:
            self._sum_up(pod)
            return
        self._total[rows] = totals
        self._in_ring[self._ring.place_of[rows]] = np.where(allowed, totals, REFUSED)
