"""NodeResourcesBalancedAllocation up to 1.35: prefer nodes whose requested shares are even with the pod on them.

Reads     requests of the pod; the nodes' allocatable and requested resources
Scores    50 to 100 by the balance with the pod; up to 1.32 also for a pod that requests none of the resources. Up to 1.34
          devices do not count. Up to 1.26 a pod's CPU overhead counts in whole cores, as if they were millicores
Source    kube-scheduler 1.35, 1.34, 1.32 and 1.26, plugins/noderesources/balanced_allocation.go
"""

from __future__ import annotations

import numpy as np

from moorage.framework.points import Reuse, Scope, Signature
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Skip
from moorage.plugins import node_resources_balanced_allocation as today
from moorage.plugins.earlier.shared.sidecar_usage import overhead_of, with_overhead_in_cores, without_storage
from moorage.plugins.resources.device_backed_scores import DeviceBackedDemands, ScoredDemands, without_devices
from moorage.plugins.resources.scoring_strategies import Demand
from moorage.plugins.resources.single_node_scores import balance_of
from moorage.state.cluster import Snapshot
from moorage.state.columns import IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView


class NodeResourcesBalancedAllocationV135(today.NodeResourcesBalancedAllocation):
    reuse = today.NodeResourcesBalancedAllocation.reuse

    def score_node(self, scored: ScoredDemands, node: NodeInfo) -> int:
        if isinstance(scored, DeviceBackedDemands):
            return int(self._balanced(scored.demands, scored.on(node))[0])
        offered = [(node.requested(resource) + amount, node.allocatable(resource)) for resource, amount, _ in scored]
        return balance_of([min(requested / float(capacity), 1.0) for requested, capacity in offered if capacity])

    def _balanced(self, scored: tuple[Demand, ...], nodes: NodeView) -> IntArray:
        if len(scored) < 2:
            return np.full(len(nodes), 100, dtype=np.int64)
        return today.balance_with(scored, nodes)


class NodeResourcesBalancedAllocationV134(NodeResourcesBalancedAllocationV135):
    reuse = today.NodeResourcesBalancedAllocation.reuse

    def pre_score_disabled(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> ScoredDemands:
        return without_devices(super().pre_score_disabled(pod, snapshot, feasible))


class NodeResourcesBalancedAllocationV132(NodeResourcesBalancedAllocationV134):
    reuse = today.NodeResourcesBalancedAllocation.reuse

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> ScoredDemands | Skip:
        return self.pre_score_disabled(pod, snapshot, feasible)


class NodeResourcesBalancedAllocationV126(NodeResourcesBalancedAllocationV132):
    @property
    def reuse(self) -> Reuse:
        return Reuse(Scope.USAGE, self._signature, signature_reads=())

    def _signature(self, pod: PodInfo) -> Signature | None:
        signature = super()._signature(pod)
        return signature if signature is None else {**signature, "spec.overhead": overhead_of(pod)}

    def pre_score_disabled(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> ScoredDemands:
        return with_overhead_in_cores(without_devices(super().pre_score_disabled(pod, snapshot, feasible)), pod)


class NodeResourcesBalancedAllocationV124(NodeResourcesBalancedAllocationV126):
    """The plugin; while the gate LocalStorageCapacityIsolation is off, nodes have no local storage."""

    def attach(self, handle: Handle) -> None:
        super().attach(handle)
        self._resources = without_storage(self._resources, handle.gates)
