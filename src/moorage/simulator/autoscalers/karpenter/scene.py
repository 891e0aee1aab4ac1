"""The cluster as Karpenter sees it: nodes, what is free on them, pools, types and DaemonSets. Built once, for many simulations.

Source  karpenter, pkg/controllers/state/statenode.go; pkg/controllers/provisioning/scheduling/existingnode.go, scheduler.go
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from moorage.api.core import ENDED_PHASES, Node, ObjectMeta, Pod, Taint, Toleration
from moorage.api.defaults import default_pod
from moorage.api.durations import DurationError, duration_seconds
from moorage.api.node_selectors import find_untolerated
from moorage.api.pod_requests import amount
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.api.workloads import DaemonSet
from moorage.basis.inputs.objects import is_printed
from moorage.errors import InputError
from moorage.rules.volumes.bindings import BIND_COMPLETED
from moorage.simulator.autoscalers import key_requirements as keys
from moorage.simulator.autoscalers.instance_types import InstanceType, PriceList, Remembered, amounts, missing_min_values
from moorage.simulator.owners import daemon_of, is_active, is_owned_by
from moorage.state.pod_info import HostPort, PodInfo
from moorage.state.pod_volumes import claims_used

# The claims, volumes and classes of a cluster, and the pods that Karpenter ignores because of them.
#
# Source  karpenter, pkg/controllers/provisioning/scheduling/volumetopology.go, ValidatePersistentVolumeClaims


class ClaimedStorage(NamedTuple):
    """Claims by namespace and name, volumes and classes by name."""

    claims: Mapping[tuple[str, str], PersistentVolumeClaim]
    volumes: Mapping[str, PersistentVolume]
    classes: Mapping[str, StorageClass]

    @classmethod
    def of(
        cls, claims: Iterable[PersistentVolumeClaim], volumes: Iterable[PersistentVolume], classes: Iterable[StorageClass]
    ) -> ClaimedStorage:
        """Return the storage that objects describe."""
        return cls(
            {(one.namespace, one.name): one for one in claims},
            {one.name: one for one in volumes},
            {one.name: one for one in classes},
        )

    def why_ignored(self, pod: Pod) -> str:
        """Return why Karpenter launches nothing for a pod whatever nodes there are; "" if its claims are in order."""
        return next((why for use in claims_used(pod) if (why := self._fault(pod.namespace, use.name))), "")

    def _fault(self, namespace: str, name: str) -> str:
        claim = self.claims.get((namespace, name))
        if claim is None:
            return f'getting persistent volume claim "{name}", persistentvolumeclaims "{name}" not found'
        if claim.metadata.deletion_timestamp is not None:
            return "persistentvolumeclaim is being deleted"
        if claim.status.phase == "Lost":
            return "persistentvolumeclaim bound to non-existent persistentvolume"
        return self._bound_fault(claim) if claim.spec.volume_name else self._class_fault(claim.spec.storage_class_name or "")

    def _bound_fault(self, claim: PersistentVolumeClaim) -> str:
        if claim.spec.volume_name not in self.volumes:
            return f'failed to validate pvc, persistentvolumes "{claim.spec.volume_name}" not found'
        bound = BIND_COMPLETED in claim.metadata.annotations
        return "" if bound else "pvc is considered unbound because it does not contain annotation"

    def _class_fault(self, class_name: str) -> str:
        class_ = self.classes.get(class_name)
        if not class_name:
            return "unbound pvc must define a storage class"
        if class_ is None:
            missing = f'storageclasses.storage.k8s.io "{class_name}" not found'
            return f"failed to validate pvc, failed to get storage class, {missing}"
        if class_.volume_binding_mode == "Immediate":
            return "failed to validate pvc, pvc with immediate volume binding mode must be bound"
        return ""


# -- pools -------------------------------------------------------------------------------------------------------------
# Karpenter's objects: NodePools and NodeClaims, read from plain data.
#
# Source  karpenter, pkg/apis/v1/nodepool.go, nodeclaim.go; pkg/controllers/provisioning/scheduling/nodeclaimtemplate.go

#: The kinds to read from a cluster, by their names.
KINDS: Final = (
    "nodepools.v1.karpenter.sh", "nodeclaims.v1.karpenter.sh", "nodeoverlays.v1alpha1.karpenter.sh",
    "capacitybuffers.v1beta1.autoscaling.x-k8s.io",
)  # fmt: skip
_REASONS: Final = frozenset({"Underutilized", "Empty", "Drifted"})
_POLICIES: Final = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")


@dataclass(frozen=True)
class DisruptionLimit:
    """A budget of a NodePool: how many of its nodes may be disrupted at a time. ``reasons`` None: for every reason."""

    nodes: str
    reasons: frozenset[str] | None = None
    schedule: str = ""
    duration_s: float = 0.0

    def allowed(self, nodes: int) -> int:
        """Return the number for a pool of so many nodes; percentages round up."""
        if self.nodes.endswith("%"):
            return -(-int(self.nodes[:-1]) * nodes // 100)
        return int(self.nodes)


@dataclass(frozen=True, eq=False)
class ProvisioningPool:
    """A NodePool: what its nodes may be, and when Karpenter may disrupt them.

    ``consolidate_after_s``  None: consolidation is disabled
    ``static``               its number of nodes is fixed; pods add none
    ``notes``                what of it has no effect here
    """

    name: str
    requirements: keys.Requirements
    taints: tuple[Taint, ...] = ()
    limits: Mapping[str, int] | None = None
    weight: int = 0
    static: bool = False
    ready: bool = True
    policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after_s: float | None = 0.0
    budgets: tuple[DisruptionLimit, ...] = (DisruptionLimit("10%"),)
    notes: tuple[str, ...] = ()


def read_node_pools(documents: Sequence[Mapping[str, Any]]) -> list[ProvisioningPool]:
    """Return the NodePools among documents in the order in which they are tried; not those that are being deleted.

    One that an API server printed and that is not valid is never ready, as Karpenter's own validation of it fails.

    Raises  InputError that names the field of one that someone wrote
    """
    found = [
        _valid_pool(document) for document in documents
        if document.get("kind") == "NodePool" and not part(document, "metadata").get("deletionTimestamp")
    ]  # fmt: skip
    return sorted(found, key=lambda pool: (pool.weight, pool.name), reverse=True)


def part(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return an object within an object, by its path; an empty one if it is not there."""
    for name in names:
        data = data.get(name) or {}
    return data


