"""The resource pools of one node: the devices that can be allocated, in the order they are tried.

A pool is published by a driver under one name, in slices of one generation. It is usable only if all its slices exist and are
consistent. Devices are tried by driver, pool and slice name; pools with binding conditions come last.

Source  kube-scheduler 1.36: structured/internal/incubating/pools_incubating.go, GatherPools
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple

from moorage.api.core import Node
from moorage.api.quantity import QuantityError
from moorage.plugins.devices.slice_devices import DeviceId, PoolId, SelectionError, SliceDevice, SliceOffers, reaches

__all__ = ["DeviceCandidate", "NodePools", "Pool", "PoolRule", "gather"]


class PoolRule(StrEnum):
    """Which pools can be used: those with all their slices, or, up to 1.34, any."""

    COMPLETE = "complete"
    ANY = "any"


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
    try:
        for held in slices:
            if _matters(held, node, partitions, rule):
                _add(found, held)
        pools = _in_order([_RULES[rule](of, held, slices_of(of), partitions) for of, held in found.items()])
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
    if rule is PoolRule.ANY:
        return (partitions or spec.per_device_node_selection is None) and bool(held.is_for(node))
    if not partitions and (spec.per_device_node_selection is not None or held.has_counters):
        return False
    return held.has_counters or bool(held.is_for(node))


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
    del everywhere
    by_slice = {held.name: held.counter_sets for held in slices} if partitions else None
    offers = tuple(chain.from_iterable(held.offers for held in sorted(slices, key=lambda held: held.name)))
    flaw = _duplicate("device name", [offer.device.name for offer in offers])
    is_incomplete = len(slices) != slices[0].source.spec.pool.resource_slice_count
    return Pool(pool_id, offers, by_slice=by_slice, is_incomplete=is_incomplete, flaw=flaw)


_RULES: Final = {PoolRule.COMPLETE: _complete_pool, PoolRule.ANY: _any_pool}


def _checked(pool_id: PoolId, slices: list[SliceOffers], others: list[SliceOffers], partitions: bool) -> Pool:
    """Build the pool and check its consistency."""
    with_devices = [held for held in slices if not (partitions and held.has_counters)]
    offers = tuple(chain.from_iterable(held.offers for held in with_devices))
    flaw = _duplicate("device name", [offer.device.name for offer in offers])
    if flaw or not partitions:
        return Pool(pool_id, offers, flaw=flaw)
    sets = [(name, counters) for held in slices for name, counters in held.counter_sets.items()]
    declared = [s.name for held in slices for s in held.source.spec.shared_counters]
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
