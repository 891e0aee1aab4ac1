"""Validation of device classes, claims for devices and slices, beyond what scheduling reads.

Source  kubernetes, pkg/apis/resource/validation/validation.go; pkg/registry/resource/utils.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.api.cel import COST_LIMIT, estimated_selector_cost
from moorage.api.cel.bounds import CompileError
from moorage.api.cel.list_attributes import Lists
from moorage.api.documents.served_kinds import Document
from moorage.api.validation.faults import forbidden, invalid, too_long
from moorage.errors import Fault

Faults = Iterator[Fault]
_MOST_SELECTORS: Final = 32
_MOST_TEXT: Final = 64
_MOST_EXPRESSION: Final = 10 * 1024
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"


def selector_faults(found: Document, *, has_lists: bool) -> Faults:
    """Yield the faults of the CEL selectors of a class, a claim or its template. ``has_lists``: attributes may be lists."""
    lists = Lists.SUPPORTED if has_lists else Lists.UNKNOWN
    yield from _expression_faults("spec", found.get("spec") or {}, lists)
    path, devices = _devices(found)
    for i, request in enumerate(devices.get("requests") or ()):
        for name, asked in (("exactly", request.get("exactly")), *_choices(request)):
            yield from _expression_faults(f"{path}.devices.requests[{i}].{name}", asked or {}, lists)


def _expression_faults(path: str, holder: Document, lists: Lists) -> Faults:
    for i, selector in enumerate((holder.get("selectors") or ())[:_MOST_SELECTORS]):
        at, expression = f"{path}.selectors[{i}].cel.expression", (selector.get("cel") or {}).get("expression")
        if not expression:  # `moorage.api.validation` reports it
            continue
        if len(expression.encode()) > _MOST_EXPRESSION:
            yield too_long(at, _MOST_EXPRESSION)
            continue
        try:
            estimate = estimated_selector_cost(expression, lists)
        except CompileError as error:
            yield invalid(at, expression, str(error))
            continue
        if estimate > COST_LIMIT:
            yield forbidden(at, "too complex, exceeds cost limit")


def admin_access_faults(old: Document | None, new: Document, labels: Mapping[str, str]) -> Faults:
    """Yield the fault of newly requested admin access to devices, unless the namespace's labels allow it.

    The status of a claim is checked if ``old`` is given, the requests of a claim or its template otherwise.
    """
    if labels.get(_ADMIN_LABEL) == "true":
        return
    if old is None:
        path, asked = "spec.devices.requests", [one.get("exactly") or {} for one in _devices(new)[1].get("requests") or ()]
    else:
        path, asked = "status.allocation.devices.results", _results(new)
        if any(one.get("adminAccess") for one in _results(old)):
            return
    for i, one in enumerate(asked):
        if one.get("adminAccess"):
            why = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"
            yield forbidden(f"{path}[{i}].adminAccess", why)
            return


def _devices(found: Document) -> tuple[str, Document]:
    """Return the path of the spec of a claim, or of the claim in a template, and the devices that it asks for."""
    spec, path = found.get("spec") or {}, "spec"
    if found.get("kind") == "ResourceClaimTemplate":
        spec, path = spec.get("spec") or {}, "spec.spec"
    return path, spec.get("devices") or {}


def _results(claim: Document) -> list[Document]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _choices(request: Document) -> Iterator[tuple[str, Any]]:
    for i, choice in enumerate(request.get("firstAvailable") or ()):
        yield f"firstAvailable[{i}]", choice
