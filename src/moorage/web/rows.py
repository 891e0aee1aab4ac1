"""Nodes and pods as rows with the fields that the map shows.

Units: cpu in millicores, memory and storage in bytes, other resources in counts, times in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final

from msgspec import Struct

from moorage.api.core import ENDED_PHASES, Node, Pod
from moorage.api.quantity import QuantityError
from moorage.controllers.workloads.missing_pods import POD_TEMPLATE_HASH
from moorage.framework.change_values import taint_text
from moorage.state.pod_requests import amount, pod_requests

__all__ = ["BOUND", "NodeRow", "PodRow", "QueueState", "is_ended", "node_row", "pod_row", "seconds_of"]

BOUND: Final = "bound"
_ZONES: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
#: Maximum length of a cause; kube-scheduler's longest messages name every reason of every plugin.
_MOST_CAUSE: Final = 1024


class NodeRow(Struct, frozen=True, gc=False):
    """A node without what its pods request."""

    name: str
    zone: str
    labels: Mapping[str, str]
    ready: bool
    cordoned: bool
    taints: tuple[str, ...]
    allocatable: Mapping[str, int]


class QueueState(Struct, frozen=True, gc=False):
    """The state of a pod in a scheduler's queue."""

    state: str = ""
    attempts: int = 0
    cause: str = ""


class PodRow(Struct, frozen=True, gc=False):
    """A pod. ``node`` is None while it has no node; ``cause`` then says why."""

    key: str
    owner: str
    node: str | None
    state: str
    priority: int
    requests: Mapping[str, int]
    cause: str
    arrived: float
    attempts: int
    bound_at: float
    uid: str


_UNKNOWN: Final = QueueState()


def is_ended(pod: Pod) -> bool:
    """Return True for a pod that has ended and holds no resources."""
    return pod.status.phase in ENDED_PHASES


def node_row(node: Node) -> NodeRow:
    """Return the row of a node. Quantities that cannot be read are left out."""
    labels = node.labels
    return NodeRow(
        node.name,
        next((labels[key] for key in _ZONES if key in labels), ""),
        labels,
        all(one.status == "True" for one in node.status.conditions if one.type == "Ready"),
        node.spec.unschedulable,
        tuple([taint_text(one) for one in node.spec.taints]),
        _amounts(node.status.allocatable or node.status.capacity),
    )


def pod_row(pod: Pod, queue: QueueState = _UNKNOWN) -> PodRow:
    """Return the row of a pod. ``queue`` is its state in the scheduler's queue."""
    metadata, spec, node = pod.metadata, pod.spec, pod.spec.node_name
    scheduled = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
    cause = "" if node or scheduled is None or scheduled.status == "True" else scheduled.message[:_MOST_CAUSE]
    if not node and not cause:
        cause = queue.cause[:_MOST_CAUSE]
    bound_at = seconds_of(scheduled.last_transition_time) if node and scheduled is not None else 0.0
    return PodRow(
        pod.key, _owner(pod), node or None, _state(pod, queue), spec.priority or 0, _requests(pod), cause,
        seconds_of(metadata.creation_timestamp), queue.attempts, bound_at, metadata.uid,
    )  # fmt: skip


def _state(pod: Pod, queue: QueueState) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "terminating"
    if pod.spec.node_name:
        return BOUND
    if pod.spec.scheduling_gates or queue.state == "gated":
        return "gated"
    if pod.status.nominated_node_name:
        return "nominated"
    return queue.state or "pending"


def _owner(pod: Pod) -> str:
    """Return the workload of a pod: its controller, or the Deployment of its ReplicaSet."""
    for one in pod.metadata.owner_references:
        if one.controller:
            mark = pod.labels.get(POD_TEMPLATE_HASH)
            if one.kind == "ReplicaSet" and mark and one.name.endswith(f"-{mark}"):
                return f"Deployment/{one.name[: -len(mark) - 1]}"
            return f"{one.kind}/{one.name}"
    return ""


def _requests(pod: Pod) -> Mapping[str, int]:
    try:
        return pod_requests(pod).requests
    except QuantityError:
        return {}


def _amounts(given: Mapping[str, str | int | float]) -> dict[str, int]:
    amounts = {}
    for name, quantity in given.items():
        try:
            amounts[name] = amount(name, quantity)
        except QuantityError:
            continue
    return amounts


@lru_cache(maxsize=4096)
def seconds_of(stamp: str | None) -> float:
    """Return the time of a timestamp; 0 if there is none or it cannot be read."""
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0
    except ValueError:
        return 0.0
