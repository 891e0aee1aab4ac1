"""NodeVolumeLimits of earlier releases.

Up to 1.35 the gate VolumeLimitScaling concerns every driver that has a CSIDriver. Up to 1.32 hints are wider. Up to 1.31 nodes
may state a limit themselves. Up to 1.29 a missing claim is an error, and its creation does not wake the pod.

The node's allocatable resource ``attachable-volumes-csi-DRIVER`` limits a driver for which the CSINode states no limit. It does
so also on a node without CSINode, where in-tree volumes do not count for a CSI driver. VolumeAttachments do not count.

Reads     the pod's claims and inline volumes, and the volumes behind them; limits of CSINodes and nodes; volumes of placed pods
Rejects   nodes at their limit (preemption may help); every node, while a claim is missing
Source    kube-scheduler 1.31.8 and 1.29.14, plugins/nodevolumelimits/csi.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from moorage.api.storage import CSINode
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import Reuse, Scope
from moorage.framework.verdicts import Reject
from moorage.plugins.earlier.placed_pods import for_placed_pods
from moorage.plugins.node_volume_limits import NeededVolumes, NodeVolumeLimits, had_volumes
from moorage.plugins.v1_21.node_volume_limits import limit_key
from moorage.plugins.volumes.attached_volumes import AttachedVolumes
from moorage.plugins.volumes.claim_lookup import uses_claim
from moorage.plugins.volumes.csi_nodes import NO_LIMIT, CsiNodes
from moorage.plugins.volumes.csi_volumes import CsiVolume
from moorage.plugins.volumes.volume_signature import volume_signature
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_requests import amount
from moorage.state.view import NodeView

__all__ = ["NodeVolumeLimitsV129", "NodeVolumeLimitsV131", "NodeVolumeLimitsV132", "NodeVolumeLimitsV135"]

_LIMITS: Final = "attachable-volumes-"


class NodeVolumeLimitsV135(NodeVolumeLimits):
    """The plugin of 1.35; see the module docstring."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())
    every_driver_counts = True


class NodeVolumeLimitsV132(NodeVolumeLimits):
    """The plugin of 1.32: any deleted attachment wakes the pods, and a raised limit does not."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.CSI_NODE, Action.ADD))
        yield from for_placed_pods([Wake(ClusterEvent(Resource.POD, Action.DELETE), had_volumes, by_shape=True)])
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), uses_claim)
        yield Wake(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE))


class PodVolumesOnNodes(AttachedVolumes):
    """Counts the volumes of placed pods alone. On rows without CSINode in-tree volumes do not count."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._nodes_position = -1

    def _note_changes(self) -> bool:
        position = self._snapshot.changes_of(CSINode).position
        is_current = position == self._nodes_position
        self._nodes_position = position
        return is_current and super()._note_changes()

    def _is_migrated(self, row: int) -> bool:
        return self._table.nodes[row].name in self._snapshot.objects(CSINode)

    def _attached_to(self, node: str) -> Iterable[CsiVolume]:
        del node
        return ()


class NodeVolumeLimitsV131(NodeVolumeLimitsV132):
    """The plugin up to 1.31."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())
    attached = PodVolumesOnNodes
    #: A missing claim is an error.
    needs_claims = False

    def filter(self, wanted: NeededVolumes, nodes: NodeView) -> Iterator[Reject]:
        column = nodes.snapshot.index(CsiNodes).follow()
        ids = nodes.ids(column)
        for rows, needed in ((ids != 0, wanted.with_csi), (ids == 0, wanted.without)):
            if needed.fault:
                yield Reject(rows, needed.fault, error=True)
            elif needed.missing:
                yield Reject(rows, needed.missing, unresolvable=not self.needs_claims, error=self.needs_claims)
            elif needed.volumes and rows.any():
                yield from self.over_limit(needed.volumes, rows, nodes)

    def limits(self, driver: str, nodes: NodeView) -> IntArray:
        by_driver, key = super().limits(driver, nodes), limit_key(driver)
        stated = (nodes.table.nodes[row].status.allocatable.get(key) for row in nodes.row_numbers.tolist())
        by_node = [NO_LIMIT if one is None else amount(key, one) for one in stated]
        limits: IntArray = np.where(by_driver == NO_LIMIT, np.array(by_node, dtype=np.int64), by_driver)
        return limits

    def limited(self, nodes: NodeView) -> BoolArray:
        of_nodes = (nodes.table.nodes[row].status.allocatable for row in nodes.row_numbers.tolist())
        stated: BoolArray = np.array([any(key.startswith(_LIMITS) for key in one) for one in of_nodes], dtype=bool)
        return super().limited(nodes) | stated


class NodeVolumeLimitsV129(NodeVolumeLimitsV131):
    """The plugin up to 1.29."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())
    needs_claims = True

    def wakes_on(self) -> Iterator[Wake]:
        return (wake for wake in super().wakes_on() if wake.event.resource is not Resource.PERSISTENT_VOLUME_CLAIM)
