"""Declarations of functions, with the types of their operands.

A function has overloads. The checker finds those that fit. If the types are known, exactly one fits and runs. If an operand is
dynamic, the program chooses among the overloads that may fit by the values of the operands.

Source  cel-go: common/decls/decls.go
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from moorage.api.cel.bounds import EvalError, TooLargeError
from moorage.api.cel.types import Type, typed
from moorage.api.cel.values import TYPES, Value

#: The cost of a call, given its operands and its result.
Cost = Callable[[list[Value], Value], int]


class Metered(NamedTuple):
    """A function that gets the frame as first operand, because its work may exceed its cost or must be paid in advance."""

    run: Callable[..., Value]


class Cheap(NamedTuple):
    """A function whose work does not depend on the size of its operands, so that these are not checked."""

    run: Callable[..., Value]


class Overload(NamedTuple):
    """``run`` is None for operators, which the planner implements. ``cost`` None means 1. ``metered``: see ``Metered``.

    ``cheap``: the work is the same for operands of any size, see ``Cheap``.
    """

    name: str
    args: tuple[Type, ...]
    result: Type
    member: bool
    run: Callable[..., Value] | None = None
    cost: Cost | None = None
    metered: bool = False
    cheap: bool = False


@dataclass(slots=True)
class Function:
    name: str
    overloads: list[Overload] = field(default_factory=list)


Functions = Mapping[str, Function]


def reading(args: list[Value], result: Value) -> int:
    """Return the cost of a function that reads its first operand: a tenth of its characters."""
    return math.ceil(len(args[0]) * 0.1)


def converts(convert: Callable[..., Value]) -> Callable[..., bool]:
    """Return a function that says whether operands can be converted; one that is too large is an error."""

    def holds(*args: Value) -> bool:
        try:
            convert(*args)
        except TooLargeError:
            raise
        except EvalError:
            return False
        return True

    return holds


def functions_of(*libraries: Iterable[tuple[str, str, Any, Cost | None]]) -> dict[str, Function]:
    """Collect functions from libraries of ``(name, signature, run, cost)``.

    A signature reads ``string, int -> string``; a method has its receiver first, before a dot:
    ``string . int -> string``.
    """
    found: dict[str, Function] = {}
    for library in libraries:
        for name, signature, run, cost in library:
            function = found.setdefault(name, Function(name))
            function.overloads.append(_overload(name, signature, run, cost))
    return found


def _overload(name: str, signature: str, run: Any, cost: Cost | None) -> Overload:
    given, _, result = signature.partition("->")
    target, dot, rest = given.partition(" .")
    texts = [*([target] if dot else []), *_split(rest if dot else given)]
    metered, cheap = isinstance(run, Metered), isinstance(run, Cheap)
    run = run.run if metered or cheap else run
    return Overload(f"{name}: {signature}", tuple(map(typed, texts)), typed(result), bool(dot), run, cost, metered, cheap)


def _split(text: str) -> list[str]:
    """Split at the commas outside angle brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part for part in parts if part.strip()]


def accepts(wanted: Type, value: Value) -> bool:
    """Return whether an operand has the type that an overload requires. As in cel-go, only the first element is checked."""
    kind = wanted.kind
    if kind in {"dyn", "any", "param", "error"}:
        return True
    found = TYPES.get(type(value))
    if found is None or found.kind != kind or found.name != wanted.name:
        return False
    if wanted.kind == "list" and value:
        return accepts(wanted.params[0], value[0])
    if wanted.kind == "map" and len(value):
        key, held = next(value.items())
        return accepts(wanted.params[0], key) and accepts(wanted.params[1], held)
    return True
