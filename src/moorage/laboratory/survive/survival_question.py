"""Ask what happens when nodes are lost, and whether the cluster survives the loss of each node, zone or domain."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from dataclasses import field as msg_field
from itertools import count
from typing import Final

from msgspec import Struct, field

from moorage.basis.printable import counted, one_line, some
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.budget import BudgetSpentError, TimeBudget
from moorage.laboratory.change.change_requests import ChangeRequests
from moorage.laboratory.change.change_sets import combined, sort_key
from moorage.laboratory.change.change_text import describe, node_command
from moorage.laboratory.change.least_change import ChangeSearch, SearchFront
from moorage.laboratory.change.offers import ChangeSet
from moorage.laboratory.costs import Costs
from moorage.laboratory.drain.drain_question import check_nodes
from moorage.laboratory.survive.failures import FailureMode, NodeFailures, class_of
from moorage.laboratory.survive.survival import Losses, SurvivalRun, failure_domains, worst_of
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.cluster_trials import ClusterTrials
from moorage.laboratory.trial.history import Ran
from moorage.report.answer import AnswerRequest, Assumption, Proof
from moorage.report.survival_report import (
    FailureReport,
    NodeLoss,
    SpareReport,
    Survival,
    SurvivalFix,
    failure_summary,
    survival_summary,
)

_MODES = {
    "deleted": "the node objects and their pods are gone at once",
    "unreachable": "the nodes are tainted at once; their pods are deleted when their tolerations end, and their objects stay",
}


class SurvivalAsked(Struct, frozen=True):
    """The parameters of the question.

    ``over``         ``node``, ``zone`` or a label
    ``depth``        2: every two of them as well
    ``fix_probes``   how many losses the search for a fix may compute; 0 leaves the fix out
    ``processes``    compute losses in so many processes, where the system can fork; ``executor``: or with this
    ``spare``        find the fewest nodes like this one that let every loss be survived, up to ``spare_most``
    ``budget``       ends the losses, then the search for spare nodes or a fix, when it is spent
    """

    over: str = "node"
    depth: int = 1
    fix_probes: int = 2000
    spare: str = ""
    spare_most: int = 20
    processes: int = 1
    executor: Executor | None = None
    budget: TimeBudget = field(default_factory=TimeBudget)


def fitting_mode(cluster: AskedCluster, nodes: Sequence[str]) -> FailureMode:
    """Return how nodes in this state are lost: one that is not ready has its object still, and pods that wait to be evicted."""
    table = cluster.simulation.scheduler.cluster.table
    return "deleted" if any(table.nodes[table.row_of[name]].is_ready for name in nodes) else "unreachable"


def nodes_of_zone(cluster: AskedCluster, zone: str) -> tuple[str, ...]:
    """Return the names of the nodes in a zone.

    Raises  InputError for a zone without nodes
    """
    domains, _ = failure_domains(cluster.simulation.nodes_in_order(), "zone")
    for domain in domains:
        if domain.name == zone:
            return domain.nodes
    raise InputError(one_line(f"zone: no node is in {zone!r}; zones: {', '.join(one.name for one in domains) or 'none'}"))


def failure_report(
    cluster: AskedCluster, request: AnswerRequest, nodes: Sequence[str], mode: FailureMode | None = None, lost: str = ""
) -> FailureReport:
    """Return what happens when nodes are lost. Nothing changes.

    ``mode``: None for the one that fits: ``unreachable`` if no node of these is ready, or else ``deleted``

    Raises  InputError for a node that is not there
    """
    check_nodes(cluster, nodes)
    mode = mode or fitting_mode(cluster, nodes)
    with cluster.transaction():
        cluster._step(Ran(None))
        failures = NodeFailures(cluster)
        loss = failures.lose(lost or " + ".join(nodes), nodes, mode, follows=True)
    return FailureReport(
        request=request,
        summary=one_line(failure_summary(loss)),
        proof=Proof("run", runs=1),
        assumptions=(Assumption("mode", f"{mode}: {_MODES[mode]}"),),
        mode=mode,
        loss=loss,
    )


def survival_report(
    cluster: AskedCluster, request: AnswerRequest, asked: SurvivalAsked, on_loss: Callable[[NodeLoss], None] | None = None
) -> Survival:
    """Return whether a cluster survives the loss of each node, zone or domain. Nothing changes.

    Raises  InputError for a label that no node has
    """
    if asked.spare:
        check_nodes(cluster, [asked.spare])
    budget = asked.budget.part()
    run = SurvivalRun(cluster, asked.over, asked.depth, on_loss, asked.processes, asked.executor, budget)
    with cluster.transaction():
        run.rest()
        before = tuple(pod.key for pod in cluster.simulation.pending_pods())
        losses, certain = run.losses(), run.certain
        priorities = _priorities(cluster)
    if not losses.is_complete:
        left = losses.of - len(losses.all)
        budget.leave("what the other loss does" if left == 1 else f"what the other {left:,} losses do")
    spare = _spare(cluster, run, asked)
    fix, searched = _fix(cluster, run, losses, asked)
    return Survival(
        request=request,
        summary=one_line(survival_summary(asked.over, losses.all, losses.of)),
        proof=Proof("run" if losses.is_complete else "bounded", runs=run.computed),
        assumptions=(Assumption("mode", f"deleted: {_MODES['deleted']}"),),
        stopped=budget.stopped,
        over=asked.over,
        survives=losses.survived,
        failures=losses.all,
        certain=certain,
        not_run=losses.of - len(losses.all),
        unknown=losses.unknown,
        worst=worst_of(losses.all, lambda name: priorities.get(name, 0)),
        pending_before=before,
        without=losses.without,
        fix=fix,
        fix_searched=searched,
        spare=spare,
    )


def _priorities(cluster: AskedCluster) -> dict[str, int]:
    pods = cluster.simulation.pods.values()
    return {class_of(pod): pod.priority for pod in pods}


def _fix(cluster: AskedCluster, run: SurvivalRun, losses: Losses, asked: SurvivalAsked) -> tuple[SurvivalFix | None, bool]:
    """Return a fix, and whether one was searched for."""
    if losses.survived or not losses.is_complete or not asked.fix_probes or losses.computed > asked.fix_probes:
        return None, False
    with cluster.transaction():
        return FixSearch(run, cluster, asked.fix_probes).find(), True


def _spare(cluster: AskedCluster, run: SurvivalRun, asked: SurvivalAsked) -> SpareReport | None:
    if not asked.spare:
        return None
    if run.budget.is_interrupted or run.budget.left_s <= 0:
        run.budget.leave(f"how many spare nodes like {asked.spare} are enough")
        return None
    with cluster.transaction():
        return find_spare(run, asked.spare, asked.spare_most)


# -- survival fix ------------------------------------------------------------------------------------------------------
# Find changes of nodes, or spare nodes, with which a cluster survives every loss; each is verified by runs of every loss.
#
# If a loss is not survived with a set of changes, the set is extended by changes that would place the first pod that stays
# pending after that loss. First the cheapest extension is followed to its end, which soon gives a set that works; then sets are
# tried in the order of their cost, so that the first one that works is the cheapest.

#: Changes of nodes that are offered.
_VERBS: Final = frozenset(["uncordon", "label", "untaint", "add-node"])
#: Maximum number of ways to place a pod that are tried, and of engine runs to find them.
_WAYS, _PROBES = 4, 200
#: Maximum number of extensions of the set that is followed first.
_STEPS: Final = 32
_ALONE: Final = {"uncordon": "Uncordoning", "label": "Labelling", "untaint": "Untainting", "add-node": "Adding"}


@dataclass
class FixSearch:
    """Searches in an open transaction, before the pending pods are placed. ``most``: how many losses may be computed."""

    run: SurvivalRun
    cluster: AskedCluster
    most: int
    costs: Costs = msg_field(default_factory=Costs)

    def __post_init__(self) -> None:
        self._began = self.run.computed
        self._requests = ChangeRequests(self.cluster.present())
        #: The losses that were not survived with earlier sets, the latest first.
        self._order: list[str] = []
        #: Sets that were tried, with their extensions; None: every loss is survived.
        self._known: dict[ChangeSet, list[ChangeSet] | None] = {}
        self._first: ChangeSet | None = None

    @property
    def is_spent(self) -> bool:
        return self.run.computed - self._began >= self.most

    def find(self) -> SurvivalFix | None:
        """Return the cheapest set of changes that was found; None if none was found."""
        try:
            with self.run.cluster.within(self.run.budget):
                self._follow()
                cheapest = self._cheapest()
        except BudgetSpentError:
            cheapest = None
            wanted = "changes that let every loss be survived" if self._first is None else "a cheaper fix"
            self.run.budget.leave(f"{wanted} ({counted(len(self._known), 'set')} of changes tried)")
        best = self._first if cheapest is None else cheapest
        return None if best is None else self._fix(best)

    def _follow(self) -> None:
        """Follow the cheapest extension of each set until every loss is survived, or no extension helps."""
        changes: ChangeSet = frozenset()
        for _ in range(_STEPS):
            more = self._extensions(changes)
            if more is None:
                self._first = changes
            if not more or self.is_spent:
                return
            changes = min(more, key=lambda one: (self._cost(one), sort_key(one)))

    def _cheapest(self) -> ChangeSet | None:
        """Return the cheapest set with which every loss is survived; None if there is none, or if the search ended before."""
        below = float("inf") if self._first is None else self._cost(self._first)
        serial = count()
        heap: list[tuple[float, object, int, ChangeSet]] = [(0.0, (), next(serial), frozenset())]
        seen: set[ChangeSet] = {frozenset()}
        while heap and not self.is_spent:
            changes = heapq.heappop(heap)[-1]
            more = self._extensions(changes)
            if more is None:
                return changes
            for one in more:
                if one not in seen and self._cost(one) <= below:
                    seen.add(one)
                    heapq.heappush(heap, (self._cost(one), sort_key(one), next(serial), one))
        return None

    def _cost(self, changes: Iterable[Change]) -> float:
        return round(sum(map(self.costs.cost_of, changes)), 6)

    def _extensions(self, changes: ChangeSet) -> list[ChangeSet] | None:
        """Return larger sets with which the first loss is survived that is not with this set; None if all losses are."""
        if changes not in self._known:
            self._known[changes] = self._extended(changes)
        return self._known[changes]

    def _extended(self, changes: ChangeSet) -> list[ChangeSet] | None:
        with self.run.cluster.transaction():
            try:
                self._apply(changes)
            except InputError:
                return []
            failed = self.run.first_failed(self._order)
            if failed is None:
                return None
            self._order = [failed.lost, *(name for name in self._order if name != failed.lost)]
            return [more for way in self._ways(failed) if (more := combined(changes, way)) is not None and more != changes]

    def _apply(self, changes: Iterable[Change]) -> None:
        ordered = sorted(changes, key=lambda one: (one.verb, one.target, one.path))
        if ordered:
            self.run.cluster.apply(*ordered)
        self.run.rest()

    def _ways(self, loss: NodeLoss) -> list[ChangeSet]:
        """Return changes of nodes that would place the first pod that is pending after a loss."""
        if not loss.pending:
            return []
        failures = NodeFailures(self.run.cluster)
        with self.run.cluster.transaction():
            failures.lose(loss.lost, loss.nodes)
            trials = ClusterTrials(self.cluster, loss.pending[0])
            search = ChangeSearch.over(trials, (), probes=_PROBES, costs=self.costs, verbs=_VERBS)
            search.budget, search.requests, search.judges = self.run.budget, self._requests, True
            front = SearchFront(search, ["node", "cluster"])
            front.find(_WAYS)
            self.run.budget.check()
        return [some for one in front.answers for some in (one.changes, *one.alike)]

    def _fix(self, changes: ChangeSet) -> SurvivalFix:
        cost = self._cost(changes)
        ordered = sorted(changes, key=lambda one: (self.costs.cost_of(one), describe(one)))
        notes: tuple[str, ...] = ()
        try:
            with self.run.cluster.within(self.run.budget):
                notes = tuple(self._notes(ordered))
        except BudgetSpentError:
            self.run.budget.leave("what the first change of the fix does alone")
        return SurvivalFix(cost, tuple(map(describe, ordered)), tuple(_commands(ordered)), notes)

    def _notes(self, changes: Sequence[Change]) -> Iterable[str]:
        """Yield a note on the effect of the first change alone."""
        if len(changes) < 2:
            return
        before = self._pending()
        with self.run.cluster.transaction():
            self._apply(changes[:1])
            placed = [key for key in before if key not in self._pending()]
            losses = self.run.losses()
        if not losses.is_complete:
            raise BudgetSpentError
        bad = [loss for loss in losses.all if loss.pending]
        if not bad:
            return
        what = "any" if len(bad) == len(losses.all) > 1 else some([loss.lost for loss in bad])
        domain = (
            f" {self.run.over}" if what == "any" and self.run.over in {"node", "zone"} else " of them" if what == "any" else ""
        )
        most = max(len(loss.pending) for loss in bad)
        first = f"{_ALONE.get(changes[0].verb, 'Changing')} only {changes[0].target.partition('/')[2]}"
        then = f"places {some([key.removeprefix('default/') for key in placed])}, but then" if placed else "is not enough:"
        yield one_line(f"{first} {then} losing {what}{domain} leaves {counted(most, 'pod')} pending.")

    def _pending(self) -> list[str]:
        """Return the pods that are pending without a loss, once the cluster is at rest."""
        with self.run.cluster.transaction():
            self.run.rest()
            return [pod.key for pod in self.run.cluster.simulation.pending_pods()]


def _commands(changes: Sequence[Change]) -> list[str]:
    """Return kubectl commands; one for all nodes that change alike."""
    alike: dict[str, list[str]] = {}
    for change in changes:
        command, name = node_command(change), change.target.partition("/")[2]
        if command:
            alike.setdefault(command.replace(f" {name}", " \0", 1), []).append(name)
    return [command.replace("\0", " ".join(names)) for command, names in alike.items()]


def find_spare(run: SurvivalRun, like: str, most: int) -> SpareReport:
    """Return the smallest number of empty nodes like one with which every loss is survived, counting upward."""
    order: list[str] = []
    for number in range(most + 1):
        try:
            failed = _failed_with(run, like, number, order)
        except BudgetSpentError:
            run.budget.leave(f"how many spare nodes like {like} are enough")
            return SpareReport(like, number - 1)
        if failed is None:
            return SpareReport(like, number, number)
        order = [failed.lost, *(name for name in order if name != failed.lost)]
    return SpareReport(like, most)


def _failed_with(run: SurvivalRun, like: str, number: int, order: Sequence[str]) -> NodeLoss | None:
    """Return a loss that is not survived with this number of spare nodes.

    Raises  BudgetSpentError
    """
    with run.cluster.transaction(), run.cluster.within(run.budget):
        names = [f"{like}-spare-{at}" for at in range(1, number + 1)]
        changes = [Change("cluster", "add-node", f"node/{name}", "like", None, f"like {like}") for name in names]
        if changes:
            run.cluster.apply(*changes)
        run.rest()
        return run.first_failed(order)
