"""NodeResourcesMostAllocated: prefer nodes that would have more of their resources in use.

Reads     requests of containers and init containers, and overhead; what nodes offer, what the pods on them request
Scores    the weighted mean, over all listed resources, of the share in percent that is requested; 0 for a resource of which
          more would be requested than there is
Source    kube-scheduler 1.21.2, plugins/noderesources/most_allocated.go
"""

from __future__ import annotations

import numpy as np

from moorage.plugins.v1_21.requested_shares import AllocationArgs, AllocationScore, share
from moorage.state.columns import IntArray

__all__ = ["NodeResourcesMostAllocated", "NodeResourcesMostAllocatedArgs"]


class NodeResourcesMostAllocatedArgs(AllocationArgs, frozen=True):
    """Which resources count, and how much."""


def most_allocated(requested: IntArray, capacity: IntArray) -> IntArray:
    """Score a resource by the share that is requested, rounded down."""
    return share(np.where(requested > capacity, 0, requested), capacity)


class NodeResourcesMostAllocated(AllocationScore):
    """See the module's description."""

    name = "NodeResourcesMostAllocated"
    Args = NodeResourcesMostAllocatedArgs
    rate = staticmethod(most_allocated)
