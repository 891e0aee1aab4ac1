"""Normalize documents to their kind, like decoding into Go structs and encoding again: types, unknown fields, nulls.

A value of the wrong type is rejected with the message of Go's decoder. Unknown fields are dropped and reported; nulls and
empty omitempty fields are dropped. Quantities and times are returned in canonical form.

Source  sigs.k8s.io/json; apimachinery, pkg/api/resource and pkg/apis/meta/v1 (time.go, micro_time.go)
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from moorage.api.quantity import QuantityError, canonical
from moorage.apiserver.schema.definition_shapes import SCHEMA
from moorage.apiserver.schema.field_types import Field, ListOf, MapOf, Scalar, Struct, Type
from moorage.apiserver.vocabulary.go_messages import go_word
from moorage.apiserver.vocabulary.records import Document

__all__ = ["MAX_UNKNOWN", "FieldTypeError", "Place", "conform", "path_of"]

#: Maximum number of unknown or duplicate fields that Go's decoder reports.
MAX_UNKNOWN: Final = 100


class FieldTypeError(Exception):
    """A value that its field cannot hold, with the message of Go's decoder.

    ``converted`` is the message for a value that was decoded before and fails in conversion.
    """

    def __init__(self, text: str, converted: str = "") -> None:
        super().__init__(text)
        self.converted = converted or text


class _WrongType(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, what: str, go: str) -> None:
        self.what = what
        self.go = go
        self.path: list[str] = []
        self.owner = ""


#: Position of a value: the steps that lead to it, the last one first. Paths are built only for error messages, as
#: building one for every value below a long key would take quadratic time.
Place: TypeAlias = tuple[Any, str | int] | None


def path_of(place: Place) -> str:
    """Return a position in readable form: ``spec.containers[0].image``."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")


def conform(shape: Struct, document: Any) -> tuple[Document, list[str]]:
    """Return a document normalized to its kind, and the paths of unknown fields.

    Raises  FieldTypeError for a value of the wrong type
    """
    unknown: list[str] = []
    try:
        return _struct(shape, document, None, unknown), unknown
    except _WrongType as wrong:
        where = ".".join([wrong.owner, *reversed(wrong.path)])
        place = f"Go struct field {where}" if wrong.path else "Go value"
        text = f"json: cannot unmarshal {wrong.what} into {place} of type {wrong.go}"
        raise FieldTypeError(text, _converted(wrong.what, wrong.go)) from None


def _converted(what: str, go: str) -> str:
    """Return the message of Go's unstructured converter for a value of the wrong type."""
    word, _, literal = what.partition(" ")
    kind = {"array": "slice", "object": "map", "number": "float64" if "." in literal else "int64"}.get(word, word)
    if go.startswith("map["):
        return f"cannot restore map from {kind}"
    if go.startswith("[]"):
        return f"cannot restore slice from {kind}"
    if "." in go:
        return f"cannot restore struct from: {kind}"
    if (kind == "int64" and go == "string") or (kind == "float64" and go in _INTEGERS):
        return f"cannot convert {kind} to {go}"
    return f"unrecognized type: {go}"


def _struct(shape: Struct, value: Any, place: Place, unknown: list[str]) -> Document:
    if not isinstance(value, dict):
        raise _WrongType(go_word(value), shape.full_go)
    fields = shape.fields
    kept: Document = {}
    for name, inner in value.items():
        field = fields.get(name)
        if field is None:
            if len(unknown) < MAX_UNKNOWN:
                unknown.append(path_of((place, name)))
        elif inner is not None:
            held = field.type
            try:
                if isinstance(held, Scalar):
                    fitted = _SCALARS[held.letter](inner, held.go)
                else:
                    fitted = _normalized(held, inner, (place, name), unknown)
            except _WrongType as wrong:
                wrong.path.append(f"{field.embedded}.{name}" if field.embedded else name)
                wrong.owner = wrong.owner or shape.go
                raise
            if not _is_omitted(field, fitted):
                kept[name] = fitted
    return kept


#: What Go writes for the time that is not set.
_ZERO_TIME: Final = "0001-01-01T00:00:00Z"


def _is_omitted(field: Field, value: Any) -> bool:
    if value is None or (value == _ZERO_TIME and not field.is_pointer):
        return True
    return field.omits_empty and not field.is_pointer and not value and not isinstance(field.type, Struct)


def _normalized(shape: Type, value: Any, place: Place, unknown: list[str]) -> Any:
    if isinstance(shape, Scalar):
        return _SCALARS[shape.letter](value, shape.go)
    if isinstance(shape, Struct):
        return _struct(shape, value, place, unknown)
    if isinstance(shape, ListOf):
        if not isinstance(value, list):
            raise _WrongType(go_word(value), shape.go)
        item = shape.item
        if isinstance(item, Scalar):
            read = _SCALARS[item.letter]
            return [read("" if one is None else one, item.go) for one in value]
        return [_normalized(item, {} if one is None else one, (place, i), unknown) for i, one in enumerate(value)]
    return _map(shape, value, place, unknown)


