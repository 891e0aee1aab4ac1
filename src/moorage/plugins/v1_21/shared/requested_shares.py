"""The requested shares of a node's resources with the pod added, which the resource scores of 1.21 use.

``AllocationScore`` is the common part of NodeResourcesLeastAllocated and NodeResourcesMostAllocated: all but the score of one
resource.

Every configured resource counts, whether or not the pod requests it and the node has it. This is the main difference from the
current scoring strategies.

Source  kube-scheduler 1.21, plugins/noderesources/resource_allocation.go; util/non_zero.go
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Self

import msgspec
import numpy as np
from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.api.pod_requests import amount, is_counted
from moorage.api.quantity import value
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.points import Reusable, Reuse, Scope, ScorePlugin, Signature
from moorage.plugins.resources.scoring_strategies import sub_path
from moorage.state.view import IntArray, NodeView, PodInfo

#: ``score(requested, capacity)`` of one resource; shapes (n,) and (n,), returns (n,), int64. Capacity may be 0.
Score = Callable[[IntArray, IntArray], IntArray]


class ResourceSpecV121(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A resource to score and its weight. Unlike in the current release, a missing weight is invalid."""

    name: str = ""
    weight: int = 0


CPU_AND_MEMORY: Final = (ResourceSpecV121(name="cpu", weight=1), ResourceSpecV121(name="memory", weight=1))


class AllocationArgs(PluginArgs, frozen=True):
    """The resources to score and their weights."""

    resources: tuple[ResourceSpecV121, ...] = CPU_AND_MEMORY

    def completed(self, gates: FeatureGates) -> Self:
        return self if self.resources else structs.replace(self, resources=CPU_AND_MEMORY)

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return resource_faults(self.resources, path)


class AllocationScore(ScorePlugin[PodInfo], Reusable):
    """Scores a node by the weighted mean of its resources' scores."""

    Args: type[AllocationArgs]
    rate: Score

    def __init__(self, args: AllocationArgs | None = None) -> None:
        self._resources = (args or self.Args()).resources

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        return weighted_mean(self.rate, self._resources, pod, nodes)

    @property
    def reuse(self) -> Reuse:
        return Reuse(Scope.USAGE, self._signature, signature_reads=())

    def _signature(self, pod: PodInfo) -> Signature:
        return scored_signature(pod, [resource.name for resource in self._resources])


def scored_request(pod: PodInfo, resource: str) -> int:
    """Return the requested amount of one resource that scoring assumes. As in 1.21, CPU overhead counts in whole cores."""
    needs, overhead = pod.needs, pod.spec.overhead.get(resource, 0)
    with_defaults = {"cpu": needs.nonzero_cpu, "memory": needs.nonzero_memory}
    requested = with_defaults.get(resource, needs.requests.get(resource, 0))
    return requested + value(overhead) - amount(resource, overhead)


def allocation(pod: PodInfo, resource: str, nodes: NodeView) -> tuple[IntArray, IntArray]:
    """Return the requested amount of a resource with the pod added, and the allocatable amount; shapes (rows,)."""
    if not is_counted(resource):
        return nodes.zeros(), nodes.zeros()
    requested = scored_request(pod, resource)
    if resource == "cpu":
        return nodes.nonzero_cpu + requested, nodes.allocatable(resource)
    if resource == "memory":
        return nodes.nonzero_memory + requested, nodes.allocatable(resource)
    return nodes.requested(resource) + requested, nodes.allocatable(resource)


def weighted_mean(score: Score, resources: Sequence[ResourceSpecV121], pod: PodInfo, nodes: NodeView) -> IntArray:
    """Return the mean of the resources' scores, rounded down. A resource listed twice counts once, with its last weight."""
    weights = {resource.name: resource.weight for resource in resources}
    total = nodes.zeros()
    for resource, weight in weights.items():
        total += weight * score(*allocation(pod, resource, nodes))
    mean: IntArray = total // max(sum(weights.values()), 1)
    return mean


def scored_signature(pod: PodInfo, resources: Sequence[str]) -> Signature:
    """Return the values that such a score reads of a pod."""
    return {f"scored {name}, added up as in 1.21": scored_request(pod, name) for name in dict.fromkeys(resources)}


def resource_faults(resources: Sequence[ResourceSpecV121], path: str, most: int | None = 100) -> list[Fault]:
    """Return a fault for each weight below 1 or above ``most`` (None: no upper bound)."""
    span = "[1, inf)" if most is None else f"(0, {most}]"
    return [
        Fault(
            "Invalid value",
            sub_path(path, f"resources[{i}].weight"),
            f"resource weight of {resource.name} not in valid range {span}",
            resource.weight,
        )
        for i, resource in enumerate(resources)
        if resource.weight < 1 or (most is not None and resource.weight > most)
    ]


def share(part: IntArray, capacity: IntArray) -> IntArray:
    """Return ``part`` as a percentage of the capacity, rounded down; 0 where there is no capacity."""
    percent: IntArray = np.where(capacity == 0, 0, part * 100 // np.maximum(capacity, 1))
    return percent
