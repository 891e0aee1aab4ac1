"""Distributions of times and sizes: lifetimes of pods, times to failure and to repair, delays, sizes of batches.

Each is a frozen value; ``draw`` takes the generator, so equal seeds give equal runs. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, isfinite
from random import Random
from typing import Final, Protocol, TypeAlias

from moorage.errors import InputError

__all__ = [
    "DAY", "HOUR", "MINUTE", "WEEK", "Distribution", "DistributionLike", "Empirical", "Exponential", "Fixed", "LogNormal",
    "UniformBetween", "Weibull", "distribution_of",
]  # fmt: skip

MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY


class Distribution(Protocol):
    """A distribution of numbers from 0."""

    def draw(self, random: Random) -> float: ...


def _check(name: str, value: float, *, least: float = 0.0) -> None:
    if not (isfinite(value) and value >= least):
        raise InputError(f"{name}: {value!r} is not a number from {least:g}")


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same number each time."""

    value: float

    def __post_init__(self) -> None:
        _check("value", self.value)

    def draw(self, random: Random) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class UniformBetween:
    """Any number between two, all equally likely."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check("low", self.low)
        _check("high", self.high, least=self.low)

    def draw(self, random: Random) -> float:
        return self.low + (self.high - self.low) * random.random()


@dataclass(frozen=True, slots=True)
class Exponential:
    """Times between independent events, with this mean."""

    mean: float

    def __post_init__(self) -> None:
        _check("mean", self.mean)

    def draw(self, random: Random) -> float:
        return random.expovariate(1.0) * self.mean


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A distribution with a long tail: half of the values are below ``median``; ``sigma`` is the deviation of the logarithm."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        _check("median", self.median)
        _check("sigma", self.sigma)

    def draw(self, random: Random) -> float:
        return self.median * exp(random.gauss(0.0, self.sigma))


@dataclass(frozen=True, slots=True)
class Weibull:
    """Times to failure: with ``shape`` below 1 failures become rarer with age, above 1 more frequent."""

    scale: float
    shape: float

    def __post_init__(self) -> None:
        _check("scale", self.scale)
        _check("shape", self.shape, least=1e-9)

    def draw(self, random: Random) -> float:
        return random.weibullvariate(self.scale, self.shape)


@dataclass(frozen=True, slots=True)
class Empirical:
    """One of the given values, such as the durations of a trace, all equally likely."""

    values: Sequence[float] = field(repr=False)

    def __post_init__(self) -> None:
        if not len(self.values):
            raise InputError("values: an empirical distribution needs at least one value")
        _check("values", float(min(self.values)))
        _check("values", float(max(self.values)))

    def draw(self, random: Random) -> float:
        return float(self.values[random.randrange(len(self.values))])


#: A number stands for ``Fixed``.
DistributionLike: TypeAlias = Distribution | float


def distribution_of(given: DistributionLike) -> Distribution:
    """Return a distribution: ``Fixed`` for a number, a distribution unchanged."""
    return Fixed(float(given)) if isinstance(given, int | float) else given
