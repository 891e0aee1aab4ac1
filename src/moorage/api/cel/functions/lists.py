"""Functions on lists and maps: sorting, sums, sets, slices.

Source  apiserver/pkg/cel/library/lists.go, cost.go; cel-go: ext/lists.go, ext/sets.go, ext/comprehensions.go
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import chain, pairwise
from typing import Any, Final

from moorage.api.cel.bounds import MAX_WORK, EvalError, check_items, check_work
from moorage.api.cel.declarations import Cost, Metered
from moorage.api.cel.effort import strain_search
from moorage.api.cel.frame import Frame
from moorage.api.cel.functions.operators import BINARY, contains
from moorage.api.cel.functions.times import Duration
from moorage.api.cel.values import Map, UInt, Value, are_equal, compare, no_such_overload

_COMPARABLE: Final = ("int", "uint", "double", "bool", "string", "bytes", "duration", "timestamp")
_ZERO: Final[dict[str, Value]] = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": Duration(0)}
_add = BINARY["_+_"]


def _is_sorted(values: list[Value]) -> bool:
    return all(compare(one, other) <= 0 for one, other in pairwise(values))


def _summed(zero: Value) -> Callable[[list[Value]], Value]:
    def run(values: list[Value]) -> Value:
        total = zero
        for value in values:
            total = _add(total, value)
        return total

    return run


def _extreme(name: str, worse: int) -> Callable[[list[Value]], Value]:
    """Return ``min`` or ``max``: an element replaces the best so far if ``compare(best, element) == worse``."""

    def run(values: list[Value]) -> Value:
        if not values:
            raise EvalError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            if compare(best, value) == worse:
                best = value
        return best

    return run


def _position(values: list[Value], wanted: Value, order: Any) -> int:
    return next((at for at in order if are_equal(values[at], wanted)), -1)


def _index_of(frame: Frame, values: list[Value], wanted: Value) -> int:
    strain_search(frame, [wanted], values)
    return _position(values, wanted, range(len(values)))


def _last_index_of(frame: Frame, values: list[Value], wanted: Value) -> int:
    strain_search(frame, [wanted], values)
    return _position(values, wanted, range(len(values) - 1, -1, -1))


def _slice(values: list[Value], start: int, end: int) -> list[Value]:
    if start < 0 or end < 0:
        raise EvalError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvalError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(values) < end:
        raise EvalError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return list(values[start:end])


def _flatten(frame: Frame, values: list[Value], depth: int = 1) -> list[Value]:
    if depth < 0:
        raise EvalError("level must be non-negative")
    found: list[Value] = []
    parts, waiting = 0, [(iter(values), depth)]
    while waiting:
        inside, left = waiting[-1]
        for value in inside:
            parts += 1
            check_items(parts)
            frame.expect(parts)
            if isinstance(value, (tuple, list)) and left > 0:
                waiting.append((iter(value), left - 1))
                break
            found.append(value)
        else:
            waiting.pop()
    return found


def _range(frame: Frame, count: int) -> list[Value]:
    frame.expect(count)
    check_items(count)
    return list(range(count))


def _distinct(frame: Frame, values: list[Value]) -> list[Value]:
    frame.expect(len(values) ** 2)
    if _are_keys(values):
        return list(dict.fromkeys(values))
    check_work(len(values) ** 2)
    strain_search(frame, values, values)
    found: list[Value] = []
    for value in values:
        if not contains(value, found):
            found.append(value)
    return found


def _are_keys(values: list[Value]) -> bool:
    """Return whether all values are texts or all are ints, which can be looked up."""
    kinds = set(map(type, values))
    return kinds <= {str} or kinds <= {int}


def _members(values: list[Value], wanted: list[Value]) -> Callable[[Value], bool]:
    """Return a function that says whether one of ``wanted`` is in ``values``."""
    if _are_keys([*values, *wanted]):
        return frozenset(values).__contains__
    check_work(len(values) * len(wanted))
    return lambda value: contains(value, values)


def _sorted_by(frame: Frame, values: list[Value], keys: list[Value]) -> list[Value]:
    if len(values) != len(keys):
        raise EvalError(f"a list of {len(values)} elements cannot be sorted by {len(keys)} keys")
    if not values:
        return values
    frame.expect(len(values) ** 2)
    if len({type(key) for key in keys}) > 1:
        raise EvalError("list elements must have the same type")

    def by_key(one: int, other: int) -> int:
        return compare(keys[one], keys[other])

    return [values[at] for at in sorted(range(len(keys)), key=cmp_to_key(by_key))]


def _sets_contains(frame: Frame, values: list[Value], wanted: list[Value]) -> bool:
    _expect_crossing(frame, values, wanted)
    return all(map(_members(values, wanted), wanted))


def _sets_equivalent(frame: Frame, one: list[Value], other: list[Value]) -> bool:
    return _sets_contains(frame, one, other) and _sets_contains(frame, other, one)


def _sets_intersects(frame: Frame, one: list[Value], other: list[Value]) -> bool:
    _expect_crossing(frame, one, other)
    return any(map(_members(other, one), one))


def _expect_crossing(frame: Frame, one: list[Value], other: list[Value]) -> None:
    """Check that the limit allows comparing each element of one list with each of the other.

    Raises  CostLimitError
    """
    frame.expect(len(one) * len(other))
    strain_search(frame, one, other)


def _merged(into: Map, entries: Value) -> Map:
    if not isinstance(entries, Map):
        raise no_such_overload()
    return into.with_entries(entries)


_TEXTS: Final = (str, bytes)
_HOLDERS: Final = (tuple, list, Map)

# -- costs ----------------------------------------------------------------------------------------------------------------


def _walked(args: list[Value], result: Value) -> int:
    """Return the cost of walking through a list: one for each number and a tenth for each character, at any depth."""
    total, parts, waiting = 0, 0, [args[0]]
    while waiting:
        values = waiting.pop()
        parts += len(values) * (2 if isinstance(values, Map) else 1)
        if parts > MAX_WORK:
            check_work(parts)
        for value in chain.from_iterable(values.items()) if isinstance(values, Map) else values:
            if isinstance(value, _TEXTS):
                total += int(len(value) * 0.1)
            elif isinstance(value, _HOLDERS):
                waiting.append(value)
            else:
                total += 1
    return total


def _output(args: list[Value], result: Value) -> int:
    return 11 + len(result)


def _crossed(args: list[Value], result: Value) -> int:
    return 1 + len(args[0]) * len(args[1])


def _crossed_twice(args: list[Value], result: Value) -> int:
    return 2 * _crossed(args, result) - 1


def _pairwise(args: list[Value], result: Value) -> int:
    return 11 + len(result) + len(args[0]) ** 2


FUNCTIONS: Final[list[tuple[str, str, Any, Cost | None]]] = [
    *(("isSorted", f"list<{t}> . -> bool", _is_sorted, _walked) for t in _COMPARABLE),
    *(("sum", f"list<{t}> . -> {t}", _summed(_ZERO[t]), _walked) for t in _ZERO),
    *(("max", f"list<{t}> . -> {t}", _extreme("max", -1), _walked) for t in _COMPARABLE),
    *(("min", f"list<{t}> . -> {t}", _extreme("min", 1), _walked) for t in _COMPARABLE),
    ("indexOf", "list<A> . A -> int", Metered(_index_of), _walked),
    ("lastIndexOf", "list<A> . A -> int", Metered(_last_index_of), _walked),
    ("slice", "list<T> . int, int -> list<T>", _slice, _output),
    ("flatten", "list<list<T>> . -> list<T>", Metered(_flatten), _output),
    ("flatten", "list<dyn> . int -> list<dyn>", Metered(_flatten), _output),
    ("lists.range", "int -> list<int>", Metered(_range), _output),
    ("reverse", "list<T> . -> list<T>", lambda values: list(values[::-1]), _output),
    ("distinct", "list<T> . -> list<T>", Metered(_distinct), _pairwise),
    *(
        ("sort", f"list<{t}> . -> list<{t}>", Metered(lambda frame, values: _sorted_by(frame, values, values)), _pairwise)
        for t in _COMPARABLE
    ),
    *(("@sortByAssociatedKeys", f"list<T> . list<{t}> -> list<T>", Metered(_sorted_by), _pairwise) for t in _COMPARABLE),
    ("sets.contains", "list<T>, list<T> -> bool", Metered(_sets_contains), _crossed),
    ("sets.equivalent", "list<T>, list<T> -> bool", Metered(_sets_equivalent), _crossed_twice),
    ("sets.intersects", "list<T>, list<T> -> bool", Metered(_sets_intersects), _crossed),
    ("cel.@mapInsert", "map<K, V>, K, V -> map<K, V>", lambda into, key, value: into.with_entries(Map([(key, value)])), None),
    ("cel.@mapInsert", "map<K, V>, map<K, V> -> map<K, V>", _merged, None),
]
