"""CSI migration in 1.21: nodes may migrate four kinds of in-tree disks, each behind its own feature gate.

Two translations differ from the current ones: Azure disks migrate whatever their kind, and Portworx volumes do not migrate.

Source  kube-scheduler 1.21, plugins/nodevolumelimits/utils.go, isCSIMigrationOn; pkg/controller/volume/scheduling,
        scheduler_binder.go, isCSIMigrationOnForPlugin; csi-translation-lib 0.21, plugins/azure_disk.go
"""

from __future__ import annotations

from moorage.api.storage import PersistentVolume
from moorage.framework.features import FeatureGates
from moorage.plugins.v1_21.shared.in_tree_disks import AZURE_DISK, KINDS
from moorage.plugins.volumes.csi_migration import MigratedVolume, Migration, driver_of, translated

__all__ = ["migration_under"]


def migration_under(gates: FeatureGates) -> Migration:
    """Return the in-tree plugins that nodes may migrate with these gates."""
    plugins = frozenset(kind.plugin for kind in KINDS if gates["CSIMigration"] and gates[kind.gate])
    return Migration(plugins, _translated)


def _translated(volume: PersistentVolume) -> MigratedVolume | None:
    disk, driver = volume.spec.azure_disk, driver_of(AZURE_DISK.plugin)
    if disk is None or driver is None:
        return translated(volume)
    affinity = None if volume.spec.node_affinity is None else volume.spec.node_affinity.required
    return MigratedVolume(driver, str(disk.get("diskURI") or ""), affinity)
