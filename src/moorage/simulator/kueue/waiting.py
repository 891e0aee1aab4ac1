"""Waiting workloads of one ClusterQueue, and the order in which the heads of all queues are processed.

Active workloads are ordered by priority, then by time; if ``usage`` is given, before that by what it says. A workload that
cannot be admitted goes to the inadmissible ones, until something changes in its tree of Cohorts; in a StrictFIFO queue it stays
in front. Workloads equal to one that does not fit go with it.

Source  Kueue, pkg/cache/queue: cluster_queue.go, inadmissible_workloads.go; pkg/scheduler/fair_sharing_iterator.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush, heapreplace

from moorage.simulator.kueue.flavors import Assignment
from moorage.simulator.kueue.objects import ClusterQueue
from moorage.simulator.kueue.preemption import Victim
from moorage.simulator.kueue.quota import CohortNode, DominantShare
from moorage.simulator.kueue.workloads import Amounts, Workload


class Requeue(Enum):
    """Why a workload goes back to its queue."""

    GENERIC = "generic"
    FAILED_AFTER_NOMINATION = "failed after nomination"
    PENDING_PREEMPTION = "pending preemption"
    NO_FIT = "no fit"
    NO_CANDIDATES = "no candidates"
    NAMESPACE_MISMATCH = "namespace mismatch"


class Waiting:
    """The waiting workloads of one queue. ``alike``: what one workload learns holds for its equals."""

    def __init__(self, *, strict: bool, usage: Callable[[Workload], float] | None = None, alike: bool = True) -> None:
        self.strict = strict
        self._alike = alike
        self._usage = usage
        self.active: dict[str, Workload] = {}
        self.inadmissible: dict[str, Workload] = {}
        self._heap: list[tuple[tuple[object, ...], str]] = []
        #: By the shapes of those that do not fit now, the one that was tried.
        self._hopeless: dict[str, Workload] = {}
        self._woken_at = -1
        #: The key of the workload that waits for the end of what it preempted.
        self.preemptor = ""

    def __iter__(self) -> Iterator[Workload]:
        """Yield the active workloads in the order of the queue, then the inadmissible ones."""
        for group in (self.active, self.inadmissible):
            yield from sorted(group.values(), key=self._order)

    def add(self, workload: Workload, now: float) -> None:
        """Add a new workload, or one that lost its quota."""
        self.forget(workload.key)
        if _backs_off(workload, now) or (not self.strict and workload.shape in self._hopeless):
            self.inadmissible[workload.key] = workload
        else:
            self._activate(workload)

    def refusal(self, workload: Workload) -> tuple[str, str, str]:
        """Return its condition QuotaReserved; if it was never tried because of an equal one, that of the other."""
        tried = not workload.conditions and workload.key in self.inadmissible and self._hopeless.get(workload.shape)
        return (tried or workload).conditions.get("QuotaReserved", ("", "", ""))

    def head(self) -> Workload | None:
        """Return the workload that is next."""
        if self._usage is not None:  # the order changes with time
            return min(self.active.values(), key=self._order, default=None)
        while self._heap:
            rank, key = self._heap[0]
            workload = self.active.get(key)
            if workload is not None and rank == self._order(workload):
                return workload
            heappop(self._heap)
        return None

    def pop(self) -> Workload | None:
        """Take the head."""
        workload = self.head()
        if workload is not None:
            if self._usage is None:
                heappop(self._heap)
            del self.active[workload.key]
        return workload

    def requeue(self, workload: Workload, why: Requeue, now: float, cycle: int) -> None:
        """Put a workload back that this cycle popped, in front or aside."""
        if why is Requeue.PENDING_PREEMPTION:
            before, self.preemptor = self.preemptor, workload.key
            if before in self.active:
                self._activate(self.active[before])
        at_once = why in {Requeue.FAILED_AFTER_NOMINATION, Requeue.PENDING_PREEMPTION}
        at_once |= self.strict and why is not Requeue.NAMESPACE_MISMATCH
        pending = workload.scan is not None and workload.scan.pending
        if not _backs_off(workload, now) and (at_once or self._woken_at >= cycle or pending):
            self._activate(workload)
            return
        self.inadmissible[workload.key] = workload
        if why in {Requeue.NO_FIT, Requeue.NO_CANDIDATES} and not self.strict and self._alike:
            self._hopeless[workload.shape] = workload
            for other in [one for one in self.active.values() if one.shape == workload.shape]:
                self.inadmissible[other.key] = self.active.pop(other.key)

    def forget(self, key: str) -> None:
        """Remove a workload that holds quota now, or is gone."""
        self.active.pop(key, None)
        self.inadmissible.pop(key, None)
        if self.preemptor == key:
            self.preemptor = ""

    def wake(self, now: float, matches: Callable[[Workload], bool], cycle: int) -> None:
        """Bring the inadmissible workloads back that ``matches`` accepts: something has changed in the tree."""
        self._woken_at = cycle
        self._hopeless.clear()
        for workload in [one for one in self.inadmissible.values() if matches(one) and not _backs_off(one, now)]:
            self._activate(self.inadmissible.pop(workload.key))

    def _activate(self, workload: Workload) -> None:
        self.active[workload.key] = workload
        if self._usage is None:
            heappush(self._heap, (self._order(workload), workload.key))

    def _order(self, workload: Workload) -> tuple[object, ...]:
        preferred = not self.strict and workload.key == self.preemptor
        used = 0.0 if self._usage is None else self._usage(workload)
        return (used, not preferred, -workload.priority, workload.order_time, workload.uid)


def _backs_off(workload: Workload, now: float) -> bool:
    return workload.requeue_at is not None and now < workload.requeue_at


# -- the order of heads -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class QueueEntry:
    """A head with what it would get. ``why``: how it goes back to its queue if it is not admitted.

    ``holds``  it has quota, and waits for its places in a topology
    """

    workload: Workload
    queue: ClusterQueue
    assignment: Assignment
    targets: list[Victim]
    message: str
    reason: str = ""
    why: Requeue = Requeue.GENERIC
    admitted: bool = False
    queue_fits: bool = True
    holds: bool = False
    #: Whether it waits for the end of what it preempted, and thus goes before others; and its place among equal ones.
    preemptor: bool = False
    place: tuple[int, float] = (0, 0.0)


_Rank = tuple[object, ...]
#: Its rank below a child, the number of the child, and what of its usage goes up from there.
_Next = tuple[_Rank, int, QueueEntry, Amounts]


class FairOrder:
    """Yields entries by tournaments: the child of a Cohort with the smallest share after its admission wins.

    Each Cohort has a heap of what is next below each child. Only what is above an entry changes when it is processed. With
    ``nominal`` those go first that borrow nothing.
    """

    def __init__(self, entries: Iterable[QueueEntry], *, nominal: bool = True) -> None:
        self._nominal = nominal
        self._left = {entry.queue.name: entry for entry in entries}  # of two entries of a queue only the last one takes part
        self._heaps: dict[int, list[_Next]] = {}
        above: dict[int, CohortNode] = {}
        for number, entry in enumerate(self._left.values()):
            if (parent := entry.queue.parent) is not None:
                rank = self._rank(entry, entry.queue.share_with(entry.assignment.usage))
                self._heaps.setdefault(id(parent), []).append(
                    (rank, number, entry, entry.queue.overflow(entry.assignment.usage))
                )
                above |= {id(node): node for node in entry.queue.ancestors()}
        for root in [node for node in above.values() if node.parent is None]:
            self._build(root, above)

    def __iter__(self) -> Iterator[QueueEntry]:
        while self._left:
            winner = next(iter(self._left.values()))
            if winner.queue.parent is not None:
                winner = self._heaps[id(winner.queue.root())][0][2]
            del self._left[winner.queue.name]
            yield winner
            child: CohortNode | None = None
            for node in winner.queue.ancestors():
                heap = self._heaps[id(node)]
                if child is not None and (following := self._next(child, heap[0][1])) is not None:
                    heapreplace(heap, following)
                else:
                    heappop(heap)
                child = node

    def _build(self, cohort: CohortNode, above: Mapping[int, CohortNode]) -> None:
        heap = self._heaps.setdefault(id(cohort), [])
        for number, child in enumerate(cohort.cohorts, -len(cohort.cohorts)):
            if id(child) in above:
                self._build(child, above)
                heap += [one for one in [self._next(child, number)] if one is not None]
        heapify(heap)

    def _next(self, child: CohortNode, number: int) -> _Next | None:
        """Return what is next below a child, for the heap of its parent."""
        if not (heap := self._heaps[id(child)]):
            return None
        _, _, entry, usage = heap[0]
        return self._rank(entry, child.share_with(usage)), number, entry, child.overflow(usage)

    def _rank(self, entry: QueueEntry, share: DominantShare) -> _Rank:
        borrows = self._nominal and share.borrows_any_of(entry.assignment.usage)
        return (not entry.preemptor, borrows, share.rank, entry.place)


def classical_order(entry: QueueEntry) -> tuple[bool, bool, int, tuple[int, float]]:
    """Return what entries are ordered by without fair sharing: how deep they borrow, priority, time."""
    return (not entry.holds, not entry.preemptor, entry.assignment.borrows, entry.place)
