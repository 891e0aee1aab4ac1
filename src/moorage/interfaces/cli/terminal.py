"""Protect standard output and standard error against harmful characters in text from outside.

A guarded stream escapes control characters and misleading characters in everything that the process writes, including
Python's own output (warnings, tracebacks) and that of plugins. Line breaks pass, because tables and documents contain them;
print a sentence that quotes a name with ``say``, which keeps it on one line.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TextIO

import click

from moorage.basis.printable import one_line, some_lines
from moorage.report.style import COLOURS, WIDTH, Style

__all__ = [
    "EscapingStream", "bare", "collect_seldom", "guard", "keep_freed_memory", "kept_output", "leave_memory_at_exit",
    "output_style", "print_error", "print_styled", "say", "shows_colour", "unguard",
]  # fmt: skip


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
            undo.callback(_flush_c)
            undo.callback(own.flush)
        undo.callback(setattr, sys, "stdout", sys.stdout)
        sys.stdout = sys.stderr
        yield answers


def _flush_c() -> None:
    """Write out what C code has printed and still holds."""
    ctypes.CDLL(None).fflush(None)


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
    """Return the style for standard output: coloured, and as wide as the terminal within limits; for files of one width."""
    stream = bare(sys.stdout)
    width = min(_MOST_WIDTH, max(_LEAST_WIDTH, shutil.get_terminal_size().columns)) if stream.isatty() else WIDTH
    return Style(ascii_only=ascii_only, colour=shows_colour(stream), width=width, fits=stream.isatty())


def print_styled(text: str) -> None:
    """Write a text to standard output; of its escape sequences only the colours of ``Style`` pass."""
    parts = (part if part in COLOURS else some_lines(part) for part in _SEQUENCE.split(text))
    bare(sys.stdout).write("".join(parts))


# -- memory ------------------------------------------------------------------------------------------------------------
# Memory settings of the process.
#
# Each decision creates and drops dozens of arrays whose size grows with the number of nodes. From some 80 kB on (thousands of
# nodes) glibc returns such memory to the system at once and requests it again for the next array, which costs several times
# the computation itself. ``keep_freed_memory`` makes glibc keep it.
#
# Python runs its cycle collector after some hundreds of new objects: twice for every pod that is decoded, although almost
# none of a pod's objects are in cycles. ``collect_seldom`` makes it run less often. ``leave_memory_at_exit`` skips the last
# collection.

# From malloc.h of glibc.
_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3


def keep_freed_memory(kept: int = 256 << 20) -> bool:
    """Let the process keep up to ``kept`` freed bytes. Return False if the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    settings = {_TRIM_THRESHOLD: kept, _TOP_PAD: kept >> 4, _MMAP_THRESHOLD: kept}
    return all(mallopt(option, value) for option, value in settings.items())


def collect_seldom() -> None:
    """Run the cycle collector once in a hundred thousand new objects; some MiB of garbage may wait for it."""
    gc.set_threshold(100_000, 10, 20)


def leave_memory_at_exit() -> None:
    """Let the process end without searching its objects for cycles; the operating system frees their memory at once."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
