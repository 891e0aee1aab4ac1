"""The zone of each node as 1.21 defines it: by region and zone; the beta labels override the stable ones.

Source  component-helpers 0.21, node/topology/helpers.go, GetZoneKey
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from moorage.state.labels import Ids
from moorage.state.node_tree import zone_of
from moorage.state.table import NodeTable
from moorage.state.view import NodeView

__all__ = ["Zones"]


@dataclass(slots=True)
class _CachedZones:
    """Zones of all rows, valid while ``version`` is the table's count of node changes."""

    version: int
    ids: Ids


class Zones:
    """Zones as small numbers from 1; 0 is no zone. Recomputed when a node is added, deleted or changed."""

    def __init__(self) -> None:
        self._cache: WeakKeyDictionary[NodeTable, _CachedZones] = WeakKeyDictionary()

    def ids(self, nodes: NodeView) -> Ids:
        """Return the zone of each row of the view, shape (rows,)."""
        table = nodes.table
        cached = self._cache.get(table)
        if cached is None or cached.version != table.changes.nodes:
            cached = self._cache[table] = _CachedZones(table.changes.nodes, _numbered(table))
        ids: Ids = nodes.take(cached.ids)
        return ids


def _numbered(table: NodeTable) -> Ids:
    known: dict[tuple[str, str] | None, int] = {None: 0}
    zones = (zone_of(node.labels) for node in table.nodes)
    return np.fromiter((known.setdefault(zone, len(known)) for zone in zones), dtype=np.int32, count=len(table))
