"""The CSI volumes that a pod needs, as drivers count them: a volume that several claims or pods share counts once.

A claim without a volume counts as a separate volume of the driver that will provision it. In-tree volumes count for the driver
that they migrate to, on nodes that migrate them.

Source  kube-scheduler 1.36, plugins/nodevolumelimits/csi.go, filterAttachableVolumes and what it calls
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from moorage.api.meta import Object
from moorage.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from moorage.plugins.volumes import csi_migration
from moorage.plugins.volumes.pod_claims import claim_not_found, class_of_claim, is_owned_by, not_owned
from moorage.state.columns import Column, IntArray
from moorage.state.labels import InternedColumn
from moorage.state.view import NodeView, PodInfo, Snapshot

# kube-scheduler's own text, kept word for word: people search their events for it.
NO_NAME: Final = "PersistentVolumeClaim had no name"


class CsiVolume(NamedTuple):
    """A volume by its driver and handle; one that is still to be provisioned by its claim (``namespace/name``)."""

    driver: str
    handle: str
    claim: str = ""


class PodCsiVolumes(NamedTuple):
    """The distinct volumes of a pod, in its order; or why it cannot get them.

    ``missing``  a claim does not exist: the pod has to wait for it
    ``fault``    a volume or claim is invalid: an error
    """

    volumes: tuple[CsiVolume, ...] = ()
    missing: str = ""
    fault: str = ""


class CountedVolumes(NamedTuple):
    """Which volumes of a pod count in a release, and how those of in-tree plugins are translated.

    ``inline``     volumes without a claim count
    ``ephemeral``  claims of ephemeral volumes count
    """

    inline: bool = True
    ephemeral: bool = True
    translate: Callable[[PersistentVolume], csi_migration.MigratedVolume | None] = csi_migration.translated


def needed_volumes(
    pod: PodInfo,
    snapshot: Snapshot,
    *,
    migrated: Collection[str],
    placed: bool = False,
    counted: CountedVolumes = CountedVolumes(),  # noqa: B008 (it is frozen)
) -> PodCsiVolumes:
    """Return the volumes that ``pod`` would use on a node.

    ``migrated``  the in-tree plugins whose volumes CSI drivers serve on the node
    ``placed``    missing claims are skipped, as for a pod that is on a node already
    """
    found: dict[CsiVolume, None] = {}
    if pod.volumes is None:
        return PodCsiVolumes()
    claims = snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims:
        if use.ephemeral and not counted.ephemeral:
            continue
        if not use.name:
            return PodCsiVolumes(fault=NO_NAME)
        claim = claims.get(use.key)
        if claim is None:
            if placed:
                continue
            return PodCsiVolumes(missing=f"looking up PVC {use.key}: {claim_not_found(use.name)}")
        if use.ephemeral and not is_owned_by(claim, pod):
            return PodCsiVolumes(fault=not_owned(claim, pod))
        volume = _volume_of_claim(claim, snapshot, migrated, counted)
        if volume is not None:
            found[volume] = None
    try:
        found |= dict.fromkeys(_inline(pod, migrated) if counted.inline else ())
    except csi_migration.MigrationError as error:
        return PodCsiVolumes(fault=str(error))
    return PodCsiVolumes(tuple(found))


def _inline(pod: PodInfo, migrated: Collection[str]) -> Iterator[CsiVolume]:
    for volume in pod.volumes.inline if pod.volumes is not None and migrated else ():
        if csi_migration.in_tree_plugin(volume) not in migrated:
            continue
        try:
            known = csi_migration.translated_inline(volume)
        except csi_migration.MigrationError as error:
            raise csi_migration.MigrationError(f"converting volume({volume.name}) from inline to csi: {error}") from error
        if known is not None:
            yield CsiVolume(known.driver, known.handle)


def _volume_of_claim(
    claim: PersistentVolumeClaim, snapshot: Snapshot, migrated: Collection[str], counted: CountedVolumes
) -> CsiVolume | None:
    """Return the volume of a claim as its driver sees it; None if it does not count."""
    volume = snapshot.objects(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _volume_to_be_made(claim, snapshot, migrated)
    csi = volume.spec.csi
    if csi is not None:
        return CsiVolume(csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
    if csi_migration.in_tree_plugin(volume.spec) not in migrated:
        return None
    try:
        known = counted.translate(volume)
    except csi_migration.MigrationError:
        return None
    return CsiVolume(known.driver, known.handle) if known is not None and known.handle else None


def _volume_to_be_made(claim: PersistentVolumeClaim, snapshot: Snapshot, migrated: Collection[str]) -> CsiVolume | None:
    """Return the volume that the claim's class will provision; None if it is unknown or does not count."""
    storage_class = snapshot.objects(StorageClass).get(class_of_claim(claim))
    if storage_class is None:
        return None
    driver: str | None = storage_class.provisioner
    if csi_migration.is_in_tree_plugin(storage_class.provisioner):
        driver = csi_migration.driver_of(storage_class.provisioner) if storage_class.provisioner in migrated else None
    return CsiVolume(driver, "", claim.key) if driver else None


