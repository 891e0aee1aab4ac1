"""VolumeZone up to 1.28: a volume's beta label is matched only by the same label of the node, not by the stable one.

Up to 1.26 Filter looks up the claims: a missing one rejects only nodes with a zone or region label, as in 1.21.

Source    kube-scheduler 1.28.8 and 1.26.15, plugins/volumezone/volume_zone.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from moorage.framework.changes import Detail, RefusingPlugin, Remedies
from moorage.framework.points import Reuse, Scope
from moorage.framework.verdicts import Reject
from moorage.plugins import volume_zone as today
from moorage.plugins.volume_zone import (
    CONFLICT,
    VolumeZone,
    ZoneRequirement,
    rows_labelled,
    volume_of,
    wanted_zones,
    with_zone_label,
    zone_requirements,
)
from moorage.plugins.volumes.pod_claims import volume_signature
from moorage.plugins.volumes.volume_reasons import why_zone
from moorage.plugins.volumes.volume_remedies import remedies_of_volumes
from moorage.state.view import BoolArray, NodeView, PodInfo

# VolumeZone of 1.21: reject nodes without the same zone and region labels as the pod's volumes.
#
# Two things differ from the current plugin. A volume's beta label is matched only by the same beta label of the node; the
# stable label does not replace it. And a missing claim, volume or class rejects each node that has a topology label; a node
# without any such label stays feasible.
#
# Reads     the pod's claims (except of ephemeral volumes), the zone and region labels of their volumes and of nodes
# Rejects   nodes with such a label: where a volume's label excludes them, or a claim, its volume or its class is missing, or an
#           immediate claim is unbound. Preemption never helps
# Wakes on  nodes added or relabelled; the pod's claims; volumes added or with changed zones; WaitForFirstConsumer classes added
# Source    kube-scheduler 1.21, plugins/volumezone/volume_zone.go


class VolumeZoneV121(RefusingPlugin[PodInfo]):
    name = "VolumeZone"
    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())
    wakes_on = today.VolumeZone.wakes_on

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        if pod.volumes is None:
            return
        open_rows = with_zone_label(nodes)
        for use in pod.volumes.claims:
            if use.ephemeral:
                continue
            volume = volume_of(use.name, use.key, nodes.snapshot)
            if isinstance(volume, str):
                yield Reject(open_rows, volume, unresolvable=True)
                return
            elsewhere = open_rows & ~_rows_at(() if volume is None else zone_requirements(volume), nodes)
            if elsewhere.any():
                yield Reject(elsewhere, CONFLICT, unresolvable=True)
                open_rows = open_rows & ~elsewhere

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail | None:
        wanted = wanted_zones(pod, node.snapshot)
        return Detail(wanted) if isinstance(wanted, str) else why_zone(wanted, node.first)

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        return remedies_of_volumes(pod, node)


def _rows_at(wanted: Iterable[ZoneRequirement], nodes: NodeView) -> BoolArray:
    """Return for each row whether it has every label with one of its values."""
    at = np.ones(len(nodes), dtype=bool)
    for key, values in wanted:
        at &= rows_labelled(key, values, nodes)
    return at


# -- 1.22 and later ----------------------------------------------------------------------------------------------------


class VolumeZoneV128(VolumeZone):
    def rows_at(self, requirement: ZoneRequirement, nodes: NodeView) -> BoolArray:
        return rows_labelled(*requirement, nodes)


class VolumeZoneV126(VolumeZoneV121):
    """The plugin up to 1.26, which is that of 1.21."""
