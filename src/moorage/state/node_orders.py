"""The orders of nodes: kube-scheduler's, one node of each zone in turn; and the ring, by which ties are broken.

Zones are in the order in which they got their first node, the nodes of a zone in the order in which they were added. A zone
that loses its last node loses its place, and a node that changes its zone moves to the end of the new one. As in
kube-scheduler, the order is rebuilt when a node is added or removed, so a change of zone takes effect only then.

Source  kube-scheduler 1.21 and 1.36, internal/cache/node_tree.go and cache.go, updateNodeInfoSnapshotList; component-helpers,
        node/topology/helpers.go, GetZoneKey
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain, zip_longest

from msgspec.structs import replace

from moorage.api.core import Node

_OLD_ZONE, _ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"
_OLD_REGION, _REGION = "failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"

#: A region and a zone in it; either may be empty.
Zone = tuple[str, str]


def zone_of(labels: Mapping[str, str]) -> Zone | None:
    """Return region and zone; deprecated labels override current ones. None for a node with neither region nor zone."""
    region, zone = labels.get(_OLD_REGION, labels.get(_REGION, "")), labels.get(_OLD_ZONE, labels.get(_ZONE, ""))
    return (region, zone) if region or zone else None


def is_heartbeat(old: Node, new: Node) -> bool:
    """Return True if an update changes at most the node's resource version."""
    if old.spec != new.spec or old.status != new.status:
        return False
    mine, its = old.metadata, new.metadata
    return mine == its or replace(its, resource_version=mine.resource_version) == mine


class NodeTree:
    """Names of nodes by zone."""

    def __init__(self) -> None:
        self._zones: dict[Zone | None, dict[str, None]] = {}

    def add(self, node: Node) -> None:
        self._zones.setdefault(zone_of(node.labels), {})[node.name] = None

    def remove(self, node: Node) -> None:
        """Remove a node; its labels must be those that it was last added or updated with."""
        zone = zone_of(node.labels)
        names = self._zones[zone]
        del names[node.name]
        if not names:
            del self._zones[zone]

    def update(self, old: Node, new: Node) -> None:
        """Move a node to its new zone, if its zone labels changed."""
        if zone_of(old.labels) != zone_of(new.labels):
            self.remove(old)
            self.add(new)

    def save(self, zones: Collection[Zone | None]) -> Callable[[], None]:
        """Return a function that restores the order as it is now, after names in these zones changed."""
        order, saved = tuple(self._zones), {zone: dict(self._zones[zone]) for zone in zones if zone in self._zones}

        def restore() -> None:
            self._zones = {zone: saved[zone] if zone in saved else self._zones[zone] for zone in order}

        return restore

    def names(self) -> Iterator[str]:
        """Yield all names, in order."""
        return (name for name in chain.from_iterable(zip_longest(*self._zones.values())) if name is not None)
