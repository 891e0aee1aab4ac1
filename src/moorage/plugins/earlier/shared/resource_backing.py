"""Extended resources backed by devices in 1.34, where the gate DRAExtendedResource opens them.

A device class with an ``extendedResourceName`` has no other name, and the name of a class itself is no extended resource. A
node that lists a resource, even none of it, provides it itself; its claim still requests devices for it if the pod has other
claims or needs devices for another resource. Containers do not share devices.

Source  kube-scheduler 1.34.7: plugins/dynamicresources/dynamicresources.go, filterExtendedResources, createDeviceRequests;
        extended/extended.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moorage.api.core import Pod
from moorage.api.devices import DeviceClass, DeviceRequest, ExactDeviceRequest
from moorage.api.names import is_extended_resource_name
from moorage.plugins.devices.extended_resource_claims import ContainerMapping, ExtendedRequests, request_name, whole_number
from moorage.plugins.devices.resource_backing import ResourceBacking, unlisted
from moorage.plugins.resources.device_backed_scores import DEVICE_CLASS_PREFIX, device_class_for
from moorage.state.view import BoolArray, NodeView, Snapshot


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
