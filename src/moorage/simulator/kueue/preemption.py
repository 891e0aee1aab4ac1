"""Preemption: whose quota a workload may take back.

The classical way removes candidates in order until the workload fits, then puts back, in reverse, those it fits without.
Candidates over which the workload has an advantage in the tree come first. With fair sharing the candidates of the least fair
queue come first, and a strategy compares shares before and after.

Source  Kueue, pkg/scheduler/preemption, its folders classical and fairsharing
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, dropwhile, takewhile
from typing import NamedTuple

from moorage.simulator.kueue.flavors import Possibility
from moorage.simulator.kueue.objects import ClusterQueue
from moorage.simulator.kueue.quota import ClusterQueueNode, CohortNode, QuotaNode, lowest_subtree, victim_rank
from moorage.simulator.kueue.settings import STRATEGIES
from moorage.simulator.kueue.topology import TopologyTree, find_places
from moorage.simulator.kueue.topology_requests import PlacementRequest
from moorage.simulator.kueue.workloads import Amounts, Key, Workload

__all__ = ["Asking", "Victim", "find_targets", "possibility_of"]

_IN_QUEUE = "InClusterQueue"
_RECLAIM = "InCohortReclamation"
_FAIR = "InCohortFairSharing"
_BORROWING = "InCohortReclaimWhileBorrowing"


class Victim(NamedTuple):
    """A workload to evict, and the rule that allows it."""

    workload: Workload
    queue: ClusterQueueNode
    reason: str


@dataclass(slots=True)
class Asking:
    """A workload that needs room in ``needed``, and all that it requests."""

    workload: Workload
    queue: ClusterQueue
    queues: dict[str, ClusterQueue]
    needed: frozenset[Key]
    requests: Amounts
    now: float
    trees: Mapping[str, TopologyTree]
    places: Mapping[str, Sequence[PlacementRequest]]
    #: With fair sharing: the rules by which shares are compared, in turn.
    strategies: Sequence[str] = STRATEGIES

    def fits(self, *, borrowing: bool = True) -> bool:
        for key, amount in self.requests.items():
            if not borrowing and self.queue.borrowing_with(key, amount):
                return False
            if amount > self.queue.free(key):
                return False
        return not self.places or find_places(self.places, self.trees)[1] is None

    def fits_counted(self) -> bool:
        """Return whether the workload fits where its own usage is already counted: what is available falls by what is used."""
        if any(amount and self.queue.available(key) < 0 for key, amount in self.requests.items()):
            return False
        return not self.places or find_places(self.places, self.trees)[1] is None

    def allows(self, candidate: Workload, policy: str) -> bool:
        """Return whether a policy allows to preempt the candidate, which uses something that is needed."""
        lower = self.workload.priority > candidate.priority
        if policy == "LowerPriority":
            return lower
        if policy == "LowerOrNewerEqualPriority":
            equal = self.workload.priority == candidate.priority
            return lower or (equal and self.workload.order_time < candidate.order_time)
        return policy == "Any"

    def order(self, candidate: Workload) -> tuple[bool, bool, int, float, str]:
        """The order of candidates: evicted ones, other queues, low priority, admitted last, UID."""
        spared, priority, reserved, uid = victim_rank(candidate)
        return (spared, candidate.cluster_queue == self.queue.name, priority, reserved, uid)

    def own(self) -> list[Workload]:
        """Return the candidates of its own queue."""
        rule = self.queue.preemption.within_queue
        if rule == "Never":
            return []
        return [one for one in self.queue.users(self.needed) if self.allows(one, rule)]

    def stays_within(self, own: Sequence[Workload]) -> bool:
        """Return whether it would fit into the quota of its queue without these workloads of the queue."""
        return not any(
            self.queue.borrowing_with(key, amount - sum(one.usage.get(key, 0) for one in own))
            for key, amount in self.requests.items()
        )

    def may_fit(self, candidates: Iterable[Workload]) -> bool:
        """Return False if it would not fit even without all candidates."""
        missing = {key: amount - self.queue.available(key) for key, amount in self.requests.items() if amount}
        missing = {key: amount for key, amount in missing.items() if amount > 0}
        for one in candidates if missing else ():
            for key in [key for key in missing if key in one.usage]:
                missing[key] -= one.usage[key]
                if missing[key] <= 0:
                    del missing[key]
            if not missing:
                break
        return not missing

    def take(self, candidate: Workload) -> ClusterQueue:
        queue = self.queues[candidate.cluster_queue]
        del queue.workloads[candidate.key]
        queue.remove(candidate.usage)
        candidate.take_places(self.trees, -1)
        return queue

    def put_back(self, targets: Iterable[Victim]) -> None:
        for target in targets:
            target.queue.workloads[target.workload.key] = target.workload
            target.queue.add(target.workload.usage)
            target.workload.take_places(self.trees)

    def fill_back(self, targets: list[Victim], *, borrowing: bool) -> list[Victim]:
        """Spare, from the last but one to the first, what the workload fits without."""
        for index in range(len(targets) - 2, -1, -1):
            spared = targets[index]
            self.put_back([spared])
            if self.fits(borrowing=borrowing):
                targets[index] = targets[-1]
                targets.pop()
            else:
                self.take(spared.workload)
        self.put_back(targets)
        return targets


def find_targets(asking: Asking, *, fair: bool) -> list[Victim]:
    """Return the workloads to evict so that the workload fits, or none. The tree is left as it was."""
    rules, state = asking.queue.preemption, asking.queue.clock[0]
    if rules.within_queue == rules.reclaim == "Never":
        return []
    found = _fair(asking) if fair else _classical(asking)
    asking.queue.clock[0] = state
    return found


def possibility_of(asking: Asking, key: Key, amount: int, *, fair: bool) -> tuple[Possibility, int]:
    """Return what preemption could do for one flavor and resource, and how deep the queue would then borrow."""
    targets, state = find_targets(asking, fair=fair), asking.queue.clock[0]
    if not targets:
        return Possibility.NO_CANDIDATES, lowest_subtree(asking.queue, key, amount)[0]
    for target in targets:
        target.queue.remove(target.workload.usage)
    height = lowest_subtree(asking.queue, key, amount)[0]
    for target in targets:
        target.queue.add(target.workload.usage)
    asking.queue.clock[0] = state
    own = any(target.queue is asking.queue for target in targets)
    return (Possibility.PREEMPT if own else Possibility.RECLAIM), height


# -- classical ----------------------------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    workload: Workload
    meets: CohortNode | None
    reason: str
    only_within_nominal: bool = False


class _Group:
    """Candidates of other queues in the order of victims, found as they are asked for.

    ``places``: the Cohorts where their paths meet that of the asking queue, and the children that are left out
    """

    def __init__(self, asking: Asking, places: Iterable[tuple[CohortNode, CohortNode | None]], *, advantage: bool) -> None:
        self._asking = asking
        self._advantage = advantage
        #: None of them helps a workload that borrows.
        self.only_within_nominal = asking.queue.preemption.borrow == "Never" and not advantage
        self._places = [(cohort.candidates(asking.needed), cohort, done) for cohort, done in places]

    def __iter__(self) -> Iterator[_Candidate]:
        found = [self._place(*place) for place in self._places]
        return found[0] if len(found) == 1 else merge(*found, key=lambda one: victim_rank(one.workload))

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def _place(
        self, listed: list[tuple[Workload, QuotaNode]], cohort: CohortNode, done: CohortNode | None
    ) -> Iterator[_Candidate]:
        asking = self._asking
        for one, child in listed:
            if child is not done and child is not asking.queue and asking.allows(one, asking.queue.preemption.reclaim):
                yield _classified(asking, one, cohort, self._advantage)


def _classical(asking: Asking) -> list[Victim]:
    above, beside, own = _candidates(asking)
    if not (own or above or beside):
        return []
    forbidden = asking.queue.preemption.borrow == "Never"
    under = all(asking.queue.quota(key).nominal > asking.queue.usage.get(key, 0) for key in asking.needed)
    if not (above or beside) or (forbidden and not under):
        attempts: tuple[bool, ...] = (True,)
    else:
        attempts = (False, True) if forbidden and not above else (True, False)
    for borrowing in attempts:
        targets: list[Victim] = []
        groups = [one for one in (above, beside) if not (borrowing and one.only_within_nominal)]
        usable = (one.workload for one in chain(own, *groups) if not (borrowing and one.only_within_nominal))
        if not (asking.may_fit(usable) and (borrowing or asking.stays_within([one.workload for one in own]))):
            continue
        for candidate in _ordered(*groups, own):
            if not _is_valid(asking, candidate, borrowing):
                continue
            targets.append(Victim(candidate.workload, asking.take(candidate.workload), candidate.reason))
            if asking.fits(borrowing=borrowing):
                return asking.fill_back(targets, borrowing=borrowing)
        asking.put_back(targets)
    return []


def _ordered(*groups: Iterable[_Candidate]) -> Iterator[_Candidate]:
    """Yield the evicted ones of all groups, which stand first in each, then the others."""
    for group in groups:
        yield from takewhile(lambda one: one.workload.evicted, group)
    for group in groups:
        yield from dropwhile(lambda one: one.workload.evicted, group)


def _is_valid(asking: Asking, candidate: _Candidate, borrowing: bool) -> bool:
    """Return whether a candidate still uses what others could have: earlier victims may have been enough of its subtree."""
    if candidate.workload.cluster_queue == asking.queue.name:
        return True
    if borrowing and candidate.only_within_nominal:
        return False
    queue = asking.queues[candidate.workload.cluster_queue]
    if queue.within_nominal(asking.needed):
        return False
    for node in queue.ancestors():
        if node is candidate.meets:
            break
        if node.within_nominal(asking.needed):
            return False
    return True


def _candidates(asking: Asking) -> tuple[_Group, _Group, list[_Candidate]]:
    """Return the candidates over which the tree gives an advantage, those that priority decides about, and the queue's own."""
    rules, queue = asking.queue.preemption, asking.queue
    own = [_Candidate(one, None, _IN_QUEUE) for one in asking.own()]
    places: dict[bool, list[tuple[CohortNode, CohortNode | None]]] = {True: [], False: []}
    if queue.parent is not None and rules.reclaim != "Never":
        advantage, rest = queue.fit_in_quota(asking.requests)
        done: CohortNode | None = None
        # Without an advantage others help only a queue that stays within its quota, unless it may preempt while borrowing.
        pointless = rules.borrow == "Never" and not asking.stays_within([one.workload for one in own])
        for cohort in queue.ancestors():
            if advantage or not pointless:
                places[advantage].append((cohort, done))
            fits, rest = cohort.fit_in_quota(rest)
            advantage, done = advantage or fits, cohort
    return _Group(asking, places[True], advantage=True), _Group(asking, places[False], advantage=False), own


