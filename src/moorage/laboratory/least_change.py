"""The least change that places a pod: the cheapest sets of changes, each verified by a run of the engine.

The search is a shortest-path search over sets of changes. It starts with no change. For a set that does not place the pod, the
plugins say for each node what would lift their refusals, and every combination is queued by its cost. Sets are tried in the
order of their cost, so that the first that works is the least, as far as the plugins know the changes that help.

Each owner gets answers of their own. An answer that takes several owners is given only if it costs less than what any of them
can do alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice, product
from math import prod
from typing import Final, TypeAlias, get_args

from msgspec import Struct

from moorage.api.core import Pod
from moorage.api.meta import Object
from moorage.api.workloads import PodDisruptionBudget
from moorage.cycle.disruption_budgets import Budgets
from moorage.framework.changes import Change, Owner
from moorage.laboratory.change_sets import combined, covers, is_numeric, shape_of, sort_key, subsets, weakened
from moorage.laboratory.change_text import command_of, describe
from moorage.laboratory.costs import Costs
from moorage.laboratory.offers import ChangeSet, NodeOffers
from moorage.laboratory.trials import Trial, Trials
from moorage.state.pod_info import PodInfo

__all__ = ["OWNERS", "ChangeAnswers", "Remedy", "find_least_change"]

OWNERS: Final[tuple[Owner, ...]] = get_args(Owner)
#: How many combinations are queued for one node.
MOST_SETS: Final = 512
_NONE: Final[ChangeSet] = frozenset()
#: A set that waits to be tried: its cost, its place among sets of that cost, a serial number, the set.
_Queued: TypeAlias = tuple[float, tuple[int, tuple[tuple[str, int], ...]], int, ChangeSet]


class Remedy(Struct, frozen=True):
    """One answer: changes that together place the pod.

    ``owner``      who can make them; several owners are joined by ``+``
    ``texts``      the changes in words, and ``commands`` as kubectl commands, where one exists
    ``nodes``      the nodes that the pod could go to then
    ``displaced``  pods that have to give way; ``stranded`` replacements of evicted pods that find no place
    ``minimal``    no subset of the changes works, and no number could be one unit weaker
    ``alike``      the same change of other nodes or pods, at the same cost
    """

    owner: str
    cost: float
    changes: tuple[Change, ...]
    texts: tuple[str, ...]
    commands: tuple[str, ...]
    nodes: tuple[str, ...]
    displaced: tuple[str, ...] = ()
    stranded: tuple[str, ...] = ()
    minimal: bool = True
    alike: tuple[str, ...] = ()


class ChangeAnswers(Struct, frozen=True):
    """All answers, and how far they are proven.

    ``proof``       ``exhaustive``: no cheaper set of the known changes works; ``bounded``: the search ended early
    ``runs``        runs of the engine, and ``considered`` how many different changes came up
    ``is_placed``   the pod is placed without any change
    """

    remedies: tuple[Remedy, ...]
    proof: str
    runs: int
    considered: int
    is_placed: bool = False


@dataclass
class _Found:
    """An answer as the search finds it."""

    changes: ChangeSet
    cost: float
    trial: Trial
    minimal: bool
    alike: list[ChangeSet] = field(default_factory=list)


class ChangeSearch:
    """Trials with a memory, a budget, and prices."""

    def __init__(self, trials: Trials, costs: Costs, probes: int, budgets: Budgets, pods: dict[str, Pod]) -> None:
        self.trials = trials
        self.costs = costs
        self.probes = probes
        self.budgets = budgets
        self.pods = pods
        self.verbs: Collection[str] | None = None
        self.known: dict[ChangeSet, Trial] = {}
        self.considered: set[Change] = set()
        self.is_complete = True

    @classmethod
    def over(
        cls, trials: Trials, objects: Iterable[Object], *, probes: int, costs: Costs | None = None,
        verbs: Collection[str] | None = None,
    ) -> ChangeSearch:  # fmt: skip
        """Return a search over a cluster's objects; ``verbs`` limits it to some kinds of changes."""
        held = list(objects)
        pods = {obj.key: obj for obj in held if isinstance(obj, Pod)}
        budgets = Budgets([obj for obj in held if isinstance(obj, PodDisruptionBudget)])
        search = cls(trials, costs or Costs(), probes, budgets, pods)
        search.verbs = verbs
        return search

    def cheapest(self, owners: Collection[Owner]) -> tuple[float, list[ChangeSet]]:
        """Return the cost of the cheapest answers, and all of that cost; infinite if there is none."""
        first = self.run(owners, 1)
        if not first:
            return float("inf"), []
        cost = min(one.cost for one in first)
        found = self.run(owners, len(first) + 10**6, cost + 1e-6)
        return cost, [some for one in found for some in (one.changes, *one.alike)]

    @property
    def runs(self) -> int:
        return len(self.known)

    @property
    def is_spent(self) -> bool:
        return self.runs >= self.probes

    def attempt(self, changes: ChangeSet) -> Trial:
        if changes not in self.known:
            trial = self.known[changes] = self.trials.attempt(changes)
            self.is_complete &= trial.offers.is_complete or bool(trial.node)
        return self.known[changes]

    def cost_of(self, changes: Iterable[Change], trial: Trial | None = None) -> float:
        """Return the cost of a set; with a trial, what its evictions cost beyond that."""
        held = list(changes)
        evicted = [self.pods[one.target.removeprefix("pod/")] for one in held if one.verb == "evict"]
        broken = len(self.budgets.split(map(PodInfo, evicted))[0]) if evicted else 0
        stranded = len(trial.stranded) if trial is not None else 0
        extra = broken * self.costs.table["evict-budget"] + stranded * self.costs.table["evict-stranded"]
        return round(sum(self.costs.cost_of(one) for one in held) + extra, 6)

    # -- one search --------------------------------------------------------------------------------------------------

    def run(self, owners: Collection[Owner], wanted: int, below: float = float("inf")) -> list[_Found]:
        """Return the cheapest answers of changes by these owners, up to ``wanted`` that differ, each cheaper than ``below``."""
        serial = count()
        start = self.attempt(_NONE)
        heap = [(self.cost_of(one), sort_key(one), next(serial), one) for one in self._next(_NONE, start, owners)]
        heapq.heapify(heap)
        seen, found = {one[3] for one in heap}, dict[tuple[tuple[str, ...], ...], _Found]()
        while heap and len(found) < wanted:
            cost, key, _, changes = heapq.heappop(heap)
            if cost >= below or any(covers(changes, one) for held in found.values() for one in (held.changes, *held.alike)):
                continue
            if self.is_spent:
                self.is_complete = False
                break
            trial = self.attempt(changes)
            if trial.node:
                due = self.cost_of(changes, trial)
                if due > cost:
                    heapq.heappush(heap, (due, key, next(serial), changes))
                    continue
                self._keep(_Found(changes, cost, trial, minimal=True), found, heap, seen, serial)
                continue
            for more in self._next(changes, trial, owners):
                if more not in seen:
                    seen.add(more)
                    heapq.heappush(heap, (self.cost_of(more), sort_key(more), next(serial), more))
        return list(found.values())

    def _keep(
        self, one: _Found, found: dict[tuple[tuple[str, ...], ...], _Found], heap: list[_Queued], seen: set[ChangeSet],
        serial: Iterator[int],
    ) -> None:  # fmt: skip
        """Keep an answer if it is minimal; otherwise queue the smaller one."""
        smaller = [some for some in subsets(one.changes) if not self.is_spent and self.attempt(some).node]
        for some in smaller:
            if some not in seen:
                seen.add(some)
                heapq.heappush(heap, (self.cost_of(some), sort_key(some), next(serial), some))
        if smaller:
            return
        one.minimal = not self.is_spent and not any(self.attempt(some).node for some in weakened(one.changes))
        alike = found.setdefault(shape_of(one.changes), one)
        if alike is not one:
            alike.alike.append(one.changes)

    def _next(self, changes: ChangeSet, trial: Trial, owners: Collection[Owner]) -> Iterator[ChangeSet]:
        """Yield the sets that go on from one that does not work, aimed at each node."""
        for node in trial.offers.nodes:
            self.is_complete &= prod(map(len, node.constraints)) <= MOST_SETS
            for offered in _combinations(node, owners, self.verbs):
                self.considered.update(offered)
                more = combined(changes, offered)
                if more is None or more == changes:
                    continue
                yield more
                if any(change.verb == "evict" for change in more):
                    # Without the pods, less may be enough: the numbers are offered again for the set without them.
                    bare = frozenset(change for change in more if not is_numeric(change))
                    if bare not in {more, changes}:
                        yield bare


