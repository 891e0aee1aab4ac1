"""Divisors for shares of resources, kept as columns while nodes are added."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.state.columns import Column, RowSpace

__all__ = ["DivisorColumns", "Divisors"]

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
    """The divisors of the resources passed to ``of``, computed from the column ``allocatable(resource)``."""

    def __init__(self, space: RowSpace, allocatable: Callable[[str], Column]) -> None:
        self._space = space
        self._allocatable = allocatable
        self._columns: dict[str, Column] = {}
        self._found: dict[str, Divisors] = {}

    def of(self, resource: str) -> Divisors:
        """Return the divisors of a resource; valid until a node is added or removed, or offers something else."""
        found = self._found.get(resource)
        return self._compute(resource) if found is None else found

    def _compute(self, resource: str) -> Divisors:
        offered = self._allocatable(resource).view
        column = self._columns[resource] = self._space.column(np.float64)
        np.maximum(offered, 1, out=column.view, casting="same_kind")
        exact = int(offered.max(initial=0)) < _EXACT
        found = self._found[resource] = Divisors(column.view, bool(offered.all()), exact)
        return found

    def add(self, row: int) -> None:
        """Add the row of a new node to all divisors."""
        for resource, (_, everywhere, exact) in self._found.items():
            offered, column = self._allocatable(resource).cells[row], self._columns[resource]
            column.cells[row] = max(offered, 1)
            self._found[resource] = Divisors(column.view, everywhere and offered != 0, exact and offered < _EXACT)

    def remove(self) -> None:
        """Follow the removal of a row."""
        for resource, (_, everywhere, exact) in tuple(self._found.items()):
            if everywhere and exact:
                self._found[resource] = Divisors(self._columns[resource].view, everywhere, exact)
            else:  # the row may have been the only one without it
                del self._found[resource], self._columns[resource]

    def clear(self) -> None:
        """Forget all divisors."""
        self._found.clear()
        self._columns.clear()
