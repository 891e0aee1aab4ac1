"""Effects: the writes and waits that plugins request. Plugins return them; the driver of the engine performs them.

The driver reports each result back to the engine. The simulator performs effects on its own cluster, a dry run lists them, and
a live scheduler sends them to the API server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from moorage.api.meta import Object
from moorage.api.pod_groups import CompositePodGroup, Condition, PodGroup
from moorage.state.pod_info import PodInfo

__all__ = [
    "Amend", "BindPod", "BindThrough", "Call", "Delete", "Effect", "Evict", "Question", "SetGroupCondition", "Until", "Write",
]  # fmt: skip


class BindPod(Struct, frozen=True):
    """Bind the pod to the node."""

    pod: PodInfo
    node: str


class Question(Struct, frozen=True):
    """A request to an extender: a JSON body to post to ``url``, with a timeout of ``timeout_s`` seconds.

    ``extender`` is the extender's index in the configuration, ``verb`` its configured verb for this kind of request.
    """

    extender: int
    verb: str
    url: str
    body: bytes
    timeout_s: float


class BindThrough(Struct, frozen=True):
    """Let an extender bind the pod to the node: send it the ``question``. Its reply may carry an error."""

    pod: PodInfo
    node: str
    question: Question


class Evict(Struct, frozen=True):
    """Preempt a victim: set its condition ``DisruptionTarget`` with this ``message``, then delete it with its own grace period.

    ``group`` is set where the preemptor is a whole pod group; ``preemptor`` is then one of its pods.
    """

    victim: PodInfo
    preemptor: PodInfo
    message: str
    group: PodGroup | CompositePodGroup | None = None


class SetGroupCondition(Struct, frozen=True):
    """Set a condition in the status of a pod group; ``group`` is the version that the decision read.

    The condition has no transition time: ``moorage.api.pod_groups.with_condition`` fills it in, and reports whether a write is
    needed at all. The write must change nothing else of the status.
    """

    group: PodGroup
    condition: Condition


class Write(Struct, frozen=True):
    """Write ``obj`` to the API server. ``subresource`` is empty for the main resource.

    ``base`` is the version that the decision read. Where it is given, the driver writes only the difference, on condition that
    no other client has changed the object since: values here hold only some of the API server's fields, and the other fields
    must stay. ``what`` prefixes the error if the write fails. ``settled``: see ``Amend``.

    Without ``base`` the object is created. If it has a ``generateName``, the API server chooses its name, and the one that it
    has here counts only where there is no API server; ``made`` gets the object that came of it, at once.
    """

    obj: Object
    subresource: str = ""
    base: Object | None = None
    what: str = ""
    settled: Callable[[], None] | None = None
    made: Callable[[Object], None] | None = None


class Amend(Struct, frozen=True):
    """Read, modify and write an object, so that concurrent changes by other clients are neither lost nor cause a conflict.

    ``change`` receives the newest version of ``obj`` (the same object, by UID) and returns the version to write; if it returns
    its argument unchanged, nothing is written. It does no I/O, is called again after a conflict with another client, and may
    raise a MoorageError, which fails the effect. A deleted object is an error, unless ``or_gone`` is set: then nothing is
    written. ``what`` prefixes the error if the effect fails. ``subresource`` is empty for the main resource.

    With ``settled``, the snapshot shows the API server's answer as soon as it arrives, before any watch reports it, and
    ``settled`` is called then. After an error the driver first reads the object back and the snapshot shows that version, so
    that by the time of Unreserve the snapshot says whether the write was done. The driver also reads back an answer that no
    watch confirms; if the API server has lost the write, the snapshot shows the version that is stored.
    """

    obj: Object
    change: Callable[[Any], Object]
    subresource: str = ""
    or_gone: bool = False
    what: str = ""
    settled: Callable[[], None] | None = None


class Delete(Struct, frozen=True):
    """Delete ``obj``, which the plugin created, even if finalizers of the plugin remain on it."""

    obj: Object


class Call(Struct, frozen=True):
    """Custom I/O of the plugin: awaited on a live cluster, replaced by ``stand_in`` (no I/O, no waiting) in simulation.

    An exception from either fails the binding cycle: the pod is unreserved and retried. ``run`` is cancelled if the pod is
    preempted meanwhile; it may still clean up, and Unreserve runs after it has ended. ``what`` prefixes the error.
    """

    run: Callable[[], Awaitable[Any]]
    stand_in: Callable[[], Any]
    what: str = ""


class Until(Struct, frozen=True):
    """Continue once ``is_met`` returns True. ``is_met`` only reads the snapshot; other components bring the condition about.

    It is called at once and then every ``every_s`` seconds, or whenever the snapshot changes. If it raises, the binding cycle
    fails with that error's text, and after ``timeout_s`` seconds with ``what: context deadline exceeded``. The simulator plays
    the other components, in virtual time.

    ``again`` are writes that were done before. The driver repeats one that no watch has reported for long, if its object is
    still at ``base``: the API server may have lost it. ``event``: the reason and the text of an Event of the pod about the
    wait. ``gone``: the error if the pod is deleted meanwhile.
    """

    is_met: Callable[[], bool]
    timeout_s: float
    what: str
    again: tuple[Write, ...] = ()
    every_s: float = 1.0
    event: tuple[str, str] | None = None
    gone: str = ""


Effect = Amend | BindPod | BindThrough | Evict | SetGroupCondition | Write | Delete | Call | Until
