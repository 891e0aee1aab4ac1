"""Who has to go on a node so that a pod fits there, and who can stay.

All pods of lower priority are taken away. If the pod fits then, they are put back one at a time, those that a disruption budget
protects first, the more important first among these and among the others, and stay if the pod still fits. The rest are the
victims. ``select_victims`` does so on one node, pod by pod; ``select_victims_everywhere`` on many at once, a pod of each
node at a time, where sums over pods are all that matters. Both give the same answers.

Source  kube-scheduler 1.36, plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.cycle.disruption import Budgets
from moorage.cycle.importance import by_importance
from moorage.cycle.ranking import RankedPods
from moorage.framework.points import WhatIf, WhatIfs
from moorage.framework.verdicts import Code, Status
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo

__all__ = ["NOBODY_LESSER", "NO_VICTIMS", "Victims", "select_victims", "select_victims_everywhere"]

#: kube-scheduler's own text, kept word for word: people search their events for it.
NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOBODY_LESSER: Final = Status(Code.UNRESOLVABLE, "", (NO_VICTIMS,))

_Indices = npt.NDArray[np.intp]


class Victims(NamedTuple):
    """Pods that have to go, the most important first; ``exceeding`` are those of them that exceed a disruption budget."""

    pods: tuple[PodInfo, ...]
    exceeding: tuple[PodInfo, ...] = ()

    @property
    def violations(self) -> int:
        return len(self.exceeding)


def select_victims(pod: PodInfo, node: WhatIf, budgets: Budgets) -> Victims | Status:
    """Return the pods on a node that have to go for ``pod``, or why nothing there helps.

    None of them could be spared without evicting one that is more important, or that a budget protects, instead. The what-if is
    left with the victims gone.
    """
    lesser = [other for other in node.node.pods if other.priority < pod.priority]
    if not lesser:
        return NOBODY_LESSER
    for other in lesser:
        node.remove(other)
    refused = node.refused_by()
    if refused is not None:
        return refused
    exceeding, others = budgets.split(by_importance(lesser))
    costly = _not_spared(node, exceeding)
    return _victims(costly, _not_spared(node, others), bool(exceeding and others))


def _not_spared(node: WhatIf, pods: Sequence[PodInfo]) -> list[PodInfo]:
    """Put the pods back in turn; return those beside which there is no room, and leave them off."""
    left_off: list[PodInfo] = []
    for other in pods:
        node.add(other)
        if not node.fits():
            node.remove(other)
            left_off.append(other)
    return left_off


def _victims(costly: Sequence[PodInfo], others: Sequence[PodInfo], mixed: bool) -> Victims:
    """Put victims in order; ``mixed`` if both sorts of pods were there to begin with."""
    gone = [*costly, *others]
    return Victims(tuple(by_importance(gone) if mixed else gone), tuple(costly))


def select_victims_everywhere(
    pod: PodInfo, nodes: WhatIfs, ranked: Sequence[RankedPods], rows: _Indices, budgets: Budgets
) -> list[Victims | Status]:
    """Return what ``select_victims`` would of each of the nodes, whose pods are given as ``ranked``.

    Shapes  ranked and rows: one for each node of ``nodes``
    """
    answers: list[Victims | Status] = [NOBODY_LESSER] * len(ranked)
    lesser = _Lesser(pod.priority, ranked)
    if not len(lesser.pods):
        return answers
    nodes.shift(lesser.there, -lesser.sums())
    verdicts = nodes.verdicts(lesser.there)
    ids = verdicts.ids[rows[lesser.there]]
    for at, known in zip(lesser.there[ids != 0].tolist(), ids[ids != 0].tolist(), strict=True):
        answers[at] = verdicts.statuses[known] or NOBODY_LESSER
    helped = lesser.there[ids == 0]
    exceeding = _exceeding(lesser, helped, budgets)
    gone = _put_back(nodes, lesser, helped, exceeding)
    for at, victims in zip(helped.tolist(), lesser.victims(helped, gone, exceeding), strict=True):
        answers[at] = victims
    return answers


class _Lesser:
    """Pods of lower priority on many nodes, node after node, the most important of each node first.

    ``node`` is the position of each pod's node, ``amounts`` what it adds to the sums; ``there`` are the nodes that have any,
    ``first`` and ``end`` say of every node where its pods are.
    """

    def __init__(self, priority: int, ranked: Sequence[RankedPods]) -> None:
        counts = np.array([len(held.pods) for held in ranked])
        facts = np.concatenate([held.facts for held in ranked])
        lower = facts[:, 0] < priority
        self.node: _Indices = np.repeat(np.arange(len(ranked)), counts)[lower]
        self.amounts: IntArray = facts[lower, 1:]
        here = np.bincount(self.node, minlength=len(ranked))
        self.pods = list(
            chain.from_iterable(held.pods[len(held.pods) - n :] for held, n in zip(ranked, here.tolist(), strict=True) if n)
        )
        self.there: _Indices = np.flatnonzero(here)
        self.end: _Indices = np.cumsum(here)
        self.first: _Indices = self.end - here

    def sums(self) -> IntArray:
        """What the pods of each of the nodes that have any add up to; shape (len(there), 1 + resources)."""
        return np.add.reduceat(self.amounts, self.first[self.there], axis=0)

    def victims(self, nodes: _Indices, gone: BoolArray, exceeding: BoolArray | None) -> list[Victims]:
        """Return the victims on each of the nodes; ``gone`` and ``exceeding`` say of each pod whether it is one."""
        bounds = zip(self.first[nodes].tolist(), self.end[nodes].tolist(), strict=True)
        if exceeding is not None:
            return [self._victims_among(range(first, end), gone, exceeding) for first, end in bounds]
        before = [0, *np.cumsum(gone).tolist()]
        pods = [self.pods[at] for at in np.flatnonzero(gone).tolist()]
        return [Victims(tuple(pods[before[first] : before[end]])) for first, end in bounds]

    def _victims_among(self, here: range, gone: BoolArray, exceeding: BoolArray) -> Victims:
        costly = [self.pods[at] for at in here if gone[at] and exceeding[at]]
        others = [self.pods[at] for at in here if gone[at] and not exceeding[at]]
        return _victims(costly, others, 0 < sum(exceeding[at] for at in here) < len(here))


def _exceeding(lesser: _Lesser, helped: _Indices, budgets: Budgets) -> BoolArray | None:
    """Say of each pod on the nodes that can help whether it exceeds a budget; None if none does."""
    if not budgets:
        return None
    exceeding = np.zeros(len(lesser.pods), dtype=bool)
    for first, end in zip(lesser.first[helped].tolist(), lesser.end[helped].tolist(), strict=True):
        over = {id(other) for other in budgets.split(lesser.pods[first:end])[0]}
        if over:
            exceeding[first:end] = [id(other) in over for other in lesser.pods[first:end]]
    return exceeding if exceeding.any() else None


def _put_back(nodes: WhatIfs, lesser: _Lesser, helped: _Indices, exceeding: BoolArray | None) -> BoolArray:
    """Put back a pod on each node at a time; return which do not fit in, of all pods. Those of other nodes are left off."""
    total = len(lesser.pods)
    order = np.arange(total) if exceeding is None else np.lexsort((np.arange(total), ~exceeding, lesser.node))
    turn = np.empty(total, dtype=np.intp)
    turn[order] = np.arange(total) - lesser.first[lesser.node]  # a node's pods keep their places as a block
    helping = np.zeros(len(lesser.first), dtype=bool)
    helping[helped] = True
    pods = np.flatnonzero(helping[lesser.node])
    pods = pods[np.argsort(turn[pods], kind="stable")]
    gone = np.zeros(total, dtype=bool)
    for chosen in np.split(pods, np.cumsum(np.bincount(turn[pods]))[:-1]) if len(pods) else ():
        at = lesser.node[chosen]
        nodes.shift(at, lesser.amounts[chosen])
        out = chosen[~nodes.fits(at)]
        nodes.shift(lesser.node[out], -lesser.amounts[out])
        gone[out] = True
    return gone
