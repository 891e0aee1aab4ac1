"""VolumeZone, as 1.21 had it: keep a pod on nodes that carry the very zone and region labels of its volumes.

Differs from today in two ways. A label of old on a volume is met by the same label on the node alone; today's does not stand
in for it. And a claim, volume or class that is missing is found out on each node with a label of place: a node without any
takes the pod all the same.

Reads     the pod's claims (ephemeral volumes' not), their volumes' zone and region labels; the nodes' labels of the same
Rejects   nodes with any such label: where a volume's label does not take them, or a claim, its volume or its class is missing,
          or the claim should be bound and is not. Eviction never helps
Wakes on  nodes and their labels; the pod's claims; volumes that come or change their zones; classes that wait for a consumer
Source    kube-scheduler 1.21, plugins/volumezone/volume_zone.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from moorage.framework.points import Depends, Signature
from moorage.framework.verdicts import Reject
from moorage.plugins import volume_zone as today
from moorage.plugins.volume_zone import CONFLICT, LABELS, ZoneRequirement, places, volume_of
from moorage.state.columns import BoolArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["VolumeZoneV121"]


class VolumeZoneV121:
    """See the module's description."""

    name = "VolumeZone"
    depends = Depends.NODES
    signs_by = ()
    wakes_on = today.VolumeZone.wakes_on

    def sign(self, pod: PodInfo) -> Signature | None:
        """Pods with volumes that matter are judged each for itself."""
        return {} if pod.volumes is None else None

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        if pod.volumes is None:
            return
        open_rows = _somewhere(nodes)
        for use in pod.volumes.claims:
            if use.ephemeral:
                continue
            volume = volume_of(use.name, use.key, nodes.snapshot)
            if isinstance(volume, str):
                yield Reject(open_rows, volume, unresolvable=True)
                return
            elsewhere = open_rows & ~_rows_at(() if volume is None else places(volume), nodes)
            if elsewhere.any():
                yield Reject(elsewhere, CONFLICT, unresolvable=True)
                open_rows = open_rows & ~elsewhere


def _somewhere(nodes: NodeView) -> BoolArray:
    """Say for each row whether it has any label of place."""
    somewhere = nodes.false()
    for key in LABELS:
        somewhere |= np.not_equal(nodes.ids(nodes.label(key)), 0)
    return somewhere


def _rows_at(wanted: Iterable[ZoneRequirement], nodes: NodeView) -> BoolArray:
    """Say for each row whether it carries every label, with one of its values."""
    at = np.ones(len(nodes), dtype=bool)
    for key, values in wanted:
        column = nodes.label(key)
        at &= column.spread(nodes.ids(column), values.__contains__)
    return at
