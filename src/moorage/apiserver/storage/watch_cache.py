"""What happened to the objects of one kind, in order, for a while.

History keeps the last changes, as many and as large as it may. ``floor`` is the newest version that it no longer holds: a watch
from there on, or a list as of a version from there on, is exact, since every change carries the object before it; anything
older is gone (410). Watches read history at their own pace and keep no changes of their own, so a watch that is not read
costs nothing; when history no longer reaches back to where it stands, it ends, as the API server ends slow watches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from moorage.apiserver.vocabulary.records import Record
from moorage.apiserver.vocabulary.statuses import expired

__all__ = ["CAPACITY", "MOST_BYTES", "Change", "ChangeFollower", "WatchCache"]

#: Changes kept of each kind.
CAPACITY: Final = 16_384
#: How large the objects may be, in bytes, that are kept for nothing but history, of each kind.
MOST_BYTES: Final = 64 << 20
_VERSION: Final = attrgetter("version")


class Change(NamedTuple):
    """An object before and after. ``after`` of a deletion is the object as it went, with the version it went at."""

    version: int
    before: Record | None
    after: Record
    gone: bool = False

    @property
    def size(self) -> int:
        """How many bytes are kept only because the change is."""
        return (len(self.before.body) if self.before is not None else 0) + (len(self.after.body) if self.gone else 0)


class ChangeFollower(Protocol):
    """Who is to know of changes, until it is closed."""

    closed: bool

    def offer(self, change: Change) -> None: ...


class WatchCache:
    """The last changes of one kind, and who follows them."""

    def __init__(self, floor: int, capacity: int = CAPACITY, most_bytes: int = MOST_BYTES) -> None:
        self.floor = floor
        self.followers: list[ChangeFollower] = []
        self._changes: list[Change] = []
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._bytes = 0

    def add(self, change: Change) -> None:
        """Note a change, and offer it to all followers."""
        self._changes.append(change)
        self._bytes += change.size
        self._trim()
        for follower in self.followers:
            follower.offer(change)
        if any(follower.closed for follower in self.followers):
            self.followers = [follower for follower in self.followers if not follower.closed]

    def _trim(self) -> None:
        dropped = max(len(self._changes) - self._capacity, 0)
        self._bytes -= sum(change.size for change in self._changes[:dropped])
        while self._bytes > self._most_bytes:
            self._bytes -= self._changes[dropped].size
            dropped += 1
        if dropped:
            self.floor = self._changes[dropped - 1].version
            del self._changes[:dropped]

    def check(self, version: int) -> None:
        """Check that history reaches back to a version.

        Raises  ApiError 410
        """
        if version < self.floor:
            raise expired(f"too old resource version: {version} ({self.floor})")

    def since(self, version: int) -> Iterator[Change]:
        """Yield the changes after a version that is not forgotten, oldest first."""
        for i in range(bisect_right(self._changes, version, key=_VERSION), len(self._changes)):
            yield self._changes[i]

    def state_at(self, version: int, now: Mapping[str, Record]) -> dict[str, Record] | None:
        """Return all objects as they were at a version, given those of now; None where that is forgotten."""
        if version < self.floor:
            return None
        state = dict(now)
        for i in range(len(self._changes) - 1, bisect_right(self._changes, version, key=_VERSION) - 1, -1):
            change = self._changes[i]
            if change.before is None:
                state.pop(change.after.key, None)
            else:
                state[change.before.key] = change.before
        return state
