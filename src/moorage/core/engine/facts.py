"""Facts that drivers pass to the engine, and the work and the questions that the engine passes to drivers.

Facts enter through ``Scheduler.observe``; each is true by the time it is passed. Work and questions leave through
``Scheduler.take``. The driver carries work out, on a real cluster or a simulated one, and answers with ``Done``; it answers
a question for an extender with ``Answered``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from msgspec import Struct

from moorage.api.meta import Object
from moorage.framework.effects import Effect, Question
from moorage.state.pod_info import PodInfo

#: The error of work that was cancelled because its pod was deleted, preempted or bound elsewhere meanwhile.
NO_LONGER_WANTED = "the pod was deleted, preempted or placed meanwhile"


class Seen(Struct, frozen=True, gc=False):
    """An object was added or updated; ``obj`` is its current version.

    ``as_of`` is the resource version of the list that ``obj`` comes from, if the list shows no change of the object. If the
    engine knows a version of the object between ``obj`` and ``as_of``, the API server has lost it.
    """

    obj: Object
    as_of: str = ""


class Gone(Struct, frozen=True, gc=False):
    """An object was deleted. ``obj`` is its last known version."""

    obj: Object


class Done(Struct, frozen=True):
    """A piece of work ended, with ``error`` if it failed. ``effect`` is the index of the failed effect, -1 for none."""

    ticket: int
    error: str | None = None
    effect: int = -1


class BindsDone(Struct, frozen=True):
    """The API server accepted the binds of this work: all of it is done, without an error."""

    tickets: Sequence[int]


class Answered(Struct, frozen=True):
    """An extender replied with ``body``, or the request failed with ``error``."""

    ticket: int
    body: bytes = b""
    error: str | None = None


class Wrote(Struct, frozen=True):
    """The API server answered one of our writes with ``obj``, or a later read returned ``obj`` (None if it is deleted).

    The answer is used until a watch reports this version or a later one. ``settled`` is called when the answer is applied.
    ``made``: the write created the object.
    """

    obj: Object | None
    settled: Callable[[], None]
    made: bool = False


class WriteLost(Struct, frozen=True):
    """The API server lost the write that it answered with ``obj``; it now has ``found``, None if it has no such object."""

    obj: Object
    found: Object | None


#: Object events and the outcomes of work.
News = Seen | Gone | Done
Fact = News | BindsDone | Answered | Wrote | WriteLost


class Query(Struct, frozen=True):
    """A question for an extender. The driver must answer it with ``Answered``."""

    ticket: int
    question: Question


class Phase(Enum):
    """The step of scheduling that a piece of work belongs to."""

    PRE_BIND = "PreBind"
    BIND = "Bind"
    PREEMPT = "Preempt"
    NOMINATE = "Nominate"
    EXPECT = "Expect"
    UNRESERVE = "Unreserve"
    GROUP_STATUS = "GroupStatus"

    #: True if the driver must answer the work with ``Done``. An attribute of each member, as it is read for every pod.
    is_answered: bool

    def __init__(self, name: str) -> None:
        self.is_answered = name not in {"Nominate", "Expect", "GroupStatus"}

    __hash__ = object.__hash__  # members are equal to themselves only; Enum's own is written in Python


class Work(Struct, frozen=True):
    """Effects to carry out in order, for one pod. ``node`` is the pod's target node ("" clears a nomination).

    The first effect that fails ends the work, except in UNRESERVE, where the others are carried out as well. NOMINATE, EXPECT
    and GROUP_STATUS are not answered: their outcome shows in the pod or the pod group. EXPECT publishes the node of a pod whose
    binding takes time, for other components; a simulation ignores it. GROUP_STATUS holds one ``SetGroupCondition``, and ``pod``
    is one of the group's pods.
    """

    ticket: int
    phase: Phase
    pod: PodInfo
    node: str
    effects: tuple[Effect, ...] = ()
