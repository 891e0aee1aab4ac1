"""Workloads: what a job asks of a queue, and what it was given.

Source  Kueue, pkg/workload
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Any, Final, Protocol

from moorage.api.core import Pod, PodSpec
from moorage.api.decode import decode
from moorage.api.pod_requests import add_amounts, every_request
from moorage.api.pod_requests import amount as amount_of
from moorage.simulator.kueue.topology import TopologyTree
from moorage.simulator.kueue.topology_requests import TopologyPlacement, TopologyRequest, read_placed, read_request

#: A flavor and a resource.
Key = tuple[str, str]
Amounts = dict[Key, int]

#: Fields of a pod that tell one workload from another for the queue, beside its containers.
_SHAPE: Final = (
    "nodeSelector", "affinity", "tolerations", "runtimeClassName", "priority", "topologySpreadConstraints", "overhead",
    "resourceClaims",
)  # fmt: skip


@lru_cache(maxsize=1024)
def rank_of(resource: str) -> int:
    """Return the place of a resource among others: Kueue goes through them by the 64-bit FNV-1a hash of their names."""
    rank = 0xCBF29CE484222325
    for byte in resource.encode():
        rank = (rank ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return rank


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one shape in a workload. ``requests`` are those of one pod, in base units; ``counted``: what counts for quota."""

    name: str
    count: int
    min_count: int | None
    spec: PodSpec
    requests: Mapping[str, int]
    topology: TopologyRequest | None = None
    counted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a pod set holds: so many pods, a flavor for each resource, and the quota in use.

    ``delayed``  whether its places in a topology are found later, when checks have made nodes: Pending, then Ready; or empty
    """

    name: str
    count: int
    flavors: Mapping[str, str]
    usage: Mapping[str, int]
    placed: TopologyPlacement | None = None
    delayed: str = ""


@dataclass(slots=True)
class ScanState:
    """How far the search for flavors came: the next attempt goes on from there.

    ``tried``  for each pod set and resource the index of the flavor tried last, -1 after the last one
    """

    tried: list[dict[str, int]]
    generation: int
    cycle: int
    shape: str

    @property
    def pending(self) -> bool:
        return any(index != -1 for indexes in self.tried for index in indexes.values())

    def next_flavor(self, pod_set: int, resource: str) -> int:
        if pod_set >= len(self.tried):
            return 0
        return self.tried[pod_set].get(resource, -1) + 1


@dataclass(slots=True, eq=False)
class Workload:
    """One workload. Times are in seconds.

    ``shape``       equal workloads have equal shapes: what one of them learns holds for all
    ``reserved_at`` when it got its quota; None while it waits
    ``order_time``  its place in the queue: creation, or the eviction that put it back
    ``conditions``  status, reason and message of each
    ``unhealthy``   failed nodes on which it stands
    ``reclaimed``   by pod set how many of its pods have ended and count no longer
    ``invalid``     why it can never be admitted
    ``owner``       kind and name of the object that it stands for, if the input says so
    """

    namespace: str
    name: str
    uid: str
    queue_name: str
    priority: int
    created: float
    pod_sets: tuple[PodSet, ...]
    shape: str
    labels: Mapping[str, str] = field(default_factory=dict)
    active: bool = True
    cluster_queue: str = ""
    admission: tuple[Assigned, ...] = ()
    reserved_at: float | None = None
    evicted: bool = False
    order_time: float = 0.0
    requeue_at: float | None = None
    requeues: int = 0
    scan: ScanState | None = None
    nominated: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    conditions: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    invalid: str = ""
    usage: Amounts = field(default_factory=dict)
    uses: frozenset[Key] = frozenset()
    owner: tuple[str, str] | None = None
    unhealthy: tuple[str, ...] = ()
    reclaimed: Mapping[str, int] = field(default_factory=dict)
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = f"{self.namespace}/{self.name}"

    def has(self, condition: str) -> bool:
        """Return whether a condition is true."""
        return self.conditions.get(condition, ("",))[0] == "True"

    @property
    def local_queue(self) -> str:
        return f"{self.namespace}/{self.queue_name}"

    @property
    def needs_places(self) -> bool:
        """True if it holds quota, and has no places yet in the topology that it asks for."""
        return not self.evicted and any(held.placed is None and held.delayed == "Pending" for held in self.admission)

    def copied(self) -> Workload:
        """Return the same workload, for another run."""
        return replace(self, usage=dict(self.usage), conditions=dict(self.conditions))

    def hold(self, queue: str, admission: tuple[Assigned, ...], now: float) -> None:
        """Take quota."""
        self.cluster_queue, self.admission, self.reserved_at = queue, admission, now
        self.usage = {}
        for assigned in admission:
            add_amounts(self.usage, {(assigned.flavors[name], name): amount for name, amount in assigned.usage.items()})
        self.uses = frozenset((flavor, resource) for one in admission for resource, flavor in one.flavors.items())
        self.conditions["QuotaReserved"] = ("True", "QuotaReserved", f"Quota reserved in ClusterQueue {queue}")
        self.evicted = False
        for name in ("Evicted", "Preempted"):
            if self.has(name):
                self.conditions[name] = ("False", "QuotaReserved", f"Previously: {self.conditions[name][2]}")

    def wait(self, reason: str, message: str) -> None:
        """Note why it has no quota."""
        self.conditions["QuotaReserved"] = ("False", reason, message)

    def shrink(self, at: int, count: int) -> Amounts:
        """Hold quota for fewer pods of a pod set. Return what is given back."""
        held = self.admission[at]
        usage = {resource: amount // held.count * count for resource, amount in held.usage.items()}
        less = {(held.flavors[resource], resource): amount - usage[resource] for resource, amount in held.usage.items()}
        self.admission = (*self.admission[:at], replace(held, count=count, usage=usage), *self.admission[at + 1 :])
        add_amounts(self.usage, less, -1)
        return less

    def places(self, trees: Mapping[str, TopologyTree]) -> Iterator[tuple[str, TopologyPlacement, Mapping[str, int]]]:
        """Yield where its pods stand in the topologies of their flavors, with the requests of one pod."""
        for held in self.admission if trees else ():
            flavor = next((name for name in held.flavors.values() if name in trees), None)
            if held.placed is not None and flavor is not None:
                yield flavor, held.placed, next(one.requests for one in self.pod_sets if one.name == held.name)

    def take_places(self, trees: Mapping[str, TopologyTree], sign: int = 1) -> None:
        """Count its pods where they stand, or with -1 take them off."""
        for flavor, placed, requests in self.places(trees):
            trees[flavor].use(placed, requests, sign)

    def let_go(self) -> None:
        """Give the quota back."""
        self.admission, self.reserved_at, self.usage, self.uses = (), None, {}, frozenset()


class Completing(Protocol):
    """Says what pods of a template ask for beyond what it says itself."""

    def complete(self, namespace: str, spec: PodSpec) -> PodSpec: ...

    def faults(self, namespace: str, spec: PodSpec, path: str) -> Iterator[str]: ...


def read_workload(
    data: Mapping[str, Any], created: float | None = None, where: str = "Workload", completing: Completing | None = None
) -> Workload:
    """Read a Workload (v1beta1 or v1beta2) from plain data, with the quota that it holds. ``created`` stands for its own time.

    ``completing``  sets on the templates what the API server sets on their pods
    Raises  InputError for fields of the wrong type
    """
    meta, spec, status = data.get("metadata") or {}, data.get("spec") or {}, data.get("status") or {}
    namespace = str(meta.get("namespace", "default"))
    at = f"{where} {meta.get('namespace', 'default')}/{meta.get('name', '')}"
    if created is None:
        created = _seconds(meta.get("creationTimestamp"))
    reclaimed = {one["name"]: int(one.get("count", 0)) for one in status.get("reclaimablePods") or ()}
    sets: list[PodSet] = []
    shapes: list[object] = []
    faults: list[str] = []
    beyond: list[str] = []
    for index, one in enumerate(spec.get("podSets", ())):
        template = one.get("template", {}).get("spec", {})
        path = f"{at}: spec.podSets[{index}]"
        asked = one.get("topologyRequest")
        pod_spec = decode({"metadata": {"name": "pod"}, "spec": template}, Pod, path).spec
        at_spec = f"spec.podSets[{index}].template.spec"
        if completing is not None:
            pod_spec = completing.complete(namespace, pod_spec)
            beyond += completing.faults(namespace, pod_spec, at_spec)
        requests = every_request(pod_spec)
        faults += _over_limits(pod_spec, at_spec)
        count, least = int(one.get("count", 1)) - reclaimed.get(one.get("name"), 0), one.get("minCount")
        topology = None if asked is None else read_request(asked)
        sets.append(PodSet(str(one.get("name", "main")), count, least, pod_spec, requests, topology, requests))
        containers = [
            [[c.get("resources", {}).get("requests"), c.get("ports")] for c in template.get(kind, ())]
            for kind in ("initContainers", "containers")
        ]
        shapes.append(
            [one.get("name"), containers, [template.get(k) for k in _SHAPE], count, sorted(requests.items()), least, asked]
        )
    priority = int(spec.get("priority") or 0)
    workload = Workload(
        namespace=namespace, name=str(meta.get("name", "")), uid=str(meta.get("uid", "")),
        queue_name=str(spec.get("queueName", "")), priority=priority, created=created, order_time=created,
        pod_sets=tuple(sets), shape=intern(json.dumps([priority, shapes], sort_keys=True, default=str)),
        reclaimed=reclaimed, labels=meta.get("labels") or {}, active=spec.get("active") is not False,
        owner=next(((str(one.get("kind")), str(one.get("name"))) for one in meta.get("ownerReferences") or ()), None),
    )  # fmt: skip
    if faults or beyond:
        what = "resources validation failed" if faults else "resources didn't satisfy LimitRange constraints"
        listed = list(dict.fromkeys(faults or beyond))
        workload.invalid = f"{what}: {listed[0] if len(listed) == 1 else '[' + ', '.join(listed) + ']'}"
    _read_status(workload, status)
    return workload


def _over_limits(spec: PodSpec, path: str) -> Iterator[str]:
    """Yield the containers that request more than their limits."""
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, one in enumerate(containers):
            limits = {name: amount_of(name, limit) for name, limit in one.resources.limits.items()}
            asked = sorted(one.resources.requests.items())
            if over := [name for name, quantity in asked if name in limits and amount_of(name, quantity) > limits[name]]:
                yield f"{path}.{kind}[{index}]: Invalid value: {json.dumps(over)}: requests must not exceed its limits"


def _read_status(workload: Workload, status: Mapping[str, Any]) -> None:
    given = {str(one["type"]): one for one in status.get("conditions") or ()}
    workload.conditions = {
        name: (str(one.get("status")), str(one.get("reason", "")), str(one.get("message", ""))) for name, one in given.items()
    }
    workload.evicted = workload.has("Evicted")
    if workload.evicted and workload.conditions["Evicted"][1] in {"PodsReadyTimeout", "AdmissionCheck"}:
        workload.order_time = _seconds(given["Evicted"].get("lastTransitionTime"))
    workload.unhealthy = tuple(str(one["name"]) for one in status.get("unhealthyNodes") or ())
    state = status.get("requeueState") or {}
    workload.requeues = int(state.get("count") or 0)
    if state.get("requeueAt"):
        workload.requeue_at = _seconds(state["requeueAt"])
    admission = status.get("admission")
    if admission and workload.has("QuotaReserved"):
        asked = {one.name: one.count for one in workload.pod_sets}
        kept, was_evicted = dict(workload.conditions), workload.evicted
        assigned = tuple(_assigned(one, asked) for one in admission.get("podSetAssignments") or ())
        workload.hold(str(admission["clusterQueue"]), assigned, _seconds(given["QuotaReserved"].get("lastTransitionTime")))
        workload.conditions, workload.evicted = kept, was_evicted


def _assigned(data: Mapping[str, Any], asked: Mapping[str, int]) -> Assigned:
    """Read what a pod set holds; pods that were given back no longer count."""
    name, flavors = str(data["name"]), data.get("flavors") or {}
    usage = {name: amount_of(name, quantity) for name, quantity in (data.get("resourceUsage") or {}).items() if name in flavors}
    count = data.get("count")
    count = asked.get(name, 0) if count is None else int(count)
    left = min(count, asked.get(name, count))
    if left < count:
        usage = {resource: amount // count * left for resource, amount in usage.items()}
    places = data.get("topologyAssignment")
    delayed = str(data.get("delayedTopologyRequest") or "")
    return Assigned(name, left, flavors, usage, None if places is None else read_placed(places), delayed)


def _seconds(timestamp: Any) -> float:
    return datetime.fromisoformat(str(timestamp)).timestamp() if timestamp else 0.0
