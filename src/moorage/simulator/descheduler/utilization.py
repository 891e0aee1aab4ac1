"""LowNodeUtilization and HighNodeUtilization: pods leave the fullest nodes, or the emptiest ones.

Source  descheduler 0.36, pkg/framework/plugins/nodeutilization
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moorage.api.core import Node, Pod
from moorage.errors import InputError
from moorage.simulator.descheduler.evictor import EvictionOutcome, PluginRun
from moorage.simulator.descheduler.policy import HighNodeUtilizationArgs, LowNodeUtilizationArgs, NamespaceLists
from moorage.simulator.descheduler.removals import in_namespaces
from moorage.simulator.descheduler.scene import Scene, by_priority, requested, tolerates_all
from moorage.state.pod_requests import amount

__all__ = ["high_node_utilization", "low_node_utilization"]

_BASIC: Final = ("cpu", "memory", "pods")
#: The resource that stands for the result of a Prometheus query, in percent.
_METRIC: Final = "MetricResource"
_Amounts = dict[str, int]
_Shares = Mapping[str, float]


@dataclass
class _Used:
    """A node with what its pods use. ``room``: the amounts up to the upper threshold."""

    node: Node
    used: _Amounts
    room: _Amounts


@dataclass
class _Usage:
    """What nodes and pods use: requests, measured amounts, or one share for each node. ``names``: the resources that count."""

    scene: Scene
    names: Sequence[str]
    source: str = ""

    def node(self, name: str) -> _Amounts:
        if self.source == "Prometheus":
            share = (self.scene.node_share or {}).get(name)
            if share is None:
                raise InputError(f"unable to find metric entry for {name}")
            return {_METRIC: int(share * 100)}
        if not self.source:
            used = self.scene.used(name)
            return {resource: used.get(resource, 0) for resource in self.names}
        measured = (self.scene.node_usage or {}).get(name)
        if measured is None:
            raise InputError(f'unable to find node "{name}" in the collected metrics')
        found = {**measured, "pods": len(self.scene.running(name))}
        missing = [one for one in self.names if one not in found]
        if missing:
            raise InputError(f'unable to find "{missing[0]}" resource for collected "{name}" node metric')
        return {resource: found[resource] for resource in self.names}

    def pod(self, pod: Pod) -> Mapping[str, int] | None:
        """Return what a pod uses; None if its metrics are missing, so that it is not evicted."""
        return self.scene.pod_usage.get(pod.key) if self.source else requested(pod)


def low_node_utilization(run: PluginRun, args: LowNodeUtilizationArgs, nodes: Sequence[Node]) -> None:
    """LowNodeUtilization: evict from nodes above ``targetThresholds`` while nodes below ``thresholds`` have room."""
    metrics = args.metrics_utilization
    source = "" if metrics is None else "KubernetesMetrics" if metrics.metrics_server else metrics.source
    names = list(args.thresholds) if source == "Prometheus" else list(dict.fromkeys((*args.thresholds, *_BASIC)))
    usage = _Usage(run.scene, names, source)
    used = {node.name: usage.node(node.name) for node in nodes}
    shares = {node.name: _percent(used[node.name], node) for node in nodes}
    low, high = dict(args.thresholds), dict(args.target_thresholds)
    if args.use_deviation_thresholds:
        average = _average([{name: held[name] for name in args.thresholds if name in held} for held in shares.values()])
        low = {name: _clamped(value - args.thresholds.get(name, 0)) for name, value in average.items()}
        high = {name: _clamped(value + args.target_thresholds.get(name, 0)) for name, value in average.items()}
    cool, hot = [], []
    for node in nodes:
        held = _Used(node, used[node.name], _capped(node, high, names))
        if not node.spec.unschedulable and _is_below(shares[node.name], low):
            cool.append(held)
        elif not _is_below(shares[node.name], high):
            hot.append(held)
    if not cool or len(cool) <= args.number_of_nodes or len(cool) == len(nodes) or not hot:
        return

    def goes_on(held: _Used, left: _Amounts) -> bool:
        above = any(held.room[name] < amount for name, amount in held.used.items())
        return above and all(amount > 0 for amount in left.values())

    hot.sort(key=lambda held: -sum(held.used.values()))
    limit = args.eviction_limits.node if args.eviction_limits is not None else None
    _Moves(run, usage, args.evictable_namespaces, goes_on, limit).run(hot, cool, run.filter)


def high_node_utilization(run: PluginRun, args: HighNodeUtilizationArgs, nodes: Sequence[Node]) -> None:
    """HighNodeUtilization: evict from nodes below ``thresholds`` while other nodes have room."""
    names = list(dict.fromkeys((*args.thresholds, *_BASIC)))
    usage = _Usage(run.scene, names)
    cool, others = [], []
    for node in nodes:
        held = _Used(node, usage.node(node.name), _capped(node, dict.fromkeys(args.thresholds, 100.0), names))
        if _is_below(_percent(held.used, node), args.thresholds):
            cool.append(held)
        elif not node.spec.unschedulable:
            others.append(held)
    if not cool or len(cool) <= args.number_of_nodes or len(cool) == len(nodes) or not others:
        return

    def may_go(pod: Pod) -> bool:
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        strict = "OnlyThresholdingResources" in args.eviction_modes
        asks = any(name in one.resources.requests for one in containers for name in args.thresholds)
        return run.filter(pod) and (asks or not strict)

    cool.sort(key=lambda held: sum(held.used.values()))
    moves = _Moves(run, usage, args.evictable_namespaces, lambda _, left: all(amount > 0 for amount in left.values()))
    moves.run(cool, others, may_go)


@dataclass
class _Moves:
    """Evicts pods of nodes while ``goes_on`` holds; ``limit``: the most evictions on a node."""

    run_: PluginRun
    usage: _Usage
    spaces: NamespaceLists | None
    goes_on: Callable[[_Used, _Amounts], bool]
    limit: int | None = None

    def run(self, sources: Iterable[_Used], targets: Sequence[_Used], may_go: Callable[[Pod], bool]) -> None:
        left = {name: sum(held.room[name] - held.used[name] for held in targets) for name in self.usage.names}
        taints = [held.node.spec.taints for held in targets]
        for held in sources:
            pods = by_priority(pod for pod in self.usage.scene.running(held.node.name) if may_go(pod))
            if pods and self.goes_on(held, left):
                self._empty(held, pods, left, taints)

    def _empty(self, held: _Used, pods: Iterable[Pod], left: _Amounts, taints: Sequence[Sequence[object]]) -> None:
        count = 0
        for pod in pods:
            if self.limit is not None and count >= self.limit:
                return
            # like the descheduler, compare the numbers of taints and tolerations first
            fits = any(len(pod.spec.tolerations) >= len(one) and tolerates_all(pod, one) for one in taints)  # type: ignore[arg-type]
            if not fits or not self.run_.pre_eviction_filter(pod) or not in_namespaces(pod, self.spaces):
                continue
            asked = self.usage.pod(pod)
            if asked is None and self.usage.source != "Prometheus":
                continue
            outcome = self.run_.evict(pod)
            if outcome is EvictionOutcome.LIMITED:
                return
            if outcome is EvictionOutcome.FAILED:
                continue
            count += 1
            if self.usage.source == "Prometheus":
                if self.limit is None:
                    return
                continue
            for name in left:
                less = 1 if name == "pods" else (asked or {}).get(name, 0)
                held.used[name] -= less
                left[name] -= less
            if not self.goes_on(held, left):
                return


def _offered(node: Node) -> _Amounts:
    given = node.status.allocatable or node.status.capacity
    return {**{name: amount(name, quantity) for name, quantity in given.items()}, _METRIC: 100}


def _percent(used: _Amounts, node: Node) -> dict[str, float]:
    offered = _offered(node)
    return {name: value / offered[name] * 100 if offered[name] > 0 else 0.0 for name, value in used.items() if name in offered}


def _capped(node: Node, thresholds: _Shares, names: Iterable[str]) -> _Amounts:
    offered = _offered(node)
    return {
        name: int(thresholds[name] * 0.01 * offered[name]) if name in offered and name in thresholds else offered.get(name, 0)
        for name in names
    }


def _is_below(shares: _Shares, thresholds: _Shares) -> bool:
    return all(value >= shares.get(name, 0.0) for name, value in thresholds.items())


def _average(shares: Sequence[_Shares]) -> dict[str, float]:
    names = dict.fromkeys(name for one in shares for name in one)
    return {name: sum(held := [one[name] for one in shares if name in one]) / len(held) for name in names}


def _clamped(value: float) -> float:
    return min(max(value, 0.0), 100.0)
