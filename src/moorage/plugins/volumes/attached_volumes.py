"""The number of volumes of each CSI driver attached to a node, cached between pods.

It counts the volumes of the node's pods and attachments that no pod of the node needs (any more). Volumes of pods that come
are added; rows where anything else changes are counted again. So the cost of a lookup does not grow with the placed pods.

Source  kube-scheduler 1.36, plugins/nodevolumelimits/csi.go, Filter and getNodeVolumeAttachmentInfo
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from moorage.api.meta import Object
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from moorage.plugins.volumes.csi_volumes import CountedVolumes, CsiVolume, PodCsiVolumes, needed_volumes
from moorage.rules.volumes import csi_migration
from moorage.state.columns import Column, IntArray
from moorage.state.view import NodeView, PodInfo, Snapshot


@dataclass(slots=True)
class RowVolumes:
    """The volumes of one node: those of its ``pods`` (by UID), and other attachments. There are none if a pod has a fault."""

    pods: set[str] = field(default_factory=set)
    of_pods: set[CsiVolume] = field(default_factory=set)
    unneeded: set[CsiVolume] = field(default_factory=set)


_ALL = csi_migration.in_tree_plugins()
_FOLLOWED = (PersistentVolumeClaim, PersistentVolume, StorageClass, VolumeAttachment)


class AttachedVolumes:
    """Counts by driver and row, and the rows that use a volume. Call ``follow`` before the queries.

    An index: get it from ``Snapshot.index``.
    """

    counted = CountedVolumes()

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._table = snapshot.table
        self._moved = -1
        self._position = self._came = self._left = self._objects_changed = 0
        self._positions: dict[type[Object], int] = {}
        self._clear()

    def _clear(self) -> None:
        self._counts: dict[str, Column] = {}
        #: The rows that are counted.
        self._rows: dict[int, RowVolumes] = {}
        self._holders: dict[CsiVolume, set[int]] = {}
        #: Why the volumes of a row cannot be counted.
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

    def added(self, volumes: Collection[CsiVolume], nodes: NodeView) -> IntArray:
        """Count for each row of a view the volumes that no pod on the node uses yet, whether they are attached or not."""
        added = nodes.zeros() + len(volumes)
        for volume in volumes:
            if rows := self._holders.get(volume):
                added -= nodes.holding(rows)
        return added

    # -- updates ------------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Recount where pods or objects have changed. Rows of an open what-if are recounted every time."""
        if not self._note_changes():
            self._rebuild()
        use = self._table.volume_use
        self._position, self._came, self._left = self._table.changes.position, use.came.position, use.left.position
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
        use = self._table.volume_use
        came, left = use.came.since(self._came), use.left.since(self._left)
        if came is None or left is None:
            return False
        if self._table.changes.moved != self._moved:
            moved = self._table.changes.since(self._position)
            if moved is None:
                return False
            self._moved = self._table.changes.moved
            gone = [row for row in self._rows if row >= len(self._table)]  # the last row went where another was removed
            for row in dict.fromkeys([*moved, *gone]):
                self._forget(row)  # its node may be another: the columns have moved with the nodes
                for column in self._counts.values() if row < len(self._table) else ():
                    column.cells[row] = 0
                self._stale[row] = None
        self._stale |= dict.fromkeys(came)
        self._count_again([*left, *range(self._counted, len(self._table))])
        return self._snapshot.objects_changed == self._objects_changed or self._note_objects()

    def _note_objects(self) -> bool:
        """Do so for changed objects."""
        changed = {kind: self._snapshot.changes_of(kind).since(self._positions[kind]) for kind in _FOLLOWED}
        claims, volumes = changed[PersistentVolumeClaim], changed[PersistentVolume]
        attachments = changed[VolumeAttachment]
        if claims is None or volumes is None or attachments is None or changed[StorageClass] != []:
            return False
        for key in claims:
            self._count_again(self._table.volume_use.rows_using(key))
        for name in volumes:
            self._count_again(sorted(self._looked_up.pop(name, ())))
        for key in attachments:
            self._file_attachment(key)
        self._note_positions()
        return True

    def _note_positions(self) -> None:
        self._objects_changed = self._snapshot.objects_changed
        self._positions = {kind: self._snapshot.changes_of(kind).position for kind in _FOLLOWED}

    def _count_again(self, rows: Iterable[int]) -> None:
        """Count rows from the beginning."""
        for row in rows:
            for volume in self._forget(row):
                self._tally(row, volume, -1)
            self._stale[row] = None

    def _forget(self, row: int) -> Iterable[CsiVolume]:
        """Forget what is known of a row but its counts. Return the volumes that it held."""
        self.faults.pop(row, None)
        held = self._rows.pop(row, None)
        if held is None:
            return ()
        for volume in held.of_pods:
            self._holders[volume].discard(row)
            if not self._holders[volume]:
                del self._holders[volume]
        return held.of_pods | held.unneeded

    def _rebuild(self) -> None:
        self._clear()
        self._moved = self._table.changes.moved
        self._note_positions()
        for key in self._snapshot.objects(VolumeAttachment):
            self._file_attachment(key)
        self._stale |= dict.fromkeys(self._table.volume_use.rows)

    def _file_attachment(self, key: str) -> None:
        """File an attachment under its node, or remove it, and mark the affected rows."""
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
            if node is not None and (row := self._table.row_of.get(node)) is not None:
                self._count_again([row])

    def _recount(self, row: int) -> None:
        """Add the volumes of pods that came to a row; those of all, if it is not counted or could not be."""
        if row in self.faults:
            self._count_again([row])
        held = self._rows.get(row)
        if held is None:
            node = self._table.nodes[row].name
            held = self._rows[row] = RowVolumes(unneeded=set(self._attached_to(node)))
            for volume in held.unneeded:
                self._tally(row, volume, 1)
            for attachment in self._attachments.get(node, {}).values():
                self._looked_up.setdefault(attachment.spec.source.persistent_volume_name or "", set()).add(row)
        migrated, fault = self._migrated_on(row), ""
        for uid, pod in self._table.volume_use.pods_on(row).items():
            if uid in held.pods:
                continue
            held.pods.add(uid)
            self._note_lookups(row, pod)
            needed = self._needed(pod, migrated)
            fault = fault or needed.fault
            for volume in needed.volumes:
                if volume in held.of_pods:
                    continue
                held.of_pods.add(volume)
                self._holders.setdefault(volume, set()).add(row)
                if volume in held.unneeded:
                    held.unneeded.remove(volume)
                else:
                    self._tally(row, volume, 1)
        if fault:
            self._count_again([row])
            self._rows[row], self.faults[row] = RowVolumes(), fault

    def _needed(self, pod: PodInfo, migrated: frozenset[str]) -> PodCsiVolumes:
        """Return the volumes of a pod on a node."""
        return needed_volumes(pod, self._snapshot, migrated=migrated, placed=True, counted=self.counted)

    def _migrated_on(self, row: int) -> frozenset[str]:
        """Return the in-tree plugins that a row counts as migrated: all, since rows without a CSINode have no limit."""
        return _ALL

    def _attached_to(self, node: str) -> Iterable[CsiVolume]:
        volumes = self._snapshot.objects(PersistentVolume)
        for attachment in self._attachments.get(node, {}).values():
            volume = volumes.get(attachment.spec.source.persistent_volume_name or "")
            if attachment.spec.attacher and volume is not None and volume.spec.csi is not None:
                yield CsiVolume(attachment.spec.attacher, volume.spec.csi.volume_handle)

    def _tally(self, row: int, volume: CsiVolume, by: int) -> None:
        column = self._counts.get(volume.driver)
        if column is None:
            column = self._counts[volume.driver] = self._table.space.column()
        column.cells[row] += by

    def _note_lookups(self, row: int, pod: PodInfo) -> None:
        claims = self._snapshot.objects(PersistentVolumeClaim)
        for use in pod.volumes.claims if pod.volumes is not None else ():
            claim = claims.get(use.key)
            if claim is not None and claim.spec.volume_name:
                self._looked_up.setdefault(claim.spec.volume_name, set()).add(row)
