"""Filter and scores of CPU and memory from ``Usage``: a third of the array operations of a view.

Each function gives exactly what the plugin computes from the columns of a view. They apply to pods that request whole numbers
below 2^46 of CPU and memory, on tables whose nodes all offer both; ``usable`` tells. ``UsageRule`` does in one step what
NodeResourcesFit and NodeResourcesBalancedAllocation do for a pod that requests nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.state.columns import BoolArray, IntArray
from moorage.state.table import NodeTable
from moorage.state.usage import SomeUsage, Usage
from moorage.state.view import NodeView

__all__ = [
    "UsageRule", "Wanted", "Weighed", "balance_of_all", "least_allocated_of_all", "most_allocated_of_all",
    "rows_short", "usable", "weighed",
]  # fmt: skip

Floats = npt.NDArray[np.float64]
#: A resource, the amount that the pod requests, and the weight: see ``Demand``.
_Demand = tuple[str, int, int]
#: Less than any node has left: what a pod wants of a resource that it does not request.
_NOTHING: Final = -(2**63)
#: What a pod wants and what a rule adds, for one call: an array that is filled costs less than a new one.
_WANTED: Final = np.zeros(3, dtype=np.int64)
_AMOUNTS: Final = np.zeros(4)
_WANTED_DOWN, _AMOUNTS_DOWN = _WANTED.reshape(3, 1), _AMOUNTS.reshape(4, 1)
#: See ``Usage.is_exact``.
_BITS: Final = 46


def usable(demands: Sequence[_Demand], nodes: NodeView) -> SomeUsage | Usage | None:
    """Return the usage of the rows if the view has it, and the pod is scored by CPU and memory, in this order."""
    if len(demands) != 2:
        return None
    (cpu, milli, _), (memory, size, _) = demands
    if cpu != "cpu" or memory != "memory" or not Usage.is_exact(milli | size):
        return None
    return nodes.usage()


def rows_short(cpu: int | None, memory: int | None, usage: SomeUsage | Usage) -> BoolArray | None:
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


def least_allocated_of_all(demands: Sequence[_Demand], usage: SomeUsage | Usage) -> IntArray:
    """Return what ``weighted_mean`` with ``least_allocated`` gives."""
    (_, milli, _), (_, size, _) = demands
    share = usage.scratch[:2]
    np.subtract(usage.spare, np.array([[200.0 * milli], [200.0 * size]]), out=share)
    share /= usage.doubled
    np.floor(share, out=share)
    if usage.least[3] < 200 * milli or usage.least[4] < 200 * size:  # requests may exceed a capacity
        np.maximum(share, 0.0, out=share)
    return _mean(share, demands)


def most_allocated_of_all(demands: Sequence[_Demand], usage: SomeUsage | Usage) -> IntArray:
    """Return what ``weighted_mean`` with ``most_allocated`` gives."""
    share = usage.scratch[:2]
    np.multiply(usage.doubled, 100.0, out=share)
    share -= usage.spare
    (_, milli, _), (_, size, _) = demands
    share += np.array([[200.0 * milli], [200.0 * size]])
    share /= usage.doubled
    np.floor(share, out=share)
    if share.item(share.argmax()) > 100:
        np.minimum(share, 100.0, out=share)
    return _mean(share, demands)


def _mean(share: Floats, demands: Sequence[_Demand]) -> IntArray:
    """Return the weighted mean of the two rows of whole numbers, rounded down, and overwrite them."""
    (_, _, of_cpu), (_, _, of_memory) = demands
    total: Floats = share[0]
    other: Floats = share[1]
    if of_cpu == of_memory:
        total += other
        total *= 0.5
    else:
        total *= of_cpu
        other *= of_memory
        total += other
        total /= of_cpu + of_memory
    return total.astype(np.int64)


def balance_of_all(demands: Sequence[_Demand], usage: SomeUsage | Usage) -> IntArray:
    """Return 50, plus half of: 50, plus the balance with the pod, less the balance without it."""
    (_, milli, _), (_, size, _) = demands
    scores = _balance(usage, milli, size)
    scores += usage.rest
    scores *= 0.5
    return scores.astype(np.int64)


class Wanted(NamedTuple):
    """The CPU and memory that a pod needs to find free on a node; None: it requests nothing of it."""

    cpu: int | None
    memory: int | None


class Weighed(NamedTuple):
    """The CPU and memory that a score adds to a node, and its weight. ``is_balance``: else it is that of LeastAllocated."""

    is_balance: bool
    milli: int
    size: int
    weight: int


def weighed(milli: int, size: int, weight: int, *, is_balance: bool = False) -> Weighed | None:
    """Return the part of a score in a ``UsageRule``; None if the amounts are too large for it."""
    return Weighed(is_balance, milli, size, weight) if Usage.is_exact(milli | size) else None


class UsageRule:
    """Filter and scores by CPU, memory and the number of pods, for all plugins that judge by these."""

    __slots__ = ("_balanced", "_least", "_refuses", "_wanted")

    def __init__(self, parts: Sequence[Wanted | Weighed]) -> None:
        self._wanted: Wanted | None = None
        self._least, self._balanced = Weighed(False, 0, 0, 0), Weighed(True, 0, 0, 0)
        for part in parts:
            if isinstance(part, Wanted):
                self._wanted = part
            elif part.is_balance:
                self._balanced = part
            else:
                self._least = part
        wanted, added, counted = self._wanted or (None, None), self._balanced[1:3], self._least[1:3]
        #: Whether Filter refuses all rows where the requests, with LeastAllocated's defaults and without, exceed a capacity.
        self._refuses = [bool(amounts[0] and amounts[1] and wanted == amounts) for amounts in (counted, added)]

    def rows(self, usage: SomeUsage | Usage) -> tuple[IntArray, BoolArray | None]:
        """Return the weighted scores of all rows, and which rows are refused; None for none."""
        short = None if self._wanted is None else rows_short(*self._wanted, usage)
        least, scratch = usage.least, usage.scratch
        half, share = scratch[:2], scratch[2:]
        _, milli, size, weight = self._least
        _, added, added_size, of_balance = self._balanced
        amounts = _AMOUNTS.data
        amounts[0], amounts[1], amounts[2], amounts[3] = -added, -added_size, 200 * milli, 200 * size
        np.subtract(usage.both, _AMOUNTS_DOWN, out=scratch)
        pairs = scratch.reshape(2, 2, -1)
        pairs /= usage.doubled
        np.floor(share, out=share)
        refuses_counted, refuses = self._refuses
        if not (refuses_counted and usage.counts_alike) and (
            least[3] < 200 * milli or least[4] < 200 * size
        ):  # may exceed a capacity
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
        _, milli, size, weight = self._least
        left, left_size = cpu - milli - table.nonzero_cpu.cells[row], memory - size - table.nonzero_memory.cells[row]
        share = left * 100 // cpu if left > 0 else 0
        if left_size > 0:
            share += left_size * 100 // memory
        _, milli, size, of_balance = self._balanced
        one, other = held / cpu, held_size / memory
        before = abs((one if one < 1.0 else 1.0) - (other if other < 1.0 else 1.0)) / 2  # noqa: FURB136 (min() is slower)
        one, other = (held + milli) / cpu, (held_size + size) / memory
        after = abs((one if one < 1.0 else 1.0) - (other if other < 1.0 else 1.0)) / 2  # noqa: FURB136
        balance = 50 + (50 + int((1.0 - after) * 100.0) - int((1.0 - before) * 100.0)) // 2
        return share // 2 * weight + balance * of_balance


def _balance(usage: SomeUsage | Usage, milli: int, size: int) -> Floats:
    """Return the balance of all rows with these requests added, in an array that the next call overwrites."""
    half = usage.scratch[:2]
    np.add(usage.requested, np.array([[float(milli)], [float(size)]]), out=half)
    half /= usage.doubled
    if usage.least[0] < milli or usage.least[1] < size:  # requests may exceed a capacity
        np.minimum(half, 0.5, out=half)
    balance: Floats = half[0]
    balance -= half[1]
    np.abs(balance, out=balance)
    np.subtract(1.0, balance, out=balance)
    balance *= 100.0
    np.floor(balance, out=balance)
    return balance
