"""VolumeZone up to 1.28: a volume's beta label is matched only by the same label of the node, not by the stable one.

Up to 1.26 Filter looks up the claims: a missing one rejects only nodes with a zone or region label, as in 1.21.

Source    kube-scheduler 1.28.8 and 1.26.15, plugins/volumezone/volume_zone.go
"""

from __future__ import annotations

from moorage.plugins.v1_21.volume_zone import VolumeZoneV121
from moorage.plugins.volume_zone import VolumeZone, ZoneRequirement
from moorage.state.columns import BoolArray
from moorage.state.view import NodeView


class VolumeZoneV128(VolumeZone):
    reuse = VolumeZone.reuse

    def rows_at(self, requirement: ZoneRequirement, nodes: NodeView) -> BoolArray:
        column = nodes.label(requirement.key)
        found: BoolArray = column.spread(nodes.ids(column), lambda value: value in requirement.values)
        return found


class VolumeZoneV126(VolumeZoneV121):
    """The plugin up to 1.26, which is that of 1.21."""
