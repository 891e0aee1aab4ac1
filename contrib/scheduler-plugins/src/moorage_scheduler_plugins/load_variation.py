"""LoadVariationRiskBalancing: prefer nodes whose measured load is low and steady.

The risk of a resource is half the sum of its mean and of its deviation, each as a share of what the node offers.

Source  scheduler-plugins 903da7df82cb, pkg/trimaran/loadvariationriskbalancing
"""

from __future__ import annotations

from moorage.framework.handle import Handle
from moorage.framework.points import Attachable, Reusable, Reuse, Scope, ScoreNodePlugin, Signature
from moorage.state.view import NodeInfo, PodInfo
from moorage_scheduler_plugins.scaling import MOST
from moorage_scheduler_plugins.trimaran import CPU, MEMORY, Collector, Load, TrimaranArgs, go_round, load_of, requested_by


class LoadVariationArgs(TrimaranArgs, frozen=True):
    """``safe_variance_margin`` multiplies the deviation, ``safe_variance_sensitivity`` is its root."""

    safe_variance_margin: float = 1.0
    safe_variance_sensitivity: float = 1.0


def _signature(pod: PodInfo) -> Signature:
    return {"trimaran.requests": requested_by(pod)}


class LoadVariationRiskBalancing(ScoreNodePlugin[PodInfo], Attachable, Reusable):
    name = "LoadVariationRiskBalancing"
    Args = LoadVariationArgs

    def __init__(self, args: LoadVariationArgs | None = None) -> None:
        args = args or LoadVariationArgs()
        # As upstream, negative values stand for the defaults.
        self._margin = args.safe_variance_margin if args.safe_variance_margin >= 0 else 1.0
        self._sensitivity = args.safe_variance_sensitivity if args.safe_variance_sensitivity >= 0 else 1.0
        self.collector = Collector(args)

    @property
    def reuse(self) -> Reuse:
        return Reuse(Scope.NODE, signature=_signature, signature_reads=(), outside=lambda: self.collector.version)

    def attach(self, handle: Handle) -> None:
        self.collector.start(self.name, handle)

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        metrics = self.collector.of(node.name)
        if metrics is None:
            return 0
        wanted = requested_by(pod)
        found = [
            None if load is None else self._score(load)
            for load in (load_of(metrics, CPU, node, wanted.cpu), load_of(metrics, MEMORY, node, wanted.memory))
        ]
        cpu, memory = found
        return go_round(min(cpu, memory) if cpu is not None and memory is not None else max(cpu or 0.0, memory or 0.0))

    def _score(self, load: Load) -> float:
        if load.capacity <= 0:
            return 0.0
        # The sensitivity 0 is the limit of roots that grow without end.
        root, steady = self._sensitivity, float(load.deviation == 1)
        deviation = steady if root == 0 else load.deviation ** (1 / root)
        deviation = max(0.0, min(1.0, deviation * self._margin))
        return (1 - (load.mean + deviation) / 2) * MOST
