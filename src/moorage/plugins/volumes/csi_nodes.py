"""The facts of CSINodes as a column: volume limits and migrated in-tree plugins.

Nodes of one kind have equal facts, so the plugins evaluate each distinct value once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final, NamedTuple

import numpy as np

from moorage.api.storage import CSINode
from moorage.state.columns import BoolArray, IntArray
from moorage.state.labels import InternedColumn
from moorage.state.view import Snapshot

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
        self._position = self._table_position = 0
        self._column: InternedColumn[CsiFacts | None]
        self._limits: dict[str, IntArray] = {}
        self._kinds: dict[Hashable, Mapping[frozenset[str], BoolArray]] = {}

    def follow(self) -> InternedColumn[CsiFacts | None]:
        """Apply the changes since the last call and return the column."""
        changed, moved = self._journal.since(self._position), self._moved_names()
        if changed is None or moved is None:
            self._rows, changed, moved = 0, [], []
            self._column = InternedColumn(self._table.space, None)
        changed = [*(node.name for node in self._table.nodes[self._rows :]), *changed, *moved]
        if changed or self._moved != self._table.changes.moved:
            self._limits.clear()
            self._kinds.clear()
        self._rows, self._moved = len(self._table), self._table.changes.moved
        self._table_position = self._table.changes.position
        for name in changed:
            row = self._table.row_of.get(name)
            if row is not None:
                node = self._objects.get(name)
                self._column.set(row, None if node is None else CsiFacts.of(node))
        self._position = self._journal.position
        return self._column

    def _moved_names(self) -> list[str] | None:
        """Return the nodes in rows that changed, if rows were removed or renumbered; None if all rows must be read."""
        changes, nodes = self._table.changes, self._table.nodes
        if changes.moved == self._moved:
            return []
        rows = changes.since(self._table_position) if self._moved >= 0 else None
        return None if rows is None else [nodes[row].name for row in dict.fromkeys(rows) if row < len(nodes)]

    def limits(self, driver: str) -> IntArray:
        """Return the limit of the driver on each row of the table, as of the last ``follow``; cached until the next."""
        limits = self._limits.get(driver)
        if limits is None:
            limits = self._limits[driver] = self._column.spread(
                self._column.ids, lambda facts: NO_LIMIT if facts is None else facts.limit(driver), np.int64
            )
        return limits

    def kinds(self, migrated_with: Callable[[CsiFacts | None], frozenset[str]]) -> Mapping[frozenset[str], BoolArray]:
        """Return the sets of in-tree plugins that some rows of the table migrate, with these rows; cached as ``limits``."""
        kinds = self._kinds.get(migrated_with)
        if kinds is None:
            numbers: dict[frozenset[str], int] = {}
            which = self._column.spread(
                self._column.ids, lambda facts: numbers.setdefault(migrated_with(facts), len(numbers)), np.int64
            )
            kinds = self._kinds[migrated_with] = {migrated: which == number for migrated, number in numbers.items()}
        return kinds
