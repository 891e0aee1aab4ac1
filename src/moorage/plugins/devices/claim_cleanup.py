"""Clean-up of claims after pods: the part of the resource claim controller that scheduling depends on.

A pod that is deleted, replaced under its name or finished no longer consumes a claim. When a claim loses its last consumer,
it is deallocated. A claim that had no consumer before keeps its devices, because they may be allocated without one. A claim
generated for a pod is deleted once the pod no longer needs it.

Source  kubernetes, pkg/controller/resourceclaim/controller.go, syncClaim, isPodDone
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, OwnerReference, Pod
from moorage.api.devices import (
    ClaimConsumer,
    ResourceClaim,
)
from moorage.plugins.devices.binding import unprotected


def is_done(pod: Pod) -> bool:
    """Return whether none of a pod's containers runs or will run."""
    return pod.status.phase in ENDED_PHASES or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


def without_stale_consumers(claim: ResourceClaim, is_there: Callable[[ClaimConsumer], bool]) -> ResourceClaim:
    """Remove consumers that no longer exist, and deallocate the claim if it has no other; the same object if unchanged."""
    users = tuple([user for user in claim.status.reserved_for if is_there(user)])
    if users == claim.status.reserved_for:
        is_held_up = claim.metadata.deletion_timestamp is not None and not users
        return _deallocated(claim) if is_held_up else claim
    left = replace(claim, status=replace(claim.status, reserved_for=users))
    return left if users else _deallocated(left)


def is_orphaned(claim: ResourceClaim, pod: Pod | None) -> bool:
    """Return whether a claim generated for a pod has no consumers and its pod will not use it. ``pod`` has the owner's name.

    If the pod is deleted, the garbage collector deletes its claims.
    """
    owner = owner_of(claim)
    if owner is None or owner.kind != "Pod" or claim.status.reserved_for:
        return False
    return pod is not None and (pod.uid != owner.uid or is_done(pod))


def owner_of(claim: ResourceClaim) -> OwnerReference | None:
    """Return the pod or the pod group that a claim was generated for, if any."""
    for owner in claim.metadata.owner_references:
        if owner.controller and ((owner.api_version, owner.kind) == ("v1", "Pod") or owner.kind == "PodGroup"):
            return owner
    return None


def _deallocated(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim deallocated and without its finalizer, if a scheduler allocated it."""
    free = unprotected(claim)
    return claim if free is claim else replace(free, status=replace(free.status, allocation=None))
