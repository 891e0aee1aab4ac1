"""Validation of references to a pod's own fields and resources, in environment variables and volumes.

Source  kubernetes, pkg/apis/core/validation/validation.go, validateObjectFieldSelector, validateContainerResourceFieldSelector
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from moorage.api.names import check_qualified_name
from moorage.api.quantity import QuantityError, parse
from moorage.api.validation.faults import invalid, named, required, unsupported
from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = ["field_faults", "resource_faults"]

Faults = Iterator[Fault]
#: Fields that variables and volumes may have, and those that a label can be converted from.
_VARIABLE_FIELDS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_VOLUME_FIELDS: Final = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_CONVERTED: Final = frozenset([
    *_VARIABLE_FIELDS, *_VOLUME_FIELDS, "spec.restartPolicy", "spec.schedulerName", "spec.host", "status.phase",
])  # fmt: skip
_SUBSCRIPT: Final = re.compile(r"(metadata\.annotations|metadata\.labels)\['(.*)'\]", re.DOTALL)
_RESOURCES: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory",
)  # fmt: skip
_HUGE_PAGES: Final = ("limits.hugepages-", "requests.hugepages-")
_SIZES: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
#: The divisors of each resource, with the words for them.
_DIVISORS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "cpu": (("1m", "1"), "1m and 1 are supported with the cpu resource"),
    "memory": (_SIZES, f"{', '.join(_SIZES)} are supported with the memory resource"),
    "ephemeral-storage": (_SIZES, f"{', '.join(_SIZES)} are supported with the local ephemeral storage resource"),
    "hugepages": (_SIZES, f"{', '.join(_SIZES)} are supported with the hugepages resource"),
}


def field_faults(path: str, reference: Document, *, is_volume: bool = False) -> Faults:
    """Yield the faults of a reference to a field of the pod."""
    at, field = f"{path}.fieldPath", reference.get("fieldPath") or ""
    if not field:
        yield required(at)
    elif found := _SUBSCRIPT.fullmatch(field):
        if found[1] == "metadata.annotations":
            yield from named(path, found[2].lower(), check_qualified_name)
        else:
            yield from named(path, found[2], check_qualified_name)
    elif field not in _CONVERTED:
        yield invalid(at, field, f"error converting fieldPath: field label not supported: {field}")
    elif field not in (supported := _VOLUME_FIELDS if is_volume else _VARIABLE_FIELDS):
        yield unsupported(at, field, supported)


def resource_faults(path: str, reference: Document, *, is_volume: bool = False) -> Faults:
    """Yield the faults of a reference to a resource of a container."""
    resource = reference.get("resource") or ""
    if is_volume and not reference.get("containerName"):
        yield required(f"{path}.containerName")
    elif not resource:
        yield required(f"{path}.resource")
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        yield unsupported(f"{path}.resource", resource, _RESOURCES)
    kind = resource.partition(".")[2]
    divisors, words = _DIVISORS.get("hugepages" if kind.startswith("hugepages-") else kind, ((), ""))
    divisor = reference.get("divisor")
    if divisors and divisor is not None and not _is_one_of(divisor, divisors):
        yield invalid(f"{path}.divisor", resource, f"only divisor's values {words}")


def _is_one_of(divisor: object, supported: tuple[str, ...]) -> bool:
    try:
        amount = parse(str(divisor))
    except QuantityError:
        return False
    return not amount or any(parse(one) == amount for one in supported)
