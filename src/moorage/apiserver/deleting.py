"""What a client may ask for when it has something deleted: how long it takes, what becomes of what it owns, and only if.

Source  apimachinery, pkg/apis/meta/v1/validation (ValidateDeleteOptions); apiserver, pkg/endpoints/handlers/delete.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.apiserver.records import Document
from moorage.apiserver.statuses import bad_request, invalid
from moorage.apiserver.store import DeleteOptions
from moorage.errors import Fault

__all__ = ["options_of"]

_POLICIES: Final = ("Foreground", "Background", "Orphan")


def options_of(document: Any) -> DeleteOptions:
    """Return what a ``DeleteOptions`` object asks for; None asks for nothing.

    Raises  ApiError 400 for what is no such object, 422 for values that are none
    """
    options = _mapping(document, "DeleteOptions")
    grace = options.get("gracePeriodSeconds")
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
        raise _wrong("gracePeriodSeconds", "int64")
    dry_run = options.get("dryRun") or []
    if not isinstance(dry_run, list):
        raise _wrong("dryRun", "[]string")
    if faults := list(_faults(options, dry_run)):
        raise invalid("DeleteOptions", "meta.k8s.io", "", faults)
    only_if = _mapping(options.get("preconditions"), "Preconditions")
    return DeleteOptions(
        grace, str(only_if.get("uid") or ""), str(only_if.get("resourceVersion") or ""), _propagation(options), "All" in dry_run
    )


def _mapping(value: Any, what: str) -> Document:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise bad_request(f"json: cannot unmarshal the body into Go value of type v1.{what}")
    return dict(value)


def _wrong(field: str, go: str) -> Exception:
    return bad_request(f"json: cannot unmarshal the value into Go struct field DeleteOptions.{field} of type {go}")


def _faults(options: Document, dry_run: list[Any]) -> Iterator[Fault]:
    policy = options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        yield Fault("Invalid value", "propagationPolicy", "orphanDependents and deletionPropagation cannot be both set", policy)
    if policy is not None and policy not in _POLICIES:
        supported = ", ".join(f'"{one}"' for one in (*_POLICIES, "nil"))
        yield Fault("Unsupported value", "propagationPolicy", f"supported values: {supported}", policy)
    if any(one != "All" for one in dry_run):
        yield Fault("Unsupported value", "dryRun", 'supported values: "All"', dry_run)


def _propagation(options: Document) -> str:
    policy = options.get("propagationPolicy")
    if policy is None and options.get("orphanDependents") is not None:
        return "Orphan" if options["orphanDependents"] is True else "Background"
    return str(policy or "")
