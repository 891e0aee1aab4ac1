"""Nodes and pods as rows with the fields that the map shows.

Units: cpu in millicores, memory and storage in bytes, other resources in counts, times in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Any, Final

import msgspec
from msgspec import Struct

from moorage.api.core import ENDED_PHASES, Node, Pod, PodSpec
from moorage.api.node_selectors import required_nodes
from moorage.api.pod_requests import amount, pod_requests
from moorage.api.quantity import QuantityError
from moorage.core.engine.scheduler import Scheduler
from moorage.core.queue.queued_pod import QueuePlace
from moorage.framework.changes import taint_text
from moorage.simulator.owners import controller_title, deployment_name

BOUND: Final = "bound"
_ZONES: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
#: Maximum length of a cause; kube-scheduler's longest messages name every reason of every plugin.
_MOST_CAUSE: Final = 1024


class NodeRow(Struct, frozen=True, gc=False):
    """A node without what its pods request.

    ``unready``  why it takes no pods: ``unreachable`` if its kubelet is silent, or ``not ready``; "" for a node that is ready
    ``since``    since when, in seconds since 1970; 0: not known, or ready
    """

    name: str
    zone: str
    labels: Mapping[str, str]
    ready: bool
    cordoned: bool
    taints: tuple[str, ...]
    allocatable: Mapping[str, int]
    unready: str = ""
    since: float = 0.0


class WorkloadRow(Struct, frozen=True, gc=False):
    """How many pods a workload wants, how many exist and how many are ready.

    ``key``  ``namespace/Kind/name``
    ``why``  the message of its controller about pods that it could not create
    """

    key: str
    wanted: int
    existing: int
    ready: int
    why: str = ""


class QueueState(Struct, frozen=True, gc=False):
    """The state of a pod in a scheduler's queue."""

    state: str = ""
    attempts: int = 0
    cause: str = ""


class PodRow(Struct, frozen=True, gc=False):
    """A pod. ``node`` is None while it has no node; ``cause`` then says why.

    ``recorded``  the cause that the cluster's scheduler recorded, if the scheduler here finds another one
    ``requires``  the node selector and the required node affinity, as JSON; "" for none
    """

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
    recorded: str = ""
    requires: str = ""


_UNKNOWN: Final = QueueState()


def is_ended(pod: Pod) -> bool:
    """Return True for a pod that has ended and holds no resources."""
    return pod.status.phase in ENDED_PHASES


def node_row(node: Node) -> NodeRow:
    """Return the row of a node. Quantities that cannot be read are left out."""
    labels, ready = node.labels, next((one for one in node.status.conditions if one.type == "Ready"), None)
    unready = "" if node.is_ready else "unreachable" if ready is not None and ready.status == "Unknown" else "not ready"
    return NodeRow(
        node.name,
        next((labels[key] for key in _ZONES if key in labels), ""),
        labels,
        node.is_ready,
        node.spec.unschedulable,
        tuple([taint_text(one) for one in node.spec.taints]),
        _amounts(node.status.allocatable or node.status.capacity),
        unready,
        seconds_of(ready.last_transition_time) if ready is not None and unready else 0.0,
    )


def workload_row(document: Mapping[str, Any]) -> WorkloadRow | None:
    """Return the row of a Deployment, a ReplicaSet or a StatefulSet, as its controller sees it.

    None for a ReplicaSet of a Deployment, and before the controller has seen the latest change.
    """
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    if any(one.get("controller") for one in metadata.get("ownerReferences") or ()):
        return None
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        return None
    failures = (one for one in status.get("conditions") or () if one.get("type") == "ReplicaFailure")
    why = next((str(one.get("message") or "") for one in failures if one.get("status") == "True"), "")
    return WorkloadRow(
        f"{metadata['namespace']}/{document['kind']}/{metadata['name']}", spec.get("replicas", 1), status.get("replicas", 0),
        status.get("readyReplicas", 0), why[:_MOST_CAUSE],
    )  # fmt: skip


def pod_row(pod: Pod, queue: QueueState = _UNKNOWN) -> PodRow:
    """Return the row of a pod. ``queue`` is its state in the scheduler's queue."""
    metadata, spec, node = pod.metadata, pod.spec, pod.spec.node_name
    scheduled = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
    recorded = "" if node or scheduled is None or scheduled.status == "True" else scheduled.message[:_MOST_CAUSE]
    cause = "" if node else queue.cause[:_MOST_CAUSE] or recorded
    bound_at = seconds_of(scheduled.last_transition_time) if node and scheduled is not None else 0.0
    return PodRow(
        pod.key, _owner(pod), node or None, _state(pod, queue), spec.priority or 0, _requests(pod), cause,
        seconds_of(metadata.creation_timestamp), queue.attempts, bound_at, metadata.uid,
        "" if recorded.partition(". ")[0] == cause.partition(". ")[0] else recorded, _required(spec),
    )  # fmt: skip


def _required(spec: PodSpec) -> str:
    """Return what a pod requires of its node, apart from the node's name; equal requirements are one string."""
    required = required_nodes(spec)
    terms = [one.match_expressions for one in required.node_selector_terms if one.match_expressions] if required else []
    if not terms and not spec.node_selector:
        return ""
    asked = {"labels": spec.node_selector, "terms": [[[one.key, one.operator, one.values] for one in some] for some in terms]}
    return intern(msgspec.json.encode(asked).decode())


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
    deployment = deployment_name(pod)
    return f"Deployment/{deployment}" if deployment else controller_title(pod.metadata)


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


_WORDS: Final = {QueuePlace.BACKOFF: "backoff", QueuePlace.GATED: "gated"}


def queue_state(scheduler: Scheduler, uid: str) -> QueueState:
    """Return in which part of the queue a pod is, and its number of attempts."""
    queued = scheduler.queue.get(uid)
    return _UNKNOWN if queued is None else QueueState(_WORDS.get(queued.place, "pending"), queued.attempts)
