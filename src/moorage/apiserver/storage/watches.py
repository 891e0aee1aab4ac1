"""A watch as a place in history: what it has yet to show is read from there, piece by piece, when its reader takes it.

A watch may begin with the objects there are. They are listed in the order of their keys, piece by piece as well: before each
piece the watch shows what happened meanwhile to those it has listed, so at the end of the list its reader knows exactly what
there is then. So a watch never holds more than the piece that its reader takes, however many objects there are and however
slowly they are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from moorage.apiserver.storage.kind_stores import KindStore, between
from moorage.apiserver.storage.list_selection import Selection
from moorage.apiserver.storage.watch_cache import Change
from moorage.apiserver.vocabulary.records import Record

__all__ = ["LOOKS", "Watch", "WatchedObject"]

#: How many changes and objects are looked at for one piece: a watch that chooses few of many is not to hold the server.
LOOKS: Final = 2048


class WatchedObject(NamedTuple):
    """A change as a watch sees it: ADDED, MODIFIED or DELETED, at a version. ``listed``: it was there when the watch began."""

    type: str
    held: Record
    version: int
    listed: bool = False

    @property
    def record(self) -> Record:
        """The object as it is shown; one that left a selection is shown as the watch knew it, with the version it left at."""
        return self.held if self.held.version == self.version else self.held.as_of(self.version)


class Watch:
    """The changes of one kind within a selection, and after a version; ``lists`` has it begin with the objects there are.

    ``wake`` is called when there is something to take, or no more to come. ``idle`` says that nothing is left to take.
    """

    def __init__(
        self, shelf: KindStore, chosen: Selection, wake: Callable[[], None], after: int, *, lists: bool = False
    ) -> None:
        self.chosen = chosen
        self.closed = False
        self.idle = False
        self._shelf = shelf
        self._wake = wake
        #: All changes up to this version are shown, or do not matter.
        self._position = after
        #: The key up to which objects are listed; None when all are.
        self._listed: str | None = "" if lists else None

    def offer(self, change: Change) -> None:
        """Note that there is a change. A watch that history leaves behind ends."""
        if not self.idle:
            if self._position < self._shelf.history.floor:
                self._end()
        elif change.version > self._position:
            if self._seen(change) is None:
                self._position = change.version
            else:
                self.idle = False
                self._wake()

    def take(self, most_bytes: int = sys.maxsize) -> list[WatchedObject]:
        """Return what comes next, oldest first: at most so many bytes, and what makes them full.

        A piece may be empty though more is to come, where little is chosen of much; ``idle`` tells.
        """
        piece = _Piece(most_bytes)
        if self.closed or self._position < self._shelf.history.floor:
            self._end()
        elif self._show_changes(piece) and (self._listed is None or self._list(piece)):
            self.idle = True
        return piece.seen

    def _end(self) -> None:
        if not self.closed:
            self.closed = True
            self._wake()

    def _show_changes(self, piece: _Piece) -> bool:
        """Put what happened into a piece; False if it is full before all is in."""
        for change in self._shelf.history.since(self._position):
            if piece.is_full:
                return False
            piece.look(self._seen(change))
            self._position = change.version
        return True

    def _list(self, piece: _Piece) -> bool:
        """Put the next objects into a piece; False if it is full before all are in."""
        keys, records = self._shelf.keys, self._shelf.records
        for i in between(keys, self.chosen.namespace, self._listed or ""):
            if piece.is_full:
                return False
            record = records[keys[i]]
            piece.look(WatchedObject("ADDED", record, record.version, listed=True) if self.chosen.matches(record) else None)
            self._listed = keys[i]
        self._listed = None
        return True

    def _seen(self, change: Change) -> WatchedObject | None:
        version, before, after, gone = change
        if self._listed is not None and after.key > self._listed:
            return None  # what is not listed yet is listed as it is then
        was = before is not None and self.chosen.matches(before)
        if gone:
            return WatchedObject("DELETED", after, version) if was else None
        if self.chosen.matches(after):
            return WatchedObject("MODIFIED" if was else "ADDED", after, version)
        # It left the selection: what watches see go is the object as they knew it.
        return WatchedObject("DELETED", before, version) if was and before is not None else None


class _Piece:
    """What a reader takes at once, with how much more may be put in."""

    __slots__ = ("_looks", "_room", "seen")

    def __init__(self, most_bytes: int) -> None:
        self.seen: list[WatchedObject] = []
        self._room = most_bytes
        self._looks = LOOKS if most_bytes < sys.maxsize else sys.maxsize

    @property
    def is_full(self) -> bool:
        return self._room <= 0 or self._looks <= 0

    def look(self, seen: WatchedObject | None) -> None:
        """Count a change or an object that was looked at, and put in what is chosen of it."""
        self._looks -= 1
        if seen is not None:
            self.seen.append(seen)
            self._room -= len(seen.held.body)
