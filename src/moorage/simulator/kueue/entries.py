"""The entries of a cycle: heads of queues with their flavors and victims, and the order in which they are processed.

Source  Kueue, pkg/scheduler: scheduler.go, fair_sharing_iterator.go
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop

from moorage.simulator.kueue.flavors import Assignment
from moorage.simulator.kueue.objects import ClusterQueue
from moorage.simulator.kueue.preemption import Victim
from moorage.simulator.kueue.quota import CohortNode, DominantShare
from moorage.simulator.kueue.waiting import Requeue
from moorage.simulator.kueue.workloads import Amounts, Workload


@dataclass(slots=True)
class QueueEntry:
    """A head with what it would get. ``why``: how it goes back to its queue if it is not admitted; ``refused``: it is there.

    ``holds``  it has quota, and waits for its places in a topology
    """

    workload: Workload
    queue: ClusterQueue
    assignment: Assignment
    targets: list[Victim]
    message: str
    reason: str = ""
    why: Requeue = Requeue.GENERIC
    skipped: bool = False
    admitted: bool = False
    refused: bool = False
    queue_fits: bool = True
    holds: bool = False
    #: Whether it waits for the end of what it preempted, and thus goes before others; and its place among equal ones.
    preemptor: bool = False
    place: tuple[int, float] = (0, 0.0)


_Rank = tuple[object, ...]


class FairOrder:
    """Yields entries by tournaments: the child of a Cohort with the smallest share after its admission wins.

    The shares of queues below their own Cohort do not change while others are admitted, so each Cohort has them in a heap. What
    won below a Cohort, and its share there, holds until the winner of all comes from below it. With ``nominal`` those go first
    that do not borrow what they ask for.
    """

    def __init__(self, entries: Sequence[QueueEntry], *, nominal: bool = True) -> None:
        self._nominal = nominal
        self._left = {entry.queue.name: entry for entry in entries}  # of two entries of a queue only the last one takes part
        self._heaps: dict[int, list[tuple[_Rank, int, QueueEntry]]] = {}
        self._above: set[int] = set()
        self._won: dict[int, tuple[QueueEntry, Amounts, _Rank] | None] = {}
        for number, entry in enumerate(self._left.values()):
            if (parent := entry.queue.parent) is not None:
                rank = self._rank(entry, entry.queue.share_with(entry.assignment.usage))
                self._heaps.setdefault(id(parent), []).append((rank, number, entry))
                self._above.update(map(id, entry.queue.ancestors()))
        for heap in self._heaps.values():
            heapify(heap)

    def __iter__(self) -> Iterator[QueueEntry]:
        while self._left:
            winner = next(iter(self._left.values()))
            if winner.queue.parent is not None:
                found = self._winner([*winner.queue.ancestors()][-1])
                assert found is not None
                winner = found[0]
                heappop(self._heaps[id(winner.queue.parent)])
                for node in winner.queue.ancestors():
                    self._won.pop(id(node), None)
            del self._left[winner.queue.name]
            yield winner

    def _winner(self, cohort: CohortNode) -> tuple[QueueEntry, Amounts] | None:
        """Return the entry that wins below a Cohort, and what of its usage reaches the Cohort."""
        best: tuple[QueueEntry, Amounts, _Rank] | None = None
        for child in cohort.cohorts:
            if id(child) in self._above:
                if id(child) not in self._won:
                    self._won[id(child)] = self._ranked(child)
                found = self._won[id(child)]
                if found is not None and (best is None or found[2] < best[2]):
                    best = found
        heap = self._heaps.get(id(cohort))
        if heap and (best is None or heap[0][0] < best[2]):
            entry = heap[0][2]
            return entry, entry.queue.overflow(entry.assignment.usage)
        return best and best[:2]

    def _ranked(self, child: CohortNode) -> tuple[QueueEntry, Amounts, _Rank] | None:
        """Return the winner below a child, what of its usage goes above the child, and the share of the child with it."""
        if (found := self._winner(child)) is None:
            return None
        entry, usage = found
        return entry, child.overflow(usage), self._rank(entry, child.share_with(usage))

    def _rank(self, entry: QueueEntry, share: DominantShare) -> _Rank:
        borrows = self._nominal and share.borrows_any_of(entry.assignment.usage)
        return (not entry.preemptor, borrows, share.rank, entry.place)


def classical_order(entry: QueueEntry) -> tuple[bool, bool, int, tuple[int, float]]:
    """Return what entries are ordered by without fair sharing: how deep they borrow, priority, time."""
    return (not entry.holds, not entry.preemptor, entry.assignment.borrows, entry.place)
