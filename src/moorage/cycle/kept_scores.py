"""The scores of a pod class, kept for every row and summed up, ready for the pick.

Raw scores are kept, because what a raw score comes to may hang on the highest raw score among the feasible rows. Plugins whose
raw scores are all alike (no taints, no preferences) come to one constant; only where they differ is the highest looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from moorage.framework.points import Depends
from moorage.framework.profile import Profile, Step, other_form
from moorage.framework.running import MAX_SCORE, ask, normalized, scored
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
        self, profile: Profile, asked: frozenset[str], found: Mapping[str, Any], pod: PodInfo, view: NodeView,
        allowed: BoolArray,
    ) -> None:  # fmt: skip
        self._broken = False
        self._allowed = allowed
        self._weights = profile.weights
        self._ring = view.table.ring()
        self._states = dict(found)
        passed: set[str] = set()
        for step in profile.at("preScore"):
            if step.name not in asked:
                state = ask(step, "preScore", pod, view.snapshot, view)
                if state is SKIP:
                    passed.add(step.name)
                else:
                    self._states[step.name] = state
        steps = [s for s in profile.at("score") if s.name not in asked and s.name not in passed]
        self._scaling = [s for s in steps if getattr(s.plugin, "normalize", None) is not None]
        self._plain = [s for s in steps if getattr(s.plugin, "normalize", None) is None]
        self._on_pods = [s for s in steps if getattr(s.plugin, "depends", None) is not Depends.NODES]
        self._must_sum_up = any(getattr(s.plugin, "normalize", None) is not None for s in self._on_pods)
        self._raw: dict[str, IntArray] = {}
        for step in steps:
            raw = scored(step, self._state(step, pod), view).astype(np.int64, copy=False)
            # What is written to must not be the plugin's own, and what is alike everywhere need not take room everywhere.
            self._raw[step.name] = raw.copy() if getattr(step.plugin, "depends", None) is not Depends.NODES else _thin(raw)
        self._one_row = [(s, other_form(s, "score", "score_node")) for s in self._on_pods]
        self._weighed = [(self._weight(s), self._raw[s.name]) for s in self._on_pods]
        #: True when equal rooms (see ``NodeTable.room``) have equal raw scores, as far as those hang on pods.
        self.by_room = not self._must_sum_up and all(getattr(s.plugin, "sums_only", False) for s in self._on_pods)
        self._sum_up(pod)

    def is_sound(self) -> bool:
        return not self._broken

    def _state(self, step: Step, pod: PodInfo) -> Any:
        return self._states.get(step.name, pod)

    def _weight(self, step: Step) -> int:
        return self._weights.get(step.name, 1)

    def _sum_up(self, pod: PodInfo) -> None:
        """Work out every row's total; plugins whose outcome hangs on the highest feasible raw score are left for later."""
        total = np.zeros(len(self._allowed), dtype=np.int64)
        everywhere = 0
        for step in self._plain:
            raw, weight = self._raw[step.name], self._weight(step)
            low, high = int(raw.min()), int(raw.max())
            self._broken = self._broken or low < 0 or high > MAX_SCORE
            if low == high:
                everywhere += low * weight
            else:
                total += raw if weight == 1 else raw * weight
        self._varying: list[Step] = []
        for step in self._scaling:
            raw = self._raw[step.name]
            if (raw == raw[0]).all():
                everywhere += int(self._scaled(step, raw[:1], pod)[0]) * self._weight(step)
            else:
                self._varying.append(step)
        if everywhere:
            total += everywhere
        self._total: IntArray = total
        open_total = total if self._allowed.all() else np.where(self._allowed, total, REFUSED)
        self._in_ring: IntArray = open_total[self._ring.rows]

    def _scaled(self, step: Step, raw: IntArray, pod: PodInfo) -> IntArray:
        scores = normalized(step, self._state(step, pod), raw)
        self._check(scores)
        return scores

    def _check(self, scores: IntArray) -> None:
        # Read as unsigned, a negative score is a huge one.
        self._broken = self._broken or bool((scores.astype(np.int64, copy=False).view(np.uint64) > MAX_SCORE).any())

    # -- the pick -----------------------------------------------------------------------------------------------------

    def totals(self, rows: npt.NDArray[np.intp], pod: PodInfo) -> IntArray:
        """Return the totals of the feasible rows (all of them: the highest raw score is looked for among them)."""
        totals: IntArray = self._total[rows]
        for step in self._varying:
            totals = totals + self._scaled(step, self._raw[step.name][rows], pod) * self._weight(step)
        return totals

    @property
    def in_ring(self) -> IntArray | None:
        """The totals in ring order, ``REFUSED`` where a row is; None if they hang on which rows are feasible."""
        return None if self._varying else self._in_ring

    # -- changes ------------------------------------------------------------------------------------------------------

    def raw_of_row(self, row: int, node: NodeInfo, snapshot: Snapshot, pod: PodInfo) -> tuple[int, ...]:
        """Ask about one row again; returns the raw scores that hang on pods, for ``set_row``."""
        scores: list[int] = []
        for step, single in () if self._must_sum_up else self._one_row:
            state = self._state(step, pod)
            if single is None:
                score = int(scored(step, state, snapshot.nodes.at(row))[0])
            else:
                score = int(ask(single, "score", state, node))
            if not 0 <= score <= MAX_SCORE:
                self._broken = True
            scores.append(score)
        return tuple(scores)

    def set_row(self, row: int, scores: tuple[int, ...] | None, snapshot: Snapshot, pod: PodInfo) -> None:
        """Sum up one row anew. None: it is refused. What hangs on nodes alone stands."""
        place = self._ring.place_of[row]
        if scores is None:
            self._in_ring[place] = REFUSED
            return
        if self._must_sum_up:
            self.rescore(snapshot.nodes.at(row), pod)
            return
        total: int = self._total.item(row)
        for (weight, raw), score in zip(self._weighed, scores, strict=True):
            total += (score - raw.item(row)) * weight
            raw[row] = score
        self._total[row] = self._in_ring[place] = total

    def rescore(self, view: NodeView, pod: PodInfo) -> None:
        """Work out some rows again."""
        rows = view.row_numbers
        gained = view.zeros()
        for step, (weight, raw) in zip(self._on_pods, self._weighed, strict=True):
            scores = scored(step, self._state(step, pod), view)
            gained += (scores - raw[rows]) * weight
            raw[rows] = scores
            if not self._must_sum_up:
                self._check(scores)
        if self._must_sum_up:
            self._sum_up(pod)
            return
        self._total[rows] += gained
        self._in_ring[self._ring.place_of[rows]] = np.where(self._allowed[rows], self._total[rows], REFUSED)


def _thin(raw: IntArray) -> IntArray:
    """Return scores that are only read: one number for all rows, if they are all alike."""
    return np.broadcast_to(raw[:1].copy(), raw.shape) if len(raw) and (raw == raw[0]).all() else raw
