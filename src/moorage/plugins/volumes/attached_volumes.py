"""The number of volumes of each CSI driver attached to a node, cached between pods.

It counts the volumes of the node's pods and attachments that no pod of the node needs (any more). Only changed rows are counted
again, so the cost of a lookup does not grow with the number of placed pods.

Source  kube-scheduler 1.36, plugins/nodevolumelimits/csi.go, Filter and getNodeVolumeAttachmentInfo
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from moorage.api.meta import Object
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from moorage.plugins.volumes.csi_migration import in_tree_plugins
from moorage.plugins.volumes.csi_volumes import CsiVolume, needed_volumes
from moorage.state.cluster import Snapshot
from moorage.state.columns import Column

__all__ = ["AttachedVolumes", "RowVolumes"]


class RowVolumes(NamedTuple):
    """The volumes of one node: those of its pods, and other attachments. ``fault``: why they cannot be counted."""

    of_pods: frozenset[CsiVolume] = frozenset()
    unneeded: frozenset[CsiVolume] = frozenset()
    fault: str = ""


_NOTHING = RowVolumes()
_ALL = in_tree_plugins()
_FOLLOWED = (PersistentVolumeClaim, PersistentVolume, StorageClass, VolumeAttachment)


class AttachedVolumes:
    """Counts by driver and row, and the rows that use a volume. Call ``follow`` before the queries.

    An index: get it from ``Snapshot.index``.
    """

    #: Volumes without a claim count too.
    counts_inline = True

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._table = snapshot.table
        self._moved = -1
        self._position = 0
        self._positions: dict[type[Object], int] = {}
        self._clear()

    def _clear(self) -> None:
        self._counts: dict[str, Column] = {}
        self._rows: dict[int, RowVolumes] = {}
        self._holders: dict[CsiVolume, set[int]] = {}
        self.faults: dict[int, str] = {}
        #: name of a volume → rows whose count depends on that volume
        self._looked_up: dict[str, set[int]] = {}
        #: node → its attachments; attachment → its node
        self._attachments: dict[str, dict[str, VolumeAttachment]] = {}
        self._node_of: dict[str, str] = {}
        self._stale: dict[int, None] = {}
        self._counted = 0

    # -- queries ------------------------------------------------------------------------------------------------------

    def counts(self, driver: str) -> Column | None:
        """Return how many volumes of the driver each row holds; None if no row ever held one."""
        return self._counts.get(driver)

    def rows_holding(self, volume: CsiVolume) -> Collection[int]:
        """Return the rows whose pods use the volume. Attachments that no pod needs do not count here."""
        return self._holders.get(volume, ())

    # -- updates ------------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Recount where pods or objects have changed. Rows of an open what-if are recounted every time."""
        if not self._note_changes():
            self._rebuild()
        self._positions = {kind: self._snapshot.changes_of(kind).position for kind in _FOLLOWED}
        self._position = self._table.changes.position
        self._counted = len(self._table)
        in_what_ifs = dict.fromkeys(self._table.rows_in_what_ifs)
        for row in self._stale | in_what_ifs:
            if row < self._counted:  # otherwise the row is gone
                self._recount(row)
        self._stale = in_what_ifs

    def _note_changes(self) -> bool:
        """Collect the rows to recount; return False if all rows must be: the change logs no longer have all changes."""
        if self._moved < 0:
            return False
        rows = self._table.changes.since(self._position)
        changed = {kind: self._snapshot.changes_of(kind).since(self._positions[kind]) for kind in _FOLLOWED}
        claims, volumes = changed[PersistentVolumeClaim], changed[PersistentVolume]
        attachments = changed[VolumeAttachment]
        if rows is None or claims is None or volumes is None or attachments is None or changed[StorageClass] != []:
            return False
        held = self._table.volume_use.rows
        if self._table.changes.moved != self._moved:
            self._moved = self._table.changes.moved
            gone = [row for row in self._rows if row >= len(self._table)]  # the last row went where another was removed
            for row in dict.fromkeys([*rows, *gone]):
                self._forget_row(row)
        self._stale |= {row: None for row in rows if row in held or row in self._rows or row >= self._counted}
        for key in claims:
            self._stale |= dict.fromkeys(self._table.volume_use.rows_using(key))
        for name in volumes:
            self._stale |= dict.fromkeys(sorted(self._looked_up.pop(name, ())))
        for key in attachments:
            self._file_attachment(key)
        return True

    def _forget_row(self, row: int) -> None:
        """Forget what is known of a row whose node may be another: the columns have moved with the nodes."""
        for volume in self._rows.pop(row, _NOTHING).of_pods:
            self._drop_holder(volume, row)
        self.faults.pop(row, None)
        if row < len(self._table):
            for column in self._counts.values():
                column.cells[row] = 0
            self._stale[row] = None

    def _drop_holder(self, volume: CsiVolume, row: int) -> None:
        self._holders[volume].discard(row)
        if not self._holders[volume]:
            del self._holders[volume]

    def _rebuild(self) -> None:
        self._clear()
        self._moved = self._table.changes.moved
        for key in self._snapshot.objects(VolumeAttachment):
            self._file_attachment(key)
        self._stale |= dict.fromkeys(self._table.volume_use.rows)

    def _file_attachment(self, key: str) -> None:
        """File an attachment under its node, or remove it, and mark the affected rows."""
        row_of = self._table.row_of
        before = self._node_of.pop(key, None)
        if before is not None:
            on_node = self._attachments[before]
            del on_node[key]
            if not on_node:
                del self._attachments[before]
        attachment = self._snapshot.objects(VolumeAttachment).get(key)
        if attachment is not None:
            self._node_of[key] = attachment.spec.node_name
            self._attachments.setdefault(attachment.spec.node_name, {})[key] = attachment
        for node in (before, attachment.spec.node_name if attachment is not None else None):
            if node is not None and node in row_of:
                self._stale[row_of[node]] = None

    def _recount(self, row: int) -> None:
        new = self._volumes_on(row)
        old = self._rows.pop(row, _NOTHING)
        self._tally(row, old, -1)
        self._tally(row, new, 1)
        for volume in old.of_pods - new.of_pods:
            self._drop_holder(volume, row)
        for volume in new.of_pods:
            self._holders.setdefault(volume, set()).add(row)
        self.faults.pop(row, None)
        if new.fault:
            self.faults[row] = new.fault
        if new != _NOTHING:
            self._rows[row] = new
        self._note_lookups(row)

    def _volumes_on(self, row: int) -> RowVolumes:
        """Compute the volumes of one row from its pods and attachments."""
        of_pods: dict[CsiVolume, None] = {}
        for pod in self._table.volume_use.pods_on(row).values():
            needed = needed_volumes(
                pod, self._snapshot, migrated=self._migrated_on(row), placed=True, inline=self.counts_inline
            )
            if needed.fault:
                return RowVolumes(fault=needed.fault)
            of_pods |= dict.fromkeys(needed.volumes)
        attached = self._attached_to(self._table.nodes[row].name)
        return RowVolumes(frozenset(of_pods), frozenset(volume for volume in attached if volume not in of_pods))

    def _migrated_on(self, row: int) -> frozenset[str]:
        """Return the in-tree plugins that a row counts as migrated: all, since rows without a CSINode have no limit."""
        del row
        return _ALL

    def _attached_to(self, node: str) -> Iterable[CsiVolume]:
        volumes = self._snapshot.objects(PersistentVolume)
        for attachment in self._attachments.get(node, {}).values():
            volume = volumes.get(attachment.spec.source.persistent_volume_name or "")
            if attachment.spec.attacher and volume is not None and volume.spec.csi is not None:
                yield CsiVolume(attachment.spec.attacher, volume.spec.csi.volume_handle)

    def _tally(self, row: int, held: RowVolumes, by: int) -> None:
        for volumes in (held.of_pods, held.unneeded):
            for volume in volumes:
                column = self._counts.get(volume.driver)
                if column is None:
                    column = self._counts[volume.driver] = self._table.space.column()
                column.data[row] += by

    def _note_lookups(self, row: int) -> None:
        claims = self._snapshot.objects(PersistentVolumeClaim)
        for pod in self._table.volume_use.pods_on(row).values():
            for use in pod.volumes.claims if pod.volumes is not None else ():
                claim = claims.get(use.key)
                if claim is not None and claim.spec.volume_name:
                    self._looked_up.setdefault(claim.spec.volume_name, set()).add(row)
        for attachment in self._attachments.get(self._table.nodes[row].name, {}).values():
            self._looked_up.setdefault(attachment.spec.source.persistent_volume_name or "", set()).add(row)
