"""Claim shapes, and each node's answer to them.

Claims of the pods of a workload request the same: they have one *shape*. A node's answer to a shape is computed on demand and
stays valid until a device of the node's pools is allocated or released. So the cost of a pod depends on what has changed since
the pod before it, not on the size of the cluster.

Source  kube-scheduler 1.36: plugins/dynamicresources/dynamicresources.go, Filter
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Final, NamedTuple

import msgspec
import numpy as np

from moorage.api.core import Node
from moorage.api.devices import DeviceClass, DeviceTaintRule, DeviceTaintSelector, ResourceClaimSpec, ResourceSlice
from moorage.plugins.devices.allocated_devices import Ledger
from moorage.plugins.devices.allocator import BudgetError, DeviceSearch, FlawedPoolsError, FoundDevices
from moorage.plugins.devices.claim_requests import AskError, ClaimAsk, DeviceGates, OverspentError, parse_claim
from moorage.plugins.devices.meter import Meter, Selectors
from moorage.plugins.devices.pools import COMPLETE, NodePools, PoolId, PoolRule, SliceOffers, SliceTaints, gather
from moorage.state.journal import Journal
from moorage.state.table import NodeTable
from moorage.state.view import IntArray, Snapshot

# The catalog of resource slices, by pool and by node, and each node's pools, cached while nothing about them changes.
#
# Slices are added and removed as they change. A node's pools are gathered on demand and cached until one of their slices or
# the node changes.
#
# Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, NewAllocator


class _Stamp(NamedTuple):
    """The versions that a node's cached pools depend on; the pools are valid while these are equal."""

    shared: int
    local: int
    pools: tuple[int, ...]


@dataclass(slots=True)
class _CachedPools:
    node: Node
    version: int
    stamp: _Stamp
    pools: NodePools


