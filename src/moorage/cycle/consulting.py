"""What a preempting plugin answers where extenders have a say: its candidates, and how it chooses among those they leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moorage.cycle.preemption import Candidate
from moorage.framework.points import PostFilterResult

__all__ = ["Consult"]


@dataclass(frozen=True, slots=True)
class Consult:
    """An answer to PostFilter that is still open. Only to be given where ``Attempt.consults``."""

    candidates: Sequence[Candidate]
    choose: Callable[[Sequence[Candidate]], PostFilterResult]
