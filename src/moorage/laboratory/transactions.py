"""Transactions: changes of a cluster that are rolled back unless they are committed.

    with cluster.transaction() as t:
        cluster.apply("node/n1 unschedulable=false")
        if cluster.schedule(["web"])[0]:
            t.commit()

How a transaction is rolled back: while one is open, the cluster state, the queue and the books of the simulation write to an
undo log how each change is reversed (``recorded_state``, ``recorded_simulation``). A rollback runs the log backwards. Large
parts (nodes, placed pods, objects) are restored one change at a time, small ones (the pending pods, claims that wait for a
volume, bindings under way) as a whole. Order is restored with the sums: rows, arrivals and turns of nodes, pods on a row,
objects of a kind, the queue and its numbers, and where the next sampled search starts. Caches are not restored: versions only
grow, so no cache takes a reversed state for the present one. A change of the configuration takes another simulation, and a
rollback the former one. What third-party plugins keep is not known: with such a plugin the cluster is rebuilt from its history,
which takes as long as it took at first.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from moorage.errors import StateError


class Transactional(Protocol):
    """The methods of a cluster that a transaction needs."""

    def open_transaction(self) -> int:
        """Open a transaction and return its depth."""

    def close_transaction(self, depth: int, *, keep: bool) -> None:
        """Close the transaction of this depth, and all that are open in it."""


class Transaction:
    """A context manager. Without ``commit``, or on an exception, all changes of its block are rolled back."""

    def __init__(self, cluster: Transactional) -> None:
        self._cluster = cluster
        self._depth: int | None = None
        self._keep = False

    def commit(self) -> None:
        """Keep the changes when the block ends without an exception."""
        self._keep = True

    def __enter__(self) -> Self:
        if self._depth is not None:
            raise StateError("a transaction is used once; ask the cluster for another")
        self._depth = self._cluster.open_transaction()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._depth is not None
        self._cluster.close_transaction(self._depth, keep=self._keep and kind is None)
