"""The plugins that evict pods for what is wrong with each of them: the deschedule plugins.

Each function evicts, node by node, the pods that are due, in the plugin's order.

Source  descheduler 0.36, pkg/framework/plugins: podlifetime, removefailedpods, removepodshavingtoomanyrestarts,
        removepodsviolatinginterpodantiaffinity, removepodsviolatingnodeaffinity, removepodsviolatingnodetaints
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias

from moorage.api.core import Node, Pod, Taint
from moorage.api.node_selectors import required_nodes
from moorage.api.selectors import compile_label_selector
from moorage.plugins.node_affinity import preferred_terms
from moorage.simulator.descheduler import scene as rules
from moorage.simulator.descheduler.policy import PluginArgs, PluginRun
from moorage.state.pod_info import PodInfo

#: Whether something is wrong with a pod on its node.
Due: TypeAlias = Callable[[Pod, Node], bool]


def _meets(asked: Collection[Any], found: Collection[Any]) -> bool:
    """Return True if one of what is asked for was found, or nothing is asked for."""
    return not asked or not {*found}.isdisjoint(asked)


def includes(given: Any, found: Collection[str]) -> bool:
    """Return True if one of these names is included, and none excluded, by the lists that are given, if any."""
    return given is None or (_meets(given.include, found) and {*found}.isdisjoint(given.exclude))


def wanted_by(args: PluginArgs) -> Callable[[Pod], bool]:
    """Return whether the namespaces and labels of a plugin's arguments select a pod."""
    labels = None if args.label_selector is None else compile_label_selector(args.label_selector)
    return lambda pod: includes(args.namespaces, [pod.namespace]) and (labels is None or labels.matches(pod.metadata.labels))


def _due(run: PluginRun, args: PluginArgs, nodes: Iterable[Node], due: Due, *, ended: bool = False) -> Iterable[list[Pod]]:
    """Yield, by node, the pods that are due and may be evicted. ``ended``: also those that have finished."""
    wanted, scene = wanted_by(args), run.scene
    for node in nodes:
        there = scene.by_node.get(node.name, ()) if ended else scene.running(node.name)
        yield [pod for pod in there if wanted(pod) and due(pod, node) and run.is_evictable(pod)]


def _evict_each(run: PluginRun, by_node: Iterable[Iterable[Pod]]) -> None:
    """Evict the pods of each node until its limit is reached."""
    for pods in by_node:
        for pod in pods:
            if run.evict(pod) == "limited":
                break


# -- what the kubelet reports --------------------------------------------------------------------------------------------


def _containers(report: rules.PodReport, args: PluginArgs) -> tuple[rules.ContainerReport, ...]:
    return (*report.container_statuses, *(report.init_container_statuses if args.including_init_containers else ()))


def _reasons(containers: Iterable[rules.ContainerReport]) -> set[str]:
    return {part.reason for one in containers for part in (one.state.waiting, one.state.terminated) if part is not None}


def _exit_codes(containers: Iterable[rules.ContainerReport]) -> set[int]:
    return {one.state.terminated.exit_code for one in containers if one.state.terminated is not None}


