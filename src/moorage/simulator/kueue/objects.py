"""The objects of administrators: ClusterQueues, Cohorts, LocalQueues and ResourceFlavors, read from plain data.

Source  Kueue, apis/kueue/v1beta2; pkg/cache/scheduler/clusterqueue.go for the defaults
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from moorage.api.core import LabelSelector, Taint, Toleration
from moorage.api.decode import decode
from moorage.api.pod_requests import amount as amount_of
from moorage.api.quantity import parse
from moorage.api.selectors import Selector, compile_label_selector
from moorage.simulator.kueue.quota import ClusterQueueNode, CohortNode, QueueQuota
from moorage.simulator.kueue.workloads import Key, Workload

_NANO: Final = 1_000_000_000
_MAY_STOP: Final = frozenset({"MayStopSearch", "Borrow", "Preempt"})


class Flavor(Struct, frozen=True):
    """A kind of nodes: their labels and taints, and tolerations that its pods get."""

    name: str
    labels: dict[str, str] = msgspec.field(name="nodeLabels", default_factory=dict)
    taints: tuple[Taint, ...] = msgspec.field(name="nodeTaints", default=())
    tolerations: tuple[Toleration, ...] = ()
    topology: str = msgspec.field(name="topologyName", default="")


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that get one flavor together, and the flavors in the order of the search."""

    resources: frozenset[str]
    flavors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preemption:
    """Whose workloads a queue may preempt."""

    within_queue: str = "Never"
    reclaim: str = "Never"
    borrow: str = "Never"
    borrow_threshold: int | None = None