def _combinations(node: NodeOffers, owners: Collection[Owner], verbs: Collection[str] | None = None) -> Iterator[ChangeSet]:
    """Yield the combinations of offers of these owners, one for each constraint; those that contain another are left out."""
    allowed = [
        [one for one in sets if all(change.owner in owners and (verbs is None or change.verb in verbs) for change in one)]
        for sets in node.constraints
    ]
    if not allowed or not all(allowed):
        return
    found: set[ChangeSet] = set()
    for sets in islice(product(*allowed), MOST_SETS):
        together = combined(*([_plain(change) for change in one] for one in sets))
        if together is not None:
            found.add(together)
    kept: list[ChangeSet] = []
    for one in sorted(found, key=len):
        if not any(other <= one for other in kept):
            kept.append(one)
            yield one


def _plain(change: Change) -> Change:
    return change if not change.term else Change(
        change.owner, change.verb, change.target, change.path, change.old, change.new, change.cost
    )  # fmt: skip


def find_least_change(
    trials: Trials,
    objects: Sequence[Object] = (),
    *,
    may: Collection[Owner] = OWNERS,
    alternatives: int = 3,
    probes: int = 2000,
    costs: Costs | None = None,
) -> ChangeAnswers:
    """Return the cheapest answer of each owner, and ``alternatives`` more.

    ``objects``  the cluster's objects, for disruption budgets and for commands
    ``probes``   how many runs of the engine the search may take
    """
    search = ChangeSearch.over(trials, objects, probes=probes, costs=costs)
    if search.attempt(_NONE).node:
        return ChangeAnswers((), "run", search.runs, 0, is_placed=True)
    single = {owner: search.run([owner], 1 + alternatives) for owner in OWNERS if owner in may}
    answers = [one for found in single.values() for one in found]
    best = min((one.cost for one in answers), default=float("inf"))
    joint = search.run(may, 1, best) if len(may) > 1 else []
    chosen = _chosen(single.values(), joint, alternatives)
    proof = "exhaustive" if search.is_complete else "bounded"
    remedies = tuple(_remedy(one, search.costs, objects) for one in chosen)
    return ChangeAnswers(remedies, proof, search.runs, len(search.considered))


