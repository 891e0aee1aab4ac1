"""The resource pools of one node: the devices that can be allocated, in the order they are tried.

A pool is published by a driver under one name, in slices of one generation. It is usable only if all its slices exist and are
consistent. Devices are tried by driver, pool and slice name; pools with binding conditions come last.

Source  kube-scheduler 1.36: structured/internal/incubating/pools_incubating.go, GatherPools
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from moorage.api.cel.list_attributes import Lists
from moorage.api.core import Node, NodeSelector
from moorage.api.devices import Device, DeviceAttribute, DeviceTaint, ResourceSlice
from moorage.api.node_selectors import NodeSelectorMatcher, compile_node_selector
from moorage.api.quantity import QuantityError, parse
from moorage.plugins.devices.meter import CostlyError, Meter

if TYPE_CHECKING:
    from moorage.plugins.devices.device_selectors import Variables


# Slices and their devices, each with the values derived from it once.
#
# A device caches the results of selectors. When its slice is replaced, unchanged devices keep their results.
#
# Source  kube-scheduler 1.36: dynamic-resource-allocation/structured/internal/incubating; cel/compile.go

#: Driver, pool, device.
DeviceId = tuple[str, str, str]
#: Driver, pool.
PoolId = tuple[str, str]
#: The taints that rules add to devices of a slice: each with the name of the device, None for all.
SliceTaints = tuple[tuple[str | None, DeviceTaint], ...]


class DeviceSelectorError(Exception):
    """A selector failed on a device; the text is kube-scheduler's."""


class SelectionError(Exception):
    """The node selection of a slice is invalid."""


class SliceDevice:
    """One device of a slice."""

    def __init__(
        self, device: Device, source: ResourceSlice, before: SliceDevice | None = None, taints: SliceTaints = ()
    ) -> None:  # fmt: skip
        """``before``: the previous version of the device, if any; ``taints`` are added to its own."""
        self.device = device
        self.source = source
        self.taints = (*device.taints, *(taint for name, taint in taints if name in {None, device.name}))
        self.id: DeviceId = (source.spec.driver, source.spec.pool.name, device.name)
        self.shared = bool(device.allow_multiple_allocations)
        same = before if before is not None and before.id[0] == self.id[0] and before.device == device else None
        self._answers: dict[tuple[str, Lists, bool], bool | str | None] = {} if same is None else same._answers
        self._variables: dict[tuple[Lists, bool], Variables] = {} if same is None else same._variables

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

    def matches(self, expression: str, lists: Lists, shares: bool, meter: Meter) -> bool:
        """Return whether a selector selects the device.

        ``shares``: the selector sees whether multiple allocations are allowed

        Raises  DeviceSelectorError; CostlyError if the evaluation costs more than the attempt has left
        """
        key = expression, lists, shares
        known = self._answers[key] if key in self._answers else self._ask(key, meter)
        if known is None:
            raise CostlyError(always=True)
        if isinstance(known, str):
            raise DeviceSelectorError(known)
        return known

    def _ask(self, key: tuple[str, Lists, bool], meter: Meter) -> bool | str | None:
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

    def __init__(self, source: ResourceSlice, before: SliceOffers | None = None, taints: SliceTaints = ()) -> None:
        """``before``: the slice that this one replaces, if any."""
        spec = source.spec
        self.source, self.taints = source, taints
        self.name = source.metadata.name
        self.pool: PoolId = (spec.driver, spec.pool.name)
        self.node = spec.node_name or ""
        self.has_counters = bool(spec.shared_counters)
        self.per_device = bool(spec.per_device_node_selection)
        known = {} if before is None else {offer.device.name: offer for offer in before.offers}
        self.offers: tuple[SliceDevice, ...] = tuple(
            SliceDevice(device, source, known.get(device.name), taints) for device in spec.devices
        )

    @cached_property
    def has_groups(self) -> bool:
        """Whether a device has compatibility groups."""
        return any(use.compatibility_groups for offer in self.offers for use in offer.device.consumes_counters)

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


