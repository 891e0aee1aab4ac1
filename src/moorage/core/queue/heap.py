"""A heap from which any member can be removed: its entry is emptied in place and skipped when it reaches the top.

Most members are pushed in ascending order. Those are kept in a deque, whose first entry is taken in constant time; the others
are in a heap. Empty entries are removed once they outnumber the others, so that churn does not grow memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_SLACK = 64


class LazyHeap(Generic[T]):
    """Members by name, least key first; equal keys by ``order``, then in the order they were pushed."""

    def __init__(self) -> None:
        #: ``[key, order, serial number, item, name]``; the item is None once the member was removed.
        self._heap: list[list[Any]] = []
        #: Entries of the same form, in ascending order.
        self._row: deque[list[Any]] = deque()
        #: Name → entry. Always the same mapping; do not change it.
        self.entries: dict[str, list[Any]] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[T]:
        """Yield the members in the order they would be popped."""
        for entry in sorted(self.entries.values(), key=lambda e: e[:3]):
            yield entry[3]

    def push(self, name: str, key: Any, order: int, item: T) -> None:
        """Add a member, or give one a new key."""
        held = self.entries.get(name)
        if held is not None:
            held[3] = None
        self._serial += 1
        entry = [key, order, self._serial, item, name]
        self.entries[name] = entry
        row = self._row
        if not row or row[-1] < entry:
            row.append(entry)
        else:
            heappush(self._heap, entry)
        if held is not None:
            self._clear_out()

    def discard(self, name: str) -> bool:
        """Remove a member. Return whether there was one."""
        entry = self.entries.pop(name, None)
        if entry is None:
            return False
        entry[3] = None
        row = self._row
        if row and row[0] is entry:
            row.popleft()
        else:
            self._clear_out()
        return True

    def peek(self) -> T | None:
        """Return the first member, or None if there is none."""
        row = self._row
        if row and not self._heap and row[0][3] is not None:
            member: T = row[0][3]
            return member
        entry = self._first()
        return None if entry is None else entry[3]

    def pop(self) -> T | None:
        """Remove and return the first member, or return None if there is none."""
        row = self._row
        if row and not self._heap and row[0][3] is not None:
            entry = row.popleft()
            del self.entries[entry[4]]
            first: T = entry[3]
            return first
        found = self._first()
        if found is None:
            return None
        if row and row[0] is found:
            row.popleft()
        else:
            heappop(self._heap)
        del self.entries[found[4]]
        member: T = found[3]
        return member

    def _first(self) -> list[Any] | None:
        """Return the entry of the first member. Drops the empty entries before it."""
        row, heap = self._row, self._heap
        while row and row[0][3] is None:
            row.popleft()
        if not heap:
            return row[0] if row else None
        while heap and heap[0][3] is None:
            heappop(heap)
        if not row or not heap:
            return row[0] if row else heap[0] if heap else None
        return min(row[0], heap[0])

    def save(self) -> Callable[[], None]:
        """Return a function that restores the members and their order."""
        entries, serial = [entry.copy() for entry in self.entries.values()], self._serial

        def restore() -> None:
            self.entries.clear()
            self.entries.update({entry[4]: entry for entry in entries})
            self._heap, self._row = [], deque(sorted(entries))
            self._serial = serial

        return restore

    def _clear_out(self) -> None:
        if len(self._heap) + len(self._row) > 2 * len(self.entries) + _SLACK:
            self._heap = [entry for entry in self._heap if entry[3] is not None]
            heapify(self._heap)
            self._row = deque(entry for entry in self._row if entry[3] is not None)
