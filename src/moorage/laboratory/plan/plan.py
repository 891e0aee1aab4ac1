"""Find which nodes to buy so that kube-scheduler places all pods, and a lower bound of their cost.

The answer has two numbers: the cost that any scheduler needs, by an integer program, and the cost that kube-scheduler needs,
verified by runs of the engine. They differ, because kube-scheduler places one pod after the other and spreads them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any, Final

from moorage.api.core import Pod
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.plan.node_types import ZONE, NodeType, TypeLimit, limits_of, offers_of_types, policies_of
from moorage.laboratory.plan.plan_bound import CostBound, cost_bound, has_solver, least_count
from moorage.laboratory.plan.plan_packing import ORDERS, NodePacking, NodeTrials, pack_nodes
from moorage.laboratory.plan.plan_problem import PlanProblem, state_problem
from moorage.laboratory.plan.plan_search import FoundSet, SetSearch
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.trials import SpreadTrials
from moorage.report.answer import AnswerRequest, Assumption, Proof
from moorage.report.plan import LeftPods, NodePlan, NodeSet, UnplaceablePods, WhyNot

_EPSILON: Final = 1e-9
_OTHERS: Final = "pods of the new nodes' DaemonSets, or evicted for pods of higher priority"
#: Shares of the time that is left for the bound, the packing, and the search.
_BOUND, _PACKING, _SEARCH = 0.15, 0.25, 0.75


def _silent(text: str) -> None:
    del text


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
    progress: Callable[[str], None] = field(default=_silent)
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
        offers = list(offers_of_types(question.types, nodes))
        limits = (*limits_of(question.types), *question.limits)
        whole = state_problem(cluster, question.pods, offers, self.policies, limits)
        self.unplaceable = [_unplaceable(whole, s) for s in whole.impossible]
        self.problem = _without(whole, whole.impossible)
        self.prices = [1.0 if question.objective == "nodes" else offer.type.price for offer in self.problem.offers]

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
        fields |= {} if packing is None else {"packing": self._set(packing.counts, search), "packing_proven": packing.proven}
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
            "nodes": sets["asGiven"].nodes,
            "per_zone": self._zones(found.counts),
            "cost": found.cost,
            "verified": {order: sets[order].cost if order in sets else None for order in ORDERS},
            "sets": sets,
            "gap": None if found.left else _gap(found.cost, bound.cost or 0.0),
            "left": left,
            "used": used,
            "preempted": evicted,
        }

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
        if not has_solver():
            found.append(Assumption("solver", "none installed (the extra 'plan'): the bound is that of single resources"))
        return [*found, *self.question.assumptions]


def _gap(cost: float, least: float) -> float | None:
    """Return how far a cost is above the lower bound, as a share of the bound; None above a bound of 0."""
    if least > _EPSILON:
        return round(cost / least - 1, 6)
    return 0.0 if cost <= _EPSILON else None


def _unplaceable(problem: PlanProblem, s: int) -> UnplaceablePods:
    shape = problem.shapes[s]
    why = tuple(WhyNot(one.offer, one.plugin, one.reason) for one in problem.misfits if one.shape == s)
    requests = {name: need for name, need in shape.needs.items() if name != "pods"}
    return UnplaceablePods(tuple(pod.key for pod in shape.pods), requests, why)


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
    )
