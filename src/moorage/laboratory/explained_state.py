"""The engine that an explanation looks at: one in virtual time, or that of a live scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from moorage.engine.group_outcome import GroupReport
from moorage.engine.scheduler import Scheduler
from moorage.framework.profile import Profile

__all__ = ["Explainable", "ExplainedState", "state_of"]


@dataclass(frozen=True, slots=True)
class ExplainedState:
    """``profiles`` are those to ask, by scheduler name; ``groups`` the last attempts for pod groups.

    ``now``  the present time in engine seconds
    """

    scheduler: Scheduler
    profiles: Mapping[str, Profile]
    now: float
    groups: Mapping[str, GroupReport] = field(default_factory=dict)

    @property
    def unix_s(self) -> float:
        """The time of day, in seconds since 1970."""
        return self.now + self.scheduler.state.unix_offset_s


class Explainable(Protocol):
    """A simulation, as explanations see it."""

    scheduler: Scheduler
    groups: dict[str, GroupReport]
    now: float


def state_of(simulation: Explainable) -> ExplainedState:
    """Return the state of a simulation."""
    return ExplainedState(simulation.scheduler, simulation.scheduler.profiles, simulation.now, simulation.groups)
