"""Decide a pod of a class that may have no other: judge the rows once, pick the best, and keep nothing.

Arrays in the order of the ring, and the scores by room, pay only for a class with more pods. They cost as much as deciding.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from moorage.cycle.joined_rooms import DistinctScores
from moorage.cycle.node_verdicts import NodePart, ask_pre_filters
from moorage.cycle.room_scores import LOW, REFUSED_ROOM
from moorage.cycle.row_judge import RowJudge, RowPlans, distinct_rooms
from moorage.cycle.ties import first_from
from moorage.framework.prefilter_state import PreFiltered
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import FewRows

__all__ = ["Look", "first_look", "look_again", "look_at"]

#: Up to so many rows, all are judged as fast as one of each room, if their ``Usage`` is known.
_MANY_ROWS: Final = 8192


class _RoomLook(NamedTuple):
    """A mark for each distinct room with the highest score, and how many rows are feasible; shape of the marks (rooms,)."""

    marked: BoolArray
    feasible: int

    def best(self, snapshot: Snapshot, start: int) -> int:
        """Return the row with the highest score; where several share it, the first at or after ``start`` on the ring."""
        return snapshot.table.distinct_rooms.first(self.marked, start)


class _RowLook(NamedTuple):
    """The score of each row, and how many rows are feasible."""

    worths: IntArray
    feasible: int

    def best(self, snapshot: Snapshot, start: int) -> int:
        """Return the row with the highest score; where several share it, the first at or after ``start`` on the ring."""
        worths = self.worths
        return first_from(snapshot.table, (worths == worths.item(worths.argmax())).nonzero()[0], start)


Look = _RoomLook | _RowLook


def look_again(judge: RowJudge, scores: DistinctScores, pod: PodInfo, snapshot: Snapshot, most: int) -> Look | None:
    """Look up the scores of the distinct rooms, and run the plugins on unknown ones; None if there are more than ``most``.

    The plugins read only sums, and no nodes are refused or scored by themselves.
    """
    table = snapshot.table
    keys = None if table.rows_in_what_ifs else table.distinct_rooms.find_keys()
    if keys is None or len(keys) > most or not scores.admit(len(keys)):
        return None
    found = scores.of_all(keys)
    highest = found.item(found.argmax())
    if highest > LOW:
        judge.learn_distinct(scores, (found > LOW).nonzero()[0], pod, snapshot)
        found = scores.of_all(keys)
        highest = found.item(found.argmax())
        if highest > LOW or not judge.is_sound:
            return None
    refused = 0
    unsigned = found.view(np.uint64)  # indexes without a room have the largest numbers
    if not unsigned.item(unsigned.argmin()):
        distinct = table.distinct_rooms.find()
        refused = 0 if distinct is None else int(distinct.held[found == 0].sum())
    return _RoomLook(found == highest, len(table) - refused)


def first_look(
    plans: RowPlans, idle: frozenset[str], part: NodePart, pod: PodInfo, snapshot: Snapshot
) -> tuple[Look, PreFiltered] | None:
    """Judge all rows for a pod without a class, if no plugin runs for each pod; None if the pod needs a class.

    ``idle``: PreFilter plugins with nothing to do
    """
    if part.narrowed is not None:
        return None
    found = ask_pre_filters(plans.steps.pre_filter, pod, snapshot)
    if found.refused or found.narrowed is not None:
        return None
    states = {**part.states, **found.states} if part.states else found.states
    judge = RowJudge(plans, frozenset(found.skipped), states, pod, snapshot)
    look = look_at(judge, part, pod, snapshot)
    if look is None or not judge.is_sound:
        return None
    return look, PreFiltered(states, idle.union(part.skipped, found.skipped))


def look_at(judge: RowJudge, part: NodePart, pod: PodInfo, snapshot: Snapshot) -> Look | None:
    """Judge all rows for plugins that read only sums; None if nodes are refused or scored by themselves."""
    if not judge.plan.by_room or not part.is_plain:
        return None
    few = len(snapshot.table) < _MANY_ROWS and snapshot.nodes.usage() is not None
    distinct = None if few else distinct_rooms(snapshot)
    if distinct is not None:
        worths, refused = judge.judged(FewRows(snapshot, distinct.rows), pod)
        held = distinct.held
        if held.item(held.argmin()) == 0:  # no row has some of the rooms
            worths = np.where(held > 0, worths, REFUSED_ROOM)
        feasible = len(snapshot.table) - (0 if refused is None else int(held[refused].sum()))
        return _RoomLook(worths == worths.item(worths.argmax()), feasible)
    worths, refused = judge.judged(snapshot.nodes, pod)
    return _RowLook(worths, len(worths) - (0 if refused is None else int(np.count_nonzero(refused))))
