"""Pod disruption budgets, as preemption counts them: find the pods whose eviction would violate a budget.

Preemption honours budgets as far as possible: it reprieves violating pods first, and chooses the node with the fewest
violations. Budgets never forbid preemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from moorage.api.selectors import Selector, SelectorError, compile_label_selector
from moorage.api.workloads import PodDisruptionBudget
from moorage.state.pod_info import PodInfo

__all__ = ["Budgets"]


class Budgets:
    """The budgets of a cluster, by namespace. A budget whose selector is empty, absent or malformed matches no pod.

    Each search for victims reads few namespaces of a cluster, so selectors are compiled when a namespace is first read.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._given: dict[str, list[PodDisruptionBudget]] = {}
        for budget in budgets:
            self._given.setdefault(budget.metadata.namespace, []).append(budget)
        self._compiled: dict[str, list[tuple[Selector, PodDisruptionBudget]]] = {}

    def __bool__(self) -> bool:
        """Return False if no budget can match a pod."""
        return any(map(self._of, self._given))

    def _of(self, namespace: str) -> list[tuple[Selector, PodDisruptionBudget]]:
        """Return the budgets of a namespace that can match a pod."""
        known = self._compiled.get(namespace)
        if known is None:
            known = self._compiled[namespace] = list(_that_match(self._given.get(namespace, ())))
        return known

    def covers(self, pod: PodInfo) -> bool:
        """Return whether the eviction of a pod counts against a budget."""
        budgets = self._of(pod.namespace) if pod.labels else ()
        return any(pod.name not in one.status.disrupted_pods and selector.matches(pod.labels) for selector, one in budgets)

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
        for selector, budget in self._of(pod.namespace) if pod.labels else ():
            if pod.name in budget.status.disrupted_pods or not selector.matches(pod.labels):
                continue
            remaining = left[id(budget)] = left.get(id(budget), budget.status.disruptions_allowed) - 1
            if remaining < 0:
                return True
        return False

    def _spend(self, pod: PodInfo, left: dict[int, int]) -> bool:
        """Take one disruption from each budget of the pod; ``left`` holds the remaining disruptions by the budget's id()."""
        exceeds = False
        for selector, budget in self._of(pod.namespace) if pod.labels else ():
            if pod.name in budget.status.disrupted_pods or not selector.matches(pod.labels):
                continue
            remaining = left.get(id(budget), budget.status.disruptions_allowed) - 1
            left[id(budget)] = remaining
            exceeds |= remaining < 0
        return exceeds


def _that_match(budgets: Iterable[PodDisruptionBudget]) -> Iterator[tuple[Selector, PodDisruptionBudget]]:
    for budget in budgets:
        try:
            selector = compile_label_selector(budget.spec.selector)
        except SelectorError:
            continue
        if not selector.is_empty and not selector.matches_nothing:
            yield selector, budget