def _classified(asking: Asking, candidate: Workload, meets: CohortNode, advantage: bool) -> _Candidate:
    rules = asking.queue.preemption
    if advantage:
        return _Candidate(candidate, meets, _RECLAIM)
    limit = rules.borrow_threshold
    if (
        rules.borrow == "Never"
        or candidate.priority >= asking.workload.priority
        or (limit is not None and candidate.priority > limit)
    ):
        return _Candidate(candidate, meets, _RECLAIM, only_within_nominal=True)
    return _Candidate(candidate, meets, _BORROWING)


# -- fair sharing -------------------------------------------------------------------------------------------------------


class _Waiting(dict[str, list[Workload]]):
    """The candidates by queue, found when they are first asked for."""

    def __init__(self, asking: Asking) -> None:
        super().__init__({asking.queue.name: asking.own()})
        self._asking = asking

    def __missing__(self, name: str) -> list[Workload]:
        asking, rule, queue = self._asking, self._asking.queue.preemption.reclaim, self._asking.queues[name]
        found = self[name] = (
            []
            if rule == "Never" or queue.within_nominal(asking.needed)
            else [one for one in queue.users(asking.needed) if asking.allows(one, rule)]
        )
        return found


def _fair(asking: Asking) -> list[Victim]:
    queue, requests, waiting = asking.queue, asking.requests, _Waiting(asking)
    own = waiting[queue.name]
    # A workload that its queue's own quota would hold may take from all that borrow.
    entitled = not any(queue.borrowing_with(key, requests.get(key, 0)) for key in asking.needed)
    others, hopeless = _others(asking, waiting, entitled=entitled)
    if not asking.may_fit(chain(own, *(waiting[other.name] for other in others))):
        return []
    queue.add(requests)  # shares are those after the admission
    targets: list[Victim] = []
    again: dict[str, list[Workload]] = defaultdict(list)
    fits = _first_strategy(asking, _Order(asking, waiting, hopeless), targets, again, entitled=entitled)
    if not fits and len(asking.strategies) > 1:
        fits = _second_strategy(asking, again, targets)
    queue.remove(requests)
    if not fits:
        asking.put_back(targets)
        return []
    return asking.fill_back(targets, borrowing=True)


