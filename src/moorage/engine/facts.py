"""What the engine is told, and what it asks to have done.

Facts come in through ``Scheduler.observe``; each is true by the time it is told. Work comes out through
``Scheduler.take_work``; whoever drives the engine does it, on a real cluster or on a simulated one, and reports with ``Done``.
What extenders are to be asked comes out through ``Scheduler.take_queries``, and is answered with ``Answered``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from moorage.api.meta import Value
from moorage.framework.effects import Effect, Question
from moorage.state.pod_info import PodInfo

__all__ = [
    "NO_LONGER_WANTED", "Answered", "Done", "Fact", "Gone", "News", "Phase", "Query", "Seen", "Work", "WriteLost", "Wrote",
]  # fmt: skip

#: The error of work that was given up because its pod was deleted, preempted or placed by another before it was done.
NO_LONGER_WANTED = "the pod was deleted, preempted or placed meanwhile"


class Seen(Struct, frozen=True):
    """An object exists and looks like this: new or changed.

    ``as_of`` is the version of a list that shows the object again as it was before. If a version between the two is known
    (from reading the object, say), the API server has lost it.
    """

    obj: Value
    as_of: str = ""


class Gone(Struct, frozen=True):
    """An object was deleted; this is how it looked last."""

    obj: Value


class Done(Struct, frozen=True):
    """A piece of work was finished, or failed with ``error``. ``effect`` is the place of the one that failed, -1 for none."""

    ticket: int
    error: str | None = None
    effect: int = -1


class Answered(Struct, frozen=True):
    """An extender has replied with ``body``, or could not be asked: ``error``."""

    ticket: int
    body: bytes = b""
    error: str | None = None


class Wrote(Struct, frozen=True):
    """A write of ours was answered with ``obj``, or read back as ``obj`` (None if it is gone); ``settled`` is called then.

    It counts until a watch tells of this version or a later one. ``made``: the write created the object.
    """

    obj: Value | None
    settled: Callable[[], None]
    made: bool = False


class WriteLost(Struct, frozen=True):
    """No watch told of the answer ``obj``, and the API server does not have it any more: it has ``found``, or nothing."""

    obj: Value
    found: Value | None


#: What happens to objects, and to work that was asked for.
News = Seen | Gone | Done
Fact = News | Answered | Wrote | WriteLost


class Query(Struct, frozen=True):
    """A question to be put to an extender. It must be answered with ``Answered``."""

    ticket: int
    question: Question


class Phase(Enum):
    """What a piece of work is part of."""

    PRE_BIND = "PreBind"
    BIND = "Bind"
    PREEMPT = "Preempt"
    NOMINATE = "Nominate"
    EXPECT = "Expect"
    UNRESERVE = "Unreserve"
    GROUP_STATUS = "GroupStatus"

    @property
    def is_answered(self) -> bool:
        """True if whoever does the work has to say what came of it."""
        return self not in {Phase.NOMINATE, Phase.EXPECT, Phase.GROUP_STATUS}


class Work(Struct, frozen=True):
    """Effects to be carried out in order, for one pod. ``node`` is where the pod is to go ("" clears a nomination).

    All must be answered with ``Done``, and an error in any effect fails the whole and ends it; but in UNRESERVE the others are
    carried out nevertheless, and NOMINATE, EXPECT and GROUP_STATUS need no answer: their outcome shows in the pod or the group
    that the engine is told of. EXPECT is for others to see, before a binding that takes its time; a simulation has nobody to
    tell. GROUP_STATUS holds one ``SetGroupCondition``, and ``pod`` is one of the group's pods.
    """

    ticket: int
    phase: Phase
    pod: PodInfo
    node: str
    effects: tuple[Effect, ...] = ()
