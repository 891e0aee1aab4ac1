"""One descheduling cycle: the deschedule plugins of all profiles, then their balance plugins, on one view of the cluster.

Source  descheduler 0.36, pkg/descheduler/descheduler.go (runProfiles), pkg/framework/profile/profile.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any, Final, NamedTuple

from moorage.api.core import Node, Pod, TopologySpreadConstraint
from moorage.api.node_selectors import required_nodes
from moorage.api.pod_requests import amount
from moorage.api.selectors import SelectorError
from moorage.errors import InputError
from moorage.simulator.descheduler import removals
from moorage.simulator.descheduler.balancing import duplicates
from moorage.simulator.descheduler.policy import (
    ClassifiedNode,
    DefaultEvictor,
    DeschedulerPolicy,
    Evictor,
    PluginArgs,
    PluginRun,
)
from moorage.simulator.descheduler.scene import HARD, Scene, by_priority, go_sorted, requested, selects, tolerates_all
from moorage.state.spread_constraints import SpreadConstraint, compile_spread_constraint

# LowNodeUtilization and HighNodeUtilization: pods leave the fullest nodes, or the emptiest ones.
#
# Source  descheduler 0.36, pkg/framework/plugins/nodeutilization

_BASIC: Final = ("cpu", "memory", "pods")
#: The resource that stands for the result of a Prometheus query, in percent.
_METRIC: Final = "MetricResource"
_Amounts = dict[str, int]
_Shares = Mapping[str, float]


@dataclass
class _Used:
    """A node with what its pods use, also in percent. ``room``: the amounts up to the upper threshold."""

    node: Node
    used: _Amounts
    room: _Amounts
    shares: _Shares


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


def low_node_utilization(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """LowNodeUtilization: evict from nodes above ``targetThresholds`` while nodes below ``thresholds`` have room."""
    metrics = args.metrics_utilization
    source = "" if metrics is None else "KubernetesMetrics" if metrics.metrics_server else metrics.source
    usage = _Usage(run.scene, list(dict.fromkeys((*args.thresholds, *(() if source == "Prometheus" else _BASIC)))), source)
    every = [_Used(node, used, {}, _percent(used, node)) for node in nodes for used in [usage.node(node.name)]]
    low, high = dict(args.thresholds), dict(args.target_thresholds)
    if args.use_deviation_thresholds:
        known = {name: [held[name] for held in (one.shares for one in every) if name in held] for name in args.thresholds}
        average = {name: sum(held) / len(held) for name, held in known.items() if held}
        low = {name: _clamped(value - args.thresholds.get(name, 0)) for name, value in average.items()}
        high = {name: _clamped(value + args.target_thresholds.get(name, 0)) for name, value in average.items()}
    cool, hot = [], []
    for held in every:
        held.room = _capped(held.node, high, usage.names)
        if not held.node.spec.unschedulable and _is_below(held.shares, low):
            cool.append(held)
        elif not _is_below(held.shares, high):
            hot.append(held)
    hot.sort(key=lambda held: -sum(held.used.values()))
    _note_classes(run, every, cool, hot)
    limit = args.eviction_limits.node if args.eviction_limits is not None else None
    if _is_worthwhile(run, args, nodes, cool, hot, "All nodes are under target utilization, nothing to do here"):
        _Moves(
            run, usage, args.evictable_namespaces,
            lambda held: any(held.room[name] < amount for name, amount in held.used.items()), limit,
        ).run(hot, cool, run.judge.filter)  # fmt: skip


def high_node_utilization(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """HighNodeUtilization: evict from nodes below ``thresholds`` while other nodes have room."""
    usage = _Usage(run.scene, list(dict.fromkeys((*args.thresholds, *_BASIC))))
    cool, others = [], []
    for node in nodes:
        used, full = usage.node(node.name), dict.fromkeys(args.thresholds, 100.0)
        held = _Used(node, used, _capped(node, full, usage.names), _percent(used, node))
        if _is_below(held.shares, args.thresholds):
            cool.append(held)
        elif not node.spec.unschedulable:
            others.append(held)
    cool.sort(key=lambda held: sum(held.used.values()))

    def may_go(pod: Pod) -> bool:
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        strict = "OnlyThresholdingResources" in args.eviction_modes
        return run.judge.filter(pod) and (
            not strict or any(name in one.resources.requests for one in containers for name in args.thresholds)
        )

    _note_classes(run, [*cool, *others], cool, others)
    if _is_worthwhile(run, args, nodes, cool, others, "No node is available to schedule the pods, nothing to do here"):
        _Moves(run, usage, args.evictable_namespaces).run(cool, others, may_go)


def _note_classes(run: PluginRun, every: Iterable[_Used], cool: Sequence[_Used], hot: Sequence[_Used]) -> None:
    """Note what the descheduler logs of each node: its class, and what its pods use of it."""
    names = {**dict.fromkeys((one.node.name for one in cool), "underutilized"),
             **dict.fromkeys((one.node.name for one in hot), "overutilized")}  # fmt: skip
    for held in every:
        shares = {name: round(share, 2) for name, share in held.shares.items()}
        category = names.get(held.node.name, "appropriately utilized")
        run.evictor.classes.append(ClassifiedNode(run.plugin, held.node.name, category, shares))


def _is_worthwhile(
    run: PluginRun, args: PluginArgs, nodes: Sequence[Node], cool: Sequence[_Used], others: Sequence[_Used], no_others: str
) -> bool:
    """Return whether pods may move; note why not, in the descheduler's words."""
    why = ""
    if not cool:
        why = "No node is underutilized, nothing to do here, you might tune your thresholds further"
    elif len(cool) <= args.number_of_nodes:
        why = "Number of nodes underutilized is less or equal than NumberOfNodes, nothing to do here"
    elif len(cool) == len(nodes):
        why = "All nodes are underutilized, nothing to do here"
    elif not others:
        why = no_others
    if why:
        run.evictor.idle.append(f"{run.plugin}: {why}")
    return not why


