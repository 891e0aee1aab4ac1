"""The beta distribution, which describes a utilization between 0 and 1."""

from __future__ import annotations

from math import exp, lgamma, log
from typing import Final, NamedTuple

_STEPS: Final = 300
_TINY: Final = 1e-300
_PRECISION: Final = 1e-15


class Beta(NamedTuple):
    """A beta distribution by its two shape parameters, both greater than 0."""

    alpha: float
    beta: float

    @classmethod
    def of_moments(cls, mean: float, second: float) -> Beta | None:
        """Return the distribution with this mean and this mean of squares; None if there is none."""
        variance = second - mean * mean
        if not 0 <= mean <= 1 or variance < 0 or variance >= mean * (1 - mean):
            return None
        total = max(mean * (1 - mean) / variance - 1, 5e-324) if variance else float("inf")
        return cls(mean * total, (1 - mean) * total)

    def below(self, x: float) -> float:
        """Return the probability of a value up to ``x``; 0 where it cannot be computed."""
        found = regularized_incomplete(x, self.alpha, self.beta)
        return found if found is not None and 0 <= found <= 1 else 0.0


def regularized_incomplete(x: float, a: float, b: float) -> float | None:
    """Return the regularized incomplete beta function; None outside its domain. Computed by Lentz's continued fraction."""
    if a <= 0 or b <= 0 or not 0 <= x <= 1:
        return None
    if x in {0.0, 1.0}:
        return float(x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    found = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = 1 + term / c
            c = c if abs(c) > _TINY else _TINY
            found *= d * c
        if abs(d * c - 1) < _PRECISION:
            break
    return found


def probability_below(mean: float, deviation: float, limit: float) -> tuple[float, Beta | None]:
    """Return how likely a utilization with these figures is at most ``limit``, and the distribution if there is one."""
    if mean == 0 or (deviation == 0 and mean <= limit):
        return 1.0, None
    if deviation == 0:
        return 0.0, None
    found = Beta.of_moments(mean, deviation * deviation + mean * mean)
    return (0.0, None) if found is None else (found.below(limit), found)
