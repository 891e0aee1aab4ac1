"""Verdicts: the result of Filter for every row, and the FitError message made of it.

Each row is either feasible or has the status of the first plugin that refused it. Rows with equal statuses share one object,
so that thousands of nodes with one reason cost one entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.framework.verdicts import Code, Status
from moorage.state.columns import BoolArray

__all__ = ["NEWEST_FORM", "MessageForm", "Verdicts", "fit_error"]


class Verdicts:
    """A status for each row of the table. ``statuses[ids[row]]`` is a row's; id 0 means feasible.

    ``pre_filter`` is set when PreFilter rejected the pod: then it is every row's status.
    """

    def __init__(self, rows: int) -> None:
        self.ids: npt.NDArray[np.int32] = np.zeros(rows, dtype=np.int32)
        self.statuses: list[Status | None] = [None]
        self.pre_filter: Status | None = None
        self._id_of: dict[Status, int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def feasible(self) -> BoolArray:
        """Shape (rows,): True for rows that no plugin refused."""
        return np.equal(self.ids, 0)

    def status(self, row: int) -> Status | None:
        """Return the status of a refused row; None if the row is feasible."""
        return self.statuses[int(self.ids[row])]

    def refuse(self, rows: npt.NDArray[np.intp] | int, status: Status) -> None:
        """Set the status of some rows."""
        known = self._id_of.get(status)
        if known is None:
            known = self._id_of[status] = len(self.statuses)
            self.statuses.append(status)
        self.ids[rows] = known

    def accept(self, row: int) -> None:
        self.ids[row] = 0

    def refused(self) -> Iterator[tuple[int, Status]]:
        """Yield each refused row and its status, in row order."""
        for row in np.flatnonzero(self.ids):
            status = self.statuses[self.ids[row]]
            if status is not None:
                yield int(row), status

    def rows_with(self, code: Code) -> npt.NDArray[np.intp]:
        """Return the rows refused with this code."""
        wanted = np.fromiter((s is not None and s.code is code for s in self.statuses), dtype=bool, count=len(self.statuses))
        return np.flatnonzero(wanted[self.ids])

    def plugins(self) -> tuple[str, ...]:
        """Names of the plugins that refused the pod or any row, sorted."""
        used = {s.plugin for s, rows in zip(self.statuses, self._counts(), strict=True) if rows and s is not None and s.plugin}
        if self.pre_filter is not None and self.pre_filter.plugin:
            used.add(self.pre_filter.plugin)
        return tuple(sorted(used))

    def histogram(self) -> Mapping[str, int]:
        """Reason → number of rows that carry it."""
        counts: dict[str, int] = {}
        for status, rows in zip(self.statuses, self._counts(), strict=True):
            for reason in status.reasons if rows and status is not None else ():
                counts[reason] = counts.get(reason, 0) + rows
        return counts

    def _counts(self) -> list[int]:
        """Return for each status how many rows have it."""
        counts: list[int] = np.bincount(self.ids, minlength=len(self.statuses)).tolist()
        return counts


class MessageForm(NamedTuple):
    """How a release words the message of a failed attempt.

    ``periods``           with how many periods the message ends if it quotes PostFilter, whose text has one
    ``tells_of_post_filter``  the message quotes PostFilter
    ``quotes_pre_filter``  a PreFilter plugin's reason stands alone; otherwise it counts as the reason of every node
    """

    periods: int = 1
    quotes_pre_filter: bool = True
    tells_of_post_filter: bool = True


#: The form of the newest release.
NEWEST_FORM: Final = MessageForm()


def fit_error(verdicts: Verdicts, post_filter: str = "", rows: int | None = None, form: MessageForm = NEWEST_FORM) -> str:
    """Return kube-scheduler's message of a failed attempt: ``0/N nodes are available: …``.

    Source  framework/types.go, FitError.Error
    """
    text = f"0/{len(verdicts) if rows is None else rows} nodes are available:"
    if verdicts.pre_filter is not None and form.quotes_pre_filter:
        text += f" {verdicts.pre_filter.message}." if verdicts.pre_filter.message else ""
    else:
        reasons = sorted(f"{count} {reason}" for reason, count in verdicts.histogram().items())
        text += f" {', '.join(reasons)}." if reasons or not form.quotes_pre_filter else ""
    return f"{text} {post_filter}{'.' * (form.periods - 1)}" if post_filter and form.tells_of_post_filter else text
