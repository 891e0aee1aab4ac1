"""The record that a simulation keeps of each pod."""

from __future__ import annotations

from collections.abc import Container
from enum import Enum

from msgspec import Struct
from msgspec.structs import force_setattr

from moorage.api.core import ENDED_PHASES, Pod, PodSpec

__all__ = ["ArrivalKind", "PodRecord", "State", "arrival_of", "bound_version", "is_placed", "wants_a_node"]


class State:
    """The states of a pod in a simulation."""

    PENDING = "Pending"
    PLACED = "Placed"
    FINISHED = "Finished"
    PREEMPTED = "Preempted"
    DELETED = "Deleted"


def wants_a_node(pod: Pod) -> bool:
    """Return True for a pod that a scheduler should place: without a node, neither finished nor terminating."""
    return not pod.spec.node_name and pod.status.phase not in ENDED_PHASES and pod.metadata.deletion_timestamp is None


def is_placed(obj: object) -> bool:
    """Return True for a pod that has a node and has not ended."""
    return isinstance(obj, Pod) and bool(obj.spec.node_name) and obj.status.phase not in ENDED_PHASES


class ArrivalKind(Enum):
    """How a new object may be reported: alone, or together with others of its kind."""

    ALONE = "alone"
    PLACED = "placed"
    WAITING = "waiting"


def arrival_of(schedulers: Container[str], obj: object) -> ArrivalKind:
    """Return how an object may be reported. ``schedulers``: the scheduler names that have a profile."""
    if not isinstance(obj, Pod):
        return ArrivalKind.ALONE
    if is_placed(obj):
        return ArrivalKind.PLACED
    waits = wants_a_node(obj) and obj.spec.scheduler_name in schedulers
    return ArrivalKind.WAITING if waits and not obj.spec.resource_claims else ArrivalKind.ALONE


class PodRecord(Struct, gc=False):
    """The record of a pod that was pending, or that was evicted or deleted. Times are seconds of simulated time.

    ``message`` is the reason why the last attempt failed; empty if it succeeded or there was none. Decisions are not recorded,
    because each is as large as the cluster.
    """

    pod: Pod
    arrived_s: float
    state: str = State.PENDING
    node: str = ""
    placed_s: float | None = None
    attempts: int = 0
    message: str = ""
    nominated: str = ""
    preempted_by: str = ""
    replaced: str = ""
    ended_s: float | None = None


def bound_version(pod: Pod, node: str) -> Pod:
    """Return a pod without a nomination as it is once bound. Setting fields of unshared copies is faster than ``replace``."""
    bound: Pod = pod.__copy__()  # type: ignore[attr-defined]  # faster than copy()
    spec: PodSpec = pod.spec.__copy__()  # type: ignore[attr-defined]
    force_setattr(spec, "node_name", node)
    force_setattr(bound, "spec", spec)
    return bound
