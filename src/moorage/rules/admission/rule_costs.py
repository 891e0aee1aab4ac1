"""Rules of custom kinds: the values that CEL sees, their maximum sizes, and the limit on the rules' estimated cost.

Source  apiextensions-apiserver, pkg/apis/apiextensions/validation: cel_validation.go, validation.go
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from moorage.api.cel import types
from moorage.api.cel.bounds import EvalError
from moorage.api.cel.call_estimates import DeclaredSize, product, total
from moorage.api.cel.functions.times import duration_of, timestamp_of
from moorage.api.cel.values import Map, Value
from moorage.api.documents.served_kinds import Schema
from moorage.api.validation.faults import forbidden
from moorage.errors import Fault

#: The cost limits of one expression and of all expressions of a schema.
_PER_EXPRESSION: Final = 10_000_000
_PER_SCHEMA: Final = 100_000_000
#: Maximum number of expressions that faults name: the most expensive ones, if they cost at least a hundredth of the limit.
_MOST_NAMED: Final = 4
_NAMED_SHARE: Final = _PER_SCHEMA // 100
_ADVICE: Final = (
    "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared"
)
_OF_SCHEMA: Final = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"


class RuleCosts:
    """The cost of a schema's expressions. ``is_stored``: the schema has not changed, so only the total is limited."""

    def __init__(self, *, is_stored: bool) -> None:
        self._is_stored = is_stored
        self._total = 0
        self._dearest: list[tuple[int, str]] = []

    def add(self, path: str, cost: int, what: str) -> Iterator[Fault]:
        """Add an expression, and yield its fault if it costs too much alone. ``what`` names its cost in messages."""
        if cost > _PER_EXPRESSION and not self._is_stored:
            yield forbidden(path, _exceeded(what, cost, _PER_EXPRESSION))
        self._total = total(self._total, cost)
        if cost >= _NAMED_SHARE:
            self._dearest = sorted([*self._dearest, (cost, path)], key=lambda one: -one[0])[:_MOST_NAMED]

    def faults(self, path: str) -> Iterator[Fault]:
        """Yield the faults of a schema whose expressions cost too much together."""
        if self._total > _PER_SCHEMA:
            yield from (forbidden(where, _OF_SCHEMA) for _, where in self._dearest)
            what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
            yield forbidden(path, _exceeded(what, self._total, _PER_SCHEMA))


def elements_below(schema: Schema, count: int | None) -> int | None:
    """Return the maximum number of values of a schema's direct parts, given the number of its own values; None: no limit."""
    limit: int | None = 1
    if schema.get("type") == "array":
        limit = schema.get("maxItems")
    elif schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping | bool):
        limit = schema.get("maxProperties")
    return None if count is None or limit is None else product(count, max(limit, 0))


def _exceeded(what: str, cost: int, limit: int) -> str:
    times = cost / limit
    shown = "more than 100x" if times > 100 else f"{times:f}x" if times < 1.5 else f"{times:.1f}x"
    return f"{what} exceeds budget by factor of {shown} ({_ADVICE})"


# -- rule values -------------------------------------------------------------------------------------------------------
# Values of custom kinds as CEL sees them: their types, from the schema, and the values themselves.
#
# A field without a schema has no type, and rules cannot use it; an object of unknown fields is one without fields. Names that
# are not identifiers are escaped: ``a-b`` is ``a__dash__b``, and ``namespace`` is ``__namespace__``.
#
# Source  apiserver, pkg/cel: common/schemas.go, common/values.go, escaping.go

INT_OR_STRING: Final = "x-kubernetes-int-or-string"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
_RESERVED: Final = frozenset(
    ["true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
     "loop", "package", "namespace", "return", "var", "void", "while"]
)  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z_.\-/][A-Za-z0-9_.\-/]*")
_ESCAPED: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
#: Formats of strings that CEL represents by another type.
_FORMATS: Final = {"byte": types.BYTES, "date": types.TIMESTAMP, "date-time": types.TIMESTAMP, "duration": types.DURATION}
_SCALARS: Final = {"boolean": types.BOOL, "integer": types.INT, "number": types.DOUBLE}
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

    type: types.Type
    fields: Mapping[str, Mapping[str, types.Type]]


def escaped(name: str) -> str | None:
    """Return the identifier of a field in CEL, or None if its name cannot be escaped."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _NAME.fullmatch(name):
        return None
    return re.sub(r"__|[.\-/]", lambda found: _ESCAPED[found[0]], name)


def declared_type(schema: Schema, *, is_root: bool = False) -> Declared | None:
    """Return the CEL type of a schema's values; None if rules cannot use them."""
    fields: dict[str, dict[str, types.Type]] = {}
    found = _type(schema, "self", fields, is_resource=is_root)
    return None if found is None else Declared(found, fields)


def _type(
    schema: Schema, name: str, fields: dict[str, dict[str, types.Type]], *, is_resource: bool = False
) -> types.Type | None:
    if schema.get(INT_OR_STRING):
        return types.DYN
    match schema.get("type"):
        case "string":
            return _FORMATS.get(schema.get("format", ""), types.STRING)
        case "array":
            element = _type(schema["items"], f"{name}.@items", fields) if isinstance(schema.get("items"), Mapping) else None
            return None if element is None else types.list_of(element)
        case "object":
            if not isinstance(additional := schema.get("additionalProperties"), Mapping):
                return _struct(name, fields, visible_properties(schema, is_resource=is_resource))
            value = _type(additional, f"{name}.@values", fields)
            return None if value is None else types.map_of(types.STRING, value)
        case kind:
            return _SCALARS.get(kind or "")


