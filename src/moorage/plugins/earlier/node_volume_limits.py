"""NodeVolumeLimits of earlier releases.

Up to 1.35 Portworx volumes count for their CSI driver only on nodes whose CSINode declares that they migrate, and the gate
VolumeLimitScaling concerns every driver that has a CSIDriver. Up to 1.32 hints are wider. Up to 1.31 nodes may state a limit
themselves. Up to 1.29 a missing claim is an error, and its creation does not wake the pod. In 1.27 disks of Google Compute
Engine count as Portworx volumes do, and up to 1.26 those of AWS and Azure, too.
Up to 1.24 in-tree volumes count for a CSI driver only through a claim, and while gates let them migrate. Up to 1.22 claims of
ephemeral volumes and missing claims do not count, and in-tree volumes only where the CSINode declares that they migrate. In
1.21 Azure disks migrate whatever their kind.

The node's allocatable resource ``attachable-volumes-csi-DRIVER`` limits a driver for which the CSINode states no limit. It does
so also on a node without CSINode, where in-tree volumes do not count for a CSI driver. VolumeAttachments do not count.

Reads     the pod's claims and inline volumes, and the volumes behind them; limits of CSINodes and nodes; volumes of placed pods
Rejects   nodes at their limit (preemption may help); every node, while a claim is missing
Source    kube-scheduler 1.35.7, 1.31.8, 1.29.14, 1.27.16, 1.26.15, 1.24.17, 1.22.6 and 1.21, plugins/nodevolumelimits/csi.go
          and utils.go; kubernetes 1.21, pkg/volume/util/attach_limit.go
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha1
from typing import Final

import numpy as np

from moorage.api.feature_gates import FeatureGates
from moorage.api.pod_requests import amount
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.registry import Handle
from moorage.plugins.earlier.shared.placed_pods import for_placed_pods
from moorage.plugins.earlier.shared.volumes_by_migration import (
    ByMigration,
    InTreeMigration,
    closed_plugins,
    translated_in_1_21,
)
from moorage.plugins.node_volume_limits import NodeVolumeLimits, had_volumes
from moorage.plugins.volumes.csi_nodes import NO_LIMIT, CsiFacts
from moorage.plugins.volumes.csi_volumes import CountedVolumes
from moorage.plugins.volumes.pod_claims import uses_claim
from moorage.rules.volumes import csi_migration
from moorage.state.view import BoolArray, IntArray, NodeView

_LIMITS: Final = "attachable-volumes-"
_PREFIX: Final = "attachable-volumes-csi-"
_LONGEST_KEY: Final = 63


def limit_key(driver: str) -> str:
    """Return the node resource that limits a driver's volumes; a name that would be too long ends in a digest."""
    if len(_PREFIX) + len(driver) < _LONGEST_KEY:
        return _PREFIX + driver
    return _PREFIX + driver[:23] + sha1(driver.encode(), usedforsecurity=False).hexdigest()[:16]


class NodeVolumeLimitsV135(NodeVolumeLimits):
    every_driver_counts = True
    #: In-tree plugins that migrate only where a CSINode declares it.
    declared: frozenset[str] = frozenset([csi_migration.PORTWORX])
    counts_attachments = True
    counted = CountedVolumes()

    def __init__(self) -> None:
        super().__init__()
        self._migrate(InTreeMigration(self.declared))

    def attach(self, handle: Handle) -> None:
        super().attach(handle)
        self._migrate(InTreeMigration(self.declared, self.closed(handle.gates)))

    @staticmethod
    def closed(gates: FeatureGates) -> frozenset[str]:
        """Return the in-tree plugins that do not migrate because a gate is closed."""
        return frozenset() if gates["CSIMigrationPortworx"] else frozenset([csi_migration.PORTWORX])

    def _migrate(self, migration: InTreeMigration) -> None:
        self._migration = migration
        self.attached = ByMigration(migration, self.counts_attachments, self.counted)

    def migrated_with(self, facts: CsiFacts | None) -> frozenset[str]:
        return self._migration.on(facts)


class NodeVolumeLimitsV132(NodeVolumeLimitsV135):
    """The plugin of 1.32: any deleted attachment wakes the pods, and a raised limit does not."""

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.CSI_NODE, Action.ADD))
        yield from for_placed_pods([Wake(ClusterEvent(Resource.POD, Action.DELETE), had_volumes, by_shape=True)])
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), uses_claim)
        yield Wake(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE))


class NodeVolumeLimitsV131(NodeVolumeLimitsV132):
    counts_attachments = False

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
    needs_claims = True

    def wakes_on(self) -> Iterator[Wake]:
        return (wake for wake in super().wakes_on() if wake.event.resource is not Resource.PERSISTENT_VOLUME_CLAIM)


class NodeVolumeLimitsV127(NodeVolumeLimitsV129):
    declared = frozenset([csi_migration.GCE_PD, csi_migration.PORTWORX])


class NodeVolumeLimitsV126(NodeVolumeLimitsV127):
    declared = frozenset([csi_migration.AWS_EBS, csi_migration.AZURE_DISK, csi_migration.GCE_PD, csi_migration.PORTWORX])


class NodeVolumeLimitsV124(NodeVolumeLimitsV126):
    counted = CountedVolumes(inline=False)
    closed = staticmethod(closed_plugins)


class NodeVolumeLimitsV122(NodeVolumeLimitsV124):
    declared = csi_migration.in_tree_plugins()
    counted = CountedVolumes(inline=False, ephemeral=False)
    skips_missing = True


class NodeVolumeLimitsV121(NodeVolumeLimitsV122):
    counted = NodeVolumeLimitsV122.counted._replace(translate=translated_in_1_21)

    def __init__(self) -> None:
        super().__init__()
        self._migrate(InTreeMigration(self.declared, closed_plugins(FeatureGates(release="1.21"))))

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE))
        yield Wake(ClusterEvent(Resource.CSI_NODE, Action.ADD | Action.UPDATE))
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE))
