"""Files that a user, a flag or a configuration names, read within bounds.

Regular files are taken, and pipes where the caller says so (``--kubeconfig <(…)``). A directory, a socket or a device gets a
message instead of a program that hangs or eats all memory; so does a file beyond the limit, one that changes meanwhile and a
pipe that nothing comes out of.
"""

from __future__ import annotations

import os
import select
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from moorage.errors import InputError

__all__ = ["SMALL", "content_of", "kind_of", "read_bytes", "read_file"]

#: The most of a file that holds one thing, such as a key, a certificate or a token, in bytes.
SMALL: Final = 1 << 20
_CHUNK: Final = 1 << 16
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}
_A_PIPE: Final = "expected a file, this is a pipe"


def read_file(path: str | Path, limit: int = SMALL, *, pipe_s: float = 0.0, pipe_hint: str = "") -> bytes:
    """Return all that a file holds. ``pipe_s`` lets it be a pipe or /dev/null too, and says how long a pipe is waited for.

    Raises  InputError, with the path, where it cannot be opened, is something else, holds more than ``limit`` bytes or
            changes meanwhile
    """
    try:
        return read_bytes(path, limit, pipe_s=pipe_s)
    except InputError as error:
        hint = pipe_hint if str(error) == _A_PIPE else ""
        raise InputError(f"{path}: {error}{hint}") from None


def read_bytes(path: str | Path, limit: int = SMALL, *, pipe_s: float = 0.0) -> bytes:
    """Do the same as ``read_file``, for callers that say themselves which file it is.

    Raises  InputError without the path
    """
    try:
        # Opening a pipe would wait for its writer; without blocking, it can be looked at first.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(_reason(error)) from None
    except ValueError:
        raise InputError("this is not the name of a file") from None
    try:
        return content_of(descriptor, limit, pipe_s)
    except OSError as error:
        raise InputError(_reason(error)) from None
    finally:
        os.close(descriptor)


def content_of(descriptor: int, limit: int, pipe_s: float = 0.0) -> bytes:
    """Return all that an open file holds.

    Raises  InputError without a path, OSError
    """
    before = os.fstat(descriptor)
    if stat.S_ISFIFO(before.st_mode) and pipe_s:
        return _from_pipe(descriptor, limit, pipe_s)
    if stat.S_ISCHR(before.st_mode) and pipe_s and before.st_rdev == os.stat(os.devnull).st_rdev:
        return b""
    if not stat.S_ISREG(before.st_mode):
        raise InputError(f"expected a file, this is {kind_of(before)}")
    with open(descriptor, "rb", closefd=False) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(limit)
    after = os.fstat(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or len(data) != after.st_size:
        raise InputError("changed while it was read; try again")
    return data


def _from_pipe(descriptor: int, limit: int, patience_s: float) -> bytes:
    data = bytearray()
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    end = time.monotonic() + patience_s
    while (left := end - time.monotonic()) > 0:
        if not waiting.poll(left * 1000):
            break
        with suppress(BlockingIOError):
            part = os.read(descriptor, _CHUNK)
            if not part:
                return bytes(data)
            data += part
        if len(data) > limit:
            raise _too_large(limit)
    raise InputError(f"this is a pipe, and it was not written to its end within {patience_s:g}s")


def _too_large(limit: int) -> InputError:
    return InputError(f"larger than the limit of {limit} bytes")


def kind_of(found: os.stat_result) -> str:
    """Return what something is that is no regular file."""
    return _KINDS.get(stat.S_IFMT(found.st_mode), "something else")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
