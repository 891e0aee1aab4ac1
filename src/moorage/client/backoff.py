"""Exponential backoff with jitter, reset after a quiet period."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """Pauses from 0.8 s to 30 s, each multiplied by a random factor from 1 to 2; reset after two minutes without a pause.

    Source  client-go/tools/cache/reflector.go
    """

    def __init__(self, clock: Callable[[], float], rng: random.Random, first_s: float = 0.8, max_s: float = 30.0) -> None:
        self._clock, self._rng = clock, rng
        self._first_s, self._max_s = first_s, max_s
        self._next_s = first_s
        self._last = clock()

    def pause(self, at_least_s: float | None = None) -> float:
        """Return the seconds to wait now, at least ``at_least_s`` (a server's Retry-After)."""
        now = self._clock()
        if now - self._last > 120.0:
            self._next_s = self._first_s
        base, self._next_s = self._next_s, min(self._max_s, self._next_s * 2)
        pause_s = max(base * (1.0 + self._rng.random()), at_least_s or 0.0)
        self._last = now + pause_s
        return pause_s
