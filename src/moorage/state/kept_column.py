"""Numbers that a rule works out from each row's own facts and would work out anew for every pod, kept until the row changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from moorage.state.columns import IntArray
from moorage.state.view import NodeInfo, NodeView

__all__ = ["KeptColumn"]

#: Up to so many changed rows are worked out one by one; more, as columns.
_FEW = 8


class KeptColumn:
    """One number a row of one table. ``columns`` and ``single`` work out the same, for a view and for one node.

    What they return may hang on the nodes and the sums of what is on them, and on nothing else.
    """

    def __init__(self, columns: Callable[[NodeView], IntArray], single: Callable[[NodeInfo], int]) -> None:
        self._columns, self._single = columns, single
        self._values: IntArray | None = None
        self._nodes_seen = -1
        self._position = 0

    def of(self, nodes: NodeView) -> IntArray:
        """Return the numbers of a view's rows, to be read only."""
        if not nodes.is_true or nodes.table.rows_in_what_ifs:  # what is so in a what-if will not be so afterwards
            return self._columns(nodes)
        values: IntArray = self._up_to_date(nodes)[nodes.rows]
        return values

    def _up_to_date(self, nodes: NodeView) -> IntArray:
        changes = nodes.table.changes
        changed = changes.since(self._position) if self._nodes_seen == changes.nodes else None
        if self._values is None or changed is None:
            self._values = self._columns(nodes.snapshot.nodes)
        elif len(changed) <= _FEW:
            for row in changed:
                self._values[row] = self._single(nodes.one(row))
        else:
            rows = np.array(changed, dtype=np.intp)
            self._values[rows] = self._columns(NodeView(nodes.snapshot, rows))
        self._nodes_seen, self._position = changes.nodes, changes.position
        return self._values
