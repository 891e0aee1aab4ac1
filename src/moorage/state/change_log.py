"""The change log of the node table: which rows changed, in order, for readers that judge only those again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["ChangeLog", "RowLog"]


class RowLog:
    """Rows in the order they changed. A reader keeps a ``position``."""

    #: The least number of entries that are kept; a reader that is further behind must read every row.
    keep = 65_536

    def __init__(self, keep: int | None = None) -> None:
        if keep is not None:
            self.keep = keep
        #: While this is true nothing is logged: the changes are undone before any reader continues.
        self.muted = False
        self.position = 0
        #: The row that changed last.
        self.last = -1
        self._rows = array("q")
        self._dropped = 0

    def note(self, row: int) -> None:
        if self.muted:
            return
        self._rows.append(row)
        self.last = row
        self.position += 1
        if len(self._rows) >= 2 * self.keep:
            del self._rows[: self.keep]
            self._dropped += self.keep

    def note_each(self, rows: Iterable[int]) -> None:
        """Note several rows, each once."""
        for row in dict.fromkeys(rows):
            self.note(row)

    def since(self, position: int) -> list[int] | None:
        """Return the rows changed since ``position``, with repeats; None if some of them have been dropped."""
        return None if position < self._dropped else self._rows[position - self._dropped :].tolist()

    def many_since(self, position: int, rows: int) -> npt.NDArray[np.intp] | None:
        """Return the same as ``since`` as an array, without rows that are gone, of which there are ``rows`` now.

        A row is listed once if more rows changed than there are now, else as often as it changed.
        """
        if position < self._dropped:
            return None
        changed = np.frombuffer(self._rows[position - self._dropped :], dtype=np.intp)
        if not len(changed):
            return changed
        most = changed.item(changed.argmax())
        if len(changed) > rows:
            mask = np.zeros(max(most + 1, rows), dtype=np.bool_)
            mask[changed] = True
            return np.flatnonzero(mask[:rows])
        return changed if most < rows else changed[changed < rows]


class ChangeLog(RowLog):
    """Rows whose node or pods changed.

    ``layout`` counts the times rows were added, removed or renumbered; ``moved`` the same without additions, which leave every
    other row in place; ``images`` the updates that change a node's images, so that data derived from images alone stays valid
    while other things change; ``nodes`` the times any node was added, removed or updated. ``updates`` logs the rows whose
    nodes were updated in place.

    ``arrangement`` identifies which node is in which row. Unlike ``layout``, it returns to its former value once all changes
    since are undone. ``removals``: the nodes that an open transaction removed, empty if it added any; for each the arrangement
    before, the row, and the last row, which took its place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layout = 0
        self.moved = 0
        self.images = 0
        self.nodes = 0
        self.updates = RowLog()
        self.arrangement = 0
        self.removals: tuple[tuple[int, int, int], ...] = ()
        self._arrangements = 0

    def rearranged(self) -> None:
        """Note that a node was added or removed."""
        self.layout += 1
        self._arrangements += 1
        self.arrangement, self.removals = self._arrangements, ()

    def save_arrangement(self) -> Callable[[], None]:
        """Return a function that restores ``arrangement``; call it once all nodes are in their present rows again."""
        arrangement, removals = self.arrangement, self.removals

        def restore() -> None:
            self.arrangement, self.removals = arrangement, removals

        return restore
