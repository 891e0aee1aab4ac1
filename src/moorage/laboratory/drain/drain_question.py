"""Ask what a drain would do: place the pending pods, drain the nodes in virtual time, and roll everything back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moorage.api.core import Object, Pod
from moorage.api.workloads import DaemonSet, PodDisruptionBudget
from moorage.basis.printable import one_line, some
from moorage.errors import InputError
from moorage.laboratory.budget import BudgetSpentError, TimeBudget
from moorage.laboratory.drain.drain_outcome import DrainFindings, DrainOutcome
from moorage.laboratory.drain.drain_run import DrainPlan, DrainRun
from moorage.laboratory.drain.virtual_drain import DrainCourse
from moorage.laboratory.edit.edits import no_such_node
from moorage.laboratory.inventory import Inventory
from moorage.laboratory.survive.failures import NodeFailures
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.history import Ran
from moorage.report.answer import AnswerRequest, Assumption, Proof, Stopped
from moorage.report.drain_report import DrainReport, LossInstead, drain_summary
from moorage.simulator.allowed_disruptions import BudgetBook

# The best order in which to drain nodes one by one.
#
# The best order drains the most nodes, then leaves the fewest pods pending, then makes the fewest evictions wait for a
# budget. The nodes are drained in the given order first, so that there is an answer. Then, for up to eight nodes, all orders
# are tried; orders with equal beginnings share the drains of these. For more nodes, or if trying all takes too many drains,
# each next node is the one with the best score after the earlier ones. If that takes too many as well, the remaining nodes
# follow in the given order. The outcome of the best order is read at its end, so that no drain follows once the budget is
# spent.

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
    cluster: AskedCluster
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
                # no order with this beginning can be better than the best one found if it waits as often
                if self._best is None or OrderScore(0, 0, DrainFindings(self.run).waited()) < self._best[0]:
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


def drain_report(
    cluster: AskedCluster,
    request: AnswerRequest,
    nodes: Sequence[str],
    plan: DrainPlan,
    *,
    find_order: bool = False,
    on_drain: Callable[[int], None] | None = None,
    budget: TimeBudget | None = None,
) -> DrainReport:
    """Return what a drain of nodes would do. Nothing changes.

    ``on_drain`` is called as the search for an order goes on, and ``budget`` ends that search.

    Raises  InputError for a node that is not there
    """
    check_nodes(cluster, nodes)
    search = TimeBudget() if budget is None else budget.part()
    with cluster.transaction():
        cluster._step(Ran(None))
        course = course_of(cluster, plan)
        failures = NodeFailures(cluster)
        with cluster.transaction():
            loss = failures.lose(" + ".join(nodes), nodes)
        if_lost = LossInstead(loss.moves, loss.pending, loss.lost_for_good)
        found: FoundOrder | None = None
        with cluster.transaction():
            daemon_sets = frozenset(obj.key for obj in cluster._aside.values() if isinstance(obj, DaemonSet))
            run = DrainRun(course, plan, daemon_sets, nodes)
            if find_order and len(nodes) > 1:
                run.begin()
                found = OrderSearch(run, cluster, on_drain, search).find()
                outcome = found.outcome
            else:
                run.run()
                outcome = DrainFindings(run).outcome()
    fields = outcome.fields
    return DrainReport(
        request=request,
        summary=one_line(drain_summary(fields["nodes"], fields["pods"], fields["pending"])),
        proof=_proof(found),
        stopped=_stopped(search, found),
        assumptions=tuple(_assumptions(plan, outcome)),
        if_lost=if_lost,
        **fields,
    )


def check_nodes(cluster: AskedCluster, nodes: Sequence[str]) -> None:
    """Raise InputError for names that no node has, and for names given twice."""
    known = cluster.simulation.scheduler.cluster.table.row_of
    for name in nodes:
        if name not in known:
            raise InputError(no_such_node(name, known))
    if len(set(nodes)) < len(nodes):
        raise InputError("a node is named twice")
    if not nodes:
        raise InputError("no node is named")


def course_of(cluster: AskedCluster, plan: DrainPlan) -> DrainCourse:
    """Return the course of a drain that begins in the present state."""
    state = cluster.simulation.scheduler.cluster

    def find(kind: type[Object], namespace: str, name: str) -> Object | None:
        return Inventory(cluster.simulation, cluster._aside).find(kind, namespace, name)

    read = [obj for obj in cluster._history.objects if isinstance(obj, Pod)]
    book = BudgetBook(state.objects(PodDisruptionBudget).values(), find, read)
    placed = frozenset(uid for uid, pod in cluster.simulation.pods.items() if pod.spec.node_name)
    return DrainCourse(cluster, book, plan.rules, placed)


def _stopped(budget: TimeBudget, found: FoundOrder | None) -> Stopped | None:
    if found is None or found.proven or budget.stopped is None:
        return None
    budget.leave(f"a better order of the nodes ({found.drains:,} drains of a node were tried)")
    return budget.stopped


def _proof(found: FoundOrder | None) -> Proof:
    if found is None:
        return Proof("run", runs=2)
    return Proof("exhaustive" if found.proven else "bounded", runs=found.drains + 1)


def _assumptions(plan: DrainPlan, outcome: DrainOutcome) -> Iterator[Assumption]:
    """Yield the assumptions of the answer: facts that are not in the input."""
    yield Assumption("readyAfter", f"{plan.rules.ready_after_s:g}s")
    yield Assumption("pods that are placed before the drain", "ready, unless their Ready condition says otherwise")
    yield Assumption("grace periods", "every pod uses all of its own" if plan.rules.grace_period_s < 0 else "as asked for")
    if any(pod.budget for pod in outcome.fields["pods"]):
        yield Assumption("evictions at the same time", "by namespace and name; kubectl takes them in any order")
    if len(outcome.fields["nodes"]) > 1 and plan.manner == "one-by-one":
        yield Assumption("the next node", "its drain begins as soon as the pods of the one before are gone, as kubectl does")
    if outcome.absent_owners:
        missing = some(outcome.absent_owners)
        yield Assumption("controllers that are not in the input", f"they exist and replace their pods: {missing}")
