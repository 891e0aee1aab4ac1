"""The undo log: what reverses each change since a transaction began, oldest first.

The parts of a recorded simulation write to it. While no transaction is open they write nothing. Each entry restores one part to
what it was just before the change that it stands for, sums and order alike, given that everything later was reversed before. So
a rollback runs the entries backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["UndoLog"]

Undo = Callable[[], None]


class _Level:
    """One open transaction: where its entries begin, what was saved since as a whole, and if the entries are too few."""

    __slots__ = ("begin", "saved", "too_few")

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.saved: set[Hashable] = set()
        self.too_few = False


class UndoLog:
    """The entries of all open transactions. ``depth`` is how many are open."""

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
        """Open a transaction in the one that is open, if any."""
        self._levels.append(_Level(len(self._entries)))

    def add(self, undo: Undo) -> None:
        """Add an entry; a transaction must be open."""
        self._entries.append(undo)

    def is_new(self, part: Hashable) -> bool:
        """Return True, once a transaction, if one is open and this part was not saved in it."""
        if not self._levels or part in self._levels[-1].saved:
            return False
        self._levels[-1].saved.add(part)
        return True

    def give_up(self) -> None:
        """Say that something changed that no entry reverses, so that the state has to be made again from its history."""
        if self._levels:
            self._levels[-1].too_few = True

    def commit(self) -> None:
        """Close the innermost transaction; what it changed belongs to the one around it."""
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
