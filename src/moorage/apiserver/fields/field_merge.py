"""Objects as sets of fields: which ones they have, how two differ, what one laid over another makes, what is left without some.

Lists of named things are compared and merged by name, sets by value, maps and structs by key; everything else is one value.

Source  structured-merge-diff, typed (merge.go, compare.go, remove.go, tofieldset.go, validate.go, helpers.go)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from moorage.apiserver.fields.fieldsets import FieldSet, shown
from moorage.apiserver.schema.schemas import Field, ListOf, MapOf, Scalar, Struct, Type
from moorage.apiserver.vocabulary.go_messages import go_quoted, go_value, go_word
from moorage.apiserver.vocabulary.records import Document

__all__ = ["Differences", "compare", "field_set", "merge", "named_members", "remove", "type_faults"]


class Differences(NamedTuple):
    """Fields that only the second of two objects has, that differ, and that only the first has."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet

    @property
    def is_none(self) -> bool:
        return not (self.added or self.modified or self.removed)


# -- shapes -------------------------------------------------------------------------------------------------------------


def _is_leaf(shape: Type) -> bool:
    return isinstance(shape, Scalar) or shape.is_atomic


def _inner_type(shape: Type, name: str) -> Type | None:
    if isinstance(shape, Struct):
        field = shape.fields.get(name)
        return field.type if field else None
    return shape.item if isinstance(shape, MapOf) else None


def element_of(shape: ListOf, item: Any) -> str:
    """Return how an item of a list with keys, or of a set, is called. Keys that are absent count by their default.

    Raises  KeyError with the name of a key that an item lacks
    """
    if shape.is_set:
        return f"v:{_compact(item)}"
    assert isinstance(shape.item, Struct)
    keys: dict[str, Any] = {}
    for key in sorted(shape.keys):
        value = item.get(key) if isinstance(item, dict) else None
        if value is None:
            value = _absent_key(shape.item.fields[key])
        if value is None:
            raise KeyError(key)
        keys[key] = value
    return f"k:{_compact(keys)}"


def _absent_key(field: Field) -> Any:
    if field.default is not None:
        return field.default
    return None if field.is_left_out or field.is_pointer else _zero(field.type)


def _zero(shape: Type) -> Any:
    if isinstance(shape, Scalar):
        return {"i": 0, "b": False, "f": 0.0}.get(shape.letter, "")
    return [] if isinstance(shape, ListOf) else {}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _elements(shape: ListOf, items: Any) -> dict[str, Any]:
    """Return the items of a list by name. The first of two with one name counts, and those without are left out."""
    found: dict[str, Any] = {}
    for item in items or ():
        try:
            found.setdefault(element_of(shape, item), item)
        except KeyError:
            continue
    return found


# -- sets of one object -------------------------------------------------------------------------------------------------


def field_set(shape: Type, value: Any) -> FieldSet:
    """Return the fields that an object names; those of a struct are named by what is in it."""
    made: dict[str, Any] = {}
    if value is None or _is_leaf(shape):
        return made
    if isinstance(shape, ListOf):
        for element, item in _elements(shape, value).items():
            below = field_set(shape.item, item)
            made[element] = {".": {}, **below} if below else {}
        return made
    for name, inner in value.items():
        below_type = _inner_type(shape, name)
        if below_type is None:
            continue
        below = field_set(below_type, inner)
        counts = _is_leaf(below_type) or inner is None or inner == {} or isinstance(shape, MapOf)
        if below:
            made[f"f:{name}"] = {".": {}, **below} if counts else below
        elif counts:
            made[f"f:{name}"] = {}
    return made


def _whole(shape: Type, value: Any) -> FieldSet:
    """Return everything that came or went with a value, below it: each step of the way is a field of its own."""
    made: dict[str, Any] = {}
    if value is None or _is_leaf(shape):
        return made
    if isinstance(shape, ListOf):
        for element, item in _elements(shape, value).items():
            below = _whole(shape.item, item)
            made[element] = {".": {}, **below} if below else {}
        return made
    for name, inner in value.items():
        inner_type = _inner_type(shape, name)
        if inner_type is not None:
            below = _whole(inner_type, inner)
            made[f"f:{name}"] = {".": {}, **below} if below else {}
    return made