def pod_life_time(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """PodLifeTime: pods that are too old, or in a state, the oldest first."""
    scene, most = run.scene, args.max_pod_life_time_seconds

    def is_due(pod: Pod, _: Node) -> bool:
        age, report = scene.age_s(pod, pod.metadata.creation_timestamp), scene.report(pod)
        if most is not None and age is not None and (age < 0 or int(age) <= most):
            return False
        containers = _containers(report, args)
        every = (*containers, *(report.ephemeral_container_statuses if args.including_ephemeral_containers else ()))
        return (
            includes(args.owner_kinds, [one.kind for one in pod.metadata.owner_references])
            and _meets(args.states, {pod.status.phase, report.reason, *_reasons(every)} - {""})
            and (not args.conditions or meets_condition(pod))
            and _meets(args.exit_codes, _exit_codes(containers))
        )

    def meets_condition(pod: Pod) -> bool:
        for asked in args.conditions:
            for one in pod.status.conditions:
                fields = ((asked.type, one.type), (asked.status, one.status), (asked.reason, one.reason))
                least, since = asked.min_time_since_last_transition_seconds, one.last_transition_time
                age = scene.age_s(pod, since) if since is not None else None
                if all(want in ("", held) for want, held in fields) and (
                    least is None or (age is not None and age >= 0 and int(age) >= least)
                ):
                    return True
        return False

    def born(pod: Pod) -> float:
        return -(scene.age_s(pod, pod.metadata.creation_timestamp) or float("inf"))

    found = [pod for pods in _due(run, args, nodes, is_due, ended=True) for pod in pods]
    for pod in rules.go_sorted(found, lambda one, other: born(one) < born(other)):
        run.evict(pod)


def failed_pods(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """RemoveFailedPods: pods in the phase Failed."""
    least = args.min_pod_lifetime_seconds

    def is_due(pod: Pod, _: Node) -> bool:
        age, report = run.scene.age_s(pod, pod.metadata.creation_timestamp), run.scene.report(pod)
        if pod.status.phase != "Failed" or (least is not None and age is not None and int(age) < least):
            return False
        containers = _containers(report, args)
        return (
            not any(one.kind in args.exclude_owner_kinds for one in pod.metadata.owner_references)
            and _meets(args.reasons, {report.reason, *_reasons(containers)} - {""})
            and _meets(args.exit_codes, _exit_codes(containers))
        )

    _evict_each(run, _due(run, args, nodes, is_due, ended=True))


def too_many_restarts(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """RemovePodsHavingTooManyRestarts: on each node, the pods with the most restarts first."""

    def restarts(pod: Pod) -> int:
        return sum(one.restart_count for one in _containers(run.scene.report(pod), args))

    def is_due(pod: Pod, _: Node) -> bool:
        waiting = [one.state.waiting for one in _containers(run.scene.report(pod), args)]
        states = {pod.status.phase, *(one.reason for one in waiting if one is not None)}
        return restarts(pod) >= args.pod_restart_threshold and _meets(args.states, states)

    found = _due(run, args, nodes, is_due, ended=True)
    _evict_each(run, (rules.go_sorted(pods, lambda one, other: restarts(one) > restarts(other)) for pods in found))


# -- rules of the scheduler that no longer hold ----------------------------------------------------------------------------


def violating_anti_affinity(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """RemovePodsViolatingInterPodAntiAffinity: pods whose own required anti-affinity another pod breaks."""
    wanted, scene = wanted_by(args), run.scene
    known = {node.name: node for node in nodes}
    spaces: dict[str, dict[str, Pod]] = {}
    for node in nodes:
        for pod in filter(wanted, scene.running(node.name)):
            spaces.setdefault(pod.namespace, {})[pod.name] = pod

    def is_broken(pod: Pod, node: Node) -> bool:
        for term in rules.anti_affinity(pod):
            others = (other for space in term.namespaces for other in spaces.get(space, {}).values() if other.name != pod.name)
            nodes = [known[other.spec.node_name] for other in others if term.selector.matches(other.metadata.labels)]
            value = node.labels.get(term.topology_key)
            if any(there is node or (value is not None and value == there.labels.get(term.topology_key)) for there in nodes):
                return True
        return False

    for node in nodes:
        for pod in rules.by_priority(filter(wanted, scene.running(node.name))):
            if is_broken(pod, node) and run.judge.is_evictable(pod):
                outcome = run.evict(pod)
                if outcome == "limited":
                    break
                if outcome == "evicted":
                    del spaces[pod.namespace][pod.name]


def violating_node_affinity(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """RemovePodsViolatingNodeAffinity: pods whose node affinity their node no longer meets, or another meets better."""

    def breaks_required(pod: Pod, node: Node) -> bool:
        return required_nodes(pod.spec) is not None and not rules.selects(pod, node)

    def misses_preferred(pod: Pod, node: Node) -> bool:
        terms = preferred_terms(PodInfo(pod))
        there = (node, *nodes) if terms else ()
        weights = {one.name: sum(weight for weight, term in terms if term.matches(one.labels, one.name)) for one in there}
        return bool(terms) and max(weights.values()) > weights[node.name]

    kinds = {
        "requiredDuringSchedulingIgnoredDuringExecution": breaks_required,
        "preferredDuringSchedulingIgnoredDuringExecution": misses_preferred,
    }
    for broken in (kinds[kind] for kind in args.node_affinity_type if kind in kinds):

        def is_due(pod: Pod, node: Node, broken: Due = broken) -> bool:
            return broken(pod, node) and any(run.scene.fits(pod, other) for other in nodes)

        _evict_each(run, _due(run, args, nodes, is_due))


def violating_node_taints(run: PluginRun, args: PluginArgs, nodes: Sequence[Node]) -> None:
    """RemovePodsViolatingNodeTaints: pods that do not tolerate the taints of their node."""
    effects = {"NoSchedule", *(["PreferNoSchedule"] if args.include_prefer_no_schedule else [])}

    def counts(taint: Taint) -> bool:
        names = {taint.key, f"{taint.key}={taint.value}"} if taint.value else {taint.key}
        included = args.included_taints is None or not names.isdisjoint(args.included_taints)
        return taint.effect in effects and included and names.isdisjoint(args.excluded_taints)

    def is_due(pod: Pod, node: Node) -> bool:
        return not rules.tolerates_all(pod, filter(counts, node.spec.taints))

    _evict_each(run, _due(run, args, nodes, is_due))
