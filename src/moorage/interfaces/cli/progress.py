"""Progress of long work: on a terminal one line on standard error that is erased at the end, elsewhere lines, if asked for."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TextIO

from moorage.basis.inputs.files import InputFile
from moorage.basis.printable import one_line
from moorage.interfaces.cli.terminal import bare, kept_output

__all__ = ["Progress", "send_progress_to"]

#: Seconds before anything is shown, and between two updates.
_PATIENCE_S, _EVERY_S = 0.5, 0.1
#: Seconds between two lines in a pipe or file.
_LINE_S = 1.0
_WIDTH = 24

_listeners: list[Callable[[str], None]] = []

#: Held while a line is written and while the process forks, so that no fork happens in the middle of a line.
_WRITING = threading.Lock()
os.register_at_fork(before=_WRITING.acquire, after_in_parent=_WRITING.release, after_in_child=_WRITING.release)


def send_progress_to(listener: Callable[[str], None]) -> None:
    """Also pass all progress of this process to ``listener``, which is called from another thread."""
    _listeners.append(listener)


class Progress:
    """The progress line: the current work, how much of it is done, and the time so far. A thread repaints it.

    While the work lasts, standard output is kept for the answer; ``answers`` is the stream for parts of it that come early.

    ``everywhere``: if standard error is no terminal, write a line each second, in place of one that is repainted
    """

    def __init__(self, *, quiet: bool = False, everywhere: bool = False) -> None:
        self._terminal = bare(sys.stderr)
        self._repaints = self._terminal.isatty()
        self.shows = not quiet and (self._repaints or everywhere)
        self._decisions = self._placed = 0
        self._line: Callable[[], str] | None = None
        self._begun = time.monotonic()
        self._ended = threading.Event()
        self._work = ExitStack()
        self.answers: TextIO = sys.stdout
        self._painter = threading.Thread(target=self._paint, name="progress", daemon=True)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Progress:
        """Return the progress of a command with the options --quiet and --progress."""
        return cls(quiet=given["quiet"], everywhere=given["shows_progress"])

    def __enter__(self) -> Progress:
        self.answers = self._work.enter_context(kept_output())
        if self.is_watched:
            self._painter.start()
        return self

    @property
    def is_watched(self) -> bool:
        """Whether the progress is shown, or passed to a listener."""
        return self.shows or bool(_listeners)

    def say(self, text: str) -> None:
        """Show ``text`` and the time so far."""
        self._show(lambda: f"{text} {self._seconds()}")

    def reading(self, source: InputFile, objects: int) -> None:
        """Show which file is being read, its size, and how many objects were read so far."""
        size = f"{source.where}: {source.size / 1e6:,.1f} MB"
        found = f", {objects:,} objects" if objects else ""
        self._show(lambda: f"reading {size}{found}, {self._seconds()}")

    def part(self, what: str, done: int, total: int) -> None:
        """Show a bar for ``done`` of ``total``."""
        filled = _WIDTH * done // max(total, 1)
        bar = "█" * filled + "░" * (_WIDTH - filled)
        self._show(lambda: f"{what} {bar} {done:,} of {total:,}")

    def count(self, *, placed: bool) -> None:
        """Count a decision of a run, and show the numbers of decisions and placed pods."""
        self._decisions += 1
        self._placed += placed
        if self._decisions == 1:
            self._show(self._run)

    def _run(self) -> str:
        rate = self._decisions / max(time.monotonic() - self._begun, _EVERY_S)
        return f"{self._decisions:,} decisions, {self._placed:,} pods placed, {rate:,.0f}/s"

    def _show(self, line: Callable[[], str]) -> None:
        if self._line is None or line == self._run:
            self._begun = time.monotonic()
        self._line = line
        for listener in _listeners:
            listener(one_line(line()))

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._begun:.0f} s"

    def _paint(self) -> None:
        if self._ended.wait(_PATIENCE_S):
            return
        while not self._ended.wait(_EVERY_S if self._repaints else _LINE_S):
            if self._line is not None:
                text = one_line(self._line())
                for listener in _listeners:
                    listener(text)
                self._write(text)
        self._write("")

    def _write(self, line: str) -> None:
        if not self.shows:
            return
        with _WRITING:
            if self._repaints:
                self._terminal.write(f"\r{line}\x1b[K")
            elif line:
                self._terminal.write(f"{line}\n")
            self._terminal.flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._work.close()
        self._ended.set()
        if self._painter.ident is not None:
            self._painter.join()
