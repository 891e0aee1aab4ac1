"""The plugins that evict pods for what is wrong with each of them: the deschedule plugins.

Each function yields, node by node, the pods that its plugin evicts, in the plugin's order.

Source  descheduler 0.36, pkg/framework/plugins: podlifetime, removefailedpods, removepodshavingtoomanyrestarts,
        removepodsviolatinginterpodantiaffinity, removepodsviolatingnodeaffinity, removepodsviolatingnodetaints
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from moorage.api.core import Node, Pod, Taint
from moorage.api.selectors import compile_label_selector
from moorage.simulator.descheduler.evictor import EvictionOutcome, PluginRun
from moorage.simulator.descheduler.policy import (
    NamespaceLists,
    PodFilterArgs,
    PodLifeTimeArgs,
    RemoveFailedPodsArgs,
    RemovePodsHavingTooManyRestartsArgs,
    RemovePodsViolatingNodeAffinityArgs,
    RemovePodsViolatingNodeTaintsArgs,
)
from moorage.simulator.descheduler.scene import (
    ContainerReport,
    PodReport,
    Scene,
    anti_affinity,
    by_priority,
    go_sorted,
    preference,
    selects,
    tolerates_all,
)


def in_namespaces(pod: Pod, given: NamespaceLists | None) -> bool:
    """Return True if the lists of namespaces, if any, include a pod."""
    if given is None:
        return True
    return (not given.include or pod.namespace in given.include) and pod.namespace not in given.exclude


def wanted_by(args: PodFilterArgs) -> Callable[[Pod], bool]:
    """Return whether the namespaces and labels of a plugin's arguments select a pod."""
    labels = None if args.label_selector is None else compile_label_selector(args.label_selector)
    return lambda pod: in_namespaces(pod, args.namespaces) and (labels is None or labels.matches(pod.metadata.labels))


def _evict_each(run: PluginRun, pods: Iterable[Pod]) -> None:
    """Evict pods of one node until its limit is reached."""
    for pod in pods:
        if run.evict(pod) is EvictionOutcome.LIMITED:
            return


def pod_life_time(run: PluginRun, args: PodLifeTimeArgs, nodes: Sequence[Node]) -> None:
    """PodLifeTime: pods that are too old, or in a state, the oldest first."""
    wanted, scene = wanted_by(args), run.scene

    def is_due(pod: Pod) -> bool:
        most, kinds = args.max_pod_life_time_seconds, args.owner_kinds or NamespaceLists()
        age = scene.age_s(pod, pod.metadata.creation_timestamp)
        owners = {one.kind for one in pod.metadata.owner_references}
        if most is not None and age is not None and (age < 0 or int(age) <= most):
            return False
        if kinds.include and not owners.intersection(kinds.include):
            return False
        if not kinds.include and owners.intersection(kinds.exclude):
            return False
        report = scene.report(pod)
        if args.states and not _states(pod, report, args).intersection(args.states):
            return False
        if args.conditions and not _meets_condition(scene, pod, args):
            return False
        return not args.exit_codes or not _exit_codes(_containers(report, args.including_init_containers)).isdisjoint(
            args.exit_codes
        )

    found = [
        pod
        for node in nodes
        for pod in scene.by_node.get(node.name, ())
        if wanted(pod) and run.is_evictable(pod) and is_due(pod)
    ]
    for pod in go_sorted(found, lambda one, other: _born(scene, one) < _born(scene, other)):
        run.evict(pod)


def _born(scene: Scene, pod: Pod) -> float:
    return -(scene.age_s(pod, pod.metadata.creation_timestamp) or float("inf"))


def _containers(report: PodReport, init: bool) -> tuple[ContainerReport, ...]:
    return (*report.container_statuses, *(report.init_container_statuses if init else ()))


def _states(pod: Pod, report: PodReport, args: PodLifeTimeArgs) -> set[str]:
    containers = _containers(report, args.including_init_containers)
    if args.including_ephemeral_containers:
        containers += report.ephemeral_container_statuses
    return {pod.status.phase, report.reason, *_reasons(containers)} - {""}


def _reasons(containers: Iterable[ContainerReport]) -> set[str]:
    return {
        part.reason
        for one in containers
        for part in (one.state.waiting, one.state.terminated)
        if part is not None and part.reason
    }


def _exit_codes(containers: Iterable[ContainerReport]) -> set[int]:
    return {one.state.terminated.exit_code for one in containers if one.state.terminated is not None}


def _meets_condition(scene: Scene, pod: Pod, args: PodLifeTimeArgs) -> bool:
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


def failed_pods(run: PluginRun, args: RemoveFailedPodsArgs, nodes: Sequence[Node]) -> None:
    """RemoveFailedPods: pods in the phase Failed."""
    wanted, scene = wanted_by(args), run.scene

    def is_due(pod: Pod) -> bool:
        age, report = scene.age_s(pod, pod.metadata.creation_timestamp), scene.report(pod)
        if args.min_pod_lifetime_seconds is not None and age is not None and int(age) < args.min_pod_lifetime_seconds:
            return False
        if any(one.kind in args.exclude_owner_kinds for one in pod.metadata.owner_references):
            return False
        containers = _containers(report, args.including_init_containers)
        if args.reasons and ({report.reason} - {""} | _reasons(containers)).isdisjoint(args.reasons):
            return False
        return not args.exit_codes or not _exit_codes(containers).isdisjoint(args.exit_codes)

    for node in nodes:
        there = [pod for pod in scene.by_node.get(node.name, ()) if pod.status.phase == "Failed" and wanted(pod)]
        _evict_each(run, [pod for pod in there if run.is_evictable(pod) and is_due(pod)])


