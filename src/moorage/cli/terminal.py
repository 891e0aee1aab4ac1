"""Standard output and standard error, the last place where text from outside can do harm.

Whatever the program writes there goes through a guard: control characters and characters that mislead are escaped, also in what
Python prints by itself (warnings, the traceback of a bug) and in what plugins print. The guard lets line breaks pass, because
tables and documents have them; a sentence that quotes a name is printed with ``say``, which keeps it on its line.
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
    """A text stream that escapes what is written to it. Everything else is up to the stream that it stands before."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a terminal of few characters is no reason to fail

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # click asks so whether a stream takes bytes
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
    """From now on, guard this process's standard output and standard error."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, EscapingStream):
            setattr(sys, name, EscapingStream(stream))


def unguard() -> None:
    """Put the streams back that were there before ``guard``."""
    for name in ("stdout", "stderr"):
        setattr(sys, name, bare(getattr(sys, name)))


def bare(stream: TextIO) -> TextIO:
    """Return a stream that takes what is meant for the terminal itself, such as a line that is wiped."""
    return stream.stream if isinstance(stream, EscapingStream) else stream


def say(line: str, *, err: bool = False) -> None:
    """Print one line, whatever stands in it."""
    click.echo(one_line(line), err=err)
