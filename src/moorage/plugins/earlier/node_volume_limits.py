"""NodeVolumeLimits of earlier releases.

Up to 1.35 Portworx volumes count for their CSI driver only on nodes whose CSINode declares that they migrate, and the gate
VolumeLimitScaling concerns every driver that has a CSIDriver. Up to 1.32 hints are wider. Up to 1.31 nodes may state a limit
themselves. Up to 1.29 a missing claim is an error, and its creation does not wake the pod. In 1.27 disks of Google Compute
Engine count as Portworx volumes do, and up to 1.26 those of AWS and Azure, too.
Up to 1.24 in-tree volumes count for a CSI driver only through a claim, and while gates let them migrate. Up to 1.22 claims of
ephemeral volumes and missing claims do not count.

The node's allocatable resource ``attachable-volumes-csi-DRIVER`` limits a driver for which the CSINode states no limit. It does
so also on a node without CSINode, where in-tree volumes do not count for a CSI driver. VolumeAttachments do not count.

Reads     the pod's claims and inline volumes, and the volumes behind them; limits of CSINodes and nodes; volumes of placed pods
Rejects   nodes at their limit (preemption may help); every node, while a claim is missing
Source    kube-scheduler 1.35.7, 1.31.8, 1.29.14, 1.27.16, 1.26.15, 1.24.17 and 1.22.6, plugins/nodevolumelimits/csi.go and
          utils.go
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import Reuse, Scope
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Reject, Skip
from moorage.plugins.earlier.shared.placed_pods import for_placed_pods
from moorage.plugins.earlier.shared.volumes_by_migration import InTreeMigration, VolumesByMigration, closed_plugins
from moorage.plugins.node_volume_limits import NeededVolumes, NodeVolumeLimits, counts, had_volumes, not_installed
from moorage.plugins.v1_21.node_volume_limits import NodeVolumeLimitsV121, limit_key
from moorage.plugins.volumes.csi_migration import AWS_EBS, AZURE_DISK, CURRENT_MIGRATION, GCE_PD, PORTWORX
from moorage.plugins.volumes.csi_volumes import NO_LIMIT, AttachedVolumes, CsiFacts, CsiNodes, PodCsiVolumes, needed_volumes
from moorage.plugins.volumes.pod_claims import uses_claim, volume_signature
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.pod_requests import amount
from moorage.state.view import NodeView

_LIMITS: Final = "attachable-volumes-"


@dataclass(frozen=True, slots=True)
class ByMigration:
    """How volumes on nodes are counted, as an index: equal values share one."""

    migration: InTreeMigration
    counts_attachments: bool
    counts_inline: bool

    def __call__(self, snapshot: Snapshot) -> AttachedVolumes:
        return VolumesByMigration(
            snapshot, self.migration, counts_attachments=self.counts_attachments, counts_inline=self.counts_inline
        )


class NodeVolumeLimitsV135(NodeVolumeLimits):
    """The plugin of 1.33 to 1.35; see the module docstring."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())
    every_driver_counts = True
    #: In-tree plugins that migrate only where a CSINode declares it.
    declared: frozenset[str] = frozenset([PORTWORX])
    counts_attachments = True
    counts_inline = True
    #: A missing claim is an error.
    needs_claims = False

    def __init__(self) -> None:
        super().__init__()
        self._migrate(InTreeMigration(self.declared))

    def attach(self, handle: Handle) -> None:
        super().attach(handle)
        is_open = handle.gates["CSIMigrationPortworx"]
        self._migrate(InTreeMigration(self.declared, frozenset() if is_open else frozenset([PORTWORX])))

    def _migrate(self, migration: InTreeMigration) -> None:
        self._migration, self._possible = migration, migration.possible()
        self.attached = ByMigration(migration, self.counts_attachments, self.counts_inline)

    def migrated_with(self, facts: CsiFacts | None) -> frozenset[str]:
        return self._migration.on(facts)

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> NeededVolumes | Skip:
        if not counts(pod):
            return SKIP
        return {
            migrated: needed_volumes(pod, snapshot, migrated=migrated, inline=self.counts_inline) for migrated in self._possible
        }

    def filter(self, wanted: NeededVolumes, nodes: NodeView) -> Iterator[Reject]:
        for migrated, rows in self._by_migration(nodes):
            needed = wanted[migrated]
            if needed.fault:
                yield Reject(rows, needed.fault, error=True)
            elif needed.missing:
                yield Reject(rows, needed.missing, unresolvable=not self.needs_claims, error=self.needs_claims)
            elif needed.volumes:
                open_rows = rows.copy()
                for reject in self._not_installed(needed, rows, nodes):
                    open_rows &= ~reject.rows
                    yield reject
                yield from self.over_limit(needed.volumes, open_rows, nodes)

    def _by_migration(self, nodes: NodeView) -> Iterator[tuple[frozenset[str], BoolArray]]:
        """Yield each set of in-tree plugins that some rows migrate, and those rows."""
        column = nodes.snapshot.index(CsiNodes).follow()
        places = {migrated: at for at, migrated in enumerate(self._possible)}
        which = column.spread(nodes.ids(column), lambda facts: places[self.migrated_with(facts)], np.int64)
        for migrated, at in places.items():
            rows: BoolArray = which == at
            if rows.any():
                yield migrated, rows

    def _not_installed(self, needed: PodCsiVolumes, rows: BoolArray, nodes: NodeView) -> Iterator[Reject]:
        if self._gates["VolumeLimitScaling"]:
            yield from not_installed(self.required(needed, nodes), nodes.snapshot.index(CsiNodes).follow(), rows, nodes)


class NodeVolumeLimitsV132(NodeVolumeLimitsV135):
    """The plugin of 1.32: any deleted attachment wakes the pods, and a raised limit does not."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.CSI_NODE, Action.ADD))
        yield from for_placed_pods([Wake(ClusterEvent(Resource.POD, Action.DELETE), had_volumes, by_shape=True)])
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), uses_claim)
        yield Wake(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE))


class NodeVolumeLimitsV131(NodeVolumeLimitsV132):
    """The plugin up to 1.31."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())
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
    """The plugin up to 1.29."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())
    needs_claims = True

    def wakes_on(self) -> Iterator[Wake]:
        return (wake for wake in super().wakes_on() if wake.event.resource is not Resource.PERSISTENT_VOLUME_CLAIM)


class NodeVolumeLimitsV127(NodeVolumeLimitsV129):
    """The plugin of 1.27."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())
    declared = frozenset([GCE_PD, PORTWORX])


class NodeVolumeLimitsV126(NodeVolumeLimitsV127):
    """The plugin up to 1.26."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())
    declared = frozenset([AWS_EBS, AZURE_DISK, GCE_PD, PORTWORX])


class NodeVolumeLimitsV124(NodeVolumeLimitsV126):
    """The plugin up to 1.24."""

    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())
    counts_inline = False

    def attach(self, handle: Handle) -> None:
        super().attach(handle)
        self._migrate(InTreeMigration(self.declared, closed_plugins(handle.gates)))


class NodeVolumeLimitsV122(NodeVolumeLimitsV121):
    """The plugin up to 1.22: that of 1.21, but Azure disks that are not managed do not migrate."""

    reuse = NodeVolumeLimitsV121.reuse

    def attach(self, handle: Handle) -> None:
        self._migration = CURRENT_MIGRATION._replace(plugins=CURRENT_MIGRATION.plugins - closed_plugins(handle.gates))
