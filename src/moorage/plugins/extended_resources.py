"""Extended resources that devices stand behind: which device class answers to a resource name.

A container may ask for devices as it asks for an extended resource. Where a node does not offer that resource itself, a device
class of that name can: then the device plugins judge the request, and NodeResourcesFit leaves it to them.

Source  kube-scheduler 1.36: dynamic-resource-allocation/deviceclass/extendedresourcecache
"""

from __future__ import annotations

from moorage.api.devices import DeviceClass
from moorage.state.cluster import Snapshot

__all__ = ["DEVICE_CLASS_PREFIX", "answers_to", "device_class_for"]

#: Every device class answers to this prefix and its name.
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"


def answers_to(device_class: DeviceClass, resource: str) -> bool:
    """Say whether a class names ``resource`` as its own, or ``resource`` names the class."""
    return resource in {device_class.spec.extended_resource_name, DEVICE_CLASS_PREFIX + device_class.metadata.name}


def device_class_for(resource: str, snapshot: Snapshot) -> DeviceClass | None:
    """Return the class that answers to a resource name; of several the newest, then the one whose name sorts first."""
    classes = snapshot.objects(DeviceClass)
    found = [c for c in classes.values() if answers_to(c, resource)] if classes else []
    if not found:
        return None
    newest = max(c.metadata.creation_timestamp or "" for c in found)
    return min((c for c in found if (c.metadata.creation_timestamp or "") == newest), key=lambda c: c.metadata.name)
