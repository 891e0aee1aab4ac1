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

__all__ = ["FairOrder", "QueueEntry", "classical_order"]


@dataclass(slots=True)
class QueueEntry:
    """A head with what it would get. ``why``: how it goes back to its queue if it is not admitted."""

    workload: Workload
    queue: ClusterQueue
    assignment: Assignment
    targets: list[Victim]
    message: str
    reason: str = ""
    why: Requeue = Requeue.GENERIC
    skipped: bool = False
    admitted: bool = False
    queue_fits: bool = True


class FairOrder:
    """Yields entries by tournaments: the child of a Cohort with the smallest share after its admission wins.

    The shares of queues below their own Cohort do not change while others are admitted, so each Cohort has them in a heap. The
    share of a Cohort does: it is computed for the one entry that won below.
    """

    def __init__(self, entries: Sequence[QueueEntry]) -> None:
        self._left = {entry.queue.name: entry for entry in entries}
        self._heaps: dict[int, list[tuple[tuple[object, ...], int, QueueEntry]]] = {}
        self._above: set[int] = set()
        for number, entry in enumerate(entries):
            if (parent := entry.queue.parent) is not None:
                rank = _fair_rank(entry, entry.queue.share_with(entry.assignment.usage))
                self._heaps.setdefault(id(parent), []).append((rank, number, entry))
                self._above.update(map(id, entry.queue.ancestors()))
        for heap in self._heaps.values():
            heapify(heap)

    def __iter__(self) -> Iterator[QueueEntry]:
        while self._left:
            winner = next(iter(self._left.values()))
            if winner.queue.parent is not None:
                found = self._winner(winner.queue.parent.root())
                assert found is not None
                winner = found[0]
                heappop(self._heaps[id(winner.queue.parent)])
            del self._left[winner.queue.name]
            yield winner

    def _winner(self, cohort: CohortNode) -> tuple[QueueEntry, Amounts] | None:
        """Return the entry that wins below a Cohort, and what of its usage reaches the Cohort."""
        best: tuple[QueueEntry, Amounts] | None = None
        best_rank: tuple[object, ...] = ()
        for child in cohort.cohorts:
            if id(child) in self._above and (found := self._winner(child)) is not None:
                entry, usage = found
                rank = _fair_rank(entry, child.share_with(usage))
                if best is None or rank < best_rank:
                    best, best_rank = (entry, child.overflow(usage)), rank
        heap = self._heaps.get(id(cohort))
        if heap and (best is None or heap[0][0] < best_rank):
            entry = heap[0][2]
            return entry, entry.queue.overflow(entry.assignment.usage)
        return best


def _fair_rank(entry: QueueEntry, share: DominantShare) -> tuple[object, ...]:
    workload = entry.workload
    return (share.borrows_any_of(entry.assignment.usage), share.rank, -workload.priority, workload.order_time)


def classical_order(entry: QueueEntry) -> tuple[int, int, float]:
    """Return what entries are ordered by without fair sharing: how deep they borrow, priority, time."""
    return (entry.assignment.borrows, -entry.workload.priority, entry.workload.order_time)
