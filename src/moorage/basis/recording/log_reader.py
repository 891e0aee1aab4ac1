"""The reader of a log: which time it covers, the objects at any moment, the changes between two moments, and its damage.

A moment is rebuilt from the last snapshot before it and the changes since. If the snapshot is damaged, an earlier one serves;
if changes are, the moments after them cannot be rebuilt until the next snapshot, and errors say so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from moorage.basis.recording.frames import CHANGES, END, LOST, OBJECTS, Dropped, LogFrame, Mark, Put, Record, Touched, frames_in
from moorage.basis.recording.log_writer import CHANGES_SUFFIX, SNAPSHOT_SUFFIX, began_at, log_end, log_files
from moorage.errors import InputError

# Moments of a log as text: ``2026-11-24T14:03:00Z``, ``2026-11-24 14:03``, ``14:03``, ``-10m``, ``now``. Times are UTC.

_TIME_OF_DAY: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,6})?))?Z?", re.ASCII)
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_FORMS: Final = "write 2026-11-24T14:03:00Z, 14:03 (the last one in the log), -10m (before its end) or now"


def parse_seconds(text: str) -> float | None:
    """Return the seconds of a duration such as ``7d`` or ``1.5h``; None if it is none."""
    found = _DURATION.fullmatch(text)
    return None if found is None else float(found[1]) * _SECONDS[found[2]]


def parse_moment(text: str, first: int, last: int) -> int:
    """Return a moment in microseconds since 1970, for a log that covers ``first`` to ``last``.

    Raises  InputError
    """
    text = text.strip()
    if text in {"", "now", "end"}:
        return last
    if text.startswith("-") and (before_s := parse_seconds(text[1:])) is not None:
        return last - round(before_s * 1e6)
    if found := _TIME_OF_DAY.fullmatch(text):
        clock = timedelta(hours=int(found[1]), minutes=int(found[2]), seconds=float(found[3] or 0))
        day = datetime.fromtimestamp(last / 1e6, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        at = _microseconds(day + clock)
        return at if at <= last or at - 86_400_000_000 < first else at - 86_400_000_000
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text}: not a moment; {_FORMS}") from None
    if not 1971 <= when.year <= 9998:
        raise InputError(f"{text}: not a moment; {_FORMS}")
    return _microseconds(when if when.tzinfo is not None else when.replace(tzinfo=UTC))


def _microseconds(when: datetime) -> int:
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def moment_text(at: int) -> str:
    """Return a moment as the API writes times, with as many digits as it needs."""
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    return when.isoformat(timespec="microseconds" if at % 1_000_000 else "seconds").replace("+00:00", "Z")


#: The mark of a recorder that starts. What happened before it, while no recorder ran, is not in the log.
STARTED: Final = "started"
_METADATA: Final = b'"metadata":{'


def is_log(path: str | PathLike[str]) -> bool:
    """Return whether a path is a directory with a log, or with what a recorder writes before the first record."""
    found = {one.name: one.suffix for one in Path(path).iterdir()} if Path(path).is_dir() else {}
    return found.keys() == {"lock", "status.json"} or not {CHANGES_SUFFIX, SNAPSHOT_SUFFIX}.isdisjoint(found.values())


class LogFault(NamedTuple):
    """A damaged place of a log. ``torn``: the incomplete frame that a killed recorder left at the end of a file."""

    file: str
    offset: int
    why: str
    torn: bool = False

    def __str__(self) -> str:
        return f"{self.file}: byte {self.offset}: {self.why}"


class LogChange(NamedTuple):
    """An object that came, changed or went: its JSON before and after; None: there was none."""

    at: int
    kind: str
    key: str
    before: bytes | None
    after: bytes | None


@dataclass
class LogState:
    """The objects at a moment: kind and key → resource version and JSON. ``marks`` has the last mark of each sort.

    ``recorded_at``: the time of the last record up to this moment. A recorder that runs writes one every few seconds.
    """

    at: int
    objects: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    recorded_at: int = 0

    def apply(self, record: Record) -> None:
        """Apply one record."""
        self.at = self.recorded_at = record.at
        if isinstance(record, Put):
            self.objects[record.kind, record.key] = record.version, record.body
        elif isinstance(record, Touched):
            known = self.objects.get((record.kind, record.key))
            if known is not None:
                self.objects[record.kind, record.key] = record.version, known[1]
        elif isinstance(record, Dropped):
            self.objects.pop((record.kind, record.key), None)
        else:
            self.marks[record.what] = record


def with_version(body: bytes, version: str) -> bytes:
    """Return the JSON of an object with its resource version."""
    if not version:
        return body
    head, found, rest = body.partition(_METADATA)
    comma = b"" if rest[:1] == b"}" else b","
    return head + found + b'"resourceVersion":"' + version.encode() + b'"' + comma + rest if found else body


class ClusterLog:
    """A log in a directory. It may be written while it is read.

    Raises  InputError if there is no log
    """

    def __init__(self, directory: str | PathLike[str]) -> None:
        self.directory = Path(directory)
        if not is_log(self.directory):
            why = "no log in this directory" if self.directory.is_dir() else "no such directory"
            raise InputError(f"{self.directory}: {why}; moorage record --to {self.directory} writes a log there")
        files = sorted(log_files(self.directory))
        self.changes = [(number, path) for number, path in files if path.suffix == CHANGES_SUFFIX]
        self.snapshots = [(number, path) for number, path in files if path.suffix == SNAPSHOT_SUFFIX]

    @property
    def bytes_on_disk(self) -> int:
        """The size of all files of the log."""
        return sum(path.stat().st_size for _, path in (*self.changes, *self.snapshots))

    def span(self) -> tuple[int, int]:
        """Return the first moment that can be rebuilt and the time of the last record, in microseconds since 1970.

        Raises  InputError if nothing can be rebuilt
        """
        starts = [at for _, path in self.snapshots if (at := began_at(path)) is not None]
        if not starts:
            raise InputError(f"{self.directory}: no complete snapshot yet; wait until the recorder has listed all kinds")
        return starts[0], max(starts[-1], log_end(self.directory)[1])

    # -- a moment ------------------------------------------------------------------------------------------------------

    def state_at(self, at: int) -> LogState:
        """Return the objects at a moment, in microseconds since 1970.

        Raises  InputError if the log does not cover the moment, or is damaged there
        """
        state, number = self._base(at)
        for record in self._records(number, at):
            if isinstance(record, Mark) and record.what == STARTED and state.marks.get(STARTED) != record:
                raise InputError(
                    f"{self.directory}: the snapshot of {moment_text(record.at)} is damaged or missing, and what changed before"
                    " it was not recorded; choose an earlier moment or one after the next snapshot"
                )
            state.apply(record)
        state.at = at
        return state

    def _base(self, at: int) -> tuple[LogState, int]:
        """Return the state of the last whole snapshot that is not after a moment, and the number of the next change."""
        faults = []
        for number, path in reversed(self.snapshots):
            began = began_at(path)
            if began is not None and began > at:
                continue
            try:
                return _snapshot(path), number
            except InputError as error:
                faults.append(str(error))
        if faults:
            raise InputError(*faults, f"{self.directory}: no whole snapshot before {moment_text(at)}")
        covers = " to ".join(map(moment_text, self.span()))
        raise InputError(f"{self.directory}: {moment_text(at)} is before the log begins; it covers {covers}")

    def changes_between(self, since: int, until: int) -> Iterator[LogChange]:
        """Yield the changes of objects after ``since`` up to ``until``, in order.

        What changed while no recorder ran comes when the next one starts.
        Raises  InputError where the log is damaged
        """
        state = self.state_at(since)
        for record in self._records(self._base(since)[1], until):
            if record.at <= since:
                continue
            if isinstance(record, Mark) and record.what == STARTED:
                now = self.state_at(record.at).objects
                found = [(key, now.get(key)) for key in {**state.objects, **now} if state.objects.get(key) != now.get(key)]
            elif isinstance(record, Put | Dropped):
                found = [((record.kind, record.key), (record.version, record.body) if isinstance(record, Put) else None)]
            else:
                continue
            for key, held in found:
                before = state.objects.pop(key, None)
                if held is not None:
                    state.objects[key] = held
                yield LogChange(record.at, *key, before and before[1], held and held[1])

    def _records(self, number: int, until: int) -> Iterator[Record]:
        """Yield the records from a number on, up to a time.

        Raises  InputError at the first damaged place
        """
        expected = number
        for start, path in self.changes:
            if start < number:
                continue
            fault: LogFault | None = None
            for one in frames_in(path.read_bytes()):
                if one.kind == CHANGES and one.number == expected and one.at > until:
                    return
                if one.kind in {CHANGES, LOST} and one.why:
                    fault = fault or _fault(path, one)
                if one.kind == CHANGES:
                    if one.why or one.number != expected:
                        raise self._gap(expected, one.number, fault, path)
                    expected += one.size
                    yield from (record for record in one.records if record.at <= until)
            if fault is not None and not fault.torn:
                raise self._gap(expected, None, fault, path)
        for later, path in self.snapshots:
            if later > expected:
                raise self._gap(expected, later, None, path)

    def _gap(self, expected: int, found: int | None, fault: LogFault | None, path: Path) -> InputError:
        why = str(fault) if fault is not None else f"{path.name}: changes {expected} to {(found or 0) - 1} are missing"
        later = next(
            (begin for number, one in self.snapshots if number > expected and (begin := began_at(one)) is not None), None
        )
        hint = "there is no later snapshot" if later is None else f"moments from {moment_text(later)} on can be read"
        return InputError(f"{self.directory}: the log is damaged: {why}; {hint}")

    # -- damage --------------------------------------------------------------------------------------------------------

    def faults(self) -> list[LogFault]:
        """Read the whole log and return its damaged places, those that a killed recorder left included."""
        found: list[LogFault] = []
        expected: int | None = None
        #: True after a damaged place, which explains missing changes.
        broken = False
        for number, path in sorted((*self.changes, *self.snapshots), key=lambda one: (one[0], one[1].suffix == CHANGES_SUFFIX)):
            if expected is not None and number > expected and not broken:
                found.append(LogFault(path.name, 0, f"changes {expected} to {number - 1} are missing"))
            expected, ended, is_whole = max(number, expected or 0), False, True
            for one in frames_in(path.read_bytes()):
                if one.why:
                    found.append(_fault(path, one))
                    is_whole = is_whole and one.torn
                elif one.kind == CHANGES:
                    if one.number != expected and is_whole and not broken:
                        found.append(LogFault(path.name, one.offset, f"changes {expected} to {one.number - 1} are missing"))
                    expected, broken = one.number + one.size, False
                ended = ended or one.kind == END
            if path.suffix == CHANGES_SUFFIX:
                broken = broken or not is_whole
            elif not ended and is_whole:
                found.append(LogFault(path.name, path.stat().st_size, "the snapshot has no end"))
        return found


def _snapshot(path: Path) -> LogState:
    """Return the objects of a snapshot.

    Raises  InputError if it is not whole
    """
    state, count = LogState(0), 0
    for one in frames_in(path.read_bytes()):
        if one.why:
            raise InputError(f"{path.parent}: the log is damaged: {_fault(path, one)}")
        state.at = one.at
        if one.kind == OBJECTS:
            count += one.size
            for record in one.records:
                state.apply(record)
        elif one.kind == END:
            end = one.records[0]
            if isinstance(end, Mark) and end.facts.get("objects") == count:
                return state
    raise InputError(f"{path.parent}: the log is damaged: {path.name}: the snapshot is not whole")


def _fault(path: Path, one: LogFrame) -> LogFault:
    return LogFault(path.name, one.offset, one.why, one.torn)


# -- a log as input ----------------------------------------------------------------------------------------------------

#: A recorder writes a record at least this often, so a longer silence means that none ran.
STATE_KEPT_S: Final = 30.0


def log_of(path: str) -> tuple[ClusterLog, int] | None:
    """Return the log that a path names, and the moment: ``LOG`` stands for its end, ``LOG@TIME`` for another one.

    Returns None for a path that names no log.
    Raises  InputError
    """
    directory, _, moment = (path, "", "") if os.path.exists(path) else path.rpartition("@")
    if not directory or not is_log(directory):
        return None
    log = ClusterLog(directory)
    return log, parse_moment(moment, *log.span())


def objects_at(log: ClusterLog, moment: int) -> bytes:
    """Return the objects at a moment as a List in JSON, with a record of the log in front.

    Raises  InputError
    """
    state = log.state_at(moment)
    items = [msgspec.json.encode(_record(state)), *(with_version(body, version) for version, body in state.objects.values())]
    return b'{"apiVersion":"v1","kind":"List","items":[\n' + b",\n".join(items) + b"\n]}\n"


def _record(state: LogState) -> dict[str, Any]:
    """Return the record of a dump, which says when and where it was taken and what is missing."""
    started = state.marks.get(STARTED)
    facts = {} if started is None else started.facts
    missing = [{"kind": kind, "why": "not served"} for kind in facts.get("unserved", ())]
    missing += [{"kind": kind, "why": "forbidden"} for kind in facts.get("forbidden", ())]
    silence_s = (state.at - state.recorded_at) / 1e6
    if silence_s > STATE_KEPT_S:
        missing.append({"kind": f"changes after {moment_text(state.recorded_at)}", "why": "no recorder ran"})
    return {
        "apiVersion": "moorage.dev/v1", "kind": "DumpRecord", "metadata": {"name": "dump"},
        "takenAt": moment_text(state.at), "server": facts.get("server", ""), "serverVersion": facts.get("version", ""),
        "notRead": missing,
    }  # fmt: skip