def conditions_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the conditions of an object by type."""
    return {str(one_.get("type")): one_ for one_ in part(document, "status").get("conditions") or ()}


def _valid_pool(document: Mapping[str, Any]) -> ProvisioningPool:
    try:
        return _pool(document)
    except InputError as error:
        if not is_printed(document):
            raise
        name = str(part(document, "metadata").get("name", ""))
        return ProvisioningPool(name, {}, ready=False, notes=(f'a valid NodePool "{name}": {error}',))


def _pool(document: Mapping[str, Any]) -> ProvisioningPool:
    name = str(part(document, "metadata").get("name", ""))
    where = f"nodepool/{name}"
    spec = part(document, "spec")
    template = part(spec, "template", "spec")
    disruption = part(spec, "disruption")
    policy = disruption.get("consolidationPolicy") or "WhenEmptyOrUnderutilized"
    if policy not in _POLICIES:
        raise InputError(f"{where}: spec.disruption.consolidationPolicy: {policy!r} is none of {', '.join(_POLICIES)}")
    ready = conditions_of(document).get("Ready", {}).get("status", "True") == "True"
    limits, budgets, after = spec.get("limits"), disruption.get("budgets"), str(disruption.get("consolidateAfter", "0s"))
    try:
        return ProvisioningPool(
            name, _requirements(name, spec), _taints(template, "taints"),
            None if not limits else amounts(limits, f"{where}: spec.limits"),
            int(spec.get("weight") or 0), spec.get("replicas") is not None, ready, policy,
            None if after == "Never" else duration_seconds(after),
            tuple(map(_limit, budgets)) if budgets else (DisruptionLimit("10%"),),
            (*_unknown_fields(name, document), *_fixed(name, spec)),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, DurationError, msgspec.ValidationError) as error:
        raise InputError(f"{where}: no valid NodePool of karpenter.sh/v1: {error}") from None


#: The fields of a NodePool of karpenter.sh/v1, by where they are.
_FIELDS: Final[Mapping[tuple[str, ...], frozenset[str]]] = {
    ("spec",): frozenset({"template", "disruption", "limits", "weight", "replicas"}),
    ("spec", "template"): frozenset({"metadata", "spec"}),
    ("spec", "template", "metadata"): frozenset({"labels", "annotations"}),
    ("spec", "template", "spec"): frozenset({
        "taints", "startupTaints", "requirements", "nodeClassRef", "terminationGracePeriod", "expireAfter",
    }),
    ("spec", "disruption"): frozenset({"consolidateAfter", "consolidationPolicy", "budgets"}),
}  # fmt: skip


def _unknown_fields(name: str, document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields that the API server drops, and kubectl refuses."""
    for path, known in _FIELDS.items():
        for unknown in sorted(set(part(document, *path)) - known):
            where = ".".join((*path, unknown))
            others = [".".join((*place, unknown)) for place, fields in _FIELDS.items() if unknown in fields]
            hint = f", but {others[0]}" if others else ""
            yield f"NodePool {name}: karpenter.sh/v1 has no field {where}{hint}: it has no effect"


