"""Find changes of nodes, or spare nodes, with which a cluster survives every loss; each is verified by runs of every loss.

If a loss is not survived with a set of changes, the set is extended by changes that would place the first pod that stays
pending after that loss. First the cheapest extension is followed to its end, which soon gives a set that works; then sets are
tried in the order of their cost, so that the first one that works is the cheapest.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as msg_field
from itertools import count
from typing import Final

from moorage.basis.printable import counted, one_line, some
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.budget import BudgetSpentError
from moorage.laboratory.change.change_requests import ChangeRequests
from moorage.laboratory.change.change_sets import combined, sort_key
from moorage.laboratory.change.change_text import describe, node_command
from moorage.laboratory.change.least_change import ChangeSearch, SearchFront
from moorage.laboratory.change.offers import ChangeSet
from moorage.laboratory.costs import Costs
from moorage.laboratory.survive.failures import NodeFailures
from moorage.laboratory.survive.survival import SurvivalRun
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.cluster_trials import ClusterTrials
from moorage.report.survival_report import (
    NodeLoss,
    SpareReport,
    SurvivalFix,
)

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
