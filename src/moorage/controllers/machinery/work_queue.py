"""What is to be looked at, and when: each thing once, first come first served, later after failures.

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
    """Things to do, each in it at most once. Time is handed in, in seconds on whatever clock its user keeps to."""

    def __init__(self) -> None:
        self._ready: dict[T, None] = {}
        self._timers: list[tuple[float, int, T]] = []
        #: When each thing's earliest timer rings; a timer that was overtaken is passed over.
        self._due: dict[T, float] = {}
        self._failures: dict[T, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, item: T) -> None:
        """Have it done as soon as possible."""
        self._ready[item] = None

    def add_at(self, item: T, when: float) -> None:
        """Have it done at a time, if it is not asked for sooner."""
        held = self._due.get(item)
        if held is not None and held <= when:
            return
        self._due[item] = when
        self._count += 1
        heappush(self._timers, (when, self._count, item))

    def add_failed(self, item: T, now: float) -> None:
        """Have it tried again, each time after twice as long."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        self.add_at(item, now + min(_FIRST_DELAY_S * 2 ** min(failures, 32), _LONGEST_DELAY_S))

    def forget_failures(self, item: T) -> None:
        """It went well: the next failure counts as the first."""
        self._failures.pop(item, None)

    def failures(self, item: T) -> int:
        return self._failures.get(item, 0)

    def take(self, now: float) -> T | None:
        """Return the next thing to do, None if nothing is due."""
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
        """Return when the next timer rings."""
        while self._timers and self._due.get(self._timers[0][2]) != self._timers[0][0]:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None
