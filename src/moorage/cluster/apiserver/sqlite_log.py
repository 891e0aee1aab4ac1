"""The store's log on disk: an SQLite file with the latest version of every object, written behind memory but before any
response.

Memory is the source of truth. The store appends every change to the log, and a request that made changes waits until they
are on disk (``settle``). Changes that arrive while the disk is busy are written together in one transaction, so many
clients share the cost of one sync. The file holds the latest version of each object, and no history.

Transactions are atomic, however the process ends; SQLite ignores an incomplete one at the next start. When the disk is
full, changes stay in memory, their requests fail, and the server refuses new changes until the pending ones are written.

Source  sqlite.org/wal.html and /pragma.html for the guarantees
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import ALL_KINDS, ServedKind
from moorage.api.documents.statuses import ApiError
from moorage.basis.files import Warn, check_data, close_data
from moorage.errors import ConfigError, InputError, MoorageError
from moorage.rules.store.custom_records import reread_record
from moorage.rules.store.watches import StoreChange

#: Application id of our files ("moor"), and the version of their tables.
APPLICATION: Final = 0x6D6F6F72
FORMAT: Final = 1

_TABLES: Final = (
    """CREATE TABLE objects (
        resource TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, crc INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (resource, key)
    ) WITHOUT ROWID""",
    "CREATE TABLE counter (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL)",
    "INSERT INTO counter VALUES (1, 0)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
)
_UPSERT: Final = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)"
_SELECT: Final = (
    "SELECT resource, key, version, crc, body FROM objects "
    "ORDER BY resource <> 'customresourcedefinitions.apiextensions.k8s.io', resource, key"
)
_DELETE: Final = "DELETE FROM objects WHERE resource = ? AND key = ?"
#: Size in bytes to which SQLite truncates its write-ahead log.
_MAX_WAL_BYTES: Final = 64 << 20


class LogEntry(NamedTuple):
    """The latest version of an object; ``record`` is None for a deleted one."""

    resource: str
    key: str
    version: int
    record: Record | None


class SQLiteLog:
    """A log file that one process at a time has open. ``append`` and ``settle`` must be called from one event loop.

    ``warn`` receives a warning if others could read the file; its permissions are then restricted.

    Raises  ConfigError if the file cannot be opened or another process has it open, InputError if it is damaged or of another
            application
    """

    def __init__(self, path: Path, warn: Warn = lambda line: None) -> None:
        self._path = path
        self._lock = _locked(path, warn)
        try:
            self._connection = _open(path)
        except BaseException:
            os.close(self._lock)
            raise
        self._pending: list[LogEntry] = []
        self._writing: asyncio.Task[None] | None = None
        self._appended = self._written = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self.appended = asyncio.Event()
        #: Error message of the last failed write; "" after a successful one.
        self.failure = ""

    def load(
        self, find_kind: Callable[[str], ServedKind | None] = ALL_KINDS.find_stored
    ) -> Iterator[tuple[ServedKind, Record]]:
        """Yield all objects in the file, definitions of custom kinds first. ``find_kind`` returns the kind of a resource name.

        Raises  InputError at the first damaged one
        """
        try:
            rows = self._connection.execute(_SELECT)
            for resource, key, version, crc, body in rows:
                kind = find_kind(resource)
                if kind is None:
                    raise InputError(f"{self._path}: it contains {resource}, which this release does not serve")
                if not isinstance(body, bytes) or _checksum(resource, key, version, body) != crc:
                    raise InputError(f"{self._path}: {resource} {key} is damaged; start from a copy of the file, or without it")
                record = Record.read(kind, body, version)
                yield kind, record if kind.custom is None else reread_record(kind, record)
        except sqlite3.DatabaseError as error:
            raise _damaged(self._path, error) from None

    @property
    def version(self) -> int:
        """The resource version of the last written change."""
        try:
            return int(self._connection.execute("SELECT version FROM counter").fetchone()[0])
        except (sqlite3.DatabaseError, TypeError) as error:
            raise _damaged(self._path, error) from None

    def start_at(self, version: int) -> None:
        """Record that all resource versions up to this one are used."""
        try:
            self._connection.execute("UPDATE counter SET version = ?", (version,))
        except sqlite3.Error as error:
            raise ConfigError(f"{self._path}: cannot be written: {error}") from None

    def append(self, kind: ServedKind, change: StoreChange) -> None:
        """Append a change. It is on disk when a ``settle`` that starts later returns."""
        record = change.after
        self._pending.append(LogEntry(kind.qualified, record.key, change.version, None if change.gone else record))
        self._appended += 1
        self.appended.set()

    async def settle(self) -> None:
        """Wait until all changes appended so far are on disk.

        Raises  ApiError 507 if they cannot be written; they stay pending, and the next call retries
        """
        goal = self._appended
        while self._written < goal:
            if self._writing is None:
                self._writing = asyncio.ensure_future(self._write_pending())
            await asyncio.shield(self._writing)

    async def check(self) -> None:
        """Check that the log can be written, before a change is made.

        Raises  ApiError 507 while earlier changes cannot be written
        """
        if self.failure:
            try:
                await self.settle()
            except ApiError as error:
                error.retry_after_s = 1  # the request was not attempted, so retrying it is safe
                raise

    async def _write_pending(self) -> None:
        batch, self._pending = self._pending, []
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, batch)
        except BaseException as error:
            # Whatever the error: no client has a response for these changes yet, and writing them twice is harmless.
            self._pending = [*batch, *self._pending]
            self.failure = str(error) or type(error).__name__
            if isinstance(error, Exception):
                why = f"the change could not be stored: {self._path.name}: {self.failure}"
                raise ApiError(507, "InsufficientStorage", why) from None
            raise
        else:
            self._written += len(batch)
            self.failure = ""
        finally:
            self._writing = None

    async def keep_up(self) -> None:
        """Write changes that no request waits for, until cancelled."""
        while True:
            await self.appended.wait()
            self.appended.clear()
            try:
                await self.settle()
            except ApiError:
                await asyncio.sleep(1)
                self.appended.set()

    def flush(self) -> None:
        """Write all pending changes now, without an event loop.

        Raises  ConfigError if they cannot be written
        """
        batch, self._pending = self._pending, []
        try:
            self._thread.submit(self._write, batch).result()
        except sqlite3.Error as error:
            self._pending = batch
            raise ConfigError(f"{self._path}: cannot be written: {error}") from None
        self._written += len(batch)

    def close(self) -> None:
        """Write all pending changes and close the file. A write error is recorded in ``failure`` and not raised."""
        try:
            self.flush()
        except ConfigError as error:
            self.failure = str(error)
        self._thread.shutdown()
        self._connection.close()
        os.close(self._lock)

    def _write(self, batch: list[LogEntry]) -> None:
        if not batch:
            return
        last = {(entry.resource, entry.key): entry for entry in batch}
        kept = [
            (*entry[:3], _checksum(*entry[:3], entry.record.body), entry.record.body)
            for entry in last.values()
            if entry.record is not None
        ]
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(_UPSERT, kept)
            self._connection.executemany(_DELETE, [place for place, one in last.items() if one.record is None])
            execute("UPDATE counter SET version = ?", (batch[-1].version,))
            execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise


def _checksum(resource: str, key: str, version: int, body: bytes) -> int:
    """Return the checksum of a row."""
    return zlib.crc32(body, zlib.crc32(f"{resource} {key} {version}".encode()))


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"--data: {path}: it is damaged, or not a file of moorage up ({error}); start from a copy of it, or with another file"
    )


def _locked(path: Path, warn: Warn) -> int:
    """Return a descriptor that holds the file's lock; create the file readable by its owner only.

    SQLite's own POSIX lock would be released when anything in this process closes the file; flock is not.
    """
    try:
        check_data(path, warn)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except ConfigError as error:
        raise ConfigError(f"--data: {error}") from None
    except OSError as error:
        raise ConfigError(f"--data: {path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ConfigError(f"--data: {path}: another process has it open; end that one, or name another file") from None
    try:
        if _is_ours(descriptor):
            close_data(path, descriptor, warn)
    except (ConfigError, OSError) as error:
        os.close(descriptor)
        raise ConfigError(f"--data: {error}") from None
    return descriptor


def _is_ours(descriptor: int) -> bool:
    """Return True for a new file and for one with our application id in SQLite's header; others must not be modified."""
    header = os.pread(descriptor, 100, 0)
    return not header or (header.startswith(b"SQLite format 3\0") and header[68:72] == APPLICATION.to_bytes(4))


