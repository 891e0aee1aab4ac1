"""The CPU and memory of placed pods with sidecars, as scoring counted them up to 1.31.

NodeResourcesFit scores CPU and memory with a default for each container that requests none. Of a pod's init containers, only
the one that needs the most, with the sidecars before it, counts, where that is more than all containers together.

Source    kube-scheduler 1.31.8, framework/types.go, calculateResource
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from moorage.api.core import Container, Pod, Quantity
from moorage.api.devices import DeviceClass, DeviceRequest, ExactDeviceRequest
from moorage.api.feature_gates import FeatureGates
from moorage.api.names import is_extended_resource_name
from moorage.api.pod_requests import DEFAULT_CPU_MILLI, DEFAULT_MEMORY, amount
from moorage.api.quantity import milli_value, value
from moorage.plugins.devices.extended_resource_claims import (
    ContainerMapping,
    ExtendedRequests,
    ResourceBacking,
    request_name,
    unlisted,
    whole_number,
)
from moorage.plugins.resources.device_backed_scores import DEVICE_CLASS_PREFIX, device_class_for
from moorage.plugins.resources.scoring_strategies import Demand, ResourceSpec
from moorage.plugins.shared.node_numbers import numbers_of
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo, Snapshot


def excess_of(pod: PodInfo) -> tuple[int, int]:
    """Return how much less of the pod's CPU (in millicores) and memory (in bytes) scoring counted up to 1.31 than today."""
    if not any(container.restart_policy == "Always" for container in pod.spec.init_containers):
        return 0, 0
    cpu = _counted(pod, "cpu", DEFAULT_CPU_MILLI)
    memory = _counted(pod, "memory", DEFAULT_MEMORY)
    return pod.needs.nonzero_cpu - cpu, pod.needs.nonzero_memory - memory


def _counted(pod: PodInfo, resource: str, default: int) -> int:
    """Return the larger of all containers together and each init container with the sidecars up to it, plus overhead."""
    together = sum(default if (asked := _asked(one, resource)) is None else asked for one in pod.spec.containers)
    sidecars: int | None = None
    for container in pod.spec.init_containers:
        both = [count for count in (sidecars, _asked(container, resource)) if count is not None]
        needed = sum(both) if both else None
        if container.restart_policy == "Always":
            sidecars = needed
        together = max(together, default if needed is None else needed)
    return together + amount(resource, pod.spec.overhead.get(resource, 0))


def _asked(container: Container, resource: str) -> int | None:
    quantity = container.resources.requests.get(resource)
    return None if quantity is None else amount(resource, quantity)


def _excess_on(node: NodeInfo, which: int) -> int:
    return sum(excess_of(pod)[which] for pod in node.pods if pod.spec.init_containers)


_CPU: Final = numbers_of(lambda node: _excess_on(node, 0))
_MEMORY: Final = numbers_of(lambda node: _excess_on(node, 1))


class SidecarUsageView(NodeView):
    """A view whose CPU and memory with defaults are those that counted up to 1.31."""

    __slots__ = ("_nodes",)
    is_true = False

    def __init__(self, nodes: NodeView) -> None:
        super().__init__(nodes.snapshot, nodes.row_numbers)
        self._nodes = nodes

    @classmethod
    def of(cls, nodes: NodeView) -> NodeView:
        """Return a view of the same rows; the same view if nothing differs on them."""
        index = nodes.snapshot.index
        return cls(nodes) if index(_CPU).of(nodes).any() or index(_MEMORY).of(nodes).any() else nodes

    def only(self, keep: BoolArray) -> SidecarUsageView:
        return SidecarUsageView(self._nodes.only(keep))

    @property
    def nonzero_cpu(self) -> IntArray:
        return super().nonzero_cpu - self.snapshot.index(_CPU).of(self._nodes)

    @property
    def nonzero_memory(self) -> IntArray:
        return super().nonzero_memory - self.snapshot.index(_MEMORY).of(self._nodes)


