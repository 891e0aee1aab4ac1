"""Find the cheapest set of nodes with which kube-scheduler places all pods.

Sets are tried from the bound upwards. The result for one set does not imply one for a larger set: greedy placement is not
monotone, so with one more node, a pod may stay pending that was placed before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Final

from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.plan.plan_packing import NodeTrials, best_offer
from moorage.laboratory.plan.plan_problem import PlanProblem
from moorage.laboratory.trial.trials import SpreadTrials

Counts = tuple[int, ...]
#: Maximum number of sets to generate when searching for those that may be enough.
_MOST: Final = 200_000
_EPSILON: Final = 1e-9
#: How often nodes are added without more placed pods before they count as useless for the pending pods.
_IDLE: Final = 3
#: How many sets a search looks ahead.
_AHEAD: Final = 256


@dataclass(frozen=True, slots=True)
class FoundSet:
    """A verified set. ``least``: every cheaper set that could be enough was tried, and left a pod pending.

    ``left``: the pods that stay pending even so
    """

    counts: Counts
    cost: float
    least: bool
    left: tuple[str, ...] = ()


@dataclass
class _IdleSteps:
    """The fewest pods that stayed pending so far, and how often nodes were added since without fewer of them."""

    fewest: float = math.inf
    idle: int = 0

    def note(self, left: int) -> None:
        """Note how many pods stay pending after nodes were added."""
        self.idle = 0 if left < self.fewest else self.idle + 1
        self.fewest = min(self.fewest, left)


@dataclass
class SetSearch:
    """A search with a budget. ``tried`` has the pods that stayed pending, by set and order."""

    problem: PlanProblem
    trials: NodeTrials
    prices: Sequence[float]
    bound: float
    least_nodes: int
    time: TimeBudget
    #: The budget of repairs, without which there is no answer.
    repairs: TimeBudget
    progress: Callable[[str], None] = lambda text: None
    #: What a set may cost at most.
    budget: float = math.inf
    tried: dict[tuple[Counts, str], tuple[str, ...]] = field(default_factory=dict)
    #: Tries several sets at once; None: they are tried one after the other.
    spread: SpreadTrials | None = None

    def cost(self, counts: Sequence[int]) -> float:
        return round(sum(price * count for price, count in zip(self.prices, counts, strict=True)), 9)

    @property
    def is_over(self) -> bool:
        return self.time.is_over()

    def pending(self, counts: Counts, order: str = "asGiven") -> tuple[str, ...]:
        """Return the pods that stay pending with a set."""
        key = counts, order
        if key not in self.tried:
            self.progress(f"trying {sum(counts)} nodes for {self.cost(counts):g} …")
            self.tried[key] = self.trials.pending(counts, order)
        return self.tried[key]

    def _try_ahead(self, turns: Sequence[Counts]) -> None:
        """Try the next sets in parallel, if there are workers. The first set in order that is enough counts."""
        if self.spread is None or (turns[0], "asGiven") in self.tried:
            return
        ahead = [counts for counts in turns[: 4 * self.spread.workers] if (counts, "asGiven") not in self.tried]
        ahead = ahead[: self.spread.workers]
        self.progress(f"trying {len(ahead)} sets of nodes …")
        for counts, left in zip(ahead, self.spread.pending(ahead), strict=True):
            self.tried[counts, "asGiven"] = left

    def find(self, start: Counts, first: Counts = ()) -> FoundSet | None:
        """Return the cheapest verified set that is found in time: ``start`` is a packing, ``first`` is tried before."""
        if len(self.problem.offers) == 1:
            return self._scan()
        nothing = (0,) * len(start)
        if self.bound <= _EPSILON and not self.pending(nothing):
            return FoundSet(nothing, 0.0, least=True)
        if first and not self.pending(first):
            cost = self.cost(first)
            return FoundSet(first, cost, least=True) if cost <= self.bound + _EPSILON else self._improved(first)
        counts = self.repaired(start)
        return None if counts is None else self._improved(counts)

    def _improved(self, counts: Counts) -> FoundSet:
        """Return the cheapest verified set that is found from a verified one."""
        while not self.is_over:
            cheaper = self._cheaper_neighbour(counts)
            if cheaper is None:
                break
            counts = cheaper
        return self._proven(counts)

    # -- when not all pods can be placed ---------------------------------------------------------------------------------

    def best_part(self) -> FoundSet:
        """Return the set with which the fewest pods stay pending, of those the cheapest that was found.

        Nodes are added for pending pods until the types' limits or the budget are reached, or until more nodes place no more.
        """
        counts, steps = (0,) * len(self.problem.offers), _IdleSteps()
        while left := self.pending(counts):
            steps.note(self._missed(left))
            more = self._for(left, counts)
            if more is None or steps.idle >= _IDLE or self.is_over:
                break
            counts = more
        within = [one for one, order in self.tried if order == "asGiven" and self.cost(one) <= self.budget + _EPSILON]
        counts = min(within, key=lambda one: (self._missed(self.pending(one)), self.cost(one), one))
        most = self._missed(self.pending(counts))
        for o in sorted(range(len(counts)), key=lambda at: -self.prices[at]):
            while counts[o] and not self.is_over:
                fewer = (*counts[:o], counts[o] - 1, *counts[o + 1 :])
                if self._missed(self.pending(fewer)) > most:
                    break
                counts = fewer
        return FoundSet(counts, self.cost(counts), least=False, left=self.trials.verified(counts))

    def _missed(self, left: Iterable[str]) -> int:
        """Return how many of the pods to place are among those that stay pending."""
        return len(self._asked.intersection(left))

    @cached_property
    def _asked(self) -> frozenset[str]:
        return frozenset([pod.key for shape in self.problem.shapes for pod in shape.pods])

    # -- one type --------------------------------------------------------------------------------------------------------

    def _scan(self) -> FoundSet | None:
        """Try one number after the other, from the bound."""
        offer, price = self.problem.offers[0], self.prices[0]
        by_cost = int(-(-(self.bound - _EPSILON) // price)) if price else 0
        first = max(self.least_nodes, by_cost, 0)
        most = first + sum(shape.count for shape in self.problem.shapes)
        for limit in self.problem.limits:
            weight = limit.weights.get(offer.type.name, 0.0)
            most = min(most, int(limit.most // weight)) if weight else most
        steps = _IdleSteps()
        for number in range(first, most + 1):
            self._try_ahead([(count,) for count in range(number, min(most, number + _AHEAD) + 1)])
            left = self.pending((number,))
            if not left:
                return FoundSet((number,), self.cost((number,)), least=True)
            steps.note(len(left))
            idle = steps.idle == _IDLE + len(offer.zones)
            if self.is_over or (idle and len(self.pending((min(most, number + len(left)),))) >= steps.fewest):
                return None
        return None

    # -- several types ---------------------------------------------------------------------------------------------------

    def repaired(self, start: Counts, *orders: str) -> Counts | None:
        """Add nodes to a set until all pods are placed, in the real order and in others."""
        counts = start
        wanted = ("asGiven", *orders)
        for _ in range(sum(shape.count for shape in self.problem.shapes) + 1):
            left = next((left for order in wanted if (left := self.pending(counts, order))), ())
            if not left:
                return counts
            more = self._for(left, counts)
            if more is None or (self.is_over and orders) or self.repairs.is_over():
                return None
            counts = more
        return None

    def _for(self, pending: Sequence[str], counts: Counts) -> Counts | None:
        """Return the set with more nodes for the pending pods: each is the one that takes the most of them for its price."""
        keys = set(pending)
        left = [sum(pod.key in keys for pod in shape.pods) for shape in self.problem.shapes]
        if not any(left):  # evicted pods are pending
            left = [1] * len(left)
        wider = list(counts)
        while any(left):
            found = best_offer(self.problem, self.prices, left, wider, self.budget - self.cost(wider) + _EPSILON)
            if found is None:
                break
            wider[found[0]] += 1
            left = [count - taken for count, taken in zip(left, found[1], strict=True)]
        return None if tuple(wider) == counts else tuple(wider)

    def _cheaper_neighbour(self, counts: Counts) -> Counts | None:
        """Return a verified set that differs from one in a few nodes, and costs less."""
        return self._first_enough(set(self._neighbours(counts)))

    def _first_enough(self, candidates: Iterable[Counts]) -> Counts | None:
        """Return a verified set; None if there is none, or none was found in time.

        The cheapest candidates and those with the most room take turns: the former save most, the latter are likely enough.
        """
        held = list(candidates)
        by_cost = sorted(held, key=lambda one: (self.cost(one), one))
        by_room = sorted(held, key=lambda one: (-self._room(one), self.cost(one), one))
        turns = list(dict.fromkeys(one for pair in zip(by_cost, by_room, strict=True) for one in pair))
        for at, candidate in enumerate(turns):
            if self.is_over:
                return None
            self._try_ahead(turns[at : at + _AHEAD])
            if not self.pending(candidate):
                return candidate
        return None

    def _room(self, counts: Counts) -> float:
        """Return the room of a set as a share of the needed amount, for the scarcest resource."""
        problem = self.problem
        shares = []
        for name in problem.resources:
            need = sum(shape.needs.get(name, 0) * shape.count for shape in problem.shapes)
            room = problem.spare.get(name, 0)
            room += sum(each.get(name, 0) * n for each, n in zip(problem.room, counts, strict=True))
            shares.append(room / need if need else 1e9)
        return min(shares, default=1.0)

    def _neighbours(self, counts: Counts) -> Iterator[Counts]:
        """Yield sets with up to two nodes less, and up to two others instead, that cost less and may be enough."""
        now = self.cost(counts)
        changes = [change for change in product((-2, -1, 0, 1, 2), repeat=len(counts)) if -2 <= min(change) < 0]
        for change in changes if len(counts) <= 5 else _few_changes(len(counts)):
            candidate = tuple(count + by for count, by in zip(counts, change, strict=True))
            if sum(map(abs, change)) <= 4 and self._may_do(candidate, now):
                yield candidate

    def _may_do(self, counts: Counts, below: float) -> bool:
        """Return True for a set that costs less, is within the limits, and has enough room in sum."""
        if min(counts) < 0 or not self.bound - _EPSILON <= self.cost(counts) < below - _EPSILON:
            return False
        problem = self.problem
        if any(problem.counted(limit, counts) > limit.most for limit in problem.limits):
            return False
        for name in problem.resources:
            need = sum(shape.needs.get(name, 0) * shape.count for shape in problem.shapes)
            free = problem.spare.get(name, 0)
            if need > free + sum(room.get(name, 0) * n for room, n in zip(problem.room, counts, strict=True)):
                return False
        return True

    def _proven(self, counts: Counts) -> FoundSet:
        """Try all cheaper sets while there is time; restart from one that is enough."""
        while self.cost(counts) > self.bound + _EPSILON:
            cheaper = self._all_cheaper(self.cost(counts))
            found = None if cheaper is None else self._first_enough(cheaper)
            if found is None:
                tried = cheaper is not None and all((one, "asGiven") in self.tried for one in cheaper)
                return FoundSet(counts, self.cost(counts), least=tried)
            counts = found
        return FoundSet(counts, self.cost(counts), least=True)

    def _all_cheaper(self, below: float) -> list[Counts] | None:
        """Return every set that costs less and may be enough; None if there are too many."""
        found: list[Counts] = []
        steps = 0
        stack: list[tuple[Counts, float]] = [((), 0.0)]
        while stack:
            counts, spent = stack.pop()
            steps += 1
            if steps > _MOST or not all(self.prices):
                return None
            if len(counts) == len(self.prices):
                if self._may_do(counts, below):
                    found.append(counts)
                continue
            price = self.prices[len(counts)]
            stack += [((*counts, n), spent + n * price) for n in range(int((below - spent) / price) + 1)]
        return found


def _few_changes(offers: int) -> Iterator[Counts]:
    """Yield changes by up to two nodes less of one offer and up to two more of another."""
    for less, more in product(range(offers), repeat=2):
        for gone, come in product((1, 2), (0, 1, 2)):
            change = [0] * offers
            change[less] -= gone
            change[more] += come if more != less else 0
            yield tuple(change)
