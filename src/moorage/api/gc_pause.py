"""A switch for Python's cycle collector, for code that creates many objects without cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["collector_paused"]


class _Pauses:
    """The pauses of all threads. The end of the last one enables the collector again, if it was enabled before the first.

    Threads may switch between any two steps. At worst a pause is then shorter than it should be.
    """

    def __init__(self) -> None:
        self._pauses: list[None] = []
        self._was_on = False

    def begin(self) -> None:
        self._pauses.append(None)
        if gc.isenabled():
            self._was_on = True
            gc.disable()

    def end(self) -> None:
        self._pauses.pop()
        if not self._pauses and self._was_on:
            self._was_on = False
            gc.enable()


_PAUSES: Final = _Pauses()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cycle collector while many objects without cycles are created. Otherwise it takes a third of the time."""
    _PAUSES.begin()
    try:
        yield
    finally:
        _PAUSES.end()
