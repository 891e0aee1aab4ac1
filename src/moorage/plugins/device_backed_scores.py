"""Scores of pods that ask for devices under an extended resource's name: nodes offer what the devices behind the name come to.

Source  kube-scheduler 1.36: noderesources/resource_allocation.go, calculateResourceAllocatableRequest
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from moorage.api.devices import DeviceClass
from moorage.framework.features import FeatureGates
from moorage.plugins.devices.device_counts import StockedView
from moorage.plugins.extended_resources import device_class_for
from moorage.plugins.scoring_strategies import Demand
from moorage.state.cluster import Snapshot
from moorage.state.view import NodeInfo, NodeView

__all__ = ["NATIVE", "Backed", "Counted", "backed", "classes_behind"]

#: Resources that no device stands behind.
NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


class Backed(NamedTuple):
    """Resources that count, some of which devices stand behind: resource → class."""

    demands: tuple[Demand, ...]
    classes: Mapping[str, DeviceClass]
    lists: bool
    snapshot: Snapshot

    def among(self, nodes: NodeView) -> StockedView:
        """Return the nodes as they are to be scored."""
        return StockedView(nodes, self.classes, lists=self.lists)

    def on(self, node: NodeInfo) -> StockedView:
        """Return a single node as it is to be scored."""
        return self.among(NodeView(self.snapshot, np.array([node.row], dtype=np.intp)))


#: What PreScore leaves for Score.
Counted = tuple[Demand, ...] | Backed


def backed(demands: tuple[Demand, ...], snapshot: Snapshot, gates: FeatureGates) -> Counted:
    """Add the device classes that stand behind what a pod asks for, if there are any."""
    classes = classes_behind([demand.resource for demand in demands], snapshot, gates)
    return Backed(demands, classes, gates["DRAListTypeAttributes"], snapshot) if classes else demands


def classes_behind(resources: Iterable[str], snapshot: Snapshot, gates: FeatureGates) -> Mapping[str, DeviceClass]:
    """Return the device classes that answer to the names of resources."""
    if not gates["DRAExtendedResource"] or not snapshot.objects(DeviceClass):
        return {}
    found = {name: device_class_for(name, snapshot) for name in resources if name not in NATIVE}
    return {name: device_class for name, device_class in found.items() if device_class is not None}
