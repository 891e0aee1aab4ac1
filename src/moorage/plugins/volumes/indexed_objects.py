"""Objects of a kind filed where they are looked for, with what is asked of each worked out once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from moorage.api.meta import Value
from moorage.state.cluster import Snapshot

__all__ = ["Filed"]

K = TypeVar("K", bound=Value)
V = TypeVar("V")
_NONE: Mapping[str, Any] = {}


class Filed(Generic[K, V]):
    """Keeps up with a snapshot by its journal: what did not change is not looked at again.

    ``place`` says where an object is filed (None: nowhere), ``derive`` what is kept of it there. Under one place things stand
    in the order they came to it. ``told`` hears of each change: an object's key, what was kept of it and what is kept now.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        kind: type[K],
        place: Callable[[K], Hashable | None],
        derive: Callable[[K], V],
        told: Callable[[str, V | None, V | None], None] | None = None,
    ) -> None:
        self._objects = snapshot.objects(kind)
        self._journal = snapshot.changes_of(kind)
        self._place = place
        self._derive = derive
        self._told = told
        self._position: int | None = None
        self._at: dict[Hashable, dict[str, V]] = {}
        self._place_of: dict[str, Hashable] = {}

    def follow(self) -> None:
        """Bring the files up to date. Call before ``at``."""
        changed = None if self._position is None else self._journal.since(self._position)
        if changed is None:
            changed = [*self._place_of, *self._objects]
        self._position = self._journal.position
        for key in dict.fromkeys(changed):
            self._refile(key, self._objects.get(key))

    def at(self, place: Hashable) -> Mapping[str, V]:
        """Return what is filed at a place, by the objects' keys."""
        return self._at.get(place, _NONE)

    def _refile(self, key: str, obj: K | None) -> None:
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
        if self._told is not None and not (old is None and new is None):
            self._told(key, old, new)
