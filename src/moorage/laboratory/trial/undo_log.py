"""The undo log: one entry for each change since a transaction began, oldest first, that reverses the change.

The parts of a recorded simulation write to it while a transaction is open. Each entry restores one part, with its sums and
order, to the state just before its change, provided that all later changes were reversed before. So a rollback runs the entries
backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["UndoLog"]

Undo = Callable[[], None]


class _Level:
    """One open transaction: the index of its first entry, the parts that were saved as a whole, and whether the log gave up."""

    __slots__ = ("begin", "saved", "too_few")

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.saved: set[Hashable] = set()
        self.too_few = False


class UndoLog:
    """The entries of all open transactions. ``depth`` is the number of open transactions."""

    def __init__(self) -> None:
        self._entries: list[Undo] = []
        self._levels: list[_Level] = []

    @property
    def depth(self) -> int:
        return len(self._levels)

    @property
    def is_open(self) -> bool:
        return bool(self._levels)

    def begin(self) -> None:
        """Open a transaction, nested in the innermost open one if there is any."""
        self._levels.append(_Level(len(self._entries)))

    def add(self, undo: Undo) -> None:
        """Add an entry; a transaction must be open."""
        self._entries.append(undo)

    def is_new(self, part: Hashable) -> bool:
        """Return True if a transaction is open and this is the first call for this part in it."""
        if not self._levels or part in self._levels[-1].saved:
            return False
        self._levels[-1].saved.add(part)
        return True

    def give_up(self) -> None:
        """Record a change that no entry reverses, so that the state has to be rebuilt from its history."""
        if self._levels:
            self._levels[-1].too_few = True

    def commit(self) -> None:
        """Close the innermost transaction; its changes become part of the enclosing one."""
        closed = self._levels.pop()
        if self._levels:
            self._levels[-1].saved |= closed.saved
            self._levels[-1].too_few |= closed.too_few
        else:
            self._entries.clear()

    def roll_back(self) -> bool:
        """Close the innermost transaction and reverse its changes. Return False if they cannot be reversed."""
        closed = self._levels.pop()
        entries = self._entries[closed.begin :]
        del self._entries[closed.begin :]
        if closed.too_few:
            if self._levels:
                self._levels[-1].too_few = True
            return False
        for undo in reversed(entries):
            undo()
        return True


NO_LOG: Final = UndoLog()
