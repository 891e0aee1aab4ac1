"""Guards on standard output and standard error against harmful characters in text from outside.

A guarded stream escapes control characters and misleading characters in everything that the process writes, including
Python's own output (warnings, tracebacks) and that of plugins. Line breaks pass, because tables and documents contain them;
print a sentence that quotes a name with ``say``, which keeps it on one line.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import click

from moorage.printable import one_line, some_lines

__all__ = ["EscapingStream", "bare", "guard", "say", "unguard"]


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


def bare(stream: TextIO) -> TextIO:
    """Return the unguarded stream, for output meant for the terminal itself, such as erasing a line."""
    return stream.stream if isinstance(stream, EscapingStream) else stream


def say(line: str, *, err: bool = False) -> None:
    """Print one line; escape line breaks in it."""
    click.echo(one_line(line), err=err)
