"""The oracle for lists: what a scheduler was shown, and has not taken in.

    S18 nothing is tried before a list of every kind has arrived, and never while one that has arrived is taken in

A list counts from the moment at which its last byte reached the scheduler. What it says and what the scheduler knows are
compared by UID and version, so it does not matter how the scheduler takes a list in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from moorage.testing.simtest.recording import AttemptRecord, Entry, Listed, Lost, Told

__all__ = ["Lists"]


@dataclass
class _Shown:
    """What one scheduler knows, and what lists have shown it."""

    #: Kinds and versions of all objects that it took in, by UID.
    known: dict[str, tuple[str, int]] = field(default_factory=dict)
    newest: int = 0
    #: Kinds of which there was a list.
    kinds: set[str] = field(default_factory=set)
    #: What it has not taken in: kinds and versions by UID, and the UIDs of what is gone.
    waits: dict[str, tuple[str, int]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    #: True where versions were given out a second time, so that nothing can be said.
    in_doubt: bool = False


class Lists:
    """Lists by scheduler. ``say`` takes the promise, the time and what broke it."""

    def __init__(self, entries: Iterable[Entry], say: Callable[[str, float, str], None]) -> None:
        self._say = say
        self._shown: dict[str, _Shown] = {}
        #: By scheduler, which entry was the first list of each kind, as far as one ever came.
        self._first: dict[str, dict[str, int]] = {}
        for number, entry in enumerate(entries):
            if isinstance(entry, Listed):
                self._first.setdefault(entry.actor, {}).setdefault(entry.kind, number)

    def _of(self, actor: str) -> _Shown:
        return self._shown.setdefault(actor, _Shown())

    def waiting(self, actor: str) -> dict[str, tuple[str, int]]:
        """Return the kinds and versions of what lists have shown to a scheduler, and it has not taken in, by UID."""
        return self._of(actor).waits

    def listed(self, entry: Listed) -> None:
        shown = self._of(entry.actor)
        lags = entry.lags and entry.kind in shown.kinds
        shown.kinds.add(entry.kind)
        if shown.in_doubt or lags or entry.version < shown.newest:  # a list that goes back in time is not believed
            return
        shown.newest = entry.version
        for uid, version in entry.versions.items():
            if uid not in shown.known or shown.known[uid][1] < version:
                shown.waits[uid] = entry.kind, version
        for uid, (kind, _) in shown.known.items():
            if kind == entry.kind and uid not in entry.versions:
                shown.gone.add(uid)

    def told(self, entry: Told) -> None:
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
        """Forget lists. ``newest``: the latest version of before. Where some are given out twice, nothing can be compared."""
        for shown in self._shown.values():
            shown.waits.clear()
            shown.gone.clear()
            shown.in_doubt = shown.in_doubt or entry.version <= newest

    def tried(self, number: int, entry: AttemptRecord) -> None:
        """S18."""
        late = sorted(kind for kind, first in self._first.get(entry.actor, {}).items() if first > number)
        if late:
            self._say("S18", entry.at_s, f"{entry.actor} tried {entry.uid} before a list arrived of {', '.join(late)}")
        shown = self._of(entry.actor)
        if shown.waits or shown.gone:
            kinds = sorted({kind for kind, _ in shown.waits.values()} | {shown.known[uid][0] for uid in shown.gone})
            text = f"{entry.actor} tried {entry.uid} when {len(shown.waits) + len(shown.gone)} objects of its lists were not"
            self._say("S18", entry.at_s, f"{text} taken in: {', '.join(kinds)}")
