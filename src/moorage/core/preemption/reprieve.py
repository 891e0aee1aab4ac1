"""Select the victims on a node: remove all pods of lower priority, then reprieve as many as possible.

If the pod fits without them, they are put back one at a time: first those whose eviction would violate a disruption budget,
then the others, the most important first in both parts. A pod stays if the preemptor still fits; the rest are the victims.
``select_victims`` handles one node, pod by pod. ``select_victims_everywhere`` handles many nodes at once, one pod of each node
at a time, and applies if all active plugins read only sums over pods. Both give the same answers.

Source  kube-scheduler 1.36, plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.core.preemption.disruption_budgets import Budgets
from moorage.core.preemption.row_importance import RankedRows, again_by_importance, by_importance
from moorage.framework.points import WhatIf, WhatIfs
from moorage.framework.verdicts import Code, Status
from moorage.state.view import BoolArray, IntArray, PodInfo

#: kube-scheduler's own text, kept word for word: people search their events for it.
NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOBODY_LESSER: Final = Status(Code.UNRESOLVABLE, "", (NO_VICTIMS,))

_Indices = npt.NDArray[np.intp]


class Victims(NamedTuple):
    """Pods to evict, the most important first; ``exceeding`` are those of them that violate a disruption budget."""

    pods: tuple[PodInfo, ...]
    exceeding: tuple[PodInfo, ...] = ()

    @property
    def violations(self) -> int:
        return len(self.exceeding)


def select_victims(pod: PodInfo, node: WhatIf, budgets: Budgets, *, in_turn: bool = False) -> Victims | Status:
    """Return the victims on a node for ``pod``, or why evicting pods there does not help.

    A victim is a pod that does not fit beside the preemptor and the pods that were put back before it. On return the what-if
    has the victims removed. ``in_turn``: pods that have not started rank as they came, as since 1.37.
    """
    lesser = [other for other in node.node.pods if other.priority < pod.priority]
    if not lesser:
        return NOBODY_LESSER
    for other in lesser:
        node.remove(other)
    refused = node.refused_by()
    if refused is not None:
        return refused
    ranked = by_importance(lesser, in_turn=in_turn)
    exceeding, others = budgets.split(ranked)
    costly = _not_spared(node, exceeding)
    return _victims(costly, _not_spared(node, others), bool(exceeding and others), ranked if in_turn else None)


def _not_spared(node: WhatIf, pods: Sequence[PodInfo]) -> list[PodInfo]:
    """Put the pods back in turn. If the preemptor no longer fits beside one, remove that one again; return those removed."""
    left_off: list[PodInfo] = []
    for other in pods:
        node.add(other)
        if not node.fits():
            node.remove(other)
            left_off.append(other)
    return left_off


def _victims(costly: Sequence[PodInfo], others: Sequence[PodInfo], mixed: bool, in_turn: Sequence[PodInfo] | None) -> Victims:
    """Return victims in order; ``mixed``: some of the lower pods violated a budget and some did not.

    ``in_turn``: the lower pods, if those that have not started rank as they came.
    """
    gone = [*costly, *others]
    if mixed:
        gone = by_importance(gone) if in_turn is None else again_by_importance(gone, in_turn)
    return Victims(tuple(gone), tuple(costly))


@dataclass(frozen=True, slots=True)
class EvictionAnswers:
    """The answers of ``select_victims`` for several nodes: ``statuses[numbers[at]]``, or ``victims[at]`` where the number is 0.

    Shapes  numbers (nodes,)
    """

    numbers: _Indices
    statuses: Sequence[Status | None]
    victims: Mapping[int, Victims]

    def __iter__(self) -> Iterator[Victims | Status]:
        for at, number in enumerate(self.numbers.tolist()):
            yield self.statuses[number] or self.victims[at]

    def statuses_of(self, rows: _Indices) -> Iterator[tuple[Status, _Indices]]:
        """Yield each status of the nodes on these rows, with their rows."""
        for number in np.unique(self.numbers).tolist():
            status = self.statuses[number]
            if status is not None:
                yield status, rows[self.numbers == number]


def select_victims_everywhere(
    pod: PodInfo, nodes: WhatIfs, ranked: RankedRows, rows: _Indices, budgets: Budgets
) -> EvictionAnswers:
    """Return the answers of ``select_victims`` for several nodes, whose pods are given as ``ranked``.

    Shapes  rows (n,), those of ``ranked``: one for each node of ``nodes``
    """
    numbers: _Indices = np.ones(len(rows), dtype=np.intp)
    lesser = _Lesser(pod.priority, ranked)
    if not len(lesser.node):
        return EvictionAnswers(numbers, (None, NOBODY_LESSER), {})
    nodes.shift(lesser.there, -lesser.sums())
    verdicts = nodes.verdicts(lesser.there)
    ids = verdicts.ids[rows[lesser.there]]
    numbers[lesser.there] = np.where(ids, ids + 1, 0)
    statuses = [None, NOBODY_LESSER, *verdicts.statuses[1:]]
    helped = lesser.there[ids == 0]
    if not len(helped):
        return EvictionAnswers(numbers, statuses, {})
    exceeding = _exceeding(lesser, helped, budgets)
    gone = _put_back(nodes, lesser, helped, exceeding)
    return EvictionAnswers(numbers, statuses, dict(zip(helped.tolist(), lesser.victims(helped, gone, exceeding), strict=True)))


class _Lesser:
    """Pods of lower priority on many nodes, node after node, the most important of each node first.

    By pod: ``node`` is the position of its node among the nodes, ``amounts`` what the pod adds to that node's sums. By node:
    its pods are those from ``first`` up to, and without, ``end``. ``there`` are the positions of the nodes that have any.

    Shapes  node (pods,); amounts (pods, 1 + resources); first and end (nodes,)
    """

    def __init__(self, priority: int, ranked: RankedRows) -> None:
        lower = ranked.facts[:, 0] < priority
        nodes = len(ranked.counts)
        self.node: _Indices = np.repeat(np.arange(nodes), ranked.counts)[lower]
        self.amounts: IntArray = ranked.facts[lower, 1:]
        here = np.bincount(self.node, minlength=nodes)
        self._ranked, self._here = ranked, here
        self.there: _Indices = np.flatnonzero(here)
        self.end: _Indices = np.cumsum(here)
        self.first: _Indices = self.end - here

    @cached_property
    def pods(self) -> list[PodInfo]:
        counts = self._here[self.there].tolist()
        return list(chain.from_iterable(self._ranked.pods(at)[-n:] for at, n in zip(self.there.tolist(), counts, strict=True)))

    def sums(self) -> IntArray:
        """Return the sums over the pods of each node in ``there``; shape (len(there), 1 + resources)."""
        return np.add.reduceat(self.amounts, self.first[self.there], axis=0)

    def victims(self, nodes: _Indices, gone: BoolArray, exceeding: BoolArray | None) -> list[Victims]:
        """Return the victims on each node; ``gone`` and ``exceeding`` are masks over the pods."""
        bounds = zip(self.first[nodes].tolist(), self.end[nodes].tolist(), strict=True)
        if exceeding is not None:
            return [self._victims_among(range(first, end), gone, exceeding) for first, end in bounds]
        before = [0, *np.cumsum(gone).tolist()]
        pods = [self.pods[at] for at in np.flatnonzero(gone).tolist()]
        return [Victims(tuple(pods[before[first] : before[end]])) for first, end in bounds]

    def _victims_among(self, here: range, gone: BoolArray, exceeding: BoolArray) -> Victims:
        costly = [self.pods[at] for at in here if gone[at] and exceeding[at]]
        others = [self.pods[at] for at in here if gone[at] and not exceeding[at]]
        mixed = 0 < sum(exceeding[at] for at in here) < len(here)
        return _victims(costly, others, mixed, [self.pods[at] for at in here] if self._ranked.in_turn else None)


def _exceeding(lesser: _Lesser, helped: _Indices, budgets: Budgets) -> BoolArray | None:
    """Return a mask over all pods: True if a pod on a ``helped`` node would violate a budget; None if there is none."""
    if not budgets:
        return None
    exceeding = np.zeros(len(lesser.pods), dtype=bool)
    for first, end in zip(lesser.first[helped].tolist(), lesser.end[helped].tolist(), strict=True):
        over = {id(other) for other in budgets.split(lesser.pods[first:end])[0]}
        if over:
            exceeding[first:end] = [id(other) in over for other in lesser.pods[first:end]]
    return exceeding if exceeding.any() else None


def _put_back(nodes: WhatIfs, lesser: _Lesser, helped: _Indices, exceeding: BoolArray | None) -> BoolArray:
    """Put back one pod at a time on each of the ``helped`` nodes. Return a mask over all pods: True if it did not fit."""
    total = len(lesser.node)
    order = np.arange(total) if exceeding is None else np.lexsort((np.arange(total), ~exceeding, lesser.node))
    turn = np.empty(total, dtype=np.intp)
    turn[order] = np.arange(total) - lesser.first[lesser.node]  # the order keeps each node's pods together
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
