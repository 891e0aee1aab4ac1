"""The requested shares of a node's resources with the pod added, which the resource scores of 1.21 use.

``AllocationScore`` is the common part of NodeResourcesLeastAllocated and NodeResourcesMostAllocated: all but the score of one
resource.

Every configured resource counts, whether or not the pod requests it and the node has it. This is the main difference from the
current scoring strategies.

Source  kube-scheduler 1.21, plugins/noderesources/resource_allocation.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import msgspec
import numpy as np
from msgspec import structs

from moorage.api.meta import ResourceList
from moorage.api.quantity import value
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.feature_gates import FeatureGates
from moorage.framework.points import Reusable, Reuse, Scope, ScorePlugin, Signature
from moorage.plugins.resources.scoring_strategies import sub_path
from moorage.state.pod_requests import DEFAULT_CPU_MILLI, DEFAULT_MEMORY, amount, is_counted
from moorage.state.view import IntArray, NodeView, PodInfo

# -- pod requests 1 21 -------------------------------------------------------------------------------------------------
# The requests of a pod as 1.21 sums them: container by container, each rounded up, without sidecars or pod-level requests.
#
# Two more details differ from the current sums. A request of zero is kept, because a pod that names a resource is checked
# against it. And scoring reads a pod's CPU overhead as whole cores instead of millicores, as 1.21 did.
#
# Source  kube-scheduler 1.21: framework/types.go, Resource.Add and SetMaxResource; plugins/noderesources/fit.go and
#         resource_allocation.go; util/non_zero.go

#: The requests that scoring assumes for a container that names none.
_DEFAULT_REQUESTS: Final[Mapping[str, int]] = {"cpu": DEFAULT_CPU_MILLI, "memory": DEFAULT_MEMORY}


def fit_requests(pod: PodInfo) -> dict[str, int]:
    """Return what must be free on a node. Units as in ``PodRequests``; requests of 0 that the pod names are included."""
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        _add(total, container.resources.requests)
    for container in pod.spec.init_containers:
        for name, count in _counted(container.resources.requests):
            if count > total.get(name, 0):
                total[name] = count
    _add(total, pod.spec.overhead)
    return total


def _add(total: dict[str, int], requests: ResourceList) -> None:
    for name, count in _counted(requests):
        total[name] = total.get(name, 0) + count


def _counted(requests: ResourceList) -> list[tuple[str, int]]:
    return [(name, amount(name, quantity)) for name, quantity in requests.items() if is_counted(name)]


def scored_request(pod: PodInfo, resource: str) -> int:
    """Return the requested amount of one resource that scoring assumes."""
    if not is_counted(resource):
        requested = 0
    else:
        requested = sum(_named(container.resources.requests, resource) for container in pod.spec.containers)
        for container in pod.spec.init_containers:
            requested = max(requested, _named(container.resources.requests, resource))
    overhead = pod.spec.overhead.get(resource)
    return requested if overhead is None else requested + value(overhead)


def _named(requests: ResourceList, resource: str) -> int:
    quantity = requests.get(resource)
    return _DEFAULT_REQUESTS.get(resource, 0) if quantity is None else amount(resource, quantity)


# -- requested shares --------------------------------------------------------------------------------------------------

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
