"""NodeResourcesMostAllocated: prefer nodes that would have more of their resources in use.

Reads     requests of containers and init containers, and overhead; what nodes offer, what the pods on them request
Scores    the weighted mean, over all listed resources, of the share in percent that is requested; 0 for a resource of which
          more would be requested than there is
Source    kube-scheduler 1.21.2, plugins/noderesources/most_allocated.go
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

__all__ = ["NodeResourcesMostAllocated", "NodeResourcesMostAllocatedArgs"]


class NodeResourcesMostAllocatedArgs(PluginArgs, frozen=True):
    """Which resources count, and how much."""

    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY

    def completed(self, gates: FeatureGates) -> Self:
        del gates
        return self if self.resources else structs.replace(self, resources=CPU_AND_MEMORY)

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        del gates
        return resource_faults(self.resources, path)


class NodeResourcesMostAllocated:
    """See the module's description."""

    name = "NodeResourcesMostAllocated"
    Args = NodeResourcesMostAllocatedArgs
    depends = Depends.ROW

    def __init__(self, args: NodeResourcesMostAllocatedArgs | None = None) -> None:
        self._resources = (args or NodeResourcesMostAllocatedArgs()).resources

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        return weighted_mean(most_allocated, self._resources, pod, nodes)

    def sign(self, pod: PodInfo) -> Signature:
        return scored_signature(pod, [resource.name for resource in self._resources])


def most_allocated(requested: IntArray, capacity: IntArray) -> IntArray:
    """Score a resource by the share that is requested, rounded down."""
    return share(np.where(requested > capacity, 0, requested), capacity)
