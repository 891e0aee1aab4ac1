"""In-tree disks whose number per node is limited: the disks of a pod, and how many more each node takes.

A disk counts once on a node, whether pods mount it directly or through claims. A claim without a volume, or whose volume is
missing, counts as a separate disk if its class provisions disks of the kind.

Source  kube-scheduler 1.21, plugins/nodevolumelimits/non_csi.go; kubernetes 1.21, pkg/volume/util/attach_limit.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from moorage.api.core import Node, Object, Volume
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, StorageClass
from moorage.framework.feature_gates import FeatureGates
from moorage.plugins.volumes.csi_migration import MigratedVolume, Migration, driver_of, translated
from moorage.plugins.volumes.csi_volumes import CsiFacts, CsiNodes
from moorage.state.columns import BoolArray, Column, IntArray
from moorage.state.pod_requests import amount
from moorage.state.table import NodeTable
from moorage.state.view import NodeView, PodInfo, Snapshot

# -- held volumes ------------------------------------------------------------------------------------------------------
# A cache of the volumes that the pods on each row use; a volume that several pods use counts once.
#
# A row is recomputed when its pods or its node change. Rows whose pods have volumes are also recomputed when an object changes
# that their volumes depend on. Rows of a what-if are recomputed every time.

V = TypeVar("V")


class RecomputedRow(NamedTuple, Generic[V]):
    """A recomputed row: the volumes in use on it before and now."""

    row: int
    before: frozenset[V]
    now: frozenset[V]


class HeldVolumes(Generic[V]):
    """The volumes in use by row. ``on_row`` has the rows on which any are in use."""

    def __init__(
        self,
        held_by: Callable[[PodInfo, int, Snapshot], frozenset[V]],
        *decisive: type[Object],
        by_node: type[Object] | None = None,
    ) -> None:
        """``held_by`` returns the volumes that one pod uses on a row.

        A change of a ``decisive`` object affects every row; one of a ``by_node`` object only the row of the node of that name.
        """
        self._held_by = held_by
        self._decisive = decisive
        self._by_node = by_node
        self._table: NodeTable | None = None
        self._layout = -1
        self._position = 0
        self._node_position = 0
        self._objects: tuple[int, ...] = ()
        self._stale: tuple[int, ...] = ()
        self.on_row: dict[int, frozenset[V]] = {}

    def follow(self, snapshot: Snapshot) -> tuple[list[RecomputedRow[V]], bool]:
        """Return the recomputed rows, and whether all earlier values are void and all rows were recomputed."""
        table = snapshot.table
        rows = table.changes.since(self._position)
        objects = tuple(snapshot.changes_of(kind).position for kind in self._decisive)
        is_reset = rows is None or table is not self._table or table.changes.layout != self._layout
        if rows is None or is_reset:
            self.on_row.clear()
            rows = list(range(len(table)))
        elif objects != self._objects:
            rows = [*rows, *table.volume_use.rows]
        else:
            rows = [*rows, *self._rows_of_changed_nodes(snapshot)]
        if self._by_node is not None:
            self._node_position = snapshot.changes_of(self._by_node).position
        self._table, self._layout = table, table.changes.layout
        self._position, self._objects = table.changes.position, objects
        in_what_ifs = tuple(table.rows_in_what_ifs)
        recomputed = [self._recompute(snapshot, row) for row in dict.fromkeys((*rows, *self._stale, *in_what_ifs))]
        self._stale = in_what_ifs
        return recomputed, is_reset

    def _rows_of_changed_nodes(self, snapshot: Snapshot) -> list[int]:
        if self._by_node is None:
            return []
        names = snapshot.changes_of(self._by_node).since(self._node_position)
        row_of = snapshot.table.row_of
        return list(snapshot.table.volume_use.rows) if names is None else [row_of[name] for name in names if name in row_of]

    def _recompute(self, snapshot: Snapshot, row: int) -> RecomputedRow[V]:
        pods = snapshot.table.volume_use.pods_on(row).values()
        now: frozenset[V] = frozenset().union(*(self._held_by(pod, row, snapshot) for pod in pods))
        before = self.on_row.pop(row, frozenset())
        if now:
            self.on_row[row] = now
        return RecomputedRow(row, before, now)


# -- in tree disks -----------------------------------------------------------------------------------------------------

_INSTANCE_TYPES: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


class DiskKind(NamedTuple):
    """A kind of disk: ``source`` is the field of a volume that holds it, ``names`` the key in there that identifies a disk.

    ``smaller``  a pattern of instance types with a lower limit, and that limit
    """

    source: str
    names: str
    plugin: str
    resource: str
    gate: str
    limit: int
    smaller: tuple[re.Pattern[str], int] | None = None


EBS: Final = DiskKind(
    "aws_elastic_block_store", "volumeID", "kubernetes.io/aws-ebs", "attachable-volumes-aws-ebs", "CSIMigrationAWS", 39,
    (re.compile("^[cmr]5.*|t3|z1d"), 25),
)  # fmt: skip
GCE_PD: Final = DiskKind(
    "gce_persistent_disk", "pdName", "kubernetes.io/gce-pd", "attachable-volumes-gce-pd", "CSIMigrationGCE", 16
)
AZURE_DISK: Final = DiskKind(
    "azure_disk", "diskName", "kubernetes.io/azure-disk", "attachable-volumes-azure-disk", "CSIMigrationAzureDisk", 16
)
CINDER: Final = DiskKind(
    "cinder", "volumeID", "kubernetes.io/cinder", "attachable-volumes-cinder", "CSIMigrationOpenStack", 256
)
#: In the order in which the default profiles list the plugins that limit them.
KINDS: Final = (EBS, GCE_PD, AZURE_DISK, CINDER)


class DiskId(NamedTuple):
    """A disk by its name; a disk that does not exist yet by the claim (``namespace/name``) it is for."""

    name: str
    claim: str = ""


def disks_of(kind: DiskKind, pod: PodInfo, snapshot: Snapshot, *, ephemeral: bool = False) -> frozenset[DiskId]:
    """Return the pod's disks of a kind. Missing claims do not count, those of ephemeral volumes only with ``ephemeral``."""
    if pod.volumes is None:
        return frozenset()
    found = {_named(kind, volume) for volume in pod.volumes.inline if getattr(volume, kind.source) is not None}
    claims = snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims:
        claim = claims.get(use.key)
        if claim is not None and (ephemeral or not use.ephemeral):
            found |= set(_disk_of(kind, claim, snapshot))
    return frozenset(found)


