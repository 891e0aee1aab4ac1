"""Client-side throttling: a token bucket in which binds have priority."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

__all__ = ["BINDING", "OTHER", "Throttle"]

#: Lanes in order of priority.
BINDING, OTHER = 0, 1


class Throttle:
    """``qps`` tokens a second, with up to ``burst`` saved; a rate of 0 or less means no limit."""

    def __init__(self, qps: float, burst: int, clock: Callable[[], float]) -> None:
        self._qps, self._burst, self._clock = qps, float(max(burst, 1)), clock
        self._tokens, self._filled_at = self._burst, clock()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, lane: int = OTHER) -> None:
        """Wait for a token. Requests of a lane are served in order."""
        if self._qps <= 0:
            return
        self._fill()
        if not self._waiting and self._tokens >= 1.0:
            self._tokens -= 1.0
            return
        self._serial += 1
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (lane, self._serial, granted))
        self._arm()
        await granted

    def take_now(self, count: int) -> bool:
        """Take tokens for some requests and return True; return False if that needs waiting."""
        if self._qps <= 0:
            return True
        self._fill()
        if self._waiting or self._tokens < count:
            return False
        self._tokens -= count
        return True

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now

    def _grant(self) -> None:
        self._timer = None
        self._fill()
        while self._waiting and self._tokens >= 1.0 - 1e-9:
            _, _, granted = heapq.heappop(self._waiting)
            if not granted.done():  # cancelled requests take no token
                self._tokens -= 1.0
                granted.set_result(None)
        if self._waiting:
            self._arm()

    def _arm(self) -> None:
        if self._timer is None:
            wait_s = max(0.0, (1.0 - self._tokens) / self._qps)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._grant)
