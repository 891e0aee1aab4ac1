"""What the runtime needs of the world, as protocols: whoever starts it passes in a real API server, an embedded one or a fake.

Every method may raise ``ClusterError``: status 404 where the object is gone, 409 where a precondition (UID or version) fails or
a pod is bound already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from moorage.api.core import Pod, PodCondition
from moorage.api.meta import Value
from moorage.api.pod_groups import Condition, PodGroup
from moorage.framework.effects import Question

__all__ = ["Clock", "Cluster", "Event", "Extenders", "Note", "StatusChange", "WallClock"]

#: Seconds on a clock that never goes back.
Clock = Callable[[], float]
#: The time of day in UTC, as the API writes it with microseconds: ``2026-11-21T03:00:00.000000Z``.
WallClock = Callable[[], str]


class StatusChange(Struct, frozen=True):
    """What is to change in a pod's status. ``nominated`` None leaves it alone, "" clears it."""

    condition: PodCondition | None = None
    nominated: str | None = None


class Note(Struct, frozen=True):
    """Something for people to read (``kubectl get events``). ``kind`` is ``Normal`` or ``Warning``.

    ``reporter`` is the scheduler name in whose name it is told.
    """

    regarding: Pod
    kind: str
    reason: str
    action: str
    text: str
    related: Pod | PodGroup | None = None
    reporter: str = ""


class Event(Struct, frozen=True):
    """A note as it is written: under a name, first at a time. ``count`` above 1 makes it a series, last seen at ``last``."""

    note: Note
    name: str
    at: str
    count: int = 1
    last: str = ""


class Extenders(Protocol):
    """Those who are asked beside the plugins."""

    async def ask(self, question: Question) -> bytes:
        """Put a question, and return the body of the reply once it is there; in any case when its time is over.

        Raises  MoorageError that says why there is none
        """


class Cluster(Protocol):
    """An API server, as far as a scheduler writes to it. Pods are those of the given UID, never others of the same name."""

    async def bind(self, pod: Pod, node: str, check: Callable[[], None]) -> None:
        """Bind the pod. ``check`` is called right before the request is sent, and may raise to stop it."""

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Return the pod as the API server has it now, None if there is none of this name."""

    async def patch_status(self, pod: Pod, change: StatusChange) -> None: ...
    async def patch_group(self, group: PodGroup, condition: Condition) -> None:
        """Set a condition of a pod group; ``group`` is what it was when that was decided."""

    async def delete_pod(self, pod: Pod) -> None:
        """Delete with the pod's own grace period."""

    async def write(self, old: Value | None, new: Value, subresource: str) -> Value:
        """Create ``new``, or change what differs between ``old`` and ``new`` if the object is still at ``old``'s version.

        Returns the object as the API server has it now.
        """

    async def amend(self, obj: Value, change: Callable[[Any], Value], subresource: str) -> Value:
        """Change what is there now of ``obj``: ``change`` gets it and returns what it should be; again if it changed meanwhile.

        Returns the object as the API server has it now.
        Raises  ClusterError with status 404 if that very object is gone; whatever ``change`` raises
        """

    async def read(self, obj: Value) -> Value | None:
        """Return an object as the API server has it now; None if it is gone: one of its name with another UID is another."""

    async def delete(self, obj: Value) -> None:
        """Delete an object; the one with its UID if it has one, else the one of its name."""

    async def record(self, event: Event) -> None:
        """Create an event; for a series, change how often it was seen, and create it if it is gone."""
