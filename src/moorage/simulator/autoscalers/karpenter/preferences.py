"""Relax a pod that fits nowhere: drop one preference after the other, in Karpenter's order.

Source  karpenter, pkg/controllers/provisioning/scheduling/preferences.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from moorage.api.core import NodeSelector, Pod, Toleration

#: Returns a pod without a preference, and what was dropped; None if it has none.
_Step: TypeAlias = Callable[[Pod], tuple[Pod, str] | None]
_PREFER: Final = Toleration(operator="Exists", effect="PreferNoSchedule")


def relaxed(pod: Pod, *, tolerate: bool) -> tuple[Pod, str] | None:
    """Return a pod without its next preference, and what was dropped; None if it has none left.

    ``tolerate``  a pool has a PreferNoSchedule taint: the last step tolerates these
    """
    found = next((found for step in _STEPS if (found := step(pod)) is not None), None)
    return tolerating_preferences(pod) if found is None and tolerate else found


def without_first_term(pod: Pod) -> tuple[Pod, str] | None:
    """Drop the first required node affinity term, but never the last."""
    affinity = pod.spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    required = node.required_during_scheduling_ignored_during_execution if node is not None else None
    if affinity is None or node is None or required is None or len(required.node_selector_terms) < 2:
        return None
    left = NodeSelector(node_selector_terms=required.node_selector_terms[1:])
    node = replace(node, required_during_scheduling_ignored_during_execution=left)
    made = replace(pod, spec=replace(pod.spec, affinity=replace(affinity, node_affinity=node)))
    return made, "a required node affinity term"


def _without_heaviest(part: Literal["pod_affinity", "pod_anti_affinity", "node_affinity"], dropped: str) -> _Step:
    """Return the step that drops the preference with the largest weight."""

    def step(pod: Pod) -> tuple[Pod, str] | None:
        affinity = pod.spec.affinity
        held = getattr(affinity, part, None)
        if affinity is None or held is None or not held.preferred_during_scheduling_ignored_during_execution:
            return None
        terms = sorted(held.preferred_during_scheduling_ignored_during_execution, key=lambda term: -term.weight)
        held = replace(held, preferred_during_scheduling_ignored_during_execution=tuple(terms[1:]))
        return replace(pod, spec=replace(pod.spec, affinity=replace(affinity, **{part: held}))), dropped

    return step


def _without_spread(pod: Pod) -> tuple[Pod, str] | None:
    held = list(pod.spec.topology_spread_constraints)
    at = next((at for at, asked in enumerate(held) if asked.when_unsatisfiable == "ScheduleAnyway"), None)
    if at is None:
        return None
    dropped, held[at] = held[at], held[-1]  # the last takes its place, as upstream
    spec = replace(pod.spec, topology_spread_constraints=tuple(held[:-1]))
    return replace(pod, spec=spec), f"a spread constraint on {dropped.topology_key}"


_STEPS: Final[tuple[_Step, ...]] = (
    without_first_term, _without_heaviest("pod_affinity", "a preferred pod affinity"),
    _without_heaviest("pod_anti_affinity", "a preferred pod anti-affinity"),
    _without_heaviest("node_affinity", "a preferred node affinity term"), _without_spread,
)  # fmt: skip


def tolerating_preferences(pod: Pod) -> tuple[Pod, str] | None:
    """Tolerate all taints with effect PreferNoSchedule; None if the pod does."""
    if any(held.key == "" and held.operator == "Exists" and held.effect == _PREFER.effect for held in pod.spec.tolerations):
        return None
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, _PREFER))), "PreferNoSchedule taints"
