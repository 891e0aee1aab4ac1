"""Patches: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch.

See ``strategic_merge`` for strategic merge patches. The functions do not modify their arguments.

Source  apiserver, pkg/endpoints/handlers/patch.go, for limits and errors
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

import msgspec

from moorage.api.documents.statuses import ApiError, bad_request, go_value, quoted, unknown
from moorage.api.schema.schemas import Field, ListOf, MapOf, Scalar, Struct, Type

MAX_OPERATIONS: Final = 10_000
#: Maximum number of bytes that the copy operations of one patch may add.
MAX_COPIED: Final = 3 << 20


class _PatchFailed(Exception):  # noqa: N818 - never leaves this module
    """An operation that cannot be applied."""


class PatchTestError(ApiError):
    """The error for a patch whose test does not hold."""


class _TestFailed(_PatchFailed):
    """A test that does not hold."""


def merge_patch(document: Any, patch: Any) -> Any:
    """Return a document with a JSON merge patch applied. Lists are replaced."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(document: Any, operations: Any) -> Any:
    """Return a document with a JSON patch applied, either completely or not at all.

    Raises  ApiError 413 for too many operations, 422 for one that cannot be applied
    """
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise ApiError(413, "RequestEntityTooLarge", message)
    root = {"": copy.deepcopy(document)}
    copied = 0
    for operation in operations:
        try:
            if operation.get("op") == "copy":
                copied += len(_encoded(_value_at(root, _path(operation, "from"))))
                if copied > MAX_COPIED:
                    grown = f"the accumulated size increase of copy is {copied}"
                    raise _PatchFailed(f"Unable to copy, {grown}, exceeding the limit {MAX_COPIED}")
            _OPERATIONS.get(str(operation.get("op")), _no_operation)(root, operation)
        except _PatchFailed as fault:
            message = "the server rejected our request due to an error in our request"
            error = PatchTestError if isinstance(fault, _TestFailed) else ApiError
            raise error(422, "Invalid", message, routed=False) from None
    return root[""]


# -- operations; the document is wrapped as {"": document}, so that the path "" needs no special case ------------------


def _no_operation(_: Any, operation: Mapping[str, Any]) -> None:
    raise _PatchFailed(f"Unexpected kind: {operation.get('op')}")


def _add(root: Any, operation: Mapping[str, Any]) -> None:
    _insert(root, _path(operation, "path"), _given(operation))


def _remove(root: Any, operation: Mapping[str, Any]) -> None:
    parent, key = _parent(root, _path(operation, "path"))
    if parent is root:
        raise _PatchFailed("the whole cannot be removed")
    _remove_at(parent, key)


def _replace(root: Any, operation: Mapping[str, Any]) -> None:
    """Replace a value. In an object the key need not exist, as in Kubernetes' patch library."""
    parent, key = _parent(root, _path(operation, "path"))
    if not isinstance(parent, dict):
        _step(parent, key)
    parent[int(key) if isinstance(parent, list) else key] = _given(operation)


def _move(root: Any, operation: Mapping[str, Any]) -> None:
    source, target = _path(operation, "from"), _path(operation, "path")
    if target[: len(source)] == source and len(target) > len(source):
        raise _PatchFailed("a value cannot be moved into itself")
    parent, key = _parent(root, source)
    _insert(root, target, _remove_at(parent, key))


def _copy(root: Any, operation: Mapping[str, Any]) -> None:
    # A JSON round trip is many times faster than deepcopy, and a patch may copy a million items.
    duplicate = msgspec.json.decode(_encoded(_value_at(root, _path(operation, "from"))))
    _insert(root, _path(operation, "path"), duplicate)


def _test(root: Any, operation: Mapping[str, Any]) -> None:
    held = _value_at(root, _path(operation, "path"))
    if held != operation.get("value") or isinstance(held, bool) is not isinstance(operation.get("value"), bool):
        raise _TestFailed(f"testing value {operation['path']} failed")


_OPERATIONS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], None]]] = {
    "add": _add, "copy": _copy, "move": _move, "remove": _remove, "replace": _replace, "test": _test,
}  # fmt: skip


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except RecursionError:
        raise _PatchFailed("what is to be copied is nested too deeply") from None


# -- paths -------------------------------------------------------------------------------------------------------------


def _given(operation: Mapping[str, Any]) -> Any:
    return copy.deepcopy(operation.get("value"))


def _path(operation: Mapping[str, Any], name: str) -> list[str]:
    """Return the steps of a JSON pointer. Text before the first slash is ignored."""
    path = operation.get(name)
    if not isinstance(path, str) or (path and "/" not in path):
        raise _PatchFailed(f"{operation.get('op')} operation with a wrong {name}: {path!r}")
    return ["", *(step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:])]


def _parent(root: Any, path: list[str]) -> tuple[Any, str]:
    return _value_at(root, path[:-1]), path[-1]


def _value_at(root: Any, path: list[str]) -> Any:
    current = root
    for key in path:
        current = _step(current, key)
    return current


def _step(current: Any, key: str) -> Any:
    if isinstance(current, dict) and key in current:
        return current[key]
    if isinstance(current, list):
        return current[_index(current, key, len(current) - 1)]
    raise _PatchFailed(f"doc is missing key: {key}")


def _index(current: list[Any], key: str, last: int) -> int:
    if not (key.isascii() and key.isdigit()) or len(key) > 9 or int(key) > last:
        raise _PatchFailed(f"invalid index: {key}; the list has {len(current)} items")
    return int(key)


def _remove_at(parent: Any, key: str) -> Any:
    taken = _step(parent, key)
    del parent[int(key) if isinstance(parent, list) else key]
    return taken


def _insert(root: Any, path: list[str], value: Any) -> None:
    parent, key = _parent(root, path)
    if isinstance(parent, list):
        parent.insert(len(parent) if key == "-" else _index(parent, key, len(parent)), value)
    elif isinstance(parent, dict):
        parent[key] = value
    else:
        raise _PatchFailed(f"doc is missing key: {key}")


# -- strategic merge ---------------------------------------------------------------------------------------------------
# Strategic merge patch: a merge patch that merges Kubernetes' associative lists item by item.
#
# Such a list is merged by its merge key; any other list is replaced. Directives express changes that a document cannot:
# ``$patch: delete`` and ``replace``, ``$deleteFromPrimitiveList/…``, ``$setElementOrder/…`` and ``$retainKeys``. The schemas
# of the served kinds define the merge keys.
#
# Source  apimachinery, pkg/util/strategicpatch/patch.go

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
