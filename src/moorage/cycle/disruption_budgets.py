"""Pod disruption budgets, as preemption counts them: find the pods whose eviction would violate a budget.

Preemption honours budgets as far as possible: it reprieves violating pods first, and chooses the node with the fewest
violations. Budgets never forbid preemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moorage.api.selectors import Selector, SelectorError, compile_label_selector
from moorage.api.workloads import PodDisruptionBudget
from moorage.state.pod_info import PodInfo

__all__ = ["Budgets"]


class Budgets:
    """The budgets of a cluster, by namespace. A budget whose selector is empty, absent or malformed matches no pod."""

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
        """Return False if no budget can match a pod."""
        return bool(self._in_namespace)

    def split(self, pods: Iterable[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Split pods into those that would violate a budget, if evicted one by one in this order, and the others.

        A pod that its budget already lists as disrupted does not count. A pod without labels has no budget.
        Source  plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation
        """
        left: dict[int, int] = {}
        exceeding: list[PodInfo] = []
        others: list[PodInfo] = []
        for pod in pods:
            (exceeding if self._spend(pod, left) else others).append(pod)
        return exceeding, others

    def exceeding(self, units: Sequence[Sequence[PodInfo]]) -> list[bool]:
        """Return for each set of pods whether one of its pods would violate a budget, if evicted one by one.

        Counting stops at the first violation of a set, and at the first violated budget of a pod.
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
        """Take one disruption from each budget of the pod; ``left`` holds the remaining disruptions by the budget's id()."""
        exceeds = False
        for selector, budget in self._in_namespace.get(pod.namespace, ()) if pod.labels else ():
            if pod.name in budget.status.disrupted_pods or not selector.matches(pod.labels):
                continue
            remaining = left.get(id(budget), budget.status.disruptions_allowed) - 1
            left[id(budget)] = remaining
            exceeds |= remaining < 0
        return exceeds
