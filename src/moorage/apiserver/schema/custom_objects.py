"""Objects of custom kinds: drop unknown fields, set defaults and coerce metadata, as the schema of their kind says.

These functions may recurse, because limits of request bodies bound the nesting.

Source  apiextensions-apiserver, pkg/apiserver/schema: pruning/algorithm.go, defaulting/algorithm.go and prunenulls.go,
        objectmeta/algorithm.go
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.apiserver.schema.normalization import MAX_UNKNOWN, FieldTypeError, Place, conform, path_of
from moorage.apiserver.schema.schemas import schema
from moorage.apiserver.vocabulary.custom_versions import Schema
from moorage.apiserver.vocabulary.records import Document

__all__ = ["apply_defaults", "drop_unknown_fields", "embedded_resources", "fit_custom"]

PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
_HEAD: Final = frozenset(["apiVersion", "kind", "metadata"])
_METADATA: Final = "meta.ObjectMeta"


def fit_custom(version_schema: Schema, document: Any) -> tuple[Document, list[str]]:
    """Return an object as its kind's schema reads it, and the paths of unknown fields.

    Raises  FieldTypeError for metadata of the wrong type
    """
    if not isinstance(document, dict):
        raise FieldTypeError("Object 'Kind' is missing")
    made = copy.deepcopy(document)
    unknown = _fit_metadata(made, None)
    unknown += sorted(drop_unknown_fields(version_schema, made))
    for place, resource in embedded_resources(version_schema, made):
        _fit_embedded(resource, place, unknown)
    return made, unknown[:MAX_UNKNOWN]


def _fit_metadata(holder: Document, place: Place) -> list[str]:
    """Normalize the metadata of an object or of an embedded resource, in place; return the paths of unknown fields."""
    if "metadata" not in holder:
        return []
    fitted, unknown = conform(schema(_METADATA), {} if holder["metadata"] is None else holder["metadata"])
    holder["metadata"] = fitted
    base = path_of((place, "metadata"))
    return [f"{base}.{path}" for path in unknown]


def _fit_embedded(resource: Document, place: Place, unknown: list[str]) -> None:
    for name in ("apiVersion", "kind"):
        if name in resource and not isinstance(resource[name], str):
            raise FieldTypeError(f"{path_of((place, name))}: Invalid value: must be a string")
    unknown += _fit_metadata(resource, place)


def embedded_resources(root: Schema, document: Document) -> Iterator[tuple[Place, Document]]:
    """Yield the embedded resources of an object, with their places."""
    if _has_embedded(root):
        yield from _embedded(root, document, None)


def _has_embedded(node: Schema) -> bool:
    return bool(node.get(EMBEDDED)) or any(map(_has_embedded, _inner_schemas(node)))


def _inner_schemas(node: Schema) -> Iterator[Schema]:
    yield from node.get("properties", {}).values()
    for name in ("items", "additionalProperties"):
        if isinstance(inner := node.get(name), Mapping):
            yield inner


def _embedded(node: Schema, value: Any, place: Place) -> Iterator[tuple[Place, Document]]:
    if isinstance(value, dict):
        if node.get(EMBEDDED):
            yield place, value
        for name, inner in value.items():
            below = field_schema(node, name)
            if below is not None:
                yield from _embedded(below, inner, (place, name))
    elif isinstance(value, list) and isinstance(items := node.get("items"), Mapping):
        for i, inner in enumerate(value):
            yield from _embedded(items, inner, (place, i))


def field_schema(node: Schema, name: str) -> Schema | None:
    """Return the schema of a field of an object, or None if it has none."""
    found: Schema | None = node.get("properties", {}).get(name)
    if found is None and isinstance(additional := node.get("additionalProperties"), Mapping):
        return additional
    return found


# -- unknown fields ----------------------------------------------------------------------------------------------------


def drop_unknown_fields(root: Schema, document: Document) -> list[str]:
    """Drop fields that are not in an object's schema, and nulls that it does not allow, in place; return the dropped paths."""
    dropped: list[str] = []
    _drop_in_object(root, document, None, dropped, is_resource=True)
    _drop_nulls(root, document)
    return dropped


def _drop(node: Schema | None, value: Any, place: Place, dropped: list[str]) -> None:
    if isinstance(value, dict):
        _drop_in_object(node or {}, value, place, dropped, is_resource=bool(node and node.get(EMBEDDED)))
    elif isinstance(value, list):
        items = None if node is None else node.get("items")
        if items is not None or not (node and node.get(PRESERVES)):
            for i, inner in enumerate(value):
                _drop(items, inner, (place, i), dropped)


def _drop_in_object(node: Schema, value: Document, place: Place, dropped: list[str], *, is_resource: bool) -> None:
    properties: Mapping[str, Schema] = node.get("properties", {})
    additional = node.get("additionalProperties")
    preserves = bool(node.get(PRESERVES))
    for name in list(value):
        if is_resource and name in _HEAD:
            continue
        below = properties.get(name)
        if below is None and isinstance(additional, Mapping):
            below = additional
        if below is not None:
            _drop(below, value[name], (place, name), dropped)
        elif additional is not None:
            _drop(None, value[name], (place, name), dropped)
        elif not preserves:
            if len(dropped) < MAX_UNKNOWN:
                dropped.append(path_of((place, name)))
            del value[name]


def _drop_nulls(node: Schema | None, value: Any) -> None:
    """Drop nulls of fields that are not nullable, unless a default replaces them."""
    if isinstance(value, dict):
        for name in list(value):
            below = None if node is None else field_schema(node, name)
            if value[name] is None and below is not None and not below.get("nullable") and below.get("default") is None:
                del value[name]
            else:
                _drop_nulls(below, value[name])
    elif isinstance(value, list):
        items = None if node is None else node.get("items")
        for inner in value:
            _drop_nulls(items, inner)


# -- defaults ----------------------------------------------------------------------------------------------------------


def apply_defaults(node: Schema, value: Any) -> None:
    """Set the defaults of a value's fields, in place."""
    if isinstance(value, dict):
        properties: Mapping[str, Schema] = node.get("properties", {})
        for name, below in properties.items():
            default = below.get("default")
            if default is not None and (name not in value or _is_forbidden_null(below, value[name])):
                value[name] = copy.deepcopy(default)
        for name in value:
            inner = field_schema(node, name)
            if inner is not None:
                if name not in properties and _is_forbidden_null(inner, value[name]):
                    value[name] = copy.deepcopy(inner.get("default"))
                apply_defaults(inner, value[name])
    elif isinstance(value, list) and isinstance(items := node.get("items"), Mapping):
        for i, one in enumerate(value):
            if _is_forbidden_null(items, one):
                value[i] = copy.deepcopy(items.get("default"))
            apply_defaults(items, value[i])


def _is_forbidden_null(node: Schema, value: Any) -> bool:
    return value is None and not node.get("nullable")
