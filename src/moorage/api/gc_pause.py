"""A switch for Python's cycle collector, for code that creates many objects without cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


class _Pauses:
    """The pauses of all threads. The end of the last one enables the collector again, if it was enabled before the first.

    Threads may switch between any two steps. At worst a pause is then shorter than it should be.
    """

    def __init__(self) -> None:
        self._pauses: list[None] = []
        self._was_on = False
        self.freezes = self.ages = False

    def begin(self) -> None:
        self._pauses.append(None)
        if gc.isenabled():
            self._was_on = True
            gc.disable()

    def end(self) -> None:
        self._pauses.pop()
        if not self._pauses and self._was_on:
            self._was_on = False
            if self.freezes:
                gc.freeze()
            elif self.ages:
                gc.freeze()
                gc.unfreeze()
            gc.enable()


_PAUSES: Final = _Pauses()
# Python 3.12 freezes some hundred objects of its own when it starts.
_FROZEN_BEFORE: Final = gc.get_freeze_count()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cycle collector while many objects without cycles are created. Otherwise it takes a third of the time."""
    _PAUSES.begin()
    try:
        yield
    finally:
        _PAUSES.end()


@contextmanager
def frozen_after_pauses() -> Iterator[None]:
    """Let the collector ignore all objects that exist at the end of a pause, until the block ends.

    The objects of a large cluster are then never searched for cycles. Memory of cycles among them is not freed in the block.
    It does nothing in a process that has frozen objects of its own since this module was loaded, because the end of the block
    would unfreeze these too.
    """
    _PAUSES.freezes = gc.get_freeze_count() <= _FROZEN_BEFORE
    if not _PAUSES.freezes:
        yield
        return
    try:
        yield
    finally:
        _PAUSES.freezes = False
        gc.unfreeze()


def age_after_pauses() -> None:
    """From now on, let the collector take all objects that exist at the end of a pause for old ones.

    It searches them for cycles with all others, seldom, and not right after the pause. Like ``frozen_after_pauses``, this does
    nothing in a process that has frozen objects.
    """
    _PAUSES.ages = gc.get_freeze_count() <= _FROZEN_BEFORE
