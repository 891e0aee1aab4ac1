"""Files that a user names, read within bounds.

Only regular files are read, and standard input where the name is ``-``. A directory, a pipe or a device gets a message
instead of a program that hangs or eats all memory; so does a file beyond the limit and one that changes under our eyes.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import BinaryIO

from moorage.errors import InputError

__all__ = ["CONFIG_LIMIT", "STDIN", "read_file"]

STDIN = "-"
#: A scheduler's configuration is a few kilobytes; the largest that is read, in bytes.
CONFIG_LIMIT = 4 * 2**20

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe; use - to read standard input",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_file(path: str, limit: int, stdin: BinaryIO | None = None) -> bytes:
    """Return all that a regular file holds, or standard input for ``-``.

    Raises  InputError where it cannot be opened, is no regular file, holds more than ``limit`` bytes or changes meanwhile
    """
    if path == STDIN:
        return _bounded(stdin or sys.stdin.buffer, "standard input", limit)
    try:
        # Opening a pipe would wait for its writer; without blocking, it can be looked at and refused.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}") from None
    except ValueError:
        raise InputError(f"{path!r}: this is not the name of a file") from None
    try:
        return _read_regular(descriptor, path, limit)
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}") from None
    finally:
        os.close(descriptor)


def _read_regular(descriptor: int, path: str, limit: int) -> bytes:
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        kind = _KINDS.get(stat.S_IFMT(before.st_mode), "something else")
        raise InputError(f"{path}: expected a file, this is {kind}")
    with open(descriptor, "rb", closefd=False) as file:
        data = _bounded(file, path, limit)
    after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or len(data) != after.st_size:
        raise InputError(f"{path}: changed while it was read; try again")
    return data


def _bounded(file: BinaryIO, where: str, limit: int) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise InputError(f"{where}: larger than {limit} bytes, which is the most that is read here")
    return data


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
