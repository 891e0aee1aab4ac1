"""Find which nodes to buy so that kube-scheduler places all pods, and a lower bound of their cost.

The answer has two numbers: the cost that any scheduler needs, by an integer program, and the cost that kube-scheduler needs,
verified by runs of the engine. They differ, because kube-scheduler places one pod after the other and spreads them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import cached_property
from itertools import product
from typing import Any, Final

from moorage.api.core import Pod
from moorage.laboratory.budget import TimeBudget, silent
from moorage.laboratory.change.change_requests import ChangeRequests
from moorage.laboratory.plan.node_types import ZONE, NodeType, Offer, TypeLimit, limits_of, offers_of_types, policies_of
from moorage.laboratory.plan.plan_bound import CostBound, cost_bound, has_solver, least_count
from moorage.laboratory.plan.plan_packing import NodePacking, best_offer, pack_nodes, real_packing
from moorage.laboratory.plan.plan_problem import PlanProblem, state_problem
from moorage.laboratory.plan.plan_trials import ORDERS, NodeTrials
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.trials import SpreadTrials
from moorage.report.answer import AnswerRequest, Assumption, Proof
from moorage.report.plan import CheaperSet, LeftPods, NodePlan, NodeSet, UnplaceablePods, WhyNot

_EPSILON: Final = 1e-9
_OTHERS: Final = "pods of the new nodes' DaemonSets, or evicted for pods of higher priority"
#: Shares of the time that is left for the bound, the packing, and the search.
_BOUND, _PACKING, _SEARCH = 0.15, 0.25, 0.75


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What to plan.

    ``pods``   the pods to place, in order; ``whole_queue``: they are all pending pods
    ``types``  the types to buy; ``objective`` is ``price`` or ``nodes``; ``limits``: of types together
    ``budget`` what the nodes may cost at most
    ``time``   ends the searches when it is spent
    ``executor``  tries several sets of nodes at once; with enough time, the answer is the same
    """

    pods: tuple[Pod, ...]
    types: tuple[NodeType, ...]
    time: TimeBudget
    objective: str = "price"
    unit: str = ""
    whole_queue: bool = True
    executor: Executor | None = None
    progress: Callable[[str], None] = field(default=silent)
    budget: float = math.inf
    limits: tuple[TypeLimit, ...] = ()
    assumptions: tuple[Assumption, ...] = ()


def plan_of(cluster: AskedCluster, request: AnswerRequest, question: PlanQuestion) -> NodePlan:
    """Return which nodes to buy. The cluster is unchanged afterwards.

    Raises  InputError
    """
    return _Planning(cluster, request, question).answer()