# -- cpu overhead ------------------------------------------------------------------------------------------------------
# What scoring counted otherwise: up to 1.26 a pod's CPU overhead in whole cores, up to 1.24 local storage behind a gate.
#
# Source  kube-scheduler 1.26.15 and 1.24.17, plugins/noderesources/resource_allocation.go, calculatePodResourceRequest


def overhead_of(pod: PodInfo) -> Quantity:
    """Return the CPU overhead of a pod; 0 without any."""
    return pod.spec.overhead.get("cpu", 0)


def with_overhead_in_cores(demands: Iterable[Demand], pod: PodInfo) -> tuple[Demand, ...]:
    """Return the demands of a pod with its CPU overhead counted in cores, rounded up, instead of millicores."""
    overhead = overhead_of(pod)
    more = value(overhead) - milli_value(overhead)
    return tuple(one._replace(amount=one.amount + more) if one.resource == "cpu" else one for one in demands)


def without_overhead(demands: Iterable[Demand], pod: PodInfo) -> tuple[Demand, ...]:
    """Return demands in which the overhead counts in whole units, without it."""
    overhead = pod.spec.overhead
    return tuple(one._replace(amount=one.amount - value(overhead.get(one.resource, 0))) for one in demands)


def without_storage(resources: Iterable[ResourceSpec], gates: FeatureGates) -> tuple[ResourceSpec, ...]:
    """Return the resources to score; without local storage while its gate is off, as nodes then have none."""
    return tuple(one for one in resources if one.name != "ephemeral-storage" or gates["LocalStorageCapacityIsolation"])


# -- resource backing --------------------------------------------------------------------------------------------------
# Extended resources backed by devices in 1.34, where the gate DRAExtendedResource opens them.
#
# A device class with an ``extendedResourceName`` has no other name, and the name of a class itself is no extended resource. A
# node that lists a resource, even none of it, provides it itself; its claim still requests devices for it if the pod has other
# claims or needs devices for another resource. Containers do not share devices.
#
# Source  kube-scheduler 1.34.7: plugins/dynamicresources/dynamicresources.go, filterExtendedResources, createDeviceRequests;
#         extended/extended.go


def backs_by_one_name(device_class: DeviceClass, resource: str) -> bool:
    """Return whether a device class backs ``resource``, by its ``extendedResourceName`` or else by its own name."""
    return resource == (device_class.spec.extended_resource_name or DEVICE_CLASS_PREFIX + device_class.metadata.name)


class ResourceBackingV134(ResourceBacking):
    """The rule of 1.34."""

    def can_be_backed(self, resource: str) -> bool:
        return is_extended_resource_name(resource)

    def device_class(self, resource: str, snapshot: Snapshot) -> DeviceClass | None:
        return device_class_for(resource, snapshot, backs_by_one_name) if self.can_be_backed(resource) else None

    def needs_devices(self, resource: str, nodes: NodeView) -> BoolArray:
        return unlisted(resource, nodes)

    def requests(self, pod: Pod, here: Mapping[str, str], backed: Mapping[str, str]) -> ExtendedRequests:
        found = sorted(_requested(pod, backed), key=lambda one: one[0].name)
        return ExtendedRequests(tuple(request for request, _ in found), tuple(mapping for _, mapping in found))


def _requested(pod: Pod, backed: Mapping[str, str]) -> Iterator[tuple[DeviceRequest, ContainerMapping]]:
    for at, container in enumerate([*pod.spec.init_containers, *pod.spec.containers]):
        asked = container.resources.requests
        for resource, device_class in backed.items():
            count = whole_number(asked[resource]) if resource in asked else 0
            if count:
                name = request_name(at, resource, asked)
                exactly = ExactDeviceRequest(device_class_name=device_class, allocation_mode="ExactCount", count=count)
                yield DeviceRequest(name=name, exactly=exactly), ContainerMapping(container.name, resource, name)
