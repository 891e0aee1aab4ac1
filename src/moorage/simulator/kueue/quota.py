"""Quota: a tree of ClusterQueues below Cohorts, what each may use, and how unfair its use is.

A node's subtree quota is its own plus what its children lend. What a node keeps for itself (its local quota) is never seen by
its parent; use beyond it counts in the parent too. So the usage of every Cohort follows from the usage of the ClusterQueues.

Units   integers: cpu in millicores, memory and storage in bytes, other resources in counts
Source  Kueue, pkg/cache/scheduler: resource_node.go, fair_sharing.go
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from moorage.simulator.kueue.workloads import Amounts, Key, Workload

__all__ = ["ClusterQueueNode", "CohortNode", "DominantShare", "QueueQuota", "QuotaNode", "lowest_subtree"]


class QueueQuota(NamedTuple):
    """The quota of a node for one flavor and resource."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


_NO_QUOTA: Final = QueueQuota()


class DominantShare(NamedTuple):
    """The dominant resource share of a node: how much of what others could lend it borrows.

    ``ratio``  thousandths of what can be lent, of the resource with the largest ratio, before the weight divides it
    """

    weight: float = 1.0
    ratio: float = 0.0
    resource: str = ""
    borrowed: tuple[Key, ...] = ()

    @property
    def rank(self) -> tuple[int, float]:
        """Shares compare by it: a node of weight 0 that borrows is behind all others."""
        if self.ratio == 0:
            return (0, 0.0)
        return (1, self.ratio) if self.weight == 0 else (0, self.ratio / self.weight)

    @property
    def shown(self) -> int:
        """The share as the status of a ClusterQueue shows it: rounded up, the largest int64 if the weight is 0."""
        infinite, value = self.rank
        return 2**63 - 1 if infinite else math.ceil(value)

    def borrows_any_of(self, requests: Mapping[Key, int]) -> bool:
        return any(requests.get(key, 0) > 0 for key in self.borrowed)


class QuotaNode:
    """A ClusterQueue or a Cohort in the tree."""

    def __init__(self, name: str, quotas: dict[Key, QueueQuota], weight: float) -> None:
        self.name = name
        self.quotas = quotas
        self.weight = weight
        self.parent: CohortNode | None = None
        self.subtree: Amounts = {}
        self.usage: Amounts = {}
        self._local: Amounts = {}
        self._potential: Amounts = {}
        self._share: DominantShare | None = None

    # -- what the quotas say

    def settle(self) -> None:
        """Compute the subtree quota; the children's must be known."""
        self.subtree = {key: quota.nominal for key, quota in self.quotas.items()}
        self._local.clear()
        self._potential.clear()
        self._share = None

    def quota(self, key: Key) -> QueueQuota:
        return self.quotas.get(key, _NO_QUOTA)

    def local_quota(self, key: Key) -> int:
        """Return what only this subtree can use, because of its lending limit."""
        local = self._local.get(key)
        if local is None:
            limit = self.quota(key).lending_limit
            local = self._local[key] = 0 if limit is None else max(0, self.subtree.get(key, 0) - limit)
        return local

    def potential(self, key: Key) -> int:
        """Return what the node could use at most, if nothing were in use."""
        most = self._potential.get(key)
        if most is None:
            most = self.subtree.get(key, 0)
            if self.parent is not None:
                limit, own = self.quota(key).borrowing_limit, most
                most = self.local_quota(key) + self.parent.potential(key)
                if limit is not None:
                    most = min(own + limit, most)
            self._potential[key] = most
        return most

    # -- what is in use

    def local_available(self, key: Key) -> int:
        return max(0, self.local_quota(key) - self.usage.get(key, 0))

    def available(self, key: Key) -> int:
        """Return what is left for the node, borrowed or own. It is negative where more is in use than there is."""
        if self.parent is None:
            return self.subtree.get(key, 0) - self.usage.get(key, 0)
        above = self.parent.available(key)
        limit = self.quota(key).borrowing_limit
        if limit is not None:
            local = self.local_quota(key)
            stored, used = self.subtree.get(key, 0) - local, max(0, self.usage.get(key, 0) - local)
            above = min(stored - used + limit, above)
        return self.local_available(key) + above

    def add(self, amounts: Mapping[Key, int]) -> None:
        for key, amount in amounts.items():
            node: QuotaNode | None = self
            rest = amount
            while node is not None and rest:
                over = rest - node.local_available(key)
                node._share = None
                node.usage[key] = node.usage.get(key, 0) + rest
                if over <= 0:
                    break
                node, rest = node.parent, over

    def remove(self, amounts: Mapping[Key, int]) -> None:
        for key, amount in amounts.items():
            node: QuotaNode | None = self
            rest = amount
            while node is not None and rest:
                stored = node.usage.get(key, 0) - node.local_quota(key)
                node._share = None
                node.usage[key] = node.usage.get(key, 0) - rest
                if stored <= 0:
                    break
                node, rest = node.parent, min(rest, stored)

    def shift(self, key: Key, amount: int) -> None:
        """Change the usage of this node alone."""
        self._share = None
        self.usage[key] = self.usage.get(key, 0) + amount

    def exceeds(self, key: Key, more: int = 0) -> bool:
        """Return whether the usage, with ``more``, is above what the node has of its own."""
        return self.subtree.get(key, 0) < self.usage.get(key, 0) + more

    def within_nominal(self, keys: frozenset[Key]) -> bool:
        return all(self.subtree.get(key, 0) >= self.usage.get(key, 0) for key in keys)

    def overflow(self, requests: Mapping[Key, int]) -> Amounts:
        """Return what of the requests goes up to the parent."""
        return {key: over for key, amount in requests.items() if (over := amount - self.local_available(key)) > 0}

    def fit_in_quota(self, requests: Mapping[Key, int]) -> tuple[bool, Amounts]:
        """Return whether the requests fit into the quota of this subtree, and what of them goes up to the parent."""
        fits = not any(self.exceeds(key, amount) for key, amount in requests.items())
        return fits, {key: max(0, amount - self.local_available(key)) for key, amount in requests.items()}

    def ancestors(self) -> Iterator[CohortNode]:
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def share(self) -> DominantShare:
        """Return the dominant resource share."""
        if self._share is None:
            self._share = self.share_with({})
        return self._share

    def share_with(self, more: Mapping[Key, int]) -> DominantShare:
        """Return the dominant resource share, with ``more`` in use."""
        if self.parent is None:
            return DominantShare(self.weight)
        over = {key: self.usage.get(key, 0) + more.get(key, 0) - quota for key, quota in self.subtree.items()}
        borrowed = tuple(key for key, amount in over.items() if amount > 0)
        if not borrowed:
            return DominantShare(self.weight)
        totals: dict[str, int] = {}
        for key in borrowed:
            totals[key[1]] = totals.get(key[1], 0) + over[key]
        lendable = self.parent.lendable()
        ratio, dominant = 0.0, ""
        for resource in sorted(totals):
            if (there := lendable.get(resource, 0)) > 0 and (of_it := totals[resource] * 1000.0 / there) > ratio:
                ratio, dominant = of_it, resource
        return DominantShare(self.weight, ratio, dominant, borrowed)