# -- csi nodes ---------------------------------------------------------------------------------------------------------
# The facts of CSINodes as a column: volume limits and migrated in-tree plugins.
#
# Nodes of one kind have equal facts, so the plugins evaluate each distinct value once.

#: More volumes than any node holds.
NO_LIMIT: Final = 2**62

_MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"


def migrated_plugins(node: CSINode) -> str:
    """Return the in-tree plugins that a node has migrated, separated by commas."""
    return node.metadata.annotations.get(_MIGRATED_PLUGINS, "")


class CsiFacts(NamedTuple):
    """``drivers``: each driver on the node and the limit on its volumes; None for no limit."""

    drivers: tuple[tuple[str, int | None], ...] = ()
    migrated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, node: CSINode) -> CsiFacts:
        drivers = {d.name: d.allocatable.count if d.allocatable is not None else None for d in node.spec.drivers}
        migrated = migrated_plugins(node)
        return cls(tuple(drivers.items()), frozenset(migrated.split(",")) if migrated else frozenset())

    @property
    def has_limits(self) -> bool:
        return any(limit is not None for _, limit in self.drivers)

    def has(self, driver: str) -> bool:
        return any(name == driver for name, _ in self.drivers)

    def limit(self, driver: str) -> int:
        return next((limit for name, limit in self.drivers if name == driver and limit is not None), NO_LIMIT)


