"""The objects on disk: an SQLite file that is one step behind memory, and never behind an answer.

Memory is the truth for reading. Every change is handed to the journal as it happens; whoever has to answer for a change waits
until the file has it (``settle``). Changes that came in while the disk was busy go there together, in one transaction, so many
clients share the cost of one sync. The file holds the last version of every object, and no history.

A transaction is in the file as a whole or not at all, whatever ends the process; what SQLite's log holds of a transaction that
did not end is passed over at the next start. When the disk is full the changes stay in memory, nobody is told that they are
kept, and nothing further is taken in until they are.

Source  sqlite.org/wal.html and /pragma.html for what is promised
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from moorage.apiserver.storage.watch_cache import Change
from moorage.apiserver.vocabulary.records import Record
from moorage.apiserver.vocabulary.served_kinds import KINDS, ServedKind
from moorage.apiserver.vocabulary.statuses import ApiError
from moorage.errors import ConfigError, InputError, MoorageError
from moorage.private_files import Tell, check_data, close_data

__all__ = ["FORMAT", "SQLiteLog"]

#: What marks the file as ours ("moor"), and the layout of its tables.
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
_KEEP: Final = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)"
_DROP: Final = "DELETE FROM objects WHERE resource = ? AND key = ?"
#: Largest log that is left lying about, in bytes.
_LOG: Final = 64 << 20


class LogEntry(NamedTuple):
    """The last of an object: its record, or None for one that went."""

    resource: str
    key: str
    version: int
    record: Record | None


class SQLiteLog:
    """A file that one process at a time has open. Made by one thread; ``append`` and ``settle`` are for one event loop.

    ``tell`` hears of it where others could read the file, which is then closed to them.

    Raises  ConfigError where the file cannot be opened or another process has it, InputError where it is damaged or not ours
    """

    def __init__(self, path: Path, tell: Tell = lambda line: None) -> None:
        self._path = path
        self._lock = _locked(path, tell)
        try:
            self._connection = _open(path)
        except BaseException:
            os.close(self._lock)
            raise
        self._pending: list[LogEntry] = []
        self._writing: asyncio.Task[None] | None = None
        self._appended = self._kept = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self.appended = asyncio.Event()
        #: Why the last attempt to write failed, where it did.
        self.failure = ""

    def load(self) -> Iterator[tuple[ServedKind, Record]]:
        """Yield all objects of the file.

        Raises  InputError at the first that is damaged
        """
        kinds = {kind.qualified: kind for kind in KINDS}
        try:
            rows = self._connection.execute("SELECT resource, key, version, crc, body FROM objects ORDER BY resource, key")
            for resource, key, version, crc, body in rows:
                if resource not in kinds:
                    raise InputError(f"{self._path}: it holds {resource}, which this release does not serve")
                if not isinstance(body, bytes) or _sum(resource, key, version, body) != crc:
                    raise InputError(f"{self._path}: {resource} {key} is damaged; start from a copy of the file, or without it")
                yield kinds[resource], Record.read(kinds[resource], body, version)
        except sqlite3.DatabaseError as error:
            raise _damaged(self._path, error) from None

    @property
    def version(self) -> int:
        """The last version that was kept."""
        try:
            return int(self._connection.execute("SELECT version FROM counter").fetchone()[0])
        except (sqlite3.DatabaseError, TypeError) as error:
            raise _damaged(self._path, error) from None

    def start_at(self, version: int) -> None:
        """Keep that versions up to this one count as given out."""
        try:
            self._connection.execute("UPDATE counter SET version = ?", (version,))
        except sqlite3.Error as error:
            raise ConfigError(f"{self._path}: cannot be written: {error}") from None

    def append(self, kind: ServedKind, change: Change) -> None:
        """Take a change in; it is on disk when a ``settle`` that began later returns."""
        record = change.after
        self._pending.append(LogEntry(kind.qualified, record.key, change.version, None if change.gone else record))
        self._appended += 1
        self.appended.set()

    async def settle(self) -> None:
        """Wait until everything that was appended so far is on disk.

        Raises  ApiError 507 when it cannot be written; it stays pending, and the next call tries again
        """
        goal = self._appended
        while self._kept < goal:
            if self._writing is None:
                self._writing = asyncio.ensure_future(self._write_pending())
            await asyncio.shield(self._writing)

    async def check(self) -> None:
        """Make sure that changes can be kept, before one is made.

        Raises  ApiError 507 while earlier changes cannot be written
        """
        if self.failure:
            try:
                await self.settle()
            except ApiError as error:
                error.retry_after_s = 1  # it was not even tried, so trying again is safe
                raise

    async def _write_pending(self) -> None:
        batch, self._pending = self._pending, []
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, batch)
        except BaseException as error:
            # Whatever it was: nobody has been told that these are kept, and writing them twice does no harm.
            self._pending = [*batch, *self._pending]
            self.failure = str(error) or type(error).__name__
            if isinstance(error, Exception):
                raise _not_kept(self._path, self.failure) from None
            raise
        else:
            self._kept += len(batch)
            self.failure = ""
        finally:
            self._writing = None

    async def keep_up(self) -> None:
        """Write changes that nobody waits for, as they come, until cancelled."""
        while True:
            await self.appended.wait()
            self.appended.clear()
            try:
                await self.settle()
            except ApiError:
                await asyncio.sleep(1)
                self.appended.set()

    def flush(self) -> None:
        """Write everything now, without an event loop.

        Raises  ConfigError when it cannot be written
        """
        batch, self._pending = self._pending, []
        try:
            self._thread.submit(self._write, batch).result()
        except sqlite3.Error as error:
            self._pending = batch
            raise ConfigError(f"{self._path}: cannot be written: {error}") from None
        self._kept += len(batch)

    def close(self) -> None:
        """Write everything and let go of the file. A full disk is not held against those who close."""
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
            (*entry[:3], _sum(*entry[:3], entry.record.body), entry.record.body)
            for entry in last.values()
            if entry.record is not None
        ]
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(_KEEP, kept)
            self._connection.executemany(_DROP, [place for place, one in last.items() if one.record is None])
            execute("UPDATE counter SET version = ?", (batch[-1].version,))
            execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise


def _sum(resource: str, key: str, version: int, body: bytes) -> int:
    """Return the checksum of a row."""
    return zlib.crc32(body, zlib.crc32(f"{resource} {key} {version}".encode()))


def _not_kept(path: Path, why: str) -> ApiError:
    return ApiError(507, "InsufficientStorage", f"the change could not be stored: {path.name}: {why}")


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"--data: {path}: it is damaged, or never was a cluster that moorage up kept ({error}); "
        "start from a copy of it, or with another file"
    )


def _locked(path: Path, tell: Tell) -> int:
    """Return a descriptor that holds the file's lock, after making the file for its owner only.

    SQLite's own lock would be lost as soon as anything in this process closes the file; this one is not.
    """
    try:
        check_data(path, tell)
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
            close_data(path, descriptor, tell)
    except (ConfigError, OSError) as error:
        os.close(descriptor)
        raise ConfigError(f"--data: {error}") from None
    return descriptor


def _is_ours(descriptor: int) -> bool:
    """Return True for a new file, and for one with our mark in SQLite's header; any other is not ours to change."""
    header = os.pread(descriptor, 100, 0)
    return not header or (header.startswith(b"SQLite format 3\0") and header[68:72] == APPLICATION.to_bytes(4))


def _open(path: Path) -> sqlite3.Connection:
    # Used from the thread that opens it and then from the writing thread, never at once.
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
    """Check that the file is ours, and make its tables where it is new."""
    execute = connection.execute
    # Nobody else reads the file meanwhile, which keeps the log's index in memory; and a transaction counts as kept when the
    # disk has it, not the system.
    execute("PRAGMA locking_mode = EXCLUSIVE")
    execute("PRAGMA journal_mode = WAL")
    execute("PRAGMA synchronous = FULL")
    execute(f"PRAGMA journal_size_limit = {_LOG}")
    execute("BEGIN EXCLUSIVE")
    application, layout = (execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    tables = execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not tables and not application:
        for statement in _TABLES:
            execute(statement)
    elif application != APPLICATION:
        raise InputError(f"{path}: it is an SQLite file, but not one of moorage's")
    elif layout != FORMAT:
        raise InputError(f"{path}: its format is {layout}; this release reads {FORMAT}")
    execute("COMMIT")
