"""Follow rows while an open transaction has added or removed nodes, for caches of the rows before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.state.change_log import ChangeLog, Rearrangement, RowLog

#: Stands for the former row of a node that had none.
GONE: Final = -1


class NewRows(NamedTuple):
    """The rows after nodes were added or removed: their number, and present row → former row, ``GONE`` for an added node.

    Every other row has the node that it had before. ``steps``: the nodes added or removed since; None if others were undone.
    """

    rows: int
    former: dict[int, int]
    steps: Sequence[Rearrangement] | None = None

    def of(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy of an array with one entry per former row, by present row; 0 for added nodes."""
        kept = min(self.rows, len(values))
        if kept == self.rows:
            made = values[:kept].copy()
        else:
            made = np.zeros(self.rows, dtype=values.dtype)
            made[:kept] = values
        for row, before in self.former.items():
            made[row] = 0 if before == GONE else values[before]
        return made

    def changed(self, changes: ChangeLog, position: int) -> set[int] | None:
        """Return the rows whose node was added, or that changed since ``position``; None if the log no longer has them."""
        spans = None if self.steps is None else [(step.begin, step.end) for step in self.steps]
        return self._changed(changes, position, spans)

    def updated(self, updates: RowLog, position: int) -> set[int] | None:
        """Return the rows whose node was added, or was updated since ``position`` of the log of updates."""
        spans = None if self.steps is None else [(step.updates, step.updates) for step in self.steps]
        return self._changed(updates, position, spans)

    def _changed(self, log: RowLog, position: int, spans: Sequence[tuple[int, int]] | None) -> set[int] | None:
        if self.steps is None or spans is None:
            noted = log.since(position)  # under the numbers that the rows had then
            return None if noted is None else {row for row in {*noted, *self.former} if row < self.rows}
        changed: set[int] = set()
        for step, (begin, end) in zip(self.steps, spans, strict=True):
            if position < begin and log.behind(position, begin):
                noted = log.since(position, begin)
                if noted is None:
                    return None
                changed.update(noted)
            position = end
            if step.adds:
                changed.add(step.row)
                continue
            changed.discard(step.row)
            if step.last in changed:
                changed.remove(step.last)
                changed.add(step.row)
        if position != log.position:
            noted = log.since(position)
            if noted is None:
                return None
            changed.update(noted)
        return {row for row in changed if row < self.rows}  # others were added and removed again


def new_rows(changes: ChangeLog, arrangement: int, rows: int) -> NewRows | None:
    """Return the rows since ``arrangement``, which had ``rows`` rows; None if it is not known how they moved."""
    way = changes.way_from(arrangement)
    if way is None:
        return None
    former: dict[int, int] = {}
    for step in way[0]:
        if step.adds:
            rows -= 1
            former.pop(rows, None)
            continue
        if step.row != rows:
            former[rows] = former.get(step.row, step.row)
        former[step.row] = GONE
        rows += 1
    for step in way[1]:
        if step.adds:
            former[step.row] = GONE
            rows += 1
            continue
        moved = former.pop(step.last, step.last)
        if step.row != step.last:
            former[step.row] = moved
        rows -= 1
    return NewRows(rows, former, None if way[0] else way[1])
