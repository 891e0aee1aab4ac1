"""An attempt of a simulation: a decision and its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from moorage.cycle.decision import Decision

__all__ = ["SimulatedAttempt", "in_turn"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """A decision and its time. ``number`` counts the attempts for the pod."""

    time_s: float
    number: int
    decision: Decision


def in_turn(*callbacks: Callable[[_T], None] | None) -> Callable[[_T], None] | None:
    """Return a callback that passes its argument to each of these; None if there is none."""
    called = [one for one in callbacks if one is not None]
    if len(called) < 2:
        return called[0] if called else None

    def pass_on(heard: _T) -> None:
        for one in called:
            one(heard)

    return pass_on
