"""Values of custom kinds as CEL sees them: their types, from the schema, and the values themselves.

A field without a schema has no type, and rules cannot use it; an object of unknown fields is one without fields. Names that are
not identifiers are escaped: ``a-b`` is ``a__dash__b``, and ``namespace`` is ``__namespace__``.

Source  apiserver, pkg/cel: common/schemas.go, common/values.go, escaping.go
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from moorage.api.cel.cel_errors import EvalError
from moorage.api.cel.times import duration_of, timestamp_of
from moorage.api.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of
from moorage.api.cel.values import Map, Value
from moorage.cluster.apiserver.vocabulary.served_kinds import Schema

__all__ = ["EMBEDDED", "INT_OR_STRING", "Declared", "as_value", "declared_type", "escaped", "visible_properties"]

INT_OR_STRING: Final = "x-kubernetes-int-or-string"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
_RESERVED: Final = frozenset(
    ["true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
     "loop", "package", "namespace", "return", "var", "void", "while"]
)  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z_.\-/][A-Za-z0-9_.\-/]*")
_ESCAPED: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
#: Formats of strings that CEL represents by another type.
_FORMATS: Final = {"byte": BYTES, "date": TIMESTAMP, "date-time": TIMESTAMP, "duration": DURATION}
_SCALARS: Final = {"boolean": BOOL, "integer": INT, "number": DOUBLE}
_TEXT: Final[Schema] = {"type": "string"}
#: The fields of every object that rules can use.
_HEAD: Final[Mapping[str, Schema]] = {
    "apiVersion": _TEXT, "kind": _TEXT,
    "metadata": {"type": "object", "properties": {"name": _TEXT, "generateName": _TEXT}},
}  # fmt: skip
_NAMES: Final = ("name", "generateName")
#: Stands for all fields that have no schema: rules cannot name them, but they count when objects are compared.
_UNKNOWN: Final = "\0"


class Declared(NamedTuple):
    """The type of a value, and the fields of all struct types in it."""

    type: Type
    fields: Mapping[str, Mapping[str, Type]]


def escaped(name: str) -> str | None:
    """Return the identifier of a field in CEL, or None if its name cannot be escaped."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _NAME.fullmatch(name):
        return None
    return re.sub(r"__|[.\-/]", lambda found: _ESCAPED[found[0]], name)


def declared_type(schema: Schema, *, is_root: bool = False) -> Declared | None:
    """Return the CEL type of a schema's values; None if rules cannot use them."""
    fields: dict[str, dict[str, Type]] = {}
    found = _type(schema, "self", fields, is_resource=is_root)
    return None if found is None else Declared(found, fields)


def _type(schema: Schema, name: str, fields: dict[str, dict[str, Type]], *, is_resource: bool = False) -> Type | None:
    if schema.get(INT_OR_STRING):
        return DYN
    match schema.get("type"):
        case "string":
            return _FORMATS.get(schema.get("format", ""), STRING)
        case "array":
            element = _type(schema["items"], f"{name}.@items", fields) if isinstance(schema.get("items"), Mapping) else None
            return None if element is None else list_of(element)
        case "object":
            return _object_type(schema, name, fields, is_resource=is_resource)
        case kind:
            return _SCALARS.get(kind or "")


def _object_type(schema: Schema, name: str, fields: dict[str, dict[str, Type]], *, is_resource: bool) -> Type | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        value = _type(additional, f"{name}.@values", fields)
        return None if value is None else map_of(STRING, value)
    return _struct(name, fields, visible_properties(schema, is_resource=is_resource))


def _struct(name: str, fields: dict[str, dict[str, Type]], properties: Mapping[str, Schema]) -> Type:
    made: dict[str, Type] = {}
    for field_name, inner in properties.items():
        found = _type(inner, f"{name}.{field_name}", fields)
        identifier = escaped(field_name)
        if found is not None and identifier is not None:
            made[identifier] = found
    fields[name] = made
    return Type("struct", name)


def visible_properties(schema: Schema, *, is_resource: bool) -> Mapping[str, Schema]:
    """Return the schemas of the fields of an object, with those that rules see in every resource."""
    properties: Mapping[str, Schema] = schema.get("properties", {})
    is_head = (is_resource or schema.get(EMBEDDED)) and not _has_head(properties)
    return {**properties, **_HEAD} if is_head else properties


def _has_head(properties: Mapping[str, Schema]) -> bool:
    """Return whether a schema describes all of what rules see in every resource."""
    metadata = properties.get("metadata", {})
    texts = (properties.get("kind"), properties.get("apiVersion"), *map(metadata.get("properties", {}).get, _NAMES))
    return metadata.get("type") == "object" and all(one is not None and one.get("type") == "string" for one in texts)


# -- values ------------------------------------------------------------------------------------------------------------


def as_value(schema: Schema, value: Any) -> Value:
    """Convert a value to CEL's representation. The value has been validated against the schema."""
    match value:
        case dict():
            return Map(_entries(schema, value))
        case list():
            items = schema.get("items")
            return [as_value(items, one) for one in value] if isinstance(items, Mapping) else value
        case str() if schema.get("type") == "string" and schema.get("format") in _READERS:
            return _READERS[schema["format"]](value)
        case bool():
            return value
        case int() | float():
            return float(value) if schema.get("type") == "number" else int(value)
        case _:
            return value


def _entries(schema: Schema, value: dict[str, Any]) -> Iterable[tuple[Value, Value]]:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        return [(name, as_value(additional, inner)) for name, inner in value.items()]
    properties = {**_HEAD, **schema.get("properties", {})}
    found: list[tuple[Value, Value]] = []
    unknown = {}
    for name, inner in value.items():
        identifier, below = escaped(name), properties.get(name)
        if identifier is None or below is None:
            unknown[name] = inner
        else:
            found.append((identifier, as_value(below, inner)))
    return [*found, (_UNKNOWN, json.dumps(unknown, sort_keys=True))] if unknown else found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()


def _time(text: str) -> Value:
    """Return the timestamp of a date or time. Other texts are returned unchanged; functions on timestamps reject them."""
    full = text.upper() if len(text) > _DATE_SIZE else f"{text}T00:00:00Z"
    try:
        return timestamp_of(full)
    except EvalError:
        return text


def _length(text: str) -> Value:
    try:
        return duration_of(text)
    except EvalError:
        return text


_DATE_SIZE: Final = 10
_READERS: Final[Mapping[str, Callable[[str], Value]]] = {
    "byte": _decoded, "date": _time, "date-time": _time, "duration": _length,
}  # fmt: skip
