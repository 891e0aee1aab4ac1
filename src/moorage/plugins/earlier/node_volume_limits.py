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
from hashlib import sha1
from typing import Final

import numpy as np

from moorage.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.framework.changes import Detail, RefusingPlugin, Remedies
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.feature_gates import FeatureGates
from moorage.framework.points import Attachable, Reuse, Scope
from moorage.framework.registry import Handle
from moorage.framework.verdicts import SKIP, Reject, Skip
from moorage.plugins.earlier.shared.placed_pods import for_placed_pods
from moorage.plugins.earlier.shared.volumes_by_migration import InTreeMigration, VolumesByMigration, closed_plugins
from moorage.plugins.node_volume_limits import TOO_MANY, NeededVolumes, NodeVolumeLimits, counts, had_volumes, not_installed
from moorage.plugins.v1_21.shared.in_tree_disks import HeldVolumes, migration_under
from moorage.plugins.volumes import csi_migration
from moorage.plugins.volumes.csi_volumes import (
    NO_LIMIT,
    AttachedVolumes,
    CsiFacts,
    CsiNodes,
    CsiVolume,
    PodCsiVolumes,
    needed_volumes,
    volume_of_claim,
)
from moorage.plugins.volumes.pod_claims import uses_claim, volume_signature
from moorage.plugins.volumes.volume_reasons import remedies_of_full_attachments
from moorage.state.columns import BoolArray, Column, IntArray
from moorage.state.pod_requests import amount
from moorage.state.view import NodeView, PodInfo, Snapshot

# -- 1.21 --------------------------------------------------------------------------------------------------------------
# NodeVolumeLimits of 1.21: reject nodes where the pod's volumes would exceed the attach limit of a CSI driver.
#
# Only claims that a pod names directly count: not those of ephemeral volumes, inline volumes, or attachments without a pod. A
# missing claim does not count. If the CSINode states no limit for a driver, the node's allocatable resource
# ``attachable-volumes-csi-DRIVER`` limits it. In-tree disks count for the CSI driver on nodes that have migrated them, if the
# gates allow that.
#
# Reads     the pod's claims, their volumes and classes; the same of the pods on each node; limits of CSINodes and nodes. A
#           volume that several pods share counts once
# Rejects   nodes at their limit; preemption may help
# Wakes on  a node or CSINode added or changed; a pod deleted
# Source    kube-scheduler 1.21, plugins/nodevolumelimits/csi.go; kubernetes 1.21, pkg/volume/util/attach_limit.go

# kube-scheduler's own text, kept word for word: people search their events for it.
NO_NAME: Final = "PersistentVolumeClaim had no name"

_PREFIX: Final = "attachable-volumes-csi-"
_LONGEST_KEY: Final = 63


def limit_key(driver: str) -> str:
    """Return the node resource that limits a driver's volumes; a name that would be too long ends in a digest."""
    if len(_PREFIX) + len(driver) < _LONGEST_KEY:
        return _PREFIX + driver
    return _PREFIX + driver[:23] + sha1(driver.encode(), usedforsecurity=False).hexdigest()[:16]


