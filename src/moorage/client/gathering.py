"""A selector that lets a busy event loop take several messages at each wake-up.

While binds are answered and watches report them, a message arrives every few hundred microseconds, and each one would wake the
process: that costs more than handling the message. So if two wake-ups follow each other closely, the second one waits a moment
and takes what has arrived by then, as network cards do. A loop that is mostly idle wakes up at once.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import time
from collections.abc import Callable
from typing import Final

__all__ = ["GatheringSelector", "gathering_loop"]

#: Two wake-ups within this time, in seconds, make the loop busy; and how long a busy loop then waits for more messages.
_CLOSE_S: Final = 0.004
_WAIT_S: Final = 0.003

_Ready = list[tuple[selectors.SelectorKey, int]]


class GatheringSelector(selectors.DefaultSelector):
    """``clock`` and ``sleep`` are replaced in tests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__()
        self._clock, self._sleep = clock, sleep
        self._woken = float("-inf")

    def select(self, timeout: float | None = None) -> _Ready:
        ready = super().select(timeout)
        if not ready or (timeout is not None and timeout <= 0):  # the loop has other work to do now
            return ready
        now = self._clock()
        if now - self._woken < _CLOSE_S:
            self._sleep(_WAIT_S if timeout is None else min(_WAIT_S, timeout))
            ready, now = super().select(0), self._clock()
        self._woken = now
        return ready


def gathering_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop with a GatheringSelector; on Windows the default loop, as only that one can run programs."""
    return asyncio.SelectorEventLoop(GatheringSelector()) if os.name == "posix" else asyncio.new_event_loop()