class PoolRule(NamedTuple):
    """Which slices matter to a node, and which pools it can use.

    ``any``             any pool, also one without all its slices, as up to 1.34; otherwise complete ones
    ``ungrouped``       slices with compatibility groups are passed over, which leaves their pools incomplete
    ``near_counters``   a slice with shared counters matters to the nodes that it selects, as any other one, and is looked up
                        for a pool of which a node has other slices; otherwise it matters to every node
    """

    any: bool = False
    ungrouped: bool = False
    near_counters: bool = False


#: The rule of 1.35 and 1.36.
COMPLETE: Final = PoolRule()


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """``offers``: devices for the node; ``others``: devices elsewhere on the same counters. ``flaw``: why it is invalid.

    ``by_slice``  slice → its counter sets, where devices consume only the counters of their own slice
    """

    id: PoolId
    offers: tuple[SliceDevice, ...] = ()
    others: tuple[SliceDevice, ...] = ()
    counter_sets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    by_slice: Mapping[str, Mapping[str, Mapping[str, int]]] | None = None
    is_incomplete: bool = False
    flaw: str = ""

    @property
    def is_usable(self) -> bool:
        return not self.is_incomplete and not self.flaw


class DeviceCandidate(NamedTuple):
    """A device that can be allocated."""

    offer: SliceDevice
    pool: Pool


@dataclass(frozen=True, slots=True, eq=False)
class NodePools:
    """All pools of a node. ``excluded``: devices whose own node selection excludes the node."""

    pools: tuple[Pool, ...]
    candidates: tuple[DeviceCandidate, ...]
    excluded: frozenset[DeviceId] = frozenset()
    error: str = ""

    @property
    def ids(self) -> list[PoolId]:
        return [pool.id for pool in self.pools]

    @property
    def any_flawed(self) -> bool:
        return any(pool.flaw for pool in self.pools)


def gather(
    node: Node,
    slices: Iterable[SliceOffers],
    slices_of: Callable[[PoolId], Sequence[SliceOffers]],
    partitions: bool,
    rule: PoolRule,
) -> NodePools:
    """Gather the pools of a node from the slices that may be for it; ``slices_of`` returns all slices of a pool.

    ``partitions``: devices may share counters (gate ``DRAPartitionableDevices``). ``rule`` makes a pool of its slices for the
    node and of all its slices.
    """
    found: dict[PoolId, list[SliceOffers]] = {}
    made = _any_pool if rule.any else _complete_pool
    try:
        for held in slices:
            if not (rule.ungrouped and held.has_groups) and _matters(held, node, partitions, rule):
                _add(found, held)
        everywhere = {of: [one for one in slices_of(of) if not (rule.ungrouped and one.has_groups)] for of in found}
        pools = _in_order([made(of, held, everywhere[of], partitions) for of, held in found.items()])
    except (SelectionError, QuantityError) as error:
        return NodePools((), (), error=f"gather pool information: {error}")
    candidates = tuple([DeviceCandidate(offer, pool) for pool in pools if not pool.flaw for offer in pool.offers])
    return NodePools(pools, candidates, _excluded(node, chain.from_iterable(found.values())))


def _in_order(pools: list[Pool | None]) -> tuple[Pool, ...]:
    """Sort by driver and name; pools with binding conditions come last."""

    def place(pool: Pool) -> tuple[bool, PoolId]:
        return pool.is_usable and any(offer.device.binding_conditions for offer in pool.offers), pool.id

    return tuple(sorted([pool for pool in pools if pool is not None], key=place))


def _matters(held: SliceOffers, node: Node, partitions: bool, rule: PoolRule) -> bool:
    """Return whether a node needs a slice, for its devices or for its shared counters. Up to 1.34 counters do not matter."""
    spec = held.source.spec
    if rule.any:
        return (partitions or spec.per_device_node_selection is None) and bool(held.is_for(node))
    if not partitions and (spec.per_device_node_selection is not None or held.has_counters):
        return False
    return (held.has_counters and not rule.near_counters) or bool(held.is_for(node))