class CohortNode(QuotaNode):
    """A Cohort: it shares what its children lend."""

    def __init__(self, name: str, quotas: dict[Key, QueueQuota] | None = None, weight: float = 1.0) -> None:
        super().__init__(name, quotas or {}, weight)
        self.cohorts: list[CohortNode] = []
        self.queues: list[ClusterQueueNode] = []
        self._lendable: dict[str, int] | None = None

    def settle(self) -> None:
        super().settle()
        self._lendable = None
        self.usage = {}
        for child in (*self.cohorts, *self.queues):
            child.settle()
            for key, quota in child.subtree.items():
                self.subtree[key] = self.subtree.get(key, 0) + quota - child.local_quota(key)
            for key, used in child.usage.items():
                self.usage[key] = self.usage.get(key, 0) + max(0, used - child.local_quota(key))

    def lendable(self) -> dict[str, int]:
        """Return what the children could use of each resource at most, over all flavors."""
        if self._lendable is None:
            self._lendable = {}
            for key in self.root().subtree:
                self._lendable[key[1]] = self._lendable.get(key[1], 0) + self.potential(key)
        return self._lendable

    def root(self) -> CohortNode:
        return next((node for node in self.ancestors() if node.parent is None), self)

    def active_queues(self) -> list[ClusterQueueNode]:
        return [queue for queue in self.queues if queue.active]

    def subtree_queues(self) -> Iterator[ClusterQueueNode]:
        """Yield the active ClusterQueues of the subtree."""
        yield from self.active_queues()
        for cohort in self.cohorts:
            yield from cohort.subtree_queues()

    def height(self) -> int:
        """Return the distance to the furthest leaf."""
        own = min(len(self.cohorts) + len(self.active_queues()), 1)
        return max((own, *(cohort.height() + 1 for cohort in self.cohorts)))


class ClusterQueueNode(QuotaNode):
    """The place of a ClusterQueue in the tree, with the workloads that hold its quota."""

    def __init__(self, name: str, quotas: dict[Key, QueueQuota], weight: float) -> None:
        super().__init__(name, quotas, weight)
        self.active = True
        self.workloads: dict[str, Workload] = {}

    def borrowing_with(self, key: Key, more: int = 0) -> bool:
        return self.quota(key).nominal < self.usage.get(key, 0) + more

    def free(self, key: Key) -> int:
        return max(0, self.available(key))

    def fits(self, requests: Mapping[Key, int]) -> bool:
        return all(self.free(key) >= amount for key, amount in requests.items())


def lowest_subtree(queue: ClusterQueueNode, key: Key, amount: int) -> tuple[int, bool]:
    """Return the height of the lowest subtree that fits ``amount`` more, and whether it is smaller than the whole tree.

    Source  preemption/classical/hierarchical_preemption.go, FindHeightOfLowestSubtreeThatFits
    """
    if queue.parent is None or not queue.borrowing_with(key, amount):
        return 0, queue.parent is not None
    rest = amount - queue.local_available(key)
    for node in queue.ancestors():
        if not node.exceeds(key, rest):
            return node.height(), node.parent is not None
        rest -= node.local_available(key)
    return queue.parent.root().height(), False
