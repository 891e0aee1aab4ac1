"""Quota: a tree of ClusterQueues below Cohorts, what each may use, and how unfair its use is.

A node's subtree quota is its own plus what its children lend. What a node keeps for itself (its local quota) is never seen by
its parent; use beyond it counts in the parent too. So the usage of every Cohort follows from the usage of the ClusterQueues.

Units   integers: cpu in millicores, memory and storage in bytes, other resources in counts
Source  Kueue, pkg/cache/scheduler: resource_node.go, fair_sharing.go
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from moorage.simulator.kueue.workloads import Amounts, Key, Workload


class QueueQuota(NamedTuple):
    """The quota of a node for one flavor and resource."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


_NO_QUOTA: Final = QueueQuota()


class DominantShare(NamedTuple):
    """The dominant resource share of a node: how much of what others could lend it borrows.

    ``rank``  shares compare by it: thousandths of what can be lent, of the resource with the largest ratio, by the weight; a
              node of weight 0 that borrows is behind all others
    """

    rank: tuple[int, float] = (0, 0.0)
    borrowed: tuple[Key, ...] = ()

    @property
    def shown(self) -> int:
        """The share as the status of a ClusterQueue shows it: rounded up, the largest int64 if the weight is 0."""
        infinite, value = self.rank
        return 2**63 - 1 if infinite else math.ceil(value)

    def borrows_any_of(self, requests: Mapping[Key, int]) -> bool:
        return any(requests.get(key, 0) > 0 for key in self.borrowed)


_NO_SHARE: Final = DominantShare()


class QuotaNode:
    """A ClusterQueue or a Cohort in the tree."""

    def __init__(self, name: str, quotas: dict[Key, QueueQuota], weight: float) -> None:
        self.name = name
        self.quotas = quotas
        self.weight = weight
        self.parent: CohortNode | None = None
        self.subtree: Amounts = {}
        self.usage: Amounts = {}
        #: What is in use once the victims of the cycle are gone; see ``turn``.
        self.left = self.usage
        #: The state of the whole tree by number, and the last number; a change that is taken back may take its number back.
        #: The third is 1 in a search for victims, which takes all changes back.
        self.clock = [0, 0, 0]
        self._terms: dict[Key, tuple[int, int, int | None]] = {}
        self._potential: Amounts = {}
        self._share: DominantShare | None = None
        #: What is used beyond the quota.
        self._over: set[Key] | None = None

    # -- what the quotas say

    def settle(self) -> None:
        """Compute the subtree quota; the children's must be known."""
        self.subtree = {key: quota.nominal for key, quota in self.quotas.items()}
        self._terms.clear()
        self._potential.clear()
        self._share = self._over = None
        self.tick()

    def tick(self) -> None:
        """Note that something changed in the tree."""
        self.clock[1] += 1
        self.clock[0] = self.clock[1]

    def _change(self) -> None:
        """Forget what follows from the usage."""
        self._share = self._over = None
        if self.parent is not None and not self.clock[2]:
            self.parent._line = None

    def quota(self, key: Key) -> QueueQuota:
        return self.quotas.get(key, _NO_QUOTA)

    def terms(self, key: Key) -> tuple[int, int, int | None]:
        """Return the quota of the subtree, what only this subtree can use of it, and the most that it may borrow."""
        found = self._terms.get(key)
        if found is None:
            quota, whole = self.quota(key), self.subtree.get(key, 0)
            local = 0 if quota.lending_limit is None else max(0, whole - quota.lending_limit)
            found = self._terms[key] = (whole, local, quota.borrowing_limit)
        return found

    def potential(self, key: Key) -> int:
        """Return what the node could use at most, if nothing were in use."""
        most = self._potential.get(key)
        if most is None:
            most = self.subtree.get(key, 0)
            if self.parent is not None:
                limit, own = self.quota(key).borrowing_limit, most
                most = self.terms(key)[1] + self.parent.potential(key)
                if limit is not None:
                    most = min(own + limit, most)
            self._potential[key] = most
        return most

    # -- what is in use

    def local_available(self, key: Key) -> int:
        local = self.terms(key)[1]
        return max(0, local - self.usage.get(key, 0)) if local else 0

    def available(self, key: Key) -> int:
        """Return what is left for the node, borrowed or own. It is negative where more is in use than there is."""
        whole, local, limit = self._terms.get(key) or self.terms(key)
        used = self.usage.get(key, 0)
        if self.parent is None:
            return whole - used
        above = self.parent.available(key)
        if limit is not None:
            above = min(whole - local - max(0, used - local) + limit, above)
        return above + local - used if local > used else above

    def add(self, amounts: Mapping[Key, int], sign: int = 1) -> None:
        """Count amounts as used, in the nodes above beyond what only a subtree can use; with -1 take them off again.

        A negative amount (more is in use than there is) changes this node alone.
        """
        self.tick()
        for key, amount in amounts.items():
            node: QuotaNode | None = self
            rest = amount * sign
            while node is not None and rest:
                used, local = node.usage.get(key, 0), node.terms(key)[1]
                node._change()
                node.usage[key] = used + rest
                rest = max(0, used + rest - local) - max(0, used - local) if amount > 0 else 0
                node = node.parent

    def turn(self, *, upward: bool = True) -> None:
        """Exchange, from here to the root, what is in use with what is left once the victims of the cycle are gone."""
        node: QuotaNode | None = self
        while node is not None:
            if node.left is not node.usage:
                self.tick()
                node.usage, node.left = node.left, node.usage
                node._change()
            node = node.parent if upward else None

    def borrowing_with(self, key: Key, more: int) -> bool:
        """Return whether the usage, with ``more``, is above what the node has of its own."""
        return self.subtree.get(key, 0) < self.usage.get(key, 0) + more

    def within_nominal(self, keys: frozenset[Key]) -> bool:
        if self._over is None:
            quotas = self.subtree
            self._over = {key for key, used in self.usage.items() if used > quotas.get(key, 0)}
        return keys.isdisjoint(self._over)

    def overflow(self, requests: Mapping[Key, int]) -> Amounts:
        """Return what of the requests goes up to the parent."""
        return {key: max(0, amount - self.local_available(key)) for key, amount in requests.items()}

    def fits_in_quota(self, requests: Mapping[Key, int]) -> bool:
        return not any(self.borrowing_with(key, amount) for key, amount in requests.items())

    def ancestors(self) -> Iterator[CohortNode]:
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def root(self) -> QuotaNode:
        return next((node for node in self.ancestors() if node.parent is None), self)

    def all_queues(self) -> Iterator[ClusterQueueNode]:
        yield from ()

    def share(self) -> DominantShare:
        """Return the dominant resource share."""
        if self._share is None:
            self._share = self.share_with({})
        return self._share

    def share_with(self, more: Mapping[Key, int]) -> DominantShare:
        """Return the dominant resource share, with ``more`` in use."""
        if self.parent is None:
            return _NO_SHARE
        used, extra, borrowed, totals = self.usage.get, more.get, [], dict[str, int]()
        for key, quota in self.subtree.items():
            over = used(key, 0) + extra(key, 0) - quota
            if over > 0:
                borrowed.append(key)
                totals[key[1]] = totals.get(key[1], 0) + over
        if not borrowed:
            return _NO_SHARE
        lendable, ratio = self.parent.lendable(), 0.0
        for resource, total in totals.items():
            if (there := lendable.get(resource, 0)) > 0 and (its := total * 1000.0 / there) > ratio:
                ratio = its
        rank = (0, 0.0) if not ratio else (1, ratio) if self.weight == 0 else (0, ratio / self.weight)
        return DominantShare(rank, tuple(borrowed))

    def share_without(self, queue: ClusterQueueNode, amounts: Mapping[Key, int]) -> DominantShare:
        """Return the dominant resource share once a queue below, or this one, gives ``amounts`` back."""
        less: Amounts = {}
        for key, amount in amounts.items():
            node: QuotaNode | None = queue
            rest = amount
            while node is not None and node is not self and rest > 0:
                rest = min(rest, max(0, node.usage.get(key, 0) - node.terms(key)[1]))
                node = node.parent
            less[key] = -rest
        return self.share_with(less)