class Catalog:
    """The index of slices. Call ``follow`` before ``pools_of``."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._journal: Journal = snapshot.changes_of(ResourceSlice)
        self._rule_journal: Journal = snapshot.changes_of(DeviceTaintRule)
        self._position = -1
        self._rules: tuple[DeviceTaintRule, ...] = ()
        self._rules_at: int | None = None
        self._version = 0
        self._slices: dict[str, SliceOffers] = {}
        self._of_pool: dict[PoolId, dict[str, SliceOffers]] = {}
        self._of_node: dict[str, dict[str, SliceOffers]] = {}
        self._shared: dict[str, SliceOffers] = {}
        self._pool_version: dict[PoolId, int] = {}
        self._node_version: dict[str, int] = {}
        self._shared_version = 0
        self._cache: dict[tuple[str, bool, PoolRule], _CachedPools] = {}
        self._seen_by: dict[PoolId, set[str]] = {}

    @property
    def version(self) -> int:
        """The number of changes of slices so far."""
        return self._version

    def nodes_of(self, pool: PoolId) -> Iterable[str]:
        """Return the names of nodes whose cached pools include a pool; some may no longer include it."""
        return self._seen_by.get(pool, ())

    def follow(self, *, by_rules: bool | None = None) -> None:
        """Apply the changes of slices since the last call. ``by_rules``: DeviceTaintRules count; None: as at the last call."""
        changed = self._journal.since(self._position) if self._position >= 0 else None
        if by_rules is not None and self._rules_at != (at := self._rule_journal.position if by_rules else None):
            self._rules_at = at
            self._rules = tuple(self._snapshot.objects(DeviceTaintRule).values()) if by_rules else ()
            changed = None
        slices = self._snapshot.objects(ResourceSlice)
        if changed is None:
            changed = list(dict.fromkeys([*self._slices, *slices]))
        self._position = self._journal.position
        for name in dict.fromkeys(changed):
            self._refile(name, slices.get(name))

    def _refile(self, name: str, source: ResourceSlice | None) -> None:
        before, taints = self._slices.get(name), () if source is None else _taints_of(source, self._rules)
        if before is not None and before.source is source and before.taints == taints:
            return
        self._version += 1
        after = None if source is None else SliceOffers(source, before, taints)
        for held in (before, after):
            if held is not None:
                self._touch(held)
        if before is not None and (after is None or _node_key(before) != _node_key(after) or before.pool != after.pool):
            del self._slices[name], self._of_pool[before.pool][name]
            del self._bucket_of(before)[name]
        if after is not None:  # a slice that stays in its place keeps its position in the order
            self._slices[name] = after
            self._of_pool.setdefault(after.pool, {})[name] = after
            self._bucket_of(after)[name] = after

    def _bucket_of(self, held: SliceOffers) -> dict[str, SliceOffers]:
        node = _node_key(held)
        return self._of_node.setdefault(node, {}) if node else self._shared

    def _touch(self, held: SliceOffers) -> None:
        self._pool_version[held.pool] = self._version
        node = _node_key(held)
        if node:
            self._node_version[node] = self._version
        else:
            self._shared_version = self._version

    def pools_of(self, node: Node, partitions: bool, rule: PoolRule = COMPLETE) -> NodePools:
        """Return the pools of a node: the same object as long as nothing about them changes."""
        cached = self._cache.get((node.name, partitions, rule))
        if cached is not None and cached.node is node:
            if cached.version == self._version:
                return cached.pools
            if cached.stamp == self._stamp(node, cached.pools):
                cached.version = self._version
                return cached.pools
        pools = gather(node, self.slices_near(node), lambda pool: list(self._of_pool[pool].values()), partitions, rule)
        self._cache[node.name, partitions, rule] = _CachedPools(node, self._version, self._stamp(node, pools), pools)
        for pool_id in pools.ids:
            self._seen_by.setdefault(pool_id, set()).add(node.name)
        self._drop_deleted()
        return pools

    def slices_near(self, node: Node) -> list[SliceOffers]:
        """Return all slices that may be for a node, including outdated ones and those of invalid pools."""
        return [*self._of_node.get(node.name, {}).values(), *self._shared.values()]

    def _stamp(self, node: Node, pools: NodePools) -> _Stamp:
        versions = tuple([self._pool_version[pool_id] for pool_id in pools.ids])
        return _Stamp(self._shared_version, self._node_version.get(node.name, 0), versions)

    def _drop_deleted(self) -> None:
        """Drop cached pools of deleted nodes once there are many."""
        known = self._snapshot.table.row_of
        if len(self._cache) > 64 + 4 * len(known):
            self._cache = {key: cached for key, cached in self._cache.items() if key[0] in known}


def _taints_of(source: ResourceSlice, rules: Iterable[DeviceTaintRule]) -> SliceTaints:
    """Return what rules taint in a slice.

    Source  dynamic-resource-allocation, resourceslice/tracker/tracker.go, applyPatches
    """
    found = []
    for rule in rules:
        which = rule.spec.device_selector or DeviceTaintSelector()
        if which.may_select_in(source):
            found.append((which.device, rule.spec.taint))
    return tuple(found)


def _node_key(held: SliceOffers) -> str:
    """Return the node that a slice is filed under; empty for a slice that every node has to look at."""
    return "" if held.has_counters else held.node


# kube-scheduler's own texts.
CANNOT_ALLOCATE: Final = "cannot allocate all claims"

_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class ShapeAnswer:
    """A node's answer: the devices found, the reason why not, or an error that ends the attempt.

    ``overspent``: the selectors cost too much, which ends the attempt at once.
    """

    found: FoundDevices | None = None
    reason: str = ""
    error: AskError | None = None
    out_of_budget: bool = False

    @property
    def overspent(self) -> bool:
        return isinstance(self.error, OverspentError)


@dataclass(slots=True)
class _CachedAnswer:
    node: Node
    pools: NodePools
    tick: int
    answer: ShapeAnswer
    effort: int

    def is_enough(self, budget: int) -> bool:
        """Return True if a search with this budget would give the same answer."""
        return not self.answer.out_of_budget or self.effort >= budget


class AnswerColumn:
    """The answers of a shape by row: 0 unknown, 1 the devices are there, from 2 on the number of a reason why not.

    A row becomes unknown when its node or its pods change. ``answers`` is for reading only.
    """

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._layout = -1
        self._position = 0
        self.answers: IntArray = np.zeros(0, dtype=np.int64)
        self._reasons: list[str] = []

    def follow(self, table: NodeTable) -> None:
        """Forget the answers of rows that changed since the last call."""
        changes = table.changes
        changed = changes.since(self._position)
        if table is not self._table or self._layout < 0 or changed is None:
            self._table = table
            self.answers = np.zeros(len(table), dtype=np.int64)
        else:
            if changes.layout != self._layout:  # rows that have another node now are among those that changed
                before = self.answers[: len(table)]
                self.answers = np.zeros(len(table), dtype=np.int64)
                self.answers[: len(before)] = before
            self._forget(changed)
        self._position, self._layout = changes.position, changes.layout

    def set(self, row: int, reason: str | None) -> None:
        """Keep the answer of a row; None: the devices are there."""
        if reason is not None and reason not in self._reasons:
            self._reasons.append(reason)
        self.answers[row] = 1 if reason is None else self._reasons.index(reason) + 2

    def reason(self, number: int) -> str:
        return self._reasons[number - 2]

    def forget(self, nodes: Iterable[str] | None = None) -> None:
        """Forget the answers of some nodes, or of all."""
        if nodes is None or self._table is None:
            self._layout = -1
            return
        if self._layout != self._table.changes.layout:
            self.follow(self._table)
        row_of = self._table.row_of
        self._forget([row_of[name] for name in nodes if name in row_of])

    def _forget(self, rows: list[int]) -> None:
        for row in rows:
            if row < len(self.answers):
                self.answers[row] = 0


@dataclass(slots=True)
class Shape:
    """Claims with equal requests, and the nodes' answers to them."""

    asks: tuple[ClaimAsk, ...]
    classes: Mapping[str, DeviceClass | None]
    options: DeviceGates
    _cache: dict[str, _CachedAnswer] = field(default_factory=dict)
    #: Nodes whose answers are valid for the versions in ``_as_of``: of the catalog and the ledger.
    _valid: set[str] = field(default_factory=set)
    _as_of: tuple[int, int] = (-1, -1)
    #: The answer of every node if selectors cost too much, with the version of the catalog it holds for.
    _overspent: tuple[int, ShapeAnswer] | None = None
    _column: AnswerColumn = field(default_factory=AnswerColumn)

    def has_classes(self, classes: Mapping[str, DeviceClass]) -> bool:
        """Return whether these are the classes of the shape."""
        for name, known in self.classes.items():  # noqa: SIM110 (a generator costs more than the comparing)
            if classes.get(name) is not known:
                return False
        return True

    def known(self, table: NodeTable, catalog: Catalog, ledger: Ledger) -> AnswerColumn | None:
        """Return the answers of the table's rows; ``answer`` has to be called where they are unknown. None: on every row."""
        if self._as_of != (catalog.version, ledger.tick):
            self._invalidate(catalog, ledger)
        if self._overspent is not None and self._overspent[0] == catalog.version:
            return None
        self._column.follow(table)
        return self._column

    def note(self, row: int, answer: ShapeAnswer) -> None:
        """Keep an answer that ``answer`` just gave for ``known``, if it does not depend on the budget."""
        if answer.error is None and not answer.out_of_budget:
            self._column.set(row, answer.reason if answer.found is None else None)

    def answer(self, node: Node, catalog: Catalog, ledger: Ledger, budget: int, meter: Meter) -> tuple[ShapeAnswer, int]:
        """Return a node's answer, and how many devices were examined for it now. ``meter`` pays for selectors."""
        if self._overspent is not None and self._overspent[0] == catalog.version:
            return self._overspent[1], 0
        if self._as_of != (catalog.version, ledger.tick):
            self._invalidate(catalog, ledger)
        name = node.metadata.name
        cached = self._cache.get(name)
        if cached is not None and name in self._valid and cached.node is node and cached.is_enough(budget):
            return cached.answer, 0
        return self._recheck(cached, node, catalog, ledger, budget, meter)

    def _invalidate(self, catalog: Catalog, ledger: Ledger) -> None:
        """Invalidate answers: of nodes where a device was allocated or released, or of all if slices changed."""
        version, tick = self._as_of
        if version != catalog.version:
            self._valid.clear()
            self._column.forget()
        else:
            for pool in ledger.changed_since(tick):
                nodes = catalog.nodes_of(pool)
                self._valid.difference_update(nodes)
                self._column.forget(nodes)
        self._as_of = (catalog.version, ledger.tick)

    def _recheck(
        self, cached: _CachedAnswer | None, node: Node, catalog: Catalog, ledger: Ledger, budget: int, meter: Meter
    ) -> tuple[ShapeAnswer, int]:
        pools = catalog.pools_of(node, self.options.partitions, self.options.pool_rule)
        self._valid.add(node.name)
        if (
            cached is not None
            and cached.pools is pools
            and ledger.last_change(pools.ids) <= cached.tick
            and cached.is_enough(budget)
        ):
            cached.node = node
            return cached.answer, 0
        search = DeviceSearch(self.asks, pools, ledger, self.options, budget, meter)
        answer = _outcome(search)
        if answer.overspent:
            self._valid.discard(node.name)
            self._overspent = (catalog.version, answer)
            return answer, search.examined
        self._cache[node.name] = _CachedAnswer(node, pools, ledger.tick, answer, budget)
        return answer, search.examined

    def drop_deleted(self, snapshot: Snapshot) -> None:
        """Drop answers of deleted nodes once there are many."""
        known = snapshot.table.row_of
        if len(self._cache) > 64 + 2 * len(known):
            self._cache = {name: cached for name, cached in self._cache.items() if name in known}
            self._valid &= self._cache.keys()


