"""Device counts: how many devices of a class each node has, and how many of them are allocated.

NodeResourcesFit scores extended resources backed by devices with these counts. They are coarse: slices of earlier generations,
incomplete pools and tainted devices count, and a share counts as a whole device. A node where a selector of the class fails on
some device counts as having none.

Source  kube-scheduler 1.36: noderesources/resource_allocation.go, calculateDRAResourceTotals. Its balanced allocation crashes
        if a class has selectors (it has no CEL cache there); Moorage evaluates them as for NodeResourcesFit
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.cel.list_attributes import Lists
from moorage.api.core import Node
from moorage.api.devices import DeviceClass
from moorage.errors import AttemptError
from moorage.plugins.devices.claim_shapes import DeviceState
from moorage.plugins.devices.meter import CostlyError, Meter
from moorage.plugins.devices.pools import DeviceSelectorError, SelectionError, SliceDevice, SliceOffers, reaches
from moorage.state.view import IntArray, NodeView

Floats = npt.NDArray[np.float64]


class DeviceCounts(NamedTuple):
    """Devices of a class, all and allocated; shapes (n,), one entry per row of the view."""

    seen: IntArray
    held: IntArray


def count_devices(device_class: DeviceClass, nodes: NodeView, *, lists: Lists) -> DeviceCounts:
    """Count the devices of a class.

    Raises  AttemptError if the selectors of the class cost more than an attempt may spend
    """
    device_state = nodes.snapshot.index(DeviceState)
    device_state.follow()
    meter = Meter(device_state.selectors)
    table = nodes.table
    counts = np.zeros((2, len(nodes)), dtype=np.int64)
    for at, row in enumerate(nodes.row_numbers.tolist()):
        node = table.nodes[row]
        try:
            found = [
                offer
                for held in device_state.catalog.slices_near(node)
                for offer in _for_node(held, node)
                if _is_of(offer, device_class, lists, meter)
            ]
        except (SelectionError, DeviceSelectorError):
            continue
        except CostlyError as error:
            raise AttemptError("", f"class {device_class.name}: counting its devices on nodes: {error}") from None
        counts[:, at] = len(found), sum(device_state.ledger.is_held(offer.id, shares=False) for offer in found)
    return DeviceCounts(counts[0], counts[1])


def _for_node(held: SliceOffers, node: Node) -> Iterable[SliceDevice]:
    if held.per_device:
        return [o for o in held.offers if reaches(node, o.device.node_name or "", o.device.all_nodes, o.device.node_selector)]
    return held.offers if held.is_for(node) else ()


def _is_of(offer: SliceDevice, device_class: DeviceClass, lists: Lists, meter: Meter) -> bool:
    # As in kube-scheduler, selectors do not see here whether a device allows multiple allocations.
    expressions = (selector.cel.expression for selector in device_class.spec.selectors if selector.cel is not None)
    return all(offer.matches(expression, lists, shares=False, meter=meter) for expression in expressions)


class DeviceCountView(NodeView):
    """A view that also counts devices as allocatable, on nodes without the extended resource itself.

    ``classes``: resource → the device class that backs it
    """

    __slots__ = ("_base", "_device_counts")
    is_true = False

    def __init__(self, base: NodeView, classes: Mapping[str, DeviceClass], *, lists: Lists) -> None:
        super().__init__(base.snapshot, base.rows)
        self._base = base
        self._device_counts = {name: count_devices(device_class, base, lists=lists) for name, device_class in classes.items()}

    def allocatable(self, resource: str) -> IntArray:
        own, devices = self._base.allocatable(resource), self._device_counts.get(resource)
        return own if devices is None else np.where(own == 0, devices.seen, own)

    def requested(self, resource: str) -> IntArray:
        own, devices = self._base.requested(resource), self._device_counts.get(resource)
        if devices is None:
            return own
        return np.where((self._base.allocatable(resource) == 0) & (devices.seen > 0), devices.held, own)

    def divisors(self, resource: str) -> Floats:
        if resource in self._device_counts:
            return np.maximum(self.allocatable(resource), 1).astype(np.float64)
        return self._base.divisors(resource)

    def exact_divisors(self, resource: str) -> Floats | None:
        return None if resource in self._device_counts else self._base.exact_divisors(resource)

    def is_offered_everywhere(self, resource: str) -> bool:
        return resource not in self._device_counts and self._base.is_offered_everywhere(resource)

    @property
    def nonzero_cpu(self) -> IntArray:
        return self._base.nonzero_cpu

    @property
    def nonzero_memory(self) -> IntArray:
        return self._base.nonzero_memory
