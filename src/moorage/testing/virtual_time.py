"""An asyncio loop in virtual time: its clock stands still while tasks run, and jumps to the next timer when all wait.

Ten minutes of waiting take no real time, and the order of events is deterministic. Code on this loop cannot await anything
outside the process: no sockets, threads or subprocesses.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["StalledError", "VirtualLoop", "run_virtually"]

T = TypeVar("T")


class StalledError(RuntimeError):
    """All tasks wait and no timer is set: the loop can never continue."""


class _Jumps(selectors.SelectSelector):
    """A selector that advances the loop's clock instead of waiting."""

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
    """Run a coroutine in virtual time and return its result.

    Raises  StalledError if it waits for something that cannot happen
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
