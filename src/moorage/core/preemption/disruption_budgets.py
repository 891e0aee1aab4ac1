"""Pod disruption budgets, as preemption counts them: find the pods whose eviction would violate a budget.

Preemption honours budgets as far as possible: it reprieves violating pods first, and chooses the node with the fewest
violations. Budgets never forbid preemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from moorage.api.core import Pod
from moorage.api.selectors import Selector, SelectorError, compile_label_selector, label_selector_matches
from moorage.api.workloads import PodDisruptionBudget
from moorage.state.pod_info import PodInfo
from moorage.state.selector_index import SelectorIndex


def covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Return True if a budget selects a pod. One with a faulty selector selects none."""
    try:
        return budget.namespace == pod.namespace and label_selector_matches(budget.spec.selector, pod.metadata.labels)
    except SelectorError:
        return False


class Budgets:
    """The budgets of a cluster, by namespace. A budget whose selector is empty, absent or malformed matches no pod.

    ``first_only``: a pod that violates a budget takes nothing from the others of its budgets, as since 1.37.
    Each search for victims reads few namespaces of a cluster, so selectors are compiled when a namespace is first read.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget], *, first_only: bool = False) -> None:
        self._first_only = first_only
        self._given: dict[str, list[PodDisruptionBudget]] = {}
        for budget in budgets:
            self._given.setdefault(budget.metadata.namespace, []).append(budget)
        self._compiled: dict[str, list[tuple[Selector, PodDisruptionBudget]]] = {}
        #: Namespace → the positions of its budgets, indexed by the pods that they may select.
        self._indexes: dict[str, SelectorIndex[int]] = {}

    def __bool__(self) -> bool:
        """Return False if no budget can match a pod."""
        return any(map(self._of, self._given))

    def _of(self, namespace: str) -> list[tuple[Selector, PodDisruptionBudget]]:
        """Return the budgets of a namespace that can match a pod."""
        known = self._compiled.get(namespace)
        if known is None:
            known = self._compiled[namespace] = list(_that_match(self._given.get(namespace, ())))
            index = self._indexes[namespace] = SelectorIndex[int]()
            for at, (selector, _) in enumerate(known):
                index.add(at, frozenset([namespace]), selector)
        return known

    def matching(self, pod: PodInfo) -> list[PodDisruptionBudget]:
        """Return the budgets against which the eviction of a pod counts; a pod that a budget lists as disrupted does not."""
        known = self._of(pod.namespace) if pod.labels else ()
        if not known:
            return []
        among = (known[at] for at in sorted(self._indexes[pod.namespace].candidates(pod.namespace, pod.labels)))
        return [one for selector, one in among if pod.name not in one.status.disrupted_pods and selector.matches(pod.labels)]

    def covers(self, pod: PodInfo) -> bool:
        """Return whether the eviction of a pod counts against a budget."""
        return bool(self.matching(pod))

    def split(self, pods: Iterable[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Split pods into those that would violate a budget, if evicted one by one in this order, and the others.

        A pod that its budget already lists as disrupted does not count. A pod without labels has no budget.
        Source  plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation; framework/preemption/util.go (1.37)
        """
        left: dict[int, int] = {}
        exceeding: list[PodInfo] = []
        others: list[PodInfo] = []
        for pod in pods:
            (exceeding if self._spend(pod, left, first_only=self._first_only) else others).append(pod)
        return exceeding, others

    def violating(self, units: Iterable[Iterable[PodInfo]], *, first_only: bool = False) -> list[list[PodInfo]]:
        """Return for each set of pods those that would violate a budget, if all are evicted one by one; or only the first.

        Counting stops at the first violated budget of a pod, and with ``first_only`` at the first violation of a set.
        Source  framework/preemption, filterVictimsWithPDBViolation (``first_only`` in 1.36)
        """
        left: dict[int, int] = {}
        found = []
        for pods in units:
            over = (pod for pod in pods if self._spend(pod, left, first_only=True))
            found.append(list(islice(over, 1) if first_only else over))
        return found

    def _spend(self, pod: PodInfo, left: dict[int, int], *, first_only: bool) -> bool:
        """Take one disruption from each budget of the pod, or from those up to the first that it violates.

        ``left`` holds the remaining disruptions by the budget's id(). Returns whether the pod violates one.
        """
        exceeds = False
        for budget in self.matching(pod):
            remaining = left.get(id(budget), budget.status.disruptions_allowed) - 1
            left[id(budget)] = remaining
            exceeds |= remaining < 0
            if exceeds and first_only:
                break
        return exceeds


def _that_match(budgets: Iterable[PodDisruptionBudget]) -> Iterator[tuple[Selector, PodDisruptionBudget]]:
    for budget in budgets:
        try:
            selector = compile_label_selector(budget.spec.selector)
        except SelectorError:
            continue
        if not selector.is_empty and not selector.matches_nothing:
            yield selector, budget
