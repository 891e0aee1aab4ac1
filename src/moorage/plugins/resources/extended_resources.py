"""Extended resources backed by devices: which device class backs a resource name.

A container may request devices as an extended resource. If a node does not have that resource itself, a device class of that
name can back it: DynamicResources then decides the request, and NodeResourcesFit leaves it out.

Source  kube-scheduler 1.36: dynamic-resource-allocation/deviceclass/extendedresourcecache
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.devices import DeviceClass
from moorage.state.cluster import Snapshot

__all__ = ["DEVICE_CLASS_PREFIX", "backs", "device_class_for"]

#: A device class backs the resource of this prefix and the class's name.
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"


def backs(device_class: DeviceClass, resource: str) -> bool:
    """Return whether a device class backs ``resource``, by ``extendedResourceName`` or by the class's own name."""
    return resource in {device_class.spec.extended_resource_name, DEVICE_CLASS_PREFIX + device_class.metadata.name}


def device_class_for(
    resource: str, snapshot: Snapshot, backs: Callable[[DeviceClass, str], bool] = backs
) -> DeviceClass | None:
    """Return the class that backs a resource: the newest, and among equally old ones the first by name."""
    classes = snapshot.objects(DeviceClass)
    found = [c for c in classes.values() if backs(c, resource)] if classes else []
    if not found:
        return None
    newest = max(c.metadata.creation_timestamp or "" for c in found)
    return min((c for c in found if (c.metadata.creation_timestamp or "") == newest), key=lambda c: c.metadata.name)
