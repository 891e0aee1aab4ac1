"""NodeResourcesFit of 1.21: reject nodes with too few free resources for the pod.

A pod that requests anything is checked against CPU, memory and local storage, and against every other resource it names, even
in the amount zero: a node that is overcommitted rejects it. The plugin does not check whether the empty node could hold the
pod, so preemption considers every node. Other plugins do the scoring.

Reads     requests of containers and init containers, and overhead; the nodes' allocatable and requested resources
Rejects   nodes with too little left of a resource, or with the maximum number of pods
Wakes on  a node added or with changed allocatable; a pod deleted
Source    kube-scheduler 1.21, plugins/noderesources/fit.go
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from moorage.api.names import is_extended_resource_name
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.changes import RefusingPlugin, Remedies
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.explaining import Detail, ShortfallPlugin, TermsPlugin
from moorage.framework.feature_gates import FeatureGates
from moorage.framework.points import PreFilterPlugin, Reuse, Scope, Signature
from moorage.framework.verdicts import Reject
from moorage.plugins.node_resources_fit import INSUFFICIENT, TOO_MANY_PODS, RequestedResource, ignored_faults
from moorage.plugins.resources.fit_reasons import (
    missing_share,
    remedies_of_full_node,
    remedies_of_shortage,
    short_resources,
    why_short,
)
from moorage.plugins.v1_21.shared.requested_shares import fit_requests
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

_FIRST = ("cpu", "memory", "ephemeral-storage")


class NodeResourcesFitArgsV121(PluginArgs, frozen=True):
    """Which extended resources to ignore, by name or by group (the part before the slash)."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return ignored_faults(self.ignored_resources, self.ignored_resource_groups, path)


def _signature(pod: PodInfo) -> Signature:
    return {"requests, added up as in 1.21": tuple(sorted(fit_requests(pod).items()))}


class NodeResourcesFitV121(
    PreFilterPlugin[tuple[RequestedResource, ...]],
    RefusingPlugin[tuple[RequestedResource, ...]],
    TermsPlugin[tuple[RequestedResource, ...]],
    ShortfallPlugin[tuple[RequestedResource, ...]],
):
    name = "NodeResourcesFit"
    Args = NodeResourcesFitArgsV121
    reuse = Reuse(Scope.USAGE, _signature, signature_reads=())

    def __init__(self, args: NodeResourcesFitArgsV121 | None = None) -> None:
        args = args or NodeResourcesFitArgsV121()
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[RequestedResource, ...]:
        requested = fit_requests(pod)
        others = sorted(name for name in requested if name not in _FIRST)
        if not others and not any(requested.values()):
            return ()
        wants = [RequestedResource(name, requested.get(name, 0)) for name in _FIRST]
        return (*wants, *(RequestedResource(name, requested[name]) for name in others if not self._is_ignored(name)))

    def _is_ignored(self, resource: str) -> bool:
        group = resource.partition("/")[0]
        return is_extended_resource_name(resource) and (resource in self._ignored or group in self._ignored_groups)

    def filter(self, wants: tuple[RequestedResource, ...], nodes: NodeView) -> Iterator[Reject]:
        full = nodes.pod_count >= nodes.allowed_pods
        if full.any():
            yield Reject(full, TOO_MANY_PODS)
        for resource, count, _ in wants:
            lacking = nodes.allocatable(resource) - nodes.requested(resource) < count
            if lacking.any():
                yield Reject(lacking, INSUFFICIENT.format(resource))

    def why(self, wants: tuple[RequestedResource, ...], pod: PodInfo, node: NodeView) -> Detail | None:
        return why_short(wants, node)

    def terms(self, wants: tuple[RequestedResource, ...], pod: PodInfo, nodes: NodeView) -> Iterator[tuple[str, BoolArray]]:
        return short_resources(wants, nodes)

    def shortfall(self, wants: tuple[RequestedResource, ...], pod: PodInfo, nodes: NodeView) -> npt.NDArray[np.float64]:
        return missing_share(wants, nodes)

    def remedies(self, wants: tuple[RequestedResource, ...], pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        one, asked = node.first, fit_requests(pod)
        if one.pod_count >= one.allowed_pods:
            yield from remedies_of_full_node(node)
        for resource, count, _ in wants:
            if one.allocatable(resource) - one.requested(resource) < count:
                yield from remedies_of_shortage(resource, count, asked.get(resource, 0), pod, node)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE))
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE))
