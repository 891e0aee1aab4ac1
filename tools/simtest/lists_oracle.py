"""The oracle for lists: what a scheduler has received and not processed yet.

    S18 no attempt before a list of every kind has arrived, nor while an arrived list is being processed

A list counts from the moment when its last byte reached the scheduler. Its content is compared with the scheduler's state by
UID and version, so it does not matter how the scheduler processes a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tools.simtest.recording import AttemptRecord, Entry, Listed, Lost, Observed

__all__ = ["Lists"]


@dataclass
class _Shown:
    """The state of one scheduler, and the content of its lists."""

    #: Kinds and versions of all processed objects, by UID.
    known: dict[str, tuple[str, int]] = field(default_factory=dict)
    newest: int = 0
    #: Kinds that have been listed.
    kinds: set[str] = field(default_factory=set)
    #: Unprocessed objects: kinds and versions by UID, and the UIDs of deleted objects.
    waits: dict[str, tuple[str, int]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    #: True if versions were reused, so that nothing can be compared.
    in_doubt: bool = False


class Lists:
    """Lists by scheduler. ``say`` takes the invariant, the time and a text."""

    def __init__(self, entries: Iterable[Entry], say: Callable[[str, float, str], None]) -> None:
        self._say = say
        self._shown: dict[str, _Shown] = {}
        #: Scheduler → kind → index of the entry with its first list.
        self._first: dict[str, dict[str, int]] = {}
        for number, entry in enumerate(entries):
            if isinstance(entry, Listed):
                self._first.setdefault(entry.actor, {}).setdefault(entry.kind, number)

    def _of(self, actor: str) -> _Shown:
        return self._shown.setdefault(actor, _Shown())

    def waiting(self, actor: str) -> dict[str, tuple[str, int]]:
        """Return kinds and versions, by UID, of the objects in a scheduler's lists that it has not processed."""
        return self._of(actor).waits

    def listed(self, entry: Listed) -> None:
        shown = self._of(entry.actor)
        lags = entry.lags and entry.kind in shown.kinds
        shown.kinds.add(entry.kind)
        if shown.in_doubt or lags or entry.version < shown.newest:  # schedulers ignore a list from the past
            return
        shown.newest = entry.version
        for uid, version in entry.versions.items():
            if uid not in shown.known or shown.known[uid][1] < version:
                shown.waits[uid] = entry.kind, version
        for uid, (kind, _) in shown.known.items():
            if kind == entry.kind and uid not in entry.versions:
                shown.gone.add(uid)

    def observed(self, entry: Observed) -> None:
        shown = self._of(entry.actor)
        shown.newest = max(shown.newest, entry.version)
        shown.gone.discard(entry.uid)
        if entry.gone:
            shown.known.pop(entry.uid, None)
            return
        shown.known[entry.uid] = entry.kind, entry.version
        if entry.uid in shown.waits and shown.waits[entry.uid][1] <= entry.version:
            del shown.waits[entry.uid]

    def lost(self, entry: Lost, newest: int) -> None:
        """Drop all lists after lost writes. ``newest``: the latest version before. If versions are reused, compare nothing."""
        for shown in self._shown.values():
            shown.waits.clear()
            shown.gone.clear()
            shown.in_doubt = shown.in_doubt or entry.version <= newest

    def tried(self, number: int, entry: AttemptRecord) -> None:
        """Check S18."""
        late = sorted(kind for kind, first in self._first.get(entry.actor, {}).items() if first > number)
        if late:
            self._say("S18", entry.at_s, f"{entry.actor} tried {entry.uid} before the first list of {', '.join(late)}")
        shown = self._of(entry.actor)
        if shown.waits or shown.gone:
            kinds = sorted({kind for kind, _ in shown.waits.values()} | {shown.known[uid][0] for uid in shown.gone})
            text = f"{entry.actor} tried {entry.uid} with {len(shown.waits) + len(shown.gone)} unprocessed objects"
            self._say("S18", entry.at_s, f"{text} of its lists: {', '.join(kinds)}")
