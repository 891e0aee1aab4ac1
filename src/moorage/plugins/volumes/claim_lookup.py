"""Claims and classes: small questions that every rule about storage asks, and the texts of what is missing.

Source  component-helpers, storage/volume/helpers.go and storage/ephemeral/ephemeral.go
"""

from __future__ import annotations

from typing import Final

from moorage.api.meta import Quantity
from moorage.api.quantity import value
from moorage.api.requirements import quoted
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.state.pod_info import PodInfo

__all__ = [
    "BIND_COMPLETED", "SELECTED_NODE", "claim_not_found", "class_not_found", "class_of_claim", "class_of_volume",
    "is_fully_bound", "is_owned_by", "names_claim", "not_owned", "requested_bytes", "requested_storage", "stands_on_claim",
    "volume_not_found",
]  # fmt: skip

#: On a claim: binding is complete, on both sides. Its value does not matter.
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
#: On a claim: the node for which its volume is to be made.
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"

_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """Return the claim's class; empty if it has none. The annotation of old counts before the field."""
    annotated = claim.metadata.annotations.get(_CLASS_ANNOTATION)
    return (claim.spec.storage_class_name or "") if annotated is None else annotated


def class_of_volume(volume: PersistentVolume) -> str:
    """Return the volume's class; empty if it has none."""
    return volume.metadata.annotations.get(_CLASS_ANNOTATION, volume.spec.storage_class_name)


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Say whether the claim has its volume for good; a name alone may still be taken back."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def is_owned_by(claim: PersistentVolumeClaim, pod: PodInfo) -> bool:
    """Say whether the claim was made for this very pod, as an ephemeral volume's must be."""
    owner = next((owner for owner in claim.metadata.owner_references if owner.controller), None)
    return claim.metadata.namespace == pod.namespace and owner is not None and owner.uid == pod.uid


def requested_storage(claim: PersistentVolumeClaim) -> Quantity:
    """Return the size the claim asks for; nothing if it names none."""
    return claim.spec.resources.requests.get("storage", 0)


def requested_bytes(claim: PersistentVolumeClaim) -> int:
    """Return the size the claim asks for in bytes, rounded up."""
    return value(requested_storage(claim))


# -- hints --------------------------------------------------------------------------------------------------------------


def names_claim(pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> bool:
    """Say whether the pod names this claim as a volume of its own."""
    del old
    return pod.volumes is not None and any(use.key == new.key and not use.ephemeral for use in pod.volumes.claims)


def stands_on_claim(pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> bool:
    """Say whether the pod names this claim, or one of its ephemeral volumes has it."""
    del old
    return pod.volumes is not None and any(use.key == new.key for use in pod.volumes.claims)


# -- kube-scheduler's own texts, kept word for word ---------------------------------------------------------------------


def not_owned(claim: PersistentVolumeClaim, pod: PodInfo) -> str:
    """Say that an ephemeral volume's claim is somebody else's."""
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def claim_not_found(name: str) -> str:
    """Say that there is no such claim in the pod's namespace."""
    return f"persistentvolumeclaim {quoted(name)} not found"


def volume_not_found(name: str) -> str:
    """Say that there is no such volume."""
    return f"persistentvolume {quoted(name)} not found"


def class_not_found(name: str) -> str:
    """Say that there is no such storage class."""
    return f"storageclass.storage.k8s.io {quoted(name)} not found"