def _fixed(name: str, spec: Mapping[str, Any]) -> Iterator[str]:
    if spec.get("replicas") is not None:
        yield f"NodePool {name}: it is static, and that Karpenter keeps {spec['replicas']} nodes of it is not simulated"


def _requirements(name: str, spec: Mapping[str, Any]) -> dict[str, keys.KeyRequirement]:
    template = part(spec, "template")
    labels = {str(key): str(value) for key, value in part(template, "metadata", "labels").items()}
    node_class = part(template, "spec", "nodeClassRef")
    if node_class.get("group"):
        labels[f"{node_class['group']}/{str(node_class.get('kind', '')).lower()}"] = str(node_class.get("name", ""))
    # DaemonSets may select these labels, which every node gets.
    labels |= {keys.NODE_POOL: name, REGISTERED: "true", INITIALIZED: "true"}
    return keys.merged(keys.of_data(part(template, "spec").get("requirements") or ()), keys.of_labels(labels))


def _taints(template: Mapping[str, Any], name: str) -> tuple[Taint, ...]:
    return msgspec.convert(template.get(name) or (), tuple[Taint, ...])


def _limit(given: Mapping[str, Any]) -> DisruptionLimit:
    reasons = given.get("reasons")
    if reasons is not None and not _REASONS.issuperset(reasons):
        raise ValueError(f"budgets: a reason is none of {', '.join(sorted(_REASONS))}")
    nodes = str(given.get("nodes", "10%"))
    int(nodes.removesuffix("%"))
    return DisruptionLimit(
        nodes, None if reasons is None else frozenset(reasons), str(given.get("schedule") or ""),
        duration_seconds(str(given["duration"])) if given.get("duration") else 0.0,
    )  # fmt: skip


