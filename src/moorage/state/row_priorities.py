"""The priorities of the pods of each row of a node table, kept until the row changes."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.state.table import NodeTable


class RowPriorities:
    """A cache that follows the change log of one table."""

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._position = self._layout = 0
        self._kept: dict[int, frozenset[int]] = {}

    def on(self, table: NodeTable, rows: Iterable[int]) -> set[int]:
        """Return the priorities of the pods on these rows."""
        self._follow(table)
        kept, pods, changing = self._kept, table.pods, table.rows_in_what_ifs
        found = set()
        for row in rows:
            held = None if row in changing else kept.get(row)
            if held is None:
                held = frozenset([pod.priority for pod in pods[row].values()])
                if row not in changing:
                    kept[row] = held
            found.add(held)
        return set().union(*found)

    def _follow(self, table: NodeTable) -> None:
        """Drop the rows that changed since the last call."""
        changes = table.changes
        same = table is self._table and changes.layout == self._layout
        changed = changes.since(self._position) if same else None
        if changed is None:
            self._kept.clear()
        else:
            for row in changed:
                self._kept.pop(row, None)
        self._table, self._position, self._layout = table, changes.position, changes.layout