def _others(
    asking: Asking, waiting: dict[str, list[Workload]], *, entitled: bool
) -> tuple[list[ClusterQueueNode], set[int]]:  # fmt: skip
    """Return the queues that may lose workloads, and the nodes that cannot, whatever happens to others before.

    A share only falls while victims are found. So a node loses nothing whose share is smaller already than that of the asking
    side without all that could go below it.
    """
    found: list[ClusterQueueNode] = []
    hopeless: set[int] = set()
    node: QuotaNode = asking.queue
    more, gone = asking.requests, _total(waiting[node.name])
    for parent in node.ancestors() if asking.queue.preemption.reclaim != "Never" else ():
        least = (0, -1.0)
        if not entitled:
            least = node.share_with({key: more.get(key, 0) - gone.get(key, 0) for key in {*more, *gone}}).rank
        children: list[CohortNode | ClusterQueueNode] = [*parent.cohorts, *parent.queues]
        for child in children:
            if child is node:
                continue
            share = child.share()
            if not share.borrowed or share.rank < least:
                hopeless.add(id(child))
                continue
            found += child.subtree_queues()
            for key, used in child.usage.items():
                gone[key] = gone.get(key, 0) + used
        more, node = node.overflow(more), parent
    return found, hopeless


def _total(workloads: Iterable[Workload]) -> Amounts:
    total: Amounts = {}
    for one in workloads:
        for key, amount in one.usage.items():
            total[key] = total.get(key, 0) + amount
    return total


