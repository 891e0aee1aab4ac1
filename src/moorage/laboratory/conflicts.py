"""Correction sets and conflicts: which constraints to give up, and which cannot all hold on any node.

Each node has a set: the constraints that refuse it. If constraints are independent, the correction sets are the
inclusion-minimal sets: without the constraints of one of them, the pod fits somewhere. The conflicts are the inclusion-minimal
families of constraints that together refuse every node, that is, the minimal hitting sets of all sets.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

import numpy as np

from moorage.laboratory.verdicts import Constraint
from moorage.state.columns import BoolArray

__all__ = ["MOST_CONFLICTS", "conflicts", "correction_sets", "sets_of"]

#: How many conflicts are returned.
MOST_CONFLICTS = 20
#: Maximum number of partial conflicts to extend before the search ends.
_MOST_STEPS = 20_000
#: The bits of an integer that numbers sets of constraints.
_MOST_BITS = 62

Family = frozenset[Constraint]


def sets_of(constraints: Mapping[Constraint, BoolArray], among: BoolArray | None = None) -> list[Family]:
    """Return the distinct sets of constraints that refuse a row, ``among`` the given rows; the empty set if a row is open."""
    if not constraints:
        return [frozenset()]
    masks = np.stack(list(constraints.values()))
    columns = _distinct_columns(masks if among is None else masks[:, among])
    keys = list(constraints)
    return [frozenset(key for key, there in zip(keys, column, strict=True) if there) for column in columns.T.tolist()]


def _distinct_columns(masks: BoolArray) -> BoolArray:
    """Return the distinct columns of an array, in ascending order."""
    if len(masks) > _MOST_BITS:
        distinct: BoolArray = np.unique(masks, axis=1)
        return distinct
    bits = np.left_shift(1, np.arange(len(masks))[::-1])[:, None]
    return (np.unique((masks * bits).sum(axis=0)) & bits) > 0


def correction_sets(sets: Iterable[Family]) -> list[Family]:
    """Return the inclusion-minimal sets, the smallest first."""
    kept: list[Family] = []
    for one in sorted(set(sets), key=lambda s: (len(s), sorted(s))):
        if not any(other <= one for other in kept):
            kept.append(one)
    return kept


def conflicts(sets: Iterable[Family], most: int = MOST_CONFLICTS, order: Sequence[Constraint] = ()) -> list[Family]:
    """Return the inclusion-minimal families that share a constraint with every set, the smallest first; at most so many.

    There is none if some set is empty: then a node is open. Families of one size are sorted by the ``order`` of constraints.
    """
    place = {one: at for at, one in enumerate(order)}

    def rank(one: Constraint) -> tuple[int, Constraint]:
        return place.get(one, len(place)), one

    corrections = correction_sets(sets)
    if not corrections or not corrections[0]:
        return []
    serial = count()
    heap: list[tuple[int, int, Family]] = [(0, next(serial), frozenset())]
    seen: set[Family] = set()
    found: list[Family] = []
    while heap and len(found) < most and len(seen) < _MOST_STEPS:
        _, _, chosen = heapq.heappop(heap)
        at = next((at for at, one in enumerate(corrections) if chosen.isdisjoint(one)), None)
        if at is None:
            found.append(chosen)
            continue
        for more in sorted(corrections[at], key=rank):
            larger = chosen | {more}
            if larger not in seen and _each_is_needed(larger, corrections[: at + 1]):
                seen.add(larger)
                heapq.heappush(heap, (len(larger), next(serial), larger))
    return sorted(found, key=lambda family: (len(family), sorted(map(rank, family))))


def _each_is_needed(chosen: Family, corrections: Sequence[Family]) -> bool:
    """Return whether, for each chosen constraint, some set has no other chosen one."""
    alone: set[Constraint] = set()
    for one in corrections:
        hits = one & chosen
        if len(hits) == 1:
            alone |= hits
    return len(alone) == len(chosen)
