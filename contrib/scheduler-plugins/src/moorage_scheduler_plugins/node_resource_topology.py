"""NodeResourceTopologyMatch: keep pods off nodes where no NUMA zone has room for what they request.

The kind NodeResourceTopology, which an agent on each node writes, says what each NUMA zone of a node has left, and how the
topology manager of kubelet is configured. With the policy ``single-numa-node`` each container, or the pod as a whole, must fit
one zone.

The cache modes of upstream ease the delay between a binding and the agent's next report. This plugin counts a pod that it
placed against every zone of the node until a newer report (``cacheResyncPeriodSeconds`` above 0), or leaves such a node out
until the pod is bound (``discardReservedNodes``).

Source  scheduler-plugins 903da7df82cb, pkg/noderesourcetopology
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Final, Literal

from moorage.api.core import Container
from moorage.api.custom_objects import CustomObject
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import Value
from moorage.api.quantity import milli_value
from moorage.errors import Fault
from moorage.framework import points
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.handle import Handle
from moorage.framework.verdicts import Hold
from moorage.state.view import NodeInfo, PodInfo, Snapshot
from moorage_scheduler_plugins.earlier_args import EarlierArgs
from moorage_scheduler_plugins.quality import qos_of
from moorage_scheduler_plugins.scaling import MOST

TOPOLOGIES: Final = "noderesourcetopologies.v1alpha2.topology.node.k8s.io"
_ZONE: Final = re.compile(r"node-(\d+)")
_MOST_ZONES: Final = 64
_FARTHEST: Final = 255
_USUAL_ZONES: Final = 8
_LIMIT_OF_ZONES: Final = 1024
_SINGLE: Final = "single-numa-node"

#: Resource → amount in thousandths.
Amounts = Mapping[str, int]


class ResourceWeight(Value):
    name: str = ""
    weight: int = 1


class ScoringStrategy(Value):
    type: Literal["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"] = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = ()


class TopologyCache(Value):
    foreign_pods_detect: Literal["None", "All", "OnlyExclusiveResources"] = "All"
    resync_method: Literal["Autodetect", "All", "OnlyExclusiveResources"] = "Autodetect"
    informer_mode: Literal["Shared", "Dedicated"] = "Dedicated"
    resync_scope: Literal["All", "OnlyResources"] = "All"


class TopologyMatchArgs(EarlierArgs, frozen=True):
    scoring_strategy: ScoringStrategy = ScoringStrategy()
    cache_resync_period_seconds: int = 0
    discard_reserved_nodes: bool = False
    cache: TopologyCache = TopologyCache()
    preemption_mode: Literal["Disabled", "Enabled"] = "Disabled"
    namespaces: tuple[str, ...] = ()  # of earlier releases

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return [
            Fault("Invalid value", f"{path}.scoringStrategy.resources[{at}].weight", "must not be negative", one.weight)
            for at, one in enumerate(self.scoring_strategy.resources)
            if one.weight < 0
        ]


@dataclass(slots=True)
class Zone:
    """A NUMA zone: its number, what is left of each resource, and the distance to each zone by number."""

    number: int
    left: dict[str, int]
    costs: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Manager:
    """How kubelet's topology manager of a node is configured."""

    policy: str = "none"
    scope: str = "container"
    most_zones: int = _USUAL_ZONES