def _first_strategy(
    asking: Asking, order: _Order, targets: list[Victim], again: dict[str, list[Workload]], *, entitled: bool
) -> bool:  # fmt: skip
    """Take from the queues in turn what the first rule allows; ``again`` gets the others."""
    final = asking.strategies[0] == STRATEGIES[0]
    for queue in order:
        left = order.waiting[queue.name]
        if queue is asking.queue or entitled:
            one = left.pop(0)
            targets.append(Victim(one, asking.take(one), _IN_QUEUE if queue is asking.queue else _RECLAIM))
            if asking.fits_counted():
                return True
            continue
        mine, theirs = _almost_common(asking.queue, queue)
        own, initial = mine.share().rank, theirs.share().rank
        if initial < own or (initial == own and not final):
            again[queue.name] += left
            left.clear()
        while left:
            one = left.pop(0)
            if not final or own <= theirs.share_without(queue, one.usage).rank:
                targets.append(Victim(one, asking.take(one), _FAIR))
                if asking.fits_counted():
                    return True
                break
            again[queue.name].append(one)
    return False


def _second_strategy(asking: Asking, waiting: dict[str, list[Workload]], targets: list[Victim]) -> bool:
    """Take from the queues in turn, once from each, what the second rule allows."""
    order = _Order(asking, waiting, set())
    for queue in order:
        mine, theirs = _almost_common(asking.queue, queue)
        one = waiting[queue.name].pop(0)
        if mine.share().rank < theirs.share().rank:
            targets.append(Victim(one, asking.take(one), _FAIR))
            if asking.fits_counted():
                return True
        order.drop(queue)
    return False


