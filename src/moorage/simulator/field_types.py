"""Values that a field cannot hold: ``env.value: 3``, ``args: [1, true]``, ``runAsUser: "1000"``.

kube-apiserver refuses such an object, whatever field it is and whatever reads it. The fields and their types are those of its
schemas, for every built-in kind.

Source  sigs.k8s.io/json; apimachinery, pkg/api/resource, pkg/util/intstr, pkg/apis/meta/v1
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from moorage.api.quantity import QuantityError, parse
from moorage.api.schema.field_types import ListOf, MapOf, Scalar, Struct, Type
from moorage.api.schema.normalization import scalar_fault

_Path = tuple[str | int, ...]
#: Letters of scalars → what they hold, in the words of other messages about types.
_HELD: Final = {"s": "str", "D": "str", "y": "str", "b": "bool", "i": "int", "f": "float", "X": "array"}
_FITS: Final[dict[str, tuple[type, ...]]] = {
    "s": (str,), "D": (str,), "y": (str,), "b": (bool,), "i": (int,), "f": (int, float), "X": (list,),
}  # fmt: skip
_NAMES: Final[dict[type, str]] = {
    bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object", type(None): "null",
}  # fmt: skip
_MOST_SHOWN: Final = 60


class MapKey(str):
    """A step of a path that is the key of a map: ``[name]`` in messages."""

    __slots__ = ()


class WrongValue(NamedTuple):
    """The path of a value, and why its field cannot hold it."""

    path: _Path
    why: str


def wrong_values(shape: Type, value: Any, path: _Path = ()) -> Iterator[WrongValue]:
    """Yield the values of a document that their fields cannot hold. Null stands for a field that is left out."""
    if value is None:
        return
    if isinstance(shape, Scalar):
        why = _scalar(shape, value)
        if why:
            yield WrongValue(path, why)
    elif isinstance(shape, ListOf):
        if not isinstance(value, list):
            yield WrongValue(path, _expected("array", value))
            return
        for i, one in enumerate(value):
            yield from wrong_values(shape.item, one, (*path, i))
    elif not isinstance(value, dict):
        yield WrongValue(path, _expected("object", value))
    elif isinstance(shape, MapOf):
        for name, inner in value.items():
            yield from wrong_values(shape.item, inner, (*path, MapKey(name)))
    else:
        yield from _in_struct(shape, value, path)


def _in_struct(shape: Struct, value: dict[str, Any], path: _Path) -> Iterator[WrongValue]:
    fields = shape.fields
    for name, inner in value.items():
        field = fields.get(name)
        if field is None or inner is None:
            continue
        held = field.type
        if isinstance(held, Scalar) and type(inner) is str and held.letter == "s":
            continue  # as most fields are
        yield from wrong_values(held, inner, (*path, name))


def _scalar(shape: Scalar, value: Any) -> str:
    held = _HELD.get(shape.letter)
    if held is not None and type(value) not in _FITS[shape.letter]:
        return _expected(held, value)
    if shape.letter == "Q":
        try:
            parse(value)
        except QuantityError as error:
            return str(error)
        return ""
    return scalar_fault(shape, value)


def _expected(held: str, value: Any) -> str:
    found = _NAMES.get(type(value), "object")
    if isinstance(value, dict | list):
        return f"expected {held}, found {found}"
    text = json.dumps(value, ensure_ascii=False)
    shown = text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
    hint = f"; quote it: {json.dumps(shown)}" if held == "str" else ""
    return f"expected {held}, found {found} {shown}{hint}"
