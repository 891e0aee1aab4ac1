"""The maximum sizes of values of custom kinds according to their schemas, for the estimated cost of rules.

Sizes that a schema does not limit are limited by the size of a request.

Source  apiserver: pkg/cel/common/schemas.go, pkg/cel/limits.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.api.cel.estimated_sizes import DeclaredSize
from moorage.cluster.apiserver.admission.rule_values import EMBEDDED, INT_OR_STRING, escaped, visible_properties
from moorage.cluster.apiserver.vocabulary.served_kinds import Schema

__all__ = ["LARGEST_REQUEST", "declared_size"]

LARGEST_REQUEST: Final = 3 * 1024 * 1024
#: Bytes of a request that a value can take, without its quotes or brackets.
_LARGEST_VALUE: Final = LARGEST_REQUEST - 2
#: An entry of a map has more bytes than its value: its key, quotes, a colon and a comma.
_ENTRY_BYTES: Final = 6
_FIELD_BYTES: Final = 4
#: Maximum number of bytes of a character.
_CHARACTER_BYTES: Final = 4
_SCALARS: Final = {
    "boolean": DeclaredSize(least_bytes=4), "integer": DeclaredSize(least_bytes=1), "number": DeclaredSize(least_bytes=1),
}  # fmt: skip
_FORMATS: Final = {
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
            return _SCALARS.get(kind or "")


def _characters(schema: Schema, default: int) -> int:
    limit = schema.get("maxLength")
    return default if limit is None else max(limit, 0) * _CHARACTER_BYTES


def _text(schema: Schema) -> DeclaredSize:
    kind = schema.get("format", "")
    if kind in _FORMATS:
        return _FORMATS[kind]
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