class CohortNode(QuotaNode):
    """A Cohort: it shares what its children lend."""

    def __init__(self, name: str, quotas: dict[Key, QueueQuota] | None = None, weight: float = 1.0) -> None:
        super().__init__(name, quotas or {}, weight)
        self.cohorts: list[CohortNode] = []
        self.queues: list[ClusterQueueNode] = []
        self._lendable: dict[str, int] | None = None
        self._height: int | None = None
        self._candidates_at = -1
        self._line: list[QuotaNode] | None = None
        self._tails: list[Amounts] = []
        self._candidates: dict[frozenset[Key], list[tuple[Workload, QuotaNode]]] = {}

    @property
    def children(self) -> list[QuotaNode]:
        return [*self.cohorts, *self.queues]

    def settle(self) -> None:
        super().settle()
        self._lendable = self._height = self._line = None
        self.usage = self.left = {}
        for child in self.children:
            child.clock = self.clock
            child.settle()
            for key, quota in child.subtree.items():
                self.subtree[key] = self.subtree.get(key, 0) + quota - child.terms(key)[1]
            for key, used in child.usage.items():
                self.usage[key] = self.usage.get(key, 0) + max(0, used - child.terms(key)[1])

    def lendable(self) -> dict[str, int]:
        """Return what the children could use of each resource at most, over all flavors."""
        if self._lendable is None:
            self._lendable = {}
            for key in self.root().subtree:
                self._lendable[key[1]] = self._lendable.get(key[1], 0) + self.potential(key)
        return self._lendable

    def line(self) -> list[QuotaNode]:
        """Return the children that borrow, that with the largest share last, as they are outside of a search for victims."""
        if self._line is None:
            self._line = sorted((one for one in (*self.cohorts, *self.active_queues()) if one.share().borrowed), key=standing)
            self._tails = []
        return self._line

    def used_from(self, at: int) -> Amounts:
        """Return what the children of that line use together, from one on."""
        line = self.line()
        if not self._tails:
            self._tails = [dict.fromkeys(self.subtree, 0)]
            for one in reversed(line):
                self._tails.append({key: amount + one.usage.get(key, 0) for key, amount in self._tails[-1].items()})
        return self._tails[len(line) - at]

    def candidates(self, needed: frozenset[Key]) -> list[tuple[Workload, QuotaNode]]:
        """Return these workloads in the order of victims, each with the child above it; Cohorts within quota are left out."""
        if self._candidates_at != self.clock[0]:
            self._candidates_at = self.clock[0]
            self._candidates.clear()
        found = self._candidates.get(needed)
        if found is None:
            found = [
                (one, child)
                for child in self.cohorts
                if not child.within_nominal(needed)
                for one, _ in child.candidates(needed)
            ]
            for queue in self.queues:
                if queue.active and not queue.within_nominal(needed):
                    found += [(one, queue) for one in queue.users(needed)]
            found.sort(key=lambda each: victim_rank(each[0]))
            self._candidates[needed] = found
        return found

    def active_queues(self) -> list[ClusterQueueNode]:
        return [queue for queue in self.queues if queue.active]

    def all_queues(self) -> Iterator[ClusterQueueNode]:
        """Yield the ClusterQueues of the subtree."""
        yield from self.queues
        for cohort in self.cohorts:
            yield from cohort.all_queues()

    def height(self) -> int:
        """Return the distance to the furthest leaf."""
        if self._height is None:
            own = min(len(self.cohorts) + len(self.active_queues()), 1)
            self._height = max((own, *(cohort.height() + 1 for cohort in self.cohorts)))
        return self._height


