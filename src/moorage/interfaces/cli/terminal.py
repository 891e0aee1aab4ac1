"""Protect standard output and standard error against harmful characters in text from outside.

A guarded stream escapes control characters and misleading characters in everything that the process writes, including
Python's own output (warnings, tracebacks) and that of plugins. Line breaks pass, because tables and documents contain them;
print a sentence that quotes a name with ``say``, which keeps it on one line.
"""

from __future__ import annotations

import ctypes
import io
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, TextIO

import click

from moorage.basis.inputs.files import InputFile
from moorage.basis.printable import one_line, some_lines
from moorage.report.style import COLOURS, WIDTH, Style

_SEQUENCE = re.compile(r"(\x1b\[\d+m)")
#: Narrower terminals get lines of this width, which they wrap.
_LEAST_WIDTH = 40
#: Longer lines are hard to read.
_MOST_WIDTH = 120


class EscapingStream:
    """A text stream that escapes what is written to it and delegates everything else to the wrapped stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # do not fail on a terminal with a small character set

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # click detects binary streams this way
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        return self.stream.write(some_lines(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in {"buffer", "detach"}:
            raise AttributeError(f"a guarded stream has no {name}")
        return getattr(self.stream, name)


def guard() -> None:
    """Guard this process's standard output and standard error from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, EscapingStream):
            setattr(sys, name, EscapingStream(stream))


def unguard() -> None:
    """Restore the streams that ``guard`` replaced."""
    for name in ("stdout", "stderr"):
        setattr(sys, name, bare(getattr(sys, name)))


@contextmanager
def kept_output() -> Iterator[TextIO]:
    """Keep standard output for the answer: meanwhile, what anyone else writes there goes to standard error.

    Plugins print, and so do libraries in C, behind Python's back. Yield the stream of the answer.
    """
    answers = sys.stdout
    try:
        number = answers.fileno()
    except (AttributeError, OSError, ValueError):  # a stream of a test or a program, which only Python writes to
        number = -1
    answers.flush()
    with ExitStack() as undo:
        if number == 1:
            kept = os.dup(1)
            undo.callback(os.close, kept)
            own = open(kept, "w", encoding=answers.encoding, errors=answers.errors, closefd=False)  # noqa: SIM115
            answers = EscapingStream(own) if isinstance(answers, EscapingStream) else own
            os.dup2(2, 1)
            undo.callback(os.dup2, kept, 1)
            undo.callback(lambda: ctypes.CDLL(None).fflush(None))  # what C code has printed and still holds
            undo.callback(own.flush)
        undo.callback(setattr, sys, "stdout", sys.stdout)
        sys.stdout = sys.stderr
        yield answers


def bare(stream: TextIO) -> TextIO:
    """Return the unguarded stream, for output meant for the terminal itself, such as erasing a line."""
    return stream.stream if isinstance(stream, EscapingStream) else stream


def say(line: str, *, err: bool = False) -> None:
    """Print one line; escape line breaks in it."""
    click.echo(one_line(line), err=err)


def print_error(text: str, prefix: str = "error") -> None:
    """Print an error to standard error, its prefix in red on a terminal."""
    stream = bare(sys.stderr)
    style = Style(colour=shows_colour(stream))
    stream.write(f"{style.red(f'{prefix}:')} {some_lines(text)}\n")


def shows_colour(stream: TextIO) -> bool:
    """Return whether to colour what is written to a stream: on a terminal, if it can. NO_COLOR and FORCE_COLOR decide first."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def output_style(*, ascii_only: bool = False) -> Style:
    """Return the style for standard output: coloured, and as wide as the terminal within limits.

    For a pipe or a file, ``COLUMNS`` gives the width, or else it is of one width.
    """
    stream = bare(sys.stdout)
    told = os.environ.get("COLUMNS", "")
    is_known = stream.isatty() or (told.isascii() and told.isdigit() and int(told) > 0)
    width = min(_MOST_WIDTH, max(_LEAST_WIDTH, shutil.get_terminal_size().columns)) if is_known else WIDTH
    return Style(ascii_only=ascii_only, colour=shows_colour(stream), width=width, fits=is_known)


def print_styled(text: str, stream: TextIO | None = None) -> None:
    """Write a text to standard output, or to a stream; of its escape sequences only the colours of ``Style`` pass."""
    parts = (part if part in COLOURS else some_lines(part) for part in _SEQUENCE.split(text))
    bare(stream or sys.stdout).write("".join(parts))


# -- progress ----------------------------------------------------------------------------------------------------------

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
