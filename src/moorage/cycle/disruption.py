"""Pod disruption budgets, as preemption counts them: which of these pods would go beyond what a budget allows?

Budgets are honoured as far as possible: a pod that would exceed one is put back first, and the node that costs the fewest such
pods is chosen. They never forbid preemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moorage.api.selectors import Selector, SelectorError, compile_label_selector
from moorage.api.workloads import PodDisruptionBudget
from moorage.state.pod_info import PodInfo

__all__ = ["Budgets"]


class Budgets:
    """The budgets of a cluster, by namespace. Those whose selector is empty, absent or malformed match no pod."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._in_namespace: dict[str, list[tuple[Selector, PodDisruptionBudget]]] = {}
        for budget in budgets:
            try:
                selector = compile_label_selector(budget.spec.selector)
            except SelectorError:
                continue
            if not selector.is_empty and not selector.matches_nothing:
                self._in_namespace.setdefault(budget.metadata.namespace, []).append((selector, budget))

    def __bool__(self) -> bool:
        """False if there is no budget that could match a pod."""
        return bool(self._in_namespace)

    def split(self, pods: Iterable[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Say which pods would exceed a budget if they went one after the other in this order: ``(those, the others)``.

        A pod that its budget lists as disrupted already is paid for. A pod without labels has no budget.
        Source  plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation
        """
        left: dict[int, int] = {}
        exceeding: list[PodInfo] = []
        others: list[PodInfo] = []
        for pod in pods:
            (exceeding if self._spend(pod, left) else others).append(pod)
        return exceeding, others

    def exceeding(self, units: Sequence[Sequence[PodInfo]]) -> list[bool]:
        """Say of each of several sets of pods whether one of its pods would exceed a budget, if they went one after the other.

        Of a set, and of a pod's budgets, nothing is counted beyond the first that is exceeded.
        Source  framework/preemption/preemption.go, filterVictimsWithPDBViolation
        """
        left: dict[int, int] = {}
        return [any(self._spends_too_much(pod, left) for pod in pods) for pods in units]

    def _spends_too_much(self, pod: PodInfo, left: dict[int, int]) -> bool:
        for selector, budget in self._in_namespace.get(pod.namespace, ()) if pod.labels else ():
            if pod.name in budget.status.disrupted_pods or not selector.matches(pod.labels):
                continue
            remaining = left[id(budget)] = left.get(id(budget), budget.status.disruptions_allowed) - 1
            if remaining < 0:
                return True
        return False

    def _spend(self, pod: PodInfo, left: dict[int, int]) -> bool:
        """Take one disruption from each budget of the pod; ``left`` keeps what remains, by the budget's identity."""
        exceeds = False
        for selector, budget in self._in_namespace.get(pod.namespace, ()) if pod.labels else ():
            if pod.name in budget.status.disrupted_pods or not selector.matches(pod.labels):
                continue
            remaining = left.get(id(budget), budget.status.disruptions_allowed) - 1
            left[id(budget)] = remaining
            exceeds |= remaining < 0
        return exceeds
