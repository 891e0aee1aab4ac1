"""How certain the mean of paired differences is: Student's interval, an exact test of the signs, and Holm's correction.

Two runs with one seed make a pair. The mean of few differences is judged by Student's t, whose interval holds the true mean as
often as it says for pairs of runs also at five seeds, where a bootstrap of the pairs is too narrow. Pure functions: equal
values give equal answers.

Source  Student (1908), "The probable error of a mean"; Holm (1979), "A simple sequentially rejective multiple test procedure"
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: The share of intervals that hold the true mean.
LEVEL: Final = 0.95
#: So many pairs with one and the same difference leave nothing to chance: 1 of 32 rows of signs is all of one sign.
ENOUGH_EQUAL: Final = 5
#: The most pairs for the exact test, which tries all ways to flip their signs.
MOST_FLIPPED: Final = 20
#: Relative difference below which two means of the same numbers, summed in another order, are equal.
_SAME: Final = 1e-12
_STEPS: Final = 300


def is_certain(a: Sequence[float], b: Sequence[float]) -> bool:
    """Return whether chance has no part in the difference of pairs, as far as the runs say.

    The differences are equal, and either there are five of them, or neither side depends on the seed. One pair says nothing
    of chance.
    """
    if len(b) <= 1 or not _are_equal([_minus(other, one) for one, other in zip(a or [0.0] * len(b), b, strict=True)]):
        return False
    return len(b) >= ENOUGH_EQUAL or (_are_equal(a) and _are_equal(b))


def differences(a: Sequence[float], b: Sequence[float], times: float = 1.0) -> list[float]:
    """Return b - ``times`` * a for each pair; two infinite values do not differ, nor do sums of the same numbers."""
    return [_minus(other, one if times == 1.0 else times * one) for one, other in zip(a, b, strict=True)]


def _minus(value: float, other: float) -> float:
    return 0.0 if value == other or math.isclose(value, other, rel_tol=_SAME) else value - other


def _are_equal(values: Sequence[float]) -> bool:
    return all(value == values[0] or math.isclose(value, values[0], rel_tol=_SAME) for value in values)


def mean_of(values: Sequence[float]) -> float | None:
    """Return the mean; None if the values include plus and minus infinity."""
    if _are_equal(values):
        return values[0]
    infinite = {value for value in values if math.isinf(value)}
    return math.fsum(values) / len(values) if not infinite else infinite.pop() if len(infinite) == 1 else None


def t_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float] | None:
    """Return Student's interval of a mean; None for one value, for equal values, and where a value is infinite."""
    spread = _spread(values)
    if spread is None:
        return None
    mean, error = spread
    half = t_quantile((1 + level) / 2, len(values) - 1) * error
    return mean - half, mean + half


def _spread(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the mean and its standard error, if there is one."""
    count = len(values)
    if count < 2 or _are_equal(values) or not all(map(math.isfinite, values)):
        return None
    mean = math.fsum(values) / count
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
    return (mean, error) if error > _SAME * max(map(abs, values)) else None


def p_above(values: Sequence[float]) -> float:
    """Return the chance of a mean as far above 0 if the true mean were 0: one-sided.

    Without a spread, or where values are infinite, it is the chance that all signs are plus.
    """
    spread = _spread(values)
    if spread is None:
        return 0.5 ** len(values) if all(value > 0 for value in values) else 1.0
    mean, error = spread
    return 1.0 - t_cdf(mean / error, len(values) - 1)


def p_of_mean(values: Sequence[float]) -> float:
    """Return the chance of a mean as far from 0, on either side, if the true mean were 0."""
    return min(1.0, 2 * min(p_above(values), p_above([-value for value in values])))


def sign_flip_p(values: Sequence[float]) -> float:
    """Return the share of all ways to flip the signs that give a mean at least as far from 0: the exact two-sided p.

    It assumes nothing of the differences but that A and B could be exchanged. With n pairs it is 2 / 2**n at least.
    """
    held = np.asarray(values, dtype=np.float64)
    half = len(held) // 2
    first, last = _signed_sums(held[:half]), np.sort(_signed_sums(held[half:]))
    far = abs(float(held.sum())) - len(held) * _SAME * float(np.abs(held).max())
    above = len(last) - np.searchsorted(last, far - first, side="left")
    below = np.searchsorted(last, -far - first, side="right")
    return min(1.0, float((above + below).sum()) / 2.0 ** len(held))


def _signed_sums(values: Floats) -> Floats:
    """Return the sum of the values for each way to flip their signs."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return sums


def printed_p(values: Sequence[float]) -> float | None:
    """Return the p of differences: exact up to 20 pairs, then Student's; None for one pair and infinite differences."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return sign_flip_p(values) if len(values) <= MOST_FLIPPED else p_of_mean(values)


def holm(p: Mapping[str, float], alpha: float) -> frozenset[str]:
    """Return the names whose p is small enough although there are so many: the chance of one false name is ``alpha``."""
    found: set[str] = set()
    for at, (name, value) in enumerate(sorted(p.items(), key=lambda one: one[1])):
        if value > alpha / (len(p) - at):
            break
        found.add(name)
    return frozenset(found)


# Student's distribution, for whole degrees of freedom.


def t_cdf(value: float, freedom: int) -> float:
    """Return the chance that a Student variable is at most ``value``."""
    tail = _incomplete_beta(freedom / (freedom + value * value), freedom / 2, 0.5) / 2
    return tail if value < 0 else 1.0 - tail


@cache
def t_quantile(share: float, freedom: int) -> float:
    """Return the value that a Student variable exceeds with the chance 1 - ``share``; ``share`` is above a half and below 1."""
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < share:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_cdf(middle, freedom) < share else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(1.0 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    c, d = 1.0, 1.0 / ((1.0 - (a + b) * x / (a + 1)) or tiny)
    product = d
    for m in range(1, _STEPS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / ((1.0 + numerator * d) or tiny)
            c = (1.0 + numerator / c) or tiny
            product *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * product
