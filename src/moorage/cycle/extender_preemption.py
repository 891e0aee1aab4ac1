"""The answer of a preempting plugin if extenders take part: its candidates, and how it chooses among those they keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moorage.cycle.preemption import Candidate
from moorage.framework.points import PostFilterResult

__all__ = ["Consult"]


@dataclass(frozen=True, slots=True)
class Consult:
    """A PostFilter answer that waits for the extenders. A plugin may return it only if ``Attempt.consults``."""

    candidates: Sequence[Candidate]
    choose: Callable[[Sequence[Candidate]], PostFilterResult]
