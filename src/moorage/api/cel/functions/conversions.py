"""Conversions between types: ``int("7")``, ``string(1.5)``, ``type(x)``, ``dyn(x)``; and ``size``.

Source  cel-go: common/types, the ConvertToType methods
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any, Final

from moorage.api.cel.bounds import EvalError, check_parsed
from moorage.api.cel.declarations import Cheap, Cost, reading
from moorage.api.cel.functions import times
from moorage.api.cel.functions.operators import checked_int, checked_uint
from moorage.api.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, NULL, QUANTITY, SEMVER, STRING, TIMESTAMP, UINT
from moorage.api.cel.values import (
    INT_MAX,
    INT_MIN,
    LIST_TYPE,
    MAP_TYPE,
    OPTIONAL_TYPE,
    TYPE_TYPE,
    TYPES,
    UINT_MAX,
    TypeValue,
    UInt,
    Value,
)
from moorage.api.quantity import parse_bool

#: Functions that are evaluated at compile time if the operand is constant.
CONVERSIONS: Final = frozenset(["bool", "bytes", "double", "dyn", "int", "string", "type", "uint"])

_INT = re.compile(r"[-+]?[0-9]+")
_UINT = re.compile(r"[0-9]+")
_DOUBLE = re.compile(r"[-+]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:e[-+]?[0-9]++)?|inf(?:inity)?|nan)", re.IGNORECASE)


def _failed(source: str, to: str) -> EvalError:
    return EvalError(f"type conversion error from '{source}' to '{to}'")


def _to_int(value: Value) -> int:
    if isinstance(value, str):
        if not _INT.fullmatch(value) or len(value) > 20 or not INT_MIN <= int(value) <= INT_MAX:
            raise _failed("string", "int")
        return int(value)
    if isinstance(value, float):
        if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
            raise EvalError("integer overflow")
        return int(value)
    return checked_int(int(value))


def _to_uint(value: Value) -> UInt:
    if isinstance(value, str):
        if not _UINT.fullmatch(value) or len(value) > 20 or int(value) > UINT_MAX:
            raise _failed("string", "uint")
        return UInt(int(value))
    if isinstance(value, float):
        if math.isnan(value) or not 0 <= value < 2.0**64:
            raise EvalError("unsigned integer overflow")
        return UInt(int(value))
    return checked_uint(int(value))


def _to_double(value: Value) -> float:
    if isinstance(value, str):
        check_parsed(value)
        if not _DOUBLE.fullmatch(value):
            raise _failed("string", "double")
        found = float(value)
        if math.isinf(found) and "inf" not in value.lower():
            raise _failed("string", "double")
        return found
    return float(value)


def _to_bool(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    try:
        return parse_bool(value)
    except ValueError:
        raise _failed("string", "bool") from None


def _to_bytes(value: Value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def to_string(value: Value) -> str:
    """Return a value as ``string()`` converts it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise EvalError("invalid UTF-8 in bytes, cannot convert to string") from None
    return _double_text(value) if isinstance(value, float) else str(value)


def _double_text(value: float) -> str:
    """Return a double as Go's ``%g`` prints it: the shortest digits, with an exponent below 1e-4 and from 1e6 on."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    shortest = Decimal(repr(value)).normalize()
    digits, power = shortest.as_tuple().digits, shortest.adjusted()
    if -4 <= power < 6:
        return f"{value:.{max(0, len(digits) - 1 - power)}f}"
    mantissa = "".join(map(str, digits))
    sign, point = "-" if value < 0 else "", "." if len(digits) > 1 else ""
    return f"{sign}{mantissa[0]}{point}{mantissa[1:]}e{'-' if power < 0 else '+'}{abs(power):02d}"


#: Identifiers that denote types.
TYPE_NAMES: Final = {
    "bool": BOOL, "bytes": BYTES, "double": DOUBLE, "int": INT, "list": LIST_TYPE, "map": MAP_TYPE, "null_type": NULL,
    "string": STRING, "type": TYPE_TYPE, "uint": UINT, "optional_type": OPTIONAL_TYPE, "kubernetes.Quantity": QUANTITY,
    "kubernetes.Semver": SEMVER, times.TIMESTAMP_NAME: TIMESTAMP, times.DURATION_NAME: DURATION,
}  # fmt: skip


def _type_value(value: Value) -> TypeValue:
    return TypeValue(TYPES[type(value)])


def _same(value: Value) -> Value:
    return value


FUNCTIONS: Final[list[tuple[str, str, Any, Cost | None]]] = [
    ("timestamp", "timestamp -> timestamp", _same, None),
    ("timestamp", "string -> timestamp", times.timestamp_of, None),
    ("timestamp", "int -> timestamp", lambda seconds: times.Timestamp(seconds * 10**9), None),
    ("duration", "duration -> duration", _same, None),
    ("duration", "string -> duration", times.duration_of, None),
    ("duration", "int -> duration", times.Duration, None),
    ("int", "timestamp -> int", lambda value: value.nanos // 10**9, None),
    ("int", "duration -> int", lambda value: value.nanos, None),
    ("string", "timestamp -> string", str, None),
    ("string", "duration -> string", str, None),
    *times.FIELDS,
    ("type", "A -> type<A>", Cheap(_type_value), None),
    ("dyn", "A -> dyn", Cheap(_same), None),
    ("bool", "bool -> bool", _to_bool, None),
    ("bool", "string -> bool", _to_bool, None),
    ("bytes", "bytes -> bytes", _to_bytes, None),
    ("bytes", "string -> bytes", _to_bytes, reading),
    *(("double", f"{source} -> double", _to_double, None) for source in ("double", "int", "string", "uint")),
    *(("int", f"{source} -> int", _to_int, None) for source in ("int", "double", "string", "uint")),
    *(("uint", f"{source} -> uint", _to_uint, None) for source in ("uint", "double", "int", "string")),
    *(("string", f"{source} -> string", to_string, None) for source in ("string", "bool")),
    ("string", "bytes -> string", to_string, reading),
    *(("string", f"{source} -> string", to_string, None) for source in ("double", "int", "uint")),
    *(("size", f"{source} -> int", Cheap(len), None) for source in ("bytes", "list<A>", "map<A, B>", "string")),
    *(("size", f"{source} . -> int", Cheap(len), None) for source in ("bytes", "list<A>", "map<A, B>", "string")),
]
