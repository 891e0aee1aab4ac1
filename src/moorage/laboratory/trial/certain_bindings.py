"""Tell whether binding a pod with volumes or devices is certain to succeed in a simulation, without trying it.

Reserve and PreBind of the volume and device plugins write claims, and wait until controllers have acted on them. The simulated
controllers act at once, so a pod for which nothing can be missing is bound in the same attempt. If it is not certain, only an
attempt gives the outcome.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moorage.api.devices import ResourceClaim
from moorage.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.cluster.controllers.storage.volumes import made_for, makes_volumes
from moorage.core.cycle.decision import Decision
from moorage.core.engine.scheduler import Scheduler
from moorage.framework.profile import Profile
from moorage.plugins.devices.allocation_results import allocations
from moorage.plugins.devices.binding import MAX_USERS
from moorage.plugins.devices.pod_devices import PodDevices
from moorage.plugins.devices.pod_resource_claims import is_reserved_for
from moorage.plugins.dynamic_resources import MAX_DEVICES, DynamicResources
from moorage.plugins.volume_binding import BoundVolumes, VolumeBindingState
from moorage.plugins.volumes.claim_lookup import class_of_claim
from moorage.plugins.volumes.csi_migration import in_tree_plugin, is_in_tree_plugin
from moorage.plugins.volumes.node_findings import ClaimsToBind, find
from moorage.plugins.volumes.planned_bindings import with_selected_node
from moorage.plugins.volumes.volume_matching import MatchingError, VolumeIndex
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["is_certain"]


def is_certain(profile: Profile, decision: Decision, scheduler: Scheduler) -> bool:
    """Return whether all plugins that act on the pod from Reserve on are certain to succeed on its node, without waiting."""
    if decision.node is None or decision.found is None or scheduler.state.bindings.by_uid:
        return False
    states = decision.found.states
    return all(
        _succeeds(profile.plugins[name], states[name], decision.pod, decision.node, scheduler.snapshot)
        for name in profile.resting.intersection(states)
    )


def _succeeds(plugin: object, state: Any, pod: PodInfo, node: str, snapshot: Snapshot) -> bool:
    if isinstance(plugin, BoundVolumes) and isinstance(state, VolumeBindingState):
        return state.wanted.is_all_bound or _can_bind_volumes(state.wanted, node, snapshot)
    if isinstance(plugin, DynamicResources) and isinstance(state, PodDevices):
        return _can_write_claims(state, pod, node)
    return False


# -- volumes --------------------------------------------------------------------------------------------------------------


def _can_bind_volumes(wanted: ClaimsToBind, node: str, snapshot: Snapshot) -> bool:
    if wanted.selected or wanted.fault:
        return False
    found = find(wanted, NodeView(snapshot, np.array([snapshot.table.row_of[node]], dtype=np.intp)))
    group = next(iter(found.groups), None)
    if group is None or found.chosen is None:
        return False
    try:
        return all(_can_bind(claim, volume, snapshot) for claim, volume in found.chosen.at(0)) and all(
            _can_provision(claim, node, snapshot) for claim in group.to_provision
        )
    except MatchingError:
        return False


def _can_bind(claim: PersistentVolumeClaim, volume: PersistentVolume, snapshot: Snapshot) -> bool:
    """Return whether the controller binds a claim to the volume that the scheduler reserves for it."""
    other = snapshot.index(VolumeIndex).best(claim, reserved_only=True)
    return bool(claim.metadata.uid) and other in (None, volume) and in_tree_plugin(volume.spec) is None


def _can_provision(claim: PersistentVolumeClaim, node: str, snapshot: Snapshot) -> bool:
    """Return whether a volume is provisioned for a claim, once the node is selected, rather than another one bound to it."""
    storage_class = snapshot.objects(StorageClass).get(class_of_claim(claim))
    if storage_class is None or not makes_volumes(storage_class) or is_in_tree_plugin(storage_class.provisioner):
        return False
    labels = snapshot.table.nodes[snapshot.table.row_of[node]].labels
    csi_nodes = snapshot.objects(CSINode)
    volume = made_for(with_selected_node(claim, node), storage_class, {node: labels}.get, csi_nodes.get)
    if volume is None or volume.name in snapshot.objects(PersistentVolume):
        return False
    return snapshot.index(VolumeIndex).best(claim, reserved_only=False) is None


# -- devices --------------------------------------------------------------------------------------------------------------


def _can_write_claims(wanted: PodDevices, pod: PodInfo, node: str) -> bool:
    if wanted.special is not None or wanted.unusable:
        return False
    if not all(_can_use(claim, pod) for claim in wanted.claims):
        return False
    claims = wanted.to_allocate
    if not claims:
        return True
    table = wanted.snapshot.table
    row = table.row_of[node]
    answer, _ = wanted.answer(wanted.kind_on(row), table.nodes[row], MAX_DEVICES)
    if answer.found is None:
        return False
    try:
        made = allocations(answer.found, claims, node, wanted.options)
    except ValueError:
        return False
    return not any(result.binding_conditions for one in made for result in one.devices.results)


def _can_use(claim: ResourceClaim, pod: PodInfo) -> bool:
    """Return whether the pod can become a consumer of a claim."""
    if claim.metadata.deletion_timestamp is not None:
        return False
    held = claim.status.allocation
    if held is not None and any(result.binding_conditions for result in held.devices.results):
        return False
    return is_reserved_for(claim, pod) or len(claim.status.reserved_for) < MAX_USERS
