"""Read files that a user, a flag or a configuration names, up to a size limit.

Regular files are read, and pipes where the caller allows them (``--kubeconfig <(…)``). Directories, sockets, devices, files
beyond the limit, files that change meanwhile and silent pipes give an error, instead of a program that hangs or runs out of
memory.
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

#: The default size limit, for keys, certificates and tokens, in bytes.
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
    """Return the content of a file. A positive ``pipe_s`` allows pipes and /dev/null, and is the time limit for a pipe.

    Raises  InputError, with the path, if the file is unreadable, not a regular file, larger than ``limit`` bytes or changes
    while it is read
    """
    try:
        return read_bytes(path, limit, pipe_s=pipe_s)
    except InputError as error:
        hint = pipe_hint if str(error) == _A_PIPE else ""
        raise InputError(f"{path}: {error}{hint}") from None


def read_bytes(path: str | Path, limit: int = SMALL, *, pipe_s: float = 0.0) -> bytes:
    """Return the content like ``read_file``, for callers that add the path to errors themselves.

    Raises  InputError without the path
    """
    try:
        # Opening a pipe blocks until it has a writer, so open it non-blocking and check it first.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(_reason(error)) from None
    except ValueError:
        raise InputError("this is not a valid file name") from None
    try:
        return content_of(descriptor, limit, pipe_s)
    except OSError as error:
        raise InputError(_reason(error)) from None
    finally:
        os.close(descriptor)


def content_of(descriptor: int, limit: int, pipe_s: float = 0.0) -> bytes:
    """Return the content of an open file.

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
    """Return the kind of a file that is not regular."""
    return _KINDS.get(stat.S_IFMT(found.st_mode), "something else")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
