"""All pending pods together: their causes, the ways to place the pods of each cause, and the changes that place them all.

A way is what places the first pod of a group, made for all its pods: the same correction of each pod, or further nodes, moves
and repairs of the same kind until no more pods get a node. Changes that turn out not to be needed are dropped again. Groups are
treated one after another, each with the way that was chosen for the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from moorage.errors import MoorageError
from moorage.framework.changes import Change
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.change.change_sets import field_of
from moorage.laboratory.change.change_text import command_of, describe
from moorage.laboratory.change.effects import effects_of
from moorage.laboratory.change.least_change import Remedy, find_least_change
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.costs import Costs
from moorage.laboratory.edit.pod_changes import request_of
from moorage.laboratory.explain.explained_changes import ChangeLimits
from moorage.laboratory.trial.trials import Trial, Trials
from moorage.report.explanation import Explanation
from moorage.report.explanation_values import AtomReport
from moorage.report.pending_report import PendingGroup, PendingWay

__all__ = ["PendingSearch", "grouped"]

#: How many ways are tried for a group.
_WAYS: Final = 3
#: The share of the time in which ways are searched for; in the rest they are made for all pods.
_SEARCHED: Final = 0.6
#: With more changes, none is dropped again: that takes a run of the whole group for each.
_MOST_DROPPED: Final = 12


def grouped(found: Iterable[Explanation]) -> list[tuple[str, list[Explanation]]]:
    """Return explanations by cause: pods that the same requirements keep off all nodes, whatever they ask for."""
    held: dict[object, list[Explanation]] = {}
    for one in found:
        terms = one.eligible_conflict or next(iter(one.conflicts), ())
        key: object = (one.outcome, frozenset((term.plugin, term.term) for term in terms)) if terms else _cause(one)
        held.setdefault(key, []).append(one)
    return [(_cause(some[0]), some) for some in held.values()]


def _cause(one: Explanation) -> str:
    """Return the summary without the name of the pod."""
    return one.summary.partition(": ")[2].rstrip(".") or one.summary


class PendingSearch:
    """Finds what to do about the groups of a cluster at rest, in turn. The chosen changes stay made in the cluster."""

    def __init__(self, cluster: Cluster, limits: ChangeLimits) -> None:
        self._cluster = cluster
        self._costs = (limits.costs or Costs()).with_nodes(cluster.present())
        self._limits = replace(limits, costs=self._costs)
        self._is_cut = False  # the time was over before the latest search had ended
        self.placed = 0
        self.runs = 0

    def group(self, cause: str, pods: Sequence[str], budget: TimeBudget) -> PendingGroup:
        """Return what to do about the pods of a group, and do the best of it."""
        before = self._place(pods)
        waiting = [key for key in pods if key not in before]
        self.placed += len(before)
        if not waiting:
            return PendingGroup(cause, tuple(pods), 0)
        ways: list[tuple[PendingWay, list[Change]]] = []
        for remedy in self._remedies(waiting[0], budget.part(_SEARCHED)):
            with self._cluster.transaction():
                made, placed = self._spread(remedy, waiting, budget)
            if 1 < len(made) <= _MOST_DROPPED and not budget.is_over():
                made = self._needed(made, waiting, len(placed))
            if placed:
                ways.append((self._way(remedy, made, len(placed)), made))
        if not ways:
            return PendingGroup(cause, tuple(pods), len(waiting), searched=not self._is_cut)
        best = min(range(len(ways)), key=lambda at: (-ways[at][0].placed, ways[at][0].cost))
        self._make(ways[best][1])
        self.placed += len(self._place(waiting))
        shown = tuple(replace(way, chosen=at == best) for at, (way, _) in enumerate(ways))
        return PendingGroup(cause, tuple(pods), len(waiting), shown)

    def _remedies(self, key: str, budget: TimeBudget) -> list[Remedy]:
        """Return the cheapest remedy of each kind for a pod."""
        limits = self._limits
        found = find_least_change(
            self._trials(key), self._cluster.present(), may=limits.may, alternatives=limits.alternatives,
            probes=limits.probes, costs=limits.costs, budget=budget, all_changes=limits.all_changes,
        )  # fmt: skip
        self.runs += found.runs
        self._is_cut = budget.is_over()
        first: dict[str, Remedy] = {}
        for one in found.remedies:
            first.setdefault(one.kind, one)
        return list(first.values())[:_WAYS]

    def _trials(self, key: str) -> Trials:
        return self._cluster.trials_of(key, self._costs)[0]

    def _spread(self, remedy: Remedy, pods: Sequence[str], budget: TimeBudget) -> tuple[list[Change], list[str]]:
        """Make a remedy of the first pod for all pods. Return the changes, and the pods that have a node then."""
        made: list[Change] = []
        placed: list[str] = []
        for key in pods:
            more = () if self._place([key]) else self._again(remedy, key, made, budget)
            if more is None:
                continue
            made += more
            placed.append(key)
        return made, placed

    def _again(self, remedy: Remedy, key: str, made: Sequence[Change], budget: TimeBudget) -> list[Change] | None:
        """Place a further pod by changes like those of a remedy, and return them; None if that is not possible."""
        known = set(map(field_of, made))
        like = [one for change in remedy.changes if field_of(one := self._for(change, key, made)) not in known]
        if self._try(like, key):
            return like
        if all(one.owner in {"pod", "config"} or one.verb == "add-node" for one in remedy.changes) or budget.is_over():
            return None
        verbs = {one.verb for one in remedy.changes}
        found = find_least_change(
            self._trials(key), self._cluster.present(), may=self._limits.may, alternatives=0,
            probes=self._limits.probes, costs=self._limits.costs, budget=budget, verbs=verbs,
        )  # fmt: skip
        self.runs += found.runs
        return next((list(one.changes) for one in found.remedies if self._try(one.changes, key)), None)

    def _for(self, change: Change, key: str, made: Sequence[Change]) -> Change:
        """Return a change of the first pod as one of another pod; a further node gets a name of its own."""
        if change.owner == "pod" and change.verb != "surge":
            change = replace(change, target=f"pod/{key}")
            if change.verb == "request" and isinstance(change.new, int):
                asked = request_of(self._cluster.pod(key), change.path.removeprefix("requests."))
                change = replace(change, old=asked, new=min(asked, change.new))
        elif change.verb == "add-node":
            taken = {one.target for one in made}
            number = 2
            name = change.target
            while name in taken:
                name, number = f"{change.target}-{number}", number + 1
            change = replace(change, target=name)
        return change

    def _try(self, changes: Sequence[Change], key: str) -> bool:
        """Make changes, and keep them if they place the pod."""
        self.runs += 1
        with self._cluster.transaction() as trial:
            try:
                self._cluster.apply(*changes)
            except MoorageError:
                return False
            if not self._place([key]):
                return False
            trial.commit()
        return True

    def _needed(self, made: list[Change], pods: Sequence[str], number: int) -> list[Change]:
        """Return the changes without those that are not needed for as many pods."""
        kept = list(made)
        for one in made:
            fewer = [other for other in kept if other is not one]
            with self._cluster.transaction():
                self.runs += 1
                self._make(fewer)
                if len(self._place(pods)) >= number:
                    kept = fewer
        return kept

    def _make(self, changes: Sequence[Change]) -> None:
        if changes:
            self._cluster.apply(*changes)

    def _place(self, pods: Sequence[str]) -> list[str]:
        """Try pods in turn. Return those that get a node, some of them after a preemption."""
        return [key for key in pods if self._is_placed(key)]

    def _is_placed(self, key: str) -> bool:
        if self._cluster.pod(key).spec.node_name:
            return True
        (first,) = self._cluster.schedule([key])
        if first.node is None and first.nominated and first.victims:
            self._cluster.apply(*(Change("cluster", "evict", f"pod/{victim}") for victim in first.victims))
            (first,) = self._cluster.schedule([key])
        return first.node is not None

    def _way(self, remedy: Remedy, made: Sequence[Change], placed: int) -> PendingWay:
        priced = [self._costs.price(change) for change in made]
        around = self._cluster.present()
        atoms = tuple(
            AtomReport(one.owner, one.verb, one.target, describe(one), one.cost, one.path, one.old, one.new) for one in priced
        )
        commands = tuple(dict.fromkeys(text for one in made if (text := command_of(one, around))))
        cost = round(sum(one.cost for one in priced), 6)
        effects = tuple(effects_of(made, Trial(), around, self._costs.prices))
        return PendingWay(remedy.kind, cost, remedy.who, atoms, commands, placed, effects=effects)
