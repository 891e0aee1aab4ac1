"""Volumes, claims, storage classes and CSI objects.

Source  kubernetes, pkg/apis/core/validation/validation.go, ValidatePersistentVolumeSpec and
        ValidatePersistentVolumeClaimSpec; pkg/apis/storage/validation
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moorage.api.names import check_dns1123_subdomain, check_qualified_name
from moorage.api.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    StorageClass,
    VolumeAttributesClass,
)
from moorage.api.validation.affinity import node_selector
from moorage.api.validation.faults import (
    Faults,
    duplicate,
    forbidden,
    invalid,
    label_name,
    label_selector,
    named,
    nonnegative,
    object_meta,
    one_of,
    positive_quantity,
    quantity,
    required,
    too_long,
    unsupported,
)

_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")
_SINGLE: Final = "ReadWriteOncePod"
_MOST_PARAMETERS: Final = 512
_MOST_BYTES: Final = 256 << 10


def volume_faults(volume: PersistentVolume) -> Faults:
    """Yield the faults of a persistent volume; the source of its data is not checked."""
    spec = volume.spec
    yield from object_meta(volume.metadata, False)
    if not spec.access_modes:
        yield required("spec.accessModes")
    yield from _access_modes("spec.accessModes", spec.access_modes)
    if not spec.capacity:
        yield required("spec.capacity")
    elif set(spec.capacity) != {"storage"}:
        yield unsupported("spec.capacity", sorted(spec.capacity), ("storage",))
    for name, amount in spec.capacity.items():
        yield from positive_quantity(f"spec.capacity[{name}]", amount)
    if spec.node_affinity is not None:
        if spec.node_affinity.required is None:
            yield required("spec.nodeAffinity.required", "must specify required node constraints")
        else:
            yield from node_selector("spec.nodeAffinity.required", spec.node_affinity.required)
    elif spec.local is not None:
        yield required("spec.nodeAffinity", "Local volume requires node affinity")
    if spec.storage_class_name:
        yield from named("spec.storageClassName", spec.storage_class_name, check_dns1123_subdomain)
    policies = ("Delete", "Recycle", "Retain")
    yield from one_of("spec.persistentVolumeReclaimPolicy", spec.persistent_volume_reclaim_policy or None, policies)
    yield from one_of("spec.volumeMode", spec.volume_mode, _VOLUME_MODES)


def claim_faults(claim: PersistentVolumeClaim) -> Faults:
    """Yield the faults of a persistent volume claim."""
    yield from object_meta(claim.metadata, True)
    yield from claim_spec_faults("spec", claim.spec)


def claim_spec_faults(path: str, spec: PersistentVolumeClaimSpec) -> Faults:
    """Yield the faults of a claim or a claim template, at ``path``."""
    if not spec.access_modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from _access_modes(f"{path}.accessModes", spec.access_modes)
    yield from label_selector(f"{path}.selector", spec.selector)
    asked = spec.resources.requests.get("storage")
    if asked is None:
        yield required(f"{path}.resources[storage]")
    else:
        yield from positive_quantity(f"{path}.resources[storage]", asked)
    if spec.storage_class_name:
        yield from named(f"{path}.storageClassName", spec.storage_class_name, check_dns1123_subdomain)
    yield from one_of(f"{path}.volumeMode", spec.volume_mode, _VOLUME_MODES)


def _access_modes(path: str, modes: Iterable[str]) -> Faults:
    given = list(modes)
    for mode in given:
        yield from one_of(path, mode, _ACCESS_MODES)
    if _SINGLE in given and any(mode != _SINGLE and mode in _ACCESS_MODES for mode in given):
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def storage_class_faults(storage_class: StorageClass) -> Faults:
    """Yield the faults of a storage class."""
    yield from object_meta(storage_class.metadata, False)
    if not storage_class.provisioner:
        yield required("provisioner")
    yield from one_of("reclaimPolicy", storage_class.reclaim_policy, ("Delete", "Retain"))
    yield from one_of("volumeBindingMode", storage_class.volume_binding_mode, ("Immediate", "WaitForFirstConsumer"))
    for i, term in enumerate(storage_class.allowed_topologies):
        seen: set[str] = set()
        for k, asked in enumerate(term.match_label_expressions):
            at = f"allowedTopologies[{i}].matchLabelExpressions[{k}]"
            yield from label_name(f"{at}.key", asked.key)
            if not asked.values:
                yield required(f"{at}.values")
            if len(set(asked.values)) != len(asked.values):
                yield duplicate(f"{at}.values", list(asked.values))
            if asked.key in seen:
                yield duplicate(f"{at}.key", asked.key)
            seen.add(asked.key)


def attributes_class_faults(attributes: VolumeAttributesClass) -> Faults:
    """Yield the faults of a volume attributes class."""
    yield from object_meta(attributes.metadata, False)
    if not attributes.driver_name:
        yield required("driverName")
    else:
        yield from named("driverName", attributes.driver_name.lower(), check_qualified_name)
    given = attributes.parameters
    if len(given) > _MOST_PARAMETERS:
        yield too_long("parameters", _MOST_PARAMETERS)
        return
    for key in given:
        if not key:
            yield invalid("parameters", key, "field can not be empty.")
    if sum(len(key.encode()) + len(value.encode()) for key, value in given.items()) > _MOST_BYTES:
        yield too_long("parameters", _MOST_BYTES)
    if not given:
        yield required("parameters", "must contain at least one key/value pair")


def csi_node_faults(csi_node: CSINode) -> Faults:
    """Yield the faults of a CSINode: drivers without a name or listed twice, negative limits."""
    yield from object_meta(csi_node.metadata, False)
    seen: set[str] = set()
    for i, driver in enumerate(csi_node.spec.drivers):
        at = f"spec.drivers[{i}]"
        if not driver.name:
            yield required(f"{at}.name")
        elif driver.name in seen:
            yield duplicate(f"{at}.name", driver.name)
        seen.add(driver.name)
        if driver.allocatable is not None:
            yield from nonnegative(f"{at}.allocatable.count", driver.allocatable.count)


def capacity_faults(capacity: CSIStorageCapacity) -> Faults:
    """Yield the faults of a CSIStorageCapacity."""
    yield from object_meta(capacity.metadata, True)
    if not capacity.storage_class_name:
        yield required("storageClassName")
    else:
        yield from named("storageClassName", capacity.storage_class_name, check_dns1123_subdomain)
    yield from label_selector("nodeTopology", capacity.node_topology)
    if capacity.capacity is not None:
        yield from quantity("capacity", capacity.capacity)
