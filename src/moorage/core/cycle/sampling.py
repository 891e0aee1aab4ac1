"""How many nodes a search filters, and in which order.

kube-scheduler stops filtering once it has found enough feasible nodes, and starts the next pod's search where it stopped.
Moorage filters all nodes unless a percentage is set; then it follows kube-scheduler, including the rotation.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from moorage.state.table import NodeTable

__all__ = ["NodeOrder", "feasible_nodes_to_find"]

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
