"""NodeResourcesLeastAllocated: prefer nodes that would have more of their resources left.

Reads     requests of containers and init containers, and overhead; what nodes offer, what the pods on them request
Scores    the weighted mean, over all listed resources, of the share in percent that stays free; 0 for a resource that would be
          given away beyond what there is, or that the node does not offer
Source    kube-scheduler 1.21, plugins/noderesources/least_allocated.go
"""

from __future__ import annotations

from typing import Self

import numpy as np
from msgspec import structs

from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.features import FeatureGates
from moorage.framework.points import Depends, Signature
from moorage.plugins.v1_21.allocation import (
    CPU_AND_MEMORY,
    ResourceSpec,
    resource_faults,
    scored_signature,
    share,
    weighted_mean,
)
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["NodeResourcesLeastAllocated", "NodeResourcesLeastAllocatedArgs"]


class NodeResourcesLeastAllocatedArgs(PluginArgs, frozen=True):
    """Which resources count, and how much."""

    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY

    def completed(self, gates: FeatureGates) -> Self:
        del gates
        return self if self.resources else structs.replace(self, resources=CPU_AND_MEMORY)

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        del gates
        return resource_faults(self.resources, path)


class NodeResourcesLeastAllocated:
    """See the module's description."""

    name = "NodeResourcesLeastAllocated"
    Args = NodeResourcesLeastAllocatedArgs
    depends = Depends.ROW

    def __init__(self, args: NodeResourcesLeastAllocatedArgs | None = None) -> None:
        self._resources = (args or NodeResourcesLeastAllocatedArgs()).resources

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        return weighted_mean(least_allocated, self._resources, pod, nodes)

    def sign(self, pod: PodInfo) -> Signature:
        return scored_signature(pod, [resource.name for resource in self._resources])


def least_allocated(requested: IntArray, capacity: IntArray) -> IntArray:
    """Score a resource by the share that stays free, rounded down."""
    return share(np.maximum(capacity - requested, 0), capacity)
