"""Find which nodes to buy so that kube-scheduler places all pods, and a lower bound of their cost.

The answer has two numbers: the cost that any scheduler needs, by an integer program, and the cost that kube-scheduler needs,
verified by runs of the engine. They differ, because kube-scheduler places one pod after the other and spreads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any, Final

from moorage.api.core import Pod
from moorage.laboratory.linear_programs import has_solver
from moorage.laboratory.new_nodes import policies_of
from moorage.laboratory.node_types import ZONE, NodeType, offers_of_types
from moorage.laboratory.plan_bound import CostBound, cost_bound, least_count
from moorage.laboratory.plan_packing import NodePacking, pack_nodes
from moorage.laboratory.plan_problem import PlannedCluster, PlanProblem, state_problem
from moorage.laboratory.plan_search import FoundSet, SetSearch
from moorage.laboratory.plan_trials import ORDERS, NodeTrials
from moorage.laboratory.spread_trials import SpreadTrials
from moorage.report.answer import AnswerRequest, Assumption, Proof
from moorage.report.plan import NodePlan
from moorage.report.plan_values import NodeSet, UnplaceablePods, WhyNot

__all__ = ["PlanQuestion", "plan_of"]

_EPSILON: Final = 1e-9
#: Shares of the time limit for the bound, the packing, and the search.
_BOUND, _PACKING, _SEARCH = 0.15, 0.35, 0.8


def _silent(text: str) -> None:
    del text


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What to plan.

    ``pods``   the pods to place, in order; ``whole_queue``: they are all pending pods
    ``types``  the types to buy; ``objective`` is ``price`` or ``nodes``
    ``clock``  returns seconds, for the time limit
    ``executor``  tries several sets of nodes at once; with enough time, the answer is the same
    """

    pods: tuple[Pod, ...]
    types: tuple[NodeType, ...]
    clock: Callable[[], float]
    objective: str = "price"
    time_limit_s: float = 30.0
    unit: str = ""
    whole_queue: bool = True
    executor: Executor | None = None
    progress: Callable[[str], None] = field(default=_silent)


def plan_of(cluster: PlannedCluster, request: AnswerRequest, question: PlanQuestion) -> NodePlan:
    """Return which nodes to buy. The cluster is unchanged afterwards.

    Raises  InputError
    """
    return _Planning(cluster, request, question).answer()


