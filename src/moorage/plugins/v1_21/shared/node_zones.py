"""The zone of each node as 1.21 defines it: by region and zone; the beta labels override the stable ones.

Source  component-helpers 0.21, node/topology/helpers.go, GetZoneKey
"""

from __future__ import annotations

from moorage.plugins.shared.node_numbers import numbers_of
from moorage.state.node_orders import zone_of
from moorage.state.view import KeptColumn, Snapshot


def zone_numbers(snapshot: Snapshot) -> KeptColumn:
    """Return the zone of each row as a small number from 1; 0 is no zone. An index: get it from ``Snapshot.index``."""
    known: dict[tuple[str, str] | None, int] = {None: 0}
    return numbers_of(lambda node: known.setdefault(zone_of(node.labels), len(known)))(snapshot)
