"""The scope of one search for a node: the whole cluster or part of it, with or without PostFilter.

A single pod searches the whole cluster. A pod of a group with a placement constraint searches the nodes of one placement at a
time, and group preemption searches without PostFilter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Code, Status
from moorage.state.table import NodeTable

__all__ = ["EVERYWHERE", "SearchScope"]

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
