"""Scores of a single node in plain integers, equal to those that the array functions return.

Binding a pod changes one row. For one row, Python's integers are many times faster than arrays of length one, so the plugins
that run on every changed row have this second form. A property test compares it with the first.

Source  as ``scoring_strategies`` and ``node_resources_balanced_allocation``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from math import sqrt
from operator import add
from typing import Final

from moorage.state.view import NodeInfo

#: ``score(requested, capacity)`` of one resource of one node.
OneRowScore = Callable[[int, int], int]
#: A resource, the amount the pod adds to it, and its weight.
_Demand = tuple[str, int, int]

_SIGN: Final = 1 << 63
#: Amounts below this stay in int64 when they are multiplied by 100.
_SAFE: Final = 1 << 56


def _times_100(amount: int) -> int:
    """Multiply by 100 in int64, which wraps around beyond 2^63."""
    return (amount * 100 + _SIGN) % (2 * _SIGN) - _SIGN


def least_of(requested: int, capacity: int) -> int:
    """Return the score that ``least_allocated`` returns."""
    left = capacity - requested
    if left <= 0:
        return 0
    return left * 100 // capacity if left < _SAFE else quotient(_times_100(left), capacity)


def most_of(requested: int, capacity: int) -> int:
    """Return the score that ``most_allocated`` returns."""
    return quotient(_times_100(min(requested, capacity)), capacity)


def ratio_of(table: Sequence[int]) -> OneRowScore:
    """Return a scorer equal to ``requested_to_capacity_ratio`` of the same table."""

    def score(requested: int, capacity: int) -> int:
        return table[min(max(most_of(requested, capacity), 0), 100)]

    return score


def mean_of(
    score: OneRowScore, demands: Iterable[_Demand], node: NodeInfo, *, used_only: bool = False, half_up: bool = False
) -> int:
    """Return the score that ``weighted_mean`` gives the node."""
    total = weights = 0
    for resource, amount, weight in demands:
        capacity = node.allocatable(resource)
        if not capacity:
            continue
        if resource == "cpu":
            requested = node.nonzero_cpu
        else:
            requested = node.nonzero_memory if resource == "memory" else node.requested(resource)
        got = score(requested + amount, capacity)
        if got > 0 or not used_only:
            total += got * weight
            weights += weight
    weights = max(weights, 1)
    if half_up:
        return (2 * total + weights) // (2 * weights)
    return quotient(total, weights)


def quotient(part: int, whole: int) -> int:
    """Return the quotient as Go divides, rounded towards zero; the whole is positive."""
    return part // whole if part >= 0 else -(-part // whole)


def balance_of(shares: Sequence[float]) -> int:
    """Return the score that ``balance`` gives a node with these requested shares, one for each resource it has."""
    deviation = abs((shares[0] - shares[1]) / 2) if len(shares) == 2 else _deviation(shares)
    return int((1.0 - deviation) * 100.0)


def _deviation(shares: Sequence[float]) -> float:
    number = len(shares)
    if number < 2:
        return 0.0
    mean = reduce(add, shares) / number
    return sqrt(reduce(add, [(share - mean) * (share - mean) for share in shares]) / number)
