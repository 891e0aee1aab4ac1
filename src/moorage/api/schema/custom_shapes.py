"""The types of a custom kind's fields, for patches and field management, from the schema of its definition.

Source  kube-openapi, pkg/schemaconv/smd.go and openapi.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.api.documents.served_kinds import Schema
from moorage.api.schema.field_types import UNTYPED, Field, ListOf, MapOf, Scalar, Struct, Type

_SCALARS: Final = {
    "boolean": Scalar("b", "bool"), "integer": Scalar("i", "int64"), "number": Scalar("f", "float64"),
    "string": Scalar("s", "string"),
}  # fmt: skip
_INT_OR_STRING: Final = Scalar("R", "intstr.IntOrString")


def custom_shape(name: str, schema: Schema, head: Mapping[str, Field]) -> Struct:
    """Return the type of a custom kind's objects. ``head`` are the fields that every object has."""
    fields = {**_fields(schema), **head}
    return Struct(name, name, fields, rest=UNTYPED if _preserves(schema) else None)


def _fields(schema: Schema) -> dict[str, Field]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    return {
        name: Field(name, _custom_type(inner), is_pointer=True, omits_empty=True, default=inner.get("default"))
        for name, inner in properties.items()
    }


def _preserves(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def _custom_type(schema: Schema) -> Type:
    if schema.get("x-kubernetes-int-or-string"):
        return _INT_OR_STRING
    kind = schema.get("type")
    if kind == "array":
        return _list(schema)
    if kind in _SCALARS:
        return _SCALARS[kind]
    return _object(schema)


def _list(schema: Schema) -> ListOf:
    item = _custom_type(schema["items"])
    list_type = schema.get("x-kubernetes-list-type", "atomic")
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ())) if list_type == "map" else ()
    return ListOf(item, "[]interface {}", keys, list_type == "set")


def _object(schema: Schema) -> Type:
    is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
    additional = schema.get("additionalProperties")
    if "properties" in schema or schema.get("x-kubernetes-embedded-resource"):
        return Struct("", "map[string]interface {}", _fields(schema), is_atomic, UNTYPED if _preserves(schema) else None)
    if isinstance(additional, Mapping):
        return MapOf(_custom_type(additional), "map[string]interface {}", is_atomic)
    if not (_preserves(schema) or additional):
        return Struct("", "map[string]interface {}", {}, is_atomic)
    return MapOf(UNTYPED, "map[string]interface {}", is_atomic=True) if is_atomic else UNTYPED
