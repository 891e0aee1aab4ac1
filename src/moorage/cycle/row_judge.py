"""Run the plugins of one pod class that read the pods of a row: on one row, on a view, or on one row of each room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.cycle.cached_scores import KeptScores
from moorage.cycle.node_verdicts import FEW, close_refused
from moorage.cycle.room_scores import REFUSED_ROOM, RoomScores
from moorage.framework.plugin_runner import refuses
from moorage.framework.profile import Step
from moorage.framework.reuse import Scope
from moorage.state.cluster import Snapshot
from moorage.state.columns import IntArray
from moorage.state.distinct_rooms import RoomRows
from moorage.state.pod_info import PodInfo
from moorage.state.view import FewRows, NodeView

__all__ = ["RoomLook", "RowJudge", "distinct_rooms"]


def distinct_rooms(snapshot: Snapshot) -> RoomRows | None:
    """Return the distinct rooms; None if there are too many."""
    return None if snapshot.table.rows_in_what_ifs else snapshot.table.distinct_rooms.find()


class RoomLook(NamedTuple):
    """The distinct rooms: the score of each, how many rows have it, and how many rows are feasible.

    Shapes  worths, held (rooms,)
    """

    worths: IntArray
    held: IntArray
    feasible: int

    def best(self, snapshot: Snapshot, start: int) -> int:
        """Return the row with the highest score; where several share it, the first at or after ``start`` on the ring."""
        some_unused = self.held.item(self.held.argmin()) == 0
        worths = np.where(self.held > 0, self.worths, REFUSED_ROOM) if some_unused else self.worths
        return snapshot.table.distinct_rooms.first(worths == worths.item(worths.argmax()), start)


class RowJudge:
    """Answers with the weighted sum of the scores of a row, ``REFUSED_ROOM`` if a Filter plugin refuses it.

    ``states`` are PreFilter's. ``rooms`` caches the answers by room; None if a plugin reads more than sums.
    """

    def __init__(self, filters: Sequence[tuple[Step, Step | None]], states: Mapping[str, Any], scores: KeptScores) -> None:
        """``filters``: the Filter plugins with their form for one node."""
        self._filters = filters
        self._steps = [step for step, _ in filters]
        self.states = states
        self._scores = scores
        self.rooms: RoomScores | None = None
        if scores.by_room and all(step.reuse.scope is Scope.USAGE for step in self._steps):
            self.rooms = RoomScores()

    def one(self, row: int, pod: PodInfo, snapshot: Snapshot) -> int | None:
        """Run the plugins on one row; return None if it is refused."""
        node = snapshot.nodes.one(row)
        for step, single in self._filters:
            if refuses(step, single, self.states.get(step.name, pod), node, snapshot.nodes):
                return None
        return self._scores.worth_of_row(row, node, snapshot, pod)

    def of_room(self, row: int, pod: PodInfo, snapshot: Snapshot, rooms: RoomScores) -> int:
        """Answer for one row from the cache, if its room is known."""
        room = snapshot.table.rooms.at(row)
        worth = rooms.get(room)
        if worth is None:
            found = self.one(row, pod, snapshot)
            worth = REFUSED_ROOM if found is None else found
            rooms.keep(room, worth)
        return worth

    def of_rooms(self, rows: npt.NDArray[np.intp], pod: PodInfo, snapshot: Snapshot, rooms: RoomScores) -> IntArray:
        """Answer for some rows, and run the plugins only on those whose rooms are unknown."""
        numbers = snapshot.table.rooms.followed().data[rows]
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

    def of_view(self, view: NodeView, pod: PodInfo) -> IntArray:
        """Run the plugins on a view."""
        allowed = np.ones(len(view), dtype=bool)
        close_refused(allowed, self._steps, self.states, pod, view)
        worths = self._scores.worths(view, allowed, pod)
        return worths if allowed.item(allowed.argmin()) else np.where(allowed, worths, REFUSED_ROOM)

    def of_all(self, pod: PodInfo, snapshot: Snapshot, rooms: RoomScores) -> IntArray:
        """Answer for all rows."""
        distinct = distinct_rooms(snapshot)
        if distinct is None:
            return self.of_view(snapshot.nodes, pod)
        return self.of_rooms(distinct.rows, pod, snapshot, rooms).take(distinct.which)
