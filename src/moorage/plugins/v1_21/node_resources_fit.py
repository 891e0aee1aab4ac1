"""NodeResourcesFit, as 1.21 had it: keep a pod off nodes that have too little left of what it requests.

A pod that requests anything is checked against CPU, memory and local storage alike, and against every other resource it names,
if only to the amount of zero: a node that has given away more than it has refuses it. Whether the node could ever hold the pod
is not asked, so preemption is tried on every node. Scoring was left to rules of their own.

Reads     requests of containers and init containers, and overhead; what nodes offer, what the pods on them request
Rejects   nodes with too little left of a resource, or as many pods as they allow
Wakes on  a node added or offering more; a pod gone
Source    kube-scheduler 1.21, plugins/noderesources/fit.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.names import is_extended_resource_name
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.features import FeatureGates
from moorage.framework.points import Depends, Signature
from moorage.framework.verdicts import Reject
from moorage.plugins.node_resources_fit import INSUFFICIENT, TOO_MANY_PODS, Want, ignored_faults
from moorage.plugins.v1_21.pod_requests_1_21 import asked_of_a_node
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["NodeResourcesFitArgsV121", "NodeResourcesFitV121"]

_FIRST = ("cpu", "memory", "ephemeral-storage")


class NodeResourcesFitArgsV121(PluginArgs, frozen=True):
    """Which extended resources not to check, by name or by what stands before the slash."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        del gates
        return ignored_faults(self.ignored_resources, self.ignored_resource_groups, path)


class NodeResourcesFitV121:
    """See the module's description."""

    name = "NodeResourcesFit"
    Args = NodeResourcesFitArgsV121
    depends = Depends.ROW
    sums_only = True

    def __init__(self, args: NodeResourcesFitArgsV121 | None = None) -> None:
        args = args or NodeResourcesFitArgsV121()
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[Want, ...]:
        del snapshot
        asked = asked_of_a_node(pod)
        others = sorted(name for name in asked if name not in _FIRST)
        if not others and not any(asked.values()):
            return ()
        wants = [Want(name, asked.get(name, 0)) for name in _FIRST]
        return (*wants, *(Want(name, asked[name]) for name in others if not self._is_ignored(name)))

    def _is_ignored(self, resource: str) -> bool:
        group = resource.partition("/")[0]
        return is_extended_resource_name(resource) and (resource in self._ignored or group in self._ignored_groups)

    def filter(self, wants: tuple[Want, ...], nodes: NodeView) -> Iterator[Reject]:
        full = nodes.pod_count >= nodes.allowed_pods
        if full.any():
            yield Reject(full, TOO_MANY_PODS)
        for resource, count, _ in wants:
            lacking = nodes.allocatable(resource) - nodes.requested(resource) < count
            if lacking.any():
                yield Reject(lacking, INSUFFICIENT.format(resource))

    def sign(self, pod: PodInfo) -> Signature:
        return {"requests, added up as in 1.21": tuple(sorted(asked_of_a_node(pod).items()))}

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.POD, Action.DELETE))
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE))
