"""NodeResourcesMostAllocated: prefer nodes with less free resources.

Reads     requests of containers and init containers, and overhead; the nodes' allocatable and requested resources
Scores    the weighted mean, over all configured resources, of the requested percentage; 0 for a resource that would be
          overcommitted
Source    kube-scheduler 1.21.2, plugins/noderesources/most_allocated.go
"""

from __future__ import annotations

import numpy as np

from moorage.plugins.v1_21.shared.requested_shares import AllocationArgs, AllocationScore, share
from moorage.state.columns import IntArray


class NodeResourcesMostAllocatedArgs(AllocationArgs, frozen=True):
    """The resources to score and their weights."""


def most_allocated(requested: IntArray, capacity: IntArray) -> IntArray:
    """Score a resource by the requested share, rounded down."""
    return share(np.where(requested > capacity, 0, requested), capacity)


class NodeResourcesMostAllocated(AllocationScore):
    name = "NodeResourcesMostAllocated"
    Args = NodeResourcesMostAllocatedArgs
    rate = staticmethod(most_allocated)
