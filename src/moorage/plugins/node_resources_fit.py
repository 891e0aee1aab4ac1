"""NodeResourcesFit: reject nodes with too few free resources for the pod; score nodes by how full they are.

Reads     requests of containers, init containers, sidecars, the pod as a whole, and overhead; the nodes' allocatable and
          requested resources and their numbers of pods
Rejects   nodes with too little left of a resource, or with the maximum number of pods; preemption may help, unless the pod
          would not fit on the empty node
Scores    by the configured strategy: LeastAllocated, MostAllocated or RequestedToCapacityRatio; placements by MostAllocated
Wakes on  a node added or with more allocatable; a placed pod deleted or requesting less; the pod itself requesting less; a
          device class that backs a resource the pod requests
Source    kube-scheduler 1.36, plugins/noderesources/fit.go

Two details look like mistakes but match kube-scheduler: scoring counts only the requests of the containers, not pod-level
requests; and a resource listed twice in the strategy counts twice. One detail differs: kube-scheduler does not wake a pod for a
changed node that lacks an ignored resource; Moorage ignores the resource there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.core import Node
from moorage.api.devices import DeviceClass
from moorage.api.feature_gates import FeatureGates
from moorage.api.names import check_qualified_name, is_extended_resource_name
from moorage.api.pod_requests import PodRequests, RequestOptions, amount
from moorage.errors import Fault
from moorage.framework import points
from moorage.framework.answer_forms import Share
from moorage.framework.args import PluginArgs
from moorage.framework.changes import Detail, RefusingPlugin, Remedies, ShortfallPlugin, TermsPlugin
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.placements import GroupInfo, Proposal
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Hold, Reject
from moorage.plugins.resources import scoring_strategies
from moorage.plugins.resources.device_backed_scores import (
    DeviceBackedDemands,
    ScoredDemands,
    backs,
    device_class_for,
    with_devices,
)
from moorage.plugins.resources.fit_reasons import missing_share, short_resources, why_short
from moorage.plugins.resources.fit_remedies import remedies_of_full_node, remedies_of_ignoring, remedies_of_shortage
from moorage.plugins.resources.whole_scores import UsageRuleMaker, Wants, Weighs
from moorage.state.view import BoolArray, IntArray, NodeInfo, NodeView, PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word: people search their events for them.
TOO_MANY_PODS = "Too many pods"
INSUFFICIENT = "Insufficient {}"

#: A pending pod runs nowhere, so resources in its status do not count.
_FIT = RequestOptions(use_status=False)
_FIT_WITHOUT_POD_LEVEL = RequestOptions(use_status=False, pod_level=False)
_SCORED = _FIT_WITHOUT_POD_LEVEL
#: For queueing hints, both pods count as they would on a node.
_WOKEN = RequestOptions()
_WOKEN_WITHOUT_POD_LEVEL_STATUS = RequestOptions(pod_level_status=False)

#: The resources that are compared first.
ALWAYS_COMPARED: Final = ("cpu", "memory", "ephemeral-storage")


class RequestedResource(NamedTuple):
    """A resource the pod requests. ``by_device``: on a node without it, DynamicResources decides the request."""

    resource: str
    amount: int
    by_device: bool = False


class NodeResourcesFitArgs(PluginArgs, frozen=True):
    """Which resources to ignore, by name or by group (the part before the slash); and how to score."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: scoring_strategies.ScoringStrategy = scoring_strategies.ScoringStrategy(
        type=scoring_strategies.LEAST_ALLOCATED, resources=scoring_strategies.CPU_AND_MEMORY
    )

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        faults = ignored_faults(self.ignored_resources, self.ignored_resource_groups, path)
        return faults + self.scoring_strategy.faults(scoring_strategies.sub_path(path, "scoringStrategy"))


def ignored_faults(names: Sequence[str], groups: Sequence[str], path: str) -> list[Fault]:
    """Return the validation errors of the resources to ignore; ``path`` is the path of the arguments."""
    faults: list[Fault] = []
    for i, name in enumerate(names):
        where = scoring_strategies.sub_path(path, f"ignoredResources[{i}]")
        faults += [Fault("Invalid value", where, fault, name) for fault in check_qualified_name(name)]
    for i, group in enumerate(groups):
        where = scoring_strategies.sub_path(path, f"ignoredResourceGroups[{i}]")
        if "/" in group:
            faults.append(Fault("Invalid value", where, "resource group name can't contain '/'", group))
        faults += [Fault("Invalid value", where, fault, group) for fault in check_qualified_name(group)]
    return faults


