"""What one look for a node may take in: all of the cluster or part of it, with preemption or without.

A pod by itself looks everywhere. One whose group has to stay together looks at the nodes of one placement at a time, and what
would be if others were gone is found out without sending anybody away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Code, Status
from moorage.state.table import NodeTable

__all__ = ["EVERYWHERE", "Scope"]

#: Nodes beyond the scope: nobody says anything of them, and evicting pods there does not help.
_BEYOND: Final = Status(Code.UNRESOLVABLE)


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """``rows``: the nodes that count, sorted (None: all). ``post_filter``: where nothing fits, preemption may be tried."""

    rows: npt.NDArray[np.intp] | None = None
    post_filter: bool = True

    def count(self, table: NodeTable) -> int:
        """How many nodes there are."""
        return len(table) if self.rows is None else len(self.rows)

    def covers(self, row: int) -> bool:
        return self.rows is None or bool((self.rows == row).any())

    def close_others(self, rows: npt.NDArray[np.intp], verdicts: Verdicts) -> npt.NDArray[np.intp]:
        """Return those of the rows that count, and refuse all that do not."""
        if self.rows is None:
            return rows
        beyond = np.ones(len(verdicts), dtype=bool)
        beyond[self.rows] = False
        verdicts.refuse(np.flatnonzero(beyond), _BEYOND)
        counting: npt.NDArray[np.intp] = rows[~beyond[rows]]
        return counting


EVERYWHERE: Final = Scope()
