"""Relax a pod that fits nowhere: drop one preference after the other, in Karpenter's order.

Source  karpenter, pkg/controllers/provisioning/scheduling/preferences.go
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from moorage.api.core import Affinity, NodeSelector, Pod, PreferredSchedulingTerm, Toleration, WeightedPodAffinityTerm

__all__ = ["relaxed", "tolerating_preferences", "without_first_term"]

_PREFER: Final = Toleration(operator="Exists", effect="PreferNoSchedule")

_Weighted = TypeVar("_Weighted", PreferredSchedulingTerm, WeightedPodAffinityTerm)


def relaxed(pod: Pod, *, tolerate: bool) -> tuple[Pod, str] | None:
    """Return a pod without its next preference, and what was dropped; None if it has none left.

    ``tolerate``  a pool has a PreferNoSchedule taint: the last step tolerates these
    """
    for step in (without_first_term, _without_affinity, _without_anti_affinity, _without_preferred_node, _without_spread):
        found = step(pod)
        if found is not None:
            return found
    return tolerating_preferences(pod) if tolerate else None


def _with_affinity(pod: Pod, affinity: Affinity) -> Pod:
    return replace(pod, spec=replace(pod.spec, affinity=affinity))


def without_first_term(pod: Pod) -> tuple[Pod, str] | None:
    """Drop the first required node affinity term, but never the last."""
    affinity = pod.spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    required = node.required_during_scheduling_ignored_during_execution if node is not None else None
    if affinity is None or node is None or required is None or len(required.node_selector_terms) < 2:
        return None
    left = NodeSelector(node_selector_terms=required.node_selector_terms[1:])
    node = replace(node, required_during_scheduling_ignored_during_execution=left)
    return _with_affinity(pod, replace(affinity, node_affinity=node)), "a required node affinity term"


def _lighter(terms: tuple[_Weighted, ...]) -> tuple[_Weighted, ...]:
    """Return the terms without the heaviest."""
    return tuple(sorted(terms, key=lambda term: -term.weight)[1:])


def _without_affinity(pod: Pod) -> tuple[Pod, str] | None:
    affinity = pod.spec.affinity
    held = affinity.pod_affinity if affinity is not None else None
    if affinity is None or held is None or not held.preferred_during_scheduling_ignored_during_execution:
        return None
    left = _lighter(held.preferred_during_scheduling_ignored_during_execution)
    held = replace(held, preferred_during_scheduling_ignored_during_execution=left)
    return _with_affinity(pod, replace(affinity, pod_affinity=held)), "a preferred pod affinity"


def _without_anti_affinity(pod: Pod) -> tuple[Pod, str] | None:
    affinity = pod.spec.affinity
    held = affinity.pod_anti_affinity if affinity is not None else None
    if affinity is None or held is None or not held.preferred_during_scheduling_ignored_during_execution:
        return None
    left = _lighter(held.preferred_during_scheduling_ignored_during_execution)
    held = replace(held, preferred_during_scheduling_ignored_during_execution=left)
    return _with_affinity(pod, replace(affinity, pod_anti_affinity=held)), "a preferred pod anti-affinity"


def _without_preferred_node(pod: Pod) -> tuple[Pod, str] | None:
    affinity = pod.spec.affinity
    held = affinity.node_affinity if affinity is not None else None
    if affinity is None or held is None or not held.preferred_during_scheduling_ignored_during_execution:
        return None
    left = _lighter(held.preferred_during_scheduling_ignored_during_execution)
    held = replace(held, preferred_during_scheduling_ignored_during_execution=left)
    return _with_affinity(pod, replace(affinity, node_affinity=held)), "a preferred node affinity term"


def _without_spread(pod: Pod) -> tuple[Pod, str] | None:
    held = list(pod.spec.topology_spread_constraints)
    for at, asked in enumerate(held):
        if asked.when_unsatisfiable == "ScheduleAnyway":
            held[at] = held[-1]  # the last takes its place, as upstream
            spec = replace(pod.spec, topology_spread_constraints=tuple(held[:-1]))
            return replace(pod, spec=spec), f"a spread constraint on {asked.topology_key}"
    return None


def tolerating_preferences(pod: Pod) -> tuple[Pod, str] | None:
    """Tolerate all taints with effect PreferNoSchedule; None if the pod does."""
    if any(held.key == "" and held.operator == "Exists" and held.effect == _PREFER.effect for held in pod.spec.tolerations):
        return None
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, _PREFER))), "PreferNoSchedule taints"
