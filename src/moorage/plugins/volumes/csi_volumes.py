"""The CSI volumes that a pod needs, as drivers count them: a volume that several claims or pods share counts once.

A claim without a volume counts as a separate volume of the driver that will provision it. In-tree volumes count for the driver
that they migrate to, on nodes that migrate them.

Source  kube-scheduler 1.36, plugins/nodevolumelimits/csi.go, filterAttachableVolumes and what it calls
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

import numpy as np

from moorage.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.plugins.volumes.csi_migration import (
    MigrationError,
    driver_of,
    in_tree_plugin,
    is_in_tree_plugin,
    translated,
    translated_inline,
)
from moorage.plugins.volumes.pod_claims import claim_not_found, class_of_claim, is_owned_by, not_owned
from moorage.state.columns import IntArray
from moorage.state.labels import InternedColumn
from moorage.state.pod_info import PodInfo
from moorage.state.view import Snapshot

__all__ = ["NO_LIMIT", "CsiFacts", "CsiNodes", "CsiVolume", "PodCsiVolumes", "migrated_plugins", "needed_volumes"]


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


def needed_volumes(
    pod: PodInfo, snapshot: Snapshot, *, migrated: Collection[str], placed: bool = False, inline: bool = True
) -> PodCsiVolumes:
    """Return the volumes that ``pod`` would use on a node.

    ``migrated``  the in-tree plugins whose volumes CSI drivers serve on the node
    ``placed``    the pod is on a node already: missing claims are skipped
    ``inline``    volumes without a claim count too
    """
    found: dict[CsiVolume, None] = {}
    if pod.volumes is None:
        return PodCsiVolumes()
    claims = snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims:
        if not use.name:
            return PodCsiVolumes(fault="PersistentVolumeClaim had no name")
        claim = claims.get(use.key)
        if claim is None:
            if placed:
                continue
            return PodCsiVolumes(missing=f"looking up PVC {use.key}: {claim_not_found(use.name)}")
        if use.ephemeral and not is_owned_by(claim, pod):
            return PodCsiVolumes(fault=not_owned(claim, pod))
        volume = _volume_of(claim, snapshot, migrated=migrated)
        if volume is not None:
            found[volume] = None
    try:
        found |= dict.fromkeys(_inline(pod, migrated) if inline else ())
    except MigrationError as error:
        return PodCsiVolumes(fault=str(error))
    return PodCsiVolumes(tuple(found))


def _inline(pod: PodInfo, migrated: Collection[str]) -> Iterator[CsiVolume]:
    for volume in pod.volumes.inline if pod.volumes is not None and migrated else ():
        if in_tree_plugin(volume) not in migrated:
            continue
        try:
            known = translated_inline(volume)
        except MigrationError as error:
            raise MigrationError(f"converting volume({volume.name}) from inline to csi: {error}") from error
        if known is not None:
            yield CsiVolume(known.driver, known.handle)


def _volume_of(claim: PersistentVolumeClaim, snapshot: Snapshot, *, migrated: Collection[str]) -> CsiVolume | None:
    volume = snapshot.objects(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _volume_to_be_made(claim, snapshot, migrated=migrated)
    csi = volume.spec.csi
    if csi is not None:
        return CsiVolume(csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
    if in_tree_plugin(volume.spec) not in migrated:
        return None
    try:
        known = translated(volume)
    except MigrationError:
        return None
    return CsiVolume(known.driver, known.handle) if known is not None and known.handle else None


def _volume_to_be_made(claim: PersistentVolumeClaim, snapshot: Snapshot, *, migrated: Collection[str]) -> CsiVolume | None:
    """Return the volume that the claim's class will provision; None if it is unknown or does not count."""
    storage_class = snapshot.objects(StorageClass).get(class_of_claim(claim))
    if storage_class is None:
        return None
    driver: str | None = storage_class.provisioner
    if is_in_tree_plugin(storage_class.provisioner):
        driver = driver_of(storage_class.provisioner) if storage_class.provisioner in migrated else None
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
