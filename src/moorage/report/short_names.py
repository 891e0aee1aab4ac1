"""Names without the end that all nodes share, for texts: it is written once, in the heading.

Documents, and commands to paste, keep whole names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")

#: A shorter end, or that of fewer names, is not worth a heading.
_LEAST_NAMES: Final = 8
_FEW: Final = 3
#: Fields that keep whole names: commands, and the question as it was asked.
_WHOLE: Final = frozenset(["commands", "request", "files"])


def shared_end(names: Collection[str]) -> str:
    """Return the end, from a dot on, that all names share; "" if it is short or the names are few."""
    if len(names) < 2:
        return ""
    first = next(iter(names))
    ends = [first[at:] for at, letter in enumerate(first) if letter == "." and at]
    return next((end for end in ends if len(end) >= _LEAST_NAMES and all(name.endswith(end) for name in names)), "")


def without_end(value: T, end: str) -> T:
    """Return a value whose texts lack this end of names, except in commands of kubectl."""
    short: T = _shortened(value, end) if end else value
    return short


def _shortened(value: Any, end: str) -> Any:
    if isinstance(value, str):
        return value if end not in value or "kubectl " in value else value.replace(end, "")
    if isinstance(value, tuple | list):
        if all(isinstance(one, str) for one in value) and end not in "\0".join(value):  # thousands of names of nodes
            return value
        parts = [_shortened(one, end) for one in value]
        is_same = hasattr(value, "_fields") or all(map(is_, parts, value))
        return value if is_same else type(value)(parts)
    if isinstance(value, Mapping):
        return {_shortened(name, end): _shortened(one, end) for name, one in value.items()}
    if isinstance(value, Struct):
        held = {name: one for name in value.__struct_fields__ if (one := getattr(value, name)) and name not in _WHOLE}
        fresh = {
            name: short for name, one in held.items() if type(one) is not int and (short := _shortened(one, end)) is not one
        }
        return replace(value, **fresh) if fresh else value
    return value


#: What controllers append to the names of their pods: the hash of a template, and random letters or a number.
_OWN: Final = re.compile(
    r"(?:-(?:[0-9a-f]{8,10}|[bcdfghjklmnpqrstvwxz2456789]{6,10}))?-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9a-f]{5}|\d+)$"
)


def without_own(name: str) -> str:
    """Return the name of a pod without what its controller appended."""
    return _OWN.sub("", name)


def together(names: Iterable[str]) -> list[str]:
    """Return the names of pods, those of one workload as one name with their number. A pod alone keeps its name."""
    return [name for name, _ in _groups(names)]


def some_pods(names: Sequence[str], most: int = _FEW) -> str:
    """Return the first few names of pods, and how many more there are; if there are more, pods of one workload are one name."""
    if len(names) <= most:
        return ", ".join(names)
    groups = _groups(names)
    left = sum(number for _, number in groups[most:])
    return ", ".join(name for name, _ in groups[:most]) + (f" and {left} more" if left else "")


def _groups(names: Iterable[str]) -> list[tuple[str, int]]:
    held: dict[str, list[str]] = {}
    for name in names:
        held.setdefault(_OWN.sub("", name), []).append(name)
    return [(some[0] if len(some) == 1 else f"{base} ×{len(some)}", len(some)) for base, some in held.items()]  # noqa: RUF001
