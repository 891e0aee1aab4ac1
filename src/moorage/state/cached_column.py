"""A cached column: one number that a plugin computes from each row, kept until the row changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from moorage.state.columns import Column, IntArray
from moorage.state.view import NodeInfo, NodeView

__all__ = ["KeptColumn"]

#: Up to this many changed rows are computed one by one; more, as columns.
_FEW = 8


class KeptColumn:
    """One number per row of one table. ``columns`` and ``single`` compute the same, for a view and for one node.

    Their results may depend on the nodes and the sums over their pods, and on nothing else.
    """

    def __init__(self, columns: Callable[[NodeView], IntArray], single: Callable[[NodeInfo], int]) -> None:
        self._columns, self._single = columns, single
        #: A column of the table, so it grows and moves with its rows. None until it is first computed.
        self._column: Column | None = None
        self._position = 0

    def of(self, nodes: NodeView) -> IntArray:
        """Return the numbers of a view's rows; read-only."""
        if not nodes.is_true or nodes.table.rows_in_what_ifs:  # a what-if is undone afterwards
            return self._columns(nodes)
        behind = nodes.table.changes.position - self._position
        if len(nodes) <= _FEW < behind and not nodes.is_whole:  # fewer rows than those that changed
            return np.array([self._single(nodes.one(row)) for row in nodes.row_numbers.tolist()], dtype=np.int64)
        return nodes.take(self._up_to_date(nodes))

    def _up_to_date(self, nodes: NodeView) -> Column:
        changes = nodes.table.changes
        changed = changes.since(self._position)
        if self._column is None or changed is None:
            self._column = nodes.table.space.column()
            self._column.view[:] = self._columns(nodes.snapshot.nodes)
        elif len(changed) <= _FEW:
            for row in changed:
                if row < len(nodes.table):  # otherwise the row was removed
                    self._column.cells[row] = self._single(nodes.one(row))
        else:
            rows = np.array(changed, dtype=np.intp)
            rows = rows[rows < len(nodes.table)]
            self._column.data[rows] = self._columns(NodeView(nodes.snapshot, rows))
        self._position = changes.position
        return self._column
