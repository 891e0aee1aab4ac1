"""The claims of one pod by state: bound, waiting for a node, or to be bound before scheduling.

Source  kube-scheduler 1.36, plugins/volumebinding: volume_binding.go, podHasPVCs; binder.go, GetPodVolumeClaims
"""

from __future__ import annotations

from typing import NamedTuple

from moorage.api.requirements import quoted
from moorage.api.storage import PersistentVolumeClaim, StorageClass
from moorage.plugins.volumes.assume_cache import Assumptions
from moorage.plugins.volumes.claim_lookup import class_of_claim, is_fully_bound, is_owned_by, not_owned
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["ClassError", "PodClaims", "claims_of", "unusable"]


class ClassError(Exception):
    """A storage class is invalid."""


class PodClaims(NamedTuple):
    """``delayed`` claims are bound on the pod's node; ``immediate`` ones must be bound before the pod is scheduled."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]
    immediate: tuple[PersistentVolumeClaim, ...]


def unusable(pod: PodInfo, snapshot: Snapshot) -> str | None:
    """Return the reason if a claim of the pod is missing, lost, terminating or owned by another pod; otherwise None."""
    claims = snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims if pod.volumes is not None else ():
        claim, name = claims.get(use.key), quoted(use.name)
        if claim is None:
            if use.ephemeral:
                return f"waiting for ephemeral volume controller to create the persistentvolumeclaim {name}"
            return f"persistentvolumeclaim {name} not found"
        if claim.status.phase == "Lost":
            gone = quoted(claim.spec.volume_name)
            return f"persistentvolumeclaim {name} bound to non-existent persistentvolume {gone}"
        if claim.metadata.deletion_timestamp is not None:
            return f"persistentvolumeclaim {name} is being deleted"
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
