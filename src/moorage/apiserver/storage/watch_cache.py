"""The watch cache: recent changes to the objects of one kind, in order.

It keeps a limited number and size of changes. ``floor`` is the newest version that it no longer holds; a watch that starts
before it gets 410. Watches read the cache at their own pace and buffer nothing, so a watch that is not read costs nothing.
A watch that falls behind the floor ends, like slow watches of kube-apiserver.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from moorage.apiserver.vocabulary.records import Record
from moorage.apiserver.vocabulary.statuses import expired

__all__ = ["CAPACITY", "MOST_BYTES", "ChangeFollower", "StoreChange", "WatchCache"]

#: Maximum number of cached changes per kind.
CAPACITY: Final = 16_384
#: Maximum total size in bytes of objects that only the cache holds, per kind.
MOST_BYTES: Final = 64 << 20
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


class ChangeFollower(Protocol):
    """Receives changes until it is closed."""

    closed: bool

    def on_change(self, change: StoreChange) -> None: ...
    def finish(self) -> None: ...


class WatchCache:
    """The recent changes of one kind, and their followers."""

    def __init__(self, floor: int, capacity: int = CAPACITY, most_bytes: int = MOST_BYTES) -> None:
        self.floor = floor
        self.followers: list[ChangeFollower] = []
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
        if dropped:
            self.floor = self._changes[dropped - 1].version
            del self._changes[:dropped]

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