def _almost_common(a: ClusterQueueNode, b: ClusterQueueNode) -> tuple[QuotaNode, QuotaNode]:
    """Return the nodes of both just below their lowest common ancestor."""
    below: dict[int, QuotaNode] = {}
    mine: QuotaNode = a
    for parent in a.ancestors():
        below[id(parent)] = mine
        mine = parent
    theirs: QuotaNode = b
    while id(theirs.parent) not in below:
        assert theirs.parent is not None
        theirs = theirs.parent
    return below[id(theirs.parent)], theirs


class _Order:
    """Yields the queue to take from next: at each level of the tree the child with the largest share.

    ``waiting`` are the candidates by queue; the caller removes those it takes. Nodes that no longer borrow are left out for
    good, except those above the asking queue and that queue itself; ``hopeless`` ones from the start.
    """

    def __init__(self, asking: Asking, waiting: dict[str, list[Workload]], hopeless: set[int]) -> None:
        self._asking = asking
        self._above = set(map(id, asking.queue.ancestors()))
        self.waiting = waiting
        self._done = hopeless
        #: The children of each Cohort that are not left out yet, the largest shares last, and for which state of the tree.
        self._left: dict[int, tuple[int, list[ClusterQueueNode], list[CohortNode]]] = {}

    def drop(self, queue: ClusterQueueNode) -> None:
        self._done.add(id(queue))

    def __iter__(self) -> Iterator[ClusterQueueNode]:
        asking = self._asking.queue
        if asking.parent is None:
            while id(asking) not in self._done and self.waiting[asking.name]:
                yield asking
            return
        root = asking.parent.root()
        while id(root) not in self._done:
            if (queue := self._next(root)) is not None:
                yield queue

    def _next(self, cohort: CohortNode) -> ClusterQueueNode | None:
        queues, cohorts = self._children(cohort)
        while queues and (id(queues[-1]) in self._done or not self.waiting[queues[-1].name]):
            queues.pop()
        while cohorts and id(cohorts[-1]) in self._done:
            cohorts.pop()
        if cohorts and (not queues or cohorts[-1].share().rank >= queues[-1].share().rank):
            return self._next(cohorts[-1])
        if not queues:
            self._done.add(id(cohort))
            return None
        return queues[-1]

    def _children(self, cohort: CohortNode) -> tuple[list[ClusterQueueNode], list[CohortNode]]:
        asking, waiting, done = self._asking, self.waiting, self._done
        state, queues, cohorts = self._left.get(id(cohort)) or (-1, cohort.active_queues(), cohort.cohorts)
        if state != cohort.clock[0]:
            queues = [
                one
                for one in queues
                if id(one) not in done and (one is asking.queue or one.share().borrowed) and waiting[one.name]
            ]
            if len({one.share().rank for one in queues}) < len(queues):
                queues.sort(key=lambda one: asking.order(waiting[one.name][0]), reverse=True)
            queues.sort(key=_rank)
            cohorts = [one for one in cohorts if id(one) not in done and (id(one) in self._above or one.share().borrowed)]
            cohorts.sort(key=_rank)
            self._left[id(cohort)] = cohort.clock[0], queues, cohorts
        return queues, cohorts


def _rank(node: QuotaNode) -> tuple[int, float]:
    return node.share().rank