class NodeVolumeLimitsV121(RefusingPlugin[PodInfo], Attachable):
    name = "NodeVolumeLimits"
    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())

    def __init__(self) -> None:
        self._migration = migration_under(FeatureGates(release="1.21"))
        self._held = HeldVolumes(self._on_row, PersistentVolumeClaim, PersistentVolume, StorageClass, by_node=CSINode)
        self._counts: dict[str, Column] = {}
        self._node_limits: dict[str, IntArray] = {}
        self._node_limits_at = -1

    def attach(self, handle: Handle) -> None:
        self._migration = migration_under(handle.gates)

    def filter(self, pod: PodInfo, nodes: NodeView) -> Iterator[Reject]:
        if pod.volumes is None or not pod.volumes.claims:
            return
        if any(not use.name for use in pod.volumes.claims if not use.ephemeral):
            yield Reject(~nodes.false(), NO_NAME, error=True)
            return
        refused = nodes.false()
        for plugins, rows in self._by_migration(nodes):
            volumes = volumes_of(pod, plugins, self._migration, nodes.snapshot)
            if volumes:
                refused |= rows & self._over_limit(volumes, nodes)
        yield Reject(refused, TOO_MANY)

    def why(self, state: object, pod: PodInfo, node: NodeView) -> Detail | None:
        named = ", ".join(use.name for use in pod.volumes.claims) if pod.volumes is not None else ""
        return Detail(f"too many volumes attached for claims {named}") if named else None

    def remedies(self, state: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        return remedies_of_full_attachments(node)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE))
        yield Wake(ClusterEvent(Resource.CSI_NODE, Action.ADD | Action.UPDATE))
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE))

    # -- volumes of the pod and of the nodes --------------------------------------------------------------------------

    def _by_migration(self, nodes: NodeView) -> Iterator[tuple[frozenset[str], BoolArray]]:
        """Yield each set of in-tree plugins that some rows have migrated, and those rows."""
        column = nodes.snapshot.index(CsiNodes).follow()
        kinds: dict[frozenset[str], int] = {}
        which = column.spread(
            nodes.ids(column), lambda facts: kinds.setdefault(self._migrated_plugins(facts), len(kinds)), np.int64
        )
        yield from ((plugins, np.equal(which, number)) for plugins, number in kinds.items())

    def _migrated_plugins(self, facts: CsiFacts | None) -> frozenset[str]:
        return frozenset() if facts is None else facts.migrated & self._migration.plugins

    def _on_row(self, pod: PodInfo, row: int, snapshot: Snapshot) -> frozenset[CsiVolume]:
        node = snapshot.objects(CSINode).get(snapshot.table.nodes[row].name)
        plugins = self._migrated_plugins(None if node is None else CsiFacts.of(node))
        return volumes_of(pod, plugins, self._migration, snapshot)

    def _over_limit(self, volumes: frozenset[CsiVolume], nodes: NodeView) -> BoolArray:
        """Return for each row whether the pod would exceed the limit of some driver."""
        self._follow(nodes.snapshot)
        over = nodes.false()
        for driver in sorted({volume.driver for volume in volumes}):
            added = nodes.zeros()
            for volume in volumes:
                if volume.driver == driver:
                    added += ~nodes.holding([row for row, there in self._held.on_row.items() if volume in there])
            counts = self._counts.get(driver)
            held = nodes.zeros() if counts is None else nodes.take(counts)
            over |= (added > 0) & (held + added > nodes.take(self._limits(driver, nodes.snapshot)))
        return over

    def _follow(self, snapshot: Snapshot) -> None:
        recomputed, is_reset = self._held.follow(snapshot)
        if is_reset:
            self._counts.clear()
        for row, before, now in recomputed:
            for removed in before - now:
                self._counts[removed.driver].data[row] -= 1
            for added in now - before:
                self._counts.setdefault(added.driver, snapshot.table.space.column()).data[row] += 1

    def _limits(self, driver: str, snapshot: Snapshot) -> IntArray:
        """Return the limit of the driver on each row of the table, from its CSINode or else from the node."""
        table = snapshot.table
        if self._node_limits_at != table.changes.nodes:
            self._node_limits.clear()
            self._node_limits_at = table.changes.nodes
        by_node = self._node_limits.get(driver)
        if by_node is None:
            key = limit_key(driver)
            amounts = (node.status.allocatable.get(key) for node in table.nodes)
            limits = (NO_LIMIT if one is None else amount(key, one) for one in amounts)
            by_node = self._node_limits[driver] = np.fromiter(limits, dtype=np.int64, count=len(table))
        by_driver = snapshot.index(CsiNodes).limits(driver)
        return np.where(by_driver == NO_LIMIT, by_node, by_driver)


def volumes_of(
    pod: PodInfo, plugins: frozenset[str], migration: csi_migration.Migration, snapshot: Snapshot
) -> frozenset[CsiVolume]:
    """Return the CSI volumes of a pod on a node that has migrated these in-tree plugins."""
    claims = snapshot.objects(PersistentVolumeClaim)
    named = (claims.get(use.key) for use in pod.volumes.claims if not use.ephemeral) if pod.volumes is not None else ()
    found = (volume_of_claim(claim, snapshot, plugins, migration.translate) for claim in named if claim is not None)
    return frozenset(volume for volume in found if volume is not None)


# -- 1.22 and later ----------------------------------------------------------------------------------------------------

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

    every_driver_counts = True
    #: In-tree plugins that migrate only where a CSINode declares it.
    declared: frozenset[str] = frozenset([csi_migration.PORTWORX])
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
        self._migrate(InTreeMigration(self.declared, frozenset() if is_open else frozenset([csi_migration.PORTWORX])))

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

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.CSI_NODE, Action.ADD))
        yield from for_placed_pods([Wake(ClusterEvent(Resource.POD, Action.DELETE), had_volumes, by_shape=True)])
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), uses_claim)
        yield Wake(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE))


class NodeVolumeLimitsV131(NodeVolumeLimitsV132):
    """The plugin up to 1.31."""

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

    needs_claims = True

    def wakes_on(self) -> Iterator[Wake]:
        return (wake for wake in super().wakes_on() if wake.event.resource is not Resource.PERSISTENT_VOLUME_CLAIM)


class NodeVolumeLimitsV127(NodeVolumeLimitsV129):
    """The plugin of 1.27."""

    declared = frozenset([csi_migration.GCE_PD, csi_migration.PORTWORX])


class NodeVolumeLimitsV126(NodeVolumeLimitsV127):
    """The plugin up to 1.26."""

    declared = frozenset([csi_migration.AWS_EBS, csi_migration.AZURE_DISK, csi_migration.GCE_PD, csi_migration.PORTWORX])


class NodeVolumeLimitsV124(NodeVolumeLimitsV126):
    """The plugin up to 1.24."""

    counts_inline = False

    def attach(self, handle: Handle) -> None:
        super().attach(handle)
        self._migrate(InTreeMigration(self.declared, closed_plugins(handle.gates)))


class NodeVolumeLimitsV122(NodeVolumeLimitsV121):
    """The plugin up to 1.22: that of 1.21, but Azure disks that are not managed do not migrate."""

    def attach(self, handle: Handle) -> None:
        self._migration = csi_migration.CURRENT_MIGRATION._replace(
            plugins=csi_migration.CURRENT_MIGRATION.plugins - closed_plugins(handle.gates)
        )