def named_members(shape: Type, held: FieldSet) -> FieldSet:
    """Return a set where every field of a struct that has something below it is itself in the set."""
    made: dict[str, Any] = {}
    for element, below in held.items():
        if element == "." or not below:
            made[element] = below
            continue
        inner = _type_at(shape, element)
        deeper = named_members(inner, below) if inner is not None else below
        if isinstance(shape, Struct) and element.startswith("f:") and inner is not None:
            deeper = {".": {}, **deeper}
        made[element] = deeper
    return made


def _type_at(shape: Type, element: str) -> Type | None:
    if element.startswith("f:"):
        return _inner_type(shape, element[2:])
    return shape.item if isinstance(shape, ListOf) else None


# -- two objects --------------------------------------------------------------------------------------------------------


_Made: TypeAlias = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def compare(shape: Type, old: Any, new: Any) -> Differences:
    """Return how two objects of one type differ."""
    made: _Made = ({}, {}, {})
    if isinstance(shape, ListOf):
        before, after = _elements(shape, old), _elements(shape, new)
        for element in dict.fromkeys([*before, *after]):
            _compare_one(shape.item, element, before.get(element), after.get(element), made)
    else:
        before, after = old or {}, new or {}
        for name, mine in after.items():
            theirs = before.get(name)
            if mine is not theirs and mine != theirs:
                _compare_field(shape, name, theirs, mine, made)
        for name in [one for one in before if one not in after]:
            _compare_field(shape, name, before[name], None, made)
    return Differences(*made)


def _compare_field(shape: Type, name: str, old: Any, new: Any, made: _Made) -> None:
    field_type = _inner_type(shape, name)
    if field_type is None:
        return
    if (old is None or new is None) and isinstance(shape, Struct) and _is_always_there(shape.fields[name]):
        zero = _zero(field_type)
        old, new = zero if old is None else old, zero if new is None else new
    _compare_one(field_type, f"f:{name}", old, new, made)


def _is_always_there(field: Field) -> bool:
    """Return True for what Go writes even when it is empty: structs within structs, and fields that are not to be left out."""
    return not field.is_left_out or (isinstance(field.type, Struct) and not field.is_pointer)


def _compare_one(shape: Type, element: str, old: Any, new: Any, made: _Made) -> None:
    """Compare two values, of which None stands for one that is not there."""
    if old == new:
        return
    added, modified, removed = made
    if old is None or new is None:
        below = _whole(shape, new if old is None else old)
        (added if old is None else removed)[element] = {".": {}, **below} if below else {}
    elif _is_leaf(shape):
        modified[element] = {}
    else:
        for node, found in zip(made, compare(shape, old, new), strict=True):
            if found:
                node[element] = found


def merge(shape: Type, live: Any, config: Any) -> Any:
    """Return an object with another laid over it; what that one does not name stays."""
    if config is None and live is not None and not _is_leaf(shape):
        return live  # a null lays claim to it, and says nothing about what is in it
    if config is None or live is None or _is_leaf(shape):
        return config
    if isinstance(shape, ListOf):
        return _merge_lists(shape, live, config)
    merged = dict(live)
    for name, inner in config.items():
        below = _inner_type(shape, name)
        if below is not None:
            merged[name] = merge(below, live[name], inner) if name in live else inner
    return merged


def _merge_lists(shape: ListOf, live: list[Any], config: list[Any]) -> list[Any]:
    """Merge two lists in the order of both, that of the one laid over deciding where they disagree."""
    held, given = _named(shape, live), _named(shape, config)
    mine, theirs = dict(reversed(held)), dict(reversed(given))
    order = [element for element, _ in given if element in mine]
    out: list[Any] = []
    done: set[str] = set()
    left = right = shared = 0
    while left < len(held) or right < len(given):
        if left < len(held):
            element, item = held[left]
            is_awaited = shared < len(order) and order[shared] != element
            if right < len(given) and element != given[right][0] and element in theirs and is_awaited:
                left += 1  # both have it, and the other list has it later
                continue
            if element not in theirs:
                out.append(item)
                left += 1
                continue
            if element in done or (right < len(given) and element == given[right][0]):
                left += 1
        if right < len(given):
            element, item = given[right]
            out.append(merge(shape.item, mine[element], item) if element in mine else item)
            done.add(element)
            right += 1
            if shared < len(order) and order[shared] == element:
                shared += 1
    return out


def _named(shape: ListOf, items: list[Any]) -> list[tuple[str, Any]]:
    return [(element_of(shape, item), item) for item in items]


