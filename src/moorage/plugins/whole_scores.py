"""Filter and scores of CPU and memory from ``Usage``: a third of the array operations of a view.

Each function gives exactly what the plugin computes from the columns of a view. They apply to pods that request whole numbers
below 2^46 of CPU and memory, on tables whose nodes all offer both; ``usable`` tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt

from moorage.state.columns import BoolArray, IntArray
from moorage.state.usage import SomeUsage, Usage
from moorage.state.view import NodeView

__all__ = ["WholeBalance", "least_allocated_of_all", "most_allocated_of_all", "rows_short", "usable"]

Floats = npt.NDArray[np.float64]
#: A resource, the amount that the pod requests, and the weight: see ``Demand``.
_Demand = tuple[str, int, int]
#: Less than any node has left: what a pod wants of a resource that it does not request.
_NOTHING: Final = -(2**63)
#: After more changes than this, the balance of all rows is computed again.
_FEW: Final = 16


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
    short: BoolArray = np.less(usage.free, np.array([[amount] for amount in wanted]))
    if short.item(short.argmax()):
        return short
    usage.find_least()
    return None


def least_allocated_of_all(demands: Sequence[_Demand], usage: SomeUsage | Usage) -> IntArray:
    """Return what ``weighted_mean`` with ``least_allocated`` gives."""
    (_, milli, _), (_, size, _) = demands
    share = usage.scratch
    np.subtract(usage.spare, np.array([[200.0 * milli], [200.0 * size]]), out=share)
    share /= usage.doubled
    np.floor(share, out=share)
    if usage.least[3] < 200 * milli or usage.least[4] < 200 * size:  # requests may exceed a capacity
        np.maximum(share, 0.0, out=share)
    return _mean(share, demands)


def most_allocated_of_all(demands: Sequence[_Demand], usage: SomeUsage | Usage) -> IntArray:
    """Return what ``weighted_mean`` with ``most_allocated`` gives."""
    share = usage.scratch
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


class WholeBalance:
    """The scores of NodeResourcesBalancedAllocation. The balance of the nodes without the pod is kept."""

    __slots__ = ("_cells", "_of", "_position", "_rest", "_starts")

    def __init__(self) -> None:
        self._of: ReferenceType[Usage] | None = None
        self._starts = self._position = 0
        #: 150 less the balance without the pod, shape (rows,).
        self._rest: Floats = np.zeros(0)
        self._cells: memoryview = self._rest.data

    def scores(self, demands: Sequence[_Demand], usage: SomeUsage | Usage) -> IntArray:
        """Return 50, plus half of: 50, plus the balance with the pod, less the balance without it."""
        self._follow(usage if isinstance(usage, Usage) else usage.whole)
        (_, milli, _), (_, size, _) = demands
        scores = _balance(usage, milli, size)
        scores += self._rest if isinstance(usage, Usage) else self._rest[usage.rows]
        scores *= 0.5
        return scores.astype(np.int64)

    def _follow(self, usage: Usage) -> None:
        """Bring the balance of the nodes without the pod up to date."""
        position = usage.position
        if self._of is None or self._of() is not usage or self._starts != usage.starts:
            changed = None
        elif self._position + 1 == position:
            changed = [usage.changes.last]
        elif self._position == position:
            return
        else:
            changed = usage.changes.since(self._position) if position - self._position <= _FEW else None
        self._position = position
        if changed is None:
            self._of, self._starts = ref(usage), usage.starts
            self._rest = 150.0 - _balance(usage, 0, 0)
            self._cells = self._rest.data
            return
        for row in changed:
            cpu, memory = usage.half_shares(row)
            self._cells[row] = 150 - int((1.0 - abs(cpu - memory)) * 100.0)


def _balance(usage: SomeUsage | Usage, milli: int, size: int) -> Floats:
    """Return the balance of all rows with these requests added, in an array that the next call overwrites."""
    half = usage.scratch
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
