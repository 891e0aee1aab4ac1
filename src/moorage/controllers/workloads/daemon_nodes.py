"""Which nodes run the pods of a daemon set, and the node affinity that binds each pod to its node.

A daemon set has no replica count. Its controller creates one pod for each eligible node, judged by node selector, required
node affinity and taints, and leaves binding to the scheduler: it replaces the pod's required node affinity with one that names
the node.

Source  kubernetes, pkg/controller/daemon/daemon_controller.go and util/daemonset_util.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from moorage.api.core import (
    ENDED_PHASES,
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PodTemplateSpec,
    Taint,
    Toleration,
)
from moorage.api.node_selectors import compile_node_selector
from moorage.api.selectors import selector_from_map
from moorage.api.taints import find_untolerated
from moorage.api.workloads import DaemonSet

__all__ = ["DRIVES_AWAY", "KEEPS_AWAY", "daemon_tolerations", "nodes_in_need", "pod_node", "pod_template", "runs_on", "tied_to"]

#: Taint effects that keep new daemon pods off a node, and those that evict running ones.
KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
DRIVES_AWAY: Final = frozenset({"NoExecute"})
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_TOLERATED_ON_HOST_NETWORK: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")


def daemon_tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    """Return the tolerations of a daemon pod: its template's, and those for common node conditions."""
    troubles = (*_TOLERATED, _TOLERATED_ON_HOST_NETWORK) if spec.host_network else _TOLERATED
    tolerations = list(spec.tolerations)
    for key, effect in troubles:
        added = Toleration(key=key, operator="Exists", effect=effect)
        same = [i for i, one in enumerate(tolerations) if (one.key, one.effect, one.operator, one.value) == _identity(added)]
        if same:
            tolerations[same[0]] = added
        else:
            tolerations.append(added)
    return tuple(tolerations)


def _identity(toleration: Toleration) -> tuple[str, str, str, str]:
    return toleration.key, toleration.effect, toleration.operator, toleration.value


def pod_template(daemon_set: DaemonSet, revision: str) -> PodTemplateSpec:
    """Return the template that the controller creates pods from."""
    template = daemon_set.spec.template
    labels = {**template.metadata.labels, "controller-revision-hash": revision}
    generation = daemon_set.metadata.annotations.get("deprecated.daemonset.template.generation")
    if generation is not None:
        labels["pod-template-generation"] = generation
    return replace(
        template,
        metadata=replace(template.metadata, labels=labels),
        spec=replace(template.spec, tolerations=daemon_tolerations(template.spec)),
    )


def runs_on(spec: PodSpec, effects: frozenset[str] = KEEPS_AWAY) -> Callable[[Node], bool]:
    """Return a predicate that is True for nodes on which a daemon pod of this spec should run.

    The pod must tolerate taints with one of ``effects``.
    """
    selector = selector_from_map(spec.node_selector)
    required = _required(spec)
    matcher = None if required is None else compile_node_selector(required)
    tolerated: dict[tuple[Taint, ...], bool] = {}
    tolerations = daemon_tolerations(spec)

    def tolerates(taints: tuple[Taint, ...]) -> bool:
        if taints not in tolerated:
            tolerated[taints] = find_untolerated(taints, tolerations, effects) is None
        return tolerated[taints]

    def judge(node: Node) -> bool:
        if spec.node_name and spec.node_name != node.name:
            return False
        if not selector.matches(node.labels) or (matcher is not None and not matcher.matches(node.labels, node.name)):
            return False
        return tolerates(node.spec.taints)

    return judge


def tied_to(pod: Pod, node_name: str) -> Pod:
    """Return the pod with a required node affinity for one node. Other affinities and preferences are kept."""
    names = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node_name,))
    required = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(names,)),))
    affinity = pod.spec.affinity or Affinity()
    node_affinity = replace(
        affinity.node_affinity or NodeAffinity(), required_during_scheduling_ignored_during_execution=required
    )
    return replace(pod, spec=replace(pod.spec, affinity=replace(affinity, node_affinity=node_affinity)))


def pod_node(pod: Pod) -> str:
    """Return the node that a daemon pod is bound to or was created for; "" if it names none.

    Source  pkg/controller/daemon/util/daemonset_util.go, GetTargetNodeName
    """
    if pod.spec.node_name:
        return pod.spec.node_name
    required = _required(pod.spec)
    for term in required.node_selector_terms if required else ():
        for asked in term.match_fields:
            if asked.key == "metadata.name" and asked.operator == "In" and len(asked.values) == 1:
                return asked.values[0]
    return ""


def _required(spec: PodSpec) -> NodeSelector | None:
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return None
    return spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution


def nodes_in_need(daemon_set: DaemonSet, nodes: Iterable[Node], held: Iterable[Pod]) -> list[Node]:
    """Return the nodes that lack a pod of the daemon set, in the given order. Ended pods are replaced."""
    served = {pod_node(pod) for pod in held if pod.status.phase not in ENDED_PHASES}
    judge = runs_on(daemon_set.spec.template.spec)
    return [node for node in nodes if node.name not in served and judge(node)]
