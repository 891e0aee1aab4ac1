"""Decode and validate ``DeleteOptions``.

Source  apimachinery, pkg/apis/meta/v1/validation (ValidateDeleteOptions); apiserver, pkg/endpoints/handlers/delete.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moorage.cluster.apiserver.schema.normalization import FieldTypeError, conform
from moorage.cluster.apiserver.schema.schemas import schema
from moorage.cluster.apiserver.storage.deletion import DeleteOptions
from moorage.cluster.apiserver.vocabulary.served_kinds import Document
from moorage.cluster.apiserver.vocabulary.statuses import bad_request, invalid
from moorage.errors import Fault

_POLICIES: Final = ("Foreground", "Background", "Orphan")


def options_of(document: Document | None) -> DeleteOptions:
    """Return the decoded options; None gives the defaults.

    Raises  ApiError 400 for an object of another kind or with wrong types, 422 for invalid values
    """
    document = document or {}
    kind, version = document.get("kind") or "DeleteOptions", document.get("apiVersion") or "v1"
    if kind != "DeleteOptions":
        raise bad_request(f'no kind "{kind}" is registered for version "{version}" in scheme "{_SCHEME}"')
    try:
        options, _ = conform(schema("meta.DeleteOptions"), {key: document[key] for key in document if key not in _HEAD})
    except FieldTypeError as misfit:
        raise bad_request(str(misfit)) from None
    dry_run = options.get("dryRun") or []
    if faults := list(_faults(options, dry_run)):
        raise invalid("DeleteOptions", "meta.k8s.io", "", faults)
    only_if = options.get("preconditions") or {}
    return DeleteOptions(
        options.get("gracePeriodSeconds"), str(only_if.get("uid") or ""), str(only_if.get("resourceVersion") or ""),
        _propagation(options), "All" in dry_run, is_cascading=options.get("orphanDependents") is False,
    )  # fmt: skip


_HEAD: Final = frozenset(["apiVersion", "kind"])
_SCHEME: Final = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"


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
