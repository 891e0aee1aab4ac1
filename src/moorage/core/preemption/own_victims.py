"""Preemption for a plugin that has rules of its own about which pods may be evicted.

The plugin says which pods of a node may go, and whether what stays is admissible beside the Filter plugins. The rest is as in
DefaultPreemption: victims are put back while the pod fits, budgets are kept where that is possible, and the node where
eviction does the least harm is nominated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from moorage.api.workloads import PodDisruptionBudget
from moorage.core.preemption.candidates import Candidate, choose
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.core.preemption.reprieve import Victims
from moorage.core.preemption.row_importance import by_importance
from moorage.framework.post_filter import Attempt, PostFilterResult, WhatIf
from moorage.framework.verdicts import Code, Status, Verdicts, fit_error
from moorage.state.view import NodeInfo, PodInfo

#: ``potential(pod, node)`` returns the pods of a node that may be evicted for a pod.
Potential = Callable[[PodInfo, NodeInfo], Iterable[PodInfo]]
#: ``admits(gone)`` returns whether the pod is admissible where these pods are gone, beside what Filter says.
Admits = Callable[[Sequence[PodInfo]], bool]

_NOT_HELPFUL: Final = Status(Code.UNRESOLVABLE, "", ("Preemption is not helpful for scheduling",))


def preempt(
    pod: PodInfo,
    attempt: Attempt,
    potential: Potential,
    admits: Admits = lambda gone: True,
    *,
    not_admitted: str = "preemption is not admitted",
) -> PostFilterResult:
    """Find the pods to evict for ``pod``, and return what PostFilter answers.

    ``not_admitted`` is the reason for nodes where ``admits`` refuses the pod although all potential victims are gone.
    """
    table = attempt.snapshot.table
    budgets = Budgets(attempt.snapshot.objects(PodDisruptionBudget).values())
    verdicts = Verdicts(len(attempt.verdicts))
    verdicts.refuse(np.arange(len(verdicts)), _NOT_HELPFUL)
    within: list[Candidate] = []
    beyond: list[Candidate] = []
    for row in map(int, attempt.verdicts.rows_with(Code.UNSCHEDULABLE)):
        with attempt.what_if(row) as node:
            may_go = list(potential(pod, node.node))
            if not may_go:
                text = f"No victims found on node {table.nodes[row].name} for preemptor pod {pod.name}"
                verdicts.refuse(row, Status(Code.UNRESOLVABLE, "", (text,)))
                continue
            found = _victims(node, may_go, budgets, admits, not_admitted)
        if isinstance(found, Status):
            verdicts.refuse(row, found)
        elif found.pods:
            (beyond if found.violations else within).append(Candidate(row, found))
    if not (within or beyond):
        return PostFilterResult(Code.UNSCHEDULABLE, (f"preemption: {fit_error(verdicts)}",), nominated="")
    return _nominate(pod, attempt, [*within, *beyond])


def nominate_best(pod: PodInfo, attempt: Attempt, found: Iterable[tuple[int, Iterable[PodInfo]]]) -> PostFilterResult:
    """Nominate the pod to the node where eviction does the least harm, of pairs of a row and the pods to evict for it.

    The victims may be on other nodes. There must be at least one pair, and at least one pod in each.
    """
    return _nominate(pod, attempt, [Candidate(row, Victims(tuple(by_importance(pods)))) for row, pods in found])


def _nominate(pod: PodInfo, attempt: Attempt, candidates: Sequence[Candidate]) -> PostFilterResult:
    best = choose(candidates)
    return PostFilterResult(
        Code.SUCCESS,
        nominated=attempt.snapshot.table.nodes[best.row].name,
        victims=tuple(victim for victim in best.victims.pods if not victim.terminating),
        displaced=tuple(other for other in attempt.nominated(best.row) if other.priority < pod.priority),
    )


def _victims(node: WhatIf, may_go: Sequence[PodInfo], budgets: Budgets, admits: Admits, not_admitted: str) -> Victims | Status:
    for other in may_go:
        node.remove(other)
    refused = node.refused_by()
    if refused is not None:
        return refused
    gone = by_importance(may_go)
    if not admits(gone):
        return Status(Code.UNSCHEDULABLE, "", (not_admitted,))
    exceeding, others = budgets.split(gone)
    left: list[PodInfo] = []
    costly: list[PodInfo] = []
    for other in (*exceeding, *others):
        node.add(other)
        gone.remove(other)
        if not (node.fits() and admits(gone)):
            node.remove(other)
            gone.append(other)
            left.append(other)
            if other in exceeding:
                costly.append(other)
    return Victims(tuple(by_importance(left) if exceeding and others else left), tuple(costly))
