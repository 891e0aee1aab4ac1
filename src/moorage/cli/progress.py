"""Progress of a long run, shown only on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from moorage.cli.terminal import bare
from moorage.printable import one_line

__all__ = ["Progress"]

#: Seconds before anything is shown, and between two updates.
_PATIENCE_S, _EVERY_S = 0.5, 0.1


class Progress:
    """Count decisions and show the count on standard error, in one line that is erased at the end."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._terminal = bare(sys.stderr)
        self._shows = not quiet and self._terminal.isatty()
        self._decisions = self._placed = 0
        self._begun = self._next = 0.0
        self._wipe = False

    def __enter__(self) -> Progress:
        self._begun = time.monotonic()
        self._next = self._begun + _PATIENCE_S
        return self

    def say(self, text: str) -> None:
        """Show a message until the first decision is made."""
        if self._shows:
            self._wipe = True
            self._terminal.write(f"\r{one_line(text)}\x1b[K")
            self._terminal.flush()

    def count(self, *, placed: bool) -> None:
        """Count one decision."""
        if not self._shows:
            return
        self._decisions += 1
        self._placed += placed
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY_S
            self._wipe = True
            rate = self._decisions / (now - self._begun)
            self._terminal.write(f"\r{self._decisions:,} decisions, {self._placed:,} pods placed, {rate:,.0f}/s\x1b[K")
            self._terminal.flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._wipe:
            self._terminal.write("\r\x1b[K")
            self._terminal.flush()
