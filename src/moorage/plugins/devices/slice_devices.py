"""What slices offer: devices, each with what is worked out of it once.

A device remembers what selectors answered about it. Where its slice is replaced, the answers stay if the device is as it was.

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
    """A selector that has no answer for a device; the text is kube-scheduler's."""


class SelectionError(Exception):
    """A slice that does not say which nodes it is for in a way that can be read."""


class SliceDevice:
    """One device of a slice."""

    def __init__(self, device: Device, source: ResourceSlice, before: SliceDevice | None = None) -> None:
        """``before``: what was known of the device until now."""
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
        """Counter set → counter → nano-units that the device takes of it. The same set named twice adds up."""
        taken: dict[str, dict[str, int]] = {}
        for use in self.device.consumes_counters:
            in_set = taken.setdefault(use.counter_set, {})
            for name, counter in use.counters.items():
                in_set[name] = in_set.get(name, 0) + parse(counter.value)
        return taken

    def matches(self, expression: str, lists: bool, shares: bool, meter: Meter) -> bool:
        """Say whether a selector takes the device.

        ``lists``   attributes may be lists of values; ``shares``: the selector is told if the device may be given several times

        Raises  SelectorError; CostlyError if finding out costs more than the attempt has left
        """
        key = expression, lists, shares
        known = self._answers[key] if key in self._answers else self._ask(key, meter)
        if known is None:
            raise CostlyError(always=True)
        if isinstance(known, str):
            raise DeviceSelectorError(known)
        return known

    def _ask(self, key: tuple[str, bool, bool], meter: Meter) -> bool | str | None:
        """Find out and remember what a selector says; a text where it has no answer, None if that is too much for any attempt.

        Raises  CostlyError if it is too much for this one
        """
        from moorage.plugins.devices import device_selectors  # CEL takes long to import, and most clusters have no devices

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
        """Return the attribute of a fully qualified name; one without a domain of its own belongs to the driver."""
        found = self.device.attributes.get(name)
        domain, slash, bare = name.partition("/")
        if found is None and slash and domain == self.id[0]:
            found = self.device.attributes.get(bare)
        return found


class SliceOffers:
    """A slice and its devices. ``node`` is the one node it is for, empty if it is for others or several."""

    def __init__(self, source: ResourceSlice, before: SliceOffers | None = None) -> None:
        """``before``: the slice that this one replaces."""
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
        """Say whether any device may be for a node; None if the slice does not say what it is for.

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
    """Say whether a node is the one named, or any will do, or the selector takes it.

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
