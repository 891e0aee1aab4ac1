"""An asyncio loop whose clock stands still while anything runs, and jumps when everything waits.

What takes ten minutes of waiting takes no time at all, and always happens in the same order. Nothing outside the process can
be awaited in it: no sockets, no threads, no processes.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["StalledError", "VirtualLoop", "run_virtually"]

T = TypeVar("T")


class StalledError(RuntimeError):
    """Everything waits for something, and nothing is due: nobody would ever go on."""


class _Jumps(selectors.SelectSelector):
    """A selector that, instead of waiting, moves the loop's clock on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StalledError("every task waits, and no timer is set")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which starts at 0 seconds."""

    def __init__(self) -> None:
        self._jumps = _Jumps()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.now


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time and return what it returned.

    Raises  StalledError if it waits for something that cannot come
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
