"""Decode plain data or JSON to API objects, with Kubernetes' treatment of null and errors that name object and field.

The API accepts ``null`` for a list, map or struct that is left out, and dumps contain it; ``msgspec`` rejects it. So data that
fails to decode gets its nulls replaced by Go's zero values, and is decoded again. An error names the position of the object,
the object, the field, the value found and, for labels that YAML parsed as numbers, the remedy:

    apps.yaml:12: Pod default/web: metadata.labels[version]: expected str, found float 1.5; quote it: "1.5"

Source  encoding/json on null: a no-op for values, nil for pointers, lists and maps
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from moorage.api.quantity import INT64_MAX, INT64_MIN
from moorage.api.reading import json_tree
from moorage.errors import InputError

T = TypeVar("T")

_MISMATCH = re.compile(r"Expected `(?P<expected>.*?)`, got `(?P<found>.*?)`")
_RANGE = re.compile(r"Expected `int[^`]*` (?P<sign><=|>=) (?P<bound>-?[0-9]+)")
_PLACE = re.compile(r" - at (?P<key>`key` in )?`(?P<path>\$.*?)`$")
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<index>[0-9]+)\]|\[\.\.\.\]")


def decode(data: Mapping[str, Any] | bytes, kind: type[T], where: str) -> T:
    """Decode the object in plain data or JSON text. Fields that the type does not declare are dropped.

    Raises  InputError: ``where: Kind namespace/name: path.to.field: expected …, found …``; for bytes that are not JSON,
            ``where:line: …``
    """
    try:
        return msgspec.json.decode(data, type=kind) if isinstance(data, bytes) else msgspec.convert(data, kind)
    except json_tree.UNREADABLE:
        pass
    plain = _one_document(data, where) if isinstance(data, bytes) else data
    filled = _without_nulls(plain, _described(cast(type, kind)))
    try:
        return msgspec.convert(filled, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_explain(str(error), filled, kind)}") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply") from None


def _one_document(data: bytes, where: str) -> Any:
    documents = [document for document, _ in json_tree.read_tree(data, where)]
    if len(documents) != 1:
        raise InputError(f"{where}:1: expected one JSON document, found {len(documents)}")
    return documents[0]


# -- nulls --------------------------------------------------------------------------------------------------------------


def _without_nulls(data: Any, kind: inspect.Type) -> Any:
    """Return the data without nulls that their fields cannot hold: left out, or replaced by the zero value."""
    match kind, data:
        case inspect.StructType(cls=cls), dict():
            places = _places(cls)
            return {
                name: _without_nulls(value, places[name]) if name in places else value
                for name, value in data.items()
                if value is not None or (name in places and _holds_null(places[name]))
            }
        case inspect.DictType(value_type=inner), dict():
            return {key: _or_zero(value, inner) for key, value in data.items()}
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner), list():
            return [_or_zero(value, inner) for value in data]
        case inspect.UnionType(types=types), _:
            real = [one for one in types if not isinstance(one, inspect.NoneType)]
            if len(real) > 1 and isinstance(data, int) and not INT64_MIN <= data <= INT64_MAX:
                # A quantity is read from its text, however many digits it has.
                return str(data) if any(isinstance(one, inspect.FloatType) for one in real) else data
            return _without_nulls(data, real[0]) if len(real) == 1 else data
        case _:
            return data


@lru_cache(maxsize=512)
def _described(cls: type) -> inspect.Type:
    """Return the structure of a type, cached because computing it takes milliseconds."""
    return inspect.type_info(cls)


@lru_cache(maxsize=512)
def _places(cls: type) -> dict[str, inspect.Type]:
    described = _described(cls)
    return {one.encode_name: one.type for one in described.fields} if isinstance(described, inspect.StructType) else {}


def _holds_null(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(_holds_null(one) for one in kind.types)
    return isinstance(kind, (inspect.NoneType, inspect.AnyType))


def _or_zero(value: Any, kind: inspect.Type) -> Any:
    if value is not None or _holds_null(kind):
        return _without_nulls(value, kind)
    match kind:
        case inspect.StrType():
            return ""
        case inspect.StructType() | inspect.DictType():
            return {}
        case inspect.ListType() | inspect.VarTupleType():
            return []
        case _:
            return 0


# -- errors -------------------------------------------------------------------------------------------------------------


def _explain(message: str, data: Any, kind: type) -> str:
    """Translate an error of ``msgspec`` into one that names the object, the field and the value."""
    place = _PLACE.search(message)
    path = place["path"] if place else "$"
    wide = _RANGE.match(message)
    if wide and (beyond := next((one for one in _candidates(data, path, "int") if _is_beyond(one[1], wide)), None)):
        fault = f"expected an integer of 64 bits, found {_shortened(str(beyond[1]))}"
        return ": ".join(part for part in (_name_of(data, kind), beyond[0], fault) if part)
    mismatch = _MISMATCH.match(message)
    found = next(_candidates(data, path, mismatch["found"]), None) if mismatch and not (place and place["key"]) else None
    if mismatch and found:
        where, value = found
        fault = _mismatch(mismatch["expected"].removesuffix(" | null"), mismatch["found"], value)
    else:
        where = path.removeprefix("$").removeprefix(".")
        fault = message[: place.start()] if place else message
        fault = f"a key is not text ({fault})" if place and place["key"] else fault
    return ": ".join(part for part in (_name_of(data, kind), where, fault) if part)


def _is_beyond(value: int, wide: re.Match[str]) -> bool:
    bound = int(wide["bound"])
    return value > bound if wide["sign"] == "<=" else value < bound


def _mismatch(expected: str, found: str, value: Any) -> str:
    if not isinstance(value, (bool, int, float, str)):
        return f"expected {expected}, found {found}"
    shown = _shortened(json.dumps(value, ensure_ascii=False))
    hint = "" if expected != "str" else f"; quote it: {json.dumps(shown)}"
    return f"expected {expected}, found {found} {shown}{hint}"


def _name_of(data: Any, kind: type) -> str:
    if not isinstance(data, Mapping):
        return kind.__name__
    metadata = data.get("metadata")
    fields = metadata if isinstance(metadata, Mapping) else {}
    names = [fields.get("namespace"), fields.get("name") or fields.get("generateName")]
    name = "/".join(part for part in names if isinstance(part, str) and part)
    own_kind = data.get("kind")
    return f"{own_kind if isinstance(own_kind, str) else kind.__name__} {name}".rstrip()


def _candidates(data: Any, path: str, found: str) -> Iterator[tuple[str, Any]]:
    """Yield the values that a path may mean, with their own paths; ``[...]`` in it matches any key of a map."""
    candidates: list[tuple[str, Any]] = [("", data)]
    for step in _STEP.finditer(path, 1):
        candidates = [next_one for one in candidates for next_one in _follow(*one, step)]
    return (one for one in candidates if _type_name(one[1]) == found)


def _follow(path: str, value: Any, step: re.Match[str]) -> Iterator[tuple[str, Any]]:
    if step["field"] is not None:
        if isinstance(value, Mapping) and step["field"] in value:
            yield f"{path}.{step['field']}".removeprefix("."), value[step["field"]]
    elif step["index"] is not None:
        index = int(step["index"])
        if isinstance(value, (list, tuple)) and index < len(value):
            yield f"{path}[{index}]", value[index]
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"{path}[{key}]", inner


_TYPE_NAMES: dict[type, str] = {
    bool: "bool", int: "int", float: "float", str: "str", list: "array", tuple: "array", dict: "object", type(None): "null",
}  # fmt: skip


def _type_name(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), "object")


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