class _Planning:
    """One plan: the problem, its bound, a packing, and the search."""

    def __init__(self, cluster: PlannedCluster, request: AnswerRequest, question: PlanQuestion) -> None:
        self.cluster, self.request, self.question = cluster, request, question
        self.begin = question.clock()
        question.progress("looking at pods and types …")
        nodes = list(cluster.simulation.scheduler.snapshot.table.nodes)
        self.policies = policies_of(cluster.objects())
        offers = list(offers_of_types(question.types, nodes))
        whole = state_problem(cluster, question.pods, offers, self.policies)
        self.unplaceable = [_unplaceable(whole, s) for s in whole.impossible]
        self.problem = _without(whole, whole.impossible)
        self.prices = [1.0 if question.objective == "nodes" else offer.type.price for offer in self.problem.offers]

    def _until(self, share: float) -> float:
        """Return the seconds until a share of the time limit is over, at least 0.2."""
        return max(0.2, self.begin + share * self.question.time_limit_s - self.question.clock())

    def answer(self) -> NodePlan:
        question = self.question
        question.progress("bounding the cost …")
        bound = cost_bound(self.problem, self.prices, self._until(_BOUND))
        packing = None if bound.cost is None else self._packed()
        wanted = [pod for shape in self.problem.shapes for pod in shape.pods]
        uids = {pod.metadata.uid for pod in wanted}
        pods = [pod for pod in question.pods if pod.metadata.uid in uids]
        trials = NodeTrials(self.cluster, self.problem, pods, self.policies, whole_queue=question.whole_queue)
        search = SetSearch(
            self.problem, trials, self.prices, bound.cost or 0.0, least_count(self.problem), question.clock,
            self.begin + _SEARCH * question.time_limit_s, self.begin + question.time_limit_s, question.progress,
            spread=self._spread(pods),
        )  # fmt: skip
        found = None if packing is None else search.find(packing.counts, bound.counts)
        plan = NodePlan(
            request=self.request, summary="", unit=question.unit, pods=len(question.pods),
            priced=question.objective == "price" and any(one.price != 1.0 for one in question.types),
            lower_bound=bound.cost, bound_kind=bound.kind, unplaceable=tuple(self.unplaceable),
            assumptions=tuple(self._assumptions()), status=self._status(bound, packing, found),
        )  # fmt: skip
        fields = {"left": _left(search)} if found is None else self._found(found, bound, search)
        fields |= {} if packing is None else {"packing": self._set(packing.counts, search), "packing_proven": packing.proven}
        proof = Proof("bound" if fields.get("gap") == 0 else "exhaustive" if found is not None and found.least else "run")
        others = search.spread
        runs, probes = (
            (trials.runs, trials.probes) if others is None else (trials.runs + others.runs, trials.probes + others.probes)
        )
        proof = Proof(proof.kind, runs=runs, probes=probes, lower_bound=bound.cost)
        return plan.with_values(**fields, proof=proof)

    def _spread(self, pods: Sequence[Pod]) -> SpreadTrials | None:
        executor = self.question.executor
        if executor is None:
            return None
        return SpreadTrials(executor, self.cluster, self.problem, pods, self.policies, whole_queue=self.question.whole_queue)

    def _packed(self) -> NodePacking | None:
        self.question.progress("packing …")
        packing = pack_nodes(self.problem, self.prices, self._until(_PACKING), self.question.clock)
        if packing is None and not self.problem.shapes:
            return NodePacking((0,) * len(self.problem.offers), 0.0, proven=True)
        return packing

    def _status(self, bound: CostBound, packing: NodePacking | None, found: FoundSet | None) -> str:
        if self.unplaceable or bound.cost is None or packing is None:
            return "impossible"
        if found is None:
            return "undecided"
        return "optimal" if found.least or found.cost <= bound.cost + _EPSILON else "gap"

    # -- what was found --------------------------------------------------------------------------------------------------

    def _found(self, found: FoundSet, bound: CostBound, search: SetSearch) -> dict[str, Any]:
        if search.trials.pending(found.counts):
            raise AssertionError("a verified set fails when it is run again")
        used, evicted = search.trials.used, search.trials.evicted
        search.end_s = self.begin + self.question.time_limit_s
        sets = {"asGiven": self._set(found.counts, search)}
        for order in ORDERS[1:]:
            also = found.counts if not search.pending(found.counts, order) else search.repaired(found.counts, order)
            if also is not None:
                sets[order] = self._set(also, search)
        least = bound.cost or 0.0
        return {
            "nodes": sets["asGiven"].nodes,
            "per_zone": self._zones(found.counts),
            "cost": found.cost,
            "verified": {order: sets[order].cost if order in sets else None for order in ORDERS},
            "sets": sets,
            "gap": round(found.cost / least - 1, 6) if least > _EPSILON else (0.0 if found.cost <= _EPSILON else None),
            "used": used,
            "preempted": evicted,
        }

    def _set(self, counts: Sequence[int], search: SetSearch) -> NodeSet:
        nodes: Counter[str] = Counter()
        for offer, count in zip(self.problem.offers, counts, strict=True):
            nodes[offer.type.name] += count
        pending: dict[str, int] = {}
        for order in ORDERS:
            if not search.is_over or (tuple(counts), order) in search.tried:
                pending[order] = len(search.pending(tuple(counts), order))
        return NodeSet(search.cost(counts), {name: count for name, count in nodes.items() if count}, pending)

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
        return found


def _left(search: SetSearch) -> tuple[str, ...]:
    """Return the pods that stay pending with the set that leaves the fewest."""
    return min((left for (_, order), left in search.tried.items() if order == "asGiven"), key=len, default=())


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
