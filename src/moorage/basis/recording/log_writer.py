"""The writer of a log: it appends changes, takes snapshots, starts new files and deletes old ones.

A log is a directory. ``NUMBER.changes`` has the changes from that number on, ``NUMBER.snapshot`` all objects before the change
of that number. Every snapshot starts a new file of changes. A file is never written again once it was closed: after a crash,
the writer goes on with the next number in a new file. A snapshot gets its name when it is complete.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from moorage.basis.recording.frames import BEGIN, CHANGES, END, LOST, OBJECTS, Mark, Put, Record, frames_in, packed
from moorage.errors import InputError

CHANGES_SUFFIX: Final = ".changes"
SNAPSHOT_SUFFIX: Final = ".snapshot"
_UNFINISHED: Final = ".unfinished"
_LOCK: Final = "lock"
_FRAME_RECORDS: Final = 1000
#: Frames after which the next number and time are those after theirs; what others announce may be lost.
_LASTING: Final = frozenset({CHANGES, END})


@dataclass(frozen=True, slots=True)
class LogLimits:
    """When a snapshot starts the next file, and how much is kept.

    ``file_bytes``, ``file_s``  the most that a file of changes holds, uncompressed, and for how long it is written
    ``kept_bytes``, ``kept_s``  the size and the age from which the oldest files are deleted; 0: no limit
    """

    file_bytes: int = 96 << 20
    file_s: float = 3600.0
    kept_bytes: int = 0
    kept_s: float = 7 * 86_400.0


class LogWriter:
    """Appends to the log in a directory, which it locks. ``number`` is that of the next record.

    Raises  InputError if the directory cannot be written, or another process writes there
    """

    def __init__(self, directory: str | os.PathLike[str], limits: LogLimits = LogLimits()) -> None:
        self.directory = Path(directory)
        self.limits = limits
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(f"{self.directory}: {error.strerror or error}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise InputError(f"{self.directory}: another recorder writes there; give each its own directory") from None
        for left in self.directory.glob(f"*{_UNFINISHED}"):
            left.unlink()
        self.number, self.last_at = log_end(self.directory)
        self._waiting: list[Record] = []
        self._file: BinaryIO | None = None
        self._since_at = 0
        self._bytes_in_file = 0
        #: Bytes written since the writer was opened, as they are on disk.
        self.written_bytes = 0

    # -- changes -------------------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Add a record. Its time must not be before that of the last one. ``flush`` writes it."""
        self._waiting.append(record)
        self._bytes_in_file += 40 + (len(record.body) if isinstance(record, Put) else 0)
        self.last_at = record.at
        if len(self._waiting) >= _FRAME_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Write the records that wait.

        Raises  OSError; the records then wait for the next call
        """
        if not self._waiting:
            return
        if self._file is None:
            self._open(self._waiting[0].at)
        self._put(packed(CHANGES, self.number, self._waiting[0].at, self._waiting))
        self.number += len(self._waiting)
        self._waiting.clear()

    def _open(self, at: int) -> None:
        path = self.directory / f"{self.number:016d}{CHANGES_SUFFIX}"
        # A file of this name can only be one without any record, left by a crash.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(handle, "wb", buffering=0)
        self._since_at, self._bytes_in_file = at, 0
        self._put(packed(BEGIN, self.number, at, []))

    def _put(self, frame: bytes) -> None:
        """Write a frame whole, or cut the file back to where it began.

        Raises  OSError
        """
        assert self._file is not None
        start = self._file.tell()
        try:
            written = 0
            while written < len(frame):
                written += self._file.write(frame[written:])
        except OSError:
            self._file.truncate(start)
            self._file.seek(start)
            raise
        self.written_bytes += len(frame)

    def _close_file(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Write what waits, and release the directory."""
        try:
            self.flush()
            self._close_file()
        finally:
            os.close(self._lock)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def wants_snapshot(self, at: int) -> bool:
        """Return whether the file of changes is full or old enough for the next one."""
        is_full = self._bytes_in_file >= self.limits.file_bytes
        return self._file is not None and (is_full or at - self._since_at >= self.limits.file_s * 1e6)

    def begin_snapshot(self, at: int) -> SnapshotWriter:
        """Start a snapshot of all objects as they are after the last change, and the next file of changes."""
        self.flush()
        if (self.directory / f"{self.number:016d}{SNAPSHOT_SUFFIX}").exists():
            self.append(Mark(at, "resumed", {}))  # nothing was written since: the older snapshot keeps its name
            self.flush()
        self._close_file()
        return SnapshotWriter(self.directory, self.number, at, self._snapshot_written)

    def _snapshot_written(self, size: int) -> None:
        self.written_bytes += size
        self._delete_old()

    def _delete_old(self) -> None:
        """Delete the oldest files while the log is too large or too old; the newest snapshot and what follows it stay."""
        limits, files = self.limits, sorted(log_files(self.directory))
        sizes = {path: path.stat().st_size for _, path in files}
        starts = [number for number, path in files if path.suffix == SNAPSHOT_SUFFIX]
        for start in starts[1:]:
            older = [path for number, path in files if number < start and path in sizes]
            began = began_at(self.directory / f"{start:016d}{SNAPSHOT_SUFFIX}") or 0
            too_old = limits.kept_s and began < self.last_at - limits.kept_s * 1e6
            if not too_old and not 0 < limits.kept_bytes < sum(sizes.values()):
                return
            for path in older:
                path.unlink(missing_ok=True)
                del sizes[path]


