"""Usage: CPU, memory and places for pods of all rows, ready for the arithmetic of scores.

Plugins that judge all nodes for a pod that no other pod resembles compute the same sums, differences and conversions for each
such pod. Here they are kept; when a row changes, its entries alone are computed again. All numbers are whole and exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from moorage.state.change_log import ChangeLog
from moorage.state.columns import Column, IntArray, RowSpace
from moorage.state.divisors import Divisors

__all__ = ["AT", "PLACES", "SomeUsage", "Usage"]

Floats = npt.NDArray[np.float64]

#: Amounts of so many bits, times 200, are exact in float64. 64 TiB is the first that has more.
_BITS: Final = 46
#: After more changes than one in so many rows, all rows are computed again, by a few array operations.
_MANY: Final = 16
#: Resource → its row in the arrays; ``free`` has one more, for pods.
AT: Final = {"cpu": 0, "memory": 1}
PLACES: Final = 2


class Amounts(Protocol):
    """What is read of a node table."""

    space: RowSpace
    changes: ChangeLog
    allowed_pods: Column
    pod_count: Column
    nonzero_cpu: Column
    nonzero_memory: Column
    divisors: Callable[[str], Divisors]

    def allocatable(self, resource: str) -> Column: ...

    def requested(self, resource: str) -> Column: ...


class Usage:
    """The usage of one table's rows; valid after ``follow`` returned True, until the table changes.

    ``free``      cpu, memory and places for pods that are left, in units of ``NodeView.allocatable``; shape (3, rows)
    ``least``     numbers that no row's entries are below: of ``free``, then of ``spare``
    ``requested`` cpu and memory that the pods request, shape (2, rows)
    ``spare``     200 times the cpu and memory left where containers without a request count with a default, shape (2, rows)
    ``doubled``   twice the allocatable cpu and memory, all above zero; shape (2, rows)
    ``scratch``   for results that are not kept, shape (2, rows)

    Twice the amounts as divisors: half a share is what balance needs, and a doubled dividend gives the same quotient.
    """

    __slots__ = (
        "__weakref__", "_cells", "_columns", "_exact", "_floats", "_nodes", "_rows", "_table", "changes", "doubled", "free",
        "least", "position", "requested", "scratch", "spare", "starts",
    )  # fmt: skip

    def __init__(self, table: Amounts) -> None:
        self._table = table
        self.changes = table.changes
        #: How often all rows were computed, and the position in the change log up to which the entries are current.
        self.starts = self.position = 0
        self._nodes = -1
        self._rows = 0
        self._exact = False
        self._columns: list[tuple[Column, Column, Column]] = []
        self._cells: tuple[memoryview, ...] = ()
        self.least: list[float] = [0] * 5
        self.free: IntArray = np.zeros((3, 0), dtype=np.int64)
        self._floats: Floats = np.zeros((6, 0))
        self.requested: Floats = self._floats[:2]
        self.spare = self.doubled = self.scratch = self.requested

    @staticmethod
    def is_exact(amount: int) -> bool:
        """Return whether an amount that a pod requests is small enough for exact arithmetic with the arrays."""
        return not amount >> _BITS

    def follow(self) -> bool:
        """Bring the entries up to date. Return False if they would not be exact, or a node offers no CPU or no memory.

        No what-if may be open.
        """
        changes = self.changes
        if changes.position == self.position and changes.nodes == self._nodes:
            return self._exact
        behind = changes.position - self.position
        if changes.nodes != self._nodes:
            self._start()
        elif behind == 1 and self._exact:
            self._update((changes.last,))
        else:
            rows = changes.since(self.position) if self._exact and behind * _MANY <= self._rows else None
            if rows is not None:
                self._update(rows)
            elif self._exact or behind > self._rows:  # large amounts may be gone
                self._start()
        return self._exact

    def of(self, rows: npt.NDArray[np.intp]) -> SomeUsage:
        """Return the usage of some rows."""
        return SomeUsage(self, rows, self.free.take(rows, axis=1), self._floats.take(rows, axis=1))

    def find_least(self) -> None:
        """Set ``least`` to the lowest entries."""
        self.least = [values.item(values.argmin()) for values in (*self.free, *self.spare)]

    def half_shares(self, row: int) -> tuple[float, float]:
        """Return half of the requested share of a row's CPU and memory, at most 0.5 each."""
        requested, doubled = self._cells[1], self._cells[3]
        cpu, memory = requested[row] / doubled[row], requested[row + self._rows] / doubled[row + self._rows]
        return cpu if cpu < 0.5 else 0.5, memory if memory < 0.5 else 0.5  # noqa: FURB136 (min() takes several times as long)

    def _start(self) -> None:
        """Compute all rows."""
        table, changes = self._table, self.changes
        rows = table.space.rows
        self._nodes, self.position, self.starts = changes.nodes, changes.position, self.starts + 1
        if self._rows != rows:
            self._rows = rows
            self.free = np.empty((3, rows), dtype=np.int64)
            self._floats, self.scratch = np.empty((6, rows)), np.empty((2, rows))
            self.requested, self.spare, self.doubled = self._floats[:2], self._floats[2:4], self._floats[4:]
        nonzero = {"cpu": table.nonzero_cpu, "memory": table.nonzero_memory}
        self._columns = [(table.allocatable(name), table.requested(name), column) for name, column in nonzero.items()]
        self._exact = rows > 0 and all(self._start_resource(*pair) for pair in AT.items())
        np.subtract(table.allowed_pods.view, table.pod_count.view, out=self.free[PLACES])
        self._cells = tuple([array.reshape(-1).data for array in (self.free, self.requested, self.spare, self.doubled)])
        if self._exact:
            self.find_least()

    def _start_resource(self, resource: str, at: int) -> bool:
        """Compute all rows of one resource. Return whether the entries are exact and all divisors above zero."""
        offered, held, nonzero = (column.view for column in self._columns[at])
        np.subtract(offered, held, out=self.free[at])
        self.requested[at] = held
        np.multiply(np.subtract(offered, nonzero), 200, out=self.spare[at])
        np.multiply(offered, 2, out=self.doubled[at])
        divisors = self._table.divisors(resource)
        return divisors.exact and divisors.is_offered_everywhere and not ((held | nonzero) >> _BITS).any()

    def _update(self, changed: Iterable[int]) -> None:
        """Compute some rows again, whose nodes offer the same as before."""
        table, rows = self._table, self._rows
        free, requested, spare, _ = self._cells
        (cpus, milli, counted_milli), (memories, size, counted_size) = self._columns
        for row in changed:
            cpu, memory, held, held_size = cpus.cells[row], memories.cells[row], milli.cells[row], size.cells[row]
            nonzero, nonzero_size = counted_milli.cells[row], counted_size.cells[row]
            if (held | held_size | nonzero | nonzero_size) >> _BITS:
                self._exact = False
            at = row + rows
            requested[row], requested[at] = held, held_size
            entries = (
                cpu - held, memory - held_size, table.allowed_pods.cells[row] - table.pod_count.cells[row],
                200 * (cpu - nonzero), 200 * (memory - nonzero_size),
            )  # fmt: skip
            free[row], free[at], free[at + rows], spare[row], spare[at] = entries
            self.least = list(map(min, self.least, entries))
        self.position = self.changes.position


class SomeUsage:
    """The usage of some rows of a table; see ``Usage``, of which it is a copy."""

    __slots__ = ("doubled", "free", "least", "requested", "rows", "scratch", "spare", "whole")

    def __init__(self, whole: Usage, rows: npt.NDArray[np.intp], free: IntArray, floats: Floats) -> None:
        self.whole, self.rows, self.free, self.least = whole, rows, free, whole.least
        self.requested, self.spare, self.doubled = floats[:2], floats[2:4], floats[4:]
        self.scratch: Floats = np.empty((2, len(rows)))

    def find_least(self) -> None:
        """Do nothing: ``least`` is that of all rows."""