class NodeResourceTopologyMatch(
    points.PreFilterPlugin[PodInfo], points.FilterNodePlugin[PodInfo],
    points.ScoreNodePlugin[PodInfo], points.ReservePlugin[Any], points.PostBindPlugin[Any],
    points.EnqueueExtensions, points.Attachable,
):  # fmt: skip
    name = "NodeResourceTopologyMatch"
    Args = TopologyMatchArgs

    def __init__(self, args: TopologyMatchArgs | None = None) -> None:
        self._args = args or TopologyMatchArgs()
        strategy = self._args.scoring_strategy
        self._weights = {one.name: max(one.weight, 1) for one in strategy.resources}
        self._strategy = strategy.type
        self._handle: Handle | None = None
        #: Node → UID → what the pods request that came since the last report, and the version of that report.
        self._reserved: dict[str, dict[str, tuple[Amounts, str]]] = {}

    def attach(self, handle: Handle) -> None:
        self._handle = handle

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE))
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE))
        yield Wake(ClusterEvent(TOPOLOGIES, Action.ADD | Action.UPDATE))

    # -- reports ------------------------------------------------------------------------------------------------------

    def _report(self, node: str) -> CustomObject | None:
        return None if self._handle is None else self._handle.snapshot.custom(TOPOLOGIES).get(node)

    def _zones(self, node: str, report: CustomObject) -> list[Zone]:
        zones = zones_of(report)
        if self._args.cache_resync_period_seconds > 0 and not self._args.discard_reserved_nodes:
            reserved = self._reserved.get(node, {})
            version = report.metadata.resource_version
            for uid in [uid for uid, (_, seen) in reserved.items() if seen != version]:
                del reserved[uid]  # the agent has reported since
            for amounts, _ in reserved.values():
                for zone in zones:
                    for name, amount in amounts.items():
                        if name in zone.left:
                            zone.left[name] -= amount
        return zones

    def reserve(self, state: Any, pod: PodInfo, node: str) -> None:
        report = self._report(node)
        if report is not None:
            amounts = {name: amount for name, amount in effective(pod).items() if _is_exclusive(pod, name)}
            self._reserved.setdefault(node, {})[pod.uid] = amounts, report.metadata.resource_version

    def unreserve(self, state: Any, pod: PodInfo, node: str) -> None:
        self._reserved.get(node, {}).pop(pod.uid, None)

    def post_bind(self, state: Any, pod: PodInfo, node: str) -> None:
        if self._args.discard_reserved_nodes:
            self._reserved.get(node, {}).pop(pod.uid, None)

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PodInfo:
        return pod  # configurations enable the point

    # -- Filter -------------------------------------------------------------------------------------------------------

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        if qos_of(pod) == "BestEffort" and not _asks_for_devices(pod):
            return None
        if self._args.discard_reserved_nodes and self._reserved.get(node.name):
            return Hold.because("invalid node topology data")
        report = self._report(node.name)
        if report is None:
            return None
        manager = manager_of(report)
        if manager.policy != _SINGLE:
            return None
        zones = self._zones(node.name, report)
        if manager.scope == "pod":
            fits = suitable_zone(zones, node, pod, effective(pod)) is not None
            return None if fits else Hold.because("cannot align pod")
        for container in pod.spec.init_containers:  # they run before the others, one after another
            if suitable_zone(zones, node, pod, amounts_of(container)) is None:
                kind = "sidecar" if container.restart_policy == "Always" else "init"
                return Hold.because(f"cannot align {kind} container")
        for container in pod.spec.containers:
            wanted = amounts_of(container)
            zone = suitable_zone(zones, node, pod, wanted)
            if zone is None:
                return Hold.because("cannot align container")
            _take(zone, pod, wanted)
        return None

    # -- Score --------------------------------------------------------------------------------------------------------

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        if qos_of(pod) != "Guaranteed":
            return MOST
        report = self._report(node.name)
        if report is None or (self._args.discard_reserved_nodes and self._reserved.get(node.name)):
            return 0
        manager, zones = manager_of(report), self._zones(node.name, report)
        if self._strategy == "LeastNUMANodes":
            return least_zones(zones, pod, manager)
        if manager.policy != _SINGLE:
            return 0
        rate = partial(_RATES[self._strategy], weights=self._weights)
        if manager.scope == "pod":
            return _over_zones(zones, effective(pod), rate)
        every = [*pod.spec.init_containers, *pod.spec.containers]
        return sum(_over_zones(zones, amounts_of(one), rate) for one in every) // len(every) if every else 0


# -- reports of nodes ---------------------------------------------------------------------------------------------------------