def _open(path: Path) -> sqlite3.Connection:
    # Used by the opening thread first and by the writer thread later, never by both at once.
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        _prepare(path, connection)
    except MoorageError:
        connection.close()
        raise
    except sqlite3.OperationalError as error:
        connection.close()
        raise ConfigError(f"--data: {path}: {error}") from None
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _damaged(path, error) from None
    return connection


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Check that the file is ours, and create the tables of a new one."""
    execute = connection.execute
    # Exclusive mode keeps the log's index in memory, as no other process reads the file. With synchronous FULL a
    # transaction is committed only when it is on disk, not in the system's cache.
    execute("PRAGMA locking_mode = EXCLUSIVE")
    execute("PRAGMA journal_mode = WAL")
    execute("PRAGMA synchronous = FULL")
    execute(f"PRAGMA journal_size_limit = {_MAX_WAL_BYTES}")
    execute("BEGIN EXCLUSIVE")
    application, layout = (execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    tables = execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not tables and not application:
        for statement in _TABLES:
            execute(statement)
    elif application != APPLICATION:
        raise InputError(f"{path}: it is an SQLite file, but not a file of moorage up")
    elif layout != FORMAT:
        raise InputError(f"{path}: its format is {layout}; this release reads {FORMAT}")
    execute("COMMIT")
