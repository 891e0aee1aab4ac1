"""The engine that an explanation reads: one in virtual time, or that of a live scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from moorage.core.engine.group_outcome import GroupReport
from moorage.core.engine.scheduler import Scheduler
from moorage.framework.effects import Question
from moorage.framework.profile import Profile

__all__ = ["ExplainedState"]


@dataclass(frozen=True, slots=True)
class ExplainedState:
    """The state that an explanation reads. ``profiles`` are by scheduler name; ``groups`` has the last attempts for pod groups.

    ``now``                the present time in engine seconds
    ``ask``                sends a request to an extender; None: extenders are not asked
    ``skipped_extenders``  the number of configured extenders that are left out
    """

    scheduler: Scheduler
    profiles: Mapping[str, Profile]
    now: float
    groups: Mapping[str, GroupReport] = field(default_factory=dict)
    ask: Callable[[Question], bytes] | None = None
    skipped_extenders: int = 0

    @property
    def unix_s(self) -> float:
        """The time of day, in seconds since 1970."""
        return self.now + self.scheduler.state.unix_offset_s
