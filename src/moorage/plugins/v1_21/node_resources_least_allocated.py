"""NodeResourcesLeastAllocated: prefer nodes with more free resources.

Reads     requests of containers and init containers, and overhead; the nodes' allocatable and requested resources
Scores    the weighted mean, over all configured resources, of the percentage that stays free; 0 for a resource that the node
          lacks or that would be overcommitted
Source    kube-scheduler 1.21, plugins/noderesources/least_allocated.go
"""

from __future__ import annotations

import numpy as np

from moorage.plugins.v1_21.shared.requested_shares import AllocationArgs, AllocationScore, share
from moorage.state.columns import IntArray


class NodeResourcesLeastAllocatedArgs(AllocationArgs, frozen=True):
    """The resources to score and their weights."""


def least_allocated(requested: IntArray, capacity: IntArray) -> IntArray:
    """Score a resource by the share that stays free, rounded down."""
    return share(np.maximum(capacity - requested, 0), capacity)


class NodeResourcesLeastAllocated(AllocationScore):
    name = "NodeResourcesLeastAllocated"
    Args = NodeResourcesLeastAllocatedArgs
    rate = staticmethod(least_allocated)
