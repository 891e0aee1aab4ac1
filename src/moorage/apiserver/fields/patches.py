"""Patches: what a client wants changed about an object, in the three dialects that change it piece by piece.

JSON patch (RFC 6902) is a list of operations, merge patch (RFC 7386) is a tree whose nulls delete, and a strategic merge
patch is such a tree that knows Kubernetes' lists: see ``strategic``. What they are given stays as it is.

Source  apiserver, pkg/endpoints/handlers/patch.go, for limits and refusals
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from moorage.apiserver.vocabulary.statuses import ApiError

__all__ = ["MAX_COPIED", "MAX_OPERATIONS", "json_patch", "merge_patch"]

MAX_OPERATIONS: Final = 10_000
#: What the copy operations of one patch may add, in bytes.
MAX_COPIED: Final = 3 << 20


class _Failed(Exception):  # noqa: N818 - never leaves this module
    """An operation that cannot be carried out."""


def merge_patch(document: Any, patch: Any) -> Any:
    """Return a document with a merge patch applied. Lists are replaced."""
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
    """Return a document with a JSON patch applied: all of it, or none.

    Raises  ApiError 413 for too many operations, 422 for one that cannot be carried out
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
                    raise _Failed(f"Unable to copy, {grown}, exceeding the limit {MAX_COPIED}")
            _OPERATIONS.get(str(operation.get("op")), _no_operation)(root, operation)
        except _Failed:
            message = "the server rejected our request due to an error in our request"
            raise ApiError(422, "Invalid", message, routed=False) from None
    return root[""]


# -- operations: the document hangs under an empty key, so that "" is a path like any other -----------------------------


def _no_operation(_: Any, operation: Mapping[str, Any]) -> None:
    raise _Failed(f"Unexpected kind: {operation.get('op')}")


def _add(root: Any, operation: Mapping[str, Any]) -> None:
    _insert(root, _path(operation, "path"), _given(operation))


def _remove(root: Any, operation: Mapping[str, Any]) -> None:
    parent, key = _parent(root, _path(operation, "path"))
    if parent is root:
        raise _Failed("the whole cannot be removed")
    _take(parent, key)


def _replace(root: Any, operation: Mapping[str, Any]) -> None:
    """Put a value in the place of another. Of an object it need not be there: Kubernetes' patches never asked for that."""
    parent, key = _parent(root, _path(operation, "path"))
    if not isinstance(parent, dict):
        _step(parent, key)
    parent[int(key) if isinstance(parent, list) else key] = _given(operation)


def _move(root: Any, operation: Mapping[str, Any]) -> None:
    source, target = _path(operation, "from"), _path(operation, "path")
    if target[: len(source)] == source and len(target) > len(source):
        raise _Failed("a value cannot be moved into itself")
    parent, key = _parent(root, source)
    _insert(root, target, _take(parent, key))


def _copy(root: Any, operation: Mapping[str, Any]) -> None:
    # Many times as fast as copying item by item; a patch may copy a million of them.
    twin = msgspec.json.decode(_encoded(_value_at(root, _path(operation, "from"))))
    _insert(root, _path(operation, "path"), twin)


def _test(root: Any, operation: Mapping[str, Any]) -> None:
    held = _value_at(root, _path(operation, "path"))
    if held != operation.get("value") or isinstance(held, bool) is not isinstance(operation.get("value"), bool):
        raise _Failed(f"testing value {operation['path']} failed")


_OPERATIONS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], None]]] = {
    "add": _add, "copy": _copy, "move": _move, "remove": _remove, "replace": _replace, "test": _test,
}  # fmt: skip


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except RecursionError:
        raise _Failed("what is to be copied is nested too deeply") from None


# -- paths --------------------------------------------------------------------------------------------------------------


def _given(operation: Mapping[str, Any]) -> Any:
    return copy.deepcopy(operation.get("value"))


def _path(operation: Mapping[str, Any], name: str) -> list[str]:
    """Return the steps of a path. What comes before its first slash does not count."""
    path = operation.get(name)
    if not isinstance(path, str) or (path and "/" not in path):
        raise _Failed(f"{operation.get('op')} operation with a wrong {name}: {path!r}")
    return ["", *(step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:])]


def _parent(root: Any, path: list[str]) -> tuple[Any, str]:
    return _value_at(root, path[:-1]), path[-1]


def _value_at(root: Any, path: list[str]) -> Any:
    here = root
    for key in path:
        here = _step(here, key)
    return here


def _step(here: Any, key: str) -> Any:
    if isinstance(here, dict) and key in here:
        return here[key]
    if isinstance(here, list):
        return here[_index(here, key, len(here) - 1)]
    raise _Failed(f"doc is missing key: {key}")


def _index(here: list[Any], key: str, last: int) -> int:
    if not (key.isascii() and key.isdigit()) or len(key) > 9 or int(key) > last:
        raise _Failed(f"invalid index: {key}; the list has {len(here)} items")
    return int(key)


def _take(parent: Any, key: str) -> Any:
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
        raise _Failed(f"doc is missing key: {key}")
