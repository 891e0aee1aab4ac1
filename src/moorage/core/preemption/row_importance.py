"""The pods of each row, the most important first, as arrays, cached until the row changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import is_not
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from moorage.state.columns import BoolArray, IntArray, ranges
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

# The importance of pods in preemption: higher priority first, then the earlier start.
#
# A pod that has not started counts as starting now, so it is the least important of its priority. For two such pods
# kube-scheduler reads the clock twice and finds the first one older; under its sort the later of the two ranks first.
# Since 1.37 it reads the clock once for each pod, before it sorts them, so such pods rank in turn.

#: The start time of a pod that has not started: later than any other.
NOT_STARTED: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def by_importance(pods: Iterable[PodInfo], *, in_turn: bool = False) -> list[PodInfo]:
    """Return the pods, the most important first.

    Ties keep the given order, except pods that have not started: their order is reversed, unless they rank ``in_turn``.
    Source  scheduler/util/utils.go, MoreImportantPod, under Go's insertion sort; 1.37: framework/preemption, NewVictim
    """
    keyed = []
    for at, pod in enumerate(pods):
        start = started(pod)
        keyed.append((-pod.priority, start, at if in_turn or start < NOT_STARTED else -at, pod))
    keyed.sort()  # no two entries agree before the pod
    return [pod for *_, pod in keyed]


def again_by_importance(pods: Iterable[PodInfo], before: Iterable[PodInfo]) -> list[PodInfo]:
    """Return some of the pods that were sorted ``before``, in turn, the most important first.

    Pods that have not started rank as they did before; other ties keep the given order.
    """
    turns = {id(pod): at for at, pod in enumerate(before)}

    def key(pod: PodInfo) -> tuple[int, int, int]:
        start = started(pod)
        return -pod.priority, start, turns[id(pod)] if start == NOT_STARTED else 0

    return sorted(pods, key=key)


def earliest_start(pods: Iterable[PodInfo]) -> int:
    """Return the earliest start among the pods of the highest priority, in the units of ``started``; needs at least one pod.

    Source  scheduler/util/utils.go, GetEarliestPodStartTime
    """
    _, start = min((-pod.priority, started(pod)) for pod in pods)
    return start


def started(pod: PodInfo) -> int:
    """Return when the pod started, in microseconds since 1970; ``NOT_STARTED`` if it has not."""
    text = pod.status.start_time
    return NOT_STARTED if text is None else _instant(text)


@lru_cache(maxsize=65_536)
def _instant(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


_Rows: TypeAlias = npt.NDArray[np.intp]

#: The lowest priority of a row without pods.
_NO_PODS: Final = 2**63 - 1


class RankedRows:
    """The pods of some rows, row after row, the most important pod of each row first.

    ``facts`` has an entry for each pod: its priority, then what it adds to the node's sums (see ``WhatIfs``): 1 for the pod
    count, and its request of each resource.

    ``in_turn`` is that of ``Ranking``.

    Shapes  counts (rows,): the number of pods of each row; facts (pods, 2 + resources)
    """

    __slots__ = ("_pods", "_rows", "counts", "facts", "in_turn")

    def __init__(
        self,
        counts: IntArray,
        facts: IntArray,
        pods: Mapping[int, tuple[PodInfo, ...]],
        rows: Sequence[int],
        *,
        in_turn: bool = False,
    ) -> None:
        self.counts, self.facts, self.in_turn = counts, facts, in_turn
        self._pods, self._rows = pods, rows

    def pods(self, at: int) -> tuple[PodInfo, ...]:
        """Return the pods of one of the rows, by its position. Call this before the table changes."""
        return self._pods[self._rows[at]]


class Ranking:
    """A cache of the ranked pods of a node table, which follows the table's change log.

    ``in_turn``: pods that have not started rank as they came, as since 1.37.
    """

    def __init__(self, *, in_turn: bool = False) -> None:
        self.in_turn = in_turn
        self._table: NodeTable | None = None
        self._resources: tuple[str, ...] = ()
        self._layout = 0
        self._position = 0
        self._pods: dict[int, tuple[PodInfo, ...]] = {}
        #: The facts of ranked rows, with gaps, up to ``_used``; and for each row where its facts start and their number, -1 for
        #: a row that is not ranked.
        self._pool: IntArray = np.zeros((0, 2), dtype=np.int64)
        self._used = 0
        self._starts: IntArray = np.zeros(0, dtype=np.int64)
        self._counts: IntArray = np.zeros(0, dtype=np.int64)
        #: The lowest priority of the pods on each row; and the mapping of each row's pods, to detect rows that moved.
        self._lowest: IntArray = np.zeros(0, dtype=np.int64)
        self._held: list[dict[str, PodInfo]] = []

    def have_lesser(self, table: NodeTable, rows: _Rows, priority: int) -> BoolArray:
        """Return for each row whether it has a pod of lower priority."""
        self._follow(table)
        lesser: BoolArray = self._lowest[rows] < priority
        return lesser

    def of(self, table: NodeTable, rows: _Rows) -> RankedRows:
        """Return the ranked pods of these rows."""
        self._follow(table)
        unknown = rows[self._counts[rows] < 0]
        if len(unknown):
            self._rank(table, np.array(sorted(set(unknown.tolist())), dtype=np.intp))  # np.unique() loads masked arrays
        counts = self._counts[rows]
        facts = self._pool[ranges(self._starts[rows], counts)]
        return RankedRows(counts, facts, self._pods, rows.tolist(), in_turn=self.in_turn)

    def _rank(self, table: NodeTable, rows: _Rows) -> None:
        """Rank the pods of rows, each listed once."""
        facts: list[tuple[int, ...]] = []
        added: dict[int, tuple[int, ...]] = {}  # by the id of requests, which pods with equal ones share
        for row in rows.tolist():
            if (pods := self._pods.get(row)) is None:
                pods = self._pods[row] = tuple(by_importance(table.pods[row].values(), in_turn=self.in_turn))
            for pod in pods:
                needs = pod.needs
                if (adds := added.get(id(needs))) is None:
                    adds = added[id(needs)] = (1, *(needs.requests.get(name, 0) for name in self._resources))
                facts.append((pod.priority, *adds))
        counts = np.array([len(self._pods[row]) for row in rows.tolist()], dtype=np.int64)
        if self._used + len(facts) > len(self._pool):
            self._make_room(len(facts))
        self._counts[rows] = counts
        self._starts[rows] = self._used + counts.cumsum() - counts
        self._pool[self._used : self._used + len(facts)] = np.array(facts, dtype=np.int64).reshape(len(facts), self._width)
        self._used += len(facts)

    @property
    def _width(self) -> int:
        return 2 + len(self._resources)

    def _make_room(self, more: int) -> None:
        """Close the gaps between facts, and make the pool at least twice as large as they and ``more`` entries need."""
        rows = np.flatnonzero(self._counts > 0)
        counts = self._counts[rows]
        held = self._pool[ranges(self._starts[rows], counts)]
        self._starts[rows] = counts.cumsum() - counts
        self._used = len(held)
        self._pool = np.zeros((2 * (len(held) + more), self._width), dtype=np.int64)
        self._pool[: len(held)] = held

    def _follow(self, table: NodeTable) -> None:
        """Drop the rows that changed since the last call."""
        changes = table.changes
        resources = table.resources_requested
        changed = changes.since(self._position) if table is self._table else None
        if changed is None or resources != self._resources:
            self._counts[:] = -1
            self._resources, self._used = resources, 0
            self._pool = np.zeros((0, self._width), dtype=np.int64)
        if changed is None:
            self._pods.clear()
            self._held, self._lowest = [], np.zeros(0, dtype=np.int64)
        if changed is None or changes.layout != self._layout:
            changed = [*(changed or ()), *self._moved(table)]
        for row in dict.fromkeys(changed):
            self._pods.pop(row, None)
            if row < len(table):
                self._counts[row] = -1
                self._lowest[row] = _lowest(table.pods[row])
        self._table, self._layout, self._position = table, changes.layout, changes.position

    def _moved(self, table: NodeTable) -> list[int]:
        """Resize the arrays to the rows of the table. Return the rows that are new or belong to another node than before."""
        held, self._held = self._held, table.pods.copy()
        kept, more = min(len(held), len(table)), np.full(max(0, len(table) - len(held)), -1, dtype=np.int64)
        self._lowest = np.concatenate([self._lowest[:kept], more])
        self._starts = np.concatenate([self._starts[:kept], more])
        self._counts = np.concatenate([self._counts[:kept], more])
        moved = np.flatnonzero(np.fromiter(map(is_not, table.pods, held), dtype=bool, count=kept))
        return [*moved.tolist(), *range(kept, len(table))]


def _lowest(pods: Mapping[str, PodInfo]) -> int:
    return min([pod.priority for pod in pods.values()], default=_NO_PODS)
