"""Unknown and duplicate fields of a JSON object, as strict decoding reports them.

They are reported in document order, as Go's decoder does: each once, and at most 100.

Source  sigs.k8s.io/json, internal/golang/encoding/json/kubernetes_patch.go
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.apiserver.schema.normalization import MAX_UNKNOWN, Place, path_of
from moorage.apiserver.schema.schemas import ListOf, MapOf, Scalar, Struct, Type

__all__ = ["as_written", "repeated_fields", "strange_fields"]

#: Maximum number of errors that are formatted to find distinct ones.
_MAX_FORMATTED: Final = 10 * MAX_UNKNOWN


class _Fields(list[Any]):
    """The fields of an object as written: pairs of a name and a value."""


def as_written(body: bytes) -> Any:
    """Return a JSON document with duplicate fields preserved, or None if it has none."""
    has_duplicates = False

    def build(pairs: list[tuple[str, Any]]) -> _Fields:
        nonlocal has_duplicates
        has_duplicates = has_duplicates or len(dict(pairs)) != len(pairs)
        return _Fields(pairs)

    found = json.loads(body, object_pairs_hook=build, parse_int=str, parse_float=str)
    return found if has_duplicates else None


def strange_fields(shape: Struct, written: Any) -> tuple[str, ...]:
    """Return the errors for unknown and duplicate fields. The content of unknown fields is not checked."""
    return _first(_strange(shape, written, None))


def repeated_fields(written: Any) -> tuple[str, ...]:
    """Return the errors for duplicate fields of an object of any kind."""
    return _first(_repeated(written, None))


def _first(errors: Iterable[str]) -> tuple[str, ...]:
    distinct: dict[str, None] = {}
    for count, text in enumerate(errors, 1):
        distinct[text] = None
        if len(distinct) == MAX_UNKNOWN or count == _MAX_FORMATTED:
            break
    return tuple(distinct)


def _strange(shape: Type, value: Any, place: Place) -> Iterator[str]:
    if isinstance(value, _Fields):
        if isinstance(shape, (Struct, MapOf)):
            yield from _in_object(shape, value, place)
    elif isinstance(value, list) and isinstance(shape, ListOf) and not isinstance(shape.item, Scalar):
        for i, one in enumerate(value):
            yield from _strange(shape.item, one, (place, i))


def _in_object(shape: Struct | MapOf, fields: _Fields, place: Place) -> Iterator[str]:
    seen: dict[str, bool] = {}
    for name, inner in fields:
        if isinstance(shape, Struct):
            field = shape.fields.get(name)
            held = None if field is None else field.type
        else:
            held = shape.item
        # One error for each name, however often it occurs here.
        if held is None and name not in seen:
            yield f'unknown field "{path_of((place, name))}"'
        elif held is not None and seen.get(name) is False:
            yield f'duplicate field "{path_of((place, name))}"'
        seen[name] = name in seen
        if held is not None:
            yield from _strange(held, inner, (place, name))


def _repeated(value: Any, place: Place) -> Iterator[str]:
    if isinstance(value, _Fields):
        seen: dict[str, bool] = {}
        for name, inner in value:
            if seen.get(name) is False:
                yield f'duplicate field "{path_of((place, name))}"'
            seen[name] = name in seen
            yield from _repeated(inner, (place, name))
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from _repeated(one, (place, i))
