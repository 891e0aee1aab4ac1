"""Place copies of one pod: what depends on the pod's shape alone is looked up once, instead of for each copy."""

from __future__ import annotations

import numpy as np

from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable, terms_held_by

__all__ = ["PodCopies"]


class PodCopies:
    """Places copies of a placed pod, with the same result as ``ClusterState.place_on``.

    Ask ``may_place`` before each copy. Copies have no volumes and no group.
    """

    __slots__ = (
        "_add_terms", "_changes", "_counted_by", "_placed", "_pods", "_ports", "_position", "_rows", "_sums", "_table",
    )  # fmt: skip

    def __init__(self, table: NodeTable, placed: dict[str, tuple[PodInfo, str]], pod: PodInfo) -> None:
        """``placed``: UID → each placed or assumed pod with its node."""
        self._table = table
        self._placed = placed
        self._pods = table.pods
        self._changes = table.changes
        self._position = table.changes.position
        self._sums = [(column.cells, count) for column, count in table.shifts_of(pod.needs)]
        self._rows, self._counted_by = table.pod_counts.class_of(pod)
        self._add_terms = [terms.adder(held) for terms, held in terms_held_by(table, pod)]
        self._ports = pod.host_ports

    def may_place(self, uid: str) -> bool:
        """Return whether a copy is new, and nothing else has changed a node or its pods since this object was made."""
        return self._changes.position == self._position and uid not in self._placed

    def place(self, pod: PodInfo, node: str, row: int) -> None:
        """Count a copy on a node that is at this row."""
        uid = pod.uid
        self._placed[uid] = (pod, node)
        self._pods[row][uid] = pod
        for cells, count in self._sums:
            try:
                cells[row] += count
            except ValueError:  # int64 overflows in an array
                np.asarray(cells)[row] += count
        self._changes.note(row)
        self._position = self._changes.position
        for port in self._ports:
            self._table.claim(row, port, 1)
        rows = self._rows
        rows[row] = rows.get(row, 0) + 1
        for counted in self._counted_by.values():
            counted.shift(row, 1)
        for add_term in self._add_terms:
            add_term(row)
