"""How long to wait before trying again: twice as long each time, spread by chance, from the start after a quiet while."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """Pauses from 0.8 s to 30 s, each times one to two; the first again when two minutes passed without one.

    Source  client-go/tools/cache/reflector.go
    """

    def __init__(self, clock: Callable[[], float], rng: random.Random, first_s: float = 0.8, longest_s: float = 30.0) -> None:
        self._clock, self._rng = clock, rng
        self._first_s, self._longest_s = first_s, longest_s
        self._next_s = first_s
        self._last = clock()

    def pause(self, at_least_s: float | None = None) -> float:
        """Return how many seconds to wait now; a server's Retry-After is honoured."""
        now = self._clock()
        if now - self._last > 120.0:
            self._next_s = self._first_s
        base, self._next_s = self._next_s, min(self._longest_s, self._next_s * 2)
        chosen = max(base * (1.0 + self._rng.random()), at_least_s or 0.0)
        self._last = now + chosen
        return chosen