def _chosen(single: Iterable[Sequence[_Found]], joint: Sequence[_Found], alternatives: int) -> list[_Found]:
    """Return the best answer of each owner and the next cheapest of all, by cost."""
    best = [*joint, *(found[0] for found in single if found)]
    others = sorted((one for found in single for one in found[1:]), key=_order)
    return sorted([*best, *others[:alternatives]], key=_order)


def _order(one: _Found) -> tuple[float, tuple[int, tuple[tuple[str, int], ...]]]:
    return one.cost, sort_key(one.changes)


def _remedy(one: _Found, costs: Costs, objects: Sequence[Object]) -> Remedy:
    changes = sorted(map(costs.price, one.changes), key=lambda change: (OWNERS.index(change.owner), describe(change)))
    owners = dict.fromkeys(change.owner for change in changes)
    return Remedy(
        owner="+".join(owners),
        cost=one.cost,
        changes=tuple(changes),
        texts=tuple(map(describe, changes)),
        commands=tuple(text for text in (command_of(change, objects) for change in changes) if text),
        nodes=one.trial.offers.fits or (one.trial.node,),
        displaced=one.trial.displaced,
        stranded=one.trial.stranded,
        minimal=one.minimal,
        alike=tuple(" and ".join(sorted(map(describe, changes))) for changes in one.alike),
    )