@dataclass
class _Moves:
    """Evicts pods of nodes while ``goes_on`` holds and targets have room; ``limit``: the most evictions on a node."""

    run_: PluginRun
    usage: _Usage
    spaces: Any
    goes_on: Callable[[_Used], bool] = lambda _: True
    limit: int | None = None

    def run(self, sources: Iterable[_Used], targets: Sequence[_Used], may_go: Callable[[Pod], bool]) -> None:
        self._left = {name: sum(held.room[name] - held.used[name] for held in targets) for name in self.usage.names}
        self._taints = [held.node.spec.taints for held in targets]
        for held in sources:
            pods = by_priority(filter(may_go, self.usage.scene.running(held.node.name)))
            if pods and self._is_open(held):
                self._empty(held, pods)

    def _is_open(self, held: _Used) -> bool:
        return self.goes_on(held) and all(amount > 0 for amount in self._left.values())

    def _may_go(self, pod: Pod) -> bool:
        """Return True for a pod that targets tolerate. As in the descheduler, the numbers of taints are compared first."""
        fits = any(len(pod.spec.tolerations) >= len(one) and tolerates_all(pod, one) for one in self._taints)
        return fits and self.run_.judge.pre_eviction_filter(pod) and removals.includes(self.spaces, [pod.namespace])

    def _empty(self, held: _Used, pods: Iterable[Pod]) -> None:
        count, by_metric = 0, self.usage.source == "Prometheus"
        for pod in filter(self._may_go, pods):
            if self.limit is not None and count >= self.limit:
                return
            asked = self.usage.pod(pod)
            if asked is None and not by_metric:
                continue
            outcome = self.run_.evict(pod)
            if outcome == "limited":
                return
            if outcome == "failed":
                continue
            count += 1
            for name in () if by_metric else self._left:
                less = 1 if name == "pods" else (asked or {}).get(name, 0)
                held.used[name] -= less
                self._left[name] -= less
            if self.limit is None if by_metric else not self._is_open(held):
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


