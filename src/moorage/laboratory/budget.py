"""Budgets of time: how long a question may search, and what the searches left undone when it ended.

A question gets one budget. Its searches ask ``is_over`` before each trial, or ``check`` in the middle of one, which raises
``BudgetSpentError``; they call ``leave`` with what a longer run could still find. Nothing else in the laboratory reads a clock,
and a budget is over only once a limit is reached: an answer whose budget was not hit does not depend on the machine's speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Final, TypeVar

from moorage.errors import InputError
from moorage.report.answer import Stopped

_T = TypeVar("_T")
#: Seconds between two questions whether the budget is spent, while other processes work.
POLL_S: Final = 0.1
#: The usual limit: seconds for up to so many nodes and pods, and how many more of them give a second more.
_LEAST_S, _FEW, _PER_S = 10.0, 10_000, 2_500


def silent(text: str) -> None:
    """Show no progress."""
    del text


class BudgetSpentError(Exception):
    """A search ends because its budget is spent. The search that asked catches it; the transactions between roll back."""


class TimeBudget:
    """A limit of time that begins now, or at ``began_s``. Without ``seconds``, only an interruption ends it.

    ``clock``  returns seconds; it is read only if there is a limit
    """

    def __init__(
        self, seconds: float | None = None, clock: Callable[[], float] | None = None, began_s: float | None = None
    ) -> None:
        if seconds is not None and not seconds > 0:
            raise InputError(f"time limit: {seconds:g} seconds; give a number above 0")
        self.seconds = seconds
        self._clock = clock if seconds is not None else None
        self._end_s = float("inf")
        if seconds is not None and clock is not None:
            self._end_s = (clock() if began_s is None else began_s) + seconds
        self._parent: TimeBudget | None = None
        self._reason = ""
        self._left: dict[str, None] = {}
        self._interrupted = False
        #: Whether a search has asked. From then on there is something to print when the user interrupts.
        self.was_asked = False

    def part(self, share: float = 1.0) -> TimeBudget:
        """Return a budget for a share of the seconds that are left, with an account of its own of what was left undone."""
        part = TimeBudget()
        part.seconds, part._clock, part._parent = self.seconds, self._clock, self
        part._end_s = self._end_s
        if share < 1.0 and self._clock is not None:
            now_s = self._clock()
            part._end_s = now_s + share * max(0.0, self._end_s - now_s)
        return part

    @property
    def left_s(self) -> float:
        """The seconds until the limit, at least 0; infinite without a limit."""
        return float("inf") if self._clock is None else max(0.0, self._end_s - self._clock())

    def interrupt(self) -> None:
        """End the budget now, because the user asked for it."""
        self._interrupted = True

    @property
    def is_interrupted(self) -> bool:
        return self._interrupted or (self._parent is not None and self._parent.is_interrupted)

    def is_over(self) -> bool:
        """Return whether the search has to end. Ask only if there is more to do: the answer will say that it stopped early."""
        self._note_asked()
        if self.is_interrupted:
            self._stop("interrupted")
        elif self._clock is not None and self._clock() >= self._end_s:
            self._stop("timeLimit")
        else:
            return False
        return True

    def check(self) -> None:
        """Raise BudgetSpentError if the search has to end."""
        if self.is_over():
            raise BudgetSpentError

    def note_spent(self) -> None:
        """Note that ``left_s`` was too little: a program that got it as its limit reached it, or the next step takes longer."""
        self._stop("timeLimit")

    def _note_asked(self) -> None:
        self.was_asked = True
        if self._parent is not None:
            self._parent._note_asked()

    def _stop(self, reason: str) -> None:
        self._reason = self._reason or reason
        if self._parent is not None:
            self._parent._stop(reason)

    def leave(self, *texts: str) -> None:
        """Note what a longer run could still find."""
        self._left |= dict.fromkeys(texts)
        if self._parent is not None:
            self._parent.leave(*texts)

    @property
    def stopped(self) -> Stopped | None:
        """How a search ended early, and what it left; None if none did."""
        if not self._reason:
            return None
        return Stopped(self._reason, self.seconds if self._reason == "timeLimit" else None, tuple(self._left))


def usual_limit_s(objects: int) -> float:
    """Return the limit of a question about so many nodes and pods: 10 s, and 1 s more for each 2,500 beyond 10,000."""
    return _LEAST_S + max(0, objects - _FEW) // _PER_S


def results_of(waiting: Sequence[Future[_T]], budget: TimeBudget, least: int = 0) -> Iterator[_T]:
    """Yield the results of calls in order. Once the budget is spent and there are ``least``, cancel the others, and end."""
    for number, one in enumerate(waiting):
        while True:
            if number >= least and budget.is_over():
                for other in waiting:
                    other.cancel()
                return
            if wait([one], timeout=POLL_S).done:
                break
        yield one.result()
