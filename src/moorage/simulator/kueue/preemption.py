"""Preemption: whose quota a workload may take back.

The classical way removes candidates in order until the workload fits, then puts back, in reverse, those it fits without.
Candidates over which the workload has an advantage in the tree come first. With fair sharing the candidates of the least fair
queue come first, and a strategy compares shares before and after.

Source  Kueue, pkg/scheduler/preemption, its folders classical and fairsharing
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import chain, dropwhile, pairwise, takewhile
from typing import NamedTuple

from moorage.simulator.kueue.flavors import Possibility
from moorage.simulator.kueue.objects import ClusterQueue
from moorage.simulator.kueue.quota import ClusterQueueNode, CohortNode, QuotaNode, lowest_subtree, victim_rank
from moorage.simulator.kueue.settings import STRATEGIES
from moorage.simulator.kueue.topology import TopologyTree, find_places
from moorage.simulator.kueue.topology_requests import PlacementRequest
from moorage.simulator.kueue.workloads import Amounts, Key, Workload

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
    trees: Mapping[str, TopologyTree]
    places: Mapping[str, Sequence[PlacementRequest]]
    #: With fair sharing: the rules by which shares are compared, in turn.
    strategies: Sequence[str] = STRATEGIES
    #: With fair sharing: whether a workload that its queue's own quota would hold may take from all that borrow.
    entitles: bool = True

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
    question = None if asking.places else (state, asking.workload.key, asking.needed, asking.requests)
    if question is None or asking.queue.asked[0] != question:
        asking.queue.asked = question, _fair(asking) if fair else _classical(asking)
        asking.queue.clock[0] = state
    return list(asking.queue.asked[1])


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


#: Candidates of other queues in the order of victims, found as they are asked for; and whether none helps one that borrows.
_Group = tuple[Callable[[], Iterator[_Candidate]], bool]
#: Cohorts in which the paths of candidates meet that of the asking queue, and the children that are left out.
_Places = list[tuple[CohortNode, CohortNode | None]]


def _listed(asking: Asking, places: _Places, advantage: bool) -> Iterator[_Candidate]:
    def below(cohort: CohortNode, done: CohortNode | None) -> Iterator[_Candidate]:
        for one, child in cohort.candidates(asking.needed):
            if child is not done and child is not asking.queue and asking.allows(one, asking.queue.preemption.reclaim):
                yield _classified(asking, one, cohort, advantage)

    found = [below(*place) for place in places]
    return found[0] if len(found) == 1 else merge(*found, key=lambda one: victim_rank(one.workload))


def _classical(asking: Asking) -> list[Victim]:
    (above, beside), own = _candidates(asking)
    others, higher = any(True for found, _ in (above, beside) for _ in found()), any(True for _ in above[0]())
    if not (own or others):
        return []
    forbidden = asking.queue.preemption.borrow == "Never"
    under = all(asking.queue.quota(key).nominal > asking.queue.usage.get(key, 0) for key in asking.needed)
    if not others or (forbidden and not under):
        attempts: tuple[bool, ...] = (True,)
    else:
        attempts = (False, True) if forbidden and not higher else (True, False)
    for borrowing in attempts:
        targets: list[Victim] = []
        groups = [found for found, only_within_nominal in (above, beside) if not (borrowing and only_within_nominal)]
        usable = (
            one.workload for one in chain(own, *(found() for found in groups)) if not (borrowing and one.only_within_nominal)
        )
        if not (asking.may_fit(usable) and (borrowing or asking.stays_within([one.workload for one in own]))):
            continue
        for candidate in _ordered(*groups, lambda: iter(own)):
            if not _is_valid(asking, candidate, borrowing):
                continue
            targets.append(Victim(candidate.workload, asking.take(candidate.workload), candidate.reason))
            if asking.fits(borrowing=borrowing):
                return asking.fill_back(targets, borrowing=borrowing)
        asking.put_back(targets)
    return []


def _ordered(*groups: Callable[[], Iterator[_Candidate]]) -> Iterator[_Candidate]:
    """Yield the evicted ones of all groups, which stand first in each, then the others."""
    for cut in (takewhile, dropwhile):
        for group in groups:
            yield from cut(lambda one: one.workload.evicted, group())


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


def _candidates(asking: Asking) -> tuple[tuple[_Group, _Group], list[_Candidate]]:
    """Return the candidates over which the tree gives an advantage, those that priority decides about, and the queue's own."""
    rules, queue = asking.queue.preemption, asking.queue
    own = [_Candidate(one, None, _IN_QUEUE) for one in asking.own()]
    places: dict[bool, _Places] = {True: [], False: []}
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
    above, beside = (partial(_listed, asking, places[advantage], advantage) for advantage in (True, False))
    return ((above, False), (beside, rules.borrow == "Never")), own


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
        users = [] if rule == "Never" or queue.within_nominal(asking.needed) else queue.users(asking.needed)
        found = self[name] = list(users) if rule == "Any" else [one for one in users if asking.allows(one, rule)]
        return found


