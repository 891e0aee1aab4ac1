"""Preemption: whose quota a workload may take back.

The classical way removes candidates in order until the workload fits, then puts back, in reverse, those it fits without.
Candidates over which the workload has an advantage in the tree come first. With fair sharing the candidates of the least fair
queue come first, and a strategy compares shares before and after.

Source  Kueue, pkg/scheduler/preemption, its folders classical and fairsharing
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import chain, dropwhile, takewhile
from typing import NamedTuple

from moorage.api.pod_requests import add_amounts
from moorage.simulator.kueue.flavors import Grade, Mode
from moorage.simulator.kueue.objects import ClusterQueue
from moorage.simulator.kueue.quota import ClusterQueueNode, CohortNode, QuotaNode, lowest_subtree, standing, victim_rank
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

    def fits(self, *, borrowing: bool = True, counted: bool = False) -> bool:
        """Return whether the workload fits; ``counted``: its own usage is counted already, so what is available falls by it."""
        for key, amount in self.requests.items():
            if not borrowing and self.queue.borrowing_with(key, amount):
                return False
            if (amount and self.queue.available(key) < 0) if counted else amount > self.queue.free(key):
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
        queue.add(candidate.usage, -1)
        candidate.take_places(self.trees, -1)
        return queue

    def take_first(self, candidates: Iterable[tuple[Workload, str]], *, borrowing: bool, counted: bool = False) -> list[Victim]:
        """Take candidates, each with its reason, until the workload fits; put all back if it never does.

        A candidate is taken before the next one is asked for.
        """
        targets: list[Victim] = []
        for one, reason in candidates:
            targets.append(Victim(one, self.take(one), reason))
            if self.fits(borrowing=borrowing, counted=counted):
                return targets
        self.put_back(targets)
        return []

    def put_back(self, targets: Iterable[Victim]) -> None:
        for target in targets:
            target.queue.workloads[target.workload.key] = target.workload
            target.queue.add(target.workload.usage)
            target.workload.take_places(self.trees)

    def fill_back(self, targets: list[Victim], *, borrowing: bool) -> list[Victim]:
        """Spare, from the last but one to the first, what the workload fits without. All are put back."""
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
    asking.queue.clock[2] = 1
    targets = _fair(asking) if fair else _classical(asking)
    asking.queue.clock[0], asking.queue.clock[2] = state, 0
    return targets


def possibility_of(asking: Asking, key: Key, amount: int, *, fair: bool) -> Grade:
    """Return what preemption could do for one flavor and resource, and how deep the queue would then borrow."""
    targets, state = find_targets(asking, fair=fair), asking.queue.clock[0]
    asking.queue.clock[2] = 1
    for target in targets:
        target.queue.add(target.workload.usage, -1)
    height = lowest_subtree(asking.queue, key, amount)[0]
    for target in targets:
        target.queue.add(target.workload.usage)
    asking.queue.clock[0], asking.queue.clock[2] = state, 0
    own = any(target.queue is asking.queue for target in targets)
    return Grade(Mode.PREEMPT if own else Mode.RECLAIM if targets else Mode.NO_CANDIDATES, height)


# -- classical ----------------------------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    workload: Workload
    meets: CohortNode | None
    reason: str


#: Cohorts in which the paths of candidates meet that of the asking queue, and the children that are left out.
_Places = list[tuple[CohortNode, CohortNode | None]]


def _classical(asking: Asking) -> list[Victim]:
    own, queue = asking.own(), asking.queue
    places = _places(asking, own)

    def groups(borrowing: bool) -> list[Callable[[], Iterator[_Candidate]]]:
        return [partial(_listed, asking, places[advantage], advantage, borrowing) for advantage in (True, False)]

    higher, others = (any(True for _ in group()) for group in groups(False))
    if not (own or higher or others):
        return []
    forbidden = queue.preemption.borrow == "Never"
    under = all(queue.quota(key).nominal > queue.usage.get(key, 0) for key in asking.needed)
    if not (higher or others) or (forbidden and not under):
        attempts: tuple[bool, ...] = (True,)
    else:
        attempts = (False, True) if forbidden and not higher else (True, False)
    mine = [_Candidate(one, None, _IN_QUEUE) for one in own]
    for borrowing in attempts:
        usable = chain(own, (one.workload for group in groups(borrowing) for one in group()))
        if not (asking.may_fit(usable) and (borrowing or asking.stays_within(own))):
            continue
        ordered = _ordered(*groups(borrowing), lambda: iter(mine))
        valid = ((one.workload, one.reason) for one in ordered if _is_valid(asking, one))
        if targets := asking.take_first(valid, borrowing=borrowing):
            return asking.fill_back(targets, borrowing=borrowing)
    return []


def _places(asking: Asking, own: Sequence[Workload]) -> dict[bool, _Places]:
    """Return where candidates are over which the tree gives an advantage, and where those are that priority decides about."""
    rules, queue = asking.queue.preemption, asking.queue
    places: dict[bool, _Places] = {True: [], False: []}
    if queue.parent is not None and rules.reclaim != "Never":
        advantage, rest = queue.fits_in_quota(asking.requests), queue.overflow(asking.requests)
        done: CohortNode | None = None
        # Without an advantage others help only a queue that stays within its quota, unless it may preempt while borrowing.
        pointless = rules.borrow == "Never" and not asking.stays_within(own)
        for cohort in queue.ancestors():
            if advantage or not pointless:
                places[advantage].append((cohort, done))
            advantage, done = advantage or cohort.fits_in_quota(rest), cohort
            rest = cohort.overflow(rest)
    return places


def _listed(asking: Asking, places: _Places, advantage: bool, borrowing: bool) -> Iterator[_Candidate]:
    """Return candidates of other queues in the order of victims.

    Without an advantage a workload that borrows takes only what its queue may preempt while borrowing.
    """
    rules, priority = asking.queue.preemption, asking.workload.priority

    def below(cohort: CohortNode, done: CohortNode | None) -> Iterator[_Candidate]:
        for one, child in cohort.candidates(asking.needed):
            if child is done or child is asking.queue or not asking.allows(one, rules.reclaim):
                continue
            limit = rules.borrow_threshold
            lower = rules.borrow != "Never" and one.priority < priority and (limit is None or one.priority <= limit)
            if advantage or lower or not borrowing:
                yield _Candidate(one, cohort, _BORROWING if lower and not advantage else _RECLAIM)

    if borrowing and not advantage and rules.borrow == "Never":
        return iter(())
    found = [below(*place) for place in places]
    return found[0] if len(found) == 1 else merge(*found, key=lambda one: victim_rank(one.workload))


def _ordered(*groups: Callable[[], Iterator[_Candidate]]) -> Iterator[_Candidate]:
    """Yield the evicted ones of all groups, which stand first in each, then the others."""
    for cut in (takewhile, dropwhile):
        for group in groups:
            yield from cut(lambda one: one.workload.evicted, group())


def _is_valid(asking: Asking, candidate: _Candidate) -> bool:
    """Return whether a candidate still uses what others could have: earlier victims may have been enough of its subtree."""
    if candidate.meets is None:
        return True
    queue = asking.queues[candidate.workload.cluster_queue]
    below = takewhile(lambda node: node is not candidate.meets, queue.ancestors())
    return not any(node.within_nominal(asking.needed) for node in chain((queue,), below))


# -- fair sharing -------------------------------------------------------------------------------------------------------


class _Waiting(dict[str, list[Workload]]):
    """The candidates by queue that were not taken yet, found when they are first asked for, and again after ``clear``."""

    def __init__(self, asking: Asking, own: list[Workload]) -> None:
        super().__init__()
        self._asking = asking
        self._all = {asking.queue.name: own}

    def __missing__(self, name: str) -> list[Workload]:
        asking, rule, queue = self._asking, self._asking.queue.preemption.reclaim, self._asking.queues[name]
        if name not in self._all:
            users = [] if rule == "Never" or queue.within_nominal(asking.needed) else queue.users(asking.needed)
            self._all[name] = users if rule == "Any" else [one for one in users if asking.allows(one, rule)]
        found = self[name] = [one for one in self._all[name] if one.key in queue.workloads]
        return found


def _fair(asking: Asking) -> list[Victim]:
    queue, requests, own = asking.queue, asking.requests, asking.own()
    entitled = asking.entitles and not any(queue.borrowing_with(key, requests.get(key, 0)) for key in asking.needed)
    hopeless = _find_hopeless(asking, own, compares=not entitled)
    if hopeless is None:
        return []
    waiting = _Waiting(asking, own)

    def candidates() -> Iterator[tuple[Workload, str]]:
        yield from _in_turn(Turns(asking, waiting, None if entitled else asking.strategies[0], hopeless))
        if not entitled and len(asking.strategies) > 1:
            waiting.clear()
            yield from _in_turn(Turns(asking, waiting, asking.strategies[1]), once=True)

    queue.add(requests)  # shares are those after the admission
    targets = asking.take_first(candidates(), borrowing=True, counted=True)
    queue.add(requests, -1)
    return asking.fill_back(targets, borrowing=True)


def _find_hopeless(asking: Asking, own: Sequence[Workload], *, compares: bool) -> dict[int, int] | None:
    """Return how many in the line of each Cohort above lose nothing; None if all others are not enough for the workload.

    A child of a Cohort above the asking queue loses nothing, whatever happens to others before, if its share is smaller already
    than that of the asking side without all that could go below it.
    """
    node: QuotaNode = asking.queue
    missing = {key: amount - asking.queue.available(key) for key, amount in asking.requests.items() if amount}
    found, more, gone = dict[int, int](), asking.requests, dict[Key, int]()
    for one in own:
        add_amounts(gone, one.usage)
    for parent in asking.queue.ancestors():
        line = parent.line()
        at = len(line) if asking.queue.preemption.reclaim == "Never" else 0
        if compares and at < len(line):
            least = node.share_with({key: more.get(key, 0) - gone.get(key, 0) for key in {*more, *gone}}).rank
            at = bisect_left(line, least, key=lambda one: one.share().rank)
        found[id(parent)] = at
        used = parent.used_from(at)
        add_amounts(gone, used)
        if node in line[at:]:
            add_amounts(gone, {key: node.usage.get(key, 0) for key in used}, -1)
        more, node = node.overflow(more), parent
    return None if any(amount > gone.get(key, 0) for key, amount in missing.items()) else found


def _in_turn(turns: Turns, *, once: bool = False) -> Iterator[tuple[Workload, str]]:
    """Yield what the strategy allows to take from the queues in turn, perhaps once from each, with the reason."""
    final = turns.strategy == STRATEGIES[0]
    for queue in turns:
        left, own = turns.waiting[queue.name], queue is turns.asking.queue
        if once:
            del left[1:]
        while final and left and not own and turns.mine.share().rank > turns.theirs.share_without(queue, left[0].usage).rank:
            del left[0]
        if left:
            yield left.pop(0), _IN_QUEUE if own else _FAIR if turns.strategy else _RECLAIM
            turns.note_taken(queue)


class Turns:
    """Yields the queue to take from next: at each level of the tree the child with the largest share.

    ``waiting`` are the candidates by queue; the caller takes some, and removes others. Children that do not borrow are left
    out, except the asking queue and what is above it; so are those that the strategy never takes from, as shares only fall.
    ``hopeless``: the lines of children begin as they were before the search, without so many that lose nothing.
    """

    def __init__(
        self, asking: Asking, waiting: dict[str, list[Workload]], strategy: str | None = None,
        hopeless: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        self.asking = asking
        self.waiting = waiting
        self.strategy = strategy
        self._hopeless = hopeless
        #: The nodes on the way to the root, by the Cohort above each.
        self._mine: dict[int, QuotaNode] = {}
        node: QuotaNode = asking.queue
        for parent in asking.queue.ancestors():
            self._mine[id(parent)] = node
            node = parent
        self._root = node
        #: The nodes just below the lowest Cohort above both the asking queue and the queue that is next.
        self.mine = self.theirs = node
        #: The children of each Cohort that are in turn, the next one last.
        self._lines: dict[int, list[QuotaNode]] = {}

    def __iter__(self) -> Iterator[ClusterQueueNode]:
        while (queue := self._next(self._root)) is not None:
            yield queue

    def note_taken(self, queue: ClusterQueueNode) -> None:
        """Note that shares have changed from a queue to the root; each node was the next one of its line."""
        node: QuotaNode = queue
        for parent in queue.ancestors():
            line = self._lines[id(parent)]
            line.pop()
            if self._is_in_turn(node):
                insort(line, node, key=standing)
            node = parent

    def _next(self, node: QuotaNode) -> ClusterQueueNode | None:
        if isinstance(node, ClusterQueueNode):
            return node if self.waiting[node.name] else None
        assert isinstance(node, CohortNode)
        line, mine = self._line(node), self._mine.get(id(node))
        while line:
            child, allowed = self._last(line), True
            if mine is not None and child is not mine:
                self.mine, self.theirs = mine, child
                if self.strategy:
                    own, initial = mine.share().rank, child.share().rank
                    allowed = own < initial or (own == initial and self.strategy == STRATEGIES[0])
            if allowed and (queue := self._next(child)) is not None:
                return queue
            line.pop()
        return None

    def _last(self, line: list[QuotaNode]) -> QuotaNode:
        """Return the next one of a line; of queues with equal shares the one with the first candidate."""
        last = line[-1]
        if isinstance(last, ClusterQueueNode) and len(line) > 1 and line[-2].share().rank == last.share().rank:
            at, order = bisect_left(line, standing(last), key=standing), self.asking.order
            tied = {one: order(self.waiting[one.name][0]) for one in line[at:] if self.waiting[one.name]}
            if tied:
                line[at:] = sorted(tied, key=tied.__getitem__, reverse=True)
        return line[-1]

    def _line(self, cohort: CohortNode) -> list[QuotaNode]:
        line, mine = self._lines.get(id(cohort)), self._mine.get(id(cohort))
        if line is not None:
            return line
        if self._hopeless is None:
            line = sorted(filter(self._is_in_turn, cohort.children), key=standing)
        else:
            line = [one for one in cohort.line()[self._hopeless.get(id(cohort), 0) :] if one is not mine]
            if mine is not None and self._is_in_turn(mine):
                children = cohort.children
                insort(line, mine, key=lambda one: (standing(one), children.index(one)))
        self._lines[id(cohort)] = line
        return line

    def _is_in_turn(self, node: QuotaNode) -> bool:
        if not isinstance(node, ClusterQueueNode):
            return id(node) in self._mine or bool(node.share().borrowed)
        return node.active and bool(node.share().borrowed or node is self.asking.queue) and bool(self.waiting[node.name])