class NodeResourcesFit(
    RefusingPlugin[tuple[RequestedResource, ...]],
    TermsPlugin[tuple[RequestedResource, ...]],
    ShortfallPlugin[tuple[RequestedResource, ...]],
    points.PreFilterPlugin[tuple[RequestedResource, ...]],
    points.FilterNodePlugin[tuple[RequestedResource, ...]],
    points.PreScorePlugin[ScoredDemands],
    points.ScorePlugin[ScoredDemands],
    points.ScoreNodePlugin[ScoredDemands],
    points.PlacementScorePlugin,
    points.Attachable,
):
    name = "NodeResourcesFit"
    Args = NodeResourcesFitArgs

    def __init__(self, args: NodeResourcesFitArgs | None = None) -> None:
        args = args or NodeResourcesFitArgs()
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._resources = args.scoring_strategy.resources
        self._kind = scoring_strategies.kind_of(args.scoring_strategy)
        self._score = scoring_strategies.scorer_of(args.scoring_strategy)
        self._score_one = scoring_strategies.one_row_scorer_of(args.scoring_strategy)
        self._handle: Handle | None = None
        self._open(FeatureGates())

    def attach(self, handle: Handle) -> None:
        self._handle = handle
        self._open(handle.gates)

    def _open(self, gates: FeatureGates) -> None:
        self._gates = gates
        self._options = _FIT if gates["PodLevelResources"] else _FIT_WITHOUT_POD_LEVEL

    @property
    def _snapshot(self) -> Snapshot | None:
        return None if self._handle is None else self._handle.snapshot

    # -- the pod's requests -----------------------------------------------------------------------------------------------

    def _needs(self, pod: PodInfo) -> PodRequests:
        return pod.needs_under(self._options)

    def _wants(self, pod: PodInfo, snapshot: Snapshot | None) -> tuple[RequestedResource, ...]:
        needs = self._needs(pod)
        wants = [RequestedResource(name, needs.requests[name]) for name in ALWAYS_COMPARED if needs.requests.get(name)]
        for name, count in sorted(needs.requests.items()) if len(needs.requests) > len(wants) else ():
            if count and name not in ALWAYS_COMPARED and not self._is_ignored(name):
                wants.append(RequestedResource(name, count, self._by_device(name, snapshot)))
        return tuple(wants)

    def _is_ignored(self, resource: str) -> bool:
        if not self._ignored and not self._ignored_groups:
            return False
        if resource not in self._ignored and resource.partition("/")[0] not in self._ignored_groups:
            return False
        return is_extended_resource_name(resource)

    def _by_device(self, resource: str, snapshot: Snapshot | None) -> bool:
        if snapshot is None or not self._gates["DRAExtendedResource"]:
            return False
        return device_class_for(resource, snapshot) is not None

    @property
    def reuse(self) -> points.Reuse:
        share = (
            Share(UsageRuleMaker, self._share) if type(self) is NodeResourcesFit else None
        )  # earlier releases judge otherwise
        return points.Reuse(points.Scope.USAGE, self._signature, signature_reads=(DeviceClass,), share=share)

    def _share(self, point: str, weight: int) -> Wants | Weighs | None:
        """Return this plugin's part in the rule of CPU, memory and the number of pods."""
        if point == "filter":
            return Wants(self._needs, self._is_ignored)
        return None if self._kind is None else Weighs(self._kind, _amounts_to_score, weight)

    def _signature(self, pod: PodInfo) -> points.Signature | None:
        needs = self._needs(pod)
        for name, count in needs.requests.items():
            if count and name not in ALWAYS_COMPARED and self._by_device(name, self._snapshot):
                return None
        scored = pod.needs_under(_SCORED)
        if scored is needs:
            return {"requests": needs.key, "requests with defaults": (needs.nonzero_cpu, needs.nonzero_memory)}
        return {"requests": needs.key, "requests to score": (scored.key, scored.nonzero_cpu, scored.nonzero_memory)}

    # -- Filter -----------------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[RequestedResource, ...] | Hold:
        return self._wants(pod, snapshot)

    def filter(self, wants: tuple[RequestedResource, ...], nodes: NodeView) -> Iterator[Reject]:
        full: BoolArray = nodes.pod_count >= nodes.allowed_pods
        if np.count_nonzero(full):  # several times faster than any()
            yield Reject(full, TOO_MANY_PODS)
        for resource, count, by_device in wants:
            lacking: BoolArray = nodes.allocatable(resource) - nodes.requested(resource) < count
            if by_device:
                lacking &= nodes.allocatable(resource) > 0
            if np.count_nonzero(lacking):
                yield Reject(lacking, INSUFFICIENT.format(resource), np.less(nodes.allocatable(resource), count))

    def filter_node(self, wants: tuple[RequestedResource, ...], node: NodeInfo) -> Hold | None:
        reasons = [] if node.pod_count < node.allowed_pods else [TOO_MANY_PODS]
        unresolvable = False
        for resource, count, by_device in wants:
            offered = node.allocatable(resource)
            if offered - node.requested(resource) < count and (offered > 0 or not by_device):
                reasons.append(INSUFFICIENT.format(resource))
                unresolvable = unresolvable or offered < count
        return Hold(tuple(reasons), unresolvable) if reasons else None

    # -- Score ------------------------------------------------------------------------------------------------------------

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> ScoredDemands:
        scored = pod.needs_under(_SCORED)
        amounts = {**scored.requests, "cpu": scored.nonzero_cpu, "memory": scored.nonzero_memory}
        return with_devices(scoring_strategies.demands(self._resources, amounts), snapshot, self._gates)

    pre_score_disabled = pre_score

    def score(self, to_score: ScoredDemands, nodes: NodeView) -> IntArray:
        if isinstance(to_score, DeviceBackedDemands):
            return self._score(to_score.demands, to_score.among(nodes))
        return self._score(to_score, nodes)

    def score_node(self, to_score: ScoredDemands, node: NodeInfo) -> int:
        if isinstance(to_score, DeviceBackedDemands):
            return int(self._score(to_score.demands, to_score.on(node))[0])
        return self._score_one(to_score, node)

    def score_placement(self, group: GroupInfo, proposal: Proposal, snapshot: Snapshot) -> int:
        """Score a placement by how full its nodes would be together; the strategy for single nodes is not used."""
        amounts: dict[str, int] = {}
        for pod, _ in proposal.assigned:
            scored = pod.needs_under(_SCORED)
            own = {**scored.requests, "cpu": scored.nonzero_cpu, "memory": scored.nonzero_memory}
            for name, count in own.items():
                amounts[name] = amounts.get(name, 0) + count
        return scoring_strategies.fullness(scoring_strategies.demands(self._resources, amounts), proposal.placement.nodes)

    # -- explanations -----------------------------------------------------------------------------------------------------

    def why(self, wants: tuple[RequestedResource, ...], pod: PodInfo, node: NodeView) -> Detail | None:
        return why_short(wants, node)

    def terms(self, wants: tuple[RequestedResource, ...], pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        return short_resources(wants, nodes)

    def shortfall(self, wants: tuple[RequestedResource, ...], pod: PodInfo, nodes: NodeView) -> npt.NDArray[np.float64]:
        return missing_share(wants, nodes)

    def remedies(self, wants: tuple[RequestedResource, ...], pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        one, requests = node.first, self._needs(pod).requests
        if one.pod_count >= one.allowed_pods:
            yield from remedies_of_full_node(node)
        for resource, count, by_device in wants:
            offered = one.allocatable(resource)
            if offered - one.requested(resource) < count and (offered > 0 or not by_device):
                yield from remedies_of_shortage(resource, count, requests.get(resource, 0), pod, node)
                if is_extended_resource_name(resource):
                    yield from remedies_of_ignoring(resource, pod)

    # -- events -----------------------------------------------------------------------------------------------------------

    def wakes_on(self) -> Iterator[Wake]:
        pod_actions = Action.DELETE
        if self._gates["InPlacePodVerticalScaling"]:
            pod_actions |= Action.UPDATE_POD_SCALE_DOWN
        yield Wake(ClusterEvent(Resource.POD, pod_actions), self._frees, by_shape=True)
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE), self._offers_more, by_shape=True)
        if self._gates["DRAExtendedResource"]:
            yield Wake(ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE), starts_backing, by_shape=True)

    def _frees(self, pod: PodInfo, old: PodInfo, new: PodInfo | None) -> bool:
        """Return whether a pod was deleted, or requests less of a resource that ``pod`` requests."""
        if new is None:
            return bool(old.spec.node_name or old.status.nominated_node_name)
        if not self._gates["InPlacePodVerticalScaling"]:
            return False
        if new.uid == pod.uid:
            return True
        if not new.spec.node_name:
            return False
        resizes = self._gates["InPlacePodLevelResourcesVerticalScaling"]
        options = _WOKEN if resizes else _WOKEN_WITHOUT_POD_LEVEL_STATUS
        before, after = old.needs_under(options).requests, new.needs_under(options).requests
        wanted = pod.needs_under(options).requests
        return any(before.get(name, 0) > after.get(name, 0) for name, count in wanted.items() if count)

    def _offers_more(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        """Return whether the node could hold ``pod`` if empty, and is new or has more of a resource that ``pod`` requests."""
        wants = self._wants(pod, self._snapshot)
        if not _holds(new, wants):
            return False
        if old is None or offered(new, "pods") > offered(old, "pods"):
            return True
        return any(
            offered(new, want.resource) > offered(old, want.resource) or (want.by_device and not offered(new, want.resource))
            for want in wants
        )


def _amounts_to_score(pod: PodInfo) -> tuple[int, int]:
    scored = pod.needs_under(_SCORED)
    return scored.nonzero_cpu, scored.nonzero_memory


def _holds(node: Node, wants: tuple[RequestedResource, ...]) -> bool:
    return offered(node, "pods") >= 1 and all(
        want.amount <= offered(node, want.resource) or (want.by_device and not offered(node, want.resource)) for want in wants
    )


def offered(node: Node, resource: str) -> int:
    """Return a node's allocatable amount of a resource, in the scheduler's units."""
    return amount(resource, node.status.allocatable.get(resource, 0))


def starts_backing(pod: PodInfo, old: DeviceClass | None, new: DeviceClass) -> bool:
    """Return whether a device class now backs a resource that ``pod`` requests, and did not before."""
    if old is not None and (old.spec.extended_resource_name or "") == (new.spec.extended_resource_name or ""):
        return False
    names = pod.needs_under(_FIT).requests
    return any(backs(new, name) for name in names) if old is None else new.spec.extended_resource_name in names
