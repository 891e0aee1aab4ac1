"""Filter and scores of CPU and memory from ``Usage``: a third of the array operations of a view.

``UsageRule`` does in one step, and exactly, what NodeResourcesFit and NodeResourcesBalancedAllocation do for a pod that
requests whole numbers below 2^46 of CPU and memory and nothing else, on tables whose nodes all offer both.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.state.columns import BoolArray, IntArray
from moorage.state.table import NodeTable
from moorage.state.usage import SomeUsage, Usage

__all__ = ["Kind", "UsageRule", "Wanted", "Weighed", "weighed"]

Floats = npt.NDArray[np.float64]
#: Less than any node has left: what a pod wants of a resource that it does not request.
_NOTHING: Final = -(2**63)
#: What a pod wants and what a rule adds, for one call: an array that is filled costs less than a new one.
_WANTED: Final = np.zeros(3, dtype=np.int64)
_AMOUNTS: Final = np.zeros(4)
_WANTED_DOWN, _AMOUNTS_DOWN = _WANTED.reshape(3, 1), _AMOUNTS.reshape(4, 1)
#: See ``Usage.is_exact``.
_BITS: Final = 46


def _rows_short(cpu: int | None, memory: int | None, usage: SomeUsage | Usage) -> BoolArray | None:
    """Return which rows lack CPU, memory or a place for a pod, shape (3, rows); None if no row does.

    ``cpu``, ``memory``: what the pod requests, None for nothing
    """
    wanted = _NOTHING if cpu is None else cpu, _NOTHING if memory is None else memory, 1
    least = usage.least
    if least[0] >= wanted[0] and least[1] >= wanted[1] and least[2] > 0:
        return None
    cells = _WANTED.data
    cells[0], cells[1], cells[2] = wanted
    short: BoolArray = np.less(usage.free, _WANTED_DOWN)
    if short.item(short.argmax()):
        return short
    usage.find_least()
    return None


class Wanted(NamedTuple):
    """The CPU and memory that a pod needs to find free on a node; None: it requests nothing of it."""

    cpu: int | None
    memory: int | None


class Kind(Enum):
    """A score of CPU and memory."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"
    BALANCED = "BalancedAllocation"


class Weighed(NamedTuple):
    """The CPU and memory that a score adds to a node, and its weight."""

    kind: Kind
    milli: int
    size: int
    weight: int


def weighed(kind: Kind, milli: int, size: int, weight: int) -> Weighed | None:
    """Return the part of a score in a ``UsageRule``; None if the amounts are too large for it."""
    return Weighed(kind, milli, size, weight) if Usage.is_exact(milli | size) else None


class UsageRule:
    """Filter and scores by CPU, memory and the number of pods, for all plugins that judge by these."""

    __slots__ = ("_balanced", "_refuses", "_share", "_wanted")

    def __init__(self, parts: Sequence[Wanted | Weighed]) -> None:
        self._wanted: Wanted | None = None
        self._share, self._balanced = Weighed(Kind.LEAST, 0, 0, 0), Weighed(Kind.BALANCED, 0, 0, 0)
        for part in parts:
            if isinstance(part, Wanted):
                self._wanted = part
            elif part.kind is Kind.BALANCED:
                self._balanced = part
            else:
                self._share = part
        wanted, added, counted = self._wanted or (None, None), self._balanced[1:3], self._share[1:3]
        #: Whether Filter refuses all rows where the requests, with the defaults of scores and without, exceed a capacity.
        self._refuses = [bool(amounts[0] and amounts[1] and wanted == amounts) for amounts in (counted, added)]

    def rows(self, usage: SomeUsage | Usage) -> tuple[IntArray, BoolArray | None]:
        """Return the weighted scores of all rows, and which rows are refused; None for none."""
        short = None if self._wanted is None else _rows_short(*self._wanted, usage)
        least, scratch = usage.least, usage.scratch
        half, share = scratch[:2], scratch[2:]
        kind, milli, size, weight = self._share
        _, added, added_size, of_balance = self._balanced
        amounts = _AMOUNTS.data
        amounts[0], amounts[1], amounts[2], amounts[3] = -added, -added_size, 200 * milli, 200 * size
        np.subtract(usage.both, _AMOUNTS_DOWN, out=scratch)
        if kind is Kind.MOST:
            np.subtract(usage.doubled * 100.0, share, out=share)
        pairs = scratch.reshape(2, 2, -1)
        pairs /= usage.doubled
        np.floor(share, out=share)
        refuses_counted, refuses = self._refuses
        may_exceed = least[3] < 200 * milli or least[4] < 200 * size
        if may_exceed and not (refuses_counted and usage.counts_alike):
            if kind is Kind.MOST:
                np.minimum(share, 100.0, out=share)
            else:
                np.maximum(share, 0.0, out=share)
        total: Floats = share[0]
        total += share[1]
        if not refuses and (least[0] < added or least[1] < added_size):
            np.minimum(half, 0.5, out=half)
        balance: Floats = half[0]
        balance -= half[1]
        np.abs(balance, out=balance)
        np.subtract(1.0, balance, out=balance)
        balance *= 100.0
        np.floor(balance, out=balance)
        np.add(balance, usage.rest, out=share[1])
        share *= 0.5
        np.floor(share, out=share)
        if weight != 1:
            total *= weight
        if of_balance != 1:
            share[1] *= of_balance
        total += share[1]
        refused: BoolArray | None = None
        if short is not None:
            refused = short[0]
            refused |= short[1]
            refused |= short[2]
        return total.astype(np.int64), refused

    def row(self, row: int, table: NodeTable) -> int | None:
        """Return the weighted score of one row, -1 if it is refused; None if it must be judged in another way."""
        offered, requested = table.allocatable_columns, table.requested_columns
        try:
            cpu, memory = offered["cpu"].cells[row], offered["memory"].cells[row]
            held, held_size = requested["cpu"].cells[row], requested["memory"].cells[row]
        except KeyError:
            return None
        if not cpu or not memory or (cpu | memory | held | held_size) >> _BITS:
            return None
        wanted = self._wanted
        if wanted is not None:
            milli, size = wanted
            if (
                table.pod_count.cells[row] >= table.allowed_pods.cells[row]
                or (milli is not None and cpu - held < milli)
                or (size is not None and memory - held_size < size)
            ):
                return -1
        kind, milli, size, weight = self._share
        counted, counted_size = table.nonzero_cpu.cells[row] + milli, table.nonzero_memory.cells[row] + size
        if kind is Kind.MOST:
            share = min(counted, cpu) * 100 // cpu + min(counted_size, memory) * 100 // memory
        else:
            share = (cpu - counted) * 100 // cpu if counted < cpu else 0
            if counted_size < memory:
                share += (memory - counted_size) * 100 // memory
        _, milli, size, of_balance = self._balanced
        one, other = held / cpu, held_size / memory
        before = abs((one if one < 1.0 else 1.0) - (other if other < 1.0 else 1.0)) / 2  # noqa: FURB136 (min() is slower)
        one, other = (held + milli) / cpu, (held_size + size) / memory
        after = abs((one if one < 1.0 else 1.0) - (other if other < 1.0 else 1.0)) / 2  # noqa: FURB136
        balance = 50 + (50 + int((1.0 - after) * 100.0) - int((1.0 - before) * 100.0)) // 2
        return share // 2 * weight + balance * of_balance
