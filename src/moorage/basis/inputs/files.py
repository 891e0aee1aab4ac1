"""Input files: read bytes from files, directories and standard input, plain or gzip-compressed.

Only regular files are opened, and the amount read is limited, so that a device, an endless pipe or a compression bomb is an
error and does not exhaust memory. The files of a directory are read in order of name, so that runs are reproducible.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import BinaryIO, Final

from moorage.basis.files import files_close_to, note_link
from moorage.basis.unpacking import UnpackingBound, gunzipped
from moorage.errors import InputError

#: The maximum number of bytes to read in total, after decompression.
MAX_BYTES: Final = 4 << 30
#: From this size on, a file is read in pieces if it is a List in JSON.
LARGE: Final = 16 << 20
_CHUNK: Final = 1 << 20
_GZIP = b"\x1f\x8b"
#: No text starts with these bytes. Such input may be endless, for example a device in a pipe.
_ZEROES = bytes(8)
#: A project's own file: folders with manifests may have one.
PROJECT_FILE = ".moorage.yaml"
_ENDINGS = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")


class Budget:
    """The number of bytes that may be read in total, and the number read so far."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.spent = 0

    def spend(self, count: int, where: str) -> None:
        self.spent += count
        if self.spent > self.limit:
            raise InputError(f"{where}: the input is larger than {_size(self.limit)} in all; read a part of it at a time")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file's content, decompressed, and its name in messages.

    ``is_found``: a directory was named, not this file, so it may be about something else than objects.
    """

    where: str
    data: bytes = field(repr=False)
    is_found: bool = False

    @property
    def size(self) -> int:
        """The length of the content in bytes."""
        return len(self.data)


class LargeFile(InputFile):
    """A large file that is not compressed. ``data`` reads it whole; ``find_objects`` reads a List in it piece by piece."""

    __slots__ = ("_size",)
    _size: int

    def __init__(self, where: str, size: int) -> None:
        object.__setattr__(self, "where", where)
        object.__setattr__(self, "is_found", False)
        object.__setattr__(self, "_size", size)

    @property
    def size(self) -> int:
        return self._size

    @property
    def data(self) -> bytes:
        """The whole content.

        Raises  InputError
        """
        with self.opened() as file:
            return file.read()

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file.

        Raises  InputError if it cannot be read, or has changed in length
        """
        try:
            with open(self.where, "rb") as file:
                if os.fstat(file.fileno()).st_size != self.size:
                    raise InputError(f"{self.where}: it changed while it was read")
                yield file
        except OSError as error:
            raise _refused(self.where, error) from None


