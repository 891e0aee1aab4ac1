"""The stranded share of each node: free resources that typical pods cannot use.

If a node has free resources, its share is the weight of the typical pods that do not fit on it: 0 if all fit, 1 if none
fits. A full node has the share 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

#: Maximum number of typical shapes; and the minimum share of all pods that makes a shape typical.
_MOST: Final = 20
_TYPICAL: Final = 0.01

Amounts = Mapping[str, int]


class TypicalShape(NamedTuple):
    """What a typical pod requests, and its share of all typical pods."""

    requests: Amounts
    weight: float


def typical_shapes(requests: Iterable[Amounts]) -> tuple[TypicalShape, ...]:
    """Return the most frequent requests. Counting starts by identity, as most pods with equal requests share one object."""
    seen: dict[int, tuple[Amounts, int]] = {}
    for one in requests:
        held = seen.get(id(one))
        seen[id(one)] = (one, 1 if held is None else held[1] + 1)
    counts: dict[tuple[tuple[str, int], ...], int] = {}
    for one, count in seen.values():
        key = tuple(sorted((name, amount) for name, amount in one.items() if amount > 0))
        if key:
            counts[key] = counts.get(key, 0) + count
    total = sum(counts.values())
    common = sorted(((count, key) for key, count in counts.items() if count >= _TYPICAL * total), reverse=True)[:_MOST]
    kept = sum(count for count, _ in common)
    return tuple(TypicalShape(dict(key), count / kept) for count, key in common)


def stranded_shares(shapes: Sequence[TypicalShape], allocatable: Sequence[Amounts], used: Sequence[Amounts]) -> list[float]:
    """Return the stranded share of each node, from 0 to 1."""
    names = sorted({name for shape in shapes for name in shape.requests})
    if not shapes or not allocatable:
        return [0.0] * len(allocatable)
    free = np.array(
        [[given.get(name, 0) - held.get(name, 0) for name in names] for given, held in zip(allocatable, used, strict=True)]
    )
    room = np.array([given.get("pods", 1) > held.get("pods", 0) for given, held in zip(allocatable, used, strict=True)])
    lost = np.zeros(len(allocatable))
    for shape in shapes:
        asked = np.array([shape.requests.get(name, 0) for name in names])
        lost += shape.weight * ~((free >= asked).all(axis=1) & room)
    found: list[float] = np.where((free > 0).any(axis=1), lost, 0.0).round(3).tolist()
    return found