def remove(shape: Type, value: Any, held: FieldSet) -> Any:
    """Return an object without the fields of a set, and without what lies below them. What ends up empty becomes None."""
    if not held or not value or _is_leaf(shape):
        return value
    if isinstance(shape, ListOf):
        return _remove_items(shape, value, held)
    kept: Document = {}
    for name, inner in value.items():
        node = held.get(f"f:{name}")
        below = _inner_type(shape, name)
        if node is None or below is None:
            kept[name] = inner
        elif node and "." not in node:
            kept[name] = remove(below, inner, node)
    return kept or None


def _remove_items(shape: ListOf, items: list[Any], held: FieldSet) -> list[Any] | None:
    kept: list[Any] = []
    for item in items:
        try:
            node = held.get(element_of(shape, item))
        except KeyError:
            node = None
        if node is None:
            kept.append(item)
        elif node and "." not in node:
            kept.append(remove(shape.item, item, node))
    return kept or None


# -- what does not fit --------------------------------------------------------------------------------------------------

_EXPECTED: Final = {
    "i": "numeric (int or float)", "f": "numeric (int or float)", "b": "boolean", "s": "string", "T": "string", "U": "string",
    "y": "string", "D": "string",
}  # fmt: skip


#: Where a value stands: the steps that lead there, the last one first, each as elements of field sets are spelled. Paths are
#: only put together to tell of a fault: one that goes through a long key would take as long again for each value below it.
_Place: TypeAlias = tuple[Any, str] | None


def _path(place: _Place) -> str:
    steps: list[str] = []
    while place is not None:
        place, element = place
        steps.append(shown((element,)))
    return "".join(reversed(steps))


def type_faults(shape: Type, value: Any, place: _Place = None) -> Iterator[str]:
    """Find what a configuration to be applied holds that its kind does not, and lists that name a thing twice."""
    if value is None:
        return
    if isinstance(shape, Scalar):
        yield from _scalar_faults(shape, value, place)
    elif isinstance(shape, ListOf):
        if not isinstance(value, list):
            yield f"{_path(place)}: expected list, got {_value_shown(value)}"
        else:
            yield from _list_faults(shape, value, place)
    elif not isinstance(value, dict):
        yield f"{_path(place)}: expected map, got {_value_shown(value)}"
    else:
        for name, inner in value.items():
            below = _inner_type(shape, name)
            if below is None:
                yield f"{_path((place, f'f:{name}'))}: field not declared in schema"
            else:
                yield from type_faults(below, inner, (place, f"f:{name}"))


def _scalar_faults(shape: Scalar, value: Any, place: _Place) -> Iterator[str]:
    expected = _EXPECTED.get(shape.letter)
    if expected is None:
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {"i": is_number, "f": is_number, "b": isinstance(value, bool)}.get(shape.letter, isinstance(value, str))
    if not fits:
        yield f"{_path(place)}: expected {expected}, got {_value_shown(value, expected)}"


def _value_shown(value: Any, expected: str = "") -> str:
    """Return a value as the original shows one of the wrong type, which differs with what it was to be."""
    if expected.startswith("numeric"):
        return {"object": "map[string]interface {}", "array": "[]interface {}"}.get(go_word(value), go_word(value))
    return f"&value.valueUnstructured{{Value:{_go_literal(value)}}}" if expected == "string" else f"&{{{go_value(value)}}}"


def _go_literal(value: Any) -> str:
    """Return a value as Go's ``%#v`` spells it."""
    match value:
        case str():
            return go_quoted(value)
        case dict():
            pairs = (f"{go_quoted(key)}:{_go_literal(inner)}" for key, inner in sorted(value.items()))
            return f"map[string]interface {{}}{{{', '.join(pairs)}}}"
        case list():
            return f"[]interface {{}}{{{', '.join(map(_go_literal, value))}}}"
        case _:
            return go_value(value)


def _list_faults(shape: ListOf, items: list[Any], place: _Place) -> Iterator[str]:
    if shape.is_atomic:
        for i, item in enumerate(items):
            yield from type_faults(shape.item, item, (place, f"i:{i}"))
        return
    seen: set[str] = set()
    for i, item in enumerate(items):
        try:
            element = element_of(shape, item)
        except KeyError as missing:
            what = "associative list with keys has an element that omits key field"
            yield f"{_path(place)}: element {i}: {what} {json.dumps(missing.args[0])} (and doesn't have default value)"
            continue
        if element in seen:
            yield f"{_path(place)}: duplicate entries for key {shown((element,))}"
        seen.add(element)
        yield from type_faults(shape.item, item, (place, element))
