"""Field sets in the format of ``managedFields``: trees of path elements.

Path elements are ``f:spec`` for a field, ``k:{"name":"c"}`` for a list item by its keys, and ``v:"x"`` for an item of a
set. An element with nothing below it is a member of the set. An element with other elements below it is a member only if it
contains ``.``.

    {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}}        .metadata.labels and .metadata.labels.app

The functions do not modify their arguments, and their results share parts with them.

Source  structured-merge-diff, fieldpath (set.go, element.go, serialize.go)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

FieldSet: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[str, ...]

_SELF: Final = "."
_KINDS: Final = "fkvi"


def is_field_set(found: Any) -> bool:
    """Return True if a value from a client is a tree of valid path elements."""
    if not isinstance(found, dict):
        return False
    return all((key == _SELF or _is_element(key)) and is_field_set(below) for key, below in found.items())


def _is_element(key: str) -> bool:
    kind, colon, rest = key.partition(":")
    if not colon:
        return False
    if kind in {"k", "v"}:
        try:
            found = json.loads(rest)
        except (ValueError, RecursionError):
            return False
        return kind == "v" or isinstance(found, dict)
    return kind != "i" or rest.removeprefix("-").isdigit()


def _is_member(node: FieldSet) -> bool:
    return not node or _SELF in node


def _node(is_member: bool, below: dict[str, Any]) -> FieldSet | None:
    """Return a node of the tree, or None for an empty node that is not a member of the set."""
    if not below:
        return {} if is_member else None
    return {_SELF: {}, **below} if is_member else below


def _below(node: FieldSet) -> Iterator[tuple[str, FieldSet]]:
    return ((key, inner) for key, inner in node.items() if key != _SELF)


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the set of paths in either set."""
    if not left or not right:
        return left or right
    made = {key: inner for key, inner in left.items() if key != _SELF}
    for key, inner in _below(right):
        mine = made.get(key)
        if mine is None:
            made[key] = inner
        elif mine is not inner:
            either = _is_member(mine) or _is_member(inner)
            made[key] = _node(either, dict(_below(union(mine, inner)))) or {}
    return made


def union_all(sets: Iterable[FieldSet]) -> FieldSet:
    """Return the set of paths in any of the sets."""
    made: dict[str, Any] = {}
    for one in sets:
        _add_all(made, one)
    return made


def _add_all(made: dict[str, Any], more: FieldSet) -> None:
    """Add ``more`` to ``made``, in place; ``made`` shares no parts with other sets."""
    for key, inner in _below(more):
        mine = made.get(key)
        if mine is None:
            made[key] = mine = {}
            either = _is_member(inner)
        else:
            either = _is_member(mine) or _is_member(inner)
        mine.pop(_SELF, None)
        _add_all(mine, inner)
        if either and mine:
            mine[_SELF] = {}


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the set of paths in both sets."""
    made: dict[str, Any] = {}
    for key, inner in _below(left):
        other = right.get(key)
        if other is not None:
            node = _node(_is_member(inner) and _is_member(other), dict(intersection(inner, other)))
            if node is not None:
                made[key] = node
    return made


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths of ``left`` that are not in ``right``. Paths below a removed path stay."""
    if not right:
        return left
    made: dict[str, Any] = {}
    for key, inner in _below(left):
        other = right.get(key)
        if other is None:
            made[key] = inner
            continue
        node = _node(_is_member(inner) and not _is_member(other), dict(_below(difference(inner, other))))
        if node is not None:
            made[key] = node
    return made


def without(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths of ``left`` that are neither in ``right`` nor below one of its paths."""
    made: dict[str, Any] = {}
    for key, inner in _below(left):
        other = right.get(key)
        if other is None:
            made[key] = inner
        elif not _is_member(other):
            node = _node(_is_member(inner), dict(without(inner, other)))
            if node is not None:
                made[key] = node
    return made


def paths(held: FieldSet) -> Iterator[Path]:
    """Yield the paths of a set in structured-merge-diff's order: a level before the levels below it."""
    ordered = sorted(_below(held), key=lambda pair: _rank(pair[0]))
    for key, inner in ordered:
        if _is_member(inner):
            yield (key,)
    for key, inner in ordered:
        for path in paths(inner):
            yield (key, *path)


def ordered(held: FieldSet) -> FieldSet:
    """Return the set with its elements in serialization order."""
    return {key: ordered(inner) if inner else inner for key, inner in sorted(held.items())}


def _rank(element: str) -> tuple[int, str]:
    return _KINDS.find(element[0]), element


def shown(path: Path) -> str:
    """Return a path in readable form: ``.spec.containers[name="c"].image``."""
    return "".join(_shown_element(element) for element in path)


def _shown_element(element: str) -> str:
    kind, _, rest = element.partition(":")
    match kind:
        case "f":
            return f".{rest}"
        case "k":
            pairs = ",".join(f"{name}={_value(value)}" for name, value in sorted(json.loads(rest).items()))
            return f"[{pairs}]"
        case "v":
            return f"[={_value(json.loads(rest))}]"
        case _:
            return f"[{rest}]"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
