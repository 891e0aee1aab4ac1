"""The answers by which a plugin rejects a pod or a node, makes a pod wait, or skips.

A rejection is a return value: ``Hold`` for the pod as a whole, ``Reject`` for some rows. An exception means that the plugin is
broken, and ends the attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar, final

import numpy as np
import numpy.typing as npt

from moorage.api.releases import CURRENT, Release
from moorage.state.columns import BoolArray

__all__ = [
    "SKIP", "Code", "Hold", "Narrow", "Reject", "Skip", "Status", "Verdicts", "Wait",
    "fit_error",
]  # fmt: skip


S_co = TypeVar("S_co", covariant=True)


class Code(Enum):
    """Status codes, with kube-scheduler's names and meaning."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    PENDING = "Pending"

    @property
    def is_rejection(self) -> bool:
        """True if the pod, or the node, is refused."""
        return self in {Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING}


@final
class Skip:
    """The type of ``SKIP``: the plugin does not apply to this pod (or, in Bind, leaves the pod to the next plugin)."""

    def __repr__(self) -> str:
        return "SKIP"


SKIP: Final = Skip()


@dataclass(frozen=True, slots=True)
class Hold:
    """Reject the pod for these ``reasons``.

    ``unresolvable``: preemption would not help. ``pending``: wait without a backoff penalty.

    Raises  TypeError, in the plugin that makes it, unless the reasons are a tuple of texts
    """

    reasons: tuple[str, ...]
    unresolvable: bool = False
    pending: bool = False

    def __post_init__(self) -> None:
        if type(self.reasons) is not tuple:  # checked at each answer, so no more than this
            raise TypeError(f"Hold({self.reasons!r:.100}) holds no tuple of reasons; write Hold.because(reason)")

    @classmethod
    def because(cls, *reasons: str, unresolvable: bool = False, pending: bool = False) -> Hold:
        """Return a rejection with these reasons: the same object for the same ones, as a plugin says them of many nodes."""
        try:
            return _HOLDS[reasons, unresolvable, pending]
        except (KeyError, TypeError):  # new, or a reason that cannot be hashed
            pass
        for reason in reasons:
            if not isinstance(reason, str):
                raise TypeError(f"Hold.because({reason!r:.100}) gives a reason that is no text; write it as text")
        if len(_HOLDS) >= _HOLDS_KEPT:
            _HOLDS.clear()
        hold = _HOLDS[reasons, unresolvable, pending] = cls(reasons, unresolvable, pending)
        return hold

    @property
    def code(self) -> Code:
        """The status code that kube-scheduler has for it."""
        if self.pending:
            return Code.PENDING
        return Code.UNRESOLVABLE if self.unresolvable else Code.UNSCHEDULABLE


#: Rejections by what they say; reasons may name nodes, so all are forgotten when there are many.
_HOLDS: Final[dict[tuple[tuple[str, ...], bool, bool], Hold]] = {}
_HOLDS_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuse some rows. ``rows`` is a mask over the view that was judged.

    A plugin may yield several. A row that is in more than one carries all their reasons, in the order they were yielded, and
    is unresolvable if any of them is. ``unresolvable`` may be a mask too, where rows with one reason differ.

    ``error``: the plugin cannot judge these rows, because the pod's spec is invalid for them. Unlike a refusal this ends the
    attempt, even if the pod fits other rows; ``reason`` then describes the error.
    """

    rows: BoolArray
    reason: str
    unresolvable: bool | BoolArray = False
    error: bool = False


@dataclass(frozen=True, slots=True)
class Narrow(Generic[S_co]):
    """From PreFilter: judge only these nodes; ``state`` is what ``filter`` receives.

    Raises  TypeError, in the plugin that makes it, if ``nodes`` is not a set of names
    """

    nodes: frozenset[str]
    state: S_co

    def __post_init__(self) -> None:
        if not isinstance(self.nodes, Set) or not all(isinstance(name, str) for name in self.nodes):
            raise TypeError(f"Narrow({self.nodes!r:.100}, ...) holds no set of node names; give a frozenset of them")


@dataclass(frozen=True, slots=True)
class Wait:
    """From Permit: make the pod wait on its node until the plugin allows it, at most ``timeout_s`` seconds (never over 15 min).

    ``reasons`` say what the pod waits for; they are reported for the pods of a group that cannot be scheduled.

    Raises  TypeError, in the plugin that makes it, unless the time is a number of seconds and the reasons are a tuple
    """

    timeout_s: float
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seconds = self.timeout_s
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float, np.integer, np.floating)) or seconds != seconds:  # noqa: PLR0124
            raise TypeError(f"Wait({seconds!r:.100}) holds no number of seconds; write Wait(10)")
        if type(self.reasons) is not tuple:
            raise TypeError(f"Wait(..., {self.reasons!r:.100}) holds no tuple of reasons; write Wait(10, (reason,))")


@dataclass(frozen=True, slots=True)
class Status:
    """The result for one node, or for the whole pod: a code, the plugin that returned it, and its reasons."""

    code: Code
    plugin: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The reasons as one text."""
        return ", ".join(self.reasons)


# -- verdict table -----------------------------------------------------------------------------------------------------
# Verdicts: the result of Filter for every row, and the FitError message made of it.
#
# Each row is either feasible or has the status of the first plugin that refused it. Rows with equal statuses share one object,
# so that thousands of nodes with one reason cost one entry.


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
        """Make a row feasible again."""
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


def fit_error(verdicts: Verdicts, post_filter: str = "", rows: int | None = None, release: Release = CURRENT) -> str:
    """Return the message of a failed attempt in a release of kube-scheduler: ``0/N nodes are available: …``.

    Source  framework/types.go, FitError.Error
    """
    text = f"0/{len(verdicts) if rows is None else rows} nodes are available:"
    if verdicts.pre_filter is not None and release.quotes_pre_filter:
        text += f" {verdicts.pre_filter.message}." if verdicts.pre_filter.message else ""
    else:
        reasons = sorted(f"{count} {reason}" for reason, count in verdicts.histogram().items())
        text += f" {', '.join(reasons)}." if reasons or not release.quotes_pre_filter else ""
    return (
        f"{text} {post_filter}{'.' * release.ends_with_two_periods}" if post_filter and release.tells_of_post_filter else text
    )
