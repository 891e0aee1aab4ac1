"""The claims of one pod by state: bound, waiting for a node, or to be bound before scheduling.

Source  kube-scheduler 1.36, plugins/volumebinding: volume_binding.go, podHasPVCs; binder.go, GetPodVolumeClaims
"""

from __future__ import annotations

from typing import NamedTuple

from moorage.api.requirements import quoted
from moorage.api.storage import PersistentVolumeClaim, StorageClass
from moorage.framework.answer_forms import NOTHING_TO_DO
from moorage.framework.reuse import Signature
from moorage.plugins.volumes.assume_cache import Assumptions
from moorage.rules.volumes.bindings import class_of_claim, is_fully_bound
from moorage.state.view import PodInfo, Snapshot

# Small queries on claims and storage classes that all volume plugins share, and the texts for missing objects.
#
# Source  component-helpers, storage/volume/helpers.go and storage/ephemeral/ephemeral.go


def is_owned_by(claim: PersistentVolumeClaim, pod: PodInfo) -> bool:
    """Return whether the pod is the claim's controller, as it must be for an ephemeral volume."""
    owner = next((owner for owner in claim.metadata.owner_references if owner.controller), None)
    return claim.metadata.namespace == pod.namespace and owner is not None and owner.uid == pod.uid


# -- hints --------------------------------------------------------------------------------------------------------------


def names_claim(pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> bool:
    """Return whether the pod uses this claim, other than through an ephemeral volume."""
    return pod.volumes is not None and any(use.key == new.key and not use.ephemeral for use in pod.volumes.claims)


def uses_claim(pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> bool:
    """Return whether the pod uses this claim, directly or through an ephemeral volume."""
    return pod.volumes is not None and any(use.key == new.key for use in pod.volumes.claims)


# -- kube-scheduler's own texts, kept word for word ---------------------------------------------------------------------


def not_owned(claim: PersistentVolumeClaim, pod: PodInfo) -> str:
    """Return the text for an ephemeral volume whose claim the pod does not own."""
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def claim_not_found(name: str) -> str:
    """Return the text for a claim that does not exist in the pod's namespace."""
    return f"persistentvolumeclaim {quoted(name)} not found"


def volume_not_found(name: str) -> str:
    """Return the text for a volume that does not exist."""
    return f"persistentvolume {quoted(name)} not found"


def class_not_found(name: str) -> str:
    """Return the text for a storage class that does not exist."""
    return f"storageclass.storage.k8s.io {quoted(name)} not found"


class ClassError(Exception):
    """A storage class is invalid."""


def are_all_bound(pod: PodInfo, snapshot: Snapshot) -> bool:
    """Return whether nothing is to be bound or provisioned for the pod."""
    claims = snapshot.index(Assumptions).claims
    for use in pod.volumes.claims if pod.volumes is not None else ():
        claim = claims.get(use.key)
        if claim is None or not is_fully_bound(claim):
            return False
    return True


class PodClaims(NamedTuple):
    """``delayed`` claims are bound on the pod's node; ``immediate`` ones must be bound before the pod is scheduled."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]
    immediate: tuple[PersistentVolumeClaim, ...]


def unusable(pod: PodInfo, snapshot: Snapshot) -> str | None:
    """Return the reason if a claim of the pod is missing, lost, terminating or owned by another pod; otherwise None."""
    claims = snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims if pod.volumes is not None else ():
        claim = claims.get(use.key)
        if claim is None:
            if use.ephemeral:
                return f"waiting for ephemeral volume controller to create the persistentvolumeclaim {quoted(use.name)}"
            return claim_not_found(use.name)
        if claim.status.phase == "Lost":
            gone = quoted(claim.spec.volume_name)
            return f"persistentvolumeclaim {quoted(use.name)} bound to non-existent persistentvolume {gone}"
        if claim.metadata.deletion_timestamp is not None:
            return f"persistentvolumeclaim {quoted(use.name)} is being deleted"
        if use.ephemeral and not is_owned_by(claim, pod):
            return not_owned(claim, pod)
    return None


def claims_of(pod: PodInfo, snapshot: Snapshot) -> PodClaims:
    """Return the pod's claims, with assumed changes, in its order. All of them must exist.

    Raises  ClassError if a class has no volume binding mode
    """
    assumed = snapshot.index(Assumptions).claims
    bound: list[PersistentVolumeClaim] = []
    delayed: list[PersistentVolumeClaim] = []
    immediate: list[PersistentVolumeClaim] = []
    for use in pod.volumes.claims if pod.volumes is not None else ():
        claim = assumed.get(use.key)
        if claim is None:
            raise ClassError(f"error getting PVC {quoted(use.key)}: could not find it")
        if is_fully_bound(claim):
            bound.append(claim)
        elif _waits_for_node(claim, snapshot) and not claim.spec.volume_name:
            delayed.append(claim)
        else:
            immediate.append(claim)
    return PodClaims(tuple(bound), tuple(delayed), tuple(immediate))


def _waits_for_node(claim: PersistentVolumeClaim, snapshot: Snapshot) -> bool:
    class_name = class_of_claim(claim)
    storage_class = snapshot.objects(StorageClass).get(class_name) if class_name else None
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        raise ClassError(f"VolumeBindingMode not set for StorageClass {quoted(class_name)}")
    return storage_class.volume_binding_mode == "WaitForFirstConsumer"


# -- volume signature --------------------------------------------------------------------------------------------------
# The signature of plugins that read a pod's volumes.


def volume_signature(pod: PodInfo) -> Signature | None:
    """Sign pods without volumes; a pod with volumes is judged by itself."""
    return NOTHING_TO_DO if pod.volumes is None else None
