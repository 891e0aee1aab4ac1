"""VolumeZone up to 1.28: a volume's beta label is matched only by the same label of the node, not by the stable one.

Source    kube-scheduler 1.28.8, plugins/volumezone/volume_zone.go
"""

from __future__ import annotations

from moorage.plugins.volume_zone import VolumeZone, ZoneRequirement
from moorage.state.columns import BoolArray
from moorage.state.view import NodeView

__all__ = ["VolumeZoneV128"]


class VolumeZoneV128(VolumeZone):
    """The plugin; see the module docstring."""

    reuse = VolumeZone.reuse

    def rows_at(self, requirement: ZoneRequirement, nodes: NodeView) -> BoolArray:
        column = nodes.label(requirement.key)
        found: BoolArray = column.spread(nodes.ids(column), lambda value: value in requirement.values)
        return found
