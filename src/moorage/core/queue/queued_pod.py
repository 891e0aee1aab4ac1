"""A pod in the scheduling queue: its place, and the results of earlier attempts.

The queue moves the same object from place to place until the pod is bound or deleted. Times are seconds on the caller's
monotonic clock.

Source  kube-scheduler, pkg/scheduler/framework/types.go, QueuedPodInfo
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from enum import Enum
from functools import lru_cache

from msgspec import Struct

from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo

_NONE: frozenset[str] = frozenset()


@lru_cache(maxsize=1024)
def _held_once(names: frozenset[str]) -> frozenset[str]:
    """Return an equal set that other pods have, too."""
    return names


def save_fields(one: Struct, dicts: Iterable[str] = ()) -> Callable[[], None]:
    """Return a function that restores every field of a struct; the ``dicts`` among them get back what they hold now."""
    before = copy(one)
    for name in dicts:
        setattr(before, name, getattr(before, name).copy())

    def restore() -> None:
        for name in one.__struct_fields__:
            setattr(one, name, getattr(before, name))

    return restore


class QueuePlace(Enum):
    """The part of the queue that a pod is in. A pod is in one place at a time."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in-flight"


class QueuedPod(Struct, eq=False):
    """A pod and its queue state: ``pop`` returns it, and ``requeue`` takes it back after a failed attempt.

    ``timestamp``           when it was added, or requeued after its last attempt; ``order`` breaks ties
    ``attempts``            how often it was popped
    ``unschedulable_count`` attempts in which plugins rejected it; they set the backoff
    ``consecutive_errors``  attempts in a row that ended in an error; while it is above 0, it sets the backoff instead
    ``backoff_until``       when its backoff ends; None until computed
    ``initial_attempt``     when it first became active; ``initial_order`` breaks ties
    ``unschedulable_plugins``, ``pending_plugins``  the plugins that rejected it; a hint of a pending one skips the backoff
    ``gated_by``, ``gate``  the PreEnqueue plugin that gates it, and that plugin's answer
    ``was_flushed``         it is retried because it had waited too long, not because of an event
    ``flushed_at``          when it was last retried for that reason
    ``tried_at``            the cluster state of its last attempt as a member of a group
    ``deleted``             it was deleted or bound by another client during its attempt; it will not be requeued
    ``entry``               the key of the group that it is queued with, where groups are queued as one; "" if none
    ``active_since``, ``active_times``  the second in which it became active last, and how often in it; ``held_back`` counts the
                            seconds in which that was too often. Live schedulers count; see ``SchedulingQueue.most_active``
    """

    pod: PodInfo
    timestamp: float
    order: int = 0
    place: QueuePlace = QueuePlace.ACTIVE
    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    backoff_until: float | None = None
    initial_attempt: float | None = None
    initial_order: int = 0
    unschedulable_plugins: frozenset[str] = _NONE
    pending_plugins: frozenset[str] = _NONE
    gated_by: str = ""
    gate: Hold | None = None
    was_flushed: bool = False
    flushed_at: float = float("-inf")
    tried_at: int = -1
    deleted: bool = False
    entry: str = ""
    active_since: float = float("-inf")
    active_times: int = 0
    held_back: int = 0

    def is_too_active(self, now: float, most: int) -> bool:
        """Count that the pod becomes active without a backoff. Return True if that is more than ``most`` times in a second."""
        if now - self.active_since >= 1.0:
            self.active_since, self.active_times = now, 0
        self.active_times += 1
        return self.active_times > most

    def save(self) -> Callable[[], None]:
        """Return a function that restores every field."""
        return save_fields(self)

    def note_failure(self, rejected_by: frozenset[str], pending_on: frozenset[str]) -> None:
        """Record a failed attempt: the plugins that rejected the pod, and those that it waits for."""
        if rejected_by or pending_on:
            self.unschedulable_count += 1
            self.consecutive_errors = 0
        else:
            self.consecutive_errors += 1
        self.unschedulable_plugins = _held_once(rejected_by)
        self.pending_plugins = _held_once(pending_on)
        self.gated_by, self.gate = "", None
        self.backoff_until = None
        self.was_flushed = False

    @property
    def uid(self) -> str:
        return self.pod.uid

    @property
    def profile(self) -> str:
        """The pod's ``schedulerName``."""
        return self.pod.spec.scheduler_name

    @property
    def gated(self) -> bool:
        return self.gated_by != ""

    @property
    def parked(self) -> bool:
        return self.place is QueuePlace.UNSCHEDULABLE or self.place is QueuePlace.GATED

    @property
    def rejecters(self) -> frozenset[str]:
        """All plugins that rejected it; empty after an error."""
        return self.unschedulable_plugins | self.pending_plugins

    @property
    def waiting_since(self) -> float:
        """When it was last tried, or last flushed for having waited too long."""
        return max(self.timestamp, self.flushed_at)


class PendingPod(Struct, frozen=True):
    """A row of the list of pending pods.

    ``plugins``: the plugins that rejected the pod, sorted; ``reasons``: the gating plugin's; ``until``: the end of its backoff.
    """

    pod: PodInfo
    place: QueuePlace
    since: float
    attempts: int
    plugins: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    until: float | None = None

    @classmethod
    def of(cls, queued: QueuedPod, until: float | None) -> PendingPod:
        """Return the row of a pod. ``until``: the end of its backoff."""
        plugins = tuple(sorted(filter(None, queued.rejecters)))
        reasons = queued.gate.reasons if queued.gate is not None else ()
        return cls(queued.pod, queued.place, queued.timestamp, queued.attempts, plugins, reasons, until)
