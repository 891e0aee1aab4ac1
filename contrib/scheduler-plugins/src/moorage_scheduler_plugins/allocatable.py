"""NodeResourcesAllocatable: prefer nodes that offer the least, or the most, whatever is used of it.

Source  scheduler-plugins 903da7df82cb, pkg/noderesources/allocatable.go
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import Value
from moorage.errors import Fault
from moorage.framework.args import PluginArgs
from moorage.framework.points import Reusable, Reuse, Scope, ScoreExtensions, ScorePlugin
from moorage.state.view import IntArray, NodeView, PodInfo
from moorage_scheduler_plugins.scaling import spread


class ResourceWeight(Value):
    name: str = ""
    weight: int = 1


class AllocatableArgs(PluginArgs, frozen=True):
    """``resources`` with their weights, in millicores, bytes and counts; ``mode``: prefer nodes with the least or the most."""

    resources: tuple[ResourceWeight, ...] = (
        ResourceWeight(name="cpu", weight=1 << 20),
        ResourceWeight(name="memory", weight=1),
    )
    mode: Literal["Least", "Most", ""] = "Least"

    def completed(self, gates: FeatureGates) -> AllocatableArgs:
        return self if self.resources and self.mode else AllocatableArgs(
            resources=self.resources or AllocatableArgs().resources, mode=self.mode or "Least"
        )  # fmt: skip

    def faults(self, path: str, gates: FeatureGates) -> list[Fault]:
        return [
            Fault("Invalid value", f"{path}.resources[{at}].weight", "must be a positive value", one.weight)
            for at, one in enumerate(self.resources)
            if one.weight <= 0
        ]


class NodeResourcesAllocatable(ScorePlugin[PodInfo], ScoreExtensions[PodInfo], Reusable):
    name = "NodeResourcesAllocatable"
    Args = AllocatableArgs

    def __init__(self, args: AllocatableArgs | None = None) -> None:
        self._args = args or AllocatableArgs()

    @property
    def reuse(self) -> Reuse:
        # Final scores depend on the lowest raw score too, so the answers of a pod are not those of another set of nodes.
        return Reuse(Scope.CLUSTER)

    def score(self, pod: PodInfo, nodes: NodeView) -> IntArray:
        weights = {one.name: one.weight for one in self._args.resources}
        sign, total = (-1 if self._args.mode == "Least" else 1), sum(weights.values())
        sums = [0] * len(nodes)
        for resource, weight in weights.items():
            sums = [held + weight * amount for held, amount in zip(sums, nodes.allocatable(resource).tolist(), strict=True)]
        # Go's division rounds towards zero.
        return np.fromiter((sign * (held // total) for held in sums), dtype=np.int64, count=len(nodes))

    def normalize(self, pod: PodInfo, scores: IntArray) -> IntArray:
        return spread(scores)
