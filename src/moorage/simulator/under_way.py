"""The records that a simulation keeps of last attempts and of waiting work."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from moorage.engine.facts import Work

__all__ = ["LastAttempt", "WaitingWork"]


class LastAttempt(Struct, frozen=True):
    """The last attempt for a pod: the scheduler's revision and facts at that time, and the attempts since that fact."""

    revision: int
    facts: int
    times: int


class WaitingWork(NamedTuple):
    """Work that waits for the effect at index ``at``, an ``Until``, until its condition holds or its deadline passes."""

    work: Work
    at: int
    deadline_s: float
