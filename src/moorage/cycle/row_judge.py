"""Run the plugins of one pod class that read the pods of a row: on one row, on a view, or on one row of each room."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from moorage.cycle.joined_rooms import DistinctScores, JoinedRooms, JoinedScores
from moorage.cycle.node_verdicts import FEW, Steps, close_refused
from moorage.cycle.room_scores import LOW, REFUSED_ROOM, RoomScores, entries_of
from moorage.framework.plugin_runner import MAX_SCORE, are_in_range, ask, refused_rows, refuses, scored
from moorage.framework.profile import Step
from moorage.framework.reuse import Scope
from moorage.framework.verdicts import SKIP
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.distinct_rooms import KEY_BITS, RoomRows
from moorage.state.pod_info import PodInfo
from moorage.state.view import FewRows, NodeView

__all__ = ["RowJudge", "RowPlan", "RowPlans", "distinct_rooms"]


def distinct_rooms(snapshot: Snapshot) -> RoomRows | None:
    """Return the distinct rooms; None if there are too many."""
    return None if snapshot.table.rows_in_what_ifs else snapshot.table.distinct_rooms.find()


class RowPlan:
    """The plugins that judge the rows for some pods: those that do not skip them.

    ``must_sum_up``  a plugin normalizes its scores
    ``by_room``      rows with equal rooms (see ``NodeTable.room``) have equal verdicts and raw scores
    """

    def __init__(self, steps: Steps, weights: Mapping[str, int], skipped: frozenset[str], passed: frozenset[str]) -> None:
        """``skipped``: the plugins that PreFilter skips; ``passed``: those that PreScore skips."""
        #: The Filter and Score plugins with their form for one node, or None.
        self.filters = [pair for pair in steps.filter_nodes if pair[0].name not in skipped]
        self.scores = [pair for pair in steps.score_nodes if pair[0].name not in passed]
        self.filter_steps = [step for step, _ in self.filters]
        self.weights = [weights.get(step.name, 1) for step, _ in self.scores]
        self.must_sum_up = any(step.normalize is not None for step, _ in self.scores)
        all_steps = (*self.filter_steps, *(step for step, _ in self.scores))
        self._score_steps = [step for step, _ in self.scores]
        joins_score = [step.reuse.joins.score for step in self._score_steps]
        self._joins = [*(step.reuse.joins.filter for step in self.filter_steps), *joins_score]
        #: By what the states of the plugins have in common.
        self._joined: dict[Hashable, JoinedRooms[JoinedScores]] = {}
        self._distinct: dict[Hashable, JoinedRooms[DistinctScores]] = {}
        self.by_room = not self.must_sum_up and all(step.reuse.scope is Scope.USAGE for step in all_steps)

    def room_scores(self, states: tuple[Any, ...]) -> RoomScores:
        """Return the scores by room of classes whose plugins have these states at Filter, and then at Score."""
        kinds = self._kinds(states)
        if kinds is None:
            return RoomScores()
        found = self._joined.get(kinds)
        if found is None:
            found = self._joined[kinds] = JoinedRooms(JoinedScores, self.filter_steps, self._score_steps, self.weights)
        return found.of(states)

    def distinct_scores(self, states: tuple[Any, ...]) -> DistinctScores | None:
        """Return their scores of the distinct rooms; None if the states cannot be joined."""
        kinds = self._kinds(states)
        if kinds is None:
            return None
        found = self._distinct.get(kinds)
        if found is None:
            found = self._distinct[kinds] = JoinedRooms(DistinctScores, self.filter_steps, self._score_steps, self.weights)
        return found.of(states)

    def _kinds(self, states: tuple[Any, ...]) -> Hashable | None:
        kinds = tuple([join and join.kind(state) for join, state in zip(self._joins, states, strict=True)])
        return None if None in kinds else kinds


class RowPlans:
    """The plans of some plugins, by what skips them."""

    def __init__(self, steps: Steps, weights: Mapping[str, int]) -> None:
        self.steps = steps
        self._weights = weights
        self._plans: dict[tuple[frozenset[str], frozenset[str]], RowPlan] = {}

    def of(self, skipped: frozenset[str], passed: frozenset[str]) -> RowPlan:
        """Return the plan of pods that these plugins skip in PreFilter and in PreScore."""
        plan = self._plans.get((skipped, passed))
        if plan is None:
            plan = self._plans[skipped, passed] = RowPlan(self.steps, self._weights, skipped, passed)
        return plan


class RowJudge:
    """Answers with the weighted sum of the scores of a row, ``REFUSED_ROOM`` if a Filter plugin refuses it.

    ``is_sound`` turns False when a plugin scores out of range: the caller then takes the full path, which reports the error.
    """

    __slots__ = ("_plans", "_score_states", "_skipped", "_states", "is_sound", "plan")

    def __init__(
        self, plans: RowPlans, skipped: frozenset[str], states: Mapping[str, Any], pod: PodInfo, snapshot: Snapshot
    ) -> None:
        """Run PreScore. ``states`` are PreFilter's, and ``skipped`` the plugins that it skips."""
        self._plans, self._skipped = plans, skipped
        self.is_sound = True
        self.plan = self._prepared(states, pod, snapshot)

    def _prepared(self, states: Mapping[str, Any], pod: PodInfo, snapshot: Snapshot) -> RowPlan:
        """Run PreScore and return the plugins that judge the pods then."""
        self._states = states
        own = self._score_states = dict(states)
        passed: list[str] = []
        for step in self._plans.steps.pre_score:
            state = own[step.name] = ask(step, "preScore", pod, snapshot, snapshot.nodes)
            if state is SKIP:
                passed.append(step.name)
        return self._plans.of(self._skipped, frozenset(passed))

    def follow_nodes(self, states: Mapping[str, Any], pod: PodInfo, snapshot: Snapshot) -> bool:
        """Prepare for rows whose nodes were updated. Return False if PreScore skips other plugins than before."""
        return self._prepared(states, pod, snapshot) is self.plan

    def derived(self, states: Mapping[str, Any], pod: PodInfo, snapshot: Snapshot) -> RowJudge | None:
        """Return a judge for other states of PreFilter. None if PreScore skips other plugins than before."""
        made = copy(self)
        return made if made.follow_nodes(states, pod, snapshot) else None

    def state(self, step: Step, pod: PodInfo) -> Any:
        """Return what a plugin's ``score`` receives."""
        return self._score_states.get(step.name, pod)

    def check(self, scores: IntArray) -> None:
        """Note if a score is out of range."""
        self.is_sound = self.is_sound and are_in_range(scores)

    def room_scores(self, pod: PodInfo) -> RoomScores:
        """Return the scores by room that belong to the plugins' states. Only if the plan is ``by_room``."""
        return self.plan.room_scores(self._all_states(pod))

    def distinct_scores(self, pod: PodInfo) -> DistinctScores | None:
        """Return the scores of the distinct rooms; None if there are none for the plugins. Only if the plan is ``by_room``."""
        return self.plan.distinct_scores(self._all_states(pod))

    def _all_states(self, pod: PodInfo) -> tuple[Any, ...]:
        filter_states = [self._states.get(step.name, pod) for step in self.plan.filter_steps]
        return (*filter_states, *(self.state(step, pod) for step, _ in self.plan.scores))

    # -- one row ------------------------------------------------------------------------------------------------------

    def one(self, row: int, pod: PodInfo, snapshot: Snapshot) -> int | None:
        """Run the plugins on one row; return None if it is refused. Without Score plugins that normalize."""
        node, plan = snapshot.nodes.one(row), self.plan
        for step, single in plan.filters:
            if refuses(step, single, self._states.get(step.name, pod), node, snapshot.nodes):
                return None
        worth = 0
        for (step, single), weight in () if plan.must_sum_up else zip(plan.scores, plan.weights, strict=True):
            state = self.state(step, pod)
            if single is None:
                score = int(scored(step, state, snapshot.nodes.at(row))[0])
            else:
                score = int(ask(single, "score", state, node))
            if not 0 <= score <= MAX_SCORE:
                self.is_sound = False
            worth += score * weight
        return worth

    def of_room(self, row: int, pod: PodInfo, snapshot: Snapshot, rooms: RoomScores) -> int:
        """Answer for one row from the cache, if its room is known."""
        room = snapshot.table.rooms.at(row)
        worth = rooms.get(room)
        if worth is None:
            found = self.one(row, pod, snapshot)
            worth = REFUSED_ROOM if found is None else found
            rooms.keep(room, worth)
        return worth

    # -- many rows ----------------------------------------------------------------------------------------------------

    def close(self, open_rows: BoolArray, pod: PodInfo, view: NodeView) -> None:
        """Clear in ``open_rows`` the rows of a view that Filter plugins refuse."""
        close_refused(open_rows, self.plan.filter_steps, self._states, pod, view)

    def worths(self, view: NodeView, allowed: BoolArray, pod: PodInfo) -> IntArray:
        """Return the weighted sums of the scores. If most rows are refused, only the ``allowed`` ones are scored."""
        count = np.count_nonzero(allowed)
        if 2 * count > len(allowed):
            return self._worths(view, pod)
        worths = np.zeros(len(allowed), dtype=np.int64)
        if count:
            worths[allowed] = self._worths(FewRows(view.snapshot, view.row_numbers[allowed]), pod)
        return worths

    def _worths(self, view: NodeView, pod: PodInfo) -> IntArray:
        worths: IntArray | None = None
        for (step, _), weight in zip(self.plan.scores, self.plan.weights, strict=True):
            scores = scored(step, self._score_states.get(step.name, pod), view).astype(np.int64, copy=False)
            self.is_sound = self.is_sound and are_in_range(scores)
            weighted = scores if weight == 1 else scores * weight
            worths = weighted if worths is None else worths + weighted
        return np.zeros(len(view), dtype=np.int64) if worths is None else worths

    def of_view(self, view: NodeView, pod: PodInfo) -> IntArray:
        """Run the plugins on a view."""
        return self.judged(view, pod)[0]

    def judged(self, view: NodeView, pod: PodInfo) -> tuple[IntArray, BoolArray | None]:
        """Run the plugins on a view. Return the answers, and which rows are refused; None if no plugin refuses any."""
        refused: BoolArray | None = None
        for step in self.plan.filter_steps:
            rows = refused_rows(step, self._states.get(step.name, pod), view)
            refused = rows if refused is None else refused if rows is None else refused | rows
        if refused is None:
            return self._worths(view, pod), None
        return np.where(refused, REFUSED_ROOM, self.worths(view, ~refused, pod)), refused

    def of_rooms(self, rows: npt.NDArray[np.intp], pod: PodInfo, snapshot: Snapshot, rooms: RoomScores) -> IntArray:
        """Answer for some rows, and run the plugins only on those whose rooms are unknown."""
        numbers = snapshot.table.rooms.followed().data[rows]
        worths, unknown = rooms.find(numbers)
        if not len(unknown):
            return worths
        if type(rooms) is JoinedScores and rooms.rooms.learn(rooms, numbers[unknown], rows[unknown], snapshot):
            worths, unknown = rooms.find(numbers)
            if not len(unknown):
                return worths
        if len(unknown) == len(rows):
            worths = self.of_view(FewRows(snapshot, rows), pod)
            rooms.keep_all(numbers, worths)
        elif len(unknown) <= FEW:
            worths[unknown] = [self.of_room(row, pod, snapshot, rooms) for row in rows[unknown].tolist()]
        else:
            found = worths[unknown] = self.of_view(FewRows(snapshot, rows[unknown]), pod)
            rooms.keep_all(numbers[unknown], found)
        return worths

    def learn_distinct(
        self, scores: DistinctScores, unknown: npt.NDArray[np.intp], pod: PodInfo, snapshot: Snapshot
    ) -> None:  # fmt: skip
        """Run the plugins on the distinct rooms with these indexes, for all classes where no class knows them."""
        distinct = distinct_rooms(snapshot)
        if distinct is None:
            return
        keys = distinct.keys
        if scores.rooms.learn(scores, keys[unknown] >> KEY_BITS, distinct.rows[unknown], snapshot, unknown):
            unknown = unknown[scores.of_all(keys)[unknown] > LOW]
        if not len(unknown):
            return
        rows = distinct.rows[unknown]
        if len(unknown) > FEW:
            worths = self.of_view(FewRows(snapshot, rows), pod)
        else:
            each = [self.one(row, pod, snapshot) for row in rows.tolist()]
            worths = np.array([REFUSED_ROOM if worth is None else worth for worth in each], dtype=np.int64)
        if worths.item(worths.argmax()) < LOW:
            scores.put(unknown, entries_of(keys[unknown] >> KEY_BITS, worths))

    def of_all(self, pod: PodInfo, snapshot: Snapshot, rooms: RoomScores) -> IntArray:
        """Answer for all rows."""
        distinct = distinct_rooms(snapshot)
        if distinct is None:
            return self.of_view(snapshot.nodes, pod)
        return self.of_rooms(distinct.rows, pod, snapshot, rooms).take(distinct.which)
