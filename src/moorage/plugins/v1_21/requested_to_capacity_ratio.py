"""RequestedToCapacityRatio: score nodes by a function of the utilization of their resources.

The function is linear between its points. Utilization is rounded up to whole percents; a resource that the node does not have
counts as fully used.

Reads     requests of containers and init containers, and overhead; the nodes' allocatable and requested resources
Scores    the weighted mean over the configured resources with a score above 0, rounded to the nearest
Source    kube-scheduler 1.21, plugins/noderesources/requested_to_capacity_ratio.go
"""

from __future__ import annotations

from typing import Self

import numpy as np
from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.points import Reusable, Reuse, Scope, ScorePlugin, Signature
from moorage.plugins.resources.scoring_strategies import UtilizationPoint, shape_faults, sub_path, utilization_table
from moorage.plugins.v1_21.shared.requested_shares import (
    CPU_AND_MEMORY,
    ResourceSpecV121,
    allocation,
    resource_faults,
    scored_signature,
)
from moorage.state.view import IntArray, NodeView, PodInfo


class RequestedToCapacityRatioArgs(PluginArgs, frozen=True):
    """The points of the function, and the resources with their weights. A Policy without resources scores none."""

    shape: tuple[UtilizationPoint, ...] = ()
    resources: tuple[ResourceSpecV121, ...] = CPU_AND_MEMORY

    def completed(self, gates: FeatureGates) -> Self:
        return self if self.resources else structs.replace(self, resources=CPU_AND_MEMORY)

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        found = shape_faults(self.shape, sub_path(path, "shape"), gates.emulated)
        return [*found, *resource_faults(self.resources, path, most=None)]


class RequestedToCapacityRatio(ScorePlugin[PodInfo], Reusable):
    """The plugin; see the module docstring. Its arguments are required: without points there is no function."""

    name = "RequestedToCapacityRatio"
    Args = RequestedToCapacityRatioArgs

    def __init__(self, args: RequestedToCapacityRatioArgs) -> None:
        self._weights = {resource.name: resource.weight for resource in args.resources}
        self._table = utilization_table(args.shape)

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        total, weights = nodes.zeros(), nodes.zeros()
        for resource, weight in self._weights.items():
            scores = self._table[_percent_in_use(*allocation(pod, resource, nodes))]
            total += weight * scores
            weights += weight * (scores > 0)
        weights = np.maximum(weights, 1)
        mean: IntArray = (2 * total + weights) // (2 * weights)
        return mean

    @property
    def reuse(self) -> Reuse:
        return Reuse(Scope.USAGE, self._signature, signature_reads=())

    def _signature(self, pod: PodInfo) -> Signature:
        return scored_signature(pod, list(self._weights))


def _percent_in_use(requested: IntArray, capacity: IntArray) -> IntArray:
    left = np.maximum(capacity - requested, 0)
    percent: IntArray = 100 - left * 100 // np.maximum(capacity, 1)
    return percent
