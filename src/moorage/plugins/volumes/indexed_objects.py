"""An index of the objects of a kind by a key of the caller's choice, with a value derived once from each object."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from moorage.api.meta import Object
from moorage.state.view import Snapshot

_IndexKey = TypeVar("_IndexKey", bound=Object)
V = TypeVar("V")
_NONE: Mapping[str, Any] = {}


class IndexedObjects(Generic[_IndexKey, V]):
    """Follows the change log of a snapshot; unchanged objects are not looked at again.

    ``place`` returns the key an object is filed under (None: not filed), ``derive`` the value kept for it. Values under one key
    are in the order they were filed. ``on_change`` is called for each change with the object's name, the old and the new value.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        kind: type[_IndexKey],
        place: Callable[[_IndexKey], Hashable | None],
        derive: Callable[[_IndexKey], V],
        on_change: Callable[[str, V | None, V | None], None] | None = None,
    ) -> None:
        self._objects = snapshot.objects(kind)
        self._journal = snapshot.changes_of(kind)
        self._place = place
        self._derive = derive
        self._on_change = on_change
        self._position: int | None = None
        self._at: dict[Hashable, dict[str, V]] = {}
        self._place_of: dict[str, Hashable] = {}

    def follow(self) -> None:
        """Apply the changes since the last call. Call this before ``at``."""
        changed = None if self._position is None else self._journal.since(self._position)
        if changed is None:
            changed = [*self._place_of, *self._objects]
        self._position = self._journal.position
        for key in dict.fromkeys(changed):
            self._refile(key, self._objects.get(key))

    def at(self, place: Hashable) -> Mapping[str, V]:
        """Return the values filed under a key, by the objects' names."""
        return self._at.get(place, _NONE)

    def _refile(self, key: str, obj: _IndexKey | None) -> None:
        before = self._place_of.get(key)
        after = None if obj is None else self._place(obj)
        old = None if before is None else self._at[before][key]
        new = None if obj is None or after is None else self._derive(obj)
        if before is not None and before != after:
            there = self._at[before]
            del there[key], self._place_of[key]
            if not there:
                del self._at[before]
        if new is not None and after is not None:
            self._place_of[key] = after
            self._at.setdefault(after, {})[key] = new
        if self._on_change is not None and not (old is None and new is None):
            self._on_change(key, old, new)
