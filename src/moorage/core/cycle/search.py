"""Which nodes a search looks at, in which order, and which of several best ones a pod gets.

A pod may go to every node, or to some (``SearchScope``). kube-scheduler stops filtering once it has found enough feasible
nodes, and starts the next pod's search where it stopped; Moorage filters all nodes unless a percentage is set, and then follows
kube-scheduler, including the rotation.

kube-scheduler picks one of the best nodes at random. Here the hash of its name gives each node a place on a ring; the hash of
the seed and its UID gives each pod a place, and the pod takes the first of the best nodes from there on. Repeated runs give the
same answer, a restart changes nothing, and load still spreads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.framework.verdicts import Code, Status, Verdicts
from moorage.state.table import NodeTable

_PLACES = 2**64


def ring_position(uid: str, seed: int) -> int:
    """Return a pod's place on the ring of 2^64 places."""
    return int.from_bytes(blake2b(f"{seed}/{uid}".encode(), digest_size=8).digest(), "little")


def draw(table: NodeTable, rows: npt.NDArray[np.intp], uid: str, seed: int) -> int:
    """Return one of ``rows`` (at least one): the first at or after the pod's place on the ring."""
    return first_from(table, rows, ring_position(uid, seed))


def first_from(table: NodeTable, rows: npt.NDArray[np.intp], start: int) -> int:
    """Return the first of ``rows`` (at least one) at or after a position on the ring."""
    if len(rows) == 1:
        return int(rows[0])
    return int(rows[(table.name_hash.view[rows] - np.uint64(start)).argmin()])


def draw_by_name(names: Sequence[str], uid: str, seed: int) -> str:
    """Return one of the names (at least one), drawn like a node."""
    start = ring_position(uid, seed)
    return min(names, key=lambda name: ((_hash_of(name) - start) % _PLACES, name))


def _hash_of(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


MIN_FEASIBLE_NODES = 100
MIN_PERCENTAGE = 5


def feasible_nodes_to_find(percentage: int, nodes: int) -> int:
    """Return the number of feasible nodes after which the search may stop.

    ``percentage`` is 1-100, or 0 for kube-scheduler's own choice by cluster size.
    Source  schedule_one.go, numFeasibleNodesToFind
    """
    if nodes < MIN_FEASIBLE_NODES:
        return nodes
    if percentage == 0:
        percentage = max(MIN_PERCENTAGE, 50 - nodes // 125)
    return max(MIN_FEASIBLE_NODES, nodes * percentage // 100)


class NodeOrder:
    """Rows in kube-scheduler's order, zones in turn, and the position where the next search starts."""

    def __init__(self) -> None:
        self.start = 0

    def rows(self, table: NodeTable, among: npt.NDArray[np.intp] | None = None) -> npt.NDArray[np.intp]:
        """Return all rows, or only those ``among``, starting where the last search ended."""
        rows = table.rows_in_turn()
        if among is not None:
            rows = rows[np.isin(rows, among)]
        start = self.start % len(rows)
        return np.concatenate([rows[start:], rows[:start]])

    def advance(self, processed: int, nodes: int) -> None:
        """Move the start of the next search by ``processed`` nodes; -1: all, which changes nothing."""
        if processed >= 0:
            self.start = (self.start + processed) % nodes


#: The status of nodes outside the scope: no reason, and evicting pods there does not help.
_BEYOND: Final = Status(Code.UNRESOLVABLE)


@dataclass(frozen=True, slots=True, eq=False)
class SearchScope:
    """``rows``: the nodes in scope, sorted (None: all). ``post_filter``: run PostFilter if no node fits."""

    rows: npt.NDArray[np.intp] | None = None
    post_filter: bool = True

    def count(self, table: NodeTable) -> int:
        """Return the number of nodes in scope."""
        return len(table) if self.rows is None else len(self.rows)

    def covers(self, row: int) -> bool:
        return self.rows is None or bool((self.rows == row).any())

    def close_others(self, rows: npt.NDArray[np.intp], verdicts: Verdicts) -> npt.NDArray[np.intp]:
        """Return the given rows that are in scope, and refuse every row outside it."""
        if self.rows is None:
            return rows
        beyond = np.ones(len(verdicts), dtype=bool)
        beyond[self.rows] = False
        verdicts.refuse(np.flatnonzero(beyond), _BEYOND)
        counting: npt.NDArray[np.intp] = rows[~beyond[rows]]
        return counting


EVERYWHERE: Final = SearchScope()
