"""Scoring of pods that request devices through an extended resource: a node's allocatable is the number of its devices.

Source  kube-scheduler 1.36: noderesources/resource_allocation.go, calculateResourceAllocatableRequest
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from moorage.api.cel.list_attributes import Lists
from moorage.api.devices import DeviceClass
from moorage.api.feature_gates import FeatureGates
from moorage.plugins.devices.device_counts import DeviceCountView
from moorage.plugins.devices.selector_lists import lists_in_selectors
from moorage.plugins.resources.scoring_strategies import Demand
from moorage.state.view import NodeInfo, NodeView, Snapshot

# Extended resources backed by devices: which device class backs a resource name.
#
# A container may request devices as an extended resource. If a node does not have that resource itself, a device class of that
# name can back it: DynamicResources then decides the request, and NodeResourcesFit leaves it out.
#
# Source  kube-scheduler 1.36: dynamic-resource-allocation/deviceclass/extendedresourcecache

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


#: Resources that devices never back.
NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


class DeviceBackedDemands(NamedTuple):
    """The resources to score, and the device classes that back some of them (resource → class)."""

    demands: tuple[Demand, ...]
    classes: Mapping[str, DeviceClass]
    lists: Lists
    snapshot: Snapshot

    def among(self, nodes: NodeView) -> DeviceCountView:
        """Return the view to score: its counts include the devices of the nodes."""
        return DeviceCountView(nodes, self.classes, lists=self.lists)

    def on(self, node: NodeInfo) -> DeviceCountView:
        """Return the view of a single node to score."""
        return self.among(NodeView(self.snapshot, np.array([node.row], dtype=np.intp)))


#: The PreScore state: plain demands, or demands that devices back.
ScoredDemands = tuple[Demand, ...] | DeviceBackedDemands


def with_devices(demands: tuple[Demand, ...], snapshot: Snapshot, gates: FeatureGates) -> ScoredDemands:
    """Add the device classes that back the requested resources, if there are any."""
    if not snapshot.objects(DeviceClass):
        return demands
    classes = classes_behind([demand.resource for demand in demands], snapshot, gates)
    return DeviceBackedDemands(demands, classes, lists_in_selectors(gates), snapshot) if classes else demands


def without_devices(scored: ScoredDemands) -> tuple[Demand, ...]:
    """Return the plain demands: up to 1.34 devices do not count in scores."""
    return scored.demands if isinstance(scored, DeviceBackedDemands) else scored


def classes_behind(resources: Iterable[str], snapshot: Snapshot, gates: FeatureGates) -> Mapping[str, DeviceClass]:
    """Return resource → the device class that backs it, without resources that no class backs."""
    if not gates["DRAExtendedResource"] or not snapshot.objects(DeviceClass):
        return {}
    found = {name: device_class_for(name, snapshot) for name in resources if name not in NATIVE}
    return {name: device_class for name, device_class in found.items() if device_class is not None}
