"""NodeResourcesLeastAllocated: prefer nodes that would have more of their resources left.

Reads     requests of containers and init containers, and overhead; what nodes offer, what the pods on them request
Scores    the weighted mean, over all listed resources, of the share in percent that stays free; 0 for a resource that would be
          given away beyond what there is, or that the node does not offer
Source    kube-scheduler 1.21, plugins/noderesources/least_allocated.go
"""

from __future__ import annotations

import numpy as np

from moorage.plugins.v1_21.requested_shares import AllocationArgs, AllocationScore, share
from moorage.state.columns import IntArray

__all__ = ["NodeResourcesLeastAllocated", "NodeResourcesLeastAllocatedArgs"]


class NodeResourcesLeastAllocatedArgs(AllocationArgs, frozen=True):
    """Which resources count, and how much."""


def least_allocated(requested: IntArray, capacity: IntArray) -> IntArray:
    """Score a resource by the share that stays free, rounded down."""
    return share(np.maximum(capacity - requested, 0), capacity)


class NodeResourcesLeastAllocated(AllocationScore):
    """See the module's description."""

    name = "NodeResourcesLeastAllocated"
    Args = NodeResourcesLeastAllocatedArgs
    rate = staticmethod(least_allocated)
