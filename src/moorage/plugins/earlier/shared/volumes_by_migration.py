"""Volumes on nodes up to 1.35: some in-tree plugins migrate only on nodes whose CSINode declares it.

Source  kube-scheduler 1.35, 1.27, 1.24 and 1.21, plugins/nodevolumelimits/utils.go, isCSIMigrationOn
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moorage.api.feature_gates import FeatureGates
from moorage.api.storage import CSINode, PersistentVolume
from moorage.plugins.volumes.attached_volumes import AttachedVolumes
from moorage.plugins.volumes.csi_nodes import CsiFacts
from moorage.plugins.volumes.csi_volumes import CountedVolumes, CsiVolume
from moorage.rules.volumes.csi_migration import (
    AWS_EBS,
    AZURE_DISK,
    CINDER,
    GCE_PD,
    PORTWORX,
    MigratedVolume,
    driver_of,
    in_tree_plugins,
    translated,
)
from moorage.state.cluster import Snapshot

_NONE: Final[frozenset[str]] = frozenset()
#: In-tree plugin → the gate up to 1.24 that opens its migration.
_GATES: Final[Mapping[str, str]] = {
    AWS_EBS: "CSIMigrationAWS",
    AZURE_DISK: "CSIMigrationAzureDisk",
    CINDER: "CSIMigrationOpenStack",
    GCE_PD: "CSIMigrationGCE",
    PORTWORX: "CSIMigrationPortworx",
}


class InTreeMigration(NamedTuple):
    """Which in-tree plugins a node with a CSINode migrates.

    ``declared``  plugins that migrate only on nodes whose CSINode declares it
    ``closed``    plugins that never migrate, because their gate is closed
    """

    declared: frozenset[str]
    closed: frozenset[str] = _NONE

    def on(self, facts: CsiFacts | None) -> frozenset[str]:
        """Return the plugins that a node migrates."""
        if facts is None:
            return _NONE
        return in_tree_plugins() - self.closed - (self.declared - facts.migrated)


def closed_plugins(gates: FeatureGates) -> frozenset[str]:
    """Return the in-tree plugins that do not migrate because a gate of 1.24 or before is closed."""
    if not gates["CSIMigration"]:
        return in_tree_plugins()
    return frozenset(plugin for plugin, gate in _GATES.items() if not (gate in gates.names and gates[gate]))


def translated_in_1_21(volume: PersistentVolume) -> MigratedVolume | None:
    """Return an in-tree volume as its driver sees it in 1.21: Azure disks migrate whatever their kind.

    Source  csi-translation-lib 0.21, plugins/azure_disk.go
    """
    disk, driver = volume.spec.azure_disk, driver_of(AZURE_DISK)
    if disk is None or driver is None:
        return translated(volume)
    return MigratedVolume(driver, str(disk.get("diskURI") or ""), volume.required_affinity)


@dataclass(frozen=True, slots=True)
class ByMigration:
    """How volumes on nodes are counted, as an index: equal values share one.

    ``counts_attachments``  VolumeAttachments that no pod needs count too
    """

    migration: InTreeMigration
    counts_attachments: bool
    counted: CountedVolumes

    def __call__(self, snapshot: Snapshot) -> AttachedVolumes:
        return VolumesByMigration(snapshot, self)


class VolumesByMigration(AttachedVolumes):
    """Counts the volumes of each row by the plugins that it migrates."""

    def __init__(self, snapshot: Snapshot, rules: ByMigration) -> None:
        super().__init__(snapshot)
        self.counted = rules.counted
        self._rules = rules
        self._nodes_position = 0

    def _note_changes(self) -> bool:
        journal = self._snapshot.changes_of(CSINode)
        changed, self._nodes_position = journal.since(self._nodes_position), journal.position
        if changed is None or not super()._note_changes():
            return False
        row_of = self._table.row_of
        self._count_again(row_of[name] for name in changed if name in row_of)
        return True

    def _migrated_on(self, row: int) -> frozenset[str]:
        node = self._snapshot.objects(CSINode).get(self._table.nodes[row].name)
        return self._rules.migration.on(None if node is None else CsiFacts.of(node))

    def _attached_to(self, node: str) -> Iterable[CsiVolume]:
        return super()._attached_to(node) if self._rules.counts_attachments else ()
