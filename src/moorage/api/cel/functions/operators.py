"""Arithmetic, comparison and membership, with CEL's checked 64-bit integers.

Operands of unsupported types are an error at run time, because the checker accepts dynamic operands.

Source  cel-go: common/types/int.go, uint.go, double.go, overflow.go; common/stdlib/standard.go
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from moorage.api.cel.bounds import EvalError, check_items, check_text
from moorage.api.cel.functions.times import Duration, Instant, Timestamp
from moorage.api.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    Growing,
    Map,
    UInt,
    Value,
    are_equal,
    compare,
    equal,
    no_such_overload,
)


def checked_int(value: int) -> int:
    """Return an int, if 64 bits hold it."""
    if not INT_MIN <= value <= INT_MAX:
        raise EvalError("integer overflow")
    return value


def checked_uint(value: int) -> UInt:
    """Return a uint, if 64 bits hold it and it is not negative."""
    if not 0 <= value <= UINT_MAX:
        raise EvalError("unsigned integer overflow")
    return UInt(value)


def _unsupported(operator: str, left: Value) -> EvalError:
    """Return the error for operands that an operator does not support; cel-go words it differently for strings."""
    return no_such_overload() if isinstance(left, str) else EvalError(f"no such overload: {operator}")


def _arithmetic(
    operator: str, on_ints: Callable[[int, int], int], on_doubles: Callable[[float, float], float] | None
) -> Callable[[Value, Value], Value]:
    def run(left: Value, right: Value) -> Value:
        kind = type(left)
        if kind is int or kind is UInt:
            if type(right) is not kind:
                raise no_such_overload()
            found = on_ints(int(left), int(right))
            return checked_int(found) if kind is int else checked_uint(found)
        if kind is float and on_doubles is not None:
            if type(right) is not float:
                raise no_such_overload()
            return on_doubles(left, right)
        raise _unsupported(operator, left)

    return run


def _int_divided(left: int, right: int) -> int:
    if right == 0:
        raise EvalError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _int_modulo(left: int, right: int) -> int:
    if right == 0:
        raise EvalError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise EvalError("integer overflow")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _double_divided(left: float, right: float) -> float:
    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    return left / right


_add_numbers = _arithmetic("_+_", lambda a, b: a + b, lambda a, b: a + b)


def _add(left: Value, right: Value) -> Value:
    if isinstance(left, (str, bytes)):
        if type(left) is not type(right):
            raise no_such_overload()
        check_text(len(left) + len(right))
        joined: Value = left + right  # type: ignore[operator]  # both are of one type
        return joined
    if isinstance(left, (tuple, list)):
        if not isinstance(right, (tuple, list)):
            raise no_such_overload()
        check_items(len(left) + len(right))
        if isinstance(left, Growing):
            left.extend(right)
            return left
        return [*left, *right]
    if isinstance(left, Instant):
        return _add_moments(left, right)
    return _add_numbers(left, right)


def _add_moments(left: Instant, right: Value) -> Value:
    if isinstance(left, Duration) and isinstance(right, Duration):
        return Duration(left.nanos + right.nanos)
    if isinstance(right, Instant) and {type(left), type(right)} == {Duration, Timestamp}:
        return Timestamp(left.nanos + right.nanos)
    raise no_such_overload()


_subtract_numbers = _arithmetic("_-_", lambda a, b: a - b, lambda a, b: a - b)


def _subtract(left: Value, right: Value) -> Value:
    if not isinstance(left, Instant):
        return _subtract_numbers(left, right)
    if isinstance(right, Duration):
        return type(left)(left.nanos - right.nanos)
    if isinstance(left, Timestamp) and isinstance(right, Timestamp):
        return Duration(left.nanos - right.nanos)
    raise no_such_overload()


def _ordered(operator: str, holds: Callable[[int], bool]) -> Callable[[Value, Value], Value]:
    def run(left: Value, right: Value) -> Value:
        if not isinstance(left, (int, float, str, bytes, Instant)):
            raise EvalError(f"no such overload: {operator}")
        return holds(compare(left, right))

    return run


def contains(value: Value, within: Value) -> bool:
    """Return whether a list has an element equal to ``value``, or a map has this key."""
    if isinstance(within, Map):
        return value in within
    if not isinstance(within, (tuple, list)):
        raise no_such_overload()
    return any(are_equal(value, element) for element in within)


def _differ(left: Value, right: Value) -> bool:
    """Return whether two values differ. Values that cannot be compared count as different."""
    return not are_equal(left, right)


def negate(value: Value) -> Value:
    """Return ``-value``, for an int or a double."""
    if type(value) is int:
        return checked_int(-value)
    if type(value) is float:
        return -value
    if isinstance(value, Duration):
        return Duration(-value.nanos)
    if isinstance(value, bool):
        raise no_such_overload()
    raise _unsupported("-_", value)


def negate_bool(value: Value) -> bool:
    """Return ``!value``."""
    if not isinstance(value, bool):
        raise no_such_overload()
    return not value


BINARY: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "_+_": _add,
    "_-_": _subtract,
    "_*_": _arithmetic("_*_", lambda a, b: a * b, lambda a, b: a * b),
    "_/_": _arithmetic("_/_", _int_divided, _double_divided),
    "_%_": _arithmetic("_%_", _int_modulo, None),
    "_<_": _ordered("_<_", lambda order: order < 0),
    "_<=_": _ordered("_<=_", lambda order: order <= 0),
    "_>_": _ordered("_>_", lambda order: order > 0),
    "_>=_": _ordered("_>=_", lambda order: order >= 0),
    "_==_": equal,
    "_!=_": _differ,
    "@in": contains,
}

_NUMBERS: Final = ("int", "uint", "double")


def signatures() -> list[tuple[str, str, None, None]]:
    """Return the signatures of operators, which only the checker needs: the planner runs operators without overloads."""
    found: list[tuple[str, str]] = [
        ("_?_:_", "bool, A, A -> A"),
        ("_&&_", "bool, bool -> bool"),
        ("_||_", "bool, bool -> bool"),
        ("!_", "bool -> bool"),
        ("@not_strictly_false", "bool -> bool"),
        ("_==_", "A, A -> bool"),
        ("_!=_", "A, A -> bool"),
        ("-_", "double -> double"),
        ("-_", "int -> int"),
        ("_[_]", "list<A>, int -> A"),
        ("_[_]", "map<A, B>, A -> B"),
        ("_[_]", "optional<list<V>>, int -> optional<V>"),
        ("_[_]", "optional<map<K, V>>, K -> optional<V>"),
        ("_[?_]", "list<V>, int -> optional<V>"),
        ("_[?_]", "optional<list<V>>, int -> optional<V>"),
        ("_[?_]", "map<K, V>, K -> optional<V>"),
        ("_[?_]", "optional<map<K, V>>, K -> optional<V>"),
        ("@in", "A, list<A> -> bool"),
        ("@in", "A, map<A, B> -> bool"),
        ("-_", "duration -> duration"),
        ("_+_", "duration, duration -> duration"),
        ("_+_", "duration, timestamp -> timestamp"),
        ("_+_", "timestamp, duration -> timestamp"),
        ("_-_", "duration, duration -> duration"),
        ("_-_", "timestamp, duration -> timestamp"),
        ("_-_", "timestamp, timestamp -> duration"),
        ("_+_", "bytes, bytes -> bytes"),
        ("_+_", "list<A>, list<A> -> list<A>"),
        ("_+_", "string, string -> string"),
    ]
    found += [(op, f"{t}, {t} -> {t}") for op in ("_+_", "_-_", "_*_", "_/_") for t in _NUMBERS]
    found += [("_%_", f"{t}, {t} -> {t}") for t in ("int", "uint")]
    for op in ("_<_", "_<=_", "_>_", "_>=_"):
        found += [(op, f"{t}, {u} -> bool") for t in _NUMBERS for u in _NUMBERS]
        found += [(op, f"{t}, {t} -> bool") for t in ("bool", "string", "bytes", "timestamp", "duration")]
    return [(name, signature, None, None) for name, signature in found]