def _disk_of(kind: DiskKind, claim: PersistentVolumeClaim, snapshot: Snapshot) -> Iterator[DiskId]:
    volume = snapshot.objects(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        storage_class = snapshot.objects(StorageClass).get(claim.spec.storage_class_name or "")
        if storage_class is not None and storage_class.provisioner == kind.plugin:
            yield DiskId("", claim.key)
    elif getattr(volume.spec, kind.source) is not None:
        yield _named(kind, volume.spec)


def _named(kind: DiskKind, source: Volume | PersistentVolumeSpec) -> DiskId:
    disk: dict[str, Any] = getattr(source, kind.source)
    return DiskId(str(disk.get(kind.names) or ""))


def limit_of(kind: DiskKind, node: Node, max_disks: int | None = None) -> int:
    """Return how many disks of a kind a node takes.

    The node's allocatable counts first, then ``max_disks`` if given, then the default for its instance type.
    """
    allocatable = node.status.allocatable.get(kind.resource)
    if allocatable is not None:
        return amount(kind.resource, allocatable)
    if max_disks is not None:
        return max_disks
    labels = node.metadata.labels
    instance_type = next((labels[key] for key in _INSTANCE_TYPES if key in labels), "")
    if kind.smaller is not None and kind.smaller[0].search(instance_type):
        return kind.smaller[1]
    return kind.limit


class DiskUse(NamedTuple):
    """By row, shapes (rows,): disks in use, disks the pod would add, the limit, and whether the limit applies.

    Where a node has migrated the kind to a CSI driver, the driver's limit applies instead.
    """

    held: IntArray
    added: IntArray
    limit: IntArray
    counts: BoolArray


class DiskCounter:
    """The disks of one kind on every row, cached between pods."""

    def __init__(self, kind: DiskKind, gates: FeatureGates, max_disks: int | None = None, *, ephemeral: bool = False) -> None:
        self._kind = kind
        self._ephemeral = ephemeral
        self._max_disks = max_disks
        # In the current release every node that declares a migration has migrated.
        self._migration = gates.emulated.migrates_in_tree_disks or (gates["CSIMigration"] and gates[kind.gate])
        self._on_rows = HeldVolumes(self._disks_of, PersistentVolumeClaim, PersistentVolume, StorageClass)
        self._held: Column
        self._limit: Column

    def use(self, disks: frozenset[DiskId], nodes: NodeView) -> DiskUse:
        """Return the counts for a pod with these disks on each row of the view."""
        self._follow(nodes.snapshot)
        added = nodes.zeros() + len(disks)
        for disk in disks:
            rows = [row for row, there in self._on_rows.on_row.items() if disk in there]
            if rows:
                added -= nodes.holding(rows)
        return DiskUse(nodes.take(self._held), added, nodes.take(self._limit), ~self._migrated(nodes))

    def _migrated(self, nodes: NodeView) -> BoolArray:
        if not self._migration:
            return nodes.false()
        column = nodes.snapshot.index(CsiNodes).follow()
        migrated: BoolArray = column.spread(nodes.ids(column), self._has_migrated)
        return migrated

    def _has_migrated(self, facts: CsiFacts | None) -> bool:
        return facts is not None and self._kind.plugin in facts.migrated

    def _follow(self, snapshot: Snapshot) -> None:
        """Recompute the rows that changed, or all of them if a claim, volume or class changed."""
        table = snapshot.table
        recomputed, is_reset = self._on_rows.follow(snapshot)
        if is_reset:
            self._held, self._limit = table.space.column(), table.space.column()
        for row, _, disks in recomputed:
            self._held.data[row] = len(disks)
            self._limit.data[row] = limit_of(self._kind, table.nodes[row], self._max_disks)

    def _disks_of(self, pod: PodInfo, row: int, snapshot: Snapshot) -> frozenset[DiskId]:
        return disks_of(self._kind, pod, snapshot, ephemeral=self._ephemeral)


# -- csi migration -----------------------------------------------------------------------------------------------------
# CSI migration in 1.21: nodes may migrate four kinds of in-tree disks, each behind its own feature gate.
#
# Two translations differ from the current ones: Azure disks migrate whatever their kind, and Portworx volumes do not migrate.
#
# Source  kube-scheduler 1.21, plugins/nodevolumelimits/utils.go, isCSIMigrationOn; pkg/controller/volume/scheduling,
#         scheduler_binder.go, isCSIMigrationOnForPlugin; csi-translation-lib 0.21, plugins/azure_disk.go


def migration_under(gates: FeatureGates) -> Migration:
    """Return the in-tree plugins that nodes may migrate with these gates."""
    plugins = frozenset(kind.plugin for kind in KINDS if gates["CSIMigration"] and gates[kind.gate])
    return Migration(plugins, _translated)


def _translated(volume: PersistentVolume) -> MigratedVolume | None:
    disk, driver = volume.spec.azure_disk, driver_of(AZURE_DISK.plugin)
    if disk is None or driver is None:
        return translated(volume)
    affinity = None if volume.spec.node_affinity is None else volume.spec.node_affinity.required
    return MigratedVolume(driver, str(disk.get("diskURI") or ""), affinity)
