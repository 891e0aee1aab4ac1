"""Slices and their devices, each with the values derived from it once.

A device caches the results of selectors. When its slice is replaced, unchanged devices keep their results.

Source  kube-scheduler 1.36: dynamic-resource-allocation/structured/internal/incubating; cel/compile.go
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from moorage.api.core import Node, NodeSelector
from moorage.api.devices import Device, DeviceAttribute, ResourceSlice
from moorage.api.node_selectors import NodeSelectorMatcher, compile_node_selector
from moorage.api.quantity import parse
from moorage.plugins.devices.meter import CostlyError, Meter

if TYPE_CHECKING:
    from moorage.plugins.devices.device_selectors import Variables

__all__ = ["DeviceId", "DeviceSelectorError", "PoolId", "SelectionError", "SliceDevice", "SliceOffers", "reaches"]

#: Driver, pool, device.
DeviceId = tuple[str, str, str]
#: Driver, pool.
PoolId = tuple[str, str]


class DeviceSelectorError(Exception):
    """A selector failed on a device; the text is kube-scheduler's."""


class SelectionError(Exception):
    """The node selection of a slice is invalid."""


class SliceDevice:
    """One device of a slice."""

    def __init__(self, device: Device, source: ResourceSlice, before: SliceDevice | None = None) -> None:
        """``before``: the previous version of the device, if any."""
        self.device = device
        self.source = source
        self.id: DeviceId = (source.spec.driver, source.spec.pool.name, device.name)
        self.shared = bool(device.allow_multiple_allocations)
        same = before if before is not None and before.id[0] == self.id[0] and before.device == device else None
        self._answers: dict[tuple[str, bool, bool], bool | str | None] = {} if same is None else same._answers
        self._variables: dict[tuple[bool, bool], Variables] = {} if same is None else same._variables

    def __repr__(self) -> str:
        return f"Offer({'/'.join(self.id)})"

    @cached_property
    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """Counter set → counter → nano-units that the device consumes. Entries for the same set add up."""
        taken: dict[str, dict[str, int]] = {}
        for use in self.device.consumes_counters:
            in_set = taken.setdefault(use.counter_set, {})
            for name, counter in use.counters.items():
                in_set[name] = in_set.get(name, 0) + parse(counter.value)
        return taken

    def matches(self, expression: str, lists: bool, shares: bool, meter: Meter) -> bool:
        """Return whether a selector selects the device.

        ``lists``: attributes may be lists of values; ``shares``: the selector sees whether multiple allocations are allowed

        Raises  DeviceSelectorError; CostlyError if the evaluation costs more than the attempt has left
        """
        key = expression, lists, shares
        known = self._answers[key] if key in self._answers else self._ask(key, meter)
        if known is None:
            raise CostlyError(always=True)
        if isinstance(known, str):
            raise DeviceSelectorError(known)
        return known

    def _ask(self, key: tuple[str, bool, bool], meter: Meter) -> bool | str | None:
        """Evaluate a selector and cache the result: an error text if it fails, None if it costs more than any attempt may.

        Raises  CostlyError if it costs more than this attempt has left
        """
        from moorage.plugins.devices import device_selectors  # importing CEL is slow, and most clusters have no devices

        expression, lists, shares = key
        variables = self._variables.get((lists, shares))
        if variables is None:
            variables = self._variables[lists, shares] = device_selectors.variables_of(self.device, self.id[0], lists, shares)
        answer: bool | str | None
        try:
            answer = device_selectors.takes(expression, lists, variables, meter)
        except CostlyError as error:
            if not error.always:
                raise
            answer = None
        self._answers[key] = answer
        return answer

    def attribute(self, name: str) -> DeviceAttribute | None:
        """Return the attribute of a fully qualified name; an attribute without a domain belongs to the driver's domain."""
        found = self.device.attributes.get(name)
        domain, slash, bare = name.partition("/")
        if found is None and slash and domain == self.id[0]:
            found = self.device.attributes.get(bare)
        return found


class SliceOffers:
    """A slice and its devices. ``node`` is the node it names, empty if it selects nodes otherwise."""

    def __init__(self, source: ResourceSlice, before: SliceOffers | None = None) -> None:
        """``before``: the slice that this one replaces, if any."""
        spec = source.spec
        self.source = source
        self.name = source.metadata.name
        self.pool: PoolId = (spec.driver, spec.pool.name)
        self.node = spec.node_name or ""
        self.has_counters = bool(spec.shared_counters)
        self.per_device = bool(spec.per_device_node_selection)
        known = {} if before is None else {offer.device.name: offer for offer in before.offers}
        self.offers: tuple[SliceDevice, ...] = tuple(
            SliceDevice(device, source, known.get(device.name)) for device in spec.devices
        )

    @property
    def generation(self) -> int:
        return self.source.spec.pool.generation

    @cached_property
    def counter_sets(self) -> Mapping[str, Mapping[str, int]]:
        """Counter set → counter → nano-units."""
        return {s.name: {name: parse(c.value) for name, c in s.counters.items()} for s in self.source.spec.shared_counters}

    def is_for(self, node: Node) -> bool | None:
        """Return whether a node may use any device of the slice; None if the slice selects no nodes.

        Raises  SelectionError
        """
        spec = self.source.spec
        if self.node or spec.all_nodes or spec.node_selector is not None:
            return self._reaches(node, self.node, spec.all_nodes, spec.node_selector, "")
        if not self.per_device:
            return None
        for offer in self.offers:
            device = offer.device
            if self._reaches(node, device.node_name or "", device.all_nodes, device.node_selector, device.name):
                return True
        return False

    def _reaches(self, node: Node, name: str, every: bool | None, selector: NodeSelector | None, device: str) -> bool:
        try:
            return reaches(node, name, every, selector)
        except SelectionError as error:
            of = f"device {device} in slice {self.name}" if device else f"slice {self.name}"
            raise SelectionError(f"failed to perform node selection for {of}: {error}") from error


def reaches(node: Node, name: str, every: bool | None, selector: NodeSelector | None) -> bool:
    """Return whether a node selection includes a node: it names the node, means every node, or has a selector that matches.

    Raises  SelectionError
    """
    if name:
        return node.name == name
    if every:
        return True
    if selector is None:
        return False
    matcher = _matcher(selector)
    if matcher.error is not None:
        raise SelectionError(f"failed to parse node selector: {matcher.error}")
    return matcher.matches(node.labels, node.name)


@lru_cache(maxsize=1024)
def _matcher(selector: NodeSelector) -> NodeSelectorMatcher:
    return compile_node_selector(selector)
