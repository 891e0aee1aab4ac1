"""The facts of CSINodes as a column: volume limits and migrated in-tree plugins.

Nodes of one kind have equal facts, so the plugins evaluate each distinct value once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from moorage.api.storage import CSINode
from moorage.state.cluster import Snapshot
from moorage.state.columns import IntArray
from moorage.state.labels import InternedColumn

__all__ = ["NO_LIMIT", "CsiFacts", "CsiNodes", "migrated_plugins"]

#: More volumes than any node holds.
NO_LIMIT: Final = 2**62

_MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"


def migrated_plugins(node: CSINode) -> str:
    """Return the in-tree plugins that a node has migrated, separated by commas."""
    return node.metadata.annotations.get(_MIGRATED_PLUGINS, "")


class CsiFacts(NamedTuple):
    """``drivers``: each driver on the node and the limit on its volumes; None for no limit."""

    drivers: tuple[tuple[str, int | None], ...] = ()
    migrated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, node: CSINode) -> CsiFacts:
        drivers = {d.name: d.allocatable.count if d.allocatable is not None else None for d in node.spec.drivers}
        migrated = migrated_plugins(node)
        return cls(tuple(drivers.items()), frozenset(migrated.split(",")) if migrated else frozenset())

    @property
    def has_limits(self) -> bool:
        return any(limit is not None for _, limit in self.drivers)

    def has(self, driver: str) -> bool:
        return any(name == driver for name, _ in self.drivers)

    def limit(self, driver: str) -> int:
        return next((limit for name, limit in self.drivers if name == driver and limit is not None), NO_LIMIT)


class CsiNodes:
    """The facts of every row; None for a node without CSINode. An index: get it from ``Snapshot.index``."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._table = snapshot.table
        self._objects = snapshot.objects(CSINode)
        self._journal = snapshot.changes_of(CSINode)
        self._moved = -1
        self._rows = 0
        self._position = 0
        self._column: InternedColumn[CsiFacts | None]
        self._limits: dict[str, IntArray] = {}

    def follow(self) -> InternedColumn[CsiFacts | None]:
        """Apply the changes since the last call and return the column."""
        changed = self._journal.since(self._position)
        if changed is None or self._table.changes.moved != self._moved:
            self._moved, self._rows = self._table.changes.moved, 0
            self._column = InternedColumn(self._table.space, None)
            changed = []
        added = [node.name for node in self._table.nodes[self._rows :]] if len(self._table) > self._rows else []
        self._rows = len(self._table)
        for name in (*added, *changed):
            self._limits.clear()
            row = self._table.row_of.get(name)
            if row is not None:
                node = self._objects.get(name)
                self._column.set(row, None if node is None else CsiFacts.of(node))
        self._position = self._journal.position
        return self._column

    def limits(self, driver: str) -> IntArray:
        """Return the limit of the driver on each row of the table, as of the last ``follow``; cached until the next."""
        limits = self._limits.get(driver)
        if limits is None:
            limits = self._limits[driver] = self._column.spread(self._column.ids, _limit_of(driver), np.int64)
        return limits


def _limit_of(driver: str) -> Callable[[CsiFacts | None], int]:
    return lambda facts: NO_LIMIT if facts is None else facts.limit(driver)