class ClusterQueue(ClusterQueueNode):
    """A ClusterQueue: its quota in the tree, and the rules by which it gives quota away.

    ``usage_based``    workloads of LocalQueues that used less of late go first
    ``topology_only``  all its flavors have a topology: workloads need not ask for one
    ``checks``      names of AdmissionChecks, with the flavors that they are for; none: all
    ``delayed``     flavors whose nodes a check provisions: places in their topologies are found after it
    ``is_remote``   its workloads run in another cluster, where their places are found
    ``lenient``     resources of pods that it has no quota for do not count
    ``generation``  rises when quota is freed: a search for flavors then starts again
    """

    def __init__(self, name: str, spec: Mapping[str, Any]) -> None:
        super().__init__(name, _quotas(spec), _weight(spec))
        self.cohort = str(spec.get("cohortName") or spec.get("cohort") or "")
        self.groups = tuple(
            ResourceGroup(frozenset(group["coveredResources"]), tuple(str(one["name"]) for one in group["flavors"]))
            for group in spec.get("resourceGroups") or ()
        )
        selector = spec.get("namespaceSelector")
        self.namespaces: Selector = compile_label_selector(
            None if selector is None else msgspec.convert(selector, LabelSelector)
        )
        self.strict = spec.get("queueingStrategy", "BestEffortFIFO") == "StrictFIFO"
        self.stopped = _is_stopped(spec)
        rules = spec.get("preemption") or {}
        borrow = rules.get("borrowWithinCohort") or {}
        self.preemption = Preemption(
            rules.get("withinClusterQueue") or "Never",
            rules.get("reclaimWithinCohort") or "Never",
            borrow.get("policy") or "Never",
            borrow.get("maxPriorityThreshold"),
        )
        fungibility = spec.get("flavorFungibility") or {}
        self.stop_if_borrowing = (fungibility.get("whenCanBorrow") or "MayStopSearch") in _MAY_STOP
        self.stop_if_preempting = (fungibility.get("whenCanPreempt") or "TryNextFlavor") in _MAY_STOP
        self.prefers_borrowing = (fungibility.get("preference") or "BorrowingOverPreemption") == "BorrowingOverPreemption"
        self.checks = (
            *((str(name), frozenset[str]()) for name in spec.get("admissionChecks") or ()),
            *(
                (str(rule.get("name")), frozenset(map(str, rule.get("onFlavors") or ())))
                for rule in (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
            ),
        )
        self.usage_based = (spec.get("admissionScope") or {}).get("admissionMode") == "UsageBasedAdmissionFairSharing"
        self.topology_only = self.lenient = self.is_remote = False
        self.delayed: frozenset[str] = frozenset()
        self.generation = 0

    def group_of(self, resource: str) -> ResourceGroup | None:
        return next((group for group in self.groups if resource in group.resources), None)


@dataclass(slots=True)
class Objects:
    """All queues and flavors. ``faults`` names the ClusterQueues that cannot admit anything, with the reason.

    LocalQueues are named with their namespace: ``team/jobs``.
    """

    flavors: dict[str, Flavor] = field(default_factory=dict)
    cohorts: dict[str, CohortNode] = field(default_factory=dict)
    queues: dict[str, ClusterQueue] = field(default_factory=dict)
    local_queues: dict[str, str] = field(default_factory=dict)
    local_weights: dict[str, float] = field(default_factory=dict)
    stopped_locals: set[str] = field(default_factory=set)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    topologies: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        self.namespaces[name] = {"kubernetes.io/metadata.name": name, **labels}

    def queue_of(self, namespace: str, local_queue: str) -> ClusterQueue | None:
        """Return the ClusterQueue of a LocalQueue; None if one of them is missing, or the LocalQueue is stopped."""
        key = f"{namespace}/{local_queue}"
        return None if key in self.stopped_locals else self.queues.get(self.local_queues.get(key, ""))

    def accepts(self, queue: str, workload: Workload) -> bool:
        """Return whether the namespace of a workload may use a ClusterQueue."""
        labels = self.namespaces.get(workload.namespace)
        return labels is not None and self.queues[queue].namespaces.matches(labels)


def read_objects(documents: Iterable[Mapping[str, Any]], *, lenient: bool = False) -> Objects:
    """Read objects that ``with_defaults`` accepts, and build the tree. Other kinds are left alone.

    ``lenient``: resources without quota in a ClusterQueue do not count there
    """
    found = Objects()
    parents: dict[str, str] = {}
    for data in (given := list(documents)):
        kind, meta, spec = data.get("kind"), data.get("metadata") or {}, data.get("spec") or {}
        name = str(meta.get("name", ""))
        if kind == "ResourceFlavor":
            found.flavors[name] = decode({**spec, "name": name}, Flavor, "ResourceFlavor")
        elif kind == "Cohort":
            found.cohorts[name] = CohortNode(name, _quotas(spec), _weight(spec))
            parents[name] = str(spec.get("parentName") or spec.get("parent") or "")
        elif kind == "ClusterQueue":
            found.queues[name] = ClusterQueue(name, spec)
            found.queues[name].lenient = lenient
        elif kind == "LocalQueue":
            key = f"{meta.get('namespace', 'default')}/{name}"
            found.local_queues[key] = str(spec.get("clusterQueue", ""))
            found.local_weights[key] = _weight(spec)
            if _is_stopped(spec):
                found.stopped_locals.add(key)
        elif kind == "Topology":
            found.topologies[name] = tuple(str(level["nodeLabel"]) for level in spec.get("levels") or ())
        elif kind == "Namespace":
            found.add_namespace(name, meta.get("labels") or {})
    checks = [one for one in given if one.get("kind") == "AdmissionCheck"]
    _join(found, parents, {one["metadata"]["name"]: _Check.of(one) for one in checks})
    return found


class _Check(NamedTuple):
    """The controller of an AdmissionCheck, and whether it says that it cannot work."""

    controller: str
    is_inactive: bool

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> _Check:
        conditions = (data.get("status") or {}).get("conditions") or ()
        is_inactive = any(one.get("type") == "Active" and one.get("status") == "False" for one in conditions)
        return cls(str((data.get("spec") or {}).get("controllerName")), is_inactive)


def _is_stopped(spec: Mapping[str, Any]) -> bool:
    return str(spec.get("stopPolicy") or "None") != "None"


def _quotas(spec: Mapping[str, Any]) -> dict[Key, QueueQuota]:
    quotas: dict[Key, QueueQuota] = {}
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for one in flavor.get("resources") or ():
                name = str(one.get("name", ""))
                nominal, *limits = (None if one.get(field) is None else amount_of(name, one[field]) for field in _LIMITS)
                quotas[str(flavor["name"]), name] = QueueQuota(nominal or 0, *limits)
    return quotas


_LIMITS: Final = ("nominalQuota", "borrowingLimit", "lendingLimit")


def _weight(spec: Mapping[str, Any]) -> float:
    weight = (spec.get("fairSharing") or {}).get("weight")
    if weight is None:
        return 1.0
    return parse(weight) / _NANO


def _join(found: Objects, parents: Mapping[str, str], checks: Mapping[str, _Check]) -> None:
    """Build the tree. A Cohort that is only named exists; queues of a cycle are inactive. ``checks``: by name."""
    for name in [*parents.values(), *(queue.cohort for queue in found.queues.values())]:
        if name:
            found.cohorts.setdefault(name, CohortNode(name))
    looped = {name for name in found.cohorts if _loops(name, parents)}
    for name, cohort in sorted(found.cohorts.items()):
        if (parent := parents.get(name)) and name not in looped:
            cohort.parent = found.cohorts[parent]
            cohort.parent.cohorts.append(cohort)
    for name, queue in sorted(found.queues.items()):
        if fault := _fault(queue, found, looped, checks):
            found.faults[name] = fault
        queue.active = name not in found.faults
        if queue.cohort and queue.cohort not in looped:
            queue.parent = found.cohorts[queue.cohort]
            queue.parent.queues.append(queue)
        else:
            queue.settle()
    for name, cohort in found.cohorts.items():
        if cohort.parent is None and name not in looped:
            cohort.settle()


def _fault(queue: ClusterQueue, found: Objects, looped: Collection[str], checks: Mapping[str, _Check]) -> str:
    """Return why a queue cannot admit anything; empty if it can. Note which of its checks decide where pods can be."""
    flavors = [flavor for group in queue.groups for flavor in group.flavors]
    missing = [flavor for flavor in flavors if flavor not in found.flavors]
    topologies = {flavor: found.flavors[flavor].topology for flavor in flavors if flavor not in missing}
    queue.topology_only = not missing and all(topologies.values())
    for name, of in queue.checks:
        controller = checks[name].controller if name in checks else ""
        queue.is_remote |= controller == "kueue.x-k8s.io/multikueue"
        if controller == "kueue.x-k8s.io/provisioning-request":
            queue.delayed |= of or frozenset(flavors)
    if queue.stopped:
        return "is stopped"
    if missing:
        return f"references missing ResourceFlavor(s): {','.join(missing)}"
    for flavor, topology in topologies.items():
        if topology and topology not in found.topologies:
            return f'names no known topology: there is no Topology "{topology}" for TAS flavor "{flavor}"'
    if queue.cohort in looped:
        return "is in a cycle of Cohorts"
    absent = [name for name, _ in queue.checks if name not in checks]
    if absent:
        return f"references missing AdmissionCheck(s): {','.join(absent)}"
    inactive = [name for name, _ in queue.checks if checks[name].is_inactive]
    return f"references inactive AdmissionCheck(s): {','.join(inactive)}" if inactive else ""


def _loops(name: str, parents: Mapping[str, str]) -> bool:
    for _ in range(len(parents) + 1):
        name = parents.get(name, "")
    return bool(name)
