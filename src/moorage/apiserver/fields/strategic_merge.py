"""Strategic merge patch: a merge patch that merges Kubernetes' associative lists item by item.

Such a list is merged by its merge key; any other list is replaced. Directives express what a tree cannot: ``$patch:
delete`` and ``replace``, ``$deleteFromPrimitiveList/…``, ``$setElementOrder/…`` and ``$retainKeys``. The schemas of the
served kinds define the merge keys.

Source  apimachinery, pkg/util/strategicpatch/patch.go
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

import msgspec

from moorage.apiserver.schema.schemas import Field, ListOf, MapOf, Struct, Type, kind_schema
from moorage.apiserver.vocabulary.go_messages import go_value
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import bad_request, unknown

__all__ = ["strategic_merge"]

_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def strategic_merge(kind: ServedKind, document: Any, patch: Any) -> Any:
    """Return a document with a strategic merge patch applied.

    Raises  ApiError 400 or 500 for a patch that contradicts itself or does not match the document's structure
    """
    if not isinstance(patch, dict):
        raise bad_request("the patch must be an object")
    return _merge_map(document, patch, kind_schema(kind))


def _merge_map(current: Any, patch: dict[str, Any], shape: Type | None) -> dict[str, Any]:
    directive = patch.get("$patch", "merge")
    if directive == "delete":
        return {}
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive != "merge":
        raise unknown(f"unknown patch type: {go_value(directive)} in map: {go_value(patch)}")
    merged = dict(current) if isinstance(current, dict) else {}
    if "$retainKeys" in patch:
        retained = {_mark(one) for one in _list(patch["$retainKeys"], "$retainKeys")}
        if any(key not in retained for key in patch if not key.startswith("$")):
            raise bad_request("invalid patch format of retainKeys")
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            name, removed = key.removeprefix(_DELETE_FROM), {_mark(one) for one in _list(value, key)}
            merged[name] = [one for one in merged.get(name) or [] if _mark(one) not in removed]
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(merged.get(key), value, shape, key)
    _set_orders(merged, current if isinstance(current, dict) else {}, patch, _fields(shape))
    return merged


def _fields(shape: Type | None) -> Mapping[str, Field]:
    return shape.fields if isinstance(shape, Struct) else {}


def _list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request(f"{key} must be a list")
    return value


def _merge_value(current: Any, value: Any, shape: Type | None, key: str) -> Any:
    field = _fields(shape).get(key)
    if isinstance(value, dict):
        inner = field.type if field else shape.item if isinstance(shape, MapOf) else None
        return _merge_map(current, value, inner)
    if not isinstance(value, list) or field is None or not field.merges or not isinstance(field.type, ListOf):
        return value
    held = current if isinstance(current, list) else []
    if not field.merge_key:
        marks = {_mark(one) for one in held}
        return held + [one for one in value if _mark(one) not in marks]
    return _merge_list(held, value, field.merge_key, field.type.item)


def _merge_list(current: list[Any], patch: list[Any], by: str, shape: Type) -> list[Any]:
    """Merge an associative list by its merge key; ``_set_orders`` orders the result."""
    if any(isinstance(one, dict) and one.get("$patch") == "replace" and by not in one for one in patch):
        return [one for one in patch if not (isinstance(one, dict) and "$patch" in one)]
    merged = list(current)
    places: dict[Hashable, list[int]] = {}
    for i, one in enumerate(current):
        if isinstance(one, dict):
            places.setdefault(_mark(one.get(by)), []).append(i)
    for item in patch:
        if not isinstance(item, dict) or (by not in item and current):
            raise unknown(f"map: {go_value(item)} does not contain declared merge key: {by}")
        mark = _mark(item[by]) if by in item else _NAMELESS
        if mark is not _NAMELESS and item.get("$patch") == "delete":
            for at in places.pop(mark, ()):
                merged[at] = _DELETED
        elif mark in places:
            at = places[mark][0]
            merged[at] = _merge_map(merged[at], item, shape)
        else:
            if mark is not _NAMELESS:
                places[mark] = [len(merged)]
            merged.append(_merge_map({}, item, shape))
    return [one for one in merged if one is not _DELETED]


#: Marks a deleted list item, and stands for the key of an item without one.
_DELETED: Final = object()
_NAMELESS: Final = object()


def _mark(value: Any) -> Hashable:
    """Return a hashable that is equal for equal values; lists and objects are encoded as JSON."""
    return (msgspec.json.encode(value, order="deterministic"),) if isinstance(value, (dict, list)) else value


def _set_orders(merged: dict[str, Any], before: dict[str, Any], patch: dict[str, Any], fields: Mapping[str, Field]) -> None:
    """Order the items of merged lists by the patch's ``$setElementOrder`` directive or, without one, by the patch's list."""
    orders = {key: value for key, value in patch.items() if isinstance(value, list) and not key.startswith("$")}
    for key, value in patch.items():
        if key.startswith(_ORDER):
            _check_order(patch, key.removeprefix(_ORDER), _list(value, key), fields)
    orders |= {key.removeprefix(_ORDER): _list(value, key) for key, value in patch.items() if key.startswith(_ORDER)}
    for name, order in orders.items():
        held, field = before.get(name), fields.get(name)
        if field is not None and field.merges and isinstance(held, list) and isinstance(merged.get(name), list):
            merged[name] = _ordered(merged[name], order, held, field.merge_key or None)


def _check_order(patch: dict[str, Any], name: str, order: list[Any], fields: Mapping[str, Field]) -> None:
    """Check that the items of a patch's list appear in its ``$setElementOrder`` list, in the same order.

    Raises  ApiError 500, as in kube-apiserver
    """
    field, given = fields.get(name), patch.get(name)
    if field is None or not isinstance(given, list):
        return
    by = field.merge_key
    kept = [one for one in given if not (isinstance(one, dict) and one.get("$patch") == "delete")]
    rest = iter([one.get(by) if by and isinstance(one, dict) else one for one in order])
    if not all((one.get(by) if by and isinstance(one, dict) else one) in rest for one in kept):
        why = f"The order in patch list:\n{go_value(given)}\n doesn't match $setElementOrder list:\n{go_value(order)}\n"
        raise unknown(why)


def _ordered(items: list[Any], order: list[Any], before: list[Any], by: str | None) -> list[Any]:
    """Merge the items in the patch's order with those only on the server; items in both lists keep the order that they had."""

    name = _identity_by(by)
    wanted, old_position = _firsts(map(name, order)), _firsts(map(name, before))
    named = sorted((one for one in items if name(one) in wanted), key=lambda one: wanted[name(one)])
    server_only = [one for one in items if name(one) not in wanted]
    merged: list[Any] = []
    i = k = 0
    while i < len(named) and k < len(server_only):
        left, right = old_position.get(name(server_only[k])), old_position.get(name(named[i]))
        if left is not None and right is not None and left < right:
            merged.append(server_only[k])
            k += 1
        else:
            merged.append(named[i])
            i += 1
    return merged + named[i:] + server_only[k:]


def _identity_by(by: str | None) -> Callable[[Any], Hashable]:
    """Return the identity function of a list's items: by merge key, or by value."""
    return lambda item: _mark(item.get(by) if by and isinstance(item, dict) else item)


def _firsts(names: Iterable[Hashable]) -> dict[Hashable, int]:
    """Return the index of the first occurrence of each name."""
    places: dict[Hashable, int] = {}
    for i, name in enumerate(names):
        places.setdefault(name, i)
    return places
