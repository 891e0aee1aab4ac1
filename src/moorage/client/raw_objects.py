"""Objects as the API server has them, for those who are shown more than scheduling reads: extenders.

Kept are nodes, and pods that are on none, as JSON without ``managedFields``. Everybody else works with ``moorage.api``.
"""

from __future__ import annotations

import msgspec

from moorage.api.core import Node, Pod
from moorage.api.meta import Object

__all__ = ["WholeObjects"]


class WholeObjects:
    """The latest JSON of each node and each pending pod."""

    def __init__(self) -> None:
        self._json: dict[tuple[type[Object], str], bytes] = {}

    def __len__(self) -> int:
        return len(self._json)

    def note(self, obj: Object, json: bytes) -> None:
        """Keep an object's JSON, if it is of a kind that somebody may be shown."""
        if isinstance(obj, Pod) and obj.spec.node_name:
            self.drop(obj)
        elif isinstance(obj, Node | Pod):
            self._json[type(obj), _identity(obj)] = _without_managers(json)

    def drop(self, obj: Object) -> None:
        """Forget an object that is gone, or that nobody is shown any more."""
        if isinstance(obj, Node | Pod):
            self._json.pop((type(obj), _identity(obj)), None)

    def json_of(self, obj: Node | Pod) -> bytes | None:
        """Return the latest JSON of an object; None if it was not kept."""
        return self._json.get((type(obj), _identity(obj)))


def _identity(obj: Node | Pod) -> str:
    return obj.metadata.uid or obj.metadata.name


def _without_managers(json: bytes) -> bytes:
    if b'"managedFields"' not in json:
        return json
    plain = msgspec.json.decode(json)
    plain.get("metadata", {}).pop("managedFields", None)
    return msgspec.json.encode(plain)
