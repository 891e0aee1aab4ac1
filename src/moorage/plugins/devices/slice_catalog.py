"""The catalog of resource slices, by pool and by node, and each node's pools, cached while nothing about them changes.

Slices are added and removed as they change. A node's pools are gathered on demand and cached until one of their slices or the
node changes.

Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, NewAllocator
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from moorage.api.core import Node
from moorage.api.devices import ResourceSlice
from moorage.plugins.devices.pools import NodePools, PoolRule, gather
from moorage.plugins.devices.slice_devices import PoolId, SliceOffers
from moorage.state.change_log import Journal
from moorage.state.cluster import Snapshot

__all__ = ["Catalog"]


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
        self._position = -1
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

    def follow(self) -> None:
        """Apply the changes of slices since the last call."""
        changed = self._journal.since(self._position) if self._position >= 0 else None
        slices = self._snapshot.objects(ResourceSlice)
        if changed is None:
            changed = list(dict.fromkeys([*self._slices, *slices]))
        self._position = self._journal.position
        for name in dict.fromkeys(changed):
            self._refile(name, slices.get(name))

    def _refile(self, name: str, source: ResourceSlice | None) -> None:
        before = self._slices.get(name)
        if before is not None and before.source is source:
            return
        self._version += 1
        after = None if source is None else SliceOffers(source, before)
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

    def pools_of(self, node: Node, partitions: bool, rule: PoolRule = PoolRule.COMPLETE) -> NodePools:
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


def _node_key(held: SliceOffers) -> str:
    """Return the node that a slice is filed under; empty for a slice that every node has to look at."""
    return "" if held.has_counters else held.node
