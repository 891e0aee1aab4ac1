"""The balance plugins that count pods: RemoveDuplicates and RemovePodsViolatingTopologySpreadConstraint.

Source  descheduler 0.36, pkg/framework/plugins: removeduplicates, removepodsviolatingtopologyspreadconstraint
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Any

from msgspec import Struct

from moorage.api.core import Node, Pod, TopologySpreadConstraint
from moorage.api.meta import LabelSelector
from moorage.api.selectors import Selector, SelectorError, compile_label_selector
from moorage.simulator.descheduler.evictor import EvictionOutcome, PluginRun
from moorage.simulator.descheduler.policy import RemoveDuplicatesArgs, RemovePodsViolatingTopologySpreadConstraintArgs
from moorage.simulator.descheduler.removals import in_namespaces, wanted_by
from moorage.simulator.descheduler.scene import HARD, go_sorted, selects, tolerates_all

__all__ = ["duplicates", "violating_spread"]

#: Namespace, kind and name of an owner, and the images of its pods.
_Owner = tuple[str, str, str, str]


def duplicates(run: PluginRun, args: RemoveDuplicatesArgs, nodes: Sequence[Node]) -> None:
    """RemoveDuplicates: pods of one owner beyond an even share of the nodes on which they could be."""
    scene = run.scene
    found: dict[_Owner, dict[str, list[Pod]]] = {}
    occurrences: Counter[_Owner] = Counter()
    for node in nodes:
        seen: set[tuple[str, ...]] = set()
        for pod in scene.running(node.name):
            owners = pod.metadata.owner_references
            if not owners or any(one.kind in args.exclude_owner_kinds for one in owners):
                continue
            if not (in_namespaces(pod, args.namespaces) and run.is_evictable(pod)):
                continue
            images = sorted(one.image for one in pod.spec.containers)
            keys = [(pod.namespace, one.kind, one.name, "#".join(images)) for one in owners]
            occurrences.update(keys)
            same = tuple(sorted(f"{pod.namespace}/{one.kind}/{one.name}/{image}" for one in owners for image in images))
            if same in seen:
                for key in keys:
                    found.setdefault(key, {}).setdefault(node.name, []).append(pod)
            seen.add(same)
    for key, by_node in found.items():
        targets = _targets(by_node, nodes)
        if len(targets) < 2:
            continue
        most = ceil(occurrences[key] / len(targets))
        for pods in by_node.values():
            for pod in pods[most - 1 :]:
                if run.evict(pod) is EvictionOutcome.LIMITED:
                    break


def _targets(by_node: dict[str, list[Pod]], nodes: Sequence[Node]) -> set[str]:
    """Return the nodes on which the duplicates could be; those of a pod that could be on one node alone do not count."""
    distinct = {repr((p.spec.tolerations, p.spec.affinity and p.spec.affinity.node_affinity, p.spec.node_selector)): p
                for pods in by_node.values() for p in pods}  # fmt: skip
    found: set[str] = set()
    for pod in distinct.values():
        match = {node.name for node in nodes if tolerates_all(pod, node.spec.taints, HARD) and selects(pod, node)}
        found |= match if len(match) > 1 else set()
    return found


# -- topology spread -----------------------------------------------------------------------------------------------------


class _Spread(Struct, frozen=True):
    """A constraint with what it reads of its pod; equal ones are judged once in a namespace."""

    max_skew: int
    key: str
    selector: Selector
    honours_affinity: bool
    honours_taints: bool
    affinity: Any
    tolerations: Any

    @classmethod
    def of(cls, given: TopologySpreadConstraint, pod: Pod) -> _Spread:
        labels = pod.metadata.labels
        extra = LabelSelector(match_labels={key: labels[key] for key in given.match_label_keys if key in labels})
        selector = compile_label_selector(given.label_selector)
        if extra.match_labels and not selector.matches_nothing:
            selector = Selector((*selector.requirements, *compile_label_selector(extra).requirements))
        affinity, taints = given.node_affinity_policy != "Ignore", given.node_taints_policy == "Honor"
        held = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
        required = held and held.required_during_scheduling_ignored_during_execution
        return cls(
            given.max_skew, given.topology_key, selector, affinity, taints,
            (pod.spec.node_selector, required) if affinity else None,
            pod.spec.tolerations if taints else None,
        )  # fmt: skip

    def counts(self, node: Node, pod: Pod) -> bool:
        if self.honours_affinity and not selects(pod, node):
            return False
        return not self.honours_taints or tolerates_all(pod, node.spec.taints, HARD)


def violating_spread(run: PluginRun, args: RemovePodsViolatingTopologySpreadConstraintArgs, nodes: Sequence[Node]) -> None:
    """RemovePodsViolatingTopologySpreadConstraint: pods of domains that have too many, as far as emptier ones take them."""
    wanted = wanted_by(args)
    allowed = args.constraints or ("DoNotSchedule",)
    spaces: dict[str, list[Pod]] = {}
    for node in nodes:
        for pod in run.scene.running(node.name):
            if wanted(pod) and run.filter(pod):
                spaces.setdefault(pod.namespace, []).append(pod)
    due: dict[str, Pod] = {}
    for pods in spaces.values():
        spreads: list[tuple[_Spread, Pod]] = []
        for pod in pods:
            for given in pod.spec.topology_spread_constraints:
                if given.when_unsatisfiable in allowed:
                    _add(spreads, given, pod)
        for spread, pod in spreads:
            fits = args.topology_balance_node_fit is not False
            due |= {one.metadata.uid: one for one in _excess(run, spread, pod, pods, nodes, fits)}
    full: set[str] = set()
    for pod in due.values():
        if pod.spec.node_name not in full and run.pre_eviction_filter(pod) and run.evict(pod) is EvictionOutcome.LIMITED:
            full.add(pod.spec.node_name)


def _add(spreads: list[tuple[_Spread, Pod]], given: TopologySpreadConstraint, pod: Pod) -> None:
    try:
        spread = _Spread.of(given, pod)
    except SelectorError:
        return
    if all(spread != other for other, _ in spreads):
        spreads.append((spread, pod))


def _excess(run: PluginRun, spread: _Spread, asking: Pod, pods: Iterable[Pod], nodes: Sequence[Node], fits: bool) -> list[Pod]:
    """Return the pods of the constraint's larger domains that should go to smaller ones."""
    known = {node.name: node for node in nodes}
    eligible = [node for node in nodes if spread.counts(node, asking)]
    domains: dict[str, list[Pod]] = {
        node.metadata.labels[spread.key]: [] for node in eligible if spread.key in node.metadata.labels
    }
    for pod in pods:
        value = known[pod.spec.node_name].metadata.labels.get(spread.key)
        if pod.metadata.deletion_timestamp is None and value is not None and spread.selector.matches(pod.metadata.labels):
            domains.setdefault(value, []).append(pod)
    sizes = [len(held) for held in domains.values()]
    if not sizes or max(sizes) - min(sizes) <= spread.max_skew:
        return []
    average = sum(sizes) / len(sizes)
    ranked = go_sorted([(name, _movable_last(run, held)) for name, held in domains.items()], lambda a, b: len(a[1]) < len(b[1]))
    small = {name for name, held in ranked if len(held) < average}
    open_nodes = [node for node in eligible if node.metadata.labels.get(spread.key) in small]
    able: dict[str, bool] = {}

    def can_move(pod: Pod) -> bool:
        uid = pod.metadata.uid
        if uid not in able:
            able[uid] = run.scene.fits_elsewhere(pod, open_nodes)
        return able[uid]

    found: list[Pod] = []
    low, high = 0, len(ranked) - 1
    while low < high:
        if len(ranked[high][1]) <= average:
            high -= 1
        small_pods, large_pods = ranked[low][1], ranked[high][1]
        skew = len(large_pods) - len(small_pods)
        moves = min(ceil(len(large_pods) - average), ceil(average - len(small_pods)), ceil((skew - spread.max_skew) / 2))
        if skew <= spread.max_skew or moves <= 0:
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
    evictable: dict[int, bool] = {}

    def can_go(pod: Pod) -> bool:
        if id(pod) not in evictable:
            evictable[id(pod)] = run.filter(pod)
        return evictable[id(pod)]

    def binds(pod: Pod) -> bool:
        return bool(pod.spec.node_selector) or (pod.spec.affinity is not None and pod.spec.affinity.node_affinity is not None)

    def less(one: Pod, other: Pod) -> bool:
        if not can_go(one) or not can_go(other):
            return not (can_go(one) and not can_go(other))
        if binds(one) != binds(other):
            return binds(one)
        a, b = one.spec.priority, other.spec.priority
        return a is None and b is not None if a is None or b is None else a <= b

    return go_sorted(pods, less)
