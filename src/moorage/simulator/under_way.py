"""The records that a simulation keeps of last attempts and of waiting work."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from moorage.engine.facts import News, Work

__all__ = ["Event", "LastAttempt", "WaitingWork"]

#: A fact, or a call that may report facts or schedule further events.
Event: TypeAlias = News | Callable[[], None]


class LastAttempt(Struct, frozen=True, gc=False):
    """The last attempt for a pod: the scheduler's revision and facts at that time, and the attempts since that fact."""

    revision: int
    facts: int
    times: int


class WaitingWork(NamedTuple):
    """Work that waits for the effect at index ``at``, an ``Until``, until its condition holds or its deadline passes."""

    work: Work
    at: int
    deadline_s: float