def zones_of(report: CustomObject) -> list[Zone]:
    """Return the NUMA zones of a node, in the order of the report."""
    found = []
    for zone in report.get("zones", default=[]) or []:
        number = _number(zone.get("name", ""))
        if zone.get("type") == "Node" and number is not None:
            left = {one["name"]: milli_value(one.get("available", 0)) for one in zone.get("resources") or ()}
            costs = {at: int(one["value"]) for one in zone.get("costs") or () if (at := _number(one["name"])) is not None}
            found.append(Zone(number, left, costs))
    return found


def _number(name: str) -> int | None:
    parts = _ZONE.fullmatch(name)
    return int(parts[1]) if parts is not None and int(parts[1]) <= _MOST_ZONES else None


def manager_of(report: CustomObject) -> Manager:
    """Return the configuration of the topology manager, from the attributes, or else from the policies of earlier agents."""
    policy, scope, most = "none", "container", _USUAL_ZONES
    old = report.get("topologyPolicies", default=[]) or []
    if old and (parts := re.fullmatch(r"(SingleNUMANode|BestEffort|Restricted)(Pod|Container)Level", old[0])) is not None:
        policy = {"SingleNUMANode": _SINGLE, "BestEffort": "best-effort", "Restricted": "restricted"}[parts[1]]
        scope = parts[2].lower()
    for one in report.get("attributes", default=[]) or []:
        name, given = one.get("name"), str(one.get("value", ""))
        if name == "topologyManagerScope" and given in {"container", "pod"}:
            scope = given
        elif name == "topologyManagerPolicy" and given in {"none", "best-effort", "restricted", _SINGLE}:
            policy = given
        elif name == "topologyManagerMaxNUMANodes" and given.isascii() and given.isdigit() and int(given) > 1:
            most = min(int(given), _LIMIT_OF_ZONES)
    return Manager(policy, scope, most)


# -- requests of pods ---------------------------------------------------------------------------------------------------------


def amounts_of(container: Container) -> dict[str, int]:
    """Return what a container requests, in thousandths."""
    return {name: milli_value(amount) for name, amount in container.resources.requests.items()}


def effective(pod: PodInfo) -> dict[str, int]:
    """Return what a pod requests: its containers together, and at least what each init container does."""
    sums: dict[str, int] = {}
    for container in pod.spec.containers:
        for name, amount in amounts_of(container).items():
            sums[name] = sums.get(name, 0) + amount
    for container in pod.spec.init_containers:
        for name, amount in amounts_of(container).items():
            sums[name] = max(sums.get(name, 0), amount)
    return sums


def _is_native(name: str) -> bool:
    return "/" not in name or name.partition("/")[0].endswith("kubernetes.io")


def _asks_for_devices(pod: PodInfo) -> bool:
    every = [*pod.spec.containers, *pod.spec.init_containers]
    return any(not _is_native(name) for one in every for name in one.resources.requests)


def _has_affinity(name: str) -> bool:
    """Return whether a resource is bound to zones in any case. Devices may be, which their reports show."""
    return name in {"cpu", "memory"} or name.startswith("hugepages-")


def _is_exclusive(pod: PodInfo, name: str) -> bool:
    return qos_of(pod) == "Guaranteed" or not _has_affinity(name)


# -- fitting ------------------------------------------------------------------------------------------------------------------


def _suits(pod_class: str, name: str, wanted: int, left: int) -> bool:
    return (pod_class != "Guaranteed" and _has_affinity(name)) or left >= wanted


def suitable_zone(zones: Sequence[Zone], node: NodeInfo, pod: PodInfo, wanted: Amounts) -> Zone | None:
    """Return the zone that kubelet would choose, the lowest that has room for all; None if there is none."""
    suitable, pod_class = [*zones], qos_of(pod)
    for name, amount in wanted.items():
        if not amount:
            continue
        if name not in node.node.status.allocatable:
            return None
        having = [zone for zone in zones if name in zone.left]
        if not having and (name in {"ephemeral-storage", "storage"} or not _is_native(name)):
            continue  # the node has it, and no zone is nearer to it than others
        suitable = [zone for zone in suitable if name in zone.left and _suits(pod_class, name, amount, zone.left[name])]
    return min(suitable, key=lambda zone: zone.number, default=None)


