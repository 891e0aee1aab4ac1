"""Operations on objects and their field sets: compute, compare, merge and remove fields by type.

Lists of structs are compared and merged by their keys, sets by value, maps and structs by field name. Any other value
is atomic.

Source  structured-merge-diff, typed (merge.go, compare.go, remove.go, tofieldset.go, validate.go, helpers.go)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from moorage.api.documents.served_kinds import Document
from moorage.api.documents.statuses import go_quoted, go_value, go_word
from moorage.api.fields.fieldsets import FieldSet, shown
from moorage.api.schema.field_types import UNTYPED, Field, ListOf, MapOf, Scalar, Struct, Type, is_leaf


class Differences(NamedTuple):
    """Fields that only the new object has, that differ, and that only the old object has."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet

    @property
    def is_none(self) -> bool:
        return not (self.added or self.modified or self.removed)


# -- types -------------------------------------------------------------------------------------------------------------


def _inner_type(shape: Type, name: str) -> Type | None:
    if isinstance(shape, Struct):
        field = shape.fields.get(name)
        return field.type if field else shape.rest
    return shape.item if isinstance(shape, MapOf) else None


def element_of(shape: ListOf, item: Any) -> str:
    """Return the path element of an item in an associative list or a set. Absent keys count with their default.

    Raises  KeyError if the item has none of the keys
    """
    if shape.is_set:
        return f"v:{_compact(item)}"
    assert isinstance(shape.item, Struct)
    keys: dict[str, Any] = {}
    for key in sorted(shape.keys):
        value = item.get(key) if isinstance(item, dict) else None
        if value is None:
            field = shape.item.fields[key]
            is_omitted = field.omits_empty or field.is_pointer
            value = field.default if field.default is not None else None if is_omitted else _zero(field.type)
        if value is not None:
            keys[key] = value
    if not keys:
        raise KeyError(shape.keys)
    return f"k:{_compact(keys)}"


def _zero(shape: Type) -> Any:
    if isinstance(shape, Scalar):
        return {"i": 0, "b": False, "f": 0.0}.get(shape.letter, "")
    return [] if isinstance(shape, ListOf) else {}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _elements(shape: ListOf, items: Any) -> dict[str, Any]:
    """Return the items of a list by path element. The first of duplicates counts; items without a key are left out."""
    found: dict[str, Any] = {}
    for item in items or ():
        try:
            found.setdefault(element_of(shape, item), item)
        except KeyError:
            continue
    return found


# -- field sets --------------------------------------------------------------------------------------------------------


def field_set(shape: Type, value: Any) -> FieldSet:
    """Return the fields that an object specifies. A struct is represented by its fields."""
    made: dict[str, Any] = {}
    if value is None or is_leaf(shape, value):
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
        counts = is_leaf(below_type, inner) or inner is None or inner == {} or isinstance(shape, MapOf)
        if below:
            made[f"f:{name}"] = {".": {}, **below} if counts else below
        elif counts:
            made[f"f:{name}"] = {}
    return made


def _all_fields(shape: Type, value: Any) -> FieldSet:
    """Return all fields below a value that was added or removed, including every intermediate field."""
    made: dict[str, Any] = {}
    if value is None or is_leaf(shape, value):
        return made
    if isinstance(shape, ListOf):
        for element, item in _elements(shape, value).items():
            below = _all_fields(shape.item, item)
            made[element] = {".": {}, **below} if below else {}
        return made
    for name, inner in value.items():
        inner_type = _inner_type(shape, name)
        if inner_type is not None:
            below = _all_fields(inner_type, inner)
            made[f"f:{name}"] = {".": {}, **below} if below else {}
    return made


def named_members(shape: Type, held: FieldSet) -> FieldSet:
    """Return a set with every struct field that has members added as a member itself."""
    made: dict[str, Any] = {}
    for element, below in held.items():
        if element == "." or not below:
            made[element] = below
            continue
        is_field = element.startswith("f:")
        inner = _inner_type(shape, element[2:]) if is_field else shape.item if isinstance(shape, ListOf) else None
        deeper = named_members(inner, below) if inner is not None else below
        if isinstance(shape, Struct) and is_field and inner is not None:
            deeper = {".": {}, **deeper}
        made[element] = deeper
    return made


# -- comparing and merging ---------------------------------------------------------------------------------------------


_Made: TypeAlias = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def compare(shape: Type, old: Any, new: Any) -> Differences:
    """Return the differences between two objects of one type."""
    made: _Made = ({}, {}, {})
    if isinstance(shape, ListOf):
        before, after = _elements(shape, old), _elements(shape, new)
        for element in dict.fromkeys([*before, *after]):
            _compare_one(shape.item, element, before.get(element), after.get(element), made)
    else:
        before, after = old or {}, new or {}
        for name, mine in after.items():
            theirs = before.get(name)
            if mine is None and isinstance(theirs, dict | list):
                mine = type(theirs)()  # noqa: PLW2901 - emptied, and still there: only what it had is removed
            if mine is not theirs and mine != theirs:
                _compare_field(shape, name, theirs, mine, made)
        for name in [one for one in before if one not in after]:
            _compare_field(shape, name, before[name], None, made)
    return Differences(*made)


def _compare_field(shape: Type, name: str, old: Any, new: Any, made: _Made) -> None:
    field_type = _inner_type(shape, name)
    if field_type is None:
        return
    field = shape.fields.get(name) if isinstance(shape, Struct) else None
    if (old is None or new is None) and field is not None and _is_always_written(field):
        zero = _zero(field_type)
        if isinstance(field_type, ListOf) and (new if old is None else old) == []:
            made[1][f"f:{name}"] = {}  # an empty list in the place of null
            return
        old, new = zero if old is None else old, zero if new is None else new
    _compare_one(field_type, f"f:{name}", old, new, made)


