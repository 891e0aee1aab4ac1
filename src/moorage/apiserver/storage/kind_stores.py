"""The objects of one kind, sorted by key, with their watch cache."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping

from moorage.apiserver.storage.list_selection import Selection
from moorage.apiserver.storage.watch_cache import StoreChange, WatchCache
from moorage.apiserver.vocabulary.records import Record

__all__ = ["KindStore", "between", "matching"]


class KindStore:
    """The objects of one kind. ``keys`` are the sorted keys of ``records``; ``version`` is that of the last change."""

    def __init__(self, capacity: int, floor: int = 0) -> None:
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []
        self.version = floor
        self.history = WatchCache(floor, capacity)

    def put(self, before: Record | None, after: Record) -> StoreChange:
        """Store a new object or a new version of one, and return the change."""
        if before is None:
            insort(self.keys, after.key)
        self.records[after.key] = after
        self.version = after.version
        return StoreChange(after.version, before, after)

    def remove(self, before: Record, gone: Record) -> StoreChange:
        """Remove an object, and return the change."""
        del self.records[before.key]
        del self.keys[bisect_left(self.keys, before.key)]
        self.version = gone.version
        return StoreChange(gone.version, before, gone, gone=True)

    def end(self) -> None:
        """End all watches after their pending events: the kind is no longer stored here."""
        for follower in self.history.followers:
            follower.finish()


def between(keys: list[str], namespace: str | None, after: str) -> range:
    """Return the indexes of the keys after ``after`` in a namespace, or in all (None)."""
    start, end = (bisect_right(keys, after) if after else 0), len(keys)
    if namespace is not None:
        # "0" follows "/" in ASCII.
        start = max(start, bisect_left(keys, f"{namespace}/"))
        end = bisect_left(keys, f"{namespace}0")
    return range(start, end)


def matching(
    records: Mapping[str, Record], keys: list[str], selection: Selection, after: str = "",
    view: Callable[[Record], Record] | None = None,
) -> Iterator[Record]:  # fmt: skip
    """Yield the selected objects whose keys come after ``after``, in key order, each as ``view`` shows it."""
    for i in between(keys, selection.namespace, after):
        record = records[keys[i]]
        if view is not None:
            record = view(record)
        if selection.matches(record):
            yield record
