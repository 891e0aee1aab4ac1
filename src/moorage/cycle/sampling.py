"""How many nodes are looked at, and in which order.

kube-scheduler stops filtering once it has found enough feasible nodes, and starts the next pod's search where it left off.
Moorage looks at all nodes unless a percentage is given; then it follows the original, including the rotation.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from moorage.state.table import NodeTable

__all__ = ["NodeOrder", "feasible_nodes_to_find"]

MIN_FEASIBLE_NODES = 100
MIN_PERCENTAGE = 5
_ZONE = "topology.kubernetes.io/zone"
_REGION = "topology.kubernetes.io/region"
_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_OLD_REGION = "failure-domain.beta.kubernetes.io/region"


def feasible_nodes_to_find(percentage: int, nodes: int) -> int:
    """Return after how many feasible nodes the search may stop.

    ``percentage`` is 1-100, or 0 for kube-scheduler's own choice by cluster size.
    Source  schedule_one.go, numFeasibleNodesToFind
    """
    if nodes < MIN_FEASIBLE_NODES:
        return nodes
    if percentage == 0:
        percentage = max(MIN_PERCENTAGE, 50 - nodes // 125)
    return max(MIN_FEASIBLE_NODES, nodes * percentage // 100)


class NodeOrder:
    """Rows in kube-scheduler's order: zones in turn, one node of each, in order of arrival. Kept until rows change."""

    def __init__(self) -> None:
        self._layout = -1
        self._zones: tuple[str, ...] = ()
        self._rows: npt.NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self.start = 0

    def rows(self, table: NodeTable) -> npt.NDArray[np.intp]:
        """Return all rows, starting where the last search ended."""
        if self._layout != table.changes.layout:
            self._rows = _round_robin(table)
            self._layout = table.changes.layout
        start = self.start % len(self._rows)
        return np.concatenate([self._rows[start:], self._rows[:start]])

    def advance(self, processed: int, nodes: int) -> None:
        """Let the next search start ``processed`` nodes further on."""
        self.start = (self.start + processed) % nodes


def _round_robin(table: NodeTable) -> npt.NDArray[np.intp]:
    by_zone: dict[tuple[str, str], list[int]] = {}
    for row in map(int, np.argsort(table.arrival.view)):
        labels = table.nodes[row].labels
        zone = labels.get(_OLD_ZONE) or labels.get(_ZONE, "")
        region = labels.get(_OLD_REGION) or labels.get(_REGION, "")
        by_zone.setdefault((region, zone), []).append(row)
    order: list[int] = []
    turn = 0
    while len(order) < len(table.nodes):
        order.extend(rows[turn] for rows in by_zone.values() if turn < len(rows))
        turn += 1
    return np.array(order, dtype=np.intp)
