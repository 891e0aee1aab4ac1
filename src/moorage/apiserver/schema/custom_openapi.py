"""The OpenAPI schema of a custom kind, as clients read it to explain fields and to validate manifests.

Version 3 shows the schema of the definition. Version 2 cannot express all of it: junctors, nullable fields and objects with
unknown fields become less precise, so that a client accepts whatever the server accepts.

Source  apiextensions-apiserver, pkg/controller/openapi/builder/builder.go and pkg/controller/openapi/v2/conversion.go
"""

from __future__ import annotations

from typing import Any, Final

from moorage.apiserver.vocabulary.custom_versions import Schema
from moorage.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["custom_definition", "model_name"]

_Json = dict[str, Any]
_JUNCTORS: Final = ("allOf", "anyOf", "not", "oneOf")
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"


def model_name(kind: ServedKind) -> str:
    """Return the name of a custom kind's definition: ``com.example.v1.Widget``."""
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def custom_definition(schema: Schema, metadata: _Json, *, is_v2: bool) -> _Json:
    """Return the definition of a custom kind's schema. ``metadata`` is the reference to ObjectMeta."""
    if is_v2 and schema.get(_PRESERVES):
        return {"type": "object"}  # clients would reject properties that are not listed
    shown = _v2(schema) if is_v2 else dict(schema)
    shown["properties"] = {**shown.get("properties", {}), **_head(metadata)}
    return _with_embedded(shown, metadata, is_v2=is_v2)


def _head(metadata: _Json) -> _Json:
    return {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": metadata}


def _with_embedded(schema: Schema, metadata: _Json, *, is_v2: bool) -> _Json:
    """Return a schema whose embedded resources have the fields of every object."""
    shown = dict(schema)
    if "properties" in shown:
        shown["properties"] = {
            name: _with_embedded(inner, metadata, is_v2=is_v2) if "$ref" not in inner and "allOf" not in inner else inner
            for name, inner in shown["properties"].items()
        }
    for name in ("additionalProperties", "items"):
        if isinstance(shown.get(name), dict):
            shown[name] = _with_embedded(shown[name], metadata, is_v2=is_v2)
    if shown.get("x-kubernetes-embedded-resource") and not (is_v2 and shown.get(_PRESERVES)):
        shown["properties"] = {**shown.get("properties", {}), **_head(metadata)}
        required = shown.get("required", [])
        shown["required"] = [*required, *(name for name in ("kind", "apiVersion") if name not in required)]
    return shown


def _v2(schema: Schema) -> _Json:
    """Return a schema in the terms of OpenAPI version 2."""
    shown = {name: value for name, value in schema.items() if name not in _JUNCTORS}
    preserves = bool(shown.get(_PRESERVES))
    is_nullable = shown.pop("nullable", False)
    if is_nullable or preserves:
        shown.pop("items", None)
        shown.pop("properties", None)
    kind = shown.get("type")
    if is_nullable or (kind == "array" and "items" not in shown) or (preserves and kind == "object"):
        shown.pop("type", None)
    properties = shown.get("properties", {})
    required = [name for name in shown.pop("required", []) if not properties.get(name, {}).get("nullable")]
    additional = shown.get("additionalProperties")
    if required and not (isinstance(additional, dict) and additional.get("nullable")):
        shown["required"] = required
    if properties:
        shown["properties"] = {name: _v2(inner) for name, inner in properties.items()}
    for name in ("additionalProperties", "items"):
        if isinstance(shown.get(name), dict):
            shown[name] = _v2(shown[name])
    return shown
