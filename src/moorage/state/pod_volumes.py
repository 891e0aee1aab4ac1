"""The volumes of a pod that matter to scheduling: the claims it uses, and the disks in its spec.

Most pods have only volumes that do not matter here: secrets, config maps, empty directories. For such pods the result is None.

Source  kube-scheduler 1.36: plugins/volumerestrictions and nodevolumelimits; component-helpers/storage/ephemeral/ephemeral.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from moorage.api.core import Pod, Volume

#: Identifies a disk: its kind, and its name within the kind.
DiskKey = tuple[str, ...]

_RBD_POOL: Final = "rbd"


class ClaimUse(NamedTuple):
    """A claim that a volume uses. ``key`` is ``namespace/name``; ``ephemeral``: the claim is created for this pod alone."""

    name: str
    key: str
    ephemeral: bool = False


class Disk(NamedTuple):
    """A disk that two pods on one node must not both mount, unless both mount it read-only."""

    key: DiskKey
    read_only: bool


class PodVolumes(NamedTuple):
    """``claims`` and ``inline`` in the pod's order; ``inline`` are in-tree volumes of kinds that migrate to a CSI driver."""

    claims: tuple[ClaimUse, ...] = ()
    disks: tuple[Disk, ...] = ()
    inline: tuple[Volume, ...] = ()


def pod_volumes(pod: Pod) -> PodVolumes | None:
    """Return the volumes of the pod that matter to scheduling; None if none does."""
    volumes = pod.spec.volumes
    if not volumes:
        return None
    claims = claims_used(pod)
    disks = tuple(disk for volume in volumes for disk in _disks(volume))
    inline = tuple(volume for volume in volumes if _is_inline(volume))
    return PodVolumes(claims, disks, inline) if claims or disks or inline else None


def claims_used(pod: Pod) -> tuple[ClaimUse, ...]:
    """Return the claims that the pod's volumes use, in their order."""
    return tuple([use for volume in pod.spec.volumes if (use := _claim_use(pod, volume)) is not None])


def _claim_use(pod: Pod, volume: Volume) -> ClaimUse | None:
    namespace = pod.metadata.namespace
    if volume.persistent_volume_claim is not None:
        name = volume.persistent_volume_claim.claim_name
        return ClaimUse(name, f"{namespace}/{name}")
    if volume.ephemeral is not None:
        name = f"{pod.metadata.name}-{volume.name}"
        return ClaimUse(name, f"{namespace}/{name}", ephemeral=True)
    return None


def _is_inline(volume: Volume) -> bool:
    if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
        return False
    kinds = (
        volume.gce_persistent_disk, volume.aws_elastic_block_store, volume.cinder, volume.azure_disk, volume.azure_file,
        volume.vsphere_volume, volume.portworx_volume,
    )  # fmt: skip
    return any(source is not None for source in kinds)


def _disks(volume: Volume) -> Iterator[Disk]:
    """Yield the disks of one volume; a Ceph image counts once per monitor: one shared monitor is enough to identify it."""
    if volume.gce_persistent_disk is not None:
        yield Disk(("gce", _text(volume.gce_persistent_disk, "pdName")), _only_reads(volume.gce_persistent_disk))
    if volume.aws_elastic_block_store is not None:
        yield Disk(("aws", _text(volume.aws_elastic_block_store, "volumeID")), False)
    if volume.iscsi is not None:
        yield Disk(("iscsi", _text(volume.iscsi, "iqn")), _only_reads(volume.iscsi))
    if volume.rbd is not None:
        pool, image = _text(volume.rbd, "pool") or _RBD_POOL, _text(volume.rbd, "image")
        for monitor in dict.fromkeys(map(str, volume.rbd.get("monitors") or ())):
            yield Disk(("rbd", monitor, pool, image), _only_reads(volume.rbd))


def _text(source: dict[str, Any], field: str) -> str:
    return str(source.get(field) or "")


def _only_reads(source: dict[str, Any]) -> bool:
    return bool(source.get("readOnly"))
