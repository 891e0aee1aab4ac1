"""The CSI volumes that a pod needs, as drivers count them: a volume that several claims or pods share counts once.

A claim without a volume counts as a separate volume of the driver that will provision it. In-tree volumes count for the driver
that they migrate to, on nodes that migrate them.

Source  kube-scheduler 1.36, plugins/nodevolumelimits/csi.go, filterAttachableVolumes and what it calls
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from moorage.api.meta import Object
from moorage.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from moorage.plugins.volumes.pod_claims import claim_not_found, is_owned_by, not_owned
from moorage.rules.volumes import csi_migration
from moorage.rules.volumes.bindings import class_of_claim
from moorage.state.columns import BoolArray, Column, IntArray
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
        self._kinds: dict[Hashable, Mapping[frozenset[str], BoolArray]] = {}

    def follow(self) -> InternedColumn[CsiFacts | None]:
        """Apply the changes since the last call and return the column."""
        changed, moved = self._journal.since(self._position), self._moved_names()
        if changed is None or moved is None:
            self._rows, changed, moved = 0, [], []
            self._column = InternedColumn(self._table.space, None)
        changed = [*(node.name for node in self._table.nodes[self._rows :]), *changed, *moved]
        if changed or self._moved != self._table.changes.moved:
            self._limits.clear()
            self._kinds.clear()
        self._rows, self._moved = len(self._table), self._table.changes.moved
        self._table_position = self._table.changes.position
        for name in changed:
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
            limits = self._limits[driver] = self._column.spread(
                self._column.ids, lambda facts: NO_LIMIT if facts is None else facts.limit(driver), np.int64
            )
        return limits

    def kinds(self, migrated_with: Callable[[CsiFacts | None], frozenset[str]]) -> Mapping[frozenset[str], BoolArray]:
        """Return the sets of in-tree plugins that some rows of the table migrate, with these rows; cached as ``limits``."""
        kinds = self._kinds.get(migrated_with)
        if kinds is None:
            numbers: dict[frozenset[str], int] = {}
            which = self._column.spread(
                self._column.ids, lambda facts: numbers.setdefault(migrated_with(facts), len(numbers)), np.int64
            )
            kinds = self._kinds[migrated_with] = {migrated: which == number for migrated, number in numbers.items()}
        return kinds


# -- attached volumes --------------------------------------------------------------------------------------------------
# The number of volumes of each CSI driver attached to a node, cached between pods.
#
# It counts the volumes of the node's pods and attachments that no pod of the node needs (any more). Volumes of pods that come
# are added; rows where anything else changes are counted again. So the cost of a lookup does not grow with the placed pods.
#
# Source  kube-scheduler 1.36, plugins/nodevolumelimits/csi.go, Filter and getNodeVolumeAttachmentInfo


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
