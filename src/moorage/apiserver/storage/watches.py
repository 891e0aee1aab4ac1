"""Watches as positions in the watch cache: the reader takes pending events in pieces.

A watch may start with the existing objects, listed in key order, also in pieces. Before each piece it emits the changes
since the last one to objects already listed, so at the end of the list the reader knows the current state. A watch
therefore holds at most one piece, however many objects there are and however slowly they are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from moorage.apiserver.storage.kind_stores import KindStore, between
from moorage.apiserver.storage.list_selection import Selection
from moorage.apiserver.storage.watch_cache import StoreChange
from moorage.apiserver.vocabulary.records import Record

__all__ = ["MAX_EXAMINED", "Watch", "WatchedObject"]

#: Maximum number of changes and objects examined for one piece, so that a watch that selects few of many does not
#: block the server.
MAX_EXAMINED: Final = 2048


class WatchedObject(NamedTuple):
    """A watch event: ADDED, MODIFIED or DELETED, at a version. ``listed`` marks objects of the initial list."""

    type: str
    held: Record
    version: int
    listed: bool = False

    @property
    def record(self) -> Record:
        """The object to send. One that left the selection is sent in its last matching version, with the version of the
        change.
        """
        return self.held if self.held.version == self.version else self.held.as_of(self.version)


class Watch:
    """A watch of the selected objects of one kind after a version; with ``lists``, it starts with the existing objects.

    ``wake`` is called when events become available or the watch ends. ``idle`` is True when no event is pending. ``view``
    converts the stored objects to the version that is watched.
    """

    def __init__(
        self, kind_store: KindStore, selection: Selection, wake: Callable[[], None], after: int, *, lists: bool = False,
        view: Callable[[Record], Record] | None = None,
    ) -> None:  # fmt: skip
        self.selection = selection
        self.closed = False
        self.idle = False
        self._is_last = False
        self._kind_store = kind_store
        self._wake = wake
        self._view = view
        #: Changes up to this version have been sent, or do not match.
        self._position = after
        #: Key up to which objects are listed; None when all are.
        self._listed: str | None = "" if lists else None

    def on_change(self, change: StoreChange) -> None:
        """Handle a new change. The watch ends if the cache no longer covers its position."""
        if not self.idle:
            if self._position < self._kind_store.history.floor:
                self.end()
        elif change.version > self._position:
            if self._event_of(change) is None:
                self._position = change.version
            else:
                self.idle = False
                self._wake()

    def take(self, most_bytes: int = sys.maxsize) -> list[WatchedObject]:
        """Return the next events, oldest first, up to ``most_bytes``; the event that exceeds it is included.

        The result may be empty although events are pending, if few of many objects match; check ``idle``.
        """
        piece = _Piece(most_bytes)
        if self.closed or self._position < self._kind_store.history.floor:
            self.end()
        elif self._add_changes(piece) and (self._listed is None or self._add_objects(piece)):
            self.idle = True
            if self._is_last:
                self.end()
        return piece.events

    def end(self) -> None:
        """End the watch; its reader can resume with another one."""
        if not self.closed:
            self.closed = True
            self._wake()

    def finish(self) -> None:
        """End the watch once all pending events are taken; there will be no others."""
        self._is_last = True
        if self.idle:
            self.end()

    def _add_changes(self, piece: _Piece) -> bool:
        """Add pending changes to a piece; return False if it fills up before all are added."""
        for change in self._kind_store.history.since(self._position):
            if piece.is_full:
                return False
            piece.examine(self._event_of(change))
            self._position = change.version
        return True

    def _add_objects(self, piece: _Piece) -> bool:
        """Add the next objects to a piece; return False if it fills up before all are added."""
        keys, records = self._kind_store.keys, self._kind_store.records
        for i in between(keys, self.selection.namespace, self._listed or ""):
            if piece.is_full:
                return False
            record = self._shown(records[keys[i]])
            piece.examine(
                WatchedObject("ADDED", record, record.version, listed=True) if self.selection.matches(record) else None
            )
            self._listed = keys[i]
        self._listed = None
        return True

    def _shown(self, record: Record) -> Record:
        return record if self._view is None else self._view(record)

    def _event_of(self, change: StoreChange) -> WatchedObject | None:
        version, before, after, gone = change
        if self._listed is not None and after.key > self._listed:
            return None  # not listed yet; the list will show its later state
        if self._view is not None:
            before, after = None if before is None else self._view(before), self._view(after)
        matched = before is not None and self.selection.matches(before)
        if gone:
            return WatchedObject("DELETED", after, version) if matched else None
        if self.selection.matches(after):
            return WatchedObject("MODIFIED" if matched else "ADDED", after, version)
        # It no longer matches: watchers get its last matching version as deleted.
        return WatchedObject("DELETED", before, version) if matched and before is not None else None


class _Piece:
    """A piece of events under construction, with its remaining capacity."""

    __slots__ = ("_bytes_left", "_left_to_examine", "events")

    def __init__(self, most_bytes: int) -> None:
        self.events: list[WatchedObject] = []
        self._bytes_left = most_bytes
        self._left_to_examine = MAX_EXAMINED if most_bytes < sys.maxsize else sys.maxsize

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0 or self._left_to_examine <= 0

    def examine(self, events: WatchedObject | None) -> None:
        """Count an examined change or object, and add its event if it matches."""
        self._left_to_examine -= 1
        if events is not None:
            self.events.append(events)
            self._bytes_left -= len(events.held.body)
