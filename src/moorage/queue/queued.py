"""A pod on its way through the queue: where it is now, and what earlier attempts left behind.

The queue moves the same object from place to place until the pod is bound or deleted. Times are seconds on the caller's
monotonic clock.

Source  kube-scheduler, pkg/scheduler/framework/types.go, QueuedPodInfo
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo

__all__ = ["Pending", "Place", "QueuedPod"]

_NONE: frozenset[str] = frozenset()


class Place(Enum):
    """Where a pod is. It is in one place at a time."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in-flight"


class QueuedPod(Struct, eq=False):
    """What the queue yields, and takes back after a failed attempt.

    ``timestamp``           when it came, or came back from its last attempt; equal times are told apart by ``order``
    ``attempts``            how often it was popped
    ``unschedulable_count`` attempts that ended in a plugin's no; they set the backoff
    ``consecutive_errors``  attempts in a row that ended in an error; while there are any, they set it instead
    ``backoff_until``       when its backoff ends; None until that is asked for
    ``initial_attempt``     when it first became ready to be tried; equal times are told apart by ``initial_order``
    ``unschedulable_plugins``, ``pending_plugins``  who turned it down; pending ones want no backoff once they change their mind
    ``gated_by``, ``gate``  the PreEnqueue plugin that holds it back, and what that said
    ``was_flushed``         it is being tried because it had waited too long, not because of an event
    ``flushed_at``          when it was last tried for that reason
    ``tried_at``            state of the cluster that its last attempt as one of a group was made in
    ``deleted``             the pod was deleted or bound elsewhere during its attempt; it will not come back
    """

    pod: PodInfo
    timestamp: float
    order: int = 0
    place: Place = Place.ACTIVE
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

    @property
    def uid(self) -> str:
        return self.pod.uid

    @property
    def profile(self) -> str:
        """The scheduler name that the pod asks for."""
        return self.pod.spec.scheduler_name

    @property
    def gated(self) -> bool:
        return self.gated_by != ""

    @property
    def parked(self) -> bool:
        return self.place is Place.UNSCHEDULABLE or self.place is Place.GATED

    @property
    def rejecters(self) -> frozenset[str]:
        """All plugins that turned it down; empty after an error."""
        return self.unschedulable_plugins | self.pending_plugins

    @property
    def waiting_since(self) -> float:
        """When it was last tried, or let go for having waited too long."""
        return max(self.timestamp, self.flushed_at)


class Pending(Struct, frozen=True):
    """A line of the list of pending pods.

    ``plugins``: who turned it down, sorted; ``reasons``: what the gating plugin said; ``until``: end of its backoff.
    """

    pod: PodInfo
    place: Place
    since: float
    attempts: int
    plugins: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    until: float | None = None
