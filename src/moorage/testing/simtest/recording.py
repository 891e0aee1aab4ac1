"""What happened in a run, in order: every write that the API accepted, every request, what schedulers were told and tried.

Plain values that go to a file as JSON and know nothing of the scheduler. An oracle needs nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "HELD",
    "AttemptRecord",
    "Called",
    "Entry",
    "Listed",
    "Lost",
    "MemoryRecord",
    "Recording",
    "RequestRecord",
    "Told",
    "WriteRecord",
]

Document = dict[str, Any]

#: Kinds of what pods hold.
HELD = ("PersistentVolume", "PersistentVolumeClaim", "ResourceClaim", "ResourceSlice")


@dataclass(slots=True)
class WriteRecord:
    """The API accepted a write: ``change`` is ADDED, MODIFIED or DELETED, ``document`` the object after it."""

    at_s: float
    actor: str
    verb: str
    change: str
    kind: str
    key: str
    uid: str
    version: int
    document: Document


@dataclass(slots=True)
class Lost:
    """The API server lost its last writes with its life: these are all pods and nodes from now on, as they once were, and what
    pods hold (``held``: volumes, claims and the like).

    Whoever saw or made those writes still believes in them. ``version`` is the one that the server goes on from.
    """

    at_s: float
    version: int
    pods: list[Document]
    nodes: list[Document]
    held: list[Document] = field(default_factory=list)


@dataclass(slots=True)
class RequestRecord:
    """A request was sent. ``code`` is what the API answered, 0 where it never got there; the client may not have heard."""

    at_s: float
    actor: str
    method: str
    path: str
    code: int = 0
    node: str = ""
    uid: str = ""
    holder: str = ""
    grace_given: bool = False


@dataclass(slots=True)
class Listed:
    """A list of a kind has reached a scheduler as a whole: the versions of all objects in it, by UID.

    ``lags``: it shows how things were some time before it was asked for, so a scheduler that knew better does not believe it.
    """

    at_s: float
    actor: str
    kind: str
    version: int
    versions: dict[str, int]
    lags: bool = False


@dataclass(slots=True)
class Told:
    """A scheduler took in an object as it was at ``version``, or that it is gone."""

    at_s: float
    actor: str
    gone: bool
    kind: str
    key: str
    uid: str
    version: int


@dataclass(slots=True)
class AttemptRecord:
    """A scheduler made an attempt. ``node`` is "" where it found none; ``victims`` are who it wants evicted."""

    at_s: float
    actor: str
    uid: str
    node: str
    victims: tuple[str, ...] = ()


@dataclass(slots=True)
class Called:
    """A plugin was called for a pod at Reserve, Unreserve or PostBind."""

    at_s: float
    actor: str
    plugin: str
    point: str
    uid: str


@dataclass(slots=True)
class MemoryRecord:
    """How much of something a scheduler held, at a time when nothing was different from when it was weighed before."""

    at_s: float
    actor: str
    what: str
    count: int


Entry = WriteRecord | Lost | RequestRecord | Listed | Told | AttemptRecord | Called | MemoryRecord


@dataclass
class Recording:
    """``broken`` are promises that were seen broken while it ran; ``faults`` what was done to the run, for people."""

    clock: Callable[[], float]
    entries: list[Entry] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    exits: list[tuple[float, str, str]] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)

    def report(self, actor: str, line: str) -> None:
        self.reports.append(f"{self.clock():9.3f} {actor} {line}")

    def fault(self, line: str) -> None:
        self.faults.append(f"{self.clock():9.3f} {line}")

    def save(self, path: Path) -> None:
        """Write everything as one JSON object a line."""
        with path.open("w", encoding="utf-8") as file:
            for entry in self.entries:
                file.write(json.dumps({"what": type(entry).__name__, **asdict(entry)}, sort_keys=True) + "\n")
            for name in ("faults", "reports", "exits", "broken"):
                file.write(json.dumps({"what": name, "lines": getattr(self, name)}) + "\n")