def _add(found: dict[PoolId, list[SliceOffers]], held: SliceOffers) -> None:
    """Add a slice; a newer generation replaces all older slices of the pool."""
    known = found.get(held.pool)
    if known is None or held.generation > known[0].generation:
        found[held.pool] = [held]
    elif held.generation == known[0].generation:
        known.append(held)


def _complete_pool(
    pool_id: PoolId, slices: list[SliceOffers], everywhere: Sequence[SliceOffers], partitions: bool
) -> Pool | None:
    """Return the pool, without devices if slices are missing; None if a newer generation has nothing for the node."""
    wanted = slices[0].source.spec.pool.resource_slice_count
    generation = slices[0].generation
    others: list[SliceOffers] = []
    if len(slices) != wanted:
        if any(held.generation > generation for held in everywhere):
            return None
        current = [held for held in everywhere if held.generation == generation]
        if len(current) != wanted:
            return Pool(pool_id, is_incomplete=True)
        names = {held.name for held in slices}
        others = [held for held in current if held.name not in names]
    return _checked(pool_id, sorted(slices, key=lambda held: held.name), others, partitions)


def _any_pool(pool_id: PoolId, slices: list[SliceOffers], everywhere: Sequence[SliceOffers], partitions: bool) -> Pool | None:
    """Return the pool as up to 1.34: its devices can be used although slices are missing, or are for other nodes.

    Source  kube-scheduler 1.34.7: structured/internal/incubating/pools_incubating.go, GatherPools
    """
    by_slice = {held.name: held.counter_sets for held in slices} if partitions else None
    offers = tuple(chain.from_iterable(held.offers for held in sorted(slices, key=lambda held: held.name)))
    flaw = _duplicate("device name", [offer.device.name for offer in offers])
    is_incomplete = len(slices) != slices[0].source.spec.pool.resource_slice_count
    return Pool(pool_id, offers, by_slice=by_slice, is_incomplete=is_incomplete, flaw=flaw)


def _checked(pool_id: PoolId, slices: list[SliceOffers], others: list[SliceOffers], partitions: bool) -> Pool:
    """Build the pool and check its consistency."""
    with_devices = [held for held in slices if not (partitions and held.has_counters)]
    offers = tuple(chain.from_iterable(held.offers for held in with_devices))
    flaw = _duplicate("device name", [offer.device.name for offer in offers])
    if flaw or not partitions:
        return Pool(pool_id, offers, flaw=flaw)
    with_counters = [held for held in (*slices, *others) if held.has_counters]
    sets = [(name, counters) for held in with_counters for name, counters in held.counter_sets.items()]
    declared = [s.name for held in with_counters for s in held.source.spec.shared_counters]
    counter_sets = dict(sets)
    flaw = _duplicate("counter set name", declared) or _undeclared(counter_sets, slices) or _undeclared(counter_sets, others)
    elsewhere = tuple(chain.from_iterable(held.offers for held in others))
    return Pool(pool_id, offers, elsewhere, counter_sets, flaw=flaw)


def _duplicate(what: str, names: list[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"duplicate {what} {name}"
        seen.add(name)
    return ""


def _undeclared(counter_sets: Mapping[str, Mapping[str, int]], slices: list[SliceOffers]) -> str:
    for offer in chain.from_iterable(held.offers for held in slices):
        for set_name, counters in offer.counters.items():
            if set_name not in counter_sets:
                return f"counter set {set_name} not found"
            for name in counters:
                if name not in counter_sets[set_name]:
                    return f"counter {name} not found in counter set {set_name}"
    return ""


def _excluded(node: Node, slices: Iterable[SliceOffers]) -> frozenset[DeviceId]:
    """Return the devices with their own node selection that excludes this node."""
    return frozenset(offer.id for held in slices if held.per_device for offer in held.offers if not _reached(node, offer))


def _reached(node: Node, offer: SliceDevice) -> bool:
    device = offer.device
    try:
        return reaches(node, device.node_name or "", device.all_nodes, device.node_selector)
    except SelectionError:
        return False
