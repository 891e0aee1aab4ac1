"""Planned bindings: what to write so that a pod's claims are bound, and how to see that they are.

A matched volume gets a ``claimRef`` to its claim; a claim whose volume must be provisioned gets the annotation with the
node's name. The volume controller does the rest. Until it is done, anything that undoes a planned binding fails the pod's
attempt.

Source  kube-scheduler 1.36, plugins/volumebinding/binder.go, AssumePodVolumes and checkBindings;
        component-helpers, storage/volume/pv_helpers.go, GetBindVolumeToClaim
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from moorage.api import storage
from moorage.api.requirements import quoted
from moorage.plugins.volumes.assume_cache import is_still
from moorage.plugins.volumes.csi_nodes import CsiFacts
from moorage.plugins.volumes.volume_reach import label_affinity
from moorage.rules.volumes.bindings import SELECTED_NODE, is_fully_bound
from moorage.rules.volumes.csi_migration import CURRENT_MIGRATION, Migration, MigrationError, in_tree_plugin
from moorage.state.view import Snapshot

K = TypeVar("K", storage.PersistentVolume, storage.PersistentVolumeClaim)


class VolumeBindingError(Exception):
    """A planned binding failed: the pod needs a new attempt. The texts are kube-scheduler's."""


@dataclass(frozen=True, slots=True)
class PlannedBinding(Generic[K]):
    """An object as it is stored and as it is to be written; ``claim`` is the key of the claim it is for."""

    base: K
    obj: K
    claim: str

    @property
    def changes_anything(self) -> bool:
        return self.obj != self.base


def are_bound(
    snapshot: Snapshot,
    node: str,
    found: tuple[PlannedBinding[storage.PersistentVolume], ...],
    made: tuple[PlannedBinding[storage.PersistentVolumeClaim], ...],
    migration: Migration = CURRENT_MIGRATION,
) -> bool:
    """Return whether all claims are bound in the snapshot. ``migration``: which in-tree volumes CSI drivers may serve.

    Raises  VolumeBindingError if one will not be bound
    """
    if snapshot.node(node) is None:
        raise VolumeBindingError(f"failed to get node {quoted(node)}: node {quoted(node)} not found")
    return all(_is_match_bound(snapshot, node, binding, migration) for binding in found) and all(
        _is_provisioned(snapshot, node, binding, migration) for binding in made
    )


def _is_match_bound(
    snapshot: Snapshot, node: str, binding: PlannedBinding[storage.PersistentVolume], migration: Migration
) -> bool:
    volume = snapshot.objects(storage.PersistentVolume).get(binding.obj.name)
    if volume is None:
        raise VolumeBindingError(f"failed to check binding: persistentvolumes {quoted(binding.obj.name)} not found")
    claim = snapshot.objects(storage.PersistentVolumeClaim).get(binding.claim)
    if claim is None:
        raise VolumeBindingError(f"failed to check binding: persistentvolumeclaims {quoted(binding.claim)} not found")
    if binding.changes_anything and is_still(volume, binding.base):
        return False
    _check_access(snapshot, node, volume, migration)
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        raise VolumeBindingError(f"ClaimRef got reset for pv {quoted(volume.name)}")
    # kube-scheduler waits for its timeout in the first of these two cases and accepts the second as bound.
    if volume.spec.claim_ref.uid != claim.metadata.uid:
        raise VolumeBindingError(f"pv {quoted(volume.name)} was claimed by another than pvc {quoted(claim.metadata.name)}")
    if is_fully_bound(claim) and claim.spec.volume_name != volume.name:
        raise VolumeBindingError(f"pvc {quoted(claim.metadata.name)} was bound to another pv than {quoted(volume.name)}")
    return is_fully_bound(claim)


def _is_provisioned(
    snapshot: Snapshot, node: str, binding: PlannedBinding[storage.PersistentVolumeClaim], migration: Migration
) -> bool:
    claim = snapshot.objects(storage.PersistentVolumeClaim).get(binding.claim)
    if claim is None:
        raise VolumeBindingError(f"failed to check provisioning pvc: persistentvolumeclaims {quoted(binding.claim)} not found")
    if binding.changes_anything and is_still(claim, binding.base):
        return False
    name = claim.metadata.name
    if not claim.metadata.annotations:
        raise VolumeBindingError(f"selectedNode annotation reset for PVC {quoted(name)}")
    if claim.metadata.annotations.get(SELECTED_NODE) != node:
        raise VolumeBindingError(f"provisioning failed for PVC {quoted(name)}")
    if claim.spec.volume_name:
        volume = snapshot.objects(storage.PersistentVolume).get(claim.spec.volume_name)
        if volume is None:
            return False
        _check_access(snapshot, node, volume, migration)
    return is_fully_bound(claim)


def _check_access(snapshot: Snapshot, node: str, volume: storage.PersistentVolume, migration: Migration) -> None:
    """Raise VolumeBindingError if the volume cannot be accessed from the node after all."""
    info = snapshot.node(node)
    affinity = volume.required_affinity
    csi_node = snapshot.objects(storage.CSINode).get(node)
    plugin = in_tree_plugin(volume.spec)
    if csi_node is not None and plugin in migration.plugins & CsiFacts.of(csi_node).migrated:
        try:
            known = migration.translate(volume)
        except MigrationError as error:
            raise VolumeBindingError(f"failed to translate pv to csi: could not translate pv: {error}") from error
        affinity = affinity if known is None else known.affinity
    matcher = None if affinity is None else label_affinity(affinity)
    if matcher is not None and info is not None and not matcher.matches(info.labels, ""):
        why = matcher.error or "no matching NodeSelectorTerms"
        raise VolumeBindingError(f"pv {quoted(volume.name)} node affinity doesn't match node {quoted(node)}: {why}")