def _take(zone: Zone, pod: PodInfo, wanted: Amounts) -> None:
    for name, amount in wanted.items():
        if name in zone.left and (qos_of(pod) == "Guaranteed" or not _has_affinity(name)):
            zone.left[name] -= amount


# -- scoring ------------------------------------------------------------------------------------------------------------------


def _whole(amount: int) -> int:
    return -(-amount // 1000)


def _least_allocated(wanted: int, left: int) -> int:
    return 0 if not left or wanted > left else (_whole(left) - _whole(wanted)) * MOST // _whole(left)


def _most_allocated(wanted: int, left: int) -> int:
    return 0 if not left or wanted > left else _whole(wanted) * MOST // _whole(left)


def _weighted(rate: Any, wanted: Amounts, left: Amounts, *, weights: Mapping[str, int]) -> int:
    score = sum(rate(amount, left.get(name, 0)) * weights.get(name, 1) for name, amount in wanted.items())
    total = sum(weights.get(name, 1) for name in wanted)
    return score // total if total else 0


def _balanced(wanted: Amounts, left: Amounts, *, weights: Mapping[str, int]) -> int:
    shares = [_whole(amount) / _whole(left[name]) if left.get(name, 0) > 0 else 1.0 for name, amount in wanted.items()]
    if any(share > 1 for share in shares):
        return 0
    if len(shares) < 2:  # the sample variance of one value is undefined, which Go turns into the least integer
        return 0
    mean = sum(shares) / len(shares)
    return int((1 - sum((share - mean) ** 2 for share in shares) / (len(shares) - 1)) * MOST)


_RATES: Final[Mapping[str, Any]] = {
    "LeastAllocated": partial(_weighted, _least_allocated),
    "MostAllocated": partial(_weighted, _most_allocated),
    "BalancedAllocation": _balanced,
}


def _over_zones(zones: Iterable[Zone], wanted: Amounts, rate: Any) -> int:
    """Return the least score of a zone other than 0; 0 if all have that, as the kubelet takes none of them."""
    return min((score for zone in zones if (score := rate(wanted, zone.left))), default=0)


def least_zones(zones: Sequence[Zone], pod: PodInfo, manager: Manager) -> int:
    """Score a node by how few zones the pod needs, and whether these are as near to each other as zones can be."""
    if manager.scope == "pod":
        parts = [effective(pod)]
    else:
        parts = [amounts_of(one) for one in (*pod.spec.init_containers, *pod.spec.containers)]
    most, always_near = 0, True
    for wanted in parts:
        if not any(name in zone.left for name in wanted for zone in zones):
            continue
        found = _fewest(zones, wanted)
        if found is None:
            return 0
        used, is_near = found
        most, always_near = max(most, len(used)), always_near and is_near
        for name, amount in wanted.items():
            rest = amount
            for zone in used:
                taken = min(rest, zone.left.get(name, 0))
                if name in zone.left:
                    zone.left[name] -= taken
                    rest -= taken
    if not most:
        return MOST
    step = MOST // manager.most_zones
    return MOST - most * step + (step // 2 if always_near else 0)


def _fewest(zones: Sequence[Zone], wanted: Amounts) -> tuple[tuple[Zone, ...], bool] | None:
    """Return the fewest zones that have what is wanted together, and whether no other choice of as many is nearer."""
    for count in range(1, len(zones) + 1):
        groups = list(combinations(zones, count))
        nearest = min(map(_distance, groups))
        fitting = [
            group
            for group in groups
            if all(name in zone.left for zone in group for name in wanted)
            and all(sum(zone.left[name] for zone in group) >= amount for name, amount in wanted.items() if amount)
        ]
        if fitting:
            best = min(fitting, key=_distance)
            return best, _distance(best) == nearest
    return None


def _distance(group: Sequence[Zone]) -> float:
    every = [one.costs.get(other.number, _FARTHEST) for one in group for other in group]
    return sum(every) / len(every)