def _fair(asking: Asking) -> list[Victim]:
    queue, requests, waiting = asking.queue, asking.requests, _Waiting(asking)
    entitled = asking.entitles and not any(queue.borrowing_with(key, requests.get(key, 0)) for key in asking.needed)
    most, hopeless = _prospects(asking, waiting[queue.name], entitled=entitled)
    if any(amount and amount > queue.available(key) + most.get(key, 0) for key, amount in requests.items()):
        return []
    queue.add(requests)  # shares are those after the admission
    targets: list[Victim] = []
    again: dict[str, list[Workload]] = defaultdict(list)
    fits = _first_strategy(Turns(asking, waiting, hopeless), targets, again, entitled=entitled)
    if not fits and len(asking.strategies) > 1:
        fits = _second_strategy(Turns(asking, again, set()), targets)
    queue.remove(requests)
    if not fits:
        asking.put_back(targets)
        return []
    return asking.fill_back(targets, borrowing=True)


def _prospects(asking: Asking, own: Iterable[Workload], *, entitled: bool) -> tuple[Amounts, set[int]]:
    """Return what victims could give back at most, and the nodes that lose nothing, whatever happens to others before.

    A share only falls while victims are found. So a node loses nothing whose share is smaller already than that of the asking
    side without all that could go below it.
    """
    hopeless: set[int] = set()
    node: QuotaNode = asking.queue
    more, gone = asking.requests, defaultdict[Key, int](int)

    def leave(amounts: Amounts) -> None:
        for key, amount in amounts.items():
            gone[key] += amount

    for one in own:
        leave(one.usage)
    for parent in node.ancestors() if asking.queue.preemption.reclaim != "Never" else ():
        least = (0, -1.0)
        if not entitled:
            least = node.share_with({key: more.get(key, 0) - gone[key] for key in {*more, *gone}}).rank
        for child in parent.children:
            if child is node:
                continue
            share = child.share()
            if not share.borrowed or share.rank < least:
                hopeless.add(id(child))
            else:
                leave(child.usage)
        more, node = node.overflow(more), parent
    return gone, hopeless


def _first_strategy(
    turns: Turns, targets: list[Victim], again: dict[str, list[Workload]], *, entitled: bool
) -> bool:  # fmt: skip
    """Take from the queues in turn what the first rule allows; ``again`` gets the others."""
    asking, final = turns.asking, turns.asking.strategies[0] == STRATEGIES[0]
    for queue in turns:
        left = turns.waiting[queue.name]
        if queue is asking.queue or entitled:
            if turns.take(queue, _IN_QUEUE if queue is asking.queue else _RECLAIM, targets):
                return True
            continue
        mine, theirs = turns.sides(queue)
        own, initial = mine.share().rank, theirs.share().rank
        if initial < own or (initial == own and not final):
            again[queue.name] += left
            left.clear()
        while left:
            if not final or own <= theirs.share_without(queue, left[0].usage).rank:
                if turns.take(queue, _FAIR, targets):
                    return True
                break
            again[queue.name].append(left.pop(0))
    return False