class CsiNodes:
    """The facts of every row; None for a node without CSINode. An index: get it from ``Snapshot.index``."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._table = snapshot.table
        self._objects = snapshot.objects(CSINode)
        self._journal = snapshot.changes_of(CSINode)
        self._moved = -1
        self._rows = 0
        self._position = self._table_position = 0
        self._column: InternedColumn[CsiFacts | None]
        self._limits: dict[str, IntArray] = {}

    def follow(self) -> InternedColumn[CsiFacts | None]:
        """Apply the changes since the last call and return the column."""
        changed, moved = self._journal.since(self._position), self._moved_names()
        if changed is None or moved is None:
            self._rows, changed, moved = 0, [], []
            self._column = InternedColumn(self._table.space, None)
        added = [node.name for node in self._table.nodes[self._rows :]] if len(self._table) > self._rows else []
        if self._moved != self._table.changes.moved:
            self._limits.clear()
        self._rows, self._moved = len(self._table), self._table.changes.moved
        self._table_position = self._table.changes.position
        if moved:
            changed = [*changed, *moved]
        for name in (*added, *changed):
            self._limits.clear()
            row = self._table.row_of.get(name)
            if row is not None:
                node = self._objects.get(name)
                self._column.set(row, None if node is None else CsiFacts.of(node))
        self._position = self._journal.position
        return self._column

    def _moved_names(self) -> list[str] | None:
        """Return the nodes in rows that changed, if rows were removed or renumbered; None if all rows must be read."""
        changes, nodes = self._table.changes, self._table.nodes
        if changes.moved == self._moved:
            return []
        rows = changes.since(self._table_position) if self._moved >= 0 else None
        return None if rows is None else [nodes[row].name for row in dict.fromkeys(rows) if row < len(nodes)]

    def limits(self, driver: str) -> IntArray:
        """Return the limit of the driver on each row of the table, as of the last ``follow``; cached until the next."""
        limits = self._limits.get(driver)
        if limits is None:
            limits = self._limits[driver] = self._column.spread(self._column.ids, _limit_of(driver), np.int64)
        return limits


def _limit_of(driver: str) -> Callable[[CsiFacts | None], int]:
    return lambda facts: NO_LIMIT if facts is None else facts.limit(driver)


# -- attached volumes --------------------------------------------------------------------------------------------------
# The number of volumes of each CSI driver attached to a node, cached between pods.
#
# It counts the volumes of the node's pods and attachments that no pod of the node needs (any more). Only changed rows are
# counted again, so the cost of a lookup does not grow with the number of placed pods.
#
# Source  kube-scheduler 1.36, plugins/nodevolumelimits/csi.go, Filter and getNodeVolumeAttachmentInfo


class RowVolumes(NamedTuple):
    """The volumes of one node: those of its pods, and other attachments. ``fault``: why they cannot be counted."""

    of_pods: frozenset[CsiVolume] = frozenset()
    unneeded: frozenset[CsiVolume] = frozenset()
    fault: str = ""


_NOTHING = RowVolumes()
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
        #: The pods with volumes for which each row was counted.
        self._pods: dict[int, tuple[PodInfo, ...]] = {}

    # -- queries ------------------------------------------------------------------------------------------------------

    def counts(self, driver: str) -> Column | None:
        """Return how many volumes of the driver each row holds; None if no row ever held one."""
        return self._counts.get(driver)

    def rows_holding(self, volume: CsiVolume) -> Collection[int]:
        """Return the rows whose pods use the volume. Attachments that no pod needs do not count here."""
        return self._holders.get(volume, ())

    def added(self, volumes: Collection[CsiVolume], nodes: NodeView) -> IntArray:
        """Count for each row of a view the volumes that no pod on the node uses yet."""
        added = nodes.zeros() + len(volumes)
        for volume in volumes:
            rows = self.rows_holding(volume)
            if rows:
                added -= nodes.holding(rows)
        return added

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
        for row in rows:
            if row >= self._counted or ((row in held or row in self._rows) and self._pods_on(row) != self._pods.get(row)):
                self._stale[row] = None
        for key in claims:
            self._stale |= dict.fromkeys(self._table.volume_use.rows_using(key))
        for name in volumes:
            self._stale |= dict.fromkeys(sorted(self._looked_up.pop(name, ())))
        for key in attachments:
            self._file_attachment(key)
        return True

    def _forget_row(self, row: int) -> None:
        """Forget what is known of a row whose node may be another: the columns have moved with the nodes."""
        self._pods.pop(row, None)
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
        self._pods[row] = self._pods_on(row)
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
        migrated = self._migrated_on(row)
        for pod in self._pods_on(row):
            needed = needed_volumes(pod, self._snapshot, migrated=migrated, placed=True, counted=self.counted)
            if needed.fault:
                return RowVolumes(fault=needed.fault)
            of_pods |= dict.fromkeys(needed.volumes)
        attached = self._attached_to(self._table.nodes[row].name)
        return RowVolumes(frozenset(of_pods), frozenset(volume for volume in attached if volume not in of_pods))

    def _pods_on(self, row: int) -> tuple[PodInfo, ...]:
        return tuple(self._table.volume_use.pods_on(row).values())

    def _migrated_on(self, row: int) -> frozenset[str]:
        """Return the in-tree plugins that a row counts as migrated: all, since rows without a CSINode have no limit."""
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
        for pod in self._pods_on(row):
            for use in pod.volumes.claims if pod.volumes is not None else ():
                claim = claims.get(use.key)
                if claim is not None and claim.spec.volume_name:
                    self._looked_up.setdefault(claim.spec.volume_name, set()).add(row)
        for attachment in self._attachments.get(self._table.nodes[row].name, {}).values():
            self._looked_up.setdefault(attachment.spec.source.persistent_volume_name or "", set()).add(row)
