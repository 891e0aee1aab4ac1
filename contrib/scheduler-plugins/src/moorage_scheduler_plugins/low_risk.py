"""LowRiskOverCommitment: avoid nodes where limits exceed what the node offers, and where the load may exceed what is requested.

Source  scheduler-plugins 903da7df82cb, pkg/trimaran/lowriskovercommitment
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Final, NamedTuple

import msgspec

from moorage.framework.handle import Handle
from moorage.framework.points import Attachable, Reusable, Reuse, Scope, ScoreNodePlugin, Signature
from moorage.state.view import NodeInfo, PodInfo
from moorage_scheduler_plugins.beta import probability_below
from moorage_scheduler_plugins.scaling import MOST
from moorage_scheduler_plugins.trimaran import (
    CPU,
    MEMORY,
    Amounts,
    Collector,
    Metric,
    TrimaranArgs,
    amounts_of,
    go_round,
    limits_of,
    load_of,
    requested_by,
)

#: The share of the largest possible variance at which a variance is cut.
_VARIANCE_ALLOWANCE: Final = 0.99
_USUAL_WEIGHT: Final = 0.5


class LowRiskArgs(TrimaranArgs, frozen=True):
    """``smoothing_window_size``: over how many values the load was smoothed; ``risk_limit_weights``: the weight of the risk of
    limits against that of the load, by resource."""

    smoothing_window_size: int = 5
    risk_limit_weights: Mapping[str, float] = msgspec.field(default_factory=dict)


class _Sums(NamedTuple):
    """Requests and limits on a node with the pod, and without it."""

    request: int
    limit: int
    request_before: int
    limit_before: int
    capacity: int


def _signature(pod: PodInfo) -> Signature:
    return {"trimaran.requests": requested_by(pod), "trimaran.limits": limits_of(pod)}


class LowRiskOverCommitment(ScoreNodePlugin[PodInfo], Attachable, Reusable):
    name = "LowRiskOverCommitment"
    Args = LowRiskArgs

    def __init__(self, args: LowRiskArgs | None = None) -> None:
        args = args or LowRiskArgs()
        self._window = args.smoothing_window_size if args.smoothing_window_size > 0 else 5
        given = args.risk_limit_weights
        self._weights = {
            name: weight if 0 <= (weight := given.get(name, _USUAL_WEIGHT)) <= 1 else _USUAL_WEIGHT
            for name in ("cpu", "memory")
        }
        self.collector = Collector(args)

    @property
    def reuse(self) -> Reuse:
        return Reuse(Scope.NODE_PODS, signature=_signature, signature_reads=(), outside=lambda: self.collector.version)

    def attach(self, handle: Handle) -> None:
        self.collector.start(self.name, handle)

    def score_node(self, pod: PodInfo, node: NodeInfo) -> int:
        requests, limits = requested_by(pod), limits_of(pod)
        if not any(requests) and not any(limits):
            return 0  # best effort pods concern it not
        metrics = self.collector.of(node.name)
        if metrics is None:
            return 0
        capacity = amounts_of(node.node.status.allocatable)
        before, most_before = Amounts(), Amounts()
        for other in node.pods:
            before, most_before = before.plus(requested_by(other)), most_before.plus(limits_of(other))
        after, most_after = before.plus(requests).least(capacity), most_before.plus(limits)
        before = before.least(capacity)
        cpu = _Sums(after.cpu, most_after.cpu, before.cpu, most_before.cpu, capacity.cpu)
        memory = _Sums(after.memory, most_after.memory, before.memory, most_before.memory, capacity.memory)
        risk = max(
            self._risk(metrics, CPU, self._weights["cpu"], node, cpu),
            self._risk(metrics, MEMORY, self._weights["memory"], node, memory),
        )
        return go_round((1 - risk) * MOST)

    def _risk(self, metrics: Iterable[Metric], kind: str, weight: float, node: NodeInfo, sums: _Sums) -> float:
        limited = (sums.limit - sums.capacity) / (sums.limit - sums.request) if sums.limit > sums.capacity else 0.0
        load, loaded = load_of(metrics, kind, node), 0.0
        if load is not None and sums.capacity > 0:
            loaded = 1 - self._likely_within(load.mean, load.deviation, sums)
        return max(0.0, min(1.0, weight * limited + (1 - weight) * loaded))

    def _likely_within(self, mean: float, deviation: float, sums: _Sums) -> float:
        """Return how likely the load is within what is requested, given that it is within the limits."""
        largest = mean * (1 - mean) if 0 < mean < 1 else 0.0
        deviation = min(deviation * sqrt(self._window), sqrt(largest * _VARIANCE_ALLOWANCE))
        requested = max(0.0, min(1.0, sums.request_before / sums.capacity))
        within, distribution = probability_below(mean, deviation, requested)
        if sums.limit_before < sums.capacity and sums.request_before <= sums.limit_before:
            if sums.limit_before == 0:
                return 1.0
            if distribution is not None and (limited := distribution.below(sums.limit_before / sums.capacity)) > 0:
                within = max(0.0, min(1.0, within / limited))
        return within
