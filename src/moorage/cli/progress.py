"""Progress of a long run, shown only on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from moorage.cli.terminal import bare
from moorage.printable import one_line

__all__ = ["Progress", "tell_progress_to"]

#: Seconds before anything is shown, and between two updates.
_PATIENCE_S, _EVERY_S = 0.5, 0.1
_listeners: list[Callable[[str], None]] = []


def tell_progress_to(listener: Callable[[str], None]) -> None:
    """Also pass all progress of this process to a function."""
    _listeners.append(listener)


class Progress:
    """Count decisions and show the count on standard error, in one line that is erased at the end."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._terminal = bare(sys.stderr)
        self._on_terminal = not quiet and self._terminal.isatty()
        self._shows = self._on_terminal or bool(_listeners)
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
            self._show(one_line(text))

    def count(self, *, placed: bool) -> None:
        """Count one decision."""
        if not self._shows:
            return
        self._decisions += 1
        self._placed += placed
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY_S
            rate = self._decisions / (now - self._begun)
            self._show(f"{self._decisions:,} decisions, {self._placed:,} pods placed, {rate:,.0f}/s")

    def _show(self, text: str) -> None:
        for listener in _listeners:
            listener(text)
        if self._on_terminal:
            self._wipe = True
            self._terminal.write(f"\r{text}\x1b[K")
            self._terminal.flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._wipe:
            self._terminal.write("\r\x1b[K")
            self._terminal.flush()
