"""Secret files: readable only by their owner, and never written through a symbolic link.

A file is written next to its destination and then renamed, so that a reader sees the old or the new content. Permissions of
other users are removed, which is reported to ``warn``; files of other users are rejected.
"""

from __future__ import annotations

import grp
import os
import pwd
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from moorage.basis.files import SMALL, content_of, kind_of
from moorage.errors import ConfigError, InputError

__all__ = ["Warn", "check_data", "close_data", "expanded", "home_folder", "private_folder", "put_file", "read_private"]

Warn = Callable[[str], None]

_OTHERS: Final = 0o077
_WRITERS: Final = 0o022


def expanded(path: Path) -> Path:
    """Return a path with ``~`` expanded.

    Raises  ConfigError without a home directory
    """
    try:
        return path.expanduser()
    except RuntimeError:
        raise ConfigError(f"{path}: unknown home directory") from None


# -- folders ------------------------------------------------------------------------------------------------------------


def private_folder(path: Path, warn: Warn) -> None:
    """Create a folder, or make sure that only its owner, the current user, can use it.

    Raises  ConfigError if it is a link, not a folder, or another user's; OSError if it cannot be created
    """
    _check_place(path, stat.S_ISDIR, "a folder")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        _close_to_others(path, descriptor, _OTHERS, warn)


def home_folder(path: Path, warn: Warn) -> None:
    """Create a folder, or make sure that no other user can create files in it. Others may read it if the user chose it.

    Raises  as ``private_folder``
    """
    _check_place(path, stat.S_ISDIR, "a folder")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        found = os.fstat(descriptor)
        if _writers(found) and not found.st_mode & stat.S_ISVTX:
            _close_to_others(path, descriptor, _WRITERS, warn)


def _writers(found: os.stat_result) -> int:
    """Return the write permissions of other users. Those of the user's private group do not count."""
    writers = found.st_mode & _WRITERS
    return writers & ~stat.S_IWGRP if writers & stat.S_IWGRP and _is_ours_alone(found.st_gid) else writers


def _is_ours_alone(group: int) -> bool:
    try:
        held, name = grp.getgrgid(group), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return held.gr_name == name and set(held.gr_mem) <= {name}


# -- files --------------------------------------------------------------------------------------------------------------


def read_private(path: Path, warn: Warn, limit: int = SMALL) -> bytes:
    """Return the content of a secret file, after making sure that only its owner can read it.

    Raises  ConfigError, InputError; OSError if it cannot be opened
    """
    with _opened(path, os.O_RDONLY | os.O_NONBLOCK, follow=True) as descriptor:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _close_to_others(path, descriptor, _OTHERS, warn)
        try:
            return content_of(descriptor, limit)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def put_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically; by default only its owner can read it.

    Raises  ConfigError if the path is not a regular file, for example a link; OSError if it cannot be written
    """
    _check_place(path, stat.S_ISREG, "a file")
    fresh = f".{path.name[:100]}.{secrets.token_hex(8)}"
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            os.rename(fresh, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(fresh, dir_fd=folder)
            raise
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(folder)


def check_data(path: Path, warn: Warn) -> None:
    """Check that a data file and SQLite's files next to it are regular files that not every user can replace.

    ``warn`` gets a message if members of the folder's group can.

    Raises  ConfigError, OSError
    """
    folder = path.parent.stat()
    if not folder.st_mode & stat.S_ISVTX:
        if folder.st_mode & stat.S_IWOTH:
            raise ConfigError(f"{path}: every user can replace this file; use a folder that only you can write to")
        if _writers(folder):
            warn(f"{path}: members of the folder's group can replace this file")
    for one in (path, *_beside(path)):
        _check_place(one, stat.S_ISREG, "a file")


def close_data(path: Path, descriptor: int, warn: Warn) -> None:
    """Make sure that no other user can read an open data file or SQLite's files next to it.

    The file itself is not opened again: closing it would release SQLite's locks.

    Raises  ConfigError, OSError
    """
    _close_to_others(path, descriptor, _OTHERS, warn)
    for one in _beside(path):
        with suppress(FileNotFoundError), _opened(one, os.O_RDONLY | os.O_NONBLOCK) as held:
            _close_to_others(one, held, _OTHERS, warn)


def _beside(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm", "-journal")]


def _check_place(path: Path, fits: Callable[[int], bool], wanted: str) -> None:
    """Make sure that a path is free or of the expected kind; links are not followed."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except ValueError:
        raise ConfigError(f"{path}: this is not a valid file name") from None
    if not fits(found.st_mode):
        hint = "; use the target of the link" if stat.S_ISLNK(found.st_mode) else ""
        raise ConfigError(f"{path}: expected {wanted}, this is {kind_of(found)}{hint}")


@contextmanager
def _opened(path: Path, flags: int, *, follow: bool = False) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _close_to_others(path: Path, descriptor: int, rights: int, warn: Warn) -> None:
    """Remove permissions of everyone but the owner.

    Raises  ConfigError if the owner is neither the current user nor root, or the permissions cannot be removed
    """
    found = os.fstat(descriptor)
    if found.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{path}: it belongs to another user ({found.st_uid}); use a file or a folder that you own")
    mode = stat.S_IMODE(found.st_mode)
    if not mode & rights:
        return
    could = "change" if mode & _WRITERS else "read"
    try:
        os.fchmod(descriptor, mode & ~rights)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"{path}: others can {could} it, and the mode cannot be changed: {why}") from None
    warn(f"{path}: others could {could} it (mode {mode:04o}); now only its owner can")
