"""An attempt of a simulation: a decision and its time."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.cycle.decision import Decision

__all__ = ["SimulatedAttempt"]


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """A decision and its time. ``number`` counts the attempts for the pod."""

    time_s: float
    number: int
    decision: Decision
