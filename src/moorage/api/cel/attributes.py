"""Paths into values: ``a.b``, ``a["b"]``, ``a[0]``, ``a.?b``, ``has(a.b)``.

Once a step of a path is optional, the result is optional: a missing part gives "no value" instead of an error.
Source  cel-go: interpreter/attributes.go
"""

from __future__ import annotations

from typing import NamedTuple

from moorage.api.cel.bounds import EvalError
from moorage.api.cel.frame import Frame, Run
from moorage.api.cel.values import NONE, Map, Optional, Value, show, type_name


class Qualifier(NamedTuple):
    """One step of a path: a constant ``key``, or ``run`` to compute the key. ``optional``: the key may be missing."""

    key: Value
    run: Run | None = None
    optional: bool = False


def attribute(root: Run, qualifiers: tuple[Qualifier, ...], *, test: bool, cost: int) -> Run:
    """Return a function that returns the value at the end of a path or, with ``test``, whether the last step exists."""

    def run(frame: Frame) -> Value:
        value = root(frame)
        optional = isinstance(value, Optional)
        if optional:
            if not value.has_value:
                frame.spend(cost)
                return False if test else value
            value = value.held
        last = len(qualifiers) - 1
        for at, qualifier in enumerate(qualifiers):
            key = qualifier.key if qualifier.run is None else qualifier.run(frame)
            testing = test and at == last
            optional = optional or qualifier.optional
            found, present = _step(value, key, lenient=optional or testing)
            if present or testing:
                frame.spend(1)
            if testing:
                return present
            if not present:
                frame.spend(cost)
                return NONE
            value = found
        frame.spend(cost)
        return Optional(value) if optional else value

    return run


def _step(value: Value, key: Value, *, lenient: bool) -> tuple[Value, bool]:
    """Return the value of a key, and whether the key exists.

    Raises  EvalError if the key is missing and ``lenient`` is false, or if an index is invalid
    """
    if isinstance(value, Map):
        found, present = value.find(key)
        if not present and not lenient:
            raise EvalError(f"no such key: {show(key)}")
        return found, present
    if isinstance(value, (tuple, list)):
        index = _index(key)
        if 0 <= index < len(value):
            return value[index], True
        if not lenient:
            raise EvalError(f"index out of bounds: {show(key)}")
        return None, False
    if not lenient:
        raise EvalError(f"no such key: {show(key)}")
    return None, False


def _index(key: Value) -> int:
    """Return a whole number (int, uint or double) as an index."""
    if isinstance(key, int) and not isinstance(key, bool):
        return int(key)
    if isinstance(key, float) and key.is_integer():
        return int(key)
    raise EvalError(f"unsupported index type '{type_name(key)}' in list")
