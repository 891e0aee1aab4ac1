"""The history of a run, in order: the writes that the API accepted, the requests, and what schedulers saw and tried.

Plain values that are saved as JSON and are independent of the scheduler. The oracle needs nothing else.
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
    "Observed",
    "Recording",
    "RequestRecord",
    "WriteRecord",
]

Document = dict[str, Any]

#: The kinds of volumes and devices.
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
    """The API server lost its last writes: these are all pods, nodes and ``held`` objects (volumes, claims, devices) now.

    Clients that saw or made the lost writes still rely on them. ``version`` is the resource version that the server goes on
    from.
    """

    at_s: float
    version: int
    pods: list[Document]
    nodes: list[Document]
    held: list[Document] = field(default_factory=list)


@dataclass(slots=True)
class RequestRecord:
    """A request was sent. ``code``: the API's response, which the client may not have received; 0 if it never arrived."""

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
    """A complete list of a kind reached a scheduler: the resource versions of its objects, by UID.

    ``lags``: it shows an earlier state, so a scheduler with newer objects ignores it.
    """

    at_s: float
    actor: str
    kind: str
    version: int
    versions: dict[str, int]
    lags: bool = False


@dataclass(slots=True)
class Observed:
    """A scheduler observed an object at ``version``, or its deletion."""

    at_s: float
    actor: str
    gone: bool
    kind: str
    key: str
    uid: str
    version: int


@dataclass(slots=True)
class AttemptRecord:
    """A scheduler made an attempt. ``node`` is "" for a failed one; ``victims`` are the pods to preempt."""

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
    """A measurement of a scheduler's memory at a time without load."""

    at_s: float
    actor: str
    what: str
    count: int


Entry = WriteRecord | Lost | RequestRecord | Listed | Observed | AttemptRecord | Called | MemoryRecord


@dataclass
class Recording:
    """``broken``: invariants that were seen broken during the run; ``faults``: the injected faults, for people."""

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
        """Save everything as one JSON object a line."""
        with path.open("w", encoding="utf-8") as file:
            for entry in self.entries:
                file.write(json.dumps({"what": type(entry).__name__, **asdict(entry)}, sort_keys=True) + "\n")
            for name in ("faults", "reports", "exits", "broken"):
                file.write(json.dumps({"what": name, "lines": getattr(self, name)}) + "\n")
