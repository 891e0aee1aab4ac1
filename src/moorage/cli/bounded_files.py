"""Files that a user names on the command line, and standard input where the name is ``-``, read within bounds."""

from __future__ import annotations

import sys
from typing import BinaryIO

from moorage import files
from moorage.errors import InputError

__all__ = ["CONFIG_LIMIT", "STDIN", "read_file"]

STDIN = "-"
#: A scheduler's configuration is a few kilobytes; the largest that is read, in bytes.
CONFIG_LIMIT = 4 * 2**20


def read_file(path: str, limit: int, stdin: BinaryIO | None = None) -> bytes:
    """Return all that a regular file holds, or standard input for ``-``.

    Raises  InputError where it cannot be opened, is no regular file, holds more than ``limit`` bytes or changes meanwhile
    """
    if path != STDIN:
        return files.read_file(path, limit, pipe_hint="; use - to read standard input")
    data = (stdin or sys.stdin.buffer).read(limit + 1)
    if len(data) > limit:
        raise InputError(f"standard input: larger than {limit} bytes, which is the most that is read here")
    return data