def _map(shape: MapOf, value: Any, place: Place, unknown: list[str]) -> Document:
    if not isinstance(value, dict):
        raise _WrongType(go_word(value), shape.go)
    item = shape.item
    if isinstance(item, Scalar):
        read, zero = _SCALARS[item.letter], "0" if item.letter == "Q" else ""
        return {key: read(zero if one is None else one, item.go) for key, one in value.items()}
    return {key: _normalized(item, {} if one is None else one, (place, key), unknown) for key, one in value.items()}


# -- scalars -----------------------------------------------------------------------------------------------------------


def _string(value: Any, go: str) -> str:
    if not isinstance(value, str):
        raise _WrongType(go_word(value), go)
    return value


_INTEGERS: Final[Mapping[str, int]] = {"int32": 2**31, "int64": 2**63, "int": 2**63}


def _integer(value: Any, go: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _WrongType(go_word(value), go)
    limit = _INTEGERS.get(go, 2**63)
    if isinstance(value, float) or not -limit <= value < limit:
        raise _WrongType(f"number {_literal(value)}", go)
    return value


def _literal(value: int | float) -> str:
    text = "beyond all bounds" if isinstance(value, int) and value.bit_length() > 4096 else json.dumps(value)
    return text if len(text) < 64 else f"{text[:60]}…"


def _boolean(value: Any, go: str) -> bool:
    if not isinstance(value, bool):
        raise _WrongType(go_word(value), go)
    return value


def _float(value: Any, go: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _WrongType(go_word(value), go)
    return value


def _bytes(value: Any, go: str) -> str:
    if not isinstance(value, str):
        raise _WrongType(go_word(value), go)
    try:
        base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        at = next((i for i, letter in enumerate(value) if not (letter.isascii() and (letter.isalnum() or letter in "+/=\r\n"))),
                  len(value) // 4 * 4)  # fmt: skip
        raise FieldTypeError(f"illegal base64 data at input byte {at}") from None
    return value


def _quantity(value: Any, _: str) -> str:
    if isinstance(value, (dict, list, bool)):
        raise FieldTypeError(_WRONG_QUANTITY)
    try:
        return canonical(value.strip() if isinstance(value, str) else value)
    except QuantityError as error:
        raise FieldTypeError(_WRONG_SUFFIX if str(error).endswith(_WRONG_SUFFIX) else _WRONG_QUANTITY) from None


_WRONG_SUFFIX: Final = "unable to parse quantity's suffix"
_WRONG_QUANTITY: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _int_or_string(value: Any, go: str) -> int | str:
    return value if isinstance(value, str) else _integer(value, "int32" if go == "intstr.IntOrString" else go)


_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
#: The same with exactly six fractional digits, and the length of the part before them.
_MICRO: Final = "2006-01-02T15:04:05.000000Z07:00"
_SECONDS: Final = len("2006-01-02T15:04:05")


def _moment(value: Any, go: str, layout: str = _LAYOUT) -> tuple[datetime.datetime, int]:
    if not isinstance(value, str):
        raise _WrongType(go_word(value), go)
    found = _TIME.fullmatch(value)
    try:
        if found is None:
            raise ValueError
        zone = "+00:00" if found[3] == "Z" else found[3]
        moment = datetime.datetime.fromisoformat(found[1] + zone).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        quoted = json.dumps(value[:64], ensure_ascii=False)
        raise FieldTypeError(f'parsing time {quoted} as "{layout}": cannot parse {quoted} as "2006"') from None
    return moment, int((found[2] or "0").ljust(9, "0")) // 1000


def _time(value: Any, go: str) -> str:
    return _moment(value, go)[0].isoformat().replace("+00:00", "Z")


def _micro_time(value: Any, go: str) -> str:
    moment, micros = _moment(value, go, _MICRO)
    fraction = value[_SECONDS:].partition("Z")[0].partition("+")[0].partition("-")[0]
    if len(fraction) != len(".000000"):
        rest, wanted = (value[_SECONDS + 7 :], "Z07:00") if len(fraction) > 7 else (value[_SECONDS:], ".000000")
        raise FieldTypeError(f'parsing time "{value}" as "{_MICRO}": cannot parse "{rest}" as "{wanted}"')
    return moment.isoformat().replace("+00:00", f".{micros:06d}Z")


def _strings(value: Any, go: str) -> list[str]:
    if not isinstance(value, list):
        raise _WrongType(go_word(value), go)
    return [_string(one, "string") for one in value]


def _anything(value: Any, _: str) -> Any:
    return value


def _schema_or_more(value: Any, _: str) -> Any:
    """Return a schema, or a list or bool in its place. Unknown fields are dropped and not reported, as by Go's decoder."""
    if isinstance(value, list):
        return [_schema_or_more(one, _) for one in value]
    return value if isinstance(value, (bool, str)) else _struct(SCHEMA, value, None, [])


_SCALARS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "s": _string, "i": _integer, "b": _boolean, "f": _float, "y": _bytes, "T": _time, "U": _micro_time, "Q": _quantity,
    "O": _int_or_string, "D": _string, "R": _anything, "F": _anything, "P": _schema_or_more, "X": _strings,
}  # fmt: skip
