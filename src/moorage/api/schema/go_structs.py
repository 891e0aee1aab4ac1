"""Values as kube-apiserver's own structs, which some messages show: how they are written, and how they differ.

``go_structs.json`` lists the fields of the structs in order: the name, or as JSON writes a tagged one, and the type; ``-`` is
a struct whose fields are those of its holder. An untagged field is written even if it is empty.

Source  kubernetes, pkg/apis/*/types.go; apimachinery, pkg/util/diff/diff.go
"""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any, Final, NamedTuple

from moorage.basis import text_of

__all__ = ["SENT_EMPTY", "as_sent", "changed_lines", "go_value"]

#: The values of types that are empty.
_ZEROS: Final = {"string": "", "bool": False, "int32": 0, "int64": 0, "IntOrString": 0, "Quantity": "0"}
#: Fields with another name in the API.
_RENAMED: Final = {"DeprecatedServiceAccount": "serviceAccount"}
_HTML: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


class _Field(NamedTuple):
    name: str
    type: str
    is_omitted: bool


#: The empty lists and maps that the client of a request sent and that are not stored, by the steps to their places. A struct
#: shows such a list, where it shows null for an absent one.
SENT_EMPTY: Final[ContextVar[tuple[tuple[tuple[str | int, ...], Any], ...]]] = ContextVar("SENT_EMPTY", default=())


def as_sent(value: Any, path: str) -> Any:
    """Return the value at a path of the object in a request, with the empty lists and maps that the client sent in it."""
    steps = tuple(int(one) if one.isdigit() else one for one in _STEP.findall(path))
    found = [(place[len(steps) :], empty) for place, empty in SENT_EMPTY.get() if place[: len(steps)] == steps]
    if not found:
        return value
    if not found[0][0]:
        return found[0][1] if value is None else value
    made = copy.deepcopy(value)
    for place, empty in found:
        holder = made
        try:
            for step in place[:-1]:
                holder = holder[step]
            if holder.get(place[-1]) is None:
                holder[place[-1]] = empty
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # the value was completed or changed since
    return made


_STEP: Final = re.compile(r"[^.\[\]]+")


@cache
def _structs() -> dict[str, list[_Field]]:
    rows = json.loads(text_of("moorage.api.schema", "go_structs.json"))
    found = {}
    for struct, text in rows.items():
        pairs = [one.split(":", 1) for one in text.split()]
        found[struct] = [_Field(tag.partition(",")[0], kind, "omitempty" in tag) for tag, kind in pairs]
    return found


def go_value(kind: str, value: Any) -> Any:
    """Return a field of the API as the struct, list or map of a type writes it."""
    if kind.startswith("*"):
        return None if value is None else go_value(kind[1:], value)
    if kind.startswith("[]"):
        return [go_value(kind[2:], one) for one in value] if isinstance(value, list) else None
    if kind.startswith("{}"):
        return {name: go_value(kind[2:], value[name]) for name in sorted(value)} if isinstance(value, dict) else None
    if kind in _structs():
        return _struct(kind, value if isinstance(value, dict) else {})
    return _ZEROS.get(kind) if value is None else value


def _struct(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    folded = {name.lower(): one for name, one in value.items()}
    made: dict[str, Any] = {}
    for field in _structs()[kind]:
        if field.name == "-":
            if field.type in _structs():
                inner = value.get("metadata") or {} if field.type == "v1.ObjectMeta" else value
                made |= _struct(field.type, inner)
            continue
        shown = go_value(field.type, folded.get(_RENAMED.get(field.name, field.name).lower()))
        if not field.is_omitted or shown not in (None, "", 0, [], {}):
            made[field.name] = shown
    return made


#: How many lines are compared with each other: comparing takes up to the square of their number.
_MOST_LINES: Final = 3000


def changed_lines(kind: str, old: Any, new: Any) -> str:
    """Return the lines in which two values of a type differ, each with three lines around it.

    Of values with very many lines, all from the first to the last that differs are shown as changed.
    """
    before, after = (
        [f"{line}\n" for line in json.dumps(go_value(kind, one), indent=1, ensure_ascii=False).translate(_HTML).split("\n")]
        for one in (old, new)
    )
    if max(len(before), len(after)) > _MOST_LINES:
        return "".join(_lines_at_once(before, after))
    return "".join([*difflib.unified_diff(before, after)][2:])


def _lines_at_once(before: list[str], after: list[str]) -> Iterator[str]:
    """Yield one hunk that replaces all lines from the first to the last that differs."""
    shorter = min(len(before), len(after))
    first = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    last = next((i for i in range(shorter - first) if before[-1 - i] != after[-1 - i]), shorter - first)
    if first == len(before) == len(after):
        return
    begin, ends = max(first - 3, 0), [len(lines) - last for lines in (before, after)]
    tail = min(last, 3)
    counts = [end + tail - begin for end in ends]
    yield f"@@ -{begin + 1},{counts[0]} +{begin + 1},{counts[1]} @@\n"
    yield from (f" {line}" for line in before[begin:first])
    yield from (f"-{line}" for line in before[first : ends[0]])
    yield from (f"+{line}" for line in after[first : ends[1]])
    yield from (f" {line}" for line in before[ends[0] : ends[0] + tail])
