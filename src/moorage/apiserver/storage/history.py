"""What happened, in order, for a while: each kind's last events, and the watches that follow them.

History is a ring. ``floor`` is the newest version that it no longer holds: a watch from there on, or a list as of a version
from there on, is exact, since every event carries the version before it; anything older is gone (410). A watch that does
not read keeps a bounded number of events waiting and is then cut off, as the API server does; the client lists again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from moorage.apiserver.storage.selecting import Selection
from moorage.apiserver.vocabulary.records import Record
from moorage.apiserver.vocabulary.statuses import expired

__all__ = ["CAPACITY", "Change", "History", "Seen", "Watch"]

#: Events kept of each kind.
CAPACITY: Final = 16_384
#: Events that may wait for a reader.
BACKLOG: Final = 16_384


class Change(NamedTuple):
    """An object before and after. ``after`` of a deletion is the object as it went, with the version it went at."""

    version: int
    before: Record | None
    after: Record
    gone: bool = False


class Seen(NamedTuple):
    """A change as a watch sees it: ADDED, MODIFIED or DELETED."""

    type: str
    record: Record


class Watch:
    """The changes of one kind within a selection, and after a version. ``wake`` is called when there is something to take, or
    no more to come.
    """

    def __init__(self, chosen: Selection, wake: Callable[[], None], backlog: int = BACKLOG, *, after: int = 0) -> None:
        self.chosen = chosen
        self._after = after
        self.closed = False
        self._wake = wake
        self._waiting: deque[Seen] = deque()
        self._backlog = backlog

    def offer(self, change: Change) -> None:
        """Take a change in; one too many ends the watch."""
        seen = self._translate(change) if change.version > self._after else None
        if seen is None or self.closed:
            return
        if len(self._waiting) >= self._backlog:
            self.closed = True
        else:
            self._waiting.append(seen)
        self._wake()

    def start_with(self, seen: list[Seen]) -> None:
        """Put what a watch begins with before what it waits for; it may be more than the backlog."""
        self._waiting.extend(seen)
        self._backlog += len(seen)

    def take(self) -> list[Seen]:
        """Return what happened since it was last asked."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def _translate(self, change: Change) -> Seen | None:
        before, after, gone = change.before, change.after, change.gone
        was = before is not None and self.chosen.matches(before)
        if gone:
            return Seen("DELETED", after) if was else None
        if self.chosen.matches(after):
            return Seen("MODIFIED" if was else "ADDED", after)
        # It left the selection: what watches see go is the object as they knew it.
        return Seen("DELETED", before.as_of(change.version)) if was and before is not None else None


class History:
    """The last events of one kind, and who is watching."""

    def __init__(self, floor: int, capacity: int = CAPACITY) -> None:
        self.floor = floor
        self.watches: list[Watch] = []
        self._changes: deque[Change] = deque()
        self._capacity = capacity

    def add(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > self._capacity:
            self.floor = self._changes.popleft().version
        for watch in self.watches:
            watch.offer(change)
        if any(watch.closed for watch in self.watches):
            self.watches = [watch for watch in self.watches if not watch.closed]

    def since(self, version: int) -> Iterator[Change]:
        """Return the changes after a version, oldest first.

        Raises  ApiError 410 where history does not reach back so far
        """
        if version < self.floor:
            raise expired(f"too old resource version: {version} ({self.floor})")
        return reversed(list(self._newer(version)))

    def state_at(self, version: int, now: Mapping[str, Record]) -> dict[str, Record] | None:
        """Return all objects as they were at a version, given those of now; None where that is forgotten."""
        if version < self.floor:
            return None
        state = dict(now)
        for change in self._newer(version):
            if change.before is None:
                state.pop(change.after.key, None)
            else:
                state[change.before.key] = change.before
        return state

    def _newer(self, version: int) -> Iterator[Change]:
        """Yield the changes after a version, newest first."""
        for change in reversed(self._changes):
            if change.version <= version:
                return
            yield change