def _outcome(search: DeviceSearch) -> ShapeAnswer:
    try:
        found = search.run()
    except AskError as error:
        return ShapeAnswer(error=error)
    except BudgetError:
        return ShapeAnswer(out_of_budget=True)
    except FlawedPoolsError as flawed:
        return ShapeAnswer(reason=str(flawed))
    return ShapeAnswer(found) if found is not None else ShapeAnswer(reason=CANNOT_ALLOCATE)


class Shapes:
    """The shapes in use; at capacity, the least recently used is dropped."""

    def __init__(self, capacity: int = 256) -> None:
        self._capacity = capacity
        self._shapes: dict[tuple[bytes, ...], Shape] = {}
        #: The specs and gates of the last call with their key: pods of a template share their specs.
        self._last: tuple[Sequence[ResourceClaimSpec], DeviceGates | None, tuple[bytes, ...]] = (), None, ()

    def of(self, specs: Sequence[ResourceClaimSpec], snapshot: Snapshot, options: DeviceGates) -> Shape:
        """Return the shape of claims with these specs and the present versions of their device classes."""
        key = self._key(specs, options)
        classes = snapshot.objects(DeviceClass)
        shape = self._shapes.pop(key, None)
        if shape is None or not shape.has_classes(classes):
            asks = tuple([parse_claim(spec, classes, options) for spec in specs])
            shape = Shape(asks, {name: classes.get(name) for spec in specs for name in _class_names(spec)}, options)
            if len(self._shapes) >= self._capacity:
                del self._shapes[next(iter(self._shapes))]
        self._shapes[key] = shape
        shape.drop_deleted(snapshot)
        return shape

    def _key(self, specs: Sequence[ResourceClaimSpec], options: DeviceGates) -> tuple[bytes, ...]:
        before, gates, key = self._last
        if gates is not options or len(before) != len(specs) or not all(map(is_, before, specs)):
            key = (*map(_encode, specs), _encode(options))
            self._last = specs, options, key
        return key


def _class_names(spec: ResourceClaimSpec) -> list[str]:
    names = []
    for request in spec.devices.requests:
        if request.exactly is not None:
            names.append(request.exactly.device_class_name)
        names += [alternative.device_class_name for alternative in request.first_available]
    return names


class DeviceState:
    """The device state of one cluster: catalog of slices, ledger of allocations, shapes and compiled selectors."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.catalog = Catalog(snapshot)
        self.ledger = Ledger(snapshot)
        self.shapes = Shapes()
        self.selectors = Selectors()

    def follow(self, *, by_rules: bool | None = None) -> None:
        """Apply the changes since the last call; see ``Catalog.follow``."""
        self.catalog.follow(by_rules=by_rules)
        self.ledger.follow()
