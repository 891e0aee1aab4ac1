"""A selector that lets a busy event loop take many messages at each wake-up.

While binds are answered and watches report them, a message arrives every few hundred microseconds. To take each one as it
comes costs more than to handle it. So messages wait while the loop handles those that it has taken, and a loop that was
busy lets some milliseconds pass before it takes the next ones, as network cards do: the longer it was busy, the longer. A
loop that is mostly idle wakes up at once, and so does one that has much to read, such as a list. Idle time also earns a few
wake-ups at once: they are for exchanges of several messages, such as a TLS handshake.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
import time
from collections.abc import Callable
from typing import Final

if sys.platform != "win32":
    from fcntl import ioctl
    from termios import FIONREAD


#: The seconds between two wake-ups: at least, at most, and as a multiple of the time for which the loop was busy in between.
_LEAST_S: Final = 0.003
_LONGEST_S: Final = 0.02
_TIMES_BUSY: Final = 10
#: A wake-up at once is earned in so many seconds, and so many are kept.
_EARNED_S: Final = 0.1
_MOST_EARNED: Final = 10
#: With so many bytes to read from a connection, the loop does not wait: the sender may be waiting for room.
_MUCH: Final = 1 << 16
_NO_COUNT: Final = bytes(4)

_Ready = list[tuple[selectors.SelectorKey, int]]


def waiting_bytes(fd: int) -> int:
    """Return how many bytes can be read from a socket or a pipe without waiting."""
    try:
        return int.from_bytes(ioctl(fd, FIONREAD, _NO_COUNT), sys.byteorder)
    except OSError:  # nothing is read from it, as from a listening socket
        return 0


class GatheringSelector(selectors.DefaultSelector):
    """``clock``, ``sleep`` and ``waiting`` (see ``waiting_bytes``) are replaced in tests; ``most_earned`` are kept."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
        waiting: Callable[[int], int] = waiting_bytes, most_earned: int = _MOST_EARNED,
    ) -> None:  # fmt: skip
        super().__init__()
        self._clock, self._sleep, self._waiting = clock, sleep, waiting
        self._most_earned_s = most_earned * _EARNED_S
        #: The time since which wake-ups at once were earned and not used.
        self._unused_since = float("-inf")
        #: When the loop took messages last.
        self._woken = float("-inf")
        #: True if there was much to read then.
        self._much = False

    def select(self, timeout: float | None = None) -> _Ready:
        now, early_until = self._clock(), 0.0
        busy_s = now - self._woken
        if busy_s < _LONGEST_S:
            if timeout is not None and timeout <= 0:  # the loop has other work
                return []
            pause_s = 0.0 if self._much else min(max(_LEAST_S, busy_s * _TIMES_BUSY), _LONGEST_S) - busy_s
            if self._earned(now) >= _EARNED_S:
                early_until = now + pause_s
            elif timeout is not None and timeout <= pause_s:  # it has other work soon
                self._sleep(timeout)
                return []
            elif pause_s > 0:
                self._sleep(pause_s)
                timeout = None if timeout is None else timeout - pause_s
        ready = super().select(timeout)
        if ready:
            self._woken = self._clock()
            if self._woken < early_until:
                self._unused_since = self._woken - self._earned(self._woken) + _EARNED_S
            self._much = False
            for key, events in ready:
                if events & selectors.EVENT_READ and self._waiting(key.fd) >= _MUCH:
                    self._much = True
                    break
        return ready

    def _earned(self, now: float) -> float:
        """Return for how many seconds wake-ups were earned that are not used."""
        return min(now - self._unused_since, self._most_earned_s)


def gathering_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop with a GatheringSelector; on Windows the default loop, as only that one can run programs."""
    return asyncio.SelectorEventLoop(GatheringSelector()) if os.name == "posix" else asyncio.new_event_loop()
