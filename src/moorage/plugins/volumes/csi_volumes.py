"""The CSI volumes that a pod needs, as drivers count them: a volume that several claims or pods share counts once.

A claim without a volume counts as a separate volume of the driver that will provision it. In-tree volumes count for the driver
that they migrate to, on nodes that migrate them.

Source  kube-scheduler 1.36, plugins/nodevolumelimits/csi.go, filterAttachableVolumes and what it calls
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.plugins.volumes.pod_claims import claim_not_found, is_owned_by, not_owned
from moorage.rules.volumes import csi_migration
from moorage.rules.volumes.bindings import class_of_claim
from moorage.state.view import PodInfo, Snapshot

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
