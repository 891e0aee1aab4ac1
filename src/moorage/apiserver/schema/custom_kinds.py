"""The kinds that a CustomResourceDefinition defines: one for each of its versions.

Source  apiextensions-apiserver, pkg/apiserver/customresource_handler.go and pkg/apihelpers/helpers.go
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.apiserver.vocabulary.custom_versions import CustomVersion, PrinterColumn, ScalePaths, Schema, version_priority
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["CLEANUP", "condition_of", "custom_kinds", "is_established", "served_state"]

#: The finalizer that keeps a definition until its objects are deleted.
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_AGE: Final = PrinterColumn("Age", "date", ".metadata.creationTimestamp")


def condition_of(definition: Document, name: str) -> Document | None:
    """Return a condition of a definition, or None."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == name), None)


def is_established(definition: Document) -> bool:
    """Return True if the definition's kinds are served."""
    return (condition_of(definition, "Established") or {}).get("status") == "True"


def served_state(definition: Document) -> tuple[Any, ...]:
    """Return the fields of a definition that its kinds are made from. Equal values give equal kinds."""
    metadata, status = definition["metadata"], definition.get("status") or {}
    is_terminating = "deletionTimestamp" in metadata
    return metadata["uid"], definition["spec"], status.get("acceptedNames"), is_established(definition), is_terminating


def custom_kinds(definition: Document) -> tuple[ServedKind, ...]:
    """Return the kinds of a definition, the stored one first; none if it is not established."""
    if not is_established(definition):
        return ()
    versions = sorted(definition["spec"].get("versions") or (), key=lambda one: not one.get("storage"))
    if not versions:
        return ()
    stored = _kind(definition, versions[0], None)
    return (stored, *(_kind(definition, version, stored) for version in versions[1:]))


def _kind(definition: Document, version: Document, stored: ServedKind | None) -> ServedKind:
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    custom = _custom_version(definition, version, None if stored is None else stored.custom)
    fields = ((one["jsonPath"].removeprefix("."), "") for one in version.get("selectableFields") or ())
    return ServedKind(
        spec["group"],
        names["kind"],
        names["plural"],
        tuple(names.get("shortNames") or ()),
        namespaced=spec["scope"] == "Namespaced",
        subresources=tuple(name for name in ("scale", "status") if name in (version.get("subresources") or {})),
        has_generation=True,
        fields=tuple(fields),
        version=version["name"],
        custom=custom,
        stored_as=stored,
    )


def _custom_version(definition: Document, version: Document, stored: CustomVersion | None) -> CustomVersion:
    names = definition["status"]["acceptedNames"]
    given = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    schema: Schema = copy.deepcopy(given)  # a copy, so that no later change of the document affects it
    return CustomVersion(
        schema=stored.schema if stored is not None and stored.schema == schema else schema,
        singular=names["singular"],
        list_kind=names["listKind"],
        categories=tuple(names.get("categories") or ()),
        columns=tuple(_columns(version)),
        scale=_scale(version),
        warning=_warning(definition["spec"], version),
        is_served=bool(version.get("served")),
        is_terminating="deletionTimestamp" in definition["metadata"],
    )


def _columns(version: Document) -> Iterator[PrinterColumn]:
    """Yield the columns of a version: its own ones, or the age."""
    columns = version.get("additionalPrinterColumns") or ()
    for one in columns:
        yield PrinterColumn(
            one["name"], one["type"], one["jsonPath"], one.get("format", ""), one.get("description", ""), one.get("priority", 0)
        )
    if not columns:
        yield _AGE


def _scale(version: Document) -> ScalePaths | None:
    found: Mapping[str, str] | None = (version.get("subresources") or {}).get("scale")
    if found is None:
        return None
    return ScalePaths(found["specReplicasPath"], found["statusReplicasPath"], found.get("labelSelectorPath") or "")


def _warning(spec: Document, version: Document) -> str:
    """Return the warning of a deprecated version, or ""."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning") is not None:
        return str(version["deprecationWarning"])
    name, kind, group = version["name"], spec["names"]["kind"], spec["group"]
    newer = [
        one["name"]
        for one in spec["versions"]
        if one.get("served") and not one.get("deprecated") and version_priority(one["name"]) < version_priority(name)
    ]
    better = f"; use {group}/{min(newer, key=version_priority)} {kind}" if newer else ""
    return f"{group}/{name} {kind} is deprecated{better}"