INITIALIZED: Final = "karpenter.sh/initialized"
REGISTERED: Final = "karpenter.sh/registered"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_T = TypeVar("_T")
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
#: Labels that Karpenter gives to nodes of every pool.
_OF_EVERY_POOL: Final = frozenset({keys.NODE_POOL, INITIALIZED, REGISTERED})
#: Taints of a node that is starting: they are expected to go.
_EPHEMERAL: Final = frozenset({
    ("node.kubernetes.io/not-ready", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"), ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    ("karpenter.sh/unregistered", "NoExecute"),
})  # fmt: skip


def is_evicted(pod: Pod) -> bool:
    """Return False for a pod that belongs to its node: of a DaemonSet, or static."""
    return not is_owned_by(pod, "DaemonSet") and not is_owned_by(pod, "Node")


def is_reschedulable(pod: Pod) -> bool:
    """Return True for a pod that needs a place if its node goes."""
    leaving = pod.metadata.deletion_timestamp is not None and is_owned_by(pod, "StatefulSet")
    return (is_active(pod) or leaving) and is_evicted(pod)


def needs_of(pod: Pod) -> dict[str, int]:
    """Return the requests of a pod, and one of the pods that a node may run."""
    return {**PodInfo(pod).requests, "pods": 1}


def known_by_claim(node: Node | None, claim: Mapping[str, Any]) -> Node:
    """Return a node that Karpenter launched as its NodeClaim completes it until it is initialized; None: it is not there yet.

    Source  karpenter, pkg/controllers/state/statenode.go
    """
    meta, spec, status = (part(claim, name) for name in ("metadata", "spec", "status"))
    made = node or Node(metadata=ObjectMeta(name=str(meta.get("name", ""))))
    labels, taints, told = made.labels, made.spec.taints, made.status
    if labels.get(INITIALIZED) == "true":
        return made
    if labels.get(REGISTERED) != "true":
        labels, taints = dict(part(meta, "labels")), _taints(spec, "taints")
    told = told.replace(**{
        name: {**part(status, name), **{key: held for key, held in getattr(told, name).items() if amount(key, held)}}
        for name in ("allocatable", "capacity")
    })  # fmt: skip
    starting = {(taint.key, taint.effect) for taint in _taints(spec, "startupTaints")}
    taints = tuple(taint for taint in taints if (taint.key, taint.effect) not in starting)
    return made.replace(metadata=made.metadata.replace(labels=labels), spec=made.spec.replace(taints=taints), status=told)


def eviction_cost(pod: Pod) -> float:
    """Return what the eviction of a pod counts: 1 for most, -10 to 10."""
    cost = 1.0
    with suppress(ValueError):  # upstream logs it and goes on
        cost += float(pod.metadata.annotations.get(_DELETION_COST, "0")) / 2**27
    return min(max(cost + (pod.spec.priority or 0) / 2**25, -10.0), 10.0)


class ExistingNode:
    """A node that exists or is coming, and the pods on it.

    ``leaving``: it is being deleted, and takes no pods; ``nominated``: pods are expected on it. What follows from the node and
    its pods alone is computed once, so one that did not change serves the next scene, too.
    """

    def __init__(
        self, node: Node, pods: Sequence[Pod], *, leaving: bool = False, coming: bool = False, nominated: bool = False
    ) -> None:
        self.node, self.pods, self.name, self.labels = node, pods, node.name, node.metadata.labels
        self.leaving, self.coming, self.nominated = leaving, coming, nominated
        self.managed = keys.NODE_POOL in self.labels
        self.ready = any(held.type == "Ready" and held.status == "True" for held in node.status.conditions)
        self.initialized = not self.managed or self.labels.get(INITIALIZED) == "true"
        self.pool = self.labels.get(keys.NODE_POOL, "")
        self.host = self.labels.get(keys.HOSTNAME) or self.name
        taints = node.spec.taints
        if node.spec.unschedulable and not any(taint.key == "node.kubernetes.io/unschedulable" for taint in taints):
            taints = (*taints, Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"))
        if not self.initialized:
            taints = tuple(
                taint for taint in taints
                if (taint.key, taint.effect) not in _EPHEMERAL and not taint.key.startswith("readiness.k8s.io/")
            )  # fmt: skip
        self.taints = taints
        self.ports = frozenset[HostPort]().union(*(PodInfo(pod).host_ports for pod in pods))

        #: Remembered by those who judge the node: what it was computed from, and the result.
        self.memo: dict[Hashable, tuple[Any, Any]] = {}

    @cached_property
    def requirements(self) -> dict[str, keys.KeyRequirement]:
        return keys.merged(keys.of_labels(self.labels), {keys.HOSTNAME: keys.one(keys.HOSTNAME, "In", (self.host,))})

    @cached_property
    def reschedulable(self) -> tuple[Pod, ...]:
        """The pods that need a place if the node goes."""
        return tuple(pod for pod in self.pods if is_reschedulable(pod))

    @cached_property
    def disturbance(self) -> float:
        """What the eviction of all its pods costs."""
        return 1.0 + sum(max(0.0, eviction_cost(pod)) for pod in self.reschedulable)

    @cached_property
    def resources(self) -> frozenset[str]:
        """The resources that its pods request."""
        return frozenset(name for pod in self.pods for name in PodInfo(pod).requests)

    def remembered(self, name: Hashable, key: Any, make: Callable[[], _T]) -> _T:
        """Return what was made from ``key`` before, or make it."""
        known = self.memo.get(name)
        if known is None or known[0] != key:
            known = self.memo[name] = key, make()
        found: _T = known[1]
        return found


@dataclass(eq=False)
class Template:
    """What a pool can launch: its types, and what daemons take on each of them.

    ``told``  Karpenter's event if no type is left
    """

    pool: ProvisioningPool
    rows: Ints
    overhead: Ints
    ports: list[frozenset[HostPort]]
    told: str = ""


@dataclass(eq=False)
class PoolCluster:
    """All that a simulation reads, with tables over nodes and types. Amounts are in the scheduler's units."""

    nodes: Sequence[ExistingNode]
    pools: Sequence[ProvisioningPool]
    prices: PriceList
    daemons: Sequence[Pod] = ()
    claims: Mapping[tuple[str, str], PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    pending: Sequence[Pod] = ()
    #: What pods ask for, by UID: remembered by simulations, also of the next scene if it gets it.
    asked: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = sorted(self.nodes, key=lambda held: (not held.initialized, held.name))
        self.row_of = {held.name: row for row, held in enumerate(self.nodes)}
        self.leaving = frozenset(held.name for held in self.nodes if held.leaving)
        #: The pods of nodes that are being deleted: they need a place like pending ones.
        self.displaced = [pod for held in self.nodes if held.leaving for pod in held.pods if is_reschedulable(pod)]
        self.remembered = Remembered()

    @cached_property
    def resources(self) -> list[str]:
        """The resources that are counted: those of types, nodes and pods."""
        asked = (PodInfo(pod).requests for pod in (*self.pending, *self.daemons))
        offered, used = (held.capacity for held in self.prices.types), (held.resources for held in self.nodes)
        return sorted({"cpu", "memory", "pods"}.union(*offered, *asked, *used))

    def vector(self, amounts: Mapping[str, int]) -> Ints:
        """Return amounts in the order of ``resources``."""
        return np.array([amounts.get(name, 0) for name in self.resources], dtype=np.int64)

    @cached_property
    def free(self) -> Ints:
        """What pods can still take, a row for each node, less what daemons that do not run yet will need."""
        terms = [pod.spec.affinity for pod in self._daemons_of_types[1]]
        key = self.resources, [pod.metadata.uid for pod in self.daemons], terms, bool(self.templates)
        rows: Ints = np.array([held.remembered("free", key, partial(self._free, held)) for held in self.nodes], dtype=np.int64)
        return rows.reshape(len(self.nodes), len(self.resources))

    def _free(self, held: ExistingNode) -> Ints:
        given = held.node.status.allocatable or held.node.status.capacity
        left = self.vector({name: amount(name, text) for name, text in given.items()})
        running, wanted = self.vector({}), self.vector({})
        for pod in held.pods:
            if pod.status.phase not in ENDED_PHASES:
                needs = self.vector(needs_of(pod))
                left -= needs
                running += needs if is_owned_by(pod, "DaemonSet") else 0
        known = keys.of_labels(held.labels)
        for pod in self._daemons_of_types[1]:
            if find_untolerated(held.taints, pod.spec.tolerations) is None and keys.is_compatible(
                known, keys.of_pod(pod.spec, strict=True)
            ):
                wanted += self.vector(needs_of(pod))
        missing: Ints = np.maximum(wanted - running, 0)
        return left - missing

    @cached_property
    def allocatable(self) -> Ints:
        """What pods can use, a row for each type."""
        return np.array([self.vector(held.allocatable) for held in self.prices.types]).reshape(-1, len(self.resources))

    @cached_property
    def templates(self) -> list[Template]:
        """The pools that can launch nodes, in the order in which they are tried; those that cannot have ``told``."""
        return self._daemons_of_types[0]

    @cached_property
    def _daemons_of_types(self) -> tuple[list[Template], list[Pod]]:
        """The templates, and the pods of DaemonSets as they are after all types were asked about.

        Karpenter asks about one type after the other with the same pods, and what it drops for a type stays dropped: taints
        that are only preferences do not matter any more, and of several required terms those go that did not fit a type.

        Source  karpenter, pkg/controllers/provisioning/scheduling/scheduler.go, isDaemonPodCompatible
        """
        daemons = list(self.daemons)
        return [self._template(pool, daemons) for pool in self.pools if not pool.static and pool.ready], daemons

    def _template(self, pool: ProvisioningPool, daemons: list[Pod]) -> Template:
        fits, offered = self.fitting(pool.requirements)
        rows = np.flatnonzero(fits & offered)
        types = [self.prices.types[row] for row in rows]
        told = "" if types else "NodePool requirements filtered out all compatible available instance types"
        if types and missing_min_values(types, pool.requirements)[1]:
            told = "NodePool requirements filtered out all compatible available instance types due to minValues incompatibility"
        overhead = np.zeros_like(self.allocatable)
        ports: list[frozenset[HostPort]] = [frozenset()] * len(self.prices.types)
        for row, held in zip(rows, types, strict=True) if not told else ():
            for at, daemon in enumerate(daemons):
                runs, daemons[at] = self._runs(daemon, pool, held)
                if runs:
                    overhead[row] += self.vector(needs_of(daemon))
                    ports[row] |= PodInfo(daemon).host_ports
        return Template(pool, rows, overhead, ports, told)

    def _runs(self, daemon: Pod, pool: ProvisioningPool, held: InstanceType) -> tuple[bool, Pod]:
        """Return whether a DaemonSet's pod would run on a type of a pool, and the pod as it is left for the next type."""
        pod = (keys.tolerating_preferences(daemon) or (daemon, ""))[0]
        if find_untolerated(pool.taints, pod.spec.tolerations) is not None:
            return False, pod
        while True:
            asked = keys.of_pod(pod.spec, strict=True)
            own = keys.is_compatible(pool.requirements, asked, self.prices.well_known)
            if own and not keys.first_clash(held.requirements, asked):
                return True, pod
            left = keys.without_first_term(pod)
            if left is None:
                return False, pod
            pod = left[0]

    def remaining(self, pool: ProvisioningPool, without: Collection[str] = ()) -> dict[str, int]:
        """Return what a pool's limits leave beside its nodes."""
        left = dict(pool.limits or {})
        for held in self.nodes:
            if held.pool == pool.name and held.name not in without:
                for name in left:
                    given = held.node.status.capacity.get(name, "0")
                    left[name] -= 1 if name == "nodes" else amount(name, given)
        return left

    def taking(self, tolerations: tuple[Toleration, ...], key: Hashable, asked: keys.Requirements) -> Bools:
        """Return the nodes whose taints a pod tolerates, and that meet requirements; ``key`` stands for these."""
        found: Bools = self.remembered.of((tolerations, key), lambda: np.array([
            find_untolerated(held.taints, tolerations) is None and keys.is_compatible(held.requirements, asked)
            for held in self.nodes
        ], dtype=np.bool_))  # fmt: skip
        return found

    def fitting(self, asked: keys.Requirements) -> tuple[Bools, Bools]:
        """Return the types that meet requirements, and the types with an available offering that does."""
        key = frozenset(held for held in asked.values() if held.key != keys.HOSTNAME)
        return self.prices.remembered.of(key, lambda: self._fitting(key))

    def _fitting(self, asked: frozenset[keys.KeyRequirement]) -> tuple[Bools, Bools]:
        types, undefined = self.prices.types, self.prices.well_known
        plain = {held.key: held for held in asked}
        return (
            np.array([keys.first_clash(held.requirements, plain) is None for held in types], dtype=np.bool_),
            np.array(
                [any(keys.is_compatible(plain, of.requirements, undefined) for of in held.available) for held in types],
                dtype=np.bool_,
            ),
        )

    @cached_property
    def domains(self) -> dict[str, dict[str, list[tuple[Taint, ...]]]]:
        """Label → value → the sets of taints with which pools offer it.

        Source  karpenter, pkg/controllers/provisioning/scheduling/topology.go, buildDomainGroups
        """
        found: dict[str, dict[str, list[tuple[Taint, ...]]]] = {}
        for pool in self.pools:
            if pool.static or not pool.ready:
                continue
            own = {key: held for key, held in pool.requirements.items() if key not in _OF_EVERY_POOL}
            offered = [keys.merged(own, held.requirements).items() for held in self.prices.types if held.is_for(pool.name)]
            for key, asked in chain(*offered, ((key, asked) for key, asked in own.items() if asked.operator == "In")):
                for value in asked.values if key not in _OF_EVERY_POOL else ():
                    _offer(found.setdefault(key, {}), value, pool.taints)
        return found

    def volume_alternatives(self, pod: Pod) -> list[dict[str, keys.KeyRequirement]]:
        """Return the combinations of requirements that a pod's volumes allow; none if they require nothing.

        Source  karpenter, pkg/controllers/provisioning/scheduling/volumetopology.go
        """
        found: list[dict[str, keys.KeyRequirement]] = [{}]
        for use in claims_used(pod):
            claim = self.claims.get((pod.namespace, use.name))
            terms = [] if claim is None else self._terms(claim)
            if terms:
                pairs = [(held, term) for held in found for term in terms]
                # Where no combination goes together, upstream keeps them all, and the pod fits nowhere.
                alike = [(held, term) for held, term in pairs if keys.first_clash(held, term) is None]
                found = [keys.merged(held, term) for held, term in alike or pairs]
        return [] if found == [{}] else found

    def _terms(self, claim: PersistentVolumeClaim) -> list[dict[str, keys.KeyRequirement]]:
        volume = self.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            required = volume.required_affinity
            local = volume.spec.local is not None or volume.spec.host_path is not None
            found = []
            for term in () if required is None else required.node_selector_terms:
                asked = [held for held in term.match_expressions if not (local and held.key == keys.HOSTNAME)]
                if asked or (local and term.match_expressions):
                    found.append(keys.of_expressions(asked))
            return found
        class_ = self.classes.get(claim.spec.storage_class_name or "")
        if claim.spec.volume_name or class_ is None:
            return []
        return [
            keys.merged({}, {asked.key: keys.one(asked.key, "In", asked.values) for asked in term.match_label_expressions})
            for term in class_.allowed_topologies if term.match_label_expressions
        ]  # fmt: skip


def _offer(known: dict[str, list[tuple[Taint, ...]]], value: str, taints: tuple[Taint, ...]) -> None:
    """Add the taints with which a value is offered; without taints, others do not matter."""
    if value not in known or not taints:
        known[value] = [taints]
    elif known[value][0]:
        known[value].append(taints)


def daemons_of(sets: Iterable[DaemonSet]) -> list[Pod]:
    """Return a pod of each DaemonSet, as its template says: what it limits and does not request, it requests."""
    return [default_pod(daemon_of(one_)) for one_ in sets]
