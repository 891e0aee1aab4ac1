"""Objects in an older version of their API, which an API server converts: read as those of the version that is read.

Claims, classes and slices of ``resource.k8s.io`` are known in the versions v1alpha3 to v1beta2. Versions that no server
converts, such as workloads of ``extensions/v1beta1``, are not read; ``advice`` says what to write.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from moorage.api.documents.served_kinds import VERSIONS, ServedKind
from moorage.api.documents.statuses import ApiError
from moorage.api.reading.json_tree import UNREADABLE
from moorage.api.schema.schemas import kind_schema
from moorage.api.schema.versions import convert
from moorage.basis.inputs.objects import FoundObject, plain_object
from moorage.basis.inputs.simulated_kinds import KINDS, find_kind
from moorage.errors import InputError
from moorage.simulator.field_types import wrong_values

#: Kinds in the versions that a server converts, if the stored version is read and the other one is not.
_CONVERTED: Final = {
    (one.api_version, one.kind): one
    for one in VERSIONS
    if one.stored_as is not None
    and find_kind(one.api_version, one.kind) is None
    and find_kind(one.stored_as.api_version, one.kind) is not None
}
#: v1alpha3 is v1beta1 but for the amounts of devices, which are plain quantities there.
_ALPHA, _BETA = "resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta1"
#: Versions whose selectors the server made from the labels of templates.
_WITHOUT_SELECTOR: Final = frozenset({"extensions/v1beta1", "apps/v1beta1"})
_SELECTED: Final = frozenset({"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"})


def in_read_version(found: FoundObject) -> FoundObject | None:
    """Return an object in the version that is read; None if no server converts it to one.

    Raises  InputError for an object that cannot be converted
    """
    kind = _CONVERTED.get((_BETA if found.api_version == _ALPHA else found.api_version, found.kind))
    if kind is None or kind.stored_as is None:
        return None
    document = copy.deepcopy(plain_object(found))
    if not document:
        return None
    if found.api_version == _ALPHA:
        _wrap_amounts(document)
    document = {**document, "apiVersion": kind.api_version, "kind": kind.kind}
    _convert(document, kind, kind.stored_as, found.where)
    return FoundObject(kind.stored_as.api_version, kind.kind, document, found.where)


def _convert(document: dict[str, Any], kind: ServedKind, stored: ServedKind, where: str) -> None:
    wrong = next(wrong_values(kind_schema(kind), document), None)
    if wrong is not None:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in wrong.path).removeprefix(".")
        raise InputError(f"{where}: {kind.kind}: {path}: {wrong.why}")
    try:
        convert(stored, kind, document)
    except (ApiError, *UNREADABLE) as error:
        raise InputError(f"{where}: {kind.kind}: {error}") from None


def _wrap_amounts(document: dict[str, Any]) -> None:
    """Turn the amounts of the devices of a slice, in place, into those of v1beta1: objects with a value."""
    spec = document.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    for device in devices if isinstance(devices, list) else ():
        basic = device.get("basic") if isinstance(device, dict) else None
        amounts = basic.get("capacity") if isinstance(basic, dict) else None
        if isinstance(basic, dict) and isinstance(amounts, dict):
            basic["capacity"] = {name: one if isinstance(one, dict) else {"value": one} for name, one in amounts.items()}


def advice(api_version: str, kind: str) -> str:
    """Return what to write in place of a version of a workload that no server has any more; "" for other kinds."""
    now = next((one.api_version for one in KINDS if one.name == kind and kind in _SELECTED), "")
    if not now or api_version.rpartition("/")[0] not in {"extensions", "apps"} or api_version == now:
        return ""
    selector = " and a spec.selector with the labels of its template" if api_version in _WITHOUT_SELECTOR else ""
    return f"no release since 1.16 serves this version; give it apiVersion: {now}{selector}"
