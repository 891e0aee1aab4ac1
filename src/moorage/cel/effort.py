"""Charges for work that CEL's cost does not include: comparing nested lists, copying long ones, parsing invalid operands.

CEL charges the outermost list or a single step, so a short expression could run for hours. So such work is estimated before it
is done and subtracted from the limit (see ``Frame.strain``), in units that take about as long as a cost unit.
"""

from __future__ import annotations

from typing import Final

from moorage.cel.frame import Frame
from moorage.cel.values import Map, Value

__all__ = ["nested_parts", "strain_of_failure", "strain_operator", "strain_search"]

#: One unit is charged for this many copied elements, or this many compared nested elements.
_COPIED: Final = 64
_COMPARED: Final = 2
#: One unit is charged for this many characters read.
_READ: Final = 10


def strain_operator(frame: Frame, name: str, one: Value, other: Value) -> None:
    """Charge the work of an operator with a list or a map on its right.

    Raises  CostLimitError
    """
    if name == "_+_":
        if isinstance(one, list | tuple):
            frame.strain((len(one) + len(other)) // _COPIED)
    elif name == "@in":
        strain_search(frame, [one], other)
    elif isinstance(one, list | tuple | Map):
        inner = min(nested_parts(one, frame.left), nested_parts(other, frame.left))
        entries = min(len(one), len(other)) if isinstance(one, Map) else 0
        frame.strain((inner + entries) // _COMPARED)


def strain_search(frame: Frame, wanted: Value, within: Value) -> None:
    """Charge for comparing each value of ``wanted`` with each of ``within``. Only lists and maps are charged.

    Raises  CostLimitError
    """
    if isinstance(within, Map):
        return
    inner = nested_parts(wanted, frame.left) * len(within)
    if inner:
        frame.strain(min(inner, nested_parts(within, frame.left) * len(wanted)) // _COMPARED)


def strain_of_failure(args: list[Value]) -> int:
    """Return the charge for a function that failed, as if it had read all of its operands."""
    return 1 + sum([len(arg) for arg in args if isinstance(arg, str | bytes | list | tuple)]) // _READ


def nested_parts(value: Value, enough: int) -> int:
    """Count the elements of the lists and maps inside a value, at any depth; stop beyond ``_COMPARED * enough``.

    A list that occurs several times counts each time, because it is compared each time.
    """
    most = _COMPARED * max(enough, 0) + _COMPARED
    waiting = [part for part in _parts(value) if isinstance(part, list | tuple | Map)]
    count = 0
    while waiting and count < most:
        parts = _parts(waiting.pop())
        count += 1 + len(parts)
        waiting += [part for part in parts if isinstance(part, list | tuple | Map)]
    return count


def _parts(value: Value) -> list[Value] | tuple[Value, ...]:
    return [held for _, held in value.items()] if isinstance(value, Map) else value
