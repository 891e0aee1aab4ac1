"""CrossNodePreemption: evict pods of several nodes, where those of one node do not help.

A pod may be kept off a node by pods elsewhere, as by spread constraints or anti-affinity in a zone. This plugin tries sets of
lesser pods, whatever nodes they are on, the smallest sets first, and nominates a node of the set that fits then.

Source  scheduler-plugins 903da7df82cb, pkg/crossnodepreemption, where it is a sample
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import Final

from moorage.core.preemption.own_victims import nominate_best
from moorage.framework.points import Attempt, PostFilterPlugin, PostFilterResult
from moorage.framework.verdicts import Code, fit_error
from moorage.state.view import PodInfo
from moorage_scheduler_plugins.eligibility import why_not

#: The most sets that are tried for a pod; upstream tries all, whose number doubles with each pod.
_MOST_SETS: Final = 4096

#: A pod and the row of its node.
Placed = tuple[int, PodInfo]


class CrossNodePreemption(PostFilterPlugin):
    name = "CrossNodePreemption"

    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult:
        if text := why_not(pod, attempt):
            return PostFilterResult(Code.UNSCHEDULABLE, (f"preemption: {text}",))
        table, rows = attempt.snapshot.table, attempt.verdicts.rows_with(Code.UNSCHEDULABLE)
        lesser = [(int(row), other) for row in rows for other in table.pods[row].values() if other.priority < pod.priority]
        for count in range(1, len(lesser) + 1):
            found = [
                (row, [other for _, other in gone]) for gone in _sets(lesser, count) for row in _rows_that_fit(attempt, gone)
            ]
            if found:
                return nominate_best(pod, attempt, found)
        return PostFilterResult(Code.UNSCHEDULABLE, (f"preemption: {fit_error(attempt.verdicts)}",))


def _sets(lesser: Sequence[Placed], count: int) -> Iterator[tuple[Placed, ...]]:
    return islice(combinations(lesser, count), _MOST_SETS)


def _rows_that_fit(attempt: Attempt, gone: Sequence[Placed]) -> Iterator[int]:
    """Yield the rows of nodes with one of these pods on which the pod fits without all of them."""
    for row in dict.fromkeys(row for row, _ in gone):
        with attempt.what_if(row) as node:
            for other_row, other in gone:
                if other_row == row:
                    node.remove(other)
                else:
                    node.miss(other_row, other)
            if node.fits():
                yield row
