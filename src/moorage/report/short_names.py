"""Names without the end that all nodes share, for texts: it is written once, in the heading.

Documents, and commands to paste, keep whole names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from operator import is_
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["shared_end", "together", "without_end"]

T = TypeVar("T")

#: A shorter end, or that of fewer names, is not worth a heading.
_LEAST: Final = 8
_FEW: Final = 3
#: Fields that keep whole names: commands, and the question as it was asked.
_WHOLE: Final = frozenset(["commands", "request", "files"])


def shared_end(names: Collection[str]) -> str:
    """Return the end, from a dot on, that all names share; "" if it is short or the names are few."""
    if len(names) < _FEW:
        return ""
    first = next(iter(names))
    ends = [first[at:] for at, letter in enumerate(first) if letter == "." and at]
    return next((end for end in ends if len(end) >= _LEAST and all(name.endswith(end) for name in names)), "")


def without_end(value: T, end: str) -> T:
    """Return a value whose texts lack this end of names, except in commands of kubectl."""
    short: T = _shortened(value, end) if end else value
    return short


def _shortened(value: Any, end: str) -> Any:
    if isinstance(value, str):
        return value if end not in value or "kubectl " in value else value.replace(end, "")
    if isinstance(value, tuple | list):
        parts = [_shortened(one, end) for one in value]
        is_same = hasattr(value, "_fields") or all(map(is_, parts, value))
        return value if is_same else type(value)(parts)
    if isinstance(value, Mapping):
        return {_shortened(name, end): _shortened(one, end) for name, one in value.items()}
    if isinstance(value, Struct):
        held = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _WHOLE}
        fresh = {name: short for name, one in held.items() if (short := _shortened(one, end)) is not one}
        return replace(value, **fresh) if fresh else value
    return value


#: What controllers append to the names of their pods: the hash of a template, and random letters or a number.
_OWN: Final = re.compile(r"(?:-[0-9a-f]{8,10})?-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9a-f]{5}|\d+)$")


def together(names: Iterable[str]) -> list[str]:
    """Return the names of pods, those of one workload as one name with their number. A pod alone keeps its name."""
    held: dict[str, list[str]] = {}
    for name in names:
        held.setdefault(_OWN.sub("", name), []).append(name)
    return [some[0] if len(some) == 1 else f"{base} ×{len(some)}" for base, some in held.items()]  # noqa: RUF001
