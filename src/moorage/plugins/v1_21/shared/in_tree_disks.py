"""In-tree disks whose number per node is limited: the disks of a pod, and how many more each node takes.

A disk counts once on a node, whether pods mount it directly or through claims. A claim without a volume, or whose volume is
missing, counts as a separate disk if its class provisions disks of the kind.

Source  kube-scheduler 1.21, plugins/nodevolumelimits/non_csi.go; kubernetes 1.21, pkg/volume/util/attach_limit.go
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from moorage.api.core import Node, Volume
from moorage.api.feature_gates import FeatureGates
from moorage.api.pod_requests import amount
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, StorageClass
from moorage.plugins.shared.node_numbers import numbers_of
from moorage.plugins.volumes.attached_volumes import AttachedVolumes
from moorage.plugins.volumes.csi_nodes import CsiNodes
from moorage.plugins.volumes.csi_volumes import CsiVolume, PodCsiVolumes
from moorage.state.view import BoolArray, IntArray, KeptColumn, NodeView, PodInfo, Snapshot

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


def disks_of(kind: DiskKind, pod: PodInfo, snapshot: Snapshot, *, ephemeral: bool = False) -> frozenset[CsiVolume]:
    """Return the pod's disks of a kind, with the plugin as driver, and its name for a disk as handle.

    Missing claims do not count, those of ephemeral volumes only with ``ephemeral``.
    """
    if pod.volumes is None:
        return frozenset()
    found = {_named(kind, volume) for volume in pod.volumes.inline if getattr(volume, kind.source) is not None}
    claims = snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims:
        claim = claims.get(use.key)
        if claim is not None and (ephemeral or not use.ephemeral):
            found |= set(_disk_of(kind, claim, snapshot))
    return frozenset(found)


def _disk_of(kind: DiskKind, claim: PersistentVolumeClaim, snapshot: Snapshot) -> Iterator[CsiVolume]:
    volume = snapshot.objects(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        storage_class = snapshot.objects(StorageClass).get(claim.spec.storage_class_name or "")
        if storage_class is not None and storage_class.provisioner == kind.plugin:
            yield CsiVolume(kind.plugin, "", claim.key)
    elif getattr(volume.spec, kind.source) is not None:
        yield _named(kind, volume.spec)


def _named(kind: DiskKind, source: Volume | PersistentVolumeSpec) -> CsiVolume:
    disk: dict[str, Any] = getattr(source, kind.source)
    return CsiVolume(kind.plugin, str(disk.get(kind.names) or ""))


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


class DisksOnNodes(AttachedVolumes):
    """The in-tree disks of each row, by their plugin. An index: get it from ``Snapshot.index``."""

    counts_ephemeral = False

    def _needed(self, pod: PodInfo, migrated: frozenset[str]) -> PodCsiVolumes:
        found = (disks_of(kind, pod, self._snapshot, ephemeral=self.counts_ephemeral) for kind in KINDS)
        return PodCsiVolumes(tuple(frozenset().union(*found)))

    def _attached_to(self, node: str) -> Iterable[CsiVolume]:
        return ()


class DisksOfEveryClaim(DisksOnNodes):
    """Disks for claims of ephemeral volumes, too."""

    counts_ephemeral = True


@dataclass(frozen=True, slots=True)
class LimitsByRow:
    """How many disks of a kind each row takes, as an index: equal values share one."""

    kind: DiskKind
    max_disks: int | None

    def __call__(self, snapshot: Snapshot) -> KeptColumn:
        return numbers_of(lambda one: limit_of(self.kind, one.node, self.max_disks))(snapshot)


class DiskCounter:
    """Counts the disks of one kind."""

    def __init__(self, kind: DiskKind, gates: FeatureGates, max_disks: int | None = None, *, ephemeral: bool = False) -> None:
        self._kind = kind
        # In the current release every node that declares a migration has migrated.
        self._migration = gates.emulated.migrates_in_tree_disks or (gates["CSIMigration"] and gates[kind.gate])
        self._on_nodes = DisksOfEveryClaim if ephemeral else DisksOnNodes
        self._limits = LimitsByRow(kind, max_disks)

    def use(self, disks: frozenset[CsiVolume], nodes: NodeView) -> DiskUse:
        """Return the counts for a pod with these disks on each row of the view."""
        on_nodes = nodes.snapshot.index(self._on_nodes)
        on_nodes.follow()
        held = on_nodes.counts(self._kind.plugin)
        return DiskUse(
            nodes.zeros() if held is None else nodes.take(held),
            on_nodes.added(disks, nodes),
            nodes.snapshot.index(self._limits).of(nodes),
            ~self._migrated(nodes),
        )

    def _migrated(self, nodes: NodeView) -> BoolArray:
        if not self._migration:
            return nodes.false()
        column = nodes.snapshot.index(CsiNodes).follow()
        return column.spread(nodes.ids(column), lambda facts: facts is not None and self._kind.plugin in facts.migrated)
