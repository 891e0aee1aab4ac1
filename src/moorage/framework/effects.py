"""What plugins want done to the world. They return these; whoever drives the engine performs them and reports back.

A simulator performs them on its own cluster, a dry run lists them, a live scheduler sends them to the API server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from moorage.api.meta import Value
from moorage.api.pod_groups import Condition, PodGroup
from moorage.state.pod_info import PodInfo

__all__ = [
    "Amend", "BindPod", "BindThrough", "Call", "Delete", "Effect", "Evict", "Question", "SetGroupCondition", "Until", "Write",
]  # fmt: skip


class BindPod(Struct, frozen=True):
    """Bind the pod to the node."""

    pod: PodInfo
    node: str


class Question(Struct, frozen=True):
    """What an extender is asked: a JSON body to be posted to ``url``; the reply has to be there after ``timeout_s`` seconds.

    ``extender`` is its place in the configuration, ``verb`` what it calls this kind of question.
    """

    extender: int
    verb: str
    url: str
    body: bytes
    timeout_s: float


class BindThrough(Struct, frozen=True):
    """Let an extender bind the pod to the node. Its reply may hold an error all the same."""

    pod: PodInfo
    node: str
    question: Question


class Evict(Struct, frozen=True):
    """Preempt a victim: mark it with the condition ``DisruptionTarget``, then delete it with its own grace period.

    ``group`` is whom it is for, where that is a pod group as a whole; ``preemptor`` is then one of its pods.
    """

    victim: PodInfo
    preemptor: PodInfo
    message: str
    group: PodGroup | None = None


class SetGroupCondition(Struct, frozen=True):
    """Put a condition into the status of a pod group; ``group`` is the group as it was known when this was decided.

    The condition comes without its time of transition: ``moorage.api.pod_groups.with_condition`` fills it in, and tells whether
    anything is to be written at all. Nothing else of the status may be touched.
    """

    group: PodGroup
    condition: Condition


class Write(Struct, frozen=True):
    """Write an object as it should become. ``subresource`` is empty for the main one.

    ``base`` is the object as it was when this was decided. Where it is given, only what differs is to be written, on condition
    that no other client has changed the object since: values here hold but part of what the API server has, and the rest must
    stay. ``what`` stands before the error if it fails. ``settled``: see ``Amend``.
    """

    obj: Value
    subresource: str = ""
    base: Value | None = None
    what: str = ""
    settled: Callable[[], None] | None = None


class Amend(Struct, frozen=True):
    """Change an object as it is by the time of writing, so that what others did to it meanwhile is neither lost nor in the way.

    ``change`` gets the newest version of ``obj`` (that very one, by UID) and returns what to make of it; the same for nothing.
    It does no I/O, may be asked again if another client was quicker, and may raise a MoorageError, which fails the whole. An
    object that is gone is an error, or nothing to be done if ``or_gone``. ``what`` stands before the error if it fails.

    With ``settled``, the snapshot shows what the API server answered as soon as the answer is there, before any watch tells of
    it, and ``settled`` is called then. After an error the object is read back first, and what was read counts, so that by the
    time of Unreserve the snapshot says whether the write was done. An answer that no watch confirms is read back, too, and
    where the API server has lost the write, the snapshot shows what is left.
    """

    obj: Value
    change: Callable[[Any], Value]
    subresource: str = ""
    or_gone: bool = False
    what: str = ""
    settled: Callable[[], None] | None = None


class Delete(Struct, frozen=True):
    """Delete an object that the plugin made, whatever finalizers of its own it still has."""

    obj: Value


class Call(Struct, frozen=True):
    """I/O of the plugin's own: awaited on a live cluster, replaced by ``stand_in`` (no I/O, no waiting) in simulation.

    Raising in either fails the binding cycle: the pod is unreserved and tried again. ``run`` is cancelled when the pod is
    preempted meanwhile; it may still tidy up, and Unreserve comes when it has ended.
    """

    run: Callable[[], Awaitable[Any]]
    stand_in: Callable[[], Any]
    what: str = ""


class Until(Struct, frozen=True):
    """Go on once ``is_met`` says yes; others bring that about, and it only reads the snapshot.

    It is asked at once and then each second, or whenever facts come in; if it raises, the binding cycle fails with that text,
    and after ``timeout_s`` seconds with ``what: context deadline exceeded``. A simulation plays those others, in its own
    time.

    ``again`` are writes that were done before. One of which nothing has been seen for long is done again, if its object is at
    ``base`` still: an API server may have lost it.
    """

    is_met: Callable[[], bool]
    timeout_s: float
    what: str
    again: tuple[Write, ...] = ()


Effect = Amend | BindPod | BindThrough | Evict | SetGroupCondition | Write | Delete | Call | Until
