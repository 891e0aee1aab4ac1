"""The change log of the node table: which rows changed, in order, for readers that judge only those again."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

#: The most spans of undone changes that a log keeps; a reader inside an older one judges more rows again.
_SPANS_KEPT: Final = 512
#: The most steps between two arrangements that caches follow.
_STEPS_FOLLOWED: Final = 16
#: The most arrangements that are kept with the step that led to them.
_REACHED_KEPT: Final = 256


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
        #: Positions, in order: the changes from each of ``_begins`` to its entry of ``_ends`` were all undone. Spans without
        #: a gap share the list that holds their last end.
        self._begins: list[int] = []
        self._ends: list[list[int]] = []
        #: The begins at which a reader was found since spans were last forgotten.
        self._read: set[int] = set()

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

    def note_undone(self, position: int) -> None:
        """Note that all changes since ``position`` are undone: readers that were there, or earlier, need not follow them."""
        begins, ends, end = self._begins, self._ends, self.position
        while begins and begins[-1] >= position:
            begins.pop()
            ends.pop()
        if end == position:
            return
        if ends and ends[-1][0] >= position:
            ends[-1][0] = end
            ends.append(ends[-1])
        else:
            ends.append([end])
        begins.append(position)
        if len(begins) > _SPANS_KEPT:
            self._forget_spans()

    def _forget_spans(self) -> None:
        """Forget the older half of the spans, but none at which a reader was found lately, nor the first: many may be there."""
        half = _SPANS_KEPT // 2
        kept = [at for at in range(1, half) if self._begins[at] in self._read]
        self._begins[1:half] = [self._begins[at] for at in kept]
        self._ends[1:half] = [self._ends[at] for at in kept]
        self._read.clear()

    def behind(self, position: int, until: int | None = None) -> int:
        """Return how many changes there were since ``position``, up to ``until``, without those that were undone."""
        end = self.position if until is None else until
        if not self._begins or position > self._begins[-1]:
            return end - position
        return sum(after - before for before, after in self._pieces(position, end))

    def _pieces(self, position: int, until: int) -> list[tuple[int, int]]:
        """Return from where to where a reader at ``position`` must follow the changes up to ``until``."""
        begins, pieces = self._begins, []
        at = bisect_left(begins, position)
        if at < len(begins) and begins[at] == position:
            self._read.add(position)
        while at < len(begins) and begins[at] < until:
            if begins[at] > position:
                pieces.append((position, begins[at]))
            position = self._ends[at][0]
            at = bisect_left(begins, position, at)
        if position < until:
            pieces.append((position, until))
        return pieces

    def _after(self, position: int, until: int | None = None) -> array[int] | None:
        dropped = self._dropped
        if until is None:
            if not self._begins or position > self._begins[-1]:
                return None if position < dropped else self._rows[position - dropped :]
            until = self.position
        pieces = self._pieces(position, until)
        if pieces and pieces[0][0] < dropped:
            return None
        return array("q", chain.from_iterable(self._rows[begin - dropped : end - dropped] for begin, end in pieces))

    def since(self, position: int, until: int | None = None) -> list[int] | None:
        """Return the rows changed since ``position``, with repeats; None if some of them have been dropped.

        ``until``: the position up to which changes count; None: all
        """
        rows = self._after(position, until)
        return None if rows is None else rows.tolist()

    def many_since(self, position: int, rows: int) -> npt.NDArray[np.intp] | None:
        """Return the same as ``since`` as an array, without rows that are gone, of which there are ``rows`` now.

        A row is listed once if more rows changed than there are now, else as often as it changed.
        """
        after = self._after(position)
        if not after:
            return None if after is None else np.zeros(0, dtype=np.intp)
        changed = np.frombuffer(after, dtype=np.intp)
        most = changed.item(changed.argmax())
        if len(changed) > rows:
            mask = np.zeros(max(most + 1, rows), dtype=np.bool_)
            mask[changed] = True
            return np.flatnonzero(mask[:rows])
        return changed if most < rows else changed[changed < rows]


class Rearrangement(NamedTuple):
    """A node was added or removed: the arrangement before, its row, and the last row; the two differ only for a removal.

    The log has this between the positions ``begin`` and ``end``; ``updates`` is the position of ``ChangeLog.updates``.
    """

    before: int
    row: int
    last: int
    adds: bool
    begin: int = 0
    end: int = 0
    updates: int = 0


class ChangeLog(RowLog):
    """Rows whose node or pods changed.

    ``layout`` counts the times rows were added, removed or renumbered; ``moved`` the same without additions, which leave every
    other row in place; ``images`` the updates that change a node's images, and ``labels`` those that change its labels or
    taints, so that data derived from these alone stays valid while other things change; ``nodes`` the times any node was added,
    removed or updated. ``updates`` logs the rows whose nodes were updated in place.

    ``arrangement`` identifies which node is in which row. Unlike ``layout``, it returns to its former value once all changes
    since are undone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layout = 0
        self.moved = 0
        self.images = 0
        self.labels = 0
        self.nodes = 0
        self.updates = RowLog()
        self.arrangement = 0
        self._arrangements = 0
        #: Arrangement → the step that led to it, in a transaction that is open or was rolled back.
        self._reached: dict[int, Rearrangement] = {}

    def rearranged(self) -> None:
        """Note that a node was added or removed."""
        self.layout += 1
        self._arrangements += 1
        self.arrangement = self._arrangements

    def expect_step(self, row: int, last: int, *, adds: bool) -> Callable[[], None]:
        """Return a function to call once a node was added or removed in a transaction: caches may follow the step then."""
        before, begin = self.arrangement, self.position

        def note() -> None:
            if len(self._reached) >= _REACHED_KEPT:
                del self._reached[next(iter(self._reached))]
            self._reached[self.arrangement] = Rearrangement(
                before, row, last, adds, begin, self.position, self.updates.position
            )

        return note

    @property
    def is_rearranged(self) -> bool:
        """Return whether an open transaction has added or removed nodes, unless they are too many to follow."""
        return self.arrangement in self._reached

    def way_from(self, arrangement: int) -> tuple[list[Rearrangement], list[Rearrangement]] | None:
        """Return the steps to undo, and then the steps to do, that lead to the present arrangement; None if unknown."""
        reached, present = self._reached, [self.arrangement]
        while present[-1] != arrangement and present[-1] in reached and len(present) <= _STEPS_FOLLOWED:
            present.append(reached[present[-1]].before)
        undone: list[Rearrangement] = []
        while arrangement not in present:
            step = reached.get(arrangement)
            if step is None or len(undone) == _STEPS_FOLLOWED:
                return None
            undone.append(step)
            arrangement = step.before
        return undone, [reached[one] for one in reversed(present[: present.index(arrangement)])]

    def settle(self) -> None:
        """Note that the nodes which were added or removed stay so."""
        self._reached.clear()

    def save_arrangement(self) -> Callable[[], None]:
        """Return a function that restores ``arrangement``; call it once all nodes are in their present rows again."""
        arrangement = self.arrangement

        def restore() -> None:
            self.arrangement = arrangement

        return restore
