"""The metrics of pairs of runs: means, mean differences, and how certain they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moorage.report.gates import MeasuredRun, MetricComparison

# -- intervals ---------------------------------------------------------------------------------------------------------
# How certain the mean of paired differences is: a bootstrap interval, and an exact test of the signs.
#
# Pure functions. The draws come from a generator that the caller seeds, so equal input gives equal intervals.

Floats = npt.NDArray[np.float64]
BootstrapRows = npt.NDArray[np.intp]

#: Bootstrap draws.
DRAWS: Final = 10_000
#: Minimum number of pairs for an interval.
LEAST_PAIRS: Final = 5
#: Maximum number of pairs for the exact test, which tries all ways to flip their signs.
MOST_FLIPPED: Final = 12
_NORMAL: Final = NormalDist()
#: Relative difference below which two means of the same numbers, summed in another order, are equal.
_SAME: Final = 1e-12


class MeanDifference(NamedTuple):
    """The mean of differences. ``exact``: every pair has the same difference, so the mean does not depend on chance.

    ``value`` is None if the differences include plus and minus infinity; ``interval`` is None with fewer than five pairs, and
    where it would be infinite. ``p``: the chance of a mean as far from 0 if both sides were the same.
    """

    value: float | None
    exact: bool
    interval: tuple[float, float] | None = None
    p: float | None = None


def draw_rows(pairs: int, seed: int, draws: int = DRAWS) -> BootstrapRows:
    """Return the rows of each bootstrap draw, with shape (draws, pairs). One set serves all metrics."""
    return np.random.default_rng(seed).integers(0, max(pairs, 1), size=(draws, pairs), dtype=np.intp)


def mean_difference(differences: Sequence[float], rows: BootstrapRows) -> MeanDifference:
    """Return the mean of paired differences with its interval and p-value; ``rows`` come from ``draw_rows``."""
    values = np.asarray(differences, dtype=np.float64)
    exact = bool((values == values[0]).all())
    if not np.isfinite(values).all():
        signs = set(np.sign(values[np.isinf(values)]).tolist())
        return MeanDifference(float(values[0]) if exact else signs.pop() * math.inf if len(signs) == 1 else None, exact)
    mean = float(values[0]) if exact else float(values.mean())
    p = sign_flip_p(values) if len(values) <= MOST_FLIPPED else None
    if exact or len(values) < LEAST_PAIRS:
        return MeanDifference(mean, exact, p=p)
    return MeanDifference(mean, exact, bca_interval(values, rows), p)


def bca_interval(values: Floats, rows: BootstrapRows, level: float = 0.95) -> tuple[float, float]:
    """Return the bias-corrected and accelerated bootstrap interval of a mean (Efron 1987)."""
    means = np.sort(values[rows].mean(axis=1))
    mean = float(values.mean())
    below, upto = np.searchsorted(means, (mean - _slack(values), mean + _slack(values)), side="left")
    bias = _quantile_of((int(below) + int(upto)) / (2 * len(means)), len(means))
    speed = _acceleration(values)
    low, high = (_level(bias, speed, at) for at in ((1 - level) / 2, (1 + level) / 2))
    return float(np.quantile(means, low)), float(np.quantile(means, high))


def _slack(values: Floats) -> float:
    return _SAME * float(np.abs(values).max())


def _quantile_of(share: float, draws: int) -> float:
    """Return the normal quantile of a share of draws, which is kept strictly between 0 and 1."""
    least = 0.5 / draws
    return _NORMAL.inv_cdf(min(max(share, least), 1 - least))


def _acceleration(values: Floats) -> float:
    """Return the skewness of the means with one value left out, over six."""
    centred = values - values.mean()  # leaving a value out moves the mean away from that value
    squares = float((centred**2).sum())
    return float((centred**3).sum()) / (6 * squares**1.5) if squares else 0.0


def _level(bias: float, speed: float, level: float) -> float:
    step = bias + _NORMAL.inv_cdf(level)
    return _NORMAL.cdf(bias + step / (1 - speed * step))


def sign_flip_p(values: Sequence[float] | Floats) -> float:
    """Return the share of all ways to flip the signs that give a mean at least as far from 0: the exact two-sided p."""
    held = np.asarray(values, dtype=np.float64)
    signs = 1 - 2 * ((np.arange(2 ** len(held))[:, None] >> np.arange(len(held))) & 1)
    sums = np.abs(signs @ held)
    observed = abs(float(held.sum()))
    return float((sums >= observed - len(held) * _slack(held)).mean())


#: The only metric that differs between equal runs.
SPEED = "decisionsPerSecond"


class Draws:
    """The rows of bootstrap draws, made when they are first needed, from a digest as seed."""

    def __init__(self, digest: str) -> None:
        self._seed = int(digest[:16] or "0", 16)
        self._rows: dict[int, BootstrapRows] = {}

    def rows(self, pairs: int) -> BootstrapRows:
        """Return the rows of each draw; one set serves all metrics."""
        if pairs not in self._rows:
            self._rows[pairs] = draw_rows(pairs, self._seed)
        return self._rows[pairs]


def paired_metrics(
    a: Sequence[MeasuredRun], b: Sequence[MeasuredRun], draws: Draws, *, timing: bool = False
) -> dict[str, MetricComparison]:
    """Return the metrics that all runs have, by name, in the order of the first run of B. Without runs of A, those of B."""
    runs = (*a, *b)
    names = [name for name in b[0].metrics if all(name in run.metrics for run in runs)]
    found = {
        name: compare_pairs(name, [run.metrics[name] for run in a], [run.metrics[name] for run in b], draws) for name in names
    }
    if timing:
        found[SPEED] = compare_pairs(SPEED, [run.speed for run in a], [run.speed for run in b], draws)
    return found


def compare_pairs(name: str, a: Sequence[float], b: Sequence[float], draws: Draws) -> MetricComparison:
    """Compare the values of a metric, pair by pair; ``a`` may be empty."""
    of_b = mean_difference(b, draws.rows(len(b)))
    alone = MetricComparison(name, _mean(b), interval_of_b=of_b.interval, range_of_b=(min(b), max(b)))
    if not a:
        return alone
    differences = [_difference(one, other) for one, other in zip(a, b, strict=True)]
    found = mean_difference(differences, draws.rows(len(b)))
    return MetricComparison(
        name, alone.b, _mean(a), found.value, found.interval, found.exact, found.p, (min(differences), max(differences)),
        alone.interval_of_b, alone.range_of_b,
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    return values[0] if len(set(values)) == 1 else math.fsum(values) / len(values)


def _difference(a: float, b: float) -> float:
    """Return b - a; two infinite values do not differ, nor do sums of the same numbers in another order."""
    return 0.0 if a == b or math.isclose(a, b, rel_tol=1e-12) else b - a
