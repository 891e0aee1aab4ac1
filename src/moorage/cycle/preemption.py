"""Preemption: which pods of lower priority would have to go, and where, for a pod that fits nowhere?

On each node that might help, all pods of lower priority are taken away in a what-if. If the pod fits then, they are put back
one at a time, the most important first, as long as it still fits: those that cannot be are the victims there. Of all such nodes
the one where the least harm is done is chosen. Nothing is changed here; the answer is a value.

Source  kube-scheduler 1.36, framework/preemption/preemption.go and plugins/defaultpreemption/default_preemption.go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.cycle.disruption import Budgets
from moorage.cycle.importance import by_importance, earliest_start
from moorage.framework.points import Attempt, WhatIf
from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Code, Status
from moorage.state.pod_info import PodInfo

__all__ = ["NOT_HELPFUL", "NO_VICTIMS", "Candidate", "Search", "Victims", "choose", "find_candidates", "select_victims"]

# kube-scheduler's own texts, kept word for word: people search their events for them.
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
_NOBODY_HAS_TO_GO = 'expected at least one victim pod on node "{}"'

#: Added to each priority before they are summed, so that fewer victims of a negative priority never look worse than more.
_LIFT = 2**31


class Victims(NamedTuple):
    """Pods that have to go, the most important first, and how many of them exceed a disruption budget."""

    pods: tuple[PodInfo, ...]
    violations: int = 0


class Candidate(NamedTuple):
    """A node that the pod fits on once the victims are gone; at least one."""

    row: int
    victims: Victims


@dataclass(frozen=True, slots=True)
class Search:
    """What was found: ``candidates`` in the order the choice goes by; ``verdicts`` says why each other row is none.

    ``errors`` tells of nodes that a plugin could not judge, and of those on which the pod fits although Filter refused them.
    """

    verdicts: Verdicts
    candidates: list[Candidate] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def find_candidates(attempt: Attempt, budgets: Budgets, percentage: int, absolute: int) -> Search:
    """Try the nodes that Filter refused for reasons that evicting might lift, until there are enough candidates.

    Enough is ``percentage`` of those nodes, at least ``absolute``, one of them within all budgets. kube-scheduler starts
    anywhere; here the search starts with the node that came first, or where there are more nodes than have to be found, at
    a place that hangs on the pod's UID alone.
    """
    verdicts = Verdicts(len(attempt.verdicts))
    verdicts.refuse(np.arange(len(verdicts)), Status(Code.UNRESOLVABLE, "", (NOT_HELPFUL,)))
    search = Search(verdicts)
    rows = attempt.verdicts.rows_with(Code.UNSCHEDULABLE)
    rows = rows[np.argsort(attempt.snapshot.table.arrival.view[rows])]
    wanted = min(len(rows), max(len(rows) * percentage // 100, absolute))
    within: list[Candidate] = []
    beyond: list[Candidate] = []
    for row in map(int, _turned(rows, wanted, attempt.pod.uid)):
        with attempt.what_if(row) as node:
            victims = select_victims(attempt.pod, node, budgets)
        if isinstance(victims, Status):
            verdicts.refuse(row, victims)
            if victims.code is Code.ERROR:
                search.errors.append(victims.message)
        elif not victims.pods:
            search.errors.append(_NOBODY_HAS_TO_GO.format(attempt.snapshot.table.nodes[row].name))
        else:
            found = beyond if victims.violations else within
            if len(found) < wanted:
                found.append(Candidate(row, victims))
            if within and len(within) + len(beyond) >= wanted:
                break
    search.candidates.extend([*within, *beyond])
    return search


def _turned(rows: npt.NDArray[np.intp], wanted: int, uid: str) -> npt.NDArray[np.intp]:
    """Return the rows, starting elsewhere for each pod where not all have to be tried."""
    if wanted >= len(rows):
        return rows
    start = int.from_bytes(blake2b(uid.encode(), digest_size=8).digest(), "little") % len(rows)
    return np.concatenate([rows[start:], rows[:start]])


def select_victims(pod: PodInfo, node: WhatIf, budgets: Budgets) -> Victims | Status:
    """Return the pods on a node that have to go for ``pod``, or why nothing there helps.

    None of them could be spared without evicting one that is more important, or that a budget protects, instead. The what-if is
    left with the victims gone.
    Source  plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode
    """
    lower = [other for other in node.node.pods if other.priority < pod.priority]
    if not lower:
        return Status(Code.UNRESOLVABLE, "", (NO_VICTIMS,))
    for other in lower:
        node.remove(other)
    refused = node.refused_by()
    if refused is not None:
        return refused
    exceeding, others = budgets.split(by_importance(lower))
    costly = _not_spared(node, exceeding)
    victims = [*costly, *_not_spared(node, others)]
    if exceeding and others:
        victims = by_importance(victims)
    return Victims(tuple(victims), len(costly))


def _not_spared(node: WhatIf, pods: Sequence[PodInfo]) -> list[PodInfo]:
    """Put the pods back in turn; return those beside which there is no room, and leave them off."""
    left_off: list[PodInfo] = []
    for other in pods:
        node.add(other)
        if node.refused_by() is not None:
            node.remove(other)
            left_off.append(other)
    return left_off


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate that does the least harm; there must be one. Of equals the first.

    Harm is measured by: budgets exceeded; the highest priority among the victims; the sum of their priorities; their
    number; how long the most important of them have run.
    Source  framework/preemption/preemption.go, pickOneNodeForPreemption
    """
    return min(candidates, key=_harm)


def _harm(candidate: Candidate) -> tuple[int, int, int, int, float]:
    pods, violations = candidate.victims
    return (
        violations,
        pods[0].priority,
        sum(pod.priority + _LIFT for pod in pods),
        len(pods),
        -earliest_start(pods),
    )
