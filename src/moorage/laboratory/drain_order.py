"""The best order in which to drain nodes one by one.

The best order drains the most nodes, then leaves the fewest pods pending, then makes the fewest evictions wait for a budget.
For up to eight nodes, all orders are tried; orders with equal beginnings share the drains of these. For more nodes, or if
trying all takes too many drains, each next node is the one with the best score after the earlier ones. If that takes too many
as well, or the budget is spent, the remaining nodes follow in the given order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.drain_answer import DrainFindings
from moorage.laboratory.drain_run import DrainRun

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


#: The score of an order that was not tried: any other is better.
_UNKNOWN: Final = OrderScore(10**9, 0, 0)


class FoundOrder(NamedTuple):
    """The best order found, whether all orders were tried, and how many drains of one node the search took."""

    nodes: tuple[str, ...]
    score: OrderScore
    proven: bool
    drains: int


@dataclass
class OrderSearch:
    """Searches in an open transaction, after ``run.begin()``; ``transaction`` opens one inside it.

    ``on_drain`` is called with the number of drains so far.
    """

    run: DrainRun
    transaction: Callable[[], AbstractContextManager[Any]]
    on_drain: Callable[[int], None] | None = None
    budget: TimeBudget = field(default_factory=TimeBudget)

    def __post_init__(self) -> None:
        self._drains = 0
        self._begin()
        self._best: tuple[OrderScore, tuple[str, ...]] | None = None

    def find(self) -> FoundOrder:
        """Return the best order; of equally good ones, the first in the order of the nodes as given.

        If not all orders could be tried, it is the best of those tried and the one found node by node.
        """
        nodes = tuple(self.run.nodes)
        all_tried = len(nodes) <= EXHAUSTIVE
        if all_tried:
            free = tuple(name for name in nodes if self._is_free(name))
            self._visit(free, tuple(name for name in nodes if name not in free))
            all_tried = not self._ended
        if not all_tried:
            self._begin()
            self._extend((), nodes)
        assert self._best is not None
        score, order = self._best
        return FoundOrder(order, score, all_tried or score == OrderScore(0, 0, 0), self._drains)

    def _begin(self) -> None:
        """Begin a search: reset its count of drains."""
        self._drains_before, self._ended = self._drains, False

    def _is_over(self) -> bool:
        """Return True once the present search has reached a limit."""
        self._ended = self._ended or self._drains - self._drains_before >= MOST_DRAINS or self.budget.is_over()
        return self._ended

    def _is_free(self, name: str) -> bool:
        """Return True for a cordoned node without pods to evict, whose position in the order makes no difference."""
        if self.run.plan.returns:
            return False
        with self.transaction():
            turn = self.run.drain_next(name)
        if turn.evictions or not turn.drained:
            self.run.turns.pop()
            return False
        return True

    def _score(self) -> OrderScore:
        """Return the score if no more nodes are drained."""
        with self.transaction():
            self.run.course.advance(None)
            found = DrainFindings(self.run)
            drained = sum(turn.drained for turn in self.run.turns)
            return OrderScore(len(self.run.nodes) - drained, len(found.pending()), found.waited())

    def _next(self, name: str) -> bool:
        self._drains += 1
        if self.on_drain is not None:
            self.on_drain(self._drains)
        return self.run.drain_next(name).drained

    def _keep(self, score: OrderScore, order: tuple[str, ...]) -> None:
        if self._best is None or score < self._best[0]:
            self._best = score, order

    def _is_hopeless(self) -> bool:
        """Return True if no order with this beginning can be better than the best one found."""
        return self._best is not None and OrderScore(0, 0, DrainFindings(self.run).waited()) >= self._best[0]

    def _visit(self, done: tuple[str, ...], rest: tuple[str, ...]) -> None:
        """Try all orders that begin with ``done``."""
        if not rest:
            self._keep(self._score(), done)
            return
        for at, name in enumerate(rest):
            if self._is_over():
                return
            left = (*rest[:at], *rest[at + 1 :])
            with self.transaction():
                drained = self._next(name)
                if not self._is_hopeless():
                    if drained:
                        self._visit((*done, name), left)
                    else:
                        self._keep(self._score(), (*done, name, *left))
            self.run.turns.pop()

    def _extend(self, done: tuple[str, ...], rest: tuple[str, ...]) -> None:
        """Extend the order by the node with the best score, one at a time; after the limit, by the next one as given."""
        if self.budget.is_over():  # the score of this order is not worth the time that it takes
            self._keep(_UNKNOWN, (*done, *rest))
            return
        scores: list[tuple[OrderScore, int]] = []
        for at, name in enumerate(rest[:1] if self._is_over() else rest):
            with self.transaction():
                self._next(name)
                scores.append((self._score(), at))
            self.run.turns.pop()
            if scores[-1][0] == OrderScore(len(rest) - 1, 0, 0):
                break
        score, at = min(scores)
        order, left = (*done, rest[at]), (*rest[:at], *rest[at + 1 :])
        if not left:
            self._keep(score, order)
            return
        with self.transaction():
            if self._next(rest[at]):
                self._extend(order, left)
            else:
                self._keep(score, (*order, *left))
        self.run.turns.pop()
