"""The work queue: each key at most once, in order of arrival, with a growing delay after failures.

Source  client-go, util/workqueue: delaying_queue.go, default_rate_limiters.go (exponential, per item)
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

__all__ = ["WorkQueue"]

_FIRST_DELAY_S: Final = 0.005
_LONGEST_DELAY_S: Final = 60.0

T = TypeVar("T")


class WorkQueue(Generic[T]):
    """Keys to reconcile, each at most once. The caller passes the time, in seconds on any one clock."""

    def __init__(self) -> None:
        self._ready: dict[T, None] = {}
        self._timers: list[tuple[float, int, T]] = []
        #: The earliest timer of each key; other timers of the key are ignored when they expire.
        self._due: dict[T, float] = {}
        self._failures: dict[T, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, item: T) -> None:
        """Queue a key now."""
        self._ready[item] = None

    def add_at(self, item: T, when: float) -> None:
        """Queue a key at a time, unless it is due earlier."""
        held = self._due.get(item)
        if held is not None and held <= when:
            return
        self._due[item] = when
        self._count += 1
        heappush(self._timers, (when, self._count, item))

    def add_failed(self, item: T, now: float) -> None:
        """Queue a key after a failure, with a delay that doubles each time."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        self.add_at(item, now + min(_FIRST_DELAY_S * 2 ** min(failures, 32), _LONGEST_DELAY_S))

    def forget_failures(self, item: T) -> None:
        """Reset the delay of a key after a success."""
        self._failures.pop(item, None)

    def failures(self, item: T) -> int:
        return self._failures.get(item, 0)

    def take(self, now: float) -> T | None:
        """Return the next key, None if none is due."""
        while self._timers and self._timers[0][0] <= now:
            when, _, item = heappop(self._timers)
            if self._due.get(item) == when:
                del self._due[item]
                self._ready[item] = None
        if not self._ready:
            return None
        item = next(iter(self._ready))
        del self._ready[item]
        return item

    def next_time(self) -> float | None:
        """Return when the next timer expires; None without one."""
        while self._timers and self._due.get(self._timers[0][2]) != self._timers[0][0]:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None
