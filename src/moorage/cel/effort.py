"""Work that CEL's cost does not show: comparing nested lists, copying long ones, reading what turns out to be no number.

Their cost is that of the outermost list, or of a single step, so that a short expression could go on for hours. Here the work
is counted before it is done, in units that take about as long as one of cost, and comes off the limit (see ``Frame.strain``).
"""

from __future__ import annotations

from typing import Final

from moorage.cel.frame import Frame
from moorage.cel.values import Map, Value

__all__ = ["nested_parts", "strain_of_failure", "strain_operator", "strain_search"]

#: Elements that are copied, and nested ones that are compared, for the price of one unit.
_COPIED: Final = 64
_COMPARED: Final = 2
#: Characters that are read for one.
_READ: Final = 10


def strain_operator(frame: Frame, name: str, one: Value, other: Value) -> None:
    """Account for the work of an operator with a list or a map on its right.

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
    """Account for comparing each of some values with each of others, as far as they are lists or maps themselves.

    Raises  CostLimitError
    """
    if isinstance(within, Map):
        return
    inner = nested_parts(wanted, frame.left) * len(within)
    if inner:
        frame.strain(min(inner, nested_parts(within, frame.left) * len(wanted)) // _COMPARED)


def strain_of_failure(args: list[Value]) -> int:
    """Return what a function is charged that failed: it may have read all of its operands."""
    return 1 + sum([len(arg) for arg in args if isinstance(arg, str | bytes | list | tuple)]) // _READ


def nested_parts(value: Value, enough: int) -> int:
    """Count the elements of the lists and maps within a list or map, however deep; give up beyond ``_COMPARED * enough``.

    The same list may be there many times, and counts each time: it is compared each time.
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
