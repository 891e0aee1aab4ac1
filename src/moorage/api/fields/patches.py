"""Patches: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch.

See ``strategic_merge`` for strategic merge patches. The functions do not modify their arguments.

Source  apiserver, pkg/endpoints/handlers/patch.go, for limits and errors
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from moorage.api.documents.statuses import ApiError

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
