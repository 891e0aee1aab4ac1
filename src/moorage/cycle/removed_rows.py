"""Follow rows while an open transaction has removed nodes, for caches that keep their arrays until the nodes return."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

__all__ = ["GONE", "MovedRows", "moved_rows"]

#: The row of a node that was removed.
GONE: Final = -1


class MovedRows(NamedTuple):
    """The nodes that changed their row. ``now``: former row → present row, ``GONE`` if removed; ``then``: the reverse."""

    now: dict[int, int]
    then: dict[int, int]

    def present(self, noted: Iterable[int], rows: int) -> dict[int, int]:
        """Return former row → present row, for nodes that moved or may have changed; ``rows`` is the number of former rows.

        ``noted``: changed rows, by the number they had when they changed, so each may stand for two nodes
        """
        noted = set(noted)
        changed = {*noted, *self.now, *(self.then[row] for row in noted if row in self.then)}
        return {row: self.now.get(row, row) for row in changed if row < rows}


def moved_rows(removals: Sequence[tuple[int, int, int]], arrangement: int) -> MovedRows | None:
    """Return how rows moved since ``arrangement``; None if ``removals`` of a ``ChangeLog`` do not reach back to it."""
    steps = [before for before, _, _ in removals]
    if arrangement not in steps:
        return None
    then: dict[int, int] = {}
    now: dict[int, int] = {}
    for _, row, last in removals[steps.index(arrangement) :]:
        now[then.pop(row, row)] = GONE
        if row != last:
            then[row] = then.pop(last, last)
    return MovedRows(now | {before: row for row, before in then.items()}, then)
