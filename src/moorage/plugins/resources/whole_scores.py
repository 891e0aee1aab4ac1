"""Filter and scores of CPU and memory from ``Usage``: a third of the array operations of a view.

``UsageRule`` does in one step, and exactly, what NodeResourcesFit and NodeResourcesBalancedAllocation do for a pod that
requests whole numbers below 2^46 of CPU and memory and nothing else, on tables whose nodes all offer both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.api.pod_requests import PodRequests
from moorage.state.table import NodeTable
from moorage.state.usage import AT, BITS, SomeUsage, Usage
from moorage.state.view import BoolArray, IntArray, PodInfo

Floats = npt.NDArray[np.float64]
#: Less than any node has left: what a pod wants of a resource that it does not request.
_NOTHING: Final = -(2**63)
#: What a pod wants and what a rule adds, for one call: an array that is filled costs less than a new one.
_WANTED: Final = np.zeros(3, dtype=np.int64)
_AMOUNTS: Final = np.zeros(4)
_WANTED_DOWN, _AMOUNTS_DOWN = _WANTED.reshape(3, 1), _AMOUNTS.reshape(4, 1)
#: Shares of up to twice as many need no bounds: a hundred times such a share fits into 32 bits.
_TIMES: Final = 500_000


def _rows_short(wanted: tuple[int | None, int | None], usage: SomeUsage | Usage) -> BoolArray | None:
    """Return which rows lack CPU, memory or a place for a pod, shape (3, rows); None if no row does."""
    least, cells = usage.least, _WANTED.data
    cells[0], cells[1], cells[2] = [_NOTHING if amount is None else amount for amount in wanted] + [1]
    if least[0] >= cells[0] and least[1] >= cells[1] and least[2] > 0:
        return None
    short: BoolArray = np.less(usage.free, _WANTED_DOWN)
    if short.item(short.argmax()):
        return short
    usage.find_least()
    return None


class Kind(Enum):
    """A score of CPU and memory."""

    LEAST = "LeastAllocated"
    MOST = "MostAllocated"
    BALANCED = "BalancedAllocation"


class Wants(NamedTuple):
    """The part of a Filter: a pod's requests, which must be free on a node, and which resources it ignores."""

    needs: Callable[[PodInfo], PodRequests]
    ignores: Callable[[str], bool]


class Weighs(NamedTuple):
    """The part of a score: the CPU and memory that it adds to a node for a pod, and its weight."""

    kind: Kind
    amounts: Callable[[PodInfo], tuple[int, int]]
    weight: int


class UsageRuleMaker:
    """Makes the rules of pods for some plugins, of which each has its part. A kind of score has one part at most."""

    def __init__(self, parts: Sequence[Wants | Weighs]) -> None:
        self._wants = next((part for part in parts if isinstance(part, Wants)), None)
        weighs = [part for part in parts if isinstance(part, Weighs)]
        self._share, self._balanced = (
            next((part for part in weighs if (part.kind is Kind.BALANCED) is balanced), None) for balanced in (False, True)
        )

    def __call__(self, pod: PodInfo) -> UsageRule | None:
        """Return the rule of a pod; None if it requests other resources, or amounts that are too large."""
        wanted: tuple[int | None, int | None] | None = None
        if self._wants is not None:
            requests = self._wants.needs(pod).requests
            for name, count in requests.items():
                if name not in AT and count and not self._wants.ignores(name):
                    return None
            wanted = requests.get("cpu") or None, requests.get("memory") or None
        share, balanced = self._share, self._balanced
        counted = (0, 0) if share is None else share.amounts(pod)
        added = (0, 0) if balanced is None else balanced.amounts(pod)
        if (counted[0] | counted[1] | added[0] | added[1]) >> BITS:
            return None
        kind, weight = (Kind.LEAST, 0) if share is None else (share.kind, share.weight)
        # A pod without requests is not scored by balance.
        return UsageRule(wanted, kind, counted, weight, added, balanced.weight if balanced is not None and any(added) else 0)


