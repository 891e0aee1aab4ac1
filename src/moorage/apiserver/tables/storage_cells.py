"""Table cells of volumes, drivers and devices.

Source  kubernetes, pkg/printers/internalversion/printers.go; pkg/apis/core/helper, for modes and classes
"""

from __future__ import annotations

from typing import Any, Final

from moorage.apiserver.tables.cells import Cell, age_of, at, items, name_of, word
from moorage.apiserver.vocabulary.records import Document

__all__ = [
    "attachment", "attributes_class", "claim", "device_claim", "driver", "driver_node", "slice_of_devices", "storage_class",
    "volume",
]  # fmt: skip

_UNSET: Final = "<unset>"
_MODES: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_IS_DEFAULT: Final = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def _modes(modes: list[Any]) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _annotations(found: Document) -> Document:
    return found["metadata"].get("annotations") or {}


def _class(found: Document) -> str:
    own = _annotations(found).get(_CLASS)
    return word(found, "spec.storageClassName") if own is None else str(own)


def _phase(found: Document) -> str:
    return "Terminating" if found["metadata"].get("deletionTimestamp") else word(found, "status.phase")


def _or_unset(found: Document, path: str) -> str:
    return str(at(found, path, _UNSET))


def volume(found: Document, now: float) -> list[Cell]:
    """Return the cells of a persistent volume."""
    of = at(found, "spec.claimRef")
    return [
        name_of(found), word(found, "spec.capacity.storage", "0"), _modes(items(found, "spec.accessModes")),
        word(found, "spec.persistentVolumeReclaimPolicy"), _phase(found),
        f"{word(of, 'namespace')}/{word(of, 'name')}" if of else "", _class(found),
        _or_unset(found, "spec.volumeAttributesClassName"), word(found, "status.reason"), age_of(found, now),
        _or_unset(found, "spec.volumeMode"),
    ]  # fmt: skip


def claim(found: Document, now: float) -> list[Cell]:
    """Return the cells of a persistent volume claim."""
    held = word(found, "spec.volumeName")
    return [
        name_of(found), _phase(found), held, word(found, "status.capacity.storage", "0") if held else "",
        _modes(items(found, "status.accessModes")) if held else "", _class(found),
        _or_unset(found, "spec.volumeAttributesClassName"), age_of(found, now), _or_unset(found, "spec.volumeMode"),
    ]  # fmt: skip


def storage_class(found: Document, now: float) -> list[Cell]:
    """Return the cells of a storage class."""
    is_default = any(_annotations(found).get(name) == "true" for name in _IS_DEFAULT)
    return [
        name_of(found) + (" (default)" if is_default else ""), word(found, "provisioner"),
        word(found, "reclaimPolicy", "Delete"), word(found, "volumeBindingMode", "Immediate"),
        bool(found.get("allowVolumeExpansion")), age_of(found, now),
    ]  # fmt: skip


def driver(found: Document, now: float) -> list[Cell]:
    """Return the cells of a CSI driver."""
    tokens = at(found, "spec.tokenRequests")
    audiences = _UNSET if tokens is None else ",".join(str(one.get("audience", "")) for one in tokens)
    flags = [bool(at(found, f"spec.{name}", name == "attachRequired")) for name in _FLAGS]
    modes = ",".join(items(found, "spec.volumeLifecycleModes")) or "<none>"
    return [name_of(found), *flags[:3], audiences, flags[3], modes, age_of(found, now)]


_FLAGS: Final = ("attachRequired", "podInfoOnMount", "storageCapacity", "requiresRepublish")


def driver_node(found: Document, now: float) -> list[Cell]:
    """Return the cells of a CSINode."""
    return [name_of(found), len(items(found, "spec.drivers")), age_of(found, now)]


def attachment(found: Document, now: float) -> list[Cell]:
    """Return the cells of a volume attachment."""
    attached = bool(at(found, "status.attached"))
    names = (word(found, f"spec.{name}") for name in ("attacher", "source.persistentVolumeName", "nodeName"))
    return [name_of(found), *names, attached, age_of(found, now)]


def attributes_class(found: Document, now: float) -> list[Cell]:
    """Return the cells of a volume attributes class."""
    return [name_of(found), word(found, "driverName"), age_of(found, now)]


def device_claim(found: Document, now: float) -> list[Cell]:
    """Return the cells of a resource claim."""
    states = ["deleted"] if found["metadata"].get("deletionTimestamp") else []
    if at(found, "status.allocation") is not None:
        states += ["allocated", "reserved"] if items(found, "status.reservedFor") else ["allocated"]
    elif not states:
        states.append("pending")
    return [name_of(found), ",".join(states), age_of(found, now)]


def slice_of_devices(found: Document, now: float) -> list[Cell]:
    """Return the cells of a resource slice."""
    return [name_of(found), *(word(found, f"spec.{name}") for name in ("nodeName", "driver", "pool.name")), age_of(found, now)]
