"""NodeResourcesLeastAllocated, NodeResourcesMostAllocated and RequestedToCapacityRatio of 1.22.

They score as a strategy of NodeResourcesFit of that release does, but the overhead of the pod counts.

Reads     requests of containers and init containers, and overhead; the nodes' allocatable and requested resources
Scores    0-100, as the strategy of NodeResourcesFit with the same name
Source    kube-scheduler 1.22.6, plugins/noderesources
"""

from __future__ import annotations

from typing import ClassVar, Self

from msgspec import structs

from moorage.api.feature_gates import FeatureGates
from moorage.framework.points import Attachable, PreScorePlugin, Reusable, Reuse, Scope, ScorePlugin
from moorage.framework.registry import Handle
from moorage.plugins.earlier.node_resources_fit import NodeResourcesFitArgsV124, NodeResourcesFitV124
from moorage.plugins.resources.device_backed_scores import ScoredDemands
from moorage.plugins.resources.scoring_strategies import RatioShape, ResourceSpec, ScoringStrategy
from moorage.plugins.v1_21.node_resources_least_allocated import NodeResourcesLeastAllocatedArgs
from moorage.plugins.v1_21.node_resources_most_allocated import NodeResourcesMostAllocatedArgs
from moorage.plugins.v1_21.requested_to_capacity_ratio import RequestedToCapacityRatioArgs
from moorage.plugins.v1_21.shared.requested_shares import AllocationArgs
from moorage.state.view import IntArray, NodeView, PodInfo, Snapshot


class _ResourceScoreV122(PreScorePlugin[ScoredDemands], ScorePlugin[ScoredDemands], Attachable, Reusable):
    """A score by the strategy of NodeResourcesFit that a subclass names."""

    strategy: ClassVar[str]

    Args: type[AllocationArgs | RequestedToCapacityRatioArgs]

    def __init__(self, args: AllocationArgs | RequestedToCapacityRatioArgs | None = None) -> None:
        args = args or self.Args()
        resources = tuple(ResourceSpec(name=one.name, weight=one.weight) for one in args.resources)
        ratio = RatioShape(shape=args.shape) if isinstance(args, RequestedToCapacityRatioArgs) else None
        strategy = ScoringStrategy(type=self.strategy, resources=resources, requested_to_capacity_ratio=ratio)
        self._fit = NodeResourcesFitV124(NodeResourcesFitArgsV124(scoring_strategy=strategy))
        self._scores = bool(resources)

    def attach(self, handle: Handle) -> None:
        self._fit.attach(handle)

    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> ScoredDemands:
        return self._fit.pre_score(pod, snapshot, feasible)

    def score(self, to_score: ScoredDemands, nodes: NodeView) -> IntArray:
        return self._fit.score(to_score, nodes) if self._scores else nodes.zeros()

    @property
    def reuse(self) -> Reuse:
        return Reuse(Scope.NODE_PODS, self._fit._signature, signature_reads=())


class NodeResourcesLeastAllocatedV122(_ResourceScoreV122):
    name = "NodeResourcesLeastAllocated"
    Args = NodeResourcesLeastAllocatedArgs
    strategy = "LeastAllocated"


class NodeResourcesMostAllocatedV122(_ResourceScoreV122):
    name = "NodeResourcesMostAllocated"
    Args = NodeResourcesMostAllocatedArgs
    strategy = "MostAllocated"


class RequestedToCapacityRatioArgsV122(RequestedToCapacityRatioArgs, frozen=True):
    """As in 1.21, but a resource without a weight has the weight 1."""

    def completed(self, gates: FeatureGates) -> Self:
        found = super().completed(gates)
        return structs.replace(found, resources=tuple(structs.replace(one, weight=one.weight or 1) for one in found.resources))


class RequestedToCapacityRatioV122(_ResourceScoreV122):
    """The plugin. Its arguments are required: without points there is no function."""

    name = "RequestedToCapacityRatio"
    Args = RequestedToCapacityRatioArgsV122
    strategy = "RequestedToCapacityRatio"
