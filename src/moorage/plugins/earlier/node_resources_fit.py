"""NodeResourcesFit of earlier releases.

Up to 1.35 ``requestedToCapacityRatio`` is valid with every type of strategy.
In 1.34 the gate DRAExtendedResource leaves to devices what a node does not list: the resources that device classes back, or, in
a pod without extended resources, all but CPU, memory and ephemeral storage. Devices do not count in scores.
Up to 1.33 every refusal can be cured by preemption, even where the request exceeds what the node has. Up to 1.32 pods that are
only nominated wake no pod, and pods with sidecars are rejected while the gate SidecarContainers is off. Up to 1.31 the usage
that is scored counts only the largest init container of a placed pod, also if it is a sidecar. Up to 1.29 it is Filter that
rejects pods with sidecars while their gate is off. Up to 1.27 a pod that requests anything does not fit where CPU, memory or
ephemeral storage is overcommitted, even if it requests none of that. Up to 1.26 scoring counts a pod's CPU overhead in whole
cores, as if they were millicores, and of equal names in a strategy's resources the last one counts.
Up to 1.25 a request of zero of an extended resource does not fit where that is overcommitted. Up
to 1.24 faults of a scoring strategy are reported beside ``scoringStrategy``. Up to 1.23 the overhead of the pod that is scored
does not count. In 1.21 it does not score, other plugins do, and resources to ignore are the only arguments.

Source    kube-scheduler 1.34.7, 1.33.3, 1.29.14 and 1.27.16, noderesources/fit.go; 1.26.15, resource_allocation.go;
          1.25.16, 1.23.5 and 1.21, fit.go; 1.31.8, framework/types.go, calculateResource
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.api.names import is_extended_resource_name
from moorage.api.pod_requests import PodRequests
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.changes import Detail
from moorage.framework.points import Reuse, Scope, Signature
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Hold, Reject
from moorage.plugins.devices.resource_backing import unlisted
from moorage.plugins.earlier.shared.cpu_overhead import overhead_of, with_overhead_in_cores, without_overhead, without_storage
from moorage.plugins.earlier.shared.placed_pods import WokenByPlacedPods
from moorage.plugins.earlier.shared.resource_backing import backs_by_one_name
from moorage.plugins.earlier.shared.sidecar_usage import SidecarUsageView
from moorage.plugins.node_resources_fit import (
    ALWAYS_COMPARED,
    INSUFFICIENT,
    NodeResourcesFit,
    NodeResourcesFitArgs,
    RequestedResource,
    ignored_faults,
)
from moorage.plugins.resources.device_backed_scores import ScoredDemands, device_class_for, without_devices
from moorage.plugins.resources.scoring_strategies import (
    LEAST_ALLOCATED,
    REQUESTED_TO_CAPACITY_RATIO,
    ScoringStrategy,
    shape_faults,
    sub_path,
)
from moorage.state.view import IntArray, NodeInfo, NodeView, PodInfo, Snapshot

# kube-scheduler's own text.
SIDECARS_ARE_OFF: Final = "Pod has a restartable init container and the SidecarContainers feature is disabled"


class NodeResourcesFitArgsV135(NodeResourcesFitArgs, frozen=True):
    """A shape is valid with every type of strategy, and its faults name another path."""

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        strategy, at = self.scoring_strategy, sub_path(path, "scoringStrategy")
        ratio = strategy.requested_to_capacity_ratio
        if ratio is None:
            return super().faults(path, gates)
        is_ratio = strategy.type == REQUESTED_TO_CAPACITY_RATIO
        plain = ScoringStrategy(type=LEAST_ALLOCATED if is_ratio else strategy.type, resources=strategy.resources)
        found = ignored_faults(self.ignored_resources, self.ignored_resource_groups, path)
        return found + plain.faults(at) + shape_faults(ratio.shape, f"{at}.shape", gates.emulated)


class NodeResourcesFitV135(NodeResourcesFit):
    Args = NodeResourcesFitArgsV135


class NodeResourcesFitV134(NodeResourcesFitV135):
    def _wants(self, pod: PodInfo, snapshot: Snapshot | None) -> tuple[RequestedResource, ...]:
        wants = super()._wants(pod, snapshot)
        if not self._gates["DRAExtendedResource"] or any(
            count and is_extended_resource_name(name) for name, count in self._needs(pod).requests.items()
        ):
            return wants
        return tuple(want if want.resource in ALWAYS_COMPARED else want._replace(by_device=True) for want in wants)

    def _by_device(self, resource: str, snapshot: Snapshot | None) -> bool:
        if snapshot is None or not self._gates["DRAExtendedResource"]:
            return False
        return device_class_for(resource, snapshot, backs_by_one_name) is not None

    def filter(self, wants: tuple[RequestedResource, ...], nodes: NodeView) -> Iterator[Reject]:
        yield from super().filter(wants, nodes)
        for resource, _, by_device in wants:
            if by_device:  # a node that lists the resource, and has none of it
                none_left = (nodes.allocatable(resource) == 0) & ~unlisted(resource, nodes)
                yield Reject(none_left, INSUFFICIENT.format(resource), unresolvable=True)

    def filter_node(self, wants: tuple[RequestedResource, ...], node: NodeInfo) -> Hold | None:
        listed = node.node.status.allocatable
        of_node = tuple(want._replace(by_device=want.by_device and want.resource not in listed) for want in wants)
        return super().filter_node(of_node, node)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> ScoredDemands:
        return without_devices(super().pre_score(pod, snapshot, feasible))

    pre_score_disabled = pre_score


class NodeResourcesFitV133(NodeResourcesFitV134):
    def filter(self, wants: tuple[RequestedResource, ...], nodes: NodeView) -> Iterator[Reject]:
        for reject in super().filter(wants, nodes):
            yield Reject(reject.rows, reject.reason)

    def filter_node(self, wants: tuple[RequestedResource, ...], node: NodeInfo) -> Hold | None:
        hold = super().filter_node(wants, node)
        return None if hold is None else Hold(hold.reasons)


class NodeResourcesFitV132(WokenByPlacedPods, NodeResourcesFitV133):
    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[RequestedResource, ...] | Hold:
        if self._refuses_sidecars(pod):
            return Hold.because(SIDECARS_ARE_OFF, unresolvable=True)
        return super().pre_filter(pod, snapshot)

    def _refuses_sidecars(self, pod: PodInfo) -> bool:
        return not self._gates["SidecarContainers"] and any(one.restart_policy == "Always" for one in pod.spec.init_containers)

    def _signature(self, pod: PodInfo) -> Signature | None:
        signature = super()._signature(pod)
        return signature if signature is None else {**signature, "sidecars": self._refuses_sidecars(pod)}


class NodeResourcesFitV131(NodeResourcesFitV132):
    @property
    def reuse(self) -> Reuse:
        return Reuse(Scope.NODE_PODS, self._signature, signature_reads=())

    def score(self, to_score: ScoredDemands, nodes: NodeView) -> IntArray:
        return super().score(to_score, SidecarUsageView.of(nodes))


#: The Filter state, up to 1.29, of a pod that Filter rejects because of its sidecars.
_WITH_SIDECARS: Final = (RequestedResource("sidecars", 0),)


class NodeResourcesFitV129(NodeResourcesFitV131):
    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[RequestedResource, ...] | Hold:
        return _WITH_SIDECARS if self._refuses_sidecars(pod) else super().pre_filter(pod, snapshot)

    def filter(self, wants: tuple[RequestedResource, ...], nodes: NodeView) -> Iterator[Reject]:
        if wants == _WITH_SIDECARS:
            yield Reject(~nodes.false(), SIDECARS_ARE_OFF, unresolvable=True)
        else:
            yield from super().filter(wants, nodes)

    def filter_node(self, wants: tuple[RequestedResource, ...], node: NodeInfo) -> Hold | None:
        if wants == _WITH_SIDECARS:
            return Hold.because(SIDECARS_ARE_OFF, unresolvable=True)
        return super().filter_node(wants, node)

    def why(self, wants: tuple[RequestedResource, ...], pod: PodInfo, node: NodeView) -> Detail | None:
        if wants == _WITH_SIDECARS:
            return Detail("the pod has a sidecar, and the SidecarContainers gate is off")
        return super().why(wants, pod, node)


class NodeResourcesFitV127(NodeResourcesFitV129):
    def _wants(self, pod: PodInfo, snapshot: Snapshot | None) -> tuple[RequestedResource, ...]:
        wanted = {one.resource: one for one in super()._wants(pod, snapshot)}
        # A quantity of zero counts as a request of other resources.
        if not any(amount or name not in ALWAYS_COMPARED for name, amount in self._needs(pod).requests.items()):
            return ()
        first = (wanted.pop(name, RequestedResource(name, 0)) for name in ALWAYS_COMPARED)
        return (*first, *wanted.values())


class NodeResourcesFitV126(NodeResourcesFitV127):
    def __init__(self, args: NodeResourcesFitArgsV135 | None = None) -> None:
        super().__init__(args)
        self._resources = tuple({one.name: one for one in self._resources}.values())

    def _signature(self, pod: PodInfo) -> Signature | None:
        signature = super()._signature(pod)
        return signature if signature is None else {**signature, "spec.overhead": overhead_of(pod)}

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> ScoredDemands:
        return with_overhead_in_cores(without_devices(super().pre_score(pod, snapshot, feasible)), pod)

    pre_score_disabled = pre_score


class NodeResourcesFitV125(NodeResourcesFitV126):
    def _wants(self, pod: PodInfo, snapshot: Snapshot | None) -> tuple[RequestedResource, ...]:
        nothing = (name for name, count in self._needs(pod).requests.items() if not count and name not in ALWAYS_COMPARED)
        return (*super()._wants(pod, snapshot), *(RequestedResource(name, 0) for name in nothing if not self._is_ignored(name)))


class NodeResourcesFitArgsV124(NodeResourcesFitArgsV135, frozen=True):
    """The faults of the strategy name another path."""

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        at = sub_path(path, "scoringStrategy")
        return [
            replace(one, field=one.field.replace(at, path, 1))
            if one.field.startswith((f"{at}.resources", f"{at}.shape"))
            else one
            for one in super().faults(path, gates)
        ]


class NodeResourcesFitV124(NodeResourcesFitV125):
    """The plugin; while the gate LocalStorageCapacityIsolation is off, nodes have no local storage."""

    Args = NodeResourcesFitArgsV124

    def attach(self, handle: Handle) -> None:
        super().attach(handle)
        self._resources = without_storage(self._resources, handle.gates)


class NodeResourcesFitV123(NodeResourcesFitV124):
    def _signature(self, pod: PodInfo) -> Signature | None:
        signature = super()._signature(pod)
        return signature if signature is None else {**signature, "spec.overhead": tuple(sorted(pod.spec.overhead.items()))}

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> ScoredDemands:
        return without_overhead(without_devices(super().pre_score(pod, snapshot, feasible)), pod)

    pre_score_disabled = pre_score


class NodeResourcesFitArgsV121(PluginArgs, frozen=True):
    """Which extended resources to ignore, by name or by group (the part before the slash)."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return ignored_faults(self.ignored_resources, self.ignored_resource_groups, path)


class NodeResourcesFitV121(NodeResourcesFitV123):
    Args = NodeResourcesFitArgsV121  # type: ignore[assignment]  # without an argument that came later

    def __init__(self, args: NodeResourcesFitArgsV121 | None = None) -> None:
        args = args or NodeResourcesFitArgsV121()
        super().__init__(
            NodeResourcesFitArgsV124(
                ignored_resources=args.ignored_resources, ignored_resource_groups=args.ignored_resource_groups
            )
        )
        self._open(FeatureGates(release="1.21"))

    def _needs(self, pod: PodInfo) -> PodRequests:
        """Return the requests; if only init containers name a resource, and request none of it, it does not count."""
        needs = super()._needs(pod)
        named = {*pod.spec.overhead, *(name for one in pod.spec.containers for name in one.resources.requests)}
        asked = {name: count for name, count in needs.requests.items() if count or name in named}
        return needs if len(asked) == len(needs.requests) else structs.replace(needs, requests=asked)
