"""Cross-entropy search: find the vector that maximises a function, such as weights of plugins.

Each round draws vectors from a normal distribution, evaluates them, and moves the distribution to the best of them. The
search needs no gradient, and candidates of one round can be evaluated in parallel.

Source  Rubinstein, The Cross-Entropy Method for Combinatorial and Continuous Optimization (1999)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from moorage.errors import InputError

Vector = npt.NDArray[np.float64]


class SearchResult(Struct, frozen=True):
    """The best vector and its value; ``history`` has the best value after each round, ``evaluations`` their number."""

    best: tuple[float, ...]
    value: float
    history: tuple[float, ...]
    evaluations: int


def cross_entropy_search(
    value_of: Callable[[Sequence[float]], float],
    low: Sequence[float],
    high: Sequence[float],
    *,
    rounds: int = 10,
    population: int = 16,
    elite: int = 4,
    start: Sequence[float] | None = None,
    seed: int = 0,
    executor: Executor | None = None,
) -> SearchResult:
    """Return the best of the tried vectors between ``low`` and ``high``. ``start`` is tried first, and is the first mean.

    ``executor``  evaluates the vectors of a round; ``value_of`` must then be picklable if it runs other processes

    Raises  InputError
    """
    bounds = np.array([low, high], dtype=np.float64)
    if bounds.ndim != 2 or not bounds.shape[1] or not (bounds[0] <= bounds[1]).all():
        raise InputError("low and high: give one pair of bounds or more, the lower first")
    if not (rounds > 0 and 0 < elite <= population):
        raise InputError("give at least one round, and an elite that is part of the population")
    random = np.random.default_rng(seed)
    mean: Vector = bounds.mean(axis=0) if start is None else np.array(start, dtype=np.float64)
    deviation: Vector = (bounds[1] - bounds[0]) / 2
    best, value = mean, -np.inf
    history: list[float] = []
    for _ in range(rounds):
        drawn = np.clip(random.normal(mean, deviation, (population, len(mean))), bounds[0], bounds[1])
        drawn[0] = best  # the result is never worse than the start
        vectors = [tuple(one) for one in drawn.tolist()]
        values = np.array(list((map if executor is None else executor.map)(value_of, vectors)))
        order = np.argsort(-values, kind="stable")
        if values[order[0]] > value:
            best, value = drawn[order[0]], float(values[order[0]])
        chosen = drawn[order[:elite]]
        mean, deviation = chosen.mean(axis=0), chosen.std(axis=0) + 1e-3 * (bounds[1] - bounds[0])
        history.append(value)
    return SearchResult(tuple(best.tolist()), value, tuple(history), rounds * population)