def _is_always_written(field: Field) -> bool:
    """Return True for fields that Go writes even when empty: nested structs, and fields without omitempty."""
    return not field.omits_empty or (isinstance(field.type, Struct) and not field.is_pointer)


def _compare_one(shape: Type, element: str, old: Any, new: Any, made: _Made) -> None:
    """Compare two values; None stands for an absent one."""
    if old == new:
        return
    added, modified, removed = made
    if old is None or new is None:
        below = _all_fields(shape, new if old is None else old)
        (added if old is None else removed)[element] = {".": {}, **below} if below else {}
    elif is_leaf(shape, old) or is_leaf(shape, new):
        modified[element] = {}
    else:
        for node, found in zip(made, compare(shape, old, new), strict=True):
            if found:
                node[element] = found


def merge(shape: Type, live: Any, config: Any) -> Any:
    """Return ``live`` with ``config`` merged over it; fields that ``config`` does not specify stay."""
    if config is None and live is not None and not is_leaf(shape, live):
        return live  # a null claims the field without changing its content
    if config is None or live is None or is_leaf(shape, live) or is_leaf(shape, config):
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
    """Merge two lists in an order that keeps both where possible; ``config`` decides where they disagree."""
    held, given = _items_by_element(shape, live), _items_by_element(shape, config)
    mine, theirs = dict(reversed(held)), dict(reversed(given))
    order = [element for element, _ in given if element in mine]
    out: list[Any] = []
    done: set[str] = set()
    left = right = shared = 0
    while left < len(held) or right < len(given):
        if left < len(held):
            element, item = held[left]
            waits_for_other = shared < len(order) and order[shared] != element
            if right < len(given) and element != given[right][0] and element in theirs and waits_for_other:
                left += 1  # both lists have it, and config has it later
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


def _items_by_element(shape: ListOf, items: list[Any]) -> list[tuple[str, Any]]:
    return [(element_of(shape, item), item) for item in items]


def remove(shape: Type, value: Any, held: FieldSet) -> Any:
    """Return an object without the fields of a set and everything below them. Structs and lists that become empty turn
    into None.
    """
    if not held or not value or is_leaf(shape, value):
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


# -- type errors -------------------------------------------------------------------------------------------------------

_EXPECTED: Final = {
    "i": "numeric (int or float)", "f": "numeric (int or float)", "b": "boolean", "s": "string", "T": "string", "U": "string",
    "y": "string", "D": "string",
}  # fmt: skip


#: Position of a value: the path elements that lead to it, the last one first. Paths are built only for error messages,
#: as building one for every value below a long key would take quadratic time.
_Position: TypeAlias = tuple[Any, str] | None


def _path(position: _Position) -> str:
    steps: list[str] = []
    while position is not None:
        position, element = position
        steps.append(shown((element,)))
    return "".join(reversed(steps))


def type_faults(shape: Type, value: Any, position: _Position = None) -> Iterator[str]:
    """Yield the type errors of an apply configuration: unknown fields, wrong types and duplicate list items."""
    if value is None or shape is UNTYPED:
        return
    if isinstance(shape, Scalar):
        expected = _EXPECTED.get(shape.letter)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = {"i": is_number, "f": is_number, "b": isinstance(value, bool)}.get(shape.letter, isinstance(value, str))
        if expected is not None and not fits:
            yield f"{_path(position)}: expected {expected}, got {_value_shown(value, expected)}"
    elif isinstance(shape, ListOf):
        if not isinstance(value, list):
            yield f"{_path(position)}: expected list, got {_value_shown(value)}"
        else:
            yield from _list_faults(shape, value, position)
    elif not isinstance(value, dict):
        yield f"{_path(position)}: expected map, got {_value_shown(value)}"
    else:
        for name, inner in value.items():
            below = _inner_type(shape, name)
            if below is None:
                yield f"{_path((position, f'f:{name}'))}: field not declared in schema"
            else:
                yield from type_faults(below, inner, (position, f"f:{name}"))


def _value_shown(value: Any, expected: str = "") -> str:
    """Return a value the way structured-merge-diff shows it in a type error, which depends on the expected type."""
    if expected.startswith("numeric"):
        return {"object": "map[string]interface {}", "array": "[]interface {}"}.get(go_word(value), go_word(value))
    return f"&value.valueUnstructured{{Value:{_go_literal(value)}}}" if expected == "string" else f"&{{{go_value(value)}}}"


def _go_literal(value: Any) -> str:
    """Return a value in the format of Go's ``%#v``."""
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


def _list_faults(shape: ListOf, items: list[Any], position: _Position) -> Iterator[str]:
    if shape.is_atomic:
        for i, item in enumerate(items):
            yield from type_faults(shape.item, item, (position, f"i:{i}"))
        return
    seen: set[str] = set()
    for i, item in enumerate(items):
        if item is None:
            null = (
                "without keys has an element that's an explicit null"
                if shape.is_set
                else "with keys may not have a null element"
            )
            yield f"{_path(position)}: element {i}: associative list {null}"
            continue
        try:
            element = element_of(shape, item)
        except KeyError:
            what = "associative list with keys has an element that omits all key fields"
            keys = " ".join(map(json.dumps, shape.keys))
            yield f"{_path(position)}: element {i}: {what} [{keys}] (and doesn't have default values for any key fields)"
            continue
        if element in seen:
            yield f"{_path(position)}: duplicate entries for key {shown((element,))}"
        seen.add(element)
        yield from type_faults(shape.item, item, (position, element))
