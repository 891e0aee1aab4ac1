"""How a claim and a volume name each other: classes, sizes, annotations, and the two halves of a binding.

Source  component-helpers, storage/volume/helpers.go and pv_helpers.go, GetBindVolumeToClaim
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from moorage.api.meta import ObjectMeta, Quantity
from moorage.api.quantity import parse, value
from moorage.api.storage import ObjectReference, PersistentVolume, PersistentVolumeClaim

#: Annotation of a claim whose binding is complete on both sides. Its value does not matter.
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
#: Annotation of a claim: the node for which its volume is to be provisioned.
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
#: Annotation of a volume or a claim that a scheduler or a controller, not a user, has matched with the other.
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
#: The provisioner of classes whose volumes people make.
NOT_SUPPORTED: Final = "kubernetes.io/no-provisioner"

_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """Return the claim's class; empty if it has none. The beta annotation overrides the field."""
    annotated = claim.metadata.annotations.get(_CLASS_ANNOTATION)
    return (claim.spec.storage_class_name or "") if annotated is None else annotated


def class_of_volume(volume: PersistentVolume) -> str:
    """Return the volume's class; empty if it has none."""
    return volume.metadata.annotations.get(_CLASS_ANNOTATION, volume.spec.storage_class_name)


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim's binding is complete; a volume name alone can still be reset."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def requested_storage(claim: PersistentVolumeClaim) -> Quantity:
    """Return the size the claim requests; 0 if it names none."""
    return claim.spec.resources.requests.get("storage", 0)


def requested_bytes(claim: PersistentVolumeClaim) -> int:
    """Return the size the claim requests in bytes, rounded up."""
    return value(requested_storage(claim))


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume's ``claimRef`` is this claim, by name alone or with its UID."""
    ref = volume.spec.claim_ref
    if ref is None or (ref.name, ref.namespace) != (claim.metadata.name, claim.metadata.namespace):
        return False
    return not ref.uid or ref.uid == claim.metadata.uid


def has_form(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether a volume has the mode and the attributes class that a claim asks for."""
    made, wanted = volume.spec, claim.spec
    return (made.volume_mode or "Filesystem", made.volume_attributes_class_name or "") == (
        wanted.volume_mode or "Filesystem",
        wanted.volume_attributes_class_name or "",
    )


def suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim can get a volume that it names; its selector does not matter then."""
    return (
        class_of_volume(volume) == class_of_claim(claim)
        and set(claim.spec.access_modes).issubset(volume.spec.access_modes)
        and has_form(volume, claim)
        and parse(volume.spec.capacity.get("storage", 0)) >= parse(requested_storage(claim))
    )


def with_claim_ref(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return the volume with its ``claimRef`` set to the claim."""
    meta, ref = claim.metadata, volume.spec.claim_ref
    metadata = volume.metadata
    if not is_bound_to(volume, claim) and BOUND_BY_CONTROLLER not in metadata.annotations:
        metadata = _annotated(metadata, BOUND_BY_CONTROLLER, "yes")
    if ref is None or (ref.name, ref.namespace, ref.uid) != (meta.name, meta.namespace, meta.uid):
        ref = ObjectReference(
            api_version="v1", kind="PersistentVolumeClaim", namespace=meta.namespace, name=meta.name, uid=meta.uid,
            resource_version=meta.resource_version,
        )  # fmt: skip
    return replace(volume, metadata=metadata, spec=replace(volume.spec, claim_ref=ref))


def with_selected_node(claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
    """Return the claim with the node selected for its provisioning."""
    return replace(claim, metadata=_annotated(claim.metadata, SELECTED_NODE, node))


def _annotated(metadata: ObjectMeta, key: str, text: str) -> ObjectMeta:
    return replace(metadata, annotations={**metadata.annotations, key: text})
