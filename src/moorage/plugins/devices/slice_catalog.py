"""The catalog: all slices, by pool and by node, and each node's pools as long as nothing about them changes.

Slices come and go by themselves; a node's pools are put together when somebody asks, and kept until one of those slices changes
or the node does.

Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, NewAllocator
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from moorage.api.core import Node
from moorage.api.devices import ResourceSlice
from moorage.plugins.devices.pools import NodePools, gather
from moorage.plugins.devices.slice_devices import PoolId, SliceOffers
from moorage.state.cluster import Snapshot
from moorage.state.journal import Journal

__all__ = ["Catalog"]


class _Stamp(NamedTuple):
    """What a node's pools were put together from; while it is the same they hold."""

    shared: int
    local: int
    pools: tuple[int, ...]


@dataclass(slots=True)
class _Kept:
    node: Node
    version: int
    stamp: _Stamp
    pools: NodePools


class Catalog:
    """Ask with ``pools_of`` after ``follow``."""

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
        self._kept: dict[tuple[str, bool], _Kept] = {}
        self._seen_by: dict[PoolId, set[str]] = {}

    @property
    def version(self) -> int:
        """Grows with every slice that comes, goes or changes."""
        return self._version

    def nodes_of(self, pool: PoolId) -> Iterable[str]:
        """Return the nodes, by name, that see a pool as far as anybody asked. Some may not see it any more."""
        return self._seen_by.get(pool, ())

    def follow(self) -> None:
        """Take in what has changed since the last time."""
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
        if before is not None and (after is None or _shelf(before) != _shelf(after) or before.pool != after.pool):
            del self._slices[name], self._of_pool[before.pool][name]
            del self._shelf_of(before)[name]
        if after is not None:  # a slice that stays where it was keeps its place in the order
            self._slices[name] = after
            self._of_pool.setdefault(after.pool, {})[name] = after
            self._shelf_of(after)[name] = after

    def _shelf_of(self, held: SliceOffers) -> dict[str, SliceOffers]:
        node = _shelf(held)
        return self._of_node.setdefault(node, {}) if node else self._shared

    def _touch(self, held: SliceOffers) -> None:
        self._pool_version[held.pool] = self._version
        node = _shelf(held)
        if node:
            self._node_version[node] = self._version
        else:
            self._shared_version = self._version

    def pools_of(self, node: Node, partitions: bool) -> NodePools:
        """Return what a node sees. The same object comes back for as long as that is the same."""
        kept = self._kept.get((node.name, partitions))
        if kept is not None and kept.node is node:
            if kept.version == self._version:
                return kept.pools
            if kept.stamp == self._stamp(node, kept.pools):
                kept.version = self._version
                return kept.pools
        pools = gather(node, self.slices_near(node), lambda pool: list(self._of_pool[pool].values()), partitions)
        self._kept[node.name, partitions] = _Kept(node, self._version, self._stamp(node, pools), pools)
        for pool_id in pools.ids:
            self._seen_by.setdefault(pool_id, set()).add(node.name)
        self._drop_gone()
        return pools

    def slices_near(self, node: Node) -> list[SliceOffers]:
        """Return all slices that may be for a node, those of old generations and of broken pools among them."""
        return [*self._of_node.get(node.name, {}).values(), *self._shared.values()]

    def _stamp(self, node: Node, pools: NodePools) -> _Stamp:
        versions = tuple([self._pool_version[pool_id] for pool_id in pools.ids])
        return _Stamp(self._shared_version, self._node_version.get(node.name, 0), versions)

    def _drop_gone(self) -> None:
        """Forget nodes that are no more, once they are many."""
        known = self._snapshot.table.row_of
        if len(self._kept) > 64 + 4 * len(known):
            self._kept = {key: kept for key, kept in self._kept.items() if key[0] in known}


def _shelf(held: SliceOffers) -> str:
    """Return the node a slice is filed under; empty for those that every node has to look at."""
    return "" if held.has_counters else held.node
