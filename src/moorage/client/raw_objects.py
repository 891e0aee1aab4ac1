"""The raw JSON of objects for extenders, which receive more fields than scheduling decodes.

Stores nodes and unassigned pods, without ``managedFields``. All other code uses ``moorage.api``.
"""

from __future__ import annotations

import msgspec

from moorage.api.core import Node, Pod
from moorage.api.meta import Object

__all__ = ["RawObjects"]


class RawObjects:
    """The latest JSON of each node and each pending pod."""

    def __init__(self) -> None:
        self._json: dict[tuple[type[Object], str], bytes] = {}

    def __len__(self) -> int:
        return len(self._json)

    def store(self, obj: Object, json: bytes) -> None:
        """Store an object's JSON if it is a node or a pending pod."""
        if isinstance(obj, Pod) and obj.spec.node_name:
            self.drop(obj)
        elif isinstance(obj, Node | Pod):
            self._json[type(obj), _identity(obj)] = _without_managers(json)

    def drop(self, obj: Object) -> None:
        """Remove a deleted object, or one that extenders no longer receive."""
        if isinstance(obj, Node | Pod):
            self._json.pop((type(obj), _identity(obj)), None)

    def json_of(self, obj: Node | Pod) -> bytes | None:
        """Return the latest JSON of an object, or None if it is not stored."""
        return self._json.get((type(obj), _identity(obj)))


def _identity(obj: Node | Pod) -> str:
    return obj.metadata.uid or obj.metadata.name


def _without_managers(json: bytes) -> bytes:
    if b'"managedFields"' not in json:
        return json
    plain = msgspec.json.decode(json)
    plain.get("metadata", {}).pop("managedFields", None)
    return msgspec.json.encode(plain)
