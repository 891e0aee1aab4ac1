"""The outcome of a run as plain values: the input of every table and document.

Amounts are cpu in millicores, memory and storage in bytes, and counts of other resources; times are seconds of simulated time
since the run began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from moorage.basis.printable import one_line
from moorage.report.claims_and_groups import DeviceOutcome, PodGroupOutcome, VolumeOutcome
from moorage.report.queue_report import QueueReport
from moorage.report.run_values import RunMeasures


class PodOutcome(Struct, frozen=True, gc=False):
    """One pod. ``state`` is Placed, Pending, Finished, Preempted or Deleted; ``message`` says why it is pending."""

    namespace: str
    name: str
    state: str
    node: str = ""
    workload: str = ""
    scheduler_name: str = ""
    priority: int = 0
    requests: Mapping[str, int] = {}
    arrived_s: float = 0.0
    placed_s: float | None = None
    ended_s: float | None = None
    attempts: int = 0
    message: str = ""
    nominated: str = ""
    preempted_by: str = ""
    replaced_by: str = ""
    labels: Mapping[str, str] = {}


class NodeOutcome(Struct, frozen=True, rename="camel"):
    """One node at the end of the run; ``pods`` counts the pods on it, ``placed`` those that this run placed there."""

    name: str
    pods: int
    placed: int
    allowed_pods: int
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


class InputNote(Struct, frozen=True):
    """A one-line note about the input: a part that was not used or is missing."""

    kind: str
    text: str

    def __post_init__(self) -> None:
        force_setattr(self, "text", one_line(self.text))


class QuotaAmount(Struct, frozen=True):
    """A resource of which a quota has too little left for one more pod. Amounts are Kubernetes quantities."""

    resource: str
    requested: str
    used: str
    hard: str


class QuotaLimit(Struct, frozen=True):
    """A limit of a quota that keeps some of several pods from being created. Amounts are Kubernetes quantities.

    ``needed``  what the limit would have to be for all of them
    """

    quota: str
    resource: str
    used: str
    hard: str
    needed: str


class RefusedPods(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pods of one workload that were not created because of a quota, a limit range or a policy; or one pod without a workload.

    ``names``    the names that the pods would have
    ``wanted``   how many pods the workload is to have
    ``by``       ``ResourceQuota``, ``LimitRange``, ``ValidatingAdmissionPolicy`` or ``MutatingAdmissionPolicy``
    ``quota``    the quota's name; ``amounts``: the resources that it lacks for the first pod
    ``limits``   the limits of all quotas that hold some of the pods, also those that the first pod does not reach
    ``priority`` of the first pod
    ``message``  the API server's message for the first pod
    ``labels``   the labels of the first pod
    """

    namespace: str
    workload: str = ""
    names: tuple[str, ...]
    wanted: int
    by: str
    quota: str = ""
    message: str
    amounts: tuple[QuotaAmount, ...] = msgspec.field(name="resources")
    labels: Mapping[str, str] = {}
    limits: tuple[QuotaLimit, ...] = ()
    priority: int = 0

    @property
    def keys(self) -> list[str]:
        """The pods as ``namespace/name``."""
        return [f"{self.namespace}/{name}" for name in self.names]


@dataclass(frozen=True, slots=True)
class Run:
    """All values that are reported about a run. Pods are in order of arrival, nodes and claims in order of name.

    ``changes``: what was changed before the run; ``before``: the run without these changes; ``measures``: metrics and gates;
    ``queues``: Kueue's queues.
    """

    pods: tuple[PodOutcome, ...]
    nodes: tuple[NodeOutcome, ...]
    notes: tuple[InputNote, ...] = ()
    seed: int = 0
    release: str = ""
    ended_s: float = 0.0
    attempts: int = 0
    volumes: tuple[VolumeOutcome, ...] = ()
    devices: tuple[DeviceOutcome, ...] = ()
    groups: tuple[PodGroupOutcome, ...] = ()
    refused: tuple[RefusedPods, ...] = ()
    changes: tuple[str, ...] = ()
    before: Run | None = None
    measures: RunMeasures | None = None
    queues: QueueReport | None = None

    @property
    def not_created(self) -> int:
        """The number of pods that could not be created."""
        return sum(len(one.names) for one in self.refused)

    def in_state(self, *states: str) -> tuple[PodOutcome, ...]:
        """Return the pods in one of these states."""
        return tuple(pod for pod in self.pods if pod.state in states)

    @property
    def lost(self) -> tuple[PodOutcome, ...]:
        """The pods that were deleted with their node."""
        return tuple(pod for pod in self.in_state("Deleted") if pod.node)

    def peaks(self) -> dict[str, int]:
        """Return resource → peak requests. A pod that ends frees its resources before a pod placed at the same time."""
        changes = _summed_changes(self.pods)
        held_now = {name: asked for name, (_, asked) in self.totals().items()}
        for (_, sign), held in changes.items():
            for name, amount in held.items():
                held_now[name] = held_now.get(name, 0) - sign * amount
        most = dict(held_now)
        for (_, sign), held in sorted(changes.items(), key=lambda change: change[0]):
            for name, amount in held.items():
                held_now[name] += sign * amount
                most[name] = max(most[name], held_now[name])
        return most

    def totals(self) -> dict[str, tuple[int, int]]:
        """Return resource → (allocatable, requested) over all nodes, with ``pods``; resources with two zeros are left out."""
        totals: dict[str, list[int]] = {}
        for node in self.nodes:
            for resource, amount in node.allocatable.items():
                totals.setdefault(resource, [0, 0])[0] += amount
            for resource, amount in node.requested.items():
                totals.setdefault(resource, [0, 0])[1] += amount
        totals["pods"] = [sum(n.allowed_pods for n in self.nodes), sum(n.pods for n in self.nodes)]
        return {name: (offered, asked) for name, (offered, asked) in totals.items() if offered or asked}


def _summed_changes(pods: Iterable[PodOutcome]) -> dict[tuple[float, int], dict[str, int]]:
    """Return time, and 1 for pods that are placed or -1 for pods that end → the sum of their requests, with ``pods``."""
    #: Time, sign and the id of requests, which pods share, → the requests, and how many pods with them.
    alike: dict[tuple[float, int, int], list[Any]] = {}
    for pod in pods:
        if pod.node:
            for time_s, sign in ((pod.placed_s, 1), (pod.ended_s, -1)):
                if time_s is not None:
                    alike.setdefault((time_s, sign, id(pod.requests)), [pod.requests, 0])[1] += 1
    sums: dict[tuple[float, int], dict[str, int]] = {}
    for (time_s, sign, _), (requests, count) in alike.items():
        held = sums.setdefault((time_s, sign), {})
        for name, amount in (*requests.items(), ("pods", 1)):
            held[name] = held.get(name, 0) + count * amount
    return sums
