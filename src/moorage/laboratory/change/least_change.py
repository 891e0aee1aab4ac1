"""The least change that places a pod: the cheapest sets of changes, each verified by a run of the engine.

The search is a shortest-path search over sets of changes. It starts with the empty set. For a set that does not place the pod,
the plugins list for each node the changes that would lift their refusals, and every combination is queued by its cost. Sets are
tried in the order of their cost, so the first one that works is the cheapest of all sets of changes that the plugins know.

The search returns separate answers for each owner. An answer that needs several owners is returned only if it costs less than
the answer of any one of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from operator import attrgetter
from typing import Final, TypeAlias, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Object, Pod
from moorage.api.workloads import PodDisruptionBudget
from moorage.core.preemption.disruption_budgets import Budgets
from moorage.errors import InputError
from moorage.framework.changes import Change, Owner
from moorage.laboratory.amount_text import people_quantity, round_amount
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.change.advice import KINDS, Advice, kind_of
from moorage.laboratory.change.change_requests import ChangeRequests
from moorage.laboratory.change.change_sets import combined, covers, is_numeric, shape_of, sort_key, subsets, weakened
from moorage.laboratory.change.change_text import describe
from moorage.laboratory.change.combinations import NodeChoices, combinations
from moorage.laboratory.change.effects import all_who_make, effects_of
from moorage.laboratory.change.offers import NO_OFFERS, ChangeSet, Offers
from moorage.laboratory.change.untouchable import NOTHING, Untouchable
from moorage.laboratory.costs import Costs
from moorage.laboratory.surroundings import ListedObjects, Surroundings
from moorage.laboratory.trial.trials import Trial, Trials
from moorage.state.pod_info import PodInfo

OWNERS: Final[tuple[Owner, ...]] = get_args(Owner)
#: An answer that costs this much more than the cheapest one is not advice.
_DEARER: Final = 12.0
#: How many sets of changes of several owners are tried in search of one that costs less than those of one owner.
_MOST_JOINT: Final = 300
#: Changes that a pod needs that is too large for an empty node, and how many runs are spent on them.
_WITH_NODE: Final = frozenset(["add-node", "request"])
_MOST_WITH_NODE: Final = 40
_NONE: Final[ChangeSet] = frozenset()
_verb_of = attrgetter("verb")
#: A set that waits to be tried: its cost, its place among sets of that cost, a serial number, the set.
_Queued: TypeAlias = tuple[float, tuple[int, tuple[tuple[str, int], ...]], int, ChangeSet]


class ChangeLimits(Struct, frozen=True):
    """Limits of the search for changes: which owners and kinds, and how many runs.

    ``probes``      runs of the engine; 0 leaves the least change out
    ``all_changes`` also offers what no one should do
    ``with_queue``  the pods ahead of the pod in the queue are tried before it
    ``budget``      ends the search when it is spent
    ``untouched``   what no change that is offered may touch
    """

    may: tuple[Owner, ...] = OWNERS
    alternatives: int = 3
    probes: int = 2000
    costs: Costs | None = None
    with_queue: bool = False
    budget: TimeBudget = msgspec.field(default_factory=TimeBudget)
    all_changes: bool = False
    untouched: Untouchable = NOTHING


_LIMITS: Final = ChangeLimits()


class Remedy(Struct, frozen=True):
    """One answer: changes that together place the pod.

    ``kind``       what people call it: one of ``KINDS`` in ``moorage.laboratory.change.advice``
    ``owner``      who can make them; several owners are joined by ``+``; ``who``: the same in words
    ``texts``      the changes in words, and ``commands`` as kubectl commands, where one exists
    ``nodes``      the nodes that accept the pod after the changes
    ``displaced``  pods that are moved or preempted; ``stranded``: replacements of evicted pods that stay pending
    ``effects``    what else happens, in words
    ``minimal``    no proper subset of the changes works, and no number could be one unit weaker
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
    kind: str = ""
    who: str = ""
    effects: tuple[str, ...] = ()


class ChangeAnswers(Struct, frozen=True):
    """All answers, and how complete the search was.

    ``proof``       ``exhaustive``: no cheaper set of the known changes works; ``bounded``: the search ended early
    ``runs``        the number of engine runs; ``considered``: the number of different changes
    ``is_placed``   the pod is placed without any change
    ``left_out``    how many changes were left out, by the reason
    """

    remedies: tuple[Remedy, ...]
    proof: str
    runs: int
    considered: int
    is_placed: bool = False
    left_out: Mapping[str, int] = {}


