"""Read files named on the command line, and standard input for ``-``, up to a size limit."""

from __future__ import annotations

import sys
from typing import BinaryIO

from moorage.basis import files
from moorage.errors import InputError

__all__ = ["CONFIG_LIMIT", "STDIN", "read_file"]

STDIN = "-"
#: The largest configuration file that is read, in bytes. A typical one has a few kilobytes.
CONFIG_LIMIT = 4 * 2**20


def read_file(path: str, limit: int, stdin: BinaryIO | None = None) -> bytes:
    """Return the whole content of a regular file, or of standard input for ``-``.

    Raises  InputError if the file is unreadable, not a regular file, larger than ``limit`` bytes or changes while it is read
    """
    if path != STDIN:
        return files.read_file(path, limit, pipe_hint="; use - to read standard input")
    data = (stdin or sys.stdin.buffer).read(limit + 1)
    if len(data) > limit:
        raise InputError(f"standard input: larger than the limit of {limit} bytes")
    return data