def too_many_restarts(run: PluginRun, args: RemovePodsHavingTooManyRestartsArgs, nodes: Sequence[Node]) -> None:
    """RemovePodsHavingTooManyRestarts: on each node, the pods with the most restarts first."""
    wanted, scene = wanted_by(args), run.scene

    def restarts(pod: Pod) -> int:
        return sum(one.restart_count for one in _containers(scene.report(pod), args.including_init_containers))

    def is_due(pod: Pod) -> bool:
        if restarts(pod) < args.pod_restart_threshold:
            return False
        waiting = [one.state.waiting for one in _containers(scene.report(pod), args.including_init_containers)]
        return not args.states or not {pod.status.phase, *(one.reason for one in waiting if one is not None)}.isdisjoint(
            args.states
        )

    for node in nodes:
        there = scene.by_node.get(node.name, ())
        due = [pod for pod in there if wanted(pod) and is_due(pod) and run.is_evictable(pod)]
        _evict_each(run, go_sorted(due, lambda one, other: restarts(one) > restarts(other)))


def violating_anti_affinity(run: PluginRun, args: PodFilterArgs, nodes: Sequence[Node]) -> None:
    """RemovePodsViolatingInterPodAntiAffinity: pods whose own required anti-affinity another pod breaks."""
    wanted, scene = wanted_by(args), run.scene
    known = {node.name: node for node in nodes}
    spaces: dict[str, dict[str, Pod]] = {}
    for node in nodes:
        for pod in scene.running(node.name):
            if wanted(pod):
                spaces.setdefault(pod.namespace, {})[pod.name] = pod
    for node in nodes:
        for pod in by_priority(pod for pod in scene.running(node.name) if wanted(pod)):
            if _is_broken(pod, node, spaces, known) and run.is_evictable(pod):
                outcome = run.evict(pod)
                if outcome is EvictionOutcome.LIMITED:
                    break
                if outcome is EvictionOutcome.EVICTED:
                    del spaces[pod.namespace][pod.name]


def _is_broken(pod: Pod, node: Node, spaces: dict[str, dict[str, Pod]], known: dict[str, Node]) -> bool:
    for term, selector, names in anti_affinity(pod):
        for space in names:
            for other in spaces.get(space, {}).values():
                if other.name != pod.name and selector.matches(other.metadata.labels):
                    there = known[other.spec.node_name]
                    value = node.metadata.labels.get(term.topology_key)
                    if there is node or (value is not None and value == there.metadata.labels.get(term.topology_key)):
                        return True
    return False


def violating_node_affinity(run: PluginRun, args: RemovePodsViolatingNodeAffinityArgs, nodes: Sequence[Node]) -> None:
    """RemovePodsViolatingNodeAffinity: pods whose node affinity their node no longer meets, or another meets better."""
    wanted, scene = wanted_by(args), run.scene
    for kind in args.node_affinity_type:
        for node in nodes:
            due = [
                pod for pod in scene.running(node.name)
                if _is_misplaced(pod, node, nodes, kind) and wanted(pod) and run.is_evictable(pod)
                and any(scene.fits(pod, other) for other in nodes)
            ]  # fmt: skip
            _evict_each(run, due)


def _is_misplaced(pod: Pod, node: Node, nodes: Collection[Node], kind: str) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None:
        return False
    if kind == "requiredDuringSchedulingIgnoredDuringExecution":
        return affinity.required_during_scheduling_ignored_during_execution is not None and not selects(pod, node)
    if (
        kind != "preferredDuringSchedulingIgnoredDuringExecution"
        or not affinity.preferred_during_scheduling_ignored_during_execution
    ):
        return False
    return max((0, *(preference(pod, other) for other in nodes))) > preference(pod, node)


def violating_node_taints(run: PluginRun, args: RemovePodsViolatingNodeTaintsArgs, nodes: Sequence[Node]) -> None:
    """RemovePodsViolatingNodeTaints: pods that do not tolerate the taints of their node."""
    wanted, scene = wanted_by(args), run.scene
    effects = {"NoSchedule", *(["PreferNoSchedule"] if args.include_prefer_no_schedule else [])}

    def counts(taint: Taint) -> bool:
        names = {taint.key, f"{taint.key}={taint.value}"} if taint.value else {taint.key}
        included = args.included_taints is None or not names.isdisjoint(args.included_taints)
        return taint.effect in effects and included and names.isdisjoint(args.excluded_taints)

    def due(node: Node) -> Iterator[Pod]:
        taints = [taint for taint in node.spec.taints if counts(taint)]
        for pod in scene.running(node.name) if taints else ():
            if not tolerates_all(pod, taints) and wanted(pod) and run.is_evictable(pod):
                yield pod

    for node in nodes:
        _evict_each(run, due(node))
