"""NodeResourcesBalancedAllocation up to 1.35: prefer nodes whose requested shares are even with the pod on them.

Reads     requests of the pod; the nodes' allocatable and requested resources
Scores    50 to 100 by the balance with the pod; up to 1.32 also for a pod that requests none of the resources. Up to 1.34
          devices do not count. Up to 1.26 a pod's CPU overhead counts in whole cores, as if they were millicores
Source    kube-scheduler 1.35, 1.34, 1.32 and 1.26, plugins/noderesources/balanced_allocation.go
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from moorage.framework.points import Attachable, Reusable, Reuse, Scope, ScorePlugin, Signature
from moorage.framework.registry import Handle
from moorage.framework.verdicts import Skip
from moorage.plugins import node_resources_balanced_allocation as today
from moorage.plugins.earlier.shared.cpu_overhead import overhead_of, with_overhead_in_cores, without_storage
from moorage.plugins.resources.device_backed_scores import DeviceBackedDemands, ScoredDemands, without_devices
from moorage.plugins.resources.scoring_strategies import Demand
from moorage.plugins.resources.single_node_scores import balance_of
from moorage.plugins.v1_21.shared.in_tree_disks import KINDS, DiskCounter, DiskKind, disks_of
from moorage.plugins.v1_21.shared.requested_shares import allocation, scored_signature
from moorage.state.view import IntArray, NodeInfo, NodeView, PodInfo, Snapshot

# NodeResourcesBalancedAllocation of 1.21: prefer nodes where CPU and memory would be requested in equal shares.
#
# With the gate BalanceAttachedNodeVolumes, the volumes that the pod would attach count as a third share, for pods with volumes
# of a kind whose number is limited on the node. The score then uses the variance of the three shares instead of the difference
# of two. Of several kinds the last one counts, in the order EBS, GCE PD, Azure disk, Cinder. (kube-scheduler leaves out kinds
# whose limit plugin the profile does not run, and may use what it noted for an earlier pod.)
#
# Reads     requests of containers and init containers, and overhead; the nodes' allocatable and requested resources; volumes of
#           pods, claims and limits, if the gate is on
# Scores    100 where the shares are equal, 0 where they differ most or one is used up
# Source    kube-scheduler 1.21, plugins/noderesources/balanced_allocation.go

Floats = npt.NDArray[np.float64]


class NodeResourcesBalancedAllocationV121(ScorePlugin[PodInfo], Attachable, Reusable):
    name = "NodeResourcesBalancedAllocation"

    def __init__(self) -> None:
        self._counters: Mapping[DiskKind, DiskCounter] = {}

    def attach(self, handle: Handle) -> None:
        gates = handle.gates
        if gates.emulated.balances_attached_volumes and gates["BalanceAttachedNodeVolumes"]:
            self._counters = {kind: DiskCounter(kind, gates, handle.max_disks) for kind in KINDS}

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        cpu, memory = (_fraction(*allocation(pod, resource, nodes)) for resource in ("cpu", "memory"))
        scores = ((1.0 - np.abs(cpu - memory)) * 100.0).astype(np.int64)
        if self._counters and pod.volumes is not None:
            added, left = self._volumes(pod, nodes)
            scores = np.where(left > 0, _evenness(cpu, memory, added / np.maximum(left, 1)), scores)
        return np.where((cpu >= 1.0) | (memory >= 1.0), 0, scores)

    def _volumes(self, pod: PodInfo, nodes: NodeView) -> tuple[IntArray, IntArray]:
        """Return how many disks the pod would add to each row, and how many more the row takes; 0 where no limit applies."""
        added, left = nodes.zeros(), nodes.zeros()
        for kind, counter in self._counters.items():
            disks = disks_of(kind, pod, nodes.snapshot)
            if disks:
                use = counter.use(disks, nodes)
                added = np.where(use.counts, use.added, added)
                left = np.where(use.counts, use.limit - use.held, left)
        return added, left

    @property
    def reuse(self) -> Reuse:
        return Reuse(Scope.NODE_PODS, self._signature, signature_reads=())

    def _signature(self, pod: PodInfo) -> Signature | None:
        if self._counters and pod.volumes is not None:
            return None
        return scored_signature(pod, ["cpu", "memory"])


def _evenness(cpu: Floats, memory: Floats, volumes: Floats) -> IntArray:
    """Score by the variance of three shares, in kube-scheduler's order of float64 operations; 0 where volumes are used up."""
    mean = (cpu + memory + volumes) / 3.0
    variance = ((cpu - mean) * (cpu - mean) + (memory - mean) * (memory - mean) + (volumes - mean) * (volumes - mean)) / 3.0
    return np.where(volumes >= 1.0, 0, ((1.0 - variance) * 100.0).astype(np.int64))


def _fraction(requested: IntArray, capacity: IntArray) -> Floats:
    """Return the requested share; 1 where there is no capacity."""
    fraction: Floats = np.where(capacity == 0, 1.0, requested / np.maximum(capacity, 1).astype(np.float64))
    return fraction


# -- 1.22 and later ----------------------------------------------------------------------------------------------------


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
