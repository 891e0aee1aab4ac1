"""A pod class's nodes, grouped into cells by a raw score that is kept for each value of a label (``FollowedScores``).

Where a label has many values, such as the host name, few of them have different raw scores. A node moves to another cell when
its value's score changes, or when the class opens or closes it, so a pod costs as much as changed, not as there are nodes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.framework.answer_forms import FollowedScores
from moorage.state.change_log import RowLog
from moorage.state.columns import BoolArray, IntArray
from moorage.state.counts import Counts, PodMatcher
from moorage.state.table import NodeTable

#: If scores span more steps than this, the nodes are scored one by one.
_MOST_CELLS: Final = 1024
#: Up to this many changes are followed one by one: each NumPy call has a fixed cost.
_FEW: Final = 8


class SummedPlaces:
    """The cells of one label and one answer. ``cells`` has the cell of each place of the ring.

    Cell ``n`` holds the places with the score ``base + n * step``; ``open`` is how many of them are not refused. ``totals`` are
    the class's own, in ring order, and ``flips`` logs the rows that it opened or closed.
    """

    _gain: IntArray | None

    def __init__(self, table: NodeTable, totals: IntArray, flips: RowLog, answer: FollowedScores) -> None:
        self._table, self._totals, self._flips = table, totals, flips
        self._key, self._changes, self._step = answer.key, answer.changes, answer.step
        self._ring = table.ring()
        self._domains = table.domains_in_ring(answer.key)
        self._size = len(answer.raw)
        #: The places in the order of their values, and where each value begins.
        self._by_domain: npt.NDArray[np.intp] = np.argsort(self._domains, kind="stable")
        self._starts: list[int] = np.searchsorted(self._domains[self._by_domain], np.arange(self._size + 1)).tolist()
        self._read_all(answer.raw)

    def gain_of(self, held: npt.NDArray[np.intp]) -> IntArray | None:
        """Return what ``keep_gain`` kept for these cells; None if it kept nothing for exactly these."""
        return self._gain if self._held == held.tobytes() else None

    def keep_gain(self, held: npt.NDArray[np.intp], gain: IntArray | None) -> IntArray | None:
        """Keep and return what each cell adds to a total while exactly the cells ``held`` have an open place."""
        self._held, self._gain = held.tobytes(), gain
        return gain

    def _read_all(self, raw: IntArray) -> None:
        self._held, self._gain = b"", None
        self._position, self._flips_seen = self._changes.position, self._flips.position
        lowest, highest = raw.item(raw.argmin()), raw.item(raw.argmax())
        self.are_few = (highest - lowest) // self._step < _MOST_CELLS // 2
        if self.are_few:
            self._base = lowest - _MOST_CELLS // 4 * self._step
            #: The score of each cell.
            self.raw: IntArray = np.arange(_MOST_CELLS) * self._step + self._base
            self._is_open: BoolArray = self._totals >= 0
            self.cells: npt.NDArray[np.intp] = self._cells_of(raw).take(self._domains)
            self.open: IntArray = np.bincount(self.cells[self._is_open], minlength=_MOST_CELLS)

    def _cells_of(self, raw: IntArray) -> npt.NDArray[np.intp]:
        return (raw - self._base) // self._step

    def knows(self, answer: FollowedScores) -> bool:
        """Return whether the answer is the same, for the same values on the same nodes as before."""
        if answer.changes is not self._changes or answer.step != self._step or len(answer.raw) != self._size:
            return False
        return self._domains is self._table.domains_in_ring(self._key)

    def follow(self, raw: IntArray) -> bool:
        """Move the places whose scores changed. Return False if there are too many cells."""
        changed, flipped = self._changes.since(self._position), self._flips.since(self._flips_seen)
        if not self.are_few or changed is None or flipped is None or not self._move_all(raw, changed, flipped):
            self._read_all(raw)
        self._position, self._flips_seen = self._changes.position, self._flips.position
        return self.are_few

    def _move_all(self, raw: IntArray, changed: list[int], flipped: list[int]) -> bool:
        """Move these domains and rows. Return False if there is no cell for one."""
        places = [self._ring.place_at[row] for row in flipped]
        for domain in dict.fromkeys(changed):
            places += self._by_domain[self._starts[domain] : self._starts[domain + 1]].tolist()
        if len(places) > _FEW:
            return self._move_many(raw, np.array(list(dict.fromkeys(places)), dtype=np.intp))
        for place in places:
            cell = (raw.item(self._domains.item(place)) - self._base) // self._step
            if not 0 <= cell < _MOST_CELLS:
                return False
            self._move(place, cell)
        return True

    def _move_many(self, raw: IntArray, places: npt.NDArray[np.intp]) -> bool:
        after = self._cells_of(raw[self._domains[places]])
        if after.item(after.argmin()) < 0 or after.item(after.argmax()) >= _MOST_CELLS:
            return False
        before, was_open, is_open = self.cells[places], self._is_open[places], self._totals[places] >= 0
        self.cells[places], self._is_open[places] = after, is_open
        self.open -= np.bincount(before[was_open], minlength=_MOST_CELLS)
        self.open += np.bincount(after[is_open], minlength=_MOST_CELLS)
        return True

    def _move(self, place: int, cell: int) -> None:
        if self._is_open.item(place):
            self.open[self.cells.item(place)] -= 1
        is_open = self._is_open[place] = self._totals.item(place) >= 0
        self.cells[place] = cell
        self.open[cell] += is_open


# -- counted places ----------------------------------------------------------------------------------------------------
# A pod class's nodes, grouped into cells: nodes of one domain on which a matcher counts equally many pods.
#
# Nodes in a cell have equal scores by ``ScoresByCount``, and there are few cells, however many nodes there are. A node moves
# to another cell when one of the counted pods comes or goes, so the cells follow the log of the matcher. The number of open
# nodes in each also follows the nodes that the class opens and closes.

#: Up to this many rows are moved one by one: each NumPy call has a fixed cost.
#: With more cells than this the nodes are scored one by one.
_MOST_COUNTED_CELLS: Final = 4096


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
        return len(self.open) <= _MOST_COUNTED_CELLS

    def knows(self, table: NodeTable, key: str) -> bool:
        """Return whether the label has the same values on the same nodes as before."""
        return self.domains is table.domains_in_ring(key) and self.size == len(table.labels.column(key).values)

    def _recount(self) -> None:
        if (self.most + 1) * self.size > _MOST_COUNTED_CELLS:
            self.open = np.zeros(_MOST_COUNTED_CELLS + 1, dtype=np.int64)
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