class ClusterQueueNode(QuotaNode):
    """The place of a ClusterQueue in the tree, with the workloads that hold its quota."""

    def __init__(self, name: str, quotas: dict[Key, QueueQuota], weight: float) -> None:
        super().__init__(name, quotas, weight)
        self.active = True
        #: Those that hold quota; ``changed`` must follow a lasting change.
        self.workloads: dict[str, Workload] = {}
        #: What the LocalQueue of a workload used of late, if the queue shares by it.
        self.usage_of: Callable[[Workload], float] | None = None
        self._ranked: list[Workload] | None = None
        self._users: dict[frozenset[Key], list[Workload]] = {}

    def changed(self) -> None:
        """Note that other workloads hold quota, or that one of them is evicted."""
        self._ranked = None
        self._users.clear()
        self._change()
        self.tick()

    def ranked(self) -> list[Workload]:
        """Return the workloads in the order of victims: see ``victim_rank``, and before it what LocalQueues used."""
        if self._ranked is None:
            usage = self.usage_of
            self._ranked = sorted(self.workloads.values(), key=victim_rank)
            if usage is not None:
                self._ranked.sort(key=lambda one: (not one.evicted, -usage(one)))
        return self._ranked

    def users(self, needed: frozenset[Key]) -> list[Workload]:
        """Return those of them that use what is needed, without those that a search took for a while."""
        if len(self.ranked()) != len(self.workloads):
            return [one for one in self.ranked() if one.key in self.workloads and not needed.isdisjoint(one.uses)]
        found = self._users.get(needed)
        if found is None:
            found = self._users[needed] = [one for one in self.ranked() if not needed.isdisjoint(one.uses)]
        return found

    def all_queues(self) -> Iterator[ClusterQueueNode]:
        yield self

    def free(self, key: Key) -> int:
        return max(0, self.available(key))

    def fits(self, requests: Mapping[Key, int]) -> bool:
        return all(self.free(key) >= amount for key, amount in requests.items())


def standing(node: QuotaNode) -> tuple[tuple[int, float], bool]:
    """Return what children are in line by: their shares, and of equal ones Cohorts last."""
    return node.share().rank, isinstance(node, CohortNode)


def victim_rank(workload: Workload) -> tuple[bool, int, float, str]:
    """Return what victims are ordered by: evicted ones, low priority, admitted last, UID."""
    return (not workload.evicted, workload.priority, -(workload.reserved_at or 0.0), workload.uid)


def lowest_subtree(queue: ClusterQueueNode, key: Key, amount: int) -> tuple[int, bool]:
    """Return the height of the lowest subtree that fits ``amount`` more, and whether it is smaller than the whole tree.

    Source  preemption/classical/hierarchical_preemption.go, FindHeightOfLowestSubtreeThatFits
    """
    if queue.parent is None or not queue.borrowing_with(key, amount):
        return 0, queue.parent is not None
    rest = amount - queue.local_available(key)
    for node in queue.ancestors():
        if not node.borrowing_with(key, rest):
            return node.height(), node.parent is not None
        rest -= node.local_available(key)
    return node.height(), False
