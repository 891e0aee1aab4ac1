"""The names of the nodes of a table by row, and their order. Both are kept until a node is added or removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from moorage.state.table import NodeTable

__all__ = ["NamesByRow", "row_names"]

_Rows = npt.NDArray[np.intp]


class NamesByRow(NamedTuple):
    """``arrangement`` is that of the table's change log; ``places`` has the position of each row in the order of names.

    Shapes  places (rows,)
    """

    arrangement: int
    names: Sequence[str]
    places: _Rows

    def in_order(self, rows: _Rows) -> _Rows:
        """Return these rows in the order of their names."""
        return rows[np.argsort(self.places[rows])]


_KEPT: Final[WeakKeyDictionary[NodeTable, NamesByRow]] = WeakKeyDictionary()


def row_names(table: NodeTable) -> NamesByRow:
    """Return the names of the nodes of a table, which must not be changed."""
    kept = _KEPT.get(table)
    if kept is None or kept.arrangement != table.changes.arrangement:
        names = [node.metadata.name for node in table.nodes]
        places = np.empty(len(names), dtype=np.intp)
        places[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        kept = _KEPT[table] = NamesByRow(table.changes.arrangement, names, places)
    return kept
