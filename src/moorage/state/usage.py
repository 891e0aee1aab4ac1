"""Usage: CPU, memory and places for pods of all rows, ready for the arithmetic of scores.

Plugins that judge all nodes for a pod that no other pod resembles compute the same sums, differences and conversions for each
such pod. Here they are kept; when a row changes, its entries alone are computed again. All numbers are whole and exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from moorage.state.change_log import ChangeLog
from moorage.state.columns import Column, IntArray, RowSpace

# -- divisors ----------------------------------------------------------------------------------------------------------
# Divisors for shares of resources.

#: For amounts below this (64 TiB, in bytes), ``100 * amount`` is exact in float64, and a quotient of such amounts that is less
#: than a whole number up to 100 never rounds up to it.
_EXACT = 1 << 46


class Divisors(NamedTuple):
    """Each row's allocatable amount of a resource, as float64, at least 1; and whether every row offers any.

    ``exact``: a hundred times each amount is a whole number in float64, so percentages computed there round down correctly.
    """

    amounts: npt.NDArray[np.float64]
    is_offered_everywhere: bool
    exact: bool


class DivisorColumns:
    """The divisors of resources, computed from the column ``allocatable(resource)``."""

    def __init__(self, allocatable: Callable[[str], Column]) -> None:
        self._allocatable = allocatable
        self._found: dict[str, Divisors] = {}

    def of(self, resource: str) -> Divisors:
        """Return the divisors of a resource; valid until ``clear``."""
        found = self._found.get(resource)
        if found is None:
            offered = self._allocatable(resource).view
            exact = int(offered.max(initial=0)) < _EXACT
            found = self._found[resource] = Divisors(np.maximum(offered, 1).astype(np.float64), bool(offered.all()), exact)
        return found

    def clear(self) -> None:
        """Forget all divisors, after nodes were added or removed, or offer something else."""
        self._found.clear()


# -- usage -------------------------------------------------------------------------------------------------------------

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

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

    def allocatable(self, resource: str) -> Column: ...

    def requested(self, resource: str) -> Column: ...


class Usage:
    """The usage of one table's rows; valid after ``follow`` returned True, until the table changes.

    ``free``      cpu, memory and places for pods that are left, in units of ``NodeView.allocatable``; shape (3, rows)
    ``least``     numbers that no row's entries are below: of ``free``, then of ``spare`` and ``doubled``
    ``requested`` cpu and memory that the pods request, shape (2, rows)
    ``spare``     200 times the cpu and memory left where containers without a request count with a default, shape (2, rows)
    ``both``      ``requested`` and ``spare`` together, shape (4, rows)
    ``doubled``   twice the allocatable cpu and memory, all above zero; shape (2, rows)
    ``rest``      150 less the balance of cpu and memory, which is 100 times the distance of their requested shares less than
                  100; shape (rows,)
    ``is_plain``  False unless containers request all CPU and memory that they count with, on all rows
    ``scratch``, ``shares``, ``scores``  for results that are not kept: shape (4, rows), and twice (2, rows) of whole numbers
    ``bounds``    0 and 0.5, each of shape (2, rows): many numbers are compared with an array in a third of the time

    Twice the amounts as divisors: half a share is what balance needs, and a doubled dividend gives the same quotient.
    """

    __slots__ = (
        "_capacity", "_cells", "_columns", "_exact", "_floats", "_free", "_held", "_nodes", "_rows", "_table", "both", "bounds",
        "changes", "doubled", "free", "is_plain", "least", "position", "requested", "rest", "scores", "scratch", "shares",
        "spare",
    )  # fmt: skip

    def __init__(self, table: Amounts) -> None:
        self._table = table
        self.changes = table.changes
        #: The position in the change log up to which the entries are current.
        self.position = 0
        self._nodes = -1
        self._exact = False
        self._columns: list[tuple[Column, Column, Column]] = []
        self.least: list[float] = [0] * 7
        self.is_plain = False
        self._hold(0)

    def _hold(self, capacity: int) -> None:
        """Make arrays with room for so many rows."""
        self._capacity = capacity
        self._free: IntArray = np.empty((3, capacity), dtype=np.int64)
        self._floats: Floats = np.empty((6, capacity))
        rest: Ints = np.empty(capacity, dtype=np.int32)
        self._cells = tuple([array.reshape(-1).data for array in (self._free, self._floats, rest)])
        bounds: Floats = np.repeat((0.0, 0.5), 2 * capacity).reshape(2, 2, capacity)
        self._held = rest, *_scratch(capacity), bounds
        self._show(0)

    def _show(self, rows: int) -> None:
        """Show so many rows of the arrays."""
        self._rows, self.free = rows, self._free[:, :rows]
        self.requested, self.spare, self.both, self.doubled = _parts(self._floats[:, :rows])
        rest, scratch, shares, scores, bounds = self._held
        self.rest, self.scratch, self.bounds = rest[:rows], scratch[:, :rows], bounds[:, :, :rows]
        self.shares, self.scores = shares[:, :rows], scores[:, :rows]

    @staticmethod
    def is_exact(amount: int) -> bool:
        """Return whether an amount that a pod requests is small enough for exact arithmetic with the arrays."""
        return not amount >> _BITS

    def follow(self) -> bool:
        """Bring the entries up to date. Return False if they would not be exact, or a node offers no CPU or no memory.

        No what-if may be open.
        """
        changes, space = self.changes, self._table.space
        if changes.position == self.position and changes.nodes == self._nodes:
            return self._exact
        behind = changes.position - self.position
        if self._capacity != space.capacity:
            self._hold(space.capacity)
            self._start()
        elif not self._exact:
            if changes.nodes != self._nodes or behind > self._rows:  # large amounts may be gone
                self._start()
        else:
            rows = (changes.last,) if behind == 1 else changes.since(self.position) if behind * _MANY <= space.rows else None
            if rows is None:
                self._start()
            else:
                self._update(rows)
        return self._exact

    def of(self, rows: npt.NDArray[np.intp]) -> SomeUsage:
        """Return the usage of some rows."""
        return SomeUsage(self, self._free.take(rows, axis=1), self._floats.take(rows, axis=1), rows)

    def find_least(self) -> None:
        """Set ``least`` to the lowest entries, except those of ``doubled``."""
        self.least[:5] = [values.item(values.argmin()) for values in (*self.free, *self.spare)]

    def _start(self) -> None:
        """Compute all rows."""
        table, changes = self._table, self.changes
        self._nodes, self.position = changes.nodes, changes.position
        self._show(table.space.rows)
        nonzero = {"cpu": table.nonzero_cpu, "memory": table.nonzero_memory}
        self._columns = [(table.allocatable(name), table.requested(name), column) for name, column in nonzero.items()]
        self.is_plain = True
        self._exact = self._rows > 0 and all(self._start_resource(at) for at in AT.values())
        np.subtract(table.allowed_pods.view, table.pod_count.view, out=self.free[PLACES])
        if self._exact:
            self.least[5:] = [amounts.item(amounts.argmin()) for amounts in self.doubled]
            self.find_least()
            shares = self.scratch[:2]
            np.divide(self.requested, self.doubled, out=shares)
            np.minimum(shares, 0.5, out=shares)
            np.subtract(150, ((1.0 - np.abs(shares[0] - shares[1])) * 100.0).astype(np.int32), out=self.rest)

    def _start_resource(self, at: int) -> bool:
        """Compute all rows of one resource. Return whether the entries are exact and all nodes offer it."""
        offered, held, nonzero = (column.view for column in self._columns[at])
        self.is_plain = self.is_plain and bool((held == nonzero).all())
        np.subtract(offered, held, out=self.free[at])
        self.requested[at] = held
        np.multiply(np.subtract(offered, nonzero), 200, out=self.spare[at])
        np.multiply(offered, 2, out=self.doubled[at])
        return bool(offered.all()) and not ((offered | held | nonzero) >> _BITS).any()

    def _update(self, changed: Iterable[int]) -> None:
        """Compute some rows again."""
        table, rows, size, least = self._table, self._table.space.rows, self._capacity, self.least
        if rows != self._rows:
            self._show(rows)
        free, floats, rest = self._cells
        (cpus, milli, counted_milli), (memories, bytes_held, counted_bytes) = self._columns
        for row in changed:
            if row >= rows:
                continue  # the row is gone
            cpu, memory, held, held_size = cpus.cells[row], memories.cells[row], milli.cells[row], bytes_held.cells[row]
            nonzero, nonzero_size = counted_milli.cells[row], counted_bytes.cells[row]
            if not cpu or not memory or (cpu | memory | held | held_size | nonzero | nonzero_size) >> _BITS:
                self._exact = False
                break
            if nonzero != held or nonzero_size != held_size:
                self.is_plain = False
            entries = (
                cpu - held, memory - held_size, table.allowed_pods.cells[row] - table.pod_count.cells[row],
                200 * (cpu - nonzero), 200 * (memory - nonzero_size), 2 * cpu, 2 * memory,
            )  # fmt: skip
            at = row + size
            free[row], free[at], free[at + size] = entries[:3]
            floats[row], floats[at] = held, held_size
            floats[at + size], floats[at + 2 * size], floats[at + 3 * size], floats[at + 4 * size] = entries[3:]
            share, share_size = held / (2 * cpu), held_size / (2 * memory)
            distance = abs((share if share < 0.5 else 0.5) - (share_size if share_size < 0.5 else 0.5))  # noqa: FURB136
            rest[row] = 150 - int((1.0 - distance) * 100.0)
            for entry, amount in enumerate(entries):
                if amount < least[entry]:  # noqa: PLR1730 (min() is slower)
                    least[entry] = amount
        self._nodes, self.position = self.changes.nodes, self.changes.position


class SomeUsage:
    """The usage of some rows of a table; see ``Usage``, of which it is a copy."""

    __slots__ = (
        "both", "bounds", "doubled", "free", "is_plain", "least", "requested", "rest", "rows", "scores", "scratch", "shares",
        "spare",
    )  # fmt: skip

    def __init__(self, whole: Usage, free: IntArray, floats: Floats, rows: npt.NDArray[np.intp]) -> None:
        self.rows, self.free, self.least, self.rest = rows, free, whole.least, whole.rest.take(rows)
        self.requested, self.spare, self.both, self.doubled = _parts(floats)
        self.scratch, self.shares, self.scores = _scratch(len(rows))
        self.bounds, self.is_plain = (0.0, 0.5), whole.is_plain

    def find_least(self) -> None:
        """Do nothing: ``least`` is that of all rows."""


def _parts(floats: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    return floats[:2], floats[2:4], floats[:4], floats[4:]


def _scratch(rows: int) -> tuple[Floats, Ints, Ints]:
    return np.empty((4, rows)), np.empty((2, rows), dtype=np.int32), np.empty((2, rows), dtype=np.int32)
