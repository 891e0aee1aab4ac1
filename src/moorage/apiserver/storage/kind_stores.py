"""The objects of one kind, in the order of their keys, with their history."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping

from moorage.apiserver.storage.list_selection import Selection
from moorage.apiserver.storage.watch_cache import Change, WatchCache
from moorage.apiserver.vocabulary.records import Record

__all__ = ["KindStore", "between", "matching"]


class KindStore:
    """The objects of one kind. ``keys`` are those of ``records``, sorted."""

    def __init__(self, capacity: int, floor: int = 0) -> None:
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []
        self.history = WatchCache(floor, capacity)

    def put(self, before: Record | None, after: Record) -> Change:
        """Place a new object, or another version of one; return what history is to say of it."""
        if before is None:
            insort(self.keys, after.key)
        self.records[after.key] = after
        return Change(after.version, before, after)

    def remove(self, before: Record, gone: Record) -> Change:
        """Take an object away, and return what history is to say of it."""
        del self.records[before.key]
        del self.keys[bisect_left(self.keys, before.key)]
        return Change(gone.version, before, gone, gone=True)


def between(keys: list[str], namespace: str | None, after: str) -> range:
    """Return where the keys are that come after one, of a namespace or of all (None)."""
    start, end = (bisect_right(keys, after) if after else 0), len(keys)
    if namespace is not None:
        # "0" is the character after the slash.
        start = max(start, bisect_left(keys, f"{namespace}/"))
        end = bisect_left(keys, f"{namespace}0")
    return range(start, end)


def matching(records: Mapping[str, Record], keys: list[str], chosen: Selection, after: str = "") -> Iterator[Record]:
    """Yield the objects of a selection whose keys come after one, in their order."""
    for i in between(keys, chosen.namespace, after):
        record = records[keys[i]]
        if chosen.matches(record):
            yield record