class SnapshotWriter:
    """Writes the objects of a snapshot, in as many steps as the caller likes. It has its name after ``finish``."""

    def __init__(self, directory: Path, number: int, at: int, done: Callable[[int], None]) -> None:
        self._path = directory / f"{number:016d}{SNAPSHOT_SUFFIX}"
        self._beside = directory / f"{number:016d}{_UNFINISHED}"
        self._number, self._at, self._done = number, at, done
        self._count = 0
        handle = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(handle, "wb")
        self._file.write(packed(BEGIN, number, at, []))

    def add(self, records: Sequence[Put | Mark]) -> None:
        """Add a frame of objects, or of marks that stay true."""
        if records:
            self._file.write(packed(OBJECTS, self._number, self._at, records))
            self._count += len(records)

    def finish(self) -> None:
        """Complete the snapshot, and delete what is too old."""
        self._file.write(packed(END, self._number, self._at, [Mark(self._at, "end", {"objects": self._count})]))
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        os.replace(self._beside, self._path)
        self._done(size)

    def drop(self) -> None:
        """Give the snapshot up."""
        self._file.close()
        self._beside.unlink(missing_ok=True)


def log_files(directory: Path) -> Iterable[tuple[int, Path]]:
    """Return the files of a log with the number in their names, in no order."""
    suffixes = (CHANGES_SUFFIX, SNAPSHOT_SUFFIX)
    return [(int(one.stem), one) for one in directory.iterdir() if one.suffix in suffixes and one.stem.isdecimal()]


def began_at(path: Path) -> int | None:
    """Return the time of a snapshot; None if the begin of its file is damaged."""
    try:
        with open(path, "rb") as file:
            first = next(iter(frames_in(file.read(4096))), None)
    except OSError:
        return None
    return None if first is None or first.kind == LOST else first.at


def log_end(directory: Path) -> tuple[int, int]:
    """Return the number after the last record of a log, and the time of that record; 0 and 0 for an empty log."""
    number, at = 0, 0
    for start, path in sorted(log_files(directory))[-2:]:
        number = max(number, start)
        for frame in frames_in(path.read_bytes(), _LASTING):
            if frame.kind in _LASTING:
                number = max(number, frame.number + frame.size * (frame.kind == CHANGES))
                at = max(at, frame.records[-1].at if frame.records else 0)
    return number, at