def open_sources(
    paths: Iterable[str],
    *,
    recursive: bool = False,
    stdin: BinaryIO | None = None,
    skipped: list[str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> Iterator[InputFile]:
    """Yield the content of each path, in order; a directory means its YAML and JSON files, ``-`` means ``stdin``.

    The directory of a log of ``moorage record`` means the cluster at its end, and ``LOG@TIME`` at another moment.
    ``recursive`` includes subdirectories. Files of a directory that are skipped because of their names, and linked
    directories, are added to ``skipped``.
    Raises  InputError for anything that cannot be read, is no regular file, or is too large
    """
    budget = Budget(max_bytes)
    left_out = [] if skipped is None else skipped
    seen_stdin = False
    for path in paths:
        if path == "-":
            if seen_stdin:
                raise InputError("-: standard input can be read only once")
            seen_stdin = True
            yield _from_stdin(stdin, budget)
        elif path.startswith(("https://", "http://")):
            raise InputError(f"{path}: addresses are not fetched; download it first: curl -fsSL URL | moorage simulate -f -")
        elif (found := _from_log(path, budget)) is not None:
            yield found
        elif os.path.isdir(path):
            yield from _from_directory(path, recursive, budget, left_out)
        else:
            found = _from_file(path, budget)
            note_link(path)
            yield found


def _from_stdin(stdin: BinaryIO | None, budget: Budget) -> InputFile:
    if stdin is None:
        raise InputError("-: there is no standard input to read")
    return InputFile("-", _content(stdin, "-", budget))


def _from_log(path: str, budget: Budget) -> InputFile | None:
    """Return the objects of a log at a moment; None if the path is not one of a log.

    Raises  InputError
    """
    if not os.path.isdir(path if os.path.exists(path) else path.rpartition("@")[0]):
        return None
    from moorage.basis.recording.log_reader import log_of, objects_at  # a tenth of the time to start

    found = log_of(path)
    if found is None:
        return None
    data = objects_at(*found)
    budget.spend(len(data), path)
    return InputFile(path, data)


#: The names of the file that makes a directory a kustomization.
_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")


def _from_directory(top: str, recursive: bool, budget: Budget, skipped: list[str]) -> Iterator[InputFile]:
    if os.path.isfile(os.path.join(top, "Chart.yaml")):
        raise InputError(f"{top}: this is a Helm chart; render it first: helm template {top} | moorage simulate -f -")
    if any(os.path.isfile(os.path.join(top, name)) for name in _KUSTOMIZATIONS):
        how = f"kubectl kustomize {top} | moorage simulate -f -"
        raise InputError(f"{top}: this is a kustomization; build it first: {how}; or name its files")
    found = False
    below = False
    for directory, inside, names in os.walk(top, onerror=_refuse):
        inside.sort()
        below = below or bool(inside)
        skipped += (f"{one} (a link)" for name in inside if os.path.islink(one := os.path.join(directory, name)))
        if not recursive:
            inside.clear()
        for name in sorted(set(names) - {PROJECT_FILE}):
            path = os.path.join(directory, name)
            if name.lower().endswith(_ENDINGS):
                found = True
                file = _from_file(path, budget)
                object.__setattr__(file, "is_found", True)
                note_link(path, top)
                yield file
            else:
                skipped.append(path)
    if not found:
        hint = "; -R looks into the directories below" if below and not recursive else ""
        raise InputError(f"{top}: no .yaml, .yml or .json file in this directory{hint}")


def _refuse(error: OSError) -> None:
    raise _refused(str(error.filename), error) from None


def _refused(path: str, error: OSError) -> InputError:
    close = ""
    if isinstance(error, FileNotFoundError):
        close = files_close_to(path)
        if not close and path.startswith("examples/"):
            close = "; moorage demo --copy . writes the examples here"
    return InputError(f"{path}: {error.strerror or error}{close}")


def _from_file(path: str, budget: Budget) -> InputFile:
    try:
        # Opening a pipe would wait for its writer; O_NONBLOCK leaves time to check the file type.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise _refused(path, error) from None
    except ValueError:
        raise InputError(f"{path!r}: this is not a valid file name") from None
    with open(handle, "rb", buffering=0) as file:
        kind = os.fstat(handle).st_mode
        if not stat.S_ISREG(kind):
            raise InputError(f"{path}: this is {_describe(kind)}, not a regular file{_hint(kind)}")
        size = os.fstat(handle).st_size
        if size >= LARGE:
            start = os.pread(handle, len(_ZEROES), 0)
            if not start.startswith((_GZIP, _ZEROES)):
                budget.spend(size, path)
                return LargeFile(path, size)
        return InputFile(path, _content(file, path, budget))


def _describe(kind: int) -> str:
    names = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return names.get(stat.S_IFMT(kind), "something else")


def _hint(kind: int) -> str:
    return "; pipe it in and read it with -f -" if stat.S_ISFIFO(kind) else ""


def _content(file: BinaryIO, where: str, budget: Budget) -> bytes:
    try:
        start = file.read(_CHUNK)
        while 0 < len(start) < len(_GZIP) and (more := file.read(_CHUNK)):
            start += more
    except OSError as error:
        raise _refused(where, error) from None
    first = _Started(start, file)
    return _decompress(first, where, budget) if start.startswith(_GZIP) else _read_all(first, where, budget)


class _Started:
    """A file of which the start was read."""

    def __init__(self, start: bytes, file: BinaryIO) -> None:
        self._start, self._file = start, file

    def read(self, size: int) -> bytes:
        """Return the start, then what follows."""
        start, self._start = self._start, b""
        return start or self._file.read(size)


def _read_all(file: _Started, where: str, budget: Budget) -> bytes:
    content = BytesIO()  # grows in place, and its value is no copy
    try:
        while part := file.read(_CHUNK):
            budget.spend(len(part), where)
            if not content.tell() and part.startswith(_ZEROES):
                raise InputError(f"{where}: this is binary, not YAML or JSON")
            content.write(part)
    except OSError as error:
        raise _refused(where, error) from None
    return content.getvalue()


def _decompress(file: _Started, where: str, budget: Budget) -> bytes:
    """Return what a gzip file holds, within the budget, never more in memory than that.

    Raises  InputError for a truncated or damaged file, or one that expands too much
    """
    content = BytesIO()
    try:
        for part in gunzipped(file.read, UnpackingBound()):
            budget.spend(len(part), where)
            content.write(part)
    except OSError as error:
        raise _refused(where, error) from None
    except InputError as error:
        raise error if str(error).startswith(f"{where}: ") else InputError(f"{where}: {error}") from None
    return content.getvalue()


def _size(count: int) -> str:
    return f"{count >> 30} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"
