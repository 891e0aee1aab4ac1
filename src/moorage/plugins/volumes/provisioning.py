"""On which nodes a volume can be provisioned for a claim: by the class's allowed topologies and the published capacity.

Source  kube-scheduler 1.36, plugins/volumebinding/binder.go, checkVolumeProvisions and hasEnoughCapacity;
        core/v1/helper/helpers.go, MatchTopologySelectorTerms
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from moorage.api import storage
from moorage.api.node_selectors import NodeTerm
from moorage.api.quantity import value
from moorage.api.requirements import Requirement, SelectorError, quoted, requirement_faults
from moorage.api.selectors import NOTHING, Selector, compile_label_selector
from moorage.plugins.volumes.assume_cache import IndexedObjects, is_still
from moorage.plugins.volumes.csi_volumes import CsiFacts
from moorage.plugins.volumes.volume_reach import first_matching, label_affinity
from moorage.rules.volumes.bindings import NOT_SUPPORTED, SELECTED_NODE, class_of_claim, is_fully_bound, requested_bytes
from moorage.rules.volumes.csi_migration import CURRENT_MIGRATION, Migration, MigrationError, in_tree_plugin
from moorage.state.node_matching import rows_matching_term
from moorage.state.view import BoolArray, IntArray, NodeView, Snapshot


class Provisioning(NamedTuple):
    """Where a volume can be provisioned for one claim. Arrays have one entry per row of the view.

    ``possible``  the class's topologies allow the row
    ``has_room``  and there is capacity for a volume of the size
    ``capacity``  the free bytes; -1 where the driver publishes no capacity
    """

    claim: storage.PersistentVolumeClaim
    possible: BoolArray
    has_room: BoolArray
    capacity: IntArray


class _Capacity(NamedTuple):
    """A CSIStorageCapacity: the nodes it covers, the largest possible volume (None: unknown), and the free bytes."""

    nodes: Selector
    limit: int | None
    capacity: int

    @classmethod
    def of(cls, room: storage.CSIStorageCapacity) -> _Capacity:
        try:
            nodes = compile_label_selector(room.node_topology)
        except SelectorError:
            nodes = NOTHING
        return cls(nodes, volume_limit(room), value(room.capacity) if room.capacity is not None else 0)


def volume_limit(room: storage.CSIStorageCapacity) -> int | None:
    """Return the largest possible volume in bytes; None if unknown. ``maximumVolumeSize`` overrides ``capacity``."""
    limit = room.capacity if room.maximum_volume_size is None else room.maximum_volume_size
    return None if limit is None else value(limit)


class Provisioner:
    """Checks claims whose volume must be provisioned. An index: get it from ``Snapshot.index``."""

    def __init__(self, snapshot: Snapshot) -> None:
        kind = storage.CSIStorageCapacity
        self._capacities = IndexedObjects(snapshot, kind, lambda room: room.storage_class_name, _Capacity.of)

    def check(self, claim: storage.PersistentVolumeClaim, nodes: NodeView, *, counted: bool = True) -> Provisioning:
        """Return where a volume can be provisioned for the claim. Its class must exist.

        ``counted``  consider the capacity that drivers publish; otherwise capacity is unlimited
        """
        storage_class = nodes.snapshot.objects(storage.StorageClass)[class_of_claim(claim)]
        unknown = nodes.zeros() - 1
        if storage_class.provisioner in {"", NOT_SUPPORTED}:
            return Provisioning(claim, nodes.false(), nodes.false(), unknown)
        possible = _rows_allowed(storage_class.allowed_topologies, nodes)
        asks = "storage" in claim.spec.resources.requests
        driver = nodes.snapshot.objects(storage.CSIDriver).get(storage_class.provisioner)
        if not counted or not asks or driver is None or not driver.spec.storage_capacity:
            return Provisioning(claim, possible, np.ones(len(nodes), dtype=bool), unknown)
        self._capacities.follow()
        size = requested_bytes(claim)
        rooms = [
            room for room in self._capacities.at(storage_class.name).values() if room.limit is not None and room.limit >= size
        ]
        which = first_matching([room.nodes for room in rooms], nodes)
        capacities = np.array([*(room.capacity for room in rooms), -1], dtype=np.int64)
        return Provisioning(claim, possible, which >= 0, capacities[which])


def _rows_allowed(terms: tuple[storage.TopologySelectorTerm, ...], nodes: NodeView) -> BoolArray:
    """Return for each row whether one of the terms allows it. No terms allow all rows; an empty term allows none."""
    if not terms:
        return np.ones(len(nodes), dtype=bool)
    allowed = nodes.false()
    for term in _compiled(terms):
        allowed |= rows_matching_term(term, nodes)
    return allowed


@lru_cache(maxsize=1024)
def _compiled(terms: tuple[storage.TopologySelectorTerm, ...]) -> tuple[NodeTerm, ...]:
    requirements = ([(one.key, one.values) for one in term.match_label_expressions] for term in terms)
    return tuple(
        NodeTerm(tuple(Requirement(key, "In", values) for key, values in term))
        for term in requirements
        if term and not any(requirement_faults(key, "In", values) for key, values in term)
    )


# -- planned bindings --------------------------------------------------------------------------------------------------
# Planned bindings: what to write so that a pod's claims are bound, and how to see that they are.
#
# A matched volume gets a ``claimRef`` to its claim; a claim whose volume must be provisioned gets the annotation with the
# node's name. The volume controller does the rest. Until it is done, anything that undoes a planned binding fails the pod's
# attempt.
#
# Source  kube-scheduler 1.36, plugins/volumebinding/binder.go, AssumePodVolumes and checkBindings;
#         component-helpers, storage/volume/pv_helpers.go, GetBindVolumeToClaim

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
