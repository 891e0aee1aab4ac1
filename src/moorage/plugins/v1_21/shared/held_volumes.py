"""A cache of the volumes that the pods on each row use; a volume that several pods use counts once.

A row is recomputed when its pods or its node change. Rows whose pods have volumes are also recomputed when an object changes
that their volumes depend on. Rows of a what-if are recomputed every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from moorage.api.meta import Object
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

__all__ = ["HeldVolumes", "RecomputedRow"]

V = TypeVar("V")


class RecomputedRow(NamedTuple, Generic[V]):
    """A recomputed row: the volumes in use on it before and now."""

    row: int
    before: frozenset[V]
    now: frozenset[V]


class HeldVolumes(Generic[V]):
    """The volumes in use by row. ``on_row`` has the rows on which any are in use."""

    def __init__(
        self,
        held_by: Callable[[PodInfo, int, Snapshot], frozenset[V]],
        *decisive: type[Object],
        by_node: type[Object] | None = None,
    ) -> None:
        """``held_by`` returns the volumes that one pod uses on a row.

        A change of a ``decisive`` object affects every row; one of a ``by_node`` object only the row of the node of that name.
        """
        self._held_by = held_by
        self._decisive = decisive
        self._by_node = by_node
        self._table: NodeTable | None = None
        self._layout = -1
        self._position = 0
        self._node_position = 0
        self._objects: tuple[int, ...] = ()
        self._stale: tuple[int, ...] = ()
        self.on_row: dict[int, frozenset[V]] = {}

    def follow(self, snapshot: Snapshot) -> tuple[list[RecomputedRow[V]], bool]:
        """Return the recomputed rows, and whether all earlier values are void and all rows were recomputed."""
        table = snapshot.table
        rows = table.changes.since(self._position)
        objects = tuple(snapshot.changes_of(kind).position for kind in self._decisive)
        is_reset = rows is None or table is not self._table or table.changes.layout != self._layout
        if rows is None or is_reset:
            self.on_row.clear()
            rows = list(range(len(table)))
        elif objects != self._objects:
            rows = [*rows, *table.volume_use.rows]
        else:
            rows = [*rows, *self._rows_of_changed_nodes(snapshot)]
        if self._by_node is not None:
            self._node_position = snapshot.changes_of(self._by_node).position
        self._table, self._layout = table, table.changes.layout
        self._position, self._objects = table.changes.position, objects
        in_what_ifs = tuple(table.rows_in_what_ifs)
        recomputed = [self._recompute(snapshot, row) for row in dict.fromkeys((*rows, *self._stale, *in_what_ifs))]
        self._stale = in_what_ifs
        return recomputed, is_reset

    def _rows_of_changed_nodes(self, snapshot: Snapshot) -> list[int]:
        if self._by_node is None:
            return []
        names = snapshot.changes_of(self._by_node).since(self._node_position)
        row_of = snapshot.table.row_of
        return list(snapshot.table.volume_use.rows) if names is None else [row_of[name] for name in names if name in row_of]

    def _recompute(self, snapshot: Snapshot, row: int) -> RecomputedRow[V]:
        pods = snapshot.table.volume_use.pods_on(row).values()
        now: frozenset[V] = frozenset().union(*(self._held_by(pod, row, snapshot) for pod in pods))
        before = self.on_row.pop(row, frozenset())
        if now:
            self.on_row[row] = now
        return RecomputedRow(row, before, now)