@dataclass
class _Found:
    """An answer in the form of the search."""

    changes: ChangeSet
    cost: float
    trial: Trial
    minimal: bool
    alike: list[ChangeSet] = field(default_factory=list)


class ChangeSearch:
    """Trials with cached results, a limit on their number, and the costs of changes.

    ``judges``  leave out what the API server refuses, also without advice
    """

    def __init__(self, trials: Trials, costs: Costs, probes: int, around: Surroundings) -> None:
        self.trials = trials
        self.costs = costs
        self.probes = probes
        self.verbs: Collection[str] | None = None
        self.advice: Advice | None = None
        self.budget = TimeBudget()
        self.known: dict[ChangeSet, Trial] = {}
        self.considered: set[Change] = set()
        self.is_complete = True
        self.judges = False
        self.runs = 0
        self.around = around
        #: The requests behind the changes.
        self.requests = ChangeRequests(around)
        self._choices: dict[Offers, Sequence[NodeChoices]] = {}

    @classmethod
    def over(
        cls, trials: Trials, objects: Iterable[Object] | Surroundings, *, probes: int, costs: Costs | None = None,
        verbs: Collection[str] | None = None,
    ) -> ChangeSearch:  # fmt: skip
        """Return a search over a cluster's objects; ``verbs`` limits it to some kinds of changes."""
        search = cls(trials, costs or Costs(), probes, ListedObjects(objects) if isinstance(objects, Iterable) else objects)
        search.verbs = verbs
        return search

    @cached_property
    def budgets(self) -> Budgets:
        return Budgets([obj for obj in self.around.all_of(PodDisruptionBudget) if isinstance(obj, PodDisruptionBudget)])

    def cheapest(self, owners: Collection[Owner]) -> tuple[float, list[ChangeSet]]:
        """Return the cost of the cheapest answers, and all of that cost; infinite if there is none."""
        front = SearchFront(self, owners)
        front.find(1)
        if not front.found:
            return float("inf"), []
        cost = min(one.cost for one in front.answers)
        front.find_all(cost)
        return cost, [some for one in front.answers for some in (one.changes, *one.alike)]

    @property
    def is_spent(self) -> bool:
        return self.runs >= self.probes or self.budget.is_over()

    def attempt(self, changes: ChangeSet, *, look: bool = False) -> Trial:
        """Return the outcome for the pod with these changes; with ``look``, also further changes that help if it fails."""
        trial = self.known.get(changes)
        if trial is None or (look and trial.offers is None and not trial.node):
            self.runs += 1
            trial = self.known[changes] = self.trials.attempt(changes, look=look)
            self.is_complete &= trial.offers is None or trial.offers.is_complete
        return trial

    def cost_of(self, changes: Iterable[Change], trial: Trial | None = None) -> float:
        """Return the cost of a set, with extra costs for violated budgets and, with a trial, for pods that stay pending."""
        held = list(changes)
        return round(self.costs.sum_of(held) + sum(self.disturbed_by(held, trial).values()), 6)

    def disturbed_by(self, changes: Collection[Change], trial: Trial | None) -> dict[str, float]:
        """Return what changes disturb apart from the pods that they name, by the names of the table of costs."""
        preempted = () if trial is None or trial.homes else trial.displaced
        named = {one.target for one in changes if one.verb == "evict"} | {f"pod/{key}" for key in preempted}
        broken, others = self._by_budget(named) if named else ([], [])
        counts = {
            "preempted": len(preempted),
            "broken": len(broken),
            "budget": sum(map(self.budgets.covers, others)),
            "stranded": 0 if trial is None else len(trial.stranded),
        }
        return {f"disturbs.{name}": count * self.costs.table[f"disturbs.{name}"] for name, count in counts.items() if count}

    def broken_by(self, changes: Iterable[Change]) -> int:
        """Return how many evictions violate disruption budgets."""
        named = {one.target for one in changes if one.verb == "evict"}
        return len(self._by_budget(named)[0]) if named else 0

    def _by_budget(self, targets: Iterable[str]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Split pods into those whose eviction violates a budget and the others."""
        parts = (one.removeprefix("pod/").partition("/") for one in sorted(targets))
        found = (self.around.find(Pod, space, name) for space, _, name in parts)
        return self.budgets.split([PodInfo(pod) for pod in found if isinstance(pod, Pod)])

    def following(self, changes: ChangeSet, offers: Offers, owners: Collection[Owner]) -> Iterator[ChangeSet]:
        """Yield the sets that extend one that does not work, for each node."""
        allowed = frozenset(owners)
        for node in self._choices_of(offers):
            self.is_complete &= node.is_complete
            for offered in combinations(node.of(allowed)):
                self.considered.update(offered)
                more = combined(changes, offered) if changes else offered
                if more is None or more == changes:
                    continue
                yield more
                if "evict" in map(_verb_of, more):
                    # Once pods are evicted, smaller numbers may be enough: offer the numbers again for the set without them.
                    bare = frozenset(change for change in more if not is_numeric(change))
                    if bare not in {more, changes}:
                        yield bare

    def _choices_of(self, offers: Offers) -> Sequence[NodeChoices]:
        """Return the choices for each node; the searches of all owners begin with the same offers."""
        choices = self._choices.get(offers)
        if choices is None:
            nodes = offers.nodes if self.advice is None else map(self.advice.revised, offers.nodes)
            choices = self._choices[offers] = [NodeChoices(node, self.verbs) for node in nodes]
        return choices


class SearchFront:
    """The search through changes of some owners: the queue of sets to try, and the answers so far.

    ``below``  ignore answers that cost this much or more
    """

    def __init__(self, search: ChangeSearch, owners: Collection[Owner], below: float = float("inf")) -> None:
        self.search = search
        self.owners = owners
        self.below = below
        self.found: dict[tuple[tuple[str, ...], ...], _Found] = {}
        self._serial = count()
        self._heap: list[_Queued] = []
        self._seen: set[ChangeSet] = set()
        self._go_on(_NONE, search.attempt(_NONE, look=True))

    @property
    def answers(self) -> list[_Found]:
        """The answers in the order they were found; of answers that differ only in nodes and pods, one."""
        return list(self.found.values())

    @property
    def bound(self) -> float:
        """The lower bound of the cost of the next answer; infinite if there is none."""
        return self._heap[0][0] if self._heap and self._heap[0][0] < self.below else float("inf")

    def find(self, wanted: int, most: float = float("inf")) -> None:
        """Search until there are ``wanted`` answers, or until ``most`` sets were tried."""
        tried = count()
        while len(self.found) < wanted and self.bound < float("inf"):
            if next(tried) >= most:
                self.search.is_complete = False
                return
            self.step()

    def find_all(self, cost: float) -> None:
        """Search until all answers up to a cost are found."""
        while self.bound <= cost:
            self.step()

    def step(self) -> None:
        """Try the cheapest set in the queue."""
        search, (cost, key, _, changes) = self.search, heapq.heappop(self._heap)
        if any(covers(changes, one) for held in self.found.values() for one in (held.changes, *held.alike)):
            return
        if search.is_spent:
            search.is_complete = False
            self._heap.clear()
            return
        trial = search.attempt(changes, look=True)
        if not trial.node:
            self._go_on(changes, trial)
            return
        if search.advice is None or search.advice.everything:
            verbs = self.search.verbs
            if any(change.verb == "evict" for change in changes) and (verbs is None or "move" in verbs):
                moved = self.search.trials.moved(changes)
                self.search.considered.update(moved)
                self._push(moved)
        if search.advice is not None and self._is_refused(changes, trial, search.advice):
            return
        if search.advice is None and search.judges and search.requests.refusal(changes):
            return
        due = search.cost_of(changes, trial)
        if due > cost:
            heapq.heappush(self._heap, (due, key, next(self._serial), changes))
            return
        self._keep(_Found(changes, cost, trial, minimal=True))

    def _go_on(self, changes: ChangeSet, trial: Trial) -> None:
        """Queue the sets that extend one that does not place the pod."""
        for more in self.search.following(changes, trial.offers or NO_OFFERS, self.owners):
            self._push(more)

    def _push(self, changes: ChangeSet) -> None:
        """Queue a set at the lower bound of its cost; the extra costs of its evictions are added when it is tried."""
        if changes in self._seen:
            return
        self._seen.add(changes)
        if self.search.advice is not None and self.search.advice.forbids(changes):
            return
        least = self.search.costs.least_of(changes)
        if least < self.below:
            heapq.heappush(self._heap, (least, sort_key(changes), next(self._serial), changes))

    def _is_refused(self, changes: ChangeSet, trial: Trial, advice: Advice) -> bool:
        """Return whether an answer is left out. If evicted pods find no place, queue the set that scales down instead."""
        if trial.stranded and (scaled := advice.scaled(changes)) is not None:
            self._push(scaled)
        if self.search.requests.refusal(changes):
            advice.leave_out("refused", changes)
            return True
        return advice.refuses(changes, self.search.broken_by(changes), trial)

    def _keep(self, one: _Found) -> None:
        """Keep an answer of which no part works; otherwise queue the parts. Try weaker numbers once for each shape."""
        search = self.search
        smaller = [some for some in subsets(one.changes) if not search.is_spent and search.attempt(some).node]
        for some in smaller:
            self._push(some)
        if smaller:
            return
        alike = self.found.get(shape := shape_of(one.changes))
        if alike is not None:
            alike.alike.append(one.changes)
            return
        self.found[shape] = one
        one.minimal = not search.is_spent and not any(search.attempt(some).node for some in weakened(one.changes))


def find_least_change(
    trials: Trials,
    objects: Iterable[Object] | Surroundings = (),
    limits: ChangeLimits = _LIMITS,
    verbs: Collection[str] | None = None,
) -> ChangeAnswers:
    """Return the cheapest answer of each owner, and ``alternatives`` more.

    ``objects``  the cluster's objects, for disruption budgets and for commands
    ``verbs``    only these kinds of changes; with ``all_changes`` of the limits, ``left_out`` of the answer is empty

    Raises  InputError for an owner that does not exist, and for negative numbers
    """
    may, alternatives, all_changes = limits.may, limits.alternatives, limits.all_changes
    _check(may, alternatives, limits.probes)
    search = ChangeSearch.over(trials, objects, probes=limits.probes, costs=limits.costs, verbs=verbs)
    search.budget = limits.budget
    search.costs = search.costs.with_nodes(search.around)
    advice = search.advice = Advice(
        search.around, trials.key, search.costs, everything=all_changes, untouched=limits.untouched
    )  # fmt: skip
    if search.attempt(_NONE, look=True).node:
        return ChangeAnswers((), "run", search.runs, 0, is_placed=True)
    fronts: list[SearchFront] = []
    best = float("inf")
    for owner in (one for one in OWNERS if one in may):
        fronts.append(SearchFront(search, [owner], best + _DEARER if not all_changes else float("inf")))
        fronts[-1].find(1)
        best = min([best, *(one.cost for one in fronts[-1].answers)])
    if not all_changes:
        for front in fronts:
            front.below = min(front.below, best + _DEARER)
    _find_more(fronts, alternatives)
    joint = SearchFront(search, may, best)
    if len(may) > 1:
        joint.find(1, float("inf") if all_changes else _MOST_JOINT)
    chosen = _chosen([front.answers for front in fronts], joint.answers, alternatives)
    if not all_changes and {"pod", "cluster"} <= set(may) and not any(kind_of(one.changes) == "grow" for one in chosen):
        chosen += _with_node(search)
    remedies = tuple(_remedy(one, search) for one in chosen)
    proof = "exhaustive" if search.is_complete else "bounded"
    left_out = {} if all_changes else {reason: len(some) for reason, some in sorted(advice.left_out.items())}
    return ChangeAnswers(remedies, proof, search.runs, len(search.considered), left_out=left_out)


def _with_node(search: ChangeSearch) -> list[_Found]:
    """Return the cheapest answer that adds a node and asks for less: for pods that are too large even for an empty one."""
    both = ChangeSearch(search.trials, search.costs, search.probes, search.around)
    both.verbs, both.advice, both.budget = _WITH_NODE, search.advice, search.budget
    both.known, both.runs, both.requests = search.known, search.runs, search.requests
    front = SearchFront(both, ("pod", "cluster"))
    found: list[_Found] = []
    while not found and front.bound < float("inf") and both.runs < search.runs + _MOST_WITH_NODE:
        front.step()
        found = [one for one in front.answers if len({change.verb for change in one.changes}) > 1]
    search.runs = both.runs
    return found[:1]


def _check(may: Collection[Owner], alternatives: int, probes: int) -> None:
    unknown = sorted(set(may) - set(OWNERS))
    if isinstance(may, str) or unknown or not may:
        raise InputError(f"may: {', '.join(unknown) if unknown else 'no owner'}; use any of {', '.join(OWNERS)}")
    for name, number in (("alternatives", alternatives), ("probes", probes)):
        if number < 0:
            raise InputError(f"{name}: {number} is negative")


def _find_more(fronts: Sequence[SearchFront], alternatives: int) -> None:
    """Continue the searches, the one with the lowest bound first, until they have ``alternatives`` further answers."""
    while sum(max(0, len(front.found) - 1) for front in fronts) < alternatives:
        front = min(fronts, key=lambda one: one.bound, default=None)
        if front is None or front.bound == float("inf"):
            break
        front.step()
    for front in fronts:
        if front.found:
            front.find_all(max(one.cost for one in front.answers))


def _chosen(single: Iterable[Sequence[_Found]], joint: Sequence[_Found], alternatives: int) -> list[_Found]:
    """Return the best answer of each owner and the next cheapest answers of any owner, by cost."""
    best = [*joint, *(found[0] for found in single if found)]
    others = sorted((one for found in single for one in found[1:]), key=_order)
    return sorted([*best, *others[:alternatives]], key=_order)


def _order(one: _Found) -> tuple[float, int, tuple[int, tuple[tuple[str, int], ...]]]:
    return one.cost, list(KINDS).index(kind_of(one.changes)), sort_key(one.changes)


def _gentlest(one: _Found, search: ChangeSearch) -> _Found:
    """Return the answer among equally dear ones that evicts the smallest pods."""
    if not any(change.verb == "evict" for change in one.changes):
        return one

    def size(changes: ChangeSet) -> tuple[int, int]:
        parts = (change.target.removeprefix("pod/").partition("/") for change in changes if change.verb == "evict")
        found = (search.around.find(Pod, space, name) for space, _, name in parts)
        asked = [PodInfo(pod).requests for pod in found if isinstance(pod, Pod)]
        return sum(some.get("cpu", 0) for some in asked), sum(some.get("memory", 0) for some in asked)

    best = min((one.changes, *one.alike), key=size)
    others = [some for some in (one.changes, *one.alike) if some != best]
    return one if best == one.changes else _Found(best, one.cost, search.attempt(best), one.minimal, others)


def _remedy(one: _Found, search: ChangeSearch) -> Remedy:
    one = _gentlest(one, search)
    made, trial = _rounded(one, search)
    changes = sorted(map(search.costs.price, made), key=lambda change: (OWNERS.index(change.owner), describe(change)))
    owners = dict.fromkeys(change.owner for change in changes)
    return Remedy(
        kind=kind_of(changes),
        owner="+".join(owners),
        who=all_who_make(changes, search.around),
        cost=one.cost,
        changes=tuple(changes),
        texts=tuple(map(describe, changes)),
        commands=search.requests.commands(changes),
        nodes=search.trials.fits(made) or (trial.node,),
        displaced=trial.displaced,
        stranded=trial.stranded,
        effects=(*effects_of(changes, trial, search.around, search.costs.prices), *_uses(changes, search)),
        minimal=one.minimal,
        alike=tuple(dict.fromkeys(text for some in one.alike if (text := _told(some, search)) != _told(made, search))),
    )


def _rounded(one: _Found, search: ChangeSearch) -> tuple[ChangeSet, Trial]:
    """Return an answer with requests in round numbers, if it still works then."""
    made = frozenset(_rounded_request(change, search) if change.verb == "request" else change for change in one.changes)
    if made == one.changes or not (trial := search.attempt(made)).node or search.requests.refusal(made):
        return one.changes, one.trial
    return made, trial


def _told(changes: Iterable[Change], search: ChangeSearch) -> str:
    rounded = (_rounded_request(change, search) if change.verb == "request" else change for change in changes)
    return " and ".join(sorted(map(describe, rounded)))


def _rounded_request(change: Change, search: ChangeSearch) -> Change:
    """Return a request in a round number: what the pods of the workload use, if that is known, or else what fits."""
    resource, fits = change.path.removeprefix("requests."), change.new
    if not isinstance(fits, int):
        return change
    used = None if search.advice is None else search.advice.used(resource)
    if used is None:
        return replace(change, new=round_amount(resource, fits))
    lower = round_amount(resource, used, up=True)
    return replace(change, new=lower if lower <= fits else max(used, round_amount(resource, fits)))


def _uses(changes: Iterable[Change], search: ChangeSearch) -> Iterator[str]:
    """Yield what the pods of the workload use of the resources of which they are to request less."""
    for name in (one.path.removeprefix("requests.") for one in changes if one.verb == "request"):
        used = None if search.advice is None else search.advice.used(name)
        if used is not None:
            yield f"its pods use at most {people_quantity(name, used, up=True)} {name}"
