"""The steps of a controller, as values; the manager executes them in order and stops at the first that fails.

The executor owns the documents in a step. A step on an existing object applies only to the object with the same UID.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object; with ``or_keep`` an existing object of that name is no error. ``owner`` gets an event about the result.

    ``event_texts``: the message of that event on success, and the prefix of its message on failure; None for the usual texts.
    ``otherwise`` returns the step to execute on failure, given the error's text.
    """

    kind: ServedKind
    document: Document
    or_keep: bool = False
    owner: tuple[ServedKind, Document] | None = None
    event_texts: tuple[str, str] | None = None
    otherwise: Callable[[str], SetStatus] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Replace an object except its status, or the part that ``subresource`` covers."""

    kind: ServedKind
    document: Document
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Replace the status of ``document``, the object in its last known state."""

    kind: ServedKind
    document: Document
    status: Document


@dataclass(frozen=True, slots=True)
class DeleteStep:
    kind: ServedKind
    document: Document
    grace_s: int | None = None
    propagation: str = ""


@dataclass(frozen=True, slots=True)
class DeleteAll:
    """Delete every object of a kind in a namespace, each with its grace period and its dependents in the background.

    Objects that are being deleted stay as they are.
    """

    kind: ServedKind
    namespace: str


@dataclass(frozen=True, slots=True)
class EventStep:
    """Record a Kubernetes event about ``document``. ``type`` is Normal or Warning."""

    kind: ServedKind
    document: Document
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Later:
    """Reconcile the same key again after ``delay_s`` seconds, even without an event."""

    delay_s: float


#: A step on one object.
ExecutableStep: TypeAlias = Create | Update | SetStatus | DeleteStep | EventStep
Step: TypeAlias = ExecutableStep | DeleteAll | Later


class Controller(Protocol):
    """Manages the objects of one kind, or one aspect of all objects, for the manager.

    ``name`` is the source of its events. Each controller defines its own keys; most use ``object_fields.key_of`` of the managed
    object. The manager calls ``reconcile`` for every key that ``keys`` returned for an event; it computes the necessary steps
    from the index and the time (seconds since 1970) alone. The manager executes the steps after ``reconcile`` has finished.
    """

    @property
    def name(self) -> str: ...

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]: ...

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]: ...


# -- work queue --------------------------------------------------------------------------------------------------------
# The work queue: each key at most once, in order of arrival, with a growing delay after failures.
#
# Source  client-go, util/workqueue: delaying_queue.go, default_rate_limiters.go (exponential, per item)

_FIRST_DELAY_S: Final = 0.005
_LONGEST_DELAY_S: Final = 60.0

T = TypeVar("T")


class WorkQueue(Generic[T]):
    """Keys to reconcile, each at most once. The caller passes the time, in seconds on any one clock."""

    def __init__(self) -> None:
        self._ready: dict[T, None] = {}
        self._timers: list[tuple[float, int, T]] = []
        #: The earliest timer of each key; other timers of the key are ignored when they expire.
        self._due: dict[T, float] = {}
        self._failures: dict[T, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, item: T) -> None:
        """Queue a key now."""
        self._ready[item] = None

    def add_at(self, item: T, when: float) -> None:
        """Queue a key at a time, unless it is due earlier."""
        held = self._due.get(item)
        if held is not None and held <= when:
            return
        self._due[item] = when
        self._count += 1
        heappush(self._timers, (when, self._count, item))

    def add_failed(self, item: T, now: float) -> None:
        """Queue a key after a failure, with a delay that doubles each time."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        self.add_at(item, now + min(_FIRST_DELAY_S * 2 ** min(failures, 32), _LONGEST_DELAY_S))

    def forget_failures(self, item: T) -> None:
        """Reset the delay of a key after a success."""
        self._failures.pop(item, None)

    def failures(self, item: T) -> int:
        return self._failures.get(item, 0)

    def take(self, now: float) -> T | None:
        """Return the next key, None if none is due."""
        while self._timers and self._timers[0][0] <= now:
            when, _, item = heappop(self._timers)
            if self._due.get(item) == when:
                del self._due[item]
                self._ready[item] = None
        if not self._ready:
            return None
        item = next(iter(self._ready))
        del self._ready[item]
        return item

    def next_time(self) -> float | None:
        """Return when the next timer expires; None without one."""
        while self._timers and self._due.get(self._timers[0][2]) != self._timers[0][0]:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None
