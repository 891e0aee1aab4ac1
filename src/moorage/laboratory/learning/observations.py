"""Observations of nodes and of the pod to place, as arrays of float32.

A node has two features for each resource: the free share of its allocatable amount, and its allocatable amount divided by the
largest of any node. A pod has one feature for each resource: its request divided by that largest amount. Only the rows of
changed nodes are computed again; a step creates no objects.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.errors import InputError
from moorage.state.columns import Column
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable

__all__ = ["PODS", "NodeFeatures", "require_gymnasium"]


#: The name among resources that stands for the number of pods on a node.
PODS: Final = "pods"
#: More changed rows than this are computed as columns.
_FEW: Final = 8
Floats = npt.NDArray[np.float32]


class NodeFeatures:
    """The features of the rows of one node table, whose nodes do not change.

    ``values`` has shape (max_nodes, 2 · resources): free shares first, then sizes; rows without a node are 0.
    """

    def __init__(self, table: NodeTable, resources: Iterable[str], max_nodes: int) -> None:
        self.resources = tuple(resources)
        self._table = table
        offered = [table.allowed_pods if name == PODS else table.allocatable(name) for name in self.resources]
        self._requested: list[Column] = [table.pod_count if name == PODS else table.requested(name) for name in self.resources]
        self._nodes, count = len(table), len(self.resources)
        self._offered = np.array([column.view for column in offered], dtype=np.float64).reshape(count, self._nodes)
        #: The largest allocatable amount of any node, by resource.
        self.most = np.maximum(self._offered.max(axis=1, initial=0.0), 1.0)
        #: The allocatable amounts of all nodes together.
        self.whole = np.maximum(self._offered.sum(axis=1), 1.0)
        self._divisors = np.maximum(self._offered, 1.0)
        self._cells = self._divisors.T.tolist()
        self._there = (self._offered > 0).astype(np.float64)
        self._there_cells = self._there.T.tolist()
        self.values: Floats = np.zeros((max_nodes, 2 * count), dtype=np.float32)
        self.values[: self._nodes, count:] = (self._offered / self.most[:, None]).T
        self._position = -1
        self._pods: dict[tuple[tuple[str, int], ...], Floats] = {}
        self._shares: dict[tuple[tuple[str, int], ...], float] = {}

    def refresh(self) -> Floats:
        """Return the values, brought up to date; the array belongs to this object."""
        changes = self._table.changes
        changed = None if self._position < 0 else changes.since(self._position)
        self._position = changes.position
        if changed is None or len(changed) > _FEW:
            self._compute_all()
        else:
            for row in changed:
                self._compute(row)
        return self.values

    def _compute_all(self) -> None:
        free = self._there.copy()
        for at, column in enumerate(self._requested):
            free[at] -= column.view / self._divisors[at]
        self.values[: self._nodes, : len(self.resources)] = np.clip(free, 0.0, 1.0).T

    def _compute(self, row: int) -> None:
        values = self.values[row]
        known = zip(self._requested, self._there_cells[row], self._cells[row], strict=True)
        for at, (column, there, most) in enumerate(known):
            free = there - column.cells[row] / most
            values[at] = 0.0 if free < 0.0 else min(free, 1.0)

    def of_pod(self, pod: PodInfo) -> Floats:
        """Return the features of a pod; the array must not be changed."""
        found = self._pods.get(pod.needs.key)
        if found is None:
            asked = pod.requests
            shares = [1.0 if name == PODS else asked.get(name, 0) for name in self.resources] / self.most
            found = self._pods[pod.needs.key] = np.clip(shares, 0.0, 1.0).astype(np.float32)
        return found

    def share_of_all(self, pod: PodInfo) -> float:
        """Return the pod's request as a share of what all nodes offer: the highest share of any resource."""
        found = self._shares.get(pod.needs.key)
        if found is None:
            asked = pod.requests
            shares = [asked.get(name, 0) / whole for name, whole in zip(self.resources, self.whole.tolist(), strict=True)]
            found = self._shares[pod.needs.key] = max(shares, default=0.0)
        return found


# -- gymnasium import --------------------------------------------------------------------------------------------------
# The check that Gymnasium, which is optional, is installed.


def require_gymnasium() -> None:
    """Raise InputError, with the extra's name, unless Gymnasium is installed."""
    if importlib.util.find_spec("gymnasium") is None:
        raise InputError("moorage.laboratory.learning needs Gymnasium: pip install 'moorage[gym]'")