class _Planning:
    """One plan: the problem, its bound, a packing, and the search."""

    def __init__(self, cluster: AskedCluster, request: AnswerRequest, question: PlanQuestion) -> None:
        self.cluster, self.request, self.question = cluster, request, question
        self.time = question.time.part()
        question.progress("looking at pods and types …")
        nodes = list(cluster.simulation.scheduler.snapshot.table.nodes)
        self.policies = policies_of(cluster.objects())
        self.refused: dict[str, str] = {}
        offers = self._accepted(offers_of_types(question.types, nodes))
        limits = (*limits_of(question.types), *question.limits)
        whole = state_problem(cluster, question.pods, offers, self.policies, limits)
        self.unplaceable: list[UnplaceablePods] = []
        for s in whole.impossible:
            requests = {name: need for name, need in whole.shapes[s].needs.items() if name != "pods"}
            why = tuple(WhyNot(one.offer, one.plugin, one.reason) for one in whole.misfits if one.shape == s)
            self.unplaceable.append(UnplaceablePods(tuple(pod.key for pod in whole.shapes[s].pods), requests, why))
        self.problem = _without(whole, whole.impossible)
        self.prices = [1.0 if question.objective == "nodes" else offer.type.price for offer in self.problem.offers]

    def _accepted(self, offers: Iterable[Offer]) -> list[Offer]:
        """Return the offers whose nodes the admission policies of the input accept as they are."""
        around = self.cluster.present()
        if around.written is None:
            return list(offers)
        requests, kept = ChangeRequests(around), []
        for offer in offers:
            why = requests.why_not_registered(offer.node(0))
            if why:
                self.refused[offer.type.name] = why
            else:
                kept.append(offer)
        return kept

    def answer(self) -> NodePlan:
        question = self.question
        question.progress("bounding the cost …")
        bound = cost_bound(self.problem, self.prices, self.time.part(_BOUND))
        packing = None if bound.cost is None or bound.cost > question.budget + _EPSILON else self._packed()
        wanted = [pod for shape in self.problem.shapes for pod in shape.pods]
        uids = {pod.metadata.uid for pod in wanted}
        pods = [pod for pod in question.pods if pod.metadata.uid in uids]
        trials = NodeTrials(self.cluster, self.problem, pods, self.policies, whole_queue=question.whole_queue)
        search = SetSearch(
            self.problem, trials, self.prices, bound.cost or 0.0, least_count(self.problem),
            self.time.part(_SEARCH), self.time.part(), question.progress, question.budget, spread=self._spread(pods),
        )  # fmt: skip
        found = None if packing is None else search.find(packing.counts, bound.counts)
        in_time = search.time.stopped is None and search.repairs.stopped is None
        if found is None or found.cost > question.budget + _EPSILON:
            found = search.best_part()
        plan = NodePlan(
            request=self.request, summary="", unit=question.unit, pods=len(question.pods),
            priced=question.objective == "price" and any(one.price != 1.0 for one in question.types),
            lower_bound=bound.cost, bound_kind=bound.kind, unplaceable=tuple(self.unplaceable),
            assumptions=tuple(self._assumptions()), status=self._status(bound, found, in_time=in_time),
        )  # fmt: skip
        fields = self._found(found, bound, search)
        real = None if packing is None else real_packing(self.problem, self.prices, self.time.part(_PACKING), packing)
        if real is not None and (found.left or real.cost <= found.cost + _EPSILON):  # else the verified set packs better
            fields |= {"packing": self._set(real.counts, search), "packing_proven": real.proven}
        proof = Proof("bound" if fields.get("gap") == 0 else "exhaustive" if found.least else "run")
        others = search.spread
        runs, probes = (
            (trials.runs, trials.probes) if others is None else (trials.runs + others.runs, trials.probes + others.probes)
        )
        proof = Proof(proof.kind, runs=runs, probes=probes, lower_bound=bound.cost)
        if self.time.stopped is not None:
            self.time.leave("a set of nodes that places all pods" if found.left else "a cheaper set of nodes")
        return plan.with_values(**fields, proof=proof, stopped=self.time.stopped)

    def _spread(self, pods: Sequence[Pod]) -> SpreadTrials | None:
        executor = self.question.executor
        if executor is None:
            return None
        return SpreadTrials(executor, self.cluster, self.problem, pods, self.policies, whole_queue=self.question.whole_queue)

    def _packed(self) -> NodePacking | None:
        self.question.progress("packing …")
        packing = pack_nodes(self.problem, self.prices, self.time.part(_PACKING))
        if packing is None and not self.problem.shapes:
            return NodePacking((0,) * len(self.problem.offers), 0.0, proven=True)
        return packing

    def _status(self, bound: CostBound, found: FoundSet, *, in_time: bool) -> str:
        asked = {pod.key for pod in self.question.pods}
        stays = len(asked.intersection(found.left)) + sum(len(one.pods) for one in self.unplaceable)
        if found.left and not in_time and not self.unplaceable:
            return "undecided"
        if stays or found.left:
            return "partial" if stays < len(asked) else "impossible"
        return "optimal" if found.least or found.cost <= (bound.cost or 0.0) + _EPSILON else "gap"

    # -- what was found --------------------------------------------------------------------------------------------------

    def _found(self, found: FoundSet, bound: CostBound, search: SetSearch) -> dict[str, Any]:
        # The last run of a part was that of this set.
        if not found.left and search.trials.verified(found.counts):
            raise AssertionError("a verified set fails when it is run again")
        used, evicted, left = search.trials.used, search.trials.evicted, self._left(found, search)
        search.time = search.repairs
        sets = {"asGiven": self._set(found.counts, search)}
        for order in () if found.left else ORDERS[1:]:
            also = found.counts if not search.pending(found.counts, order) else search.repaired(found.counts, order)
            if also is not None:
                sets[order] = self._set(also, search)
        return {
            "nodes": sets["asGiven"].nodes, "per_zone": self._zones(found.counts), "cost": found.cost, "sets": sets,
            "verified": {order: sets[order].cost if order in sets else None for order in ORDERS},
            "gap": None if found.left else _gap(found.cost, bound.cost or 0.0),
            "left": left, "used": used, "preempted": evicted, "cheaper": self._cheaper(found, search),
        }  # fmt: skip

    def _cheaper(self, found: FoundSet, search: SetSearch) -> CheaperSet | None:
        """Return the set that costs far less for almost as many pods, of those that were tried; None if there is none."""
        few = max(len(search.asked) // 20, len(search.asked) >= _MANY)
        tried = [(search.asked.intersection(left) - set(found.left), counts) for (counts, order), left in search.tried.items()
                 if order == "asGiven" and search.cost(counts) <= _FAR_LESS * found.cost]  # fmt: skip
        left, counts = min(tried, key=lambda one: (len(one[0]), search.cost(one[1]), one[1]), default=(search.asked, ()))
        if not 0 < len(left) <= few:
            return None
        return CheaperSet(search.cost(counts), {name: n for name, n in self._by_type(counts).items() if n}, tuple(sorted(left)))

    def _left(self, found: FoundSet, search: SetSearch) -> tuple[LeftPods, ...]:
        """Return the pods that stay pending with a set, by what prevents more nodes from placing them."""
        shapes = {pod.key: s for s, shape in enumerate(self.problem.shapes) for pod in shape.pods}
        groups: dict[tuple[tuple[str, ...], str], list[str]] = {}
        for key in found.left:
            why = tuple(self._limits(shapes[key], found, search)) if key in shapes else (_OTHERS,)
            groups.setdefault((why, search.trials.messages.get(key, "")), []).append(key)
        return tuple(LeftPods(tuple(pods), why, message) for (why, message), pods in groups.items())

    def _limits(self, s: int, found: FoundSet, search: SetSearch) -> Iterator[str]:
        """Yield why no more nodes are bought for a shape."""
        useful = {offer.type.name: (o, price) for o, (offer, price, fits)
                  in enumerate(zip(self.problem.offers, self.prices, self.problem.fits, strict=True)) if fits[s]}  # fmt: skip
        useless, told = [], set()
        for name, (o, price) in useful.items():
            text = self.problem.reached(found.counts, o)
            if text:
                if text not in told:
                    yield text
                told.add(text)
            elif found.cost + price > self.question.budget + _EPSILON:
                yield f"{name}: one more would cost more than the budget of {self.question.budget:g}"
            else:
                useless.append(name)
        if useless:
            tried = max(sum(counts) for counts, _ in search.tried)
            yield f"more nodes of {', '.join(useless)} place no other pod; tried with up to {tried} new nodes"
        if not useful:
            yield "no type offers what they need"

    def _set(self, counts: Sequence[int], search: SetSearch) -> NodeSet:
        nodes = self._by_type(counts)
        pending: dict[str, int] = {}
        for order in ORDERS:
            if not search.is_over or (tuple(counts), order) in search.tried:
                pending[order] = len(search.pending(tuple(counts), order))
        return NodeSet(search.cost(counts), {name: count for name, count in nodes.items() if count}, pending)

    def _by_type(self, counts: Sequence[int]) -> Counter[str]:
        """Return how many nodes of each type a set has."""
        nodes: Counter[str] = Counter()
        for offer, count in zip(self.problem.offers, counts, strict=True):
            nodes[offer.type.name] += count
        return nodes

    def _zones(self, counts: Sequence[int]) -> Mapping[str, Mapping[str, int]]:
        found: dict[str, Counter[str]] = {}
        for offer, count in zip(self.problem.offers, counts, strict=True):
            for number in range(count if offer.zones else 0):
                found.setdefault(offer.type.name, Counter())[offer.node(number).labels[ZONE]] += 1
        return {name: dict(zones) for name, zones in found.items()}

    def _assumptions(self) -> list[Assumption]:
        found = [Assumption("new nodes", "ready, empty but for DaemonSet pods, with zones in turn")]
        found += (Assumption(f"type {name}", f"left out: {why}") for name, why in self.refused.items())
        if not has_solver():
            found.append(Assumption("solver", "none installed (the extra 'plan'): the bound is that of single resources"))
        return [*found, *self.question.assumptions]


def _gap(cost: float, least: float) -> float | None:
    """Return how far a cost is above the lower bound, as a share of the bound; None above a bound of 0."""
    if least > _EPSILON:
        return round(cost / least - 1, 6)
    return 0.0 if cost <= _EPSILON else None


def _without(problem: PlanProblem, shapes: Sequence[int]) -> PlanProblem:
    """Return the problem without shapes that fit nowhere, and without offers that none of the remaining shapes fits."""
    kept = [s for s in range(len(problem.shapes)) if s not in shapes]
    offers = [o for o, row in enumerate(problem.fits) if any(row[s] for s in kept)] or list(range(len(problem.offers)))[:1]
    return with_fields(
        problem,
        shapes=tuple(problem.shapes[s] for s in kept),
        offers=tuple(problem.offers[o] for o in offers),
        room=tuple(problem.room[o] for o in offers),
        fits=tuple(tuple(problem.fits[o][s] for s in kept) for o in offers),
        held=tuple(with_fields(one, fits=tuple(one.fits[s] for s in kept)) for one in problem.held),
        existing=tuple(with_fields(one, fits=tuple(one.fits[s] for s in kept)) for one in problem.existing),
    )


# -- plan search -------------------------------------------------------------------------------------------------------
# Find the cheapest set of nodes with which kube-scheduler places all pods.
#
# Sets are tried from the bound upwards. The result for one set does not imply one for a larger set: greedy placement is not
# monotone, so with one more node, a pod may stay pending that was placed before.

Counts = tuple[int, ...]
#: Maximum number of sets to generate when searching for those that may be enough.
_MOST: Final = 200_000
#: How often nodes are added without more placed pods before they count as useless for the pending pods.
_IDLE: Final = 3
#: A set that costs at most this share is far cheaper: it is named if it leaves a twentieth of the pods, or one of so many.
_FAR_LESS: Final = 0.7
_MANY: Final = 10
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
            cheaper = self._first_enough(set(self._neighbours(counts)))
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
        return len(self.asked.intersection(left))

    @cached_property
    def asked(self) -> frozenset[str]:
        """The keys of the pods to place."""
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
