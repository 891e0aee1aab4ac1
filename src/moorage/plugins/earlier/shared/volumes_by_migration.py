"""Volumes on nodes up to 1.35: some in-tree plugins migrate only on nodes whose CSINode declares it.

Source  kube-scheduler 1.35, 1.27 and 1.24, plugins/nodevolumelimits/utils.go, isCSIMigrationOn
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Final, NamedTuple

from moorage.api.storage import CSINode
from moorage.framework.feature_gates import FeatureGates
from moorage.plugins.volumes.csi_migration import AWS_EBS, AZURE_DISK, CINDER, GCE_PD, PORTWORX, in_tree_plugins
from moorage.plugins.volumes.csi_volumes import AttachedVolumes, CsiFacts, CsiVolume
from moorage.state.cluster import Snapshot

_NONE: Final[frozenset[str]] = frozenset()
#: In-tree plugin → the gate of 1.23 and 1.24 that opens its migration.
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

    def possible(self) -> list[frozenset[str]]:
        """Return all answers of ``on``."""
        all_but_closed, declared = in_tree_plugins() - self.closed, sorted(self.declared - self.closed)
        missing = (frozenset(some) for count in range(len(declared) + 1) for some in combinations(declared, count))
        return [*(all_but_closed - some for some in missing), _NONE]


def closed_plugins(gates: FeatureGates) -> frozenset[str]:
    """Return the in-tree plugins that do not migrate because a gate of 1.24 or before is closed."""
    if not gates["CSIMigration"]:
        return in_tree_plugins()
    return frozenset(plugin for plugin, gate in _GATES.items() if not gates[gate])


class VolumesByMigration(AttachedVolumes):
    """Counts the volumes of each row by the plugins that it migrates.

    ``counts_attachments``  VolumeAttachments that no pod needs count too
    ``counts_inline``       volumes without a claim count too
    """

    def __init__(
        self, snapshot: Snapshot, migration: InTreeMigration, *, counts_attachments: bool, counts_inline: bool
    ) -> None:
        super().__init__(snapshot)
        self.counts_inline = counts_inline
        self._migration = migration
        self._counts_attachments = counts_attachments
        self._nodes_position = 0

    def _note_changes(self) -> bool:
        journal = self._snapshot.changes_of(CSINode)
        changed, self._nodes_position = journal.since(self._nodes_position), journal.position
        if changed is None or not super()._note_changes():
            return False
        row_of = self._table.row_of
        self._stale |= {row_of[name]: None for name in changed if name in row_of}
        return True

    def _migrated_on(self, row: int) -> frozenset[str]:
        node = self._snapshot.objects(CSINode).get(self._table.nodes[row].name)
        return self._migration.on(None if node is None else CsiFacts.of(node))

    def _attached_to(self, node: str) -> Iterable[CsiVolume]:
        return super()._attached_to(node) if self._counts_attachments else ()