def _struct(name: str, fields: dict[str, dict[str, types.Type]], properties: Mapping[str, Schema]) -> types.Type:
    made: dict[str, types.Type] = {}
    for field_name, inner in properties.items():
        found = _type(inner, f"{name}.{field_name}", fields)
        identifier = escaped(field_name)
        if found is not None and identifier is not None:
            made[identifier] = found
    fields[name] = made
    return types.Type("struct", name)


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


def as_value(schema: Schema, value: Any, *, is_resource: bool = False) -> Value:
    """Convert a value to CEL's representation. The value has been validated against the schema.

    ``is_resource``: it is a whole object, of which rules see the kind and the names whatever its schema says of metadata.
    """
    match value:
        case dict():
            return Map(_entries(schema, value, is_resource=is_resource))
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


def _entries(schema: Schema, value: dict[str, Any], *, is_resource: bool) -> Iterable[tuple[Value, Value]]:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        return [(name, as_value(additional, inner)) for name, inner in value.items()]
    properties = visible_properties(schema, is_resource=is_resource)
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


def _read(read: Callable[[str], Value], text: str, full: str) -> Value:
    """Return what a text means. Other texts are returned unchanged; functions on such values reject them."""
    try:
        return read(full)
    except EvalError:
        return text


def _time(text: str) -> Value:
    return _read(timestamp_of, text, text.upper() if len(text) > _DATE_SIZE else f"{text}T00:00:00Z")


_DATE_SIZE: Final = 10
_READERS: Final[Mapping[str, Callable[[str], Value]]] = {
    "byte": _decoded, "date": _time, "date-time": _time, "duration": lambda text: _read(duration_of, text, text),
}  # fmt: skip


# -- rule sizes --------------------------------------------------------------------------------------------------------
# The maximum sizes of values of custom kinds according to their schemas, for the estimated cost of rules.
#
# Sizes that a schema does not limit are limited by the size of a request.
#
# Source  apiserver: pkg/cel/common/schemas.go, pkg/cel/limits.go

LARGEST_REQUEST: Final = 3 * 1024 * 1024
#: Bytes of a request that a value can take, without its quotes or brackets.
_LARGEST_VALUE: Final = LARGEST_REQUEST - 2
#: An entry of a map has more bytes than its value: its key, quotes, a colon and a comma.
_ENTRY_BYTES: Final = 6
_FIELD_BYTES: Final = 4
#: Maximum number of bytes of a character.
_CHARACTER_BYTES: Final = 4
_SCALAR_SIZES: Final = {
    "boolean": DeclaredSize(least_bytes=4), "integer": DeclaredSize(least_bytes=1), "number": DeclaredSize(least_bytes=1),
}  # fmt: skip
_FORMAT_SIZES: Final = {
    "duration": DeclaredSize(32, 3), "date": DeclaredSize(12, 12), "date-time": DeclaredSize(32, 21),
}  # fmt: skip
_KEY: Final = DeclaredSize(least_bytes=2)


def declared_size(schema: Schema, *, is_root: bool = False) -> DeclaredSize | None:
    """Return the sizes of a schema's values; None if rules cannot use them."""
    if schema.get(INT_OR_STRING):
        return DeclaredSize(_characters(schema, _LARGEST_VALUE), 1)
    match schema.get("type"):
        case "string":
            return _text(schema)
        case "array":
            return _list(schema)
        case "object":
            return _object(schema, is_resource=is_root or bool(schema.get(EMBEDDED)))
        case kind:
            return _SCALAR_SIZES.get(kind or "")


def _characters(schema: Schema, default: int) -> int:
    limit = schema.get("maxLength")
    return default if limit is None else max(limit, 0) * _CHARACTER_BYTES


def _text(schema: Schema) -> DeclaredSize:
    kind = schema.get("format", "")
    if kind in _FORMAT_SIZES:
        return _FORMAT_SIZES[kind]
    if kind == "byte":
        return DeclaredSize(max(schema.get("maxLength", _LARGEST_VALUE), 0), 2)
    choices = [len(one.encode()) if isinstance(one, str) else 0 for one in schema.get("enum") or ()]
    return DeclaredSize(_characters(schema, max(choices, default=_LARGEST_VALUE)), 2)


def _list(schema: Schema) -> DeclaredSize | None:
    items = schema.get("items")
    element = declared_size(items) if isinstance(items, Mapping) else None
    if element is None:
        return None
    limit = schema.get("maxItems")
    return DeclaredSize(_LARGEST_VALUE // (element.least_bytes + 1) if limit is None else max(limit, 0), 2, element)


def _object(schema: Schema, *, is_resource: bool) -> DeclaredSize | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        value = declared_size(additional)
        if value is None:
            return None
        limit = schema.get("maxProperties")
        most = _LARGEST_VALUE // (value.least_bytes + _ENTRY_BYTES) if limit is None else max(limit, 0)
        return DeclaredSize(most, 2, value, keys=_KEY)
    fields, least, wanted = {}, 2, frozenset(schema.get("required") or ())
    for name, inner in visible_properties(schema, is_resource=is_resource).items():
        size = declared_size(inner)
        if size is None:
            continue
        identifier = escaped(name)
        if identifier is not None:
            fields[identifier] = size
        if name in wanted and inner.get("default") is None:
            least += len(name.encode()) + size.least_bytes + _FIELD_BYTES
    return DeclaredSize(least_bytes=least, fields=fields)
