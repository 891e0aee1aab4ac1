"""What becomes of claims when pods go: the part of the resource claim controller that scheduling depends on.

A pod that is gone, was made anew under its name or will never run is no user of a claim. A claim that thereby loses its last
user gives its devices back; one that had no user before keeps them, for they may have been given to nobody in particular. A
claim that was made for a pod goes when that pod is not going to need it.

Source  kubernetes, pkg/controller/resourceclaim/controller.go, syncClaim, isPodDone
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Pod
from moorage.api.devices import ClaimConsumer, ResourceClaim
from moorage.plugins.devices.binding import unprotected

__all__ = ["is_done", "is_outlived", "owning_pod", "still_uses", "without_users_gone"]


def is_done(pod: Pod) -> bool:
    """Say whether none of a pod's containers runs or ever will."""
    return pod.status.phase in ENDED_PHASES or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


def still_uses(user: ClaimConsumer, pod: Pod | None) -> bool:
    """Say whether a user may still need its claim; ``pod`` is the one of the user's name. What is no pod may."""
    if user.api_group or user.resource != "pods":
        return True
    return pod is not None and pod.uid == user.uid and not is_done(pod)


def without_users_gone(claim: ResourceClaim, is_there: Callable[[ClaimConsumer], bool]) -> ResourceClaim:
    """Return the claim without users that are gone; the same if there are none, and nothing holds up its deletion."""
    users = tuple([user for user in claim.status.reserved_for if is_there(user)])
    if users == claim.status.reserved_for:
        is_held_up = claim.metadata.deletion_timestamp is not None and not users
        return _free(claim) if is_held_up else claim
    left = replace(claim, status=replace(claim.status, reserved_for=users))
    return left if users else _free(left)


def is_outlived(claim: ResourceClaim, pod: Pod | None) -> bool:
    """Say whether nobody uses a claim that was made for a pod, and the pod will not. ``pod`` is the one of the owner's name.

    A pod that is gone altogether takes what it owns with it, which is the garbage collector's business.
    """
    owner = owning_pod(claim)
    if owner is None or claim.status.reserved_for:
        return False
    return pod is not None and (pod.uid != owner[1] or is_done(pod))


def owning_pod(claim: ResourceClaim) -> tuple[str, str] | None:
    """Return name and UID of the pod that a claim was made for."""
    for owner in claim.metadata.owner_references:
        if owner.controller and owner.api_version == "v1" and owner.kind == "Pod":
            return owner.name, owner.uid
    return None


def _free(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim without devices and without what protects it, if a scheduler allocated it."""
    free = unprotected(claim)
    return claim if free is claim else replace(free, status=replace(free.status, allocation=None))
