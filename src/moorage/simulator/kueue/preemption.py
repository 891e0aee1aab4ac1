"""Preemption: whose quota a workload may take back.

The classical way removes candidates in order until the workload fits, then puts back, in reverse, those it fits without.
Candidates over which the workload has an advantage in the tree come first. With fair sharing the candidates of the least fair
queue come first, and a strategy compares shares before and after.

Source  Kueue, pkg/scheduler/preemption, its folders classical and fairsharing
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, dropwhile, takewhile
from typing import NamedTuple

from moorage.simulator.kueue.flavors import Possibility
from moorage.simulator.kueue.objects import ClusterQueue
from moorage.simulator.kueue.quota import ClusterQueueNode, CohortNode, DominantShare, QuotaNode, lowest_subtree, victim_rank
from moorage.simulator.kueue.topology import TopologyTree, find_places
from moorage.simulator.kueue.topology_requests import PlacementRequest
from moorage.simulator.kueue.workloads import Amounts, Key, Workload

__all__ = ["Asking", "OverQuota", "Victim", "find_targets", "possibility_of"]

_IN_QUEUE = "InClusterQueue"
_RECLAIM = "InCohortReclamation"
_FAIR = "InCohortFairSharing"
_BORROWING = "InCohortReclaimWhileBorrowing"


class Victim(NamedTuple):
    """A workload to evict, and the rule that allows it."""

    workload: Workload
    queue: ClusterQueueNode
    reason: str


#: For a Cohort, and flavors and resources: the workloads of the queues below that use more than their quota, in the order of
#: victims, each with the child of the Cohort above it. It holds as long as usage does not change.
OverQuota = dict[tuple[int, frozenset[Key]], list[tuple[Workload, QuotaNode]]]


@dataclass(slots=True)
class Asking:
    """A workload that needs room in ``needed``, and all that it requests."""

    workload: Workload
    queue: ClusterQueue
    queues: dict[str, ClusterQueue]
    needed: frozenset[Key]
    requests: Amounts
    now: float
    over: OverQuota
    trees: Mapping[str, TopologyTree]
    places: Mapping[str, Sequence[PlacementRequest]]

    def fits(self, *, borrowing: bool = True) -> bool:
        for key, amount in self.requests.items():
            if not borrowing and self.queue.borrowing_with(key, amount):
                return False
            if amount > self.queue.free(key):
                return False
        return not self.places or find_places(self.places, self.trees)[1] is None

    def fits_apart(self) -> bool:
        """Return whether the workload fits where its own usage is already counted."""
        self.queue.remove(self.requests)
        fits = self.fits()
        self.queue.add(self.requests)
        return fits

    def allows(self, candidate: Workload, policy: str) -> bool:
        """Return whether a policy allows to preempt the candidate, which must use something that is needed."""
        if self.needed.isdisjoint(candidate.uses):
            return False
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
        return [] if rule == "Never" else [one for one in self.queue.held() if self.allows(one, rule)]

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


def find_targets(asking: Asking, *, fair: bool, two_strategies: bool = True) -> list[Victim]:
    """Return the workloads to evict so that the workload fits, or none. The tree is left as it was."""
    return _fair(asking, two_strategies=two_strategies) if fair else _classical(asking)


def possibility_of(asking: Asking, key: Key, amount: int, *, fair: bool) -> tuple[Possibility, int]:
    """Return what preemption could do for one flavor and resource, and how deep the queue would then borrow."""
    targets = find_targets(asking, fair=fair)
    if not targets:
        return Possibility.NO_CANDIDATES, lowest_subtree(asking.queue, key, amount)[0]
    for target in targets:
        target.queue.remove(target.workload.usage)
    height = lowest_subtree(asking.queue, key, amount)[0]
    for target in targets:
        target.queue.add(target.workload.usage)
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
        self._places = [(_over_quota(asking, cohort), cohort, done) for cohort, done in places]

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


def _over_quota(asking: Asking, cohort: CohortNode) -> list[tuple[Workload, QuotaNode]]:
    place = (id(cohort), asking.needed)
    if place not in asking.over:
        found = [(one, child) for queue, child in _queues_over_quota(cohort, asking.needed) for one in queue.held()]
        asking.over[place] = sorted(found, key=lambda each: victim_rank(each[0]))
    return asking.over[place]


def _queues_over_quota(cohort: CohortNode, needed: frozenset[Key]) -> Iterator[tuple[ClusterQueueNode, QuotaNode]]:
    for child in cohort.cohorts:
        if not child.within_nominal(needed):
            yield from ((queue, child) for queue, _ in _queues_over_quota(child, needed))
    for queue in cohort.queues:
        if queue.active and not queue.within_nominal(needed):
            yield queue, queue


# -- fair sharing -------------------------------------------------------------------------------------------------------


def _fair(asking: Asking, *, two_strategies: bool) -> list[Victim]:
    rules, queue = asking.queue.preemption, asking.queue
    every = [queue] if queue.parent is None or rules.reclaim == "Never" else queue.parent.root().subtree_queues()

    def waiting(of: ClusterQueueNode) -> list[Workload]:
        if of is queue:
            return asking.own()
        if rules.reclaim == "Never" or of.within_nominal(asking.needed):
            return []
        return [one for one in of.held() if asking.allows(one, rules.reclaim)]

    if not asking.may_fit(one for each in every for one in waiting(each)):
        return []
    asking.queue.add(asking.requests)  # shares are those after the admission
    targets: list[Victim] = []
    again: list[Workload] = []
    fits = _first_strategy(asking, _Order(asking, waiting), targets, again)
    if not fits and two_strategies:
        fits = _second_strategy(asking, again, targets)
    asking.queue.remove(asking.requests)
    if not fits:
        asking.put_back(targets)
        return []
    return asking.fill_back(targets, borrowing=True)


def _first_strategy(asking: Asking, order: _Order, targets: list[Victim], again: list[Workload]) -> bool:
    """LessThanOrEqualToFinalShare: the share after preemption must not exceed that of the queue that loses a workload."""
    entitled = not any(asking.queue.borrowing_with(key) for key in asking.needed)
    for queue in order:
        waiting = order.waiting(queue)
        if queue is asking.queue or entitled:
            one = waiting.pop(0)
            targets.append(Victim(one, asking.take(one), _IN_QUEUE if queue is asking.queue else _RECLAIM))
            if asking.fits_apart():
                return True
            continue
        mine, theirs = _almost_common(asking.queue, queue)
        own = mine.share()
        while waiting:
            one = waiting.pop(0)
            if own.rank <= _share_without(queue, theirs, one).rank:
                targets.append(Victim(one, asking.take(one), _FAIR))
                if asking.fits_apart():
                    return True
                break
            again.append(one)
    return False


def _second_strategy(asking: Asking, again: list[Workload], targets: list[Victim]) -> bool:
    """LessThanInitialShare: the share must be less than that of the other queue before it loses a workload."""
    left: dict[str, list[Workload]] = {}
    for each in again:
        left.setdefault(each.cluster_queue, []).append(each)
    order = _Order(asking, lambda queue: left.get(queue.name, []))
    for queue in order:
        mine, theirs = _almost_common(asking.queue, queue)
        one = order.waiting(queue).pop(0)
        if mine.share().rank < theirs.share().rank:
            targets.append(Victim(one, asking.take(one), _FAIR))
            if asking.fits_apart():
                return True
        order.drop(queue)
    return False


def _share_without(queue: ClusterQueueNode, node: QuotaNode, workload: Workload) -> DominantShare:
    queue.remove(workload.usage)
    share = node.share()
    queue.add(workload.usage)
    return share


def _almost_common(a: ClusterQueueNode, b: ClusterQueueNode) -> tuple[QuotaNode, QuotaNode]:
    """Return the nodes of both just below their lowest common ancestor."""
    above = set(map(id, a.ancestors()))
    common = next(node for node in b.ancestors() if id(node) in above)

    def below(queue: ClusterQueueNode) -> QuotaNode:
        node: QuotaNode = queue
        for ancestor in queue.ancestors():
            if ancestor is common:
                break
            node = ancestor
        return node

    return below(a), below(b)


class _Order:
    """Yields the queue to take from next: at each level of the tree the child with the largest share.

    Nodes that no longer borrow are left out for good, except those above the asking queue and that queue itself.
    """

    def __init__(self, asking: Asking, candidates: Callable[[ClusterQueueNode], list[Workload]]) -> None:
        self._asking = asking
        self._above = set(map(id, asking.queue.ancestors()))
        self._pruned: set[int] = set()
        self._candidates = candidates
        self._waiting: dict[str, list[Workload]] = {}

    def waiting(self, queue: ClusterQueueNode) -> list[Workload]:
        """Return the candidates of a queue that are left. The caller removes those it takes."""
        if queue.name not in self._waiting:
            self._waiting[queue.name] = self._candidates(queue)
        return self._waiting[queue.name]

    def drop(self, queue: ClusterQueueNode) -> None:
        self._pruned.add(id(queue))

    def __iter__(self) -> Iterator[ClusterQueueNode]:
        asking = self._asking.queue
        if asking.parent is None:
            while id(asking) not in self._pruned and self.waiting(asking):
                yield asking
            return
        root = asking.parent.root()
        while id(root) not in self._pruned:
            if (queue := self._next(root)) is not None:
                yield queue

    def _next(self, cohort: CohortNode) -> ClusterQueueNode | None:
        nowhere = (0, -1.0)
        queue, queue_rank = self._queue_of(cohort, nowhere)
        child: CohortNode | None = None
        child_rank = nowhere
        for one in cohort.cohorts:
            if id(one) in self._pruned:
                continue
            share = one.share()
            if not share.borrowed and id(one) not in self._above:
                self._pruned.add(id(one))
            elif share.rank >= child_rank:
                child, child_rank = one, share.rank
        if child is None and queue is None:
            self._pruned.add(id(cohort))
            return None
        if child is not None and child_rank >= queue_rank:
            return self._next(child)
        return queue

    def _queue_of(self, cohort: CohortNode, rank: tuple[int, float]) -> tuple[ClusterQueueNode | None, tuple[int, float]]:
        asking, best = self._asking, None
        for queue in cohort.active_queues():
            if id(queue) in self._pruned:
                continue
            share = queue.share()
            if (not share.borrowed and queue is not asking.queue) or not self.waiting(queue):
                self._pruned.add(id(queue))
            elif best is not None and share.rank == rank:
                if asking.order(self.waiting(queue)[0]) < asking.order(self.waiting(best)[0]):
                    best = queue
            elif share.rank > rank:
                best, rank = queue, share.rank
        return best, rank
