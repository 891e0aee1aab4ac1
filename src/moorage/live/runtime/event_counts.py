"""Events of core/v1, as client-go counts them where an API server does not serve ``events.k8s.io/v1``.

An event that says again what an earlier one said raises the count of that one. From the tenth text about one object with the
same reason within ten minutes on, further ones are counted together, as ``(combined from similar events)``. An object may get
25 events at once and then one in five minutes; what exceeds that is counted and not written.

Source  client-go/tools/record/events_cache.go
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from moorage.live.runtime.ports import EventNote

__all__ = ["Counted", "EventCounts"]

#: From this number of texts on, events of one object and reason are counted together, if each comes within this many seconds.
_TEXTS: Final = 10
_SIMILAR_S: Final = 600.0
_COMBINED: Final = "(combined from similar events): "
#: How many events an object may get at once, and in how many seconds it may have one more.
_BURST: Final = 25.0
_REFILL_S: Final = 300.0
#: How many objects, and how many events, are remembered.
_REMEMBERED: Final = 4096

_Key = tuple[str, ...]
Value = TypeVar("Value")


class Counted(NamedTuple):
    """An event to write: its key among all, its text, how often it occurred, and whether it stands for several texts."""

    key: _Key
    text: str
    occurred: int
    combined: bool


class _Similar(Struct, gc=False):
    """The texts about one object with one reason, and the time of the last in seconds."""

    texts: set[str]
    last_s: float


class _Allowance(Struct, gc=False):
    """How many events an object may still get, as of a time in seconds."""

    left: float
    at_s: float


class EventCounts:
    """Counts the events of one process."""

    def __init__(self) -> None:
        self._similar: OrderedDict[_Key, _Similar] = OrderedDict()
        self._counts: OrderedDict[_Key, int] = OrderedDict()
        self._allowances: OrderedDict[_Key, _Allowance] = OrderedDict()

    def add(self, note: EventNote, text: str, now_s: float) -> Counted | None:
        """Count a note, whose text may be cut, at a time in seconds. Return the event to write, None beyond the rate."""
        meta = note.regarding.metadata
        about = (note.reporter, meta.namespace, meta.name, meta.uid)
        group = (*about, note.kind, note.reason)
        combined = self._is_combined(group, text, now_s)
        # All texts that are counted together have one key, which no text can have: a tuple of another length.
        key = group if combined else (*group, text)
        count = self._counts.pop(key, 0) + 1
        _keep(self._counts, key, count)
        if not self._may_write(about, now_s):
            return None
        return Counted(key, _COMBINED + text if combined else text, count, combined)

    def _is_combined(self, group: _Key, text: str, now_s: float) -> bool:
        similar = self._similar.pop(group, None)
        if similar is None or now_s - similar.last_s > _SIMILAR_S:
            similar = _Similar(set(), now_s)
        similar.texts.add(text)
        similar.last_s = now_s
        _keep(self._similar, group, similar)
        if len(similar.texts) < _TEXTS:
            return False
        similar.texts.pop()
        return True

    def _may_write(self, about: _Key, now_s: float) -> bool:
        allowance = self._allowances.pop(about, None) or _Allowance(_BURST, now_s)
        allowance.left = min(_BURST, allowance.left + (now_s - allowance.at_s) / _REFILL_S)
        allowance.at_s = now_s
        allowed = allowance.left >= 1.0
        if allowed:
            allowance.left -= 1.0
        _keep(self._allowances, about, allowance)
        return allowed


def _keep(kept: OrderedDict[_Key, Value], key: _Key, value: Value) -> None:
    kept[key] = value
    if len(kept) > _REMEMBERED:
        kept.popitem(last=False)