def _clamped(value: float) -> float:
    return min(max(value, 0.0), 100.0)


# -- topology spread -----------------------------------------------------------------------------------------------------


class _Spread(NamedTuple):
    """A constraint with what it reads of its pod; equal ones are judged once in a namespace."""

    rule: SpreadConstraint
    affinity: Any
    tolerations: Any

    @classmethod
    def of(cls, given: TopologySpreadConstraint, pod: Pod) -> _Spread:
        rule = compile_spread_constraint(given, pod.metadata.labels)._replace(min_domains=1, required=True)
        affinity = (pod.spec.node_selector, required_nodes(pod.spec)) if rule.honors_affinity else None
        return cls(rule, affinity, pod.spec.tolerations if rule.honors_taints else None)

    def counts(self, node: Node, pod: Pod) -> bool:
        if self.rule.honors_affinity and not selects(pod, node):
            return False
        return not self.rule.honors_taints or tolerates_all(pod, node.spec.taints, HARD)


def violating_spread(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """RemovePodsViolatingTopologySpreadConstraint: pods of domains that have too many, as far as emptier ones take them."""
    wanted = removals.wanted_by(args)
    allowed = args.constraints or ("DoNotSchedule",)
    spaces: dict[str, list[Pod]] = {}
    for node in nodes:
        for pod in run.scene.running(node.name):
            if wanted(pod) and run.judge.filter(pod):
                spaces.setdefault(pod.namespace, []).append(pod)
    due: dict[str, Pod] = {}
    for pods in spaces.values():
        #: The distinct constraints, each with the first pod that has it.
        spreads: list[tuple[_Spread, Pod]] = []
        for pod in pods:
            for given in pod.spec.topology_spread_constraints:
                with suppress(SelectorError):
                    spread = _Spread.of(given, pod)
                    if given.when_unsatisfiable in allowed and all(spread != other for other, _ in spreads):
                        spreads.append((spread, pod))
        for spread, pod in spreads:
            fits = args.topology_balance_node_fit is not False
            due |= {one.metadata.uid: one for one in _excess(run, spread, pod, pods, nodes, fits)}
    full: set[str] = set()
    for pod in due.values():
        if pod.spec.node_name not in full and run.judge.pre_eviction_filter(pod) and run.evict(pod) == "limited":
            full.add(pod.spec.node_name)


def _excess(run: PluginRun, spread: _Spread, asking: Pod, pods: Iterable[Pod], nodes: Sequence[Node], fits: bool) -> list[Pod]:
    """Return the pods of the constraint's larger domains that should go to smaller ones."""
    known = {node.name: node for node in nodes}
    eligible = [node for node in nodes if spread.counts(node, asking)]
    key, labels = spread.rule.topology_key, [node.labels for node in eligible]
    domains: dict[str, list[Pod]] = {held[key]: [] for held in labels if key in held}
    for pod in pods:
        value = known[pod.spec.node_name].labels.get(key)
        if pod.metadata.deletion_timestamp is None and value is not None and spread.rule.selector.matches(pod.metadata.labels):
            domains.setdefault(value, []).append(pod)
    sizes = [len(held) for held in domains.values()]
    if not sizes or max(sizes) - min(sizes) <= spread.rule.max_skew:
        return []
    average = sum(sizes) / len(sizes)
    ranked = go_sorted([(name, _movable_last(run, held)) for name, held in domains.items()], lambda a, b: len(a[1]) < len(b[1]))
    small = {name for name, held in ranked if len(held) < average}
    open_nodes = [node for node in eligible if node.labels.get(key) in small]
    by_uid = {pod.metadata.uid: pod for held in domains.values() for pod in held}
    fits_of = cache(lambda uid: run.scene.fits_elsewhere(by_uid[uid], open_nodes))

    def can_move(pod: Pod) -> bool:
        return bool(fits_of(pod.metadata.uid))

    found: list[Pod] = []
    low, high = 0, len(ranked) - 1
    while low < high:
        if len(ranked[high][1]) <= average:
            high -= 1
        small_pods, large_pods = ranked[low][1], ranked[high][1]
        skew = len(large_pods) - len(small_pods)
        moves = min(ceil(len(large_pods) - average), ceil(average - len(small_pods)), ceil((skew - spread.rule.max_skew) / 2))
        if skew <= spread.rule.max_skew or moves <= 0:
            low += 1
            continue
        large_pods.sort(key=can_move)
        moved = large_pods[-moves:]
        del large_pods[-moves:]
        found += [pod for pod in moved if not fits or can_move(pod)]
        small_pods += moved
    return found


def _movable_last(run: PluginRun, pods: Iterable[Pod]) -> list[Pod]:
    """Return a domain's pods: protected ones, those with a node selector or affinity, then by falling priority."""
    held = list(pods)

    def rank(pod: Pod) -> tuple[Any, ...]:
        is_free = not pod.spec.node_selector and (pod.spec.affinity is None or pod.spec.affinity.node_affinity is None)
        return (True, is_free, pod.spec.priority is not None, pod.priority) if run.judge.filter(pod) else (False,)

    ranks = {id(pod): rank(pod) for pod in held}

    def less(one: Pod, other: Pod) -> bool:
        a, b = ranks[id(one)], ranks[id(other)]
        return a < b or (a == b and a[-2:] != (False, 0))  # of two without a priority, neither is less

    return go_sorted(held, less)


_PLUGINS: Final[Mapping[str, Callable[..., None]]] = {
    "HighNodeUtilization": high_node_utilization, "LowNodeUtilization": low_node_utilization,
    "PodLifeTime": removals.pod_life_time, "RemoveDuplicates": duplicates, "RemoveFailedPods": removals.failed_pods,
    "RemovePodsHavingTooManyRestarts": removals.too_many_restarts,
    "RemovePodsViolatingInterPodAntiAffinity": removals.violating_anti_affinity,
    "RemovePodsViolatingNodeAffinity": removals.violating_node_affinity,
    "RemovePodsViolatingNodeTaints": removals.violating_node_taints,
    "RemovePodsViolatingTopologySpreadConstraint": violating_spread,
}  # fmt: skip
#: With so few nodes the descheduler does nothing.
_FEWEST_NODES: Final = 2


def run_plugin(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """Run the plugin that a run names.

    Raises  InputError if metrics that it needs are missing
    """
    _PLUGINS[run.plugin](run, args, nodes)


def run_cycle(policy: DeschedulerPolicy, see: Callable[[], Scene], ask: Callable[[Pod], str]) -> tuple[Evictor, list[str]]:
    """Run all profiles and return the evictions, and the errors of plugins, which end only that plugin.

    ``see``  returns the cluster before each plugin: pods that an earlier one evicted are terminating or gone
    ``ask``  asks the API server for an eviction and returns its error, or "" if it is allowed
    Raises  InputError for a priority class that the cluster does not have
    """
    evictor, errors = Evictor(
        ask, policy.max_no_of_pods_to_evict_total, policy.max_no_of_pods_to_evict_per_node,
        policy.max_no_of_pods_to_evict_per_namespace,
    ), []  # fmt: skip
    begin = see()
    for profile in policy.profiles:
        DefaultEvictor(profile.args("DefaultEvictor"), begin)  # its priority class must exist, whatever else is enabled
    if len(begin.ready_nodes(policy.node_selector or "")) < _FEWEST_NODES:
        return evictor, ["the cluster size is 0 or 1: the descheduler does nothing"]
    for point in ("deschedule", "balance"):
        for profile in policy.profiles:
            for name in profile.enabled(point):
                scene = see()
                judge = DefaultEvictor(profile.args("DefaultEvictor"), scene)
                run = PluginRun(scene, judge, evictor, name, profile.name)
                try:
                    run_plugin(run, profile.args(name), scene.ready_nodes(policy.node_selector or ""))
                except InputError as error:
                    errors.append(f'plugin "{name}" finished with error: {error}')
    return evictor, errors
