"""Usage: CPU, memory and places for pods of all rows, ready for the arithmetic of scores.

Plugins that judge all nodes for a pod that no other pod resembles compute the same sums, differences and conversions for each
such pod. Here they are kept; when a row changes, its entries alone are computed again. All numbers are whole and exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from moorage.state.change_log import ChangeLog
from moorage.state.columns import Column, IntArray, RowSpace, has_any

#: For amounts of so many bits (less than 64 TiB), 200 times the amount is exact in float64, and a quotient of a hundred times
#: such amounts that is less than a whole number up to 100 never rounds up to it.
BITS: Final = 46


class Divisors(NamedTuple):
    """Each row's allocatable amount of a resource, as float64, at least 1; and whether every row offers any.

    ``exact``: a hundred times each amount is a whole number in float64, so percentages computed there round down correctly.
    """

    amounts: npt.NDArray[np.float64]
    is_offered_everywhere: bool
    exact: bool


class DivisorColumns(dict[str, Divisors]):
    """The divisors of each resource. Clear it after nodes were added or removed, or offer something else."""

    def __init__(self, allocatable: Callable[[str], Column]) -> None:
        super().__init__()
        self._allocatable = allocatable

    def __missing__(self, resource: str) -> Divisors:
        offered = self._allocatable(resource).view
        exact = not int(offered.max(initial=0)) >> BITS
        found = self[resource] = Divisors(np.maximum(offered, 1).astype(np.float64), bool(offered.all()), exact)
        return found


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

#: After more changes than one in so many rows, all rows are computed again; up to so many changed rows are computed one by one.
_MANY, _FEW = 4, 32
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

    def follow(self) -> bool:
        """Bring the entries up to date. Return False if they would not be exact, or a node offers no CPU or no memory.

        No what-if may be open.
        """
        changes, space = self.changes, self._table.space
        behind, same_nodes = changes.position - self.position, changes.nodes == self._nodes
        if not behind and same_nodes:
            return self._exact
        if self._capacity != space.capacity:
            self._hold(space.capacity)
            self._start()
        elif not self._exact:
            if same_nodes and behind <= self._rows:
                return False
            self._start()  # large amounts may be gone
        elif behind == 1 and same_nodes:
            self._update((changes.last,))
        else:
            rows = changes.many_since(self.position, space.rows) if behind * _MANY <= space.rows else None
            if rows is None:
                self._start()
            elif len(rows) <= _FEW and same_nodes:
                self._update(rows.tolist())
            else:
                self._show(space.rows)
                self._compute(rows)
        self._nodes, self.position = changes.nodes, changes.position
        return self._exact

    def of(self, rows: npt.NDArray[np.intp]) -> SomeUsage:
        """Return the usage of some rows."""
        return SomeUsage(self, self._free.take(rows, axis=1), self._floats.take(rows, axis=1), rows)

    def find_least(self) -> None:
        """Set ``least`` to the lowest entries, except those of ``doubled``."""
        self.least[:5] = [values.item(values.argmin()) for values in (*self.free, *self.spare)]

    def _start(self) -> None:
        """Compute all rows."""
        table = self._table
        self._show(table.space.rows)
        nonzero = {"cpu": table.nonzero_cpu, "memory": table.nonzero_memory}
        self._columns = [(table.allocatable(name), table.requested(name), column) for name, column in nonzero.items()]
        self.least, self.is_plain, self._exact = [inf] * 7, True, self._rows > 0
        if self._exact:
            self._compute(slice(None))

    def _compute(self, rows: slice | npt.NDArray[np.intp]) -> None:
        """Compute some rows by array operations."""
        if not isinstance(rows, slice) and not len(rows):
            return
        table, free, floats = self._table, self.free, self._floats[:, : self._rows]
        places = table.allowed_pods.view[rows] - table.pod_count.view[rows]
        free[PLACES, rows] = places
        lows, shares = [(PLACES, places)], []
        for at, columns in enumerate(self._columns):
            offered, held, nonzero = (column.view[rows] for column in columns)
            if not offered.all() or has_any((offered | held | nonzero) >> BITS):
                self._exact = False
                return
            self.is_plain = self.is_plain and np.array_equal(held, nonzero)
            left, spare, doubled = offered - held, (offered - nonzero) * 200, offered * 2.0
            free[at, rows], floats[at, rows], floats[at + 2, rows], floats[at + 4, rows] = left, held, spare, doubled
            lows += (at, left), (at + 3, spare), (at + 5, doubled)
            shares.append(np.minimum(held / doubled, 0.5))
        for at, values in lows:
            self.least[at] = min(self.least[at], values.item(values.argmin()))
        self.rest[rows] = 150 - ((1.0 - np.abs(shares[0] - shares[1])) * 100.0).astype(np.int32)

    def _update(self, changed: Iterable[int]) -> None:
        """Compute some rows one by one, whose nodes offer the same as before."""
        size, least = self._capacity, self.least
        free, floats, rest = self._cells
        allowed, count = self._table.allowed_pods.cells, self._table.pod_count.cells
        ((cpus, milli, counted), (memories, sizes, counted_sizes)) = [[one.cells for one in of] for of in self._columns]
        for row in changed:
            cpu, memory, held, held_size = cpus[row], memories[row], milli[row], sizes[row]
            nonzero, nonzero_size = counted[row], counted_sizes[row]
            if (held | held_size | nonzero | nonzero_size) >> BITS:
                self._exact = False
            if nonzero != held or nonzero_size != held_size:
                self.is_plain = False
            at, places = row + size, allowed[row] - count[row]
            left, left_size = cpu - held, memory - held_size
            spare, spare_size = 200 * (cpu - nonzero), 200 * (memory - nonzero_size)
            free[row], free[at], free[at + size] = left, left_size, places
            floats[row], floats[at], floats[at + size], floats[at + 2 * size] = held, held_size, spare, spare_size
            share, share_size = held / (2 * cpu), held_size / (2 * memory)
            distance = abs((share if share < 0.5 else 0.5) - (share_size if share_size < 0.5 else 0.5))  # noqa: FURB136
            rest[row] = 150 - int((1.0 - distance) * 100.0)
            if left < least[0] or left_size < least[1] or places < least[2] or spare < least[3] or spare_size < least[4]:
                least[:5] = map(min, least, (left, left_size, places, spare, spare_size))


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
