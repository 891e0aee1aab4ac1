"""Watches as positions in the watch cache: the reader takes pending events in pieces.

A watch may start with the existing objects, listed in key order, also in pieces. Before each piece it emits the changes
since the last one to objects already listed, so at the end of the list the reader knows the current state. A watch
therefore holds at most one piece, however many objects there are and however slowly they are read.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from moorage.api.documents.records import Record
from moorage.api.documents.statuses import expired
from moorage.rules.store.list_selection import Selection

# The watch cache: recent changes to the objects of one kind, in order.
#
# It keeps a limited number and size of changes, and drops old ones when it is compacted. ``floor`` is the newest version that
# it no longer holds; a watch that starts before it gets 410. Watches read the cache at their own pace and buffer nothing, so a
# watch that is not read costs nothing. A watch that falls behind the floor ends, like slow watches of kube-apiserver.

#: Maximum number of cached changes per kind.
CAPACITY: Final = 16_384
#: Maximum total size in bytes of objects that only the cache holds, per kind.
MOST_BYTES: Final = 64 << 20
#: Number of changes per kind that a compaction leaves.
KEPT: Final = 100
_VERSION: Final = attrgetter("version")


class StoreChange(NamedTuple):
    """A change of an object. For a deletion, ``after`` is the last state with the resource version of the deletion."""

    version: int
    before: Record | None
    after: Record
    gone: bool = False

    @property
    def size(self) -> int:
        """The size in bytes of the objects that only this change keeps in memory."""
        return (len(self.before.body) if self.before is not None else 0) + (len(self.after.body) if self.gone else 0)


class WatchCache:
    """The recent changes of one kind, and the watches that get further ones until they are closed."""

    def __init__(self, floor: int, capacity: int = CAPACITY, most_bytes: int = MOST_BYTES) -> None:
        self.floor = floor
        self.followers: list[Watch] = []
        self._changes: list[StoreChange] = []
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._bytes = 0

    def add(self, change: StoreChange) -> None:
        """Add a change, and notify all followers."""
        self._changes.append(change)
        self._bytes += change.size
        self._trim()
        for follower in self.followers:
            follower.on_change(change)
        if any(follower.closed for follower in self.followers):
            self.followers = [follower for follower in self.followers if not follower.closed]

    def _trim(self) -> None:
        dropped = max(len(self._changes) - self._capacity, 0)
        self._bytes -= sum(change.size for change in self._changes[:dropped])
        while self._bytes > self._most_bytes:
            self._bytes -= self._changes[dropped].size
            dropped += 1
        self._drop(dropped)

    def compact(self, version: int, kept: int = KEPT) -> None:
        """Drop the changes up to a version, but not the last ``kept``."""
        dropped = min(bisect_right(self._changes, version, key=_VERSION), len(self._changes) - kept)
        if dropped > 0:
            self._bytes -= sum(change.size for change in self._changes[:dropped])
            self._drop(dropped)

    def _drop(self, count: int) -> None:
        if count:
            self.floor = self._changes[count - 1].version
            del self._changes[:count]

    def check(self, version: int) -> None:
        """Check that the changes after a version are cached.

        Raises  ApiError 410
        """
        if version < self.floor:
            raise expired(f"too old resource version: {version} ({self.floor})")

    def since(self, version: int) -> Iterator[StoreChange]:
        """Yield the changes after a cached version, oldest first."""
        for i in range(bisect_right(self._changes, version, key=_VERSION), len(self._changes)):
            yield self._changes[i]

    def state_at(self, version: int, current: Mapping[str, Record]) -> dict[str, Record] | None:
        """Return all objects as they were at a version, computed from the current ones; None if the version is no longer
        cached.
        """
        if version < self.floor:
            return None
        state = dict(current)
        for i in range(len(self._changes) - 1, bisect_right(self._changes, version, key=_VERSION) - 1, -1):
            change = self._changes[i]
            if change.before is None:
                state.pop(change.after.key, None)
            else:
                state[change.before.key] = change.before
        return state


# -- kind stores -------------------------------------------------------------------------------------------------------
# The objects of one kind, sorted by key, with their watch cache.


class KindStore:
    """The objects of one kind. ``keys`` are the sorted keys of ``records``; ``version`` is that of the last change."""

    def __init__(self, capacity: int, floor: int = 0) -> None:
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []
        self.version = floor
        self.history = WatchCache(floor, capacity)

    def put(self, before: Record | None, after: Record) -> StoreChange:
        """Store a new object or a new version of one, and return the change."""
        if before is None:
            insort(self.keys, after.key)
        self.records[after.key] = after
        self.version = after.version
        return StoreChange(after.version, before, after)

    def remove(self, before: Record, gone: Record) -> StoreChange:
        """Remove an object, and return the change."""
        del self.records[before.key]
        del self.keys[bisect_left(self.keys, before.key)]
        self.version = gone.version
        return StoreChange(gone.version, before, gone, gone=True)

    def end(self) -> None:
        """End all watches after their pending events: the kind is no longer stored here."""
        for follower in self.history.followers:
            follower.finish()


def between(keys: list[str], namespace: str | None, after: str) -> range:
    """Return the indexes of the keys after ``after`` in a namespace, or in all (None)."""
    start, end = (bisect_right(keys, after) if after else 0), len(keys)
    if namespace is not None:
        # "0" follows "/" in ASCII.
        start = max(start, bisect_left(keys, f"{namespace}/"))
        end = bisect_left(keys, f"{namespace}0")
    return range(start, end)


def matching(
    records: Mapping[str, Record], keys: list[str], selection: Selection, after: str = "",
    view: Callable[[Record], Record] | None = None,
) -> Iterator[Record]:  # fmt: skip
    """Yield the selected objects whose keys come after ``after``, in key order, each as ``view`` shows it."""
    for i in between(keys, selection.namespace, after):
        record = records[keys[i]]
        if view is not None:
            record = view(record)
        if selection.matches(record):
            yield record


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
