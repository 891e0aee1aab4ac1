"""A pod class's nodes, grouped into cells: nodes of one domain on which a matcher counts equally many pods.

Nodes in a cell have equal scores by ``ScoresByCount``, and there are few cells, however many nodes there are. A node
moves to another cell when one of the counted pods comes or goes, so the cells follow the log of the matcher. The number of open
nodes in each also follows the nodes that the class opens and closes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.state.change_log import RowLog
from moorage.state.columns import BoolArray, IntArray
from moorage.state.counts import Counts, PodMatcher
from moorage.state.table import NodeTable

__all__ = ["CountedPlaces"]

#: Up to this many rows are moved one by one: each NumPy call has a fixed cost.
_FEW: Final = 8
#: With more cells than this the nodes are scored one by one.
_MOST_CELLS: Final = 4096


class CountedPlaces:
    """The cells of one label and one matcher. ``cells`` has the cell of each place of the ring.

    Cell ``count * size + domain`` holds the nodes with so many counted pods in a domain, and ``size`` is the number of values.
    ``open`` is how many places of each cell are not refused. ``totals`` are the class's own, in ring order, and ``flips`` logs
    the rows that it opened or closed.
    """

    def __init__(self, table: NodeTable, totals: IntArray, flips: RowLog, key: str, matcher: PodMatcher) -> None:
        self.totals = totals
        self._flips = flips
        self._flips_seen = flips.position
        self.domains = table.domains_in_ring(key)
        self.size = len(table.labels.column(key).values)
        self._table = table
        self._matcher = matcher
        self._ring = table.ring()
        self._changes = table.pod_counts.changes_of(matcher)
        self._position = self._changes.position
        counts = table.pod_counts.of(matcher)
        self.most = int(counts.max(initial=0))
        self.cells: npt.NDArray[np.intp] = counts[self._ring.rows] * np.intp(self.size) + self.domains
        self._is_open: BoolArray = totals >= 0
        self.open: IntArray = np.zeros(0, dtype=np.int64)
        self._recount()

    @property
    def are_few(self) -> bool:
        return len(self.open) <= _MOST_CELLS

    def knows(self, table: NodeTable, key: str) -> bool:
        """Return whether the label has the same values on the same nodes as before."""
        return self.domains is table.domains_in_ring(key) and self.size == len(table.labels.column(key).values)

    def _recount(self) -> None:
        if (self.most + 1) * self.size > _MOST_CELLS:
            self.open = np.zeros(_MOST_CELLS + 1, dtype=np.int64)
        else:
            self.open = np.bincount(self.cells[self._is_open], minlength=(self.most + 1) * self.size)

    def follow(self) -> bool:
        """Move the rows that changed since the last call. False: the cells must be computed again."""
        changes = self._table.pod_counts.changes_of(self._matcher)
        if changes is not self._changes or not self.are_few:
            return False
        counted, flipped = changes.since(self._position), self._flips.since(self._flips_seen)
        self._position, self._flips_seen = changes.position, self._flips.position
        if counted is None or flipped is None:
            return False
        changed = [*counted, *flipped]
        if not changed:
            return True
        counts = self._table.pod_counts.of(self._matcher)
        if len(changed) <= _FEW:
            return all(self._move(row, counts.item(row)) for row in changed)
        return self._move_all(np.array(list(dict.fromkeys(changed)), dtype=np.intp), counts)

    def _move(self, row: int, count: int) -> bool:
        """Move one row to its cell. False: there is no such cell yet."""
        place = self._ring.place_at[row]
        if count > self.most:
            return False
        if self._is_open.item(place):
            self.open[self.cells.item(place)] -= 1
        cell = self.cells[place] = count * self.size + self.domains.item(place)
        is_open = self._is_open[place] = self.totals.item(place) >= 0
        self.open[cell] += is_open
        return True

    def _move_all(self, rows: npt.NDArray[np.intp], counts: Counts) -> bool:
        found = counts[rows]
        places = self._ring.place_of[rows]
        before, was_open = self.cells[places], self._is_open[places]
        after, is_open = found * np.intp(self.size) + self.domains[places], self.totals[places] >= 0
        self.cells[places], self._is_open[places] = after, is_open
        if int(found.max()) > self.most:
            return False
        self.open -= np.bincount(before[was_open], minlength=len(self.open))
        self.open += np.bincount(after[is_open], minlength=len(self.open))
        return True
