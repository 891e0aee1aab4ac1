"""The best order in which to drain nodes one by one.

The best order drains the most nodes, then leaves the fewest pods pending, then makes the fewest evictions wait for a budget.
The nodes are drained in the given order first, so that there is an answer. Then, for up to eight nodes, all orders are tried;
orders with equal beginnings share the drains of these. For more nodes, or if trying all takes too many drains, each next node
is the one with the best score after the earlier ones. If that takes too many as well, the remaining nodes follow in the given
order. The outcome of the best order is read at its end, so that no drain follows once the budget is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moorage.laboratory.budget import BudgetSpentError, TimeBudget
from moorage.laboratory.drain.drain_answer import DrainFindings, DrainOutcome
from moorage.laboratory.drain.drain_run import DrainedCluster, DrainRun

__all__ = ["EXHAUSTIVE", "FoundOrder", "OrderScore", "OrderSearch"]

#: Maximum number of nodes for which all orders are tried.
EXHAUSTIVE: Final = 8
#: Maximum number of drains of one node in each of the two searches.
MOST_DRAINS: Final = 2000


class OrderScore(NamedTuple):
    """The score of an order; a lower one is better."""

    undrained: int
    pending: int
    waits: int


_PERFECT: Final = OrderScore(0, 0, 0)


class FoundOrder(NamedTuple):
    """The outcome of the best order found, whether no order is better, and how many drains of one node the search took."""

    outcome: DrainOutcome
    proven: bool
    drains: int


@dataclass
class OrderSearch:
    """Searches in an open transaction of ``cluster``, after ``run.begin()``.

    ``on_drain`` is called with the number of drains so far.
    """

    run: DrainRun
    cluster: DrainedCluster
    on_drain: Callable[[int], None] | None = None
    budget: TimeBudget = field(default_factory=TimeBudget)

    def __post_init__(self) -> None:
        self._drains = 0
        self._begin()
        self._best: tuple[OrderScore, DrainOutcome] | None = None

    def find(self) -> FoundOrder:
        """Return the best order; of equally good ones, the first in the order of the nodes as given.

        If not all orders could be tried, it is the best of those tried and the one found node by node.
        """
        nodes, all_tried = tuple(self.run.nodes), False
        self._follow(nodes)
        assert self._best is not None
        with suppress(BudgetSpentError), self.cluster.within(self.budget):
            if len(nodes) <= EXHAUSTIVE and self._best[0] > _PERFECT:
                free = tuple(name for name in nodes if self._is_free(name))
                self._begin()
                self._visit(tuple(name for name in nodes if name not in free))
                all_tried = not self._ended
            if not all_tried and self._best[0] > _PERFECT:
                self._begin()
                self.run.turns.clear()
                self._extend(nodes)
        score, outcome = self._best
        return FoundOrder(outcome, all_tried or score == _PERFECT, self._drains)

    def _begin(self) -> None:
        """Begin a search: reset its count of drains."""
        self._drains_before, self._ended = self._drains, False

    def _is_over(self) -> bool:
        """Return True once the present search has taken too many drains.

        Raises  BudgetSpentError
        """
        self.budget.check()
        self._ended = self._ended or self._drains - self._drains_before >= MOST_DRAINS
        return self._ended

    def _is_free(self, name: str) -> bool:
        """Return True for a cordoned node without pods to evict, whose position in the order makes no difference."""
        if self.run.plan.returns:
            return False
        self.budget.check()
        with self.cluster.transaction():
            turn = self.run.drain_next(name)
        if turn.evictions or not turn.drained:
            self.run.turns.pop()
            return False
        return True

    def _follow(self, order: tuple[str, ...]) -> None:
        """Drain the nodes in this order."""
        with self.cluster.transaction():
            for name in order:
                if not self._next(name):
                    break
            self._keep()
        self.run.turns.clear()

    def _score(self) -> OrderScore:
        """Return the score if no more nodes are drained, once the cluster is at rest."""
        found = DrainFindings(self.run)
        drained = sum(turn.drained for turn in self.run.turns)
        return OrderScore(len(self.run.nodes) - drained, len(found.pending()), found.waited())

    def _next(self, name: str) -> bool:
        self._drains += 1
        if self.on_drain is not None:
            self.on_drain(self._drains)
        return self.run.drain_next(name).drained

    def _keep(self) -> None:
        """Keep the outcome if no more nodes are drained, unless that of an earlier order is as good."""
        with self.cluster.transaction():
            self.run.course.advance(None)
            score = self._score()
            if self._best is None or score < self._best[0]:
                self._best = score, DrainFindings(self.run).outcome()

    def _is_hopeless(self) -> bool:
        """Return True if no order with this beginning can be better than the best one found."""
        return self._best is not None and OrderScore(0, 0, DrainFindings(self.run).waited()) >= self._best[0]

    def _visit(self, rest: tuple[str, ...]) -> None:
        """Try all orders of the other nodes."""
        if not rest:
            self._keep()
            return
        for at, name in enumerate(rest):
            if self._is_over():
                return
            with self.cluster.transaction():
                drained = self._next(name)
                if not self._is_hopeless():
                    if drained:
                        self._visit((*rest[:at], *rest[at + 1 :]))
                    else:
                        self._keep()
            self.run.turns.pop()

    def _extend(self, rest: tuple[str, ...]) -> None:
        """Drain the node with the best score next, one after the other; after too many drains, the next one as given."""
        scores: list[tuple[OrderScore, int]] = []
        for at, name in enumerate(rest[:1] if self._is_over() else rest):
            with self.cluster.transaction():
                self._next(name)
                self.run.course.advance(None)
                scores.append((self._score(), at))
            self.run.turns.pop()
            if scores[-1][0] == OrderScore(len(rest) - 1, 0, 0):
                break
        _, at = min(scores)
        left = (*rest[:at], *rest[at + 1 :])
        with self.cluster.transaction():
            if self._next(rest[at]) and left:
                self._extend(left)
            else:
                self._keep()
        self.run.turns.pop()
