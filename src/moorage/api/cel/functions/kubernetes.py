"""The Kubernetes extensions of CEL for devices: quantities, versions and ``includes``; and functions on optional values.

Source  apiserver/pkg/cel/library/quantity.go, semverlib.go; dynamic-resource-allocation/cel/compile.go, includesFunc;
        cel-go: cel/library.go, OptionalTypes
"""

from __future__ import annotations

from typing import Any, Final

from moorage.api.cel.bounds import EvalError, check_parsed
from moorage.api.cel.declarations import Cheap, Cost, Metered, converts, reading
from moorage.api.cel.effort import strain_operator, strain_search
from moorage.api.cel.frame import Frame
from moorage.api.cel.functions.quantities import Quantity
from moorage.api.cel.functions.semver import Semver, SemverError, parse_semver
from moorage.api.cel.values import NONE, Map, Optional, UInt, Value, are_equal, show
from moorage.api.quantity import QuantityError

#: The longest list that ``includes`` searches.
MAX_INCLUDED: Final = 48


def _quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise EvalError(str(error).rpartition(": ")[2].partition("; did you mean ")[0]) from None


def _as_integer(quantity: Quantity) -> int:
    found = quantity.as_int64
    if found is None:
        raise EvalError("cannot convert value to integer")
    return found


def _semver(text: str, normalize: bool = False) -> Semver:
    check_parsed(text)
    try:
        return parse_semver(text, normalize=normalize)
    except SemverError as error:
        raise EvalError(str(error)) from None


def _number(value: int) -> int:
    """Return an unsigned number of a version as CEL's int; the largest ones wrap around, as in Go."""
    return value - 2**64 if value >= 2**63 else value


def _includes(frame: Frame, within: Value, wanted: Value) -> bool:
    if not isinstance(within, (tuple, list)):
        strain_operator(frame, "_==_", within, wanted)
        return are_equal(within, wanted)
    strain_search(frame, [wanted], within)
    for at, value in enumerate(within):
        if at >= MAX_INCLUDED:
            raise EvalError(f"'includes' function cannot be applied to lists longer than {MAX_INCLUDED} values")
        if are_equal(value, wanted):
            return True
    return False


# -- optionals --------------------------------------------------------------------------------------------------------------


def _value(optional: Optional) -> Value:
    if not optional.has_value:
        raise EvalError("optional.none() dereference")
    return optional.held


def _of_non_zero(value: Value) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _is_zero(value: Value) -> bool:
    if isinstance(value, (str, bytes, tuple, list, Map)):
        return len(value) == 0
    return value is None or (isinstance(value, (bool, int, UInt, float)) and value == 0)


def _unwrapped(values: list[Value]) -> list[Value]:
    for value in values:
        if not isinstance(value, Optional):
            raise EvalError(f"value {show(value)} is not optional")
    return [value.held for value in values if value.has_value]


FUNCTIONS: Final[list[tuple[str, str, Any, Cost | None]]] = [
    ("quantity", "string -> quantity", _quantity, reading),
    ("isQuantity", "string -> bool", converts(_quantity), reading),
    ("sign", "quantity -> int", lambda q: q.sign, None),
    ("asApproximateFloat", "quantity . -> double", lambda q: q.as_float, None),
    ("asInteger", "quantity . -> int", _as_integer, None),
    ("isInteger", "quantity . -> bool", lambda q: q.as_int64 is not None, None),
    ("add", "quantity . quantity -> quantity", lambda q, r: q.add(r), None),
    ("add", "quantity . int -> quantity", lambda q, n: q.add(Quantity(n)), None),
    ("sub", "quantity . quantity -> quantity", lambda q, r: q.add(r, -1), None),
    ("sub", "quantity . int -> quantity", lambda q, n: q.add(Quantity(n), -1), None),
    ("semver", "string -> semver", _semver, reading),
    ("semver", "string, bool -> semver", _semver, reading),
    ("isSemver", "string -> bool", converts(_semver), reading),
    ("isSemver", "string, bool -> bool", converts(_semver), reading),
    ("major", "semver . -> int", lambda v: _number(v.major), None),
    ("minor", "semver . -> int", lambda v: _number(v.minor), None),
    ("patch", "semver . -> int", lambda v: _number(v.patch), None),
    *(("isGreaterThan", f"{t} . {t} -> bool", lambda a, b: a.compare(b) > 0, None) for t in ("quantity", "semver")),
    *(("isLessThan", f"{t} . {t} -> bool", lambda a, b: a.compare(b) < 0, None) for t in ("quantity", "semver")),
    *(("compareTo", f"{t} . {t} -> int", lambda a, b: a.compare(b), None) for t in ("quantity", "semver")),
    ("includes", "dyn . dyn -> bool", Metered(_includes), None),
    ("optional.of", "V -> optional<V>", Cheap(Optional), None),
    ("optional.ofNonZeroValue", "V -> optional<V>", Cheap(_of_non_zero), None),
    ("optional.none", "-> optional<V>", lambda: NONE, None),
    ("optional.unwrap", "list<optional<V>> -> list<V>", _unwrapped, None),
    ("unwrapOpt", "list<optional<V>> . -> list<V>", _unwrapped, None),
    ("value", "optional<V> . -> V", Cheap(_value), None),
    ("hasValue", "optional<V> . -> bool", Cheap(lambda o: o.has_value), None),
    ("or", "optional<V> . optional<V> -> optional<V>", None, None),
    ("orValue", "optional<V> . V -> V", None, None),
    ("first", "list<V> . -> optional<V>", Cheap(lambda values: Optional(values[0]) if values else NONE), None),
    ("last", "list<V> . -> optional<V>", Cheap(lambda values: Optional(values[-1]) if values else NONE), None),
]
