"""Strategic merge patch: a merge patch that merges Kubernetes' associative lists item by item.

Such a list is merged by its merge key; any other list is replaced. Directives express changes that a document cannot:
``$patch: delete`` and ``replace``, ``$deleteFromPrimitiveList/…``, ``$setElementOrder/…`` and ``$retainKeys``. The schemas
of the served kinds define the merge keys.

Source  apimachinery, pkg/util/strategicpatch/patch.go
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

import msgspec

from moorage.api.documents.statuses import bad_request, go_value, quoted, unknown
from moorage.api.schema.field_types import Field, ListOf, MapOf, Scalar, Struct, Type

_DELETE_FROM: Final = "$deleteFromPrimitiveList"
_ORDER: Final = "$setElementOrder"
_RETAIN: Final = "$retainKeys"


def strategic_merge(shape: Struct, document: Any, patch: Any) -> Any:
    """Return a document of a schema with a strategic merge patch applied.

    Raises  ApiError 400 or 500 for a patch that contradicts itself or does not match the document's structure
    """
    if not isinstance(patch, dict):
        raise bad_request("the patch must be an object")
    return _merge_map(document, patch, shape)


def _merge_map(current: Any, patch: dict[str, Any], shape: Type | None) -> dict[str, Any]:
    directive = patch.get("$patch", "merge")
    if directive == "delete":
        return {}
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive != "merge":
        raise unknown(f"unknown patch type: {go_value(directive)} in map: {go_value(patch)}")
    before = current if isinstance(current, dict) else {}
    merged = _retained(before, patch)
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            _delete_from(merged, _listed(key, _DELETE_FROM, "primitive list"), value, shape)
        elif value is None:
            merged.pop(key, None)
        elif key != _RETAIN and not key.startswith(_ORDER):
            _set(merged, key, value, shape)
    _set_orders(merged, before, patch, shape)
    return merged


def _retained(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a map that the patch's ``$retainKeys`` directive retains."""
    if _RETAIN not in patch:
        return dict(current)
    if not isinstance(patch[_RETAIN], list):
        raise bad_request("invalid patch format of retainKeys")
    retained = {_mark(one) for one in patch[_RETAIN]}
    directives = (_RETAIN, _DELETE_FROM, _ORDER)
    if any(value is not None and key not in retained and not key.startswith(directives) for key, value in patch.items()):
        raise bad_request("invalid patch format of retainKeys")
    return {key: value for key, value in current.items() if key in retained}


def _listed(key: str, directive: str, what: str) -> str:
    """Return the name of the list that the key of a directive contains after the slash."""
    head, slash, name = key.partition("/")
    if head != directive or not slash:
        raise bad_request(f"invalid patch format of {what}")
    return name


def _delete_from(merged: dict[str, Any], name: str, removed: Any, shape: Type | None) -> None:
    """Delete values from a list. A directive that is no list, or names no list, has no effect."""
    held = merged.get(name)
    if removed is None:
        merged.pop(name, None)
    elif isinstance(held, list) and isinstance(removed, list):
        _field(shape, name)
        marks = {_mark(one) for one in removed}
        merged[name] = [one for one in held if _mark(one) not in marks]


def _set(merged: dict[str, Any], key: str, value: Any, shape: Type | None) -> None:
    """Merge a value into the field of a map."""
    held = merged.get(key)
    if isinstance(value, dict | list) and type(held) is type(value):
        merged[key] = _merge_value(held, value, shape, key)
        return
    made = _without_directives(value)
    if made is _DELETED:
        merged.pop(key, None)
    else:
        merged[key] = made


def _without_directives(value: Any) -> Any:
    """Return a new value without nulls, and without the maps in it that have a directive."""
    if isinstance(value, dict):
        if "$patch" in value:
            return _DELETED
        cleaned = {key: _without_directives(inner) for key, inner in value.items() if inner is not None}
        return {key: inner for key, inner in cleaned.items() if inner is not _DELETED}
    if isinstance(value, list):
        return [made for one in value if (made := _without_directives(one)) is not _DELETED]
    return value


def _fields(shape: Type | None) -> Mapping[str, Field]:
    return shape.fields if isinstance(shape, Struct) else {}


def _field(shape: Type | None, key: str) -> Field | None:
    """Return a field of a struct; None for a map.

    Raises  ApiError 500 if the struct does not have it
    """
    is_raw = isinstance(shape, Scalar) and shape.letter == "R"
    if is_raw or (isinstance(shape, Struct) and key not in shape.fields):
        name = "RawExtension" if not isinstance(shape, Struct) else shape.full_go.rpartition(".")[2]
        raise unknown(f"unable to find api field in struct {name} for the json field {quoted(key)}")
    return _fields(shape).get(key)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise unknown(f"expected a []interface {{}}, but received a {_GO_TYPES.get(type(value), '%!s(<nil>)')}")
    return value


_GO_TYPES: Final = {bool: "bool", dict: "map[string]interface {}", float: "float64", int: "int64", str: "string"}


def _merge_value(current: Any, value: Any, shape: Type | None, key: str) -> Any:
    """Merge a map into a map, or a list into a list."""
    field = _field(shape, key)
    if isinstance(value, dict):
        inner = field.type if field else shape.item if isinstance(shape, MapOf) else None
        return _merge_map(current, value, inner)
    if field is None or not field.merges or not isinstance(field.type, ListOf):
        return value
    if not field.merge_key:
        marks = {_mark(one) for one in current}
        return current + [one for one in value if _mark(one) not in marks]
    return _merge_list(current, value, field.merge_key, field.type.item)


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
        if not isinstance(item, dict) or by not in item:
            raise unknown(f"map: {go_value(item)} does not contain declared merge key: {by}")
        mark = _mark(item[by])
        if item.get("$patch") == "delete":
            for at in places.pop(mark, ()):
                merged[at] = _DELETED
        elif mark in places:
            at = places[mark][0]
            merged[at] = _merge_map(merged[at], item, shape)
        else:
            places[mark] = [len(merged)]
            merged.append(item)
    return [one for one in merged if one is not _DELETED]


#: Marks a deleted value.
_DELETED: Final = object()


def _mark(value: Any) -> Hashable:
    """Return a hashable that is equal for equal values; lists and objects are encoded as JSON."""
    return (msgspec.json.encode(value, order="deterministic"),) if isinstance(value, (dict, list)) else value


def _set_orders(merged: dict[str, Any], before: dict[str, Any], patch: dict[str, Any], shape: Type | None) -> None:
    """Order the items of merged lists by the patch's ``$setElementOrder`` directive or, without one, by the patch's list."""
    fields = _fields(shape)
    orders = {key: value for key, value in patch.items() if isinstance(value, list) and not key.startswith("$")}
    for key, value in patch.items():
        if key.startswith(_ORDER):
            order, name = _list(value), _listed(key, _ORDER, "setElementOrder list")
            _field(shape, name)
            _check_order(patch, name, order, fields)
            orders[name] = order
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

    def name(item: Any) -> Hashable:
        return _mark(item.get(by) if by and isinstance(item, dict) else item)

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


def _firsts(names: Iterable[Hashable]) -> dict[Hashable, int]:
    """Return the index of the first occurrence of each name."""
    places: dict[Hashable, int] = {}
    for i, name in enumerate(names):
        places.setdefault(name, i)
    return places
