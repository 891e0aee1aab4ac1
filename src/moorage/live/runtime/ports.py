"""The runtime's view of the outside world, as protocols: the caller passes a real API server, an embedded one or a fake.

Every method may raise ``ClusterError``: status 404 if the object is gone, 409 if a precondition (UID or version) fails or the
pod is already bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from moorage.api.core import Object, Pod, PodCondition
from moorage.api.pod_groups import CompositePodGroup, Condition, PodGroup
from moorage.errors import MoorageError
from moorage.framework.effects import Question

#: Seconds on a clock that never goes back.
Clock = Callable[[], float]
#: Called with the indexes of requests that ended in the same way, and their error, or None; once for each index.
RequestsEnded = Callable[[Sequence[int], MoorageError | None], None]
#: The time of day in UTC, as the API writes it with microseconds: ``2026-11-21T03:00:00.000000Z``.
WallClock = Callable[[], str]


class Clocks(NamedTuple):
    """The clocks of the runtime. ``unix`` gives seconds since 1970, for plugins that compare timestamps; None if none do."""

    monotonic: Clock
    wall: WallClock
    unix: Clock | None = None


class StatusChange(Struct, frozen=True):
    """A change of a pod's status. ``nominated`` None keeps the nominated node, "" clears it."""

    condition: PodCondition | None = None
    nominated: str | None = None


class EventNote(Struct, frozen=True, gc=False):
    """The contents of an Event (``kubectl get events``). ``kind`` is ``Normal`` or ``Warning``.

    ``reporter`` is the scheduler name that reports it.
    """

    regarding: Pod
    kind: str
    reason: str
    action: str
    text: str
    related: Pod | PodGroup | CompositePodGroup | None = None
    reporter: str = ""


class EventRecord(Struct, frozen=True, gc=False):
    """A note with its Event name and first time. ``count`` above 1 makes it a series, last seen at ``last``.

    ``core``: an Event of core/v1, which has a count in the place of a series; ``combined``: it stands for several texts.
    """

    note: EventNote
    name: str
    at: str
    count: int = 1
    last: str = ""
    core: bool = False
    combined: bool = False


class Extenders(Protocol):
    """The client of the scheduler extenders."""

    async def ask(self, question: Question) -> bytes:
        """Send a question and return the body of the reply, within the question's timeout.

        Raises  MoorageError that says why there is no reply
        """


class ClusterWriter(Protocol):
    """The API server requests that a scheduler makes. Binds and reads match a pod by UID, patches and deletions by name."""

    async def bind(self, pod: Pod, node: str, check: Callable[[], None]) -> None:
        """Bind the pod. ``check`` is called right before the request is sent, and may raise to stop it."""

    def bind_soon(self, binds: Sequence[tuple[Pod, str]], check: Callable[[], None], done: RequestsEnded) -> bool:
        """Bind pods to nodes as ``bind`` does, without a task. ``done`` gets the error that ``check`` raises, too.

        Return False, and do nothing, if the requests cannot be sent at once.
        """

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Return the pod as the API server has it now; None if there is no pod of this name."""

    async def patch_status(self, pod: Pod, change: StatusChange) -> Pod:
        """Change a pod's status, unless ``pod``, its last known version, has the change already. Return its new version."""

    async def patch_group(self, group: PodGroup, condition: Condition) -> PodGroup:
        """Set a condition of a pod group, unless ``group``, its last known version, has it. Return its new version."""

    async def delete_pod(self, pod: Pod) -> None:
        """Delete the pod with its own grace period."""

    async def write(
        self, old: Object | None, new: Object, subresource: str, made: Callable[[Object], None] | None = None
    ) -> Object:
        """Create ``new`` if ``old`` is None, else write the difference if the object is still at ``old``'s version.

        An object with a ``generateName`` gets its name from the API server. ``made`` gets a created object before its status is
        written. Returns the object as the API server has it now.
        """

    async def amend(self, obj: Object, change: Callable[[Any], Object], subresource: str) -> Object:
        """Read the object, apply ``change`` and write the result; retry on a conflict.

        Returns the object as the API server has it now.
        Raises  ClusterError with status 404 if the object of this UID is gone; any exception of ``change``
        """

    async def read(self, obj: Object) -> Object | None:
        """Return an object as the API server has it now; None if it is gone or its name has another UID."""

    async def delete(self, obj: Object) -> None:
        """Delete an object: by UID if it has one, else by name."""

    async def record(self, event: EventRecord) -> None:
        """Create an event; for a series, update its count, and create it if it is gone."""

    def record_soon(self, events: Sequence[EventRecord], done: RequestsEnded) -> bool:
        """Create events that are no series, in order.

        Return False, and do nothing, if the requests cannot be sent at once.
        """


class Wall:
    """The wall clock, in the API's format: ``2026-11-21T03:00:00.000000Z``. ``now_ns`` gives nanoseconds since 1970.

    Every event needs it, so the part up to the second is cached.
    """

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._second, self._text = -1, ""

    def __call__(self) -> str:
        second, rest = divmod(self._now_ns(), 1_000_000_000)
        if second != self._second:
            self._second = second
            self._text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._text}.{rest // 1000:06d}Z"
