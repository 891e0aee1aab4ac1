"""Charges for work that CEL's cost does not include: comparing nested lists, copying long ones, parsing invalid operands.

CEL charges the outermost list or a single step, so a short expression could run for hours. So such work is estimated before it
is done and subtracted from the limit (see ``Frame.strain``), in units that take about as long as a cost unit.
"""

from __future__ import annotations

from typing import Final

from moorage.api.cel.bounds import MAX_DIGITS, MAX_EFFORT, MAX_WORK, EvalError, TooLargeError, check_work
from moorage.api.cel.frame import Frame
from moorage.api.cel.functions.operators import BINARY
from moorage.api.cel.functions.quantities import Quantity
from moorage.api.cel.functions.semver import Semver
from moorage.api.cel.syntax import CallNode, Expr, Fold, Ident, ListExpr, Literal, MapExpr, Message, Select, children
from moorage.api.cel.values import Format, Growing, GrowingMap, Map, Optional, Url, Value

#: The values that hold others.
CONTAINERS: Final = (list, tuple, Map, Optional)
#: The values that a text was parsed to, which may be as long.
PARSED: Final = (Url, Semver, Quantity)
#: The values whose operators are charged by their size.
SIZED: Final = (*CONTAINERS, *PARSED)
#: One unit is charged for this many copied elements, or this many compared nested elements.
_COPIED: Final = 64
_COMPARED: Final = 2
#: The work of comparing one element with a value; a value that compares only with its own type makes an error each time.
_COMPARISON: Final = 24
_REFUSED_COMPARISON: Final = 112
#: One unit is charged for this many characters read.
_READ: Final = 10
#: So many characters and elements are covered by the cost of a call.
_ORDINARY: Final = 1_000

#: The work of an iteration of a fold beside its steps, and of an absorbed error, also that of an operation beyond its bounds.
ITERATION: Final = 20
_FAILURE: Final = 450
_EXCESS: Final = MAX_EFFORT // 4
_WEIGHTS: Final[dict[str, int]] = {
    "_&&_": 4, "_||_": 4, "_?_:_": 6, "!_": 10, "-_": 10, "@not_strictly_false": 8, "_[_]": 16, "_[?_]": 16, "_?._": 16,
    "format": 200, **dict.fromkeys(("contains", "endsWith", "matches", "size", "startsWith"), 40),
}  # fmt: skip
_OPERATOR: Final = 24
_PARSED_OPERATOR: Final = 50
_CALL: Final = 100


def weight(node: Expr) -> int:
    """Return the work of a node that runs once. Folds charge what they repeat; functions charge for large operands."""
    match node:
        case Literal():
            own = 1
        case Ident():
            own = 4
        case Select():
            own = 12
        case CallNode():
            own = _WEIGHTS.get(node.function, _OPERATOR if node.function in BINARY else _CALL)
        case ListExpr():
            own = 8
        case MapExpr():
            own = 60 + 20 * len(node.entries)
        case Fold():
            return 60 + weight(node.range) + weight(node.start) + weight(node.result)
        case Message():
            own = 0
    return own + sum(map(weight, children(node)))


def work_of_result(found: Value) -> int:
    """Return the work of building a text, bytes or a list, which also bounds the memory that they take together."""
    if isinstance(found, (str, bytes)):
        return len(found) // 2
    return len(found) * 4 if isinstance(found, list) and not isinstance(found, Growing) else 0


def absorb(frame: Frame, error: EvalError) -> None:
    """Charge an error that has no effect. The operation may have done much before it found that it exceeds its bounds.

    Raises  CostLimitError
    """
    frame.work(_EXCESS if isinstance(error, TooLargeError) else _FAILURE + len(str(error)))


def strain_operator(frame: Frame, name: str, one: Value, other: Value) -> None:
    """Charge the work of an operator with a list, a map, a URL, a version or a quantity on its right.

    Raises  CostLimitError, TooLargeError
    """
    if name == "_+_":
        if isinstance(one, (list, tuple)):
            frame.strain((len(one) + len(other)) // _COPIED)
    elif name == "@in":
        strain_search(frame, [one], other)
    elif isinstance(other, PARSED):
        frame.work(_PARSED_OPERATOR)
        frame.strain(strain_of_operands([one, other]))
    elif isinstance(one, CONTAINERS):
        entries = min(len(one), len(other)) if isinstance(one, Map) else 0
        _strain(frame, min(_counted(frame, one), _counted(frame, other)) + entries)


def strain_search(frame: Frame, wanted: Value, within: Value) -> None:
    """Charge for comparing each value of ``wanted`` with each of ``within``. Only lists and maps are charged.

    Raises  CostLimitError, TooLargeError
    """
    if isinstance(within, Map):
        return
    refuses = isinstance(wanted[0], (*PARSED, Format)) if isinstance(wanted, (list, tuple)) and wanted else False
    frame.work(len(within) * (_REFUSED_COMPARISON if refuses else _COMPARISON))
    inner = _counted(frame, wanted) * len(within)
    if inner:
        _strain(frame, min(inner, _counted(frame, within) * len(wanted)))


def _counted(frame: Frame, value: Value) -> int:
    """Count the elements inside a value, and charge the count."""
    count = nested_parts(value)
    frame.work(count * 8)
    return count


def _strain(frame: Frame, compared: int) -> None:
    check_work(compared)
    frame.strain(compared // _COMPARED)


def strain_of_failure(args: list[Value]) -> int:
    """Return the charge for a function that failed, as if it had read all of its operands."""
    return 1 + sum([len(arg) for arg in args if isinstance(arg, (str, bytes, list, tuple))]) // _READ


def strain_of_operands(args: list[Value]) -> int:
    """Return the charge for a function of cost 1 that reads its operands, beyond those of ordinary size."""
    return max(0, sum([_size(arg) for arg in args]) - _ORDINARY) // _READ


def _size(value: Value) -> int:
    if isinstance(value, (Url, Semver)):
        return len(value.text)
    if isinstance(value, Quantity):
        return value.value.bit_length() + 3 * min(abs(value.scale), MAX_DIGITS)
    return len(value) if isinstance(value, (str, bytes, list, tuple, Map)) and not isinstance(value, GrowingMap) else 0


def nested_parts(value: Value) -> int:
    """Count the elements of the lists and maps inside a value, at any depth; stop beyond ``MAX_WORK``.

    A list that occurs several times counts each time, because it is compared each time.
    """
    waiting = [part for part in _parts(value) if isinstance(part, CONTAINERS)]
    count = 0
    while waiting and count <= MAX_WORK:
        parts = _parts(waiting.pop())
        count += 1 + len(parts)
        waiting += [part for part in parts if isinstance(part, CONTAINERS)]
    return count


def _parts(value: Value) -> list[Value] | tuple[Value, ...]:
    if isinstance(value, Optional):
        return [value.held]
    return [held for _, held in value.items()] if isinstance(value, Map) else value
