"""Read files that a user, a flag or a configuration names, up to a size limit.

Regular files are read, and pipes where the caller allows them (``--kubeconfig <(…)``). Directories, sockets, devices, files
beyond the limit, files that change meanwhile and silent pipes give an error, instead of a program that hangs or runs out of
memory.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import select
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO, Final

from moorage.basis.printable import close_to
from moorage.errors import ConfigError, InputError

#: The default size limit, for keys, certificates and tokens, in bytes.
SMALL: Final = 1 << 20
_CHUNK: Final = 1 << 16
#: A folder may have many files; as many are compared with the name of a missing one.
_MOST_NAMES: Final = 1_000
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
        data = read_bytes(path, limit, pipe_s=pipe_s)
    except InputError as error:
        hint = pipe_hint if str(error) == _A_PIPE else ""
        raise InputError(f"{path}: {error}{hint}") from None
    note_link(str(path))
    return data


def read_bytes(path: str | Path, limit: int = SMALL, *, pipe_s: float = 0.0) -> bytes:
    """Return the content like ``read_file``, for callers that add the path to errors themselves.

    Raises  InputError without the path
    """
    try:
        # Opening a pipe blocks until it has a writer, so open it non-blocking and check it first.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(_reason(error, path)) from None
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


def files_close_to(path: str | Path) -> str:
    """Return ``; close: …`` with the names in the folder that are most like that of a missing file; "" without any."""
    wanted = Path(path)
    try:
        names = [name for name, _ in zip(sorted(os.listdir(wanted.parent)), range(_MOST_NAMES), strict=False)]
    except (OSError, ValueError):
        return ""
    found = {name: str(wanted.parent / name) for name in names}
    stems = get_close_matches(wanted.name.partition(".")[0], [name.partition(".")[0] for name in names], n=len(names) or 1)
    return close_to(wanted.name, {name: path for name, path in found.items() if name.partition(".")[0] in stems})


def _reason(error: OSError, path: str | Path = "") -> str:
    close = files_close_to(path) if path and isinstance(error, FileNotFoundError) else ""
    return (error.strerror or str(error)) + close


# -- files that are not named --------------------------------------------------------------------------------------------
# A manifest, a policy or a link of a checkout may lead to any file of the machine. Such a file is read, but errors do not quote
# it: the author of the checkout may see them, in the log of a pipeline, and not the file.

#: The files that something else than the command line led to, as messages name them, and what did.
_LED_TO: dict[str, str] = {}


def note_link(path: str, top: str = "") -> None:
    """Remember a file that a link leads to, out of the folder ``top`` that the command line names; without, out of its own."""
    named = top or path
    folder = os.path.dirname(os.path.abspath(named)) if os.path.islink(named) or not top else named
    if not os.path.realpath(path).startswith(("/dev/", "/proc/")) and not _is_in(path, folder):
        _LED_TO[path] = "a link that leads out of its folder"


def note_named(path: str, by: str, shown: str = "") -> None:
    """Remember a file that a file of the command line names, as messages show it, if it is outside of that one's folder."""
    if not _is_in(path, os.path.dirname(os.path.abspath(by))):
        _LED_TO[shown or path] = by


def forget_led_to() -> None:
    """Begin a command: its command line may name what another's did not."""
    _LED_TO.clear()


def _is_in(path: str, folder: str) -> bool:
    real = os.path.realpath(folder)
    return os.path.commonpath([real, os.path.realpath(path)]) == real


def without_content(message: str) -> str:
    """Return an error that quotes nothing of files that the command line did not name."""
    found = next((path for path in sorted(_LED_TO, key=len, reverse=True) if _names(message, path)), None)
    if found is None:
        return message
    return (
        f"{found}: this file is not as expected; nothing of it is shown, because {_LED_TO[found]} names it and the command "
        "line does not: name it there to see what is wrong"
    )


def _names(message: str, path: str) -> bool:
    return re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w/-])", message) is not None


# -- private files -----------------------------------------------------------------------------------------------------
# Secret files: readable only by their owner, and never written through a symbolic link.
#
# A file is written next to its destination and then renamed, so that a reader sees the old or the new content. Permissions of
# other users are removed, which is reported to ``warn``; files of other users are rejected.

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


@contextmanager
def replacing(path: Path, mode: int = 0o600, *, lasting: bool = True) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of another one when the block ends: readers see the old content or the new.

    It is written beside its destination, and deleted after an error. ``lasting``: it is on the disk before it is renamed.

    Raises  OSError
    """
    fresh = path.with_name(f".{path.name[:100]}.{os.urandom(8).hex()}")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException as error:
        fresh.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def put_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically; by default only its owner can read it.

    Raises  ConfigError if the path is not a regular file, for example a link; OSError if it cannot be written
    """
    _check_place(path, stat.S_ISREG, "a file")
    with replacing(path, mode) as file:
        file.write(content)


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