class UsageRule:
    """Filter and scores by CPU, memory and the number of pods, for all plugins that judge by these."""

    __slots__ = ("_added", "_counted", "_kind", "_of_balance", "_wanted", "_weight")

    def __init__(
        self, wanted: tuple[int | None, int | None] | None, kind: Kind, counted: tuple[int, int], weight: int,
        added: tuple[int, int], of_balance: int,
    ) -> None:  # fmt: skip
        """``wanted``: the CPU and memory that must be free, None for what is not requested; None to refuse no row

        ``counted``, ``added``: the CPU and memory that the score of this ``kind`` adds to a node, and that of balance
        """
        self._wanted, self._kind, self._counted, self._weight = wanted, kind, counted, weight
        self._added, self._of_balance = added, of_balance

    def rows(self, usage: SomeUsage | Usage) -> tuple[IntArray, BoolArray | None]:
        """Return the weighted scores of all rows, and which rows are refused; None for none."""
        short = None if self._wanted is None else _rows_short(self._wanted, usage)
        least, scratch = usage.least, usage.scratch
        half, share = scratch[:2], scratch[2:]
        milli, size = self._counted
        added, added_size = self._added
        is_most = self._kind is Kind.MOST
        amounts = _AMOUNTS.data
        amounts[0], amounts[1], amounts[2], amounts[3] = -added, -added_size, 200 * milli, 200 * size
        np.subtract(usage.both, _AMOUNTS_DOWN, out=scratch)
        if is_most:
            np.subtract(usage.doubled * 100.0, share, out=share)
        pairs = scratch.reshape(2, 2, -1)
        pairs /= usage.doubled
        # Shares that would be out of bounds are those of rows which are refused, if the pod requests what it counts with.
        is_sure = (
            self._wanted == self._added
            and added - least[0] <= _TIMES * least[5] and added_size - least[1] <= _TIMES * least[6]
        )  # fmt: skip
        is_share_sure = is_sure and usage.is_plain and self._wanted == self._counted
        if not is_share_sure and (least[3] < 200 * milli or least[4] < 200 * size):
            if is_most:
                np.minimum(share, 100.0, out=share)
            else:
                np.maximum(share, usage.bounds[0], out=share)
        if not is_sure and (least[0] < added or least[1] < added_size):
            np.minimum(half, usage.bounds[1], out=half)
        balance: Floats = half[0]
        balance -= half[1]
        np.abs(balance, out=balance)
        np.subtract(1.0, balance, out=balance)
        balance *= 100.0
        # Whole numbers of 32 bits from here on: shares and balance lose their fractions, and arrays take half the memory.
        shares, scores = usage.shares, usage.scores
        np.copyto(shares, share, casting="unsafe")
        of_share, of_balance = scores
        np.add(shares[0], shares[1], out=of_share)
        of_balance[:] = balance
        of_balance += usage.rest
        scores >>= 1
        if self._weight == 1 and self._of_balance == 1:
            of_share += of_balance
            worths: IntArray = of_share.astype(np.int64)
        else:
            worths = of_share * np.int64(self._weight) + of_balance * np.int64(self._of_balance)
        refused: BoolArray | None = None
        if short is not None:
            refused = short[0]
            refused |= short[1]
            refused |= short[2]
        return worths, refused

    def row(self, row: int, table: NodeTable) -> int | None:
        """Return the weighted score of one row, -1 if it is refused; None if it must be judged in another way."""
        offered, requested = table.allocatable_columns, table.requested_columns
        try:
            cpu, memory = offered["cpu"].cells[row], offered["memory"].cells[row]
            held, held_size = requested["cpu"].cells[row], requested["memory"].cells[row]
        except KeyError:
            return None
        if not cpu or not memory or (cpu | memory | held | held_size) >> BITS:
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
        milli, size = self._counted
        counted, counted_size = table.nonzero_cpu.cells[row] + milli, table.nonzero_memory.cells[row] + size
        if self._kind is Kind.MOST:
            share = min(counted, cpu) * 100 // cpu + min(counted_size, memory) * 100 // memory
        else:
            share = (cpu - counted) * 100 // cpu if counted < cpu else 0
            if counted_size < memory:
                share += (memory - counted_size) * 100 // memory
        milli, size = self._added
        one, other = held / cpu, held_size / memory
        before = abs((one if one < 1.0 else 1.0) - (other if other < 1.0 else 1.0)) / 2  # noqa: FURB136 (min() is slower)
        one, other = (held + milli) / cpu, (held_size + size) / memory
        after = abs((one if one < 1.0 else 1.0) - (other if other < 1.0 else 1.0)) / 2  # noqa: FURB136
        balance = 50 + (50 + int((1.0 - after) * 100.0) - int((1.0 - before) * 100.0)) // 2
        return share // 2 * self._weight + balance * self._of_balance