def _second_strategy(turns: Turns, targets: list[Victim]) -> bool:
    """Take from the queues in turn, once from each, what the second rule allows."""
    for queue in turns:
        del turns.waiting[queue.name][1:]
        mine, theirs = turns.sides(queue)
        if mine.share().rank < theirs.share().rank and turns.take(queue, _FAIR, targets):
            return True
        turns.waiting[queue.name].clear()
    return False


class Turns:
    """Yields the queue to take from next: at each level of the tree the child with the largest share.

    ``waiting`` are the candidates by queue; the caller takes some, and removes others. Children that do not borrow are left
    out, except those above the asking queue and that queue itself; so are ``hopeless`` ones.
    """

    def __init__(self, asking: Asking, waiting: dict[str, list[Workload]], hopeless: set[int]) -> None:
        self.asking = asking
        self.waiting = waiting
        self._hopeless = hopeless
        #: The nodes on the way to the root, by the Cohort above each.
        self._mine: dict[int, QuotaNode] = {}
        node: QuotaNode = asking.queue
        for parent in asking.queue.ancestors():
            self._mine[id(parent)] = node
            node = parent
        #: The children of each Cohort that are in turn, the next one last.
        self._lines: dict[int, list[QuotaNode]] = {}
        self._root = node

    def __iter__(self) -> Iterator[ClusterQueueNode]:
        while (queue := self._next(self._root)) is not None:
            yield queue

    def sides(self, queue: ClusterQueueNode) -> tuple[QuotaNode, QuotaNode]:
        """Return the nodes just below the lowest Cohort above both the asking queue and this one."""
        theirs: QuotaNode = queue
        while (mine := self._mine.get(id(theirs.parent))) is None:
            assert theirs.parent is not None
            theirs = theirs.parent
        return mine, theirs

    def take(self, queue: ClusterQueueNode, reason: str, targets: list[Victim]) -> bool:
        """Take the next candidate of a queue. Return whether the workload then fits."""
        one = self.waiting[queue.name].pop(0)
        targets.append(Victim(one, self.asking.take(one), reason))
        if self.asking.fits_counted():
            return True
        node: QuotaNode = queue
        for parent in queue.ancestors():  # their shares have changed, and each was the next one of its line
            line = self._lines[id(parent)]
            line.pop()
            if self._is_in_turn(node):
                at = bisect_right(line, _standing(node), key=_standing)
                line.insert(at, node)
                if at and _standing(line[at - 1]) == _standing(node):
                    self._arrange(line)
            node = parent
        return False

    def _next(self, node: QuotaNode) -> ClusterQueueNode | None:
        if isinstance(node, ClusterQueueNode):
            return node if self.waiting[node.name] else None
        assert isinstance(node, CohortNode)
        line = self._lines.get(id(node))
        if line is None:
            line = self._lines[id(node)] = [one for one in node.children if self._is_in_turn(one)]
            self._arrange(line)
        while line:
            if (queue := self._next(line[-1])) is not None:
                return queue
            line.pop()
        return None

    def _is_in_turn(self, node: QuotaNode) -> bool:
        if id(node) in self._hopeless:
            return False
        if not isinstance(node, ClusterQueueNode):
            return bool(node.share().borrowed) or id(node) in self._mine
        return node.active and bool(node.share().borrowed or node is self.asking.queue) and bool(self.waiting[node.name])

    def _arrange(self, line: list[QuotaNode]) -> None:
        """Sort children by share; of equal ones Cohorts are next, then the queue with the first candidate."""
        line.sort(key=_standing)
        if any(a.share().rank == b.share().rank for a, b in pairwise(line)):
            queues = [one for one in line if isinstance(one, ClusterQueueNode)]
            queues.sort(key=lambda one: self.asking.order(self.waiting[one.name][0]), reverse=True)
            line[:] = sorted([*queues, *(one for one in line if isinstance(one, CohortNode))], key=_standing)


def _standing(node: QuotaNode) -> tuple[tuple[int, float], bool]:
    return node.share().rank, isinstance(node, CohortNode)
