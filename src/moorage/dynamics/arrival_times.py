"""Arrival times of pods: random with a constant or a daily rate, regular, or given. Times are in seconds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import cos, pi
from random import Random
from typing import Protocol

from moorage.dynamics.distributions import DAY, HOUR, WEEK
from moorage.errors import InputError

__all__ = ["ArrivalTimes", "AtTimes", "Diurnal", "Poisson", "Regular"]


class ArrivalTimes(Protocol):
    """A source of arrival times. ``next_after`` returns the first one after a time; None if there are no more."""

    def next_after(self, now_s: float, random: Random) -> float | None: ...


def _check_rate(per_hour: float) -> None:
    if not 0 < per_hour < float("inf"):
        raise InputError(f"per_hour: {per_hour!r} is not a number above 0")


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals at a constant mean rate (a Poisson process)."""

    per_hour: float

    def __post_init__(self) -> None:
        _check_rate(self.per_hour)

    def next_after(self, now_s: float, random: Random) -> float | None:
        return now_s + random.expovariate(1.0) * HOUR / self.per_hour


@dataclass(frozen=True, slots=True)
class Diurnal:
    """Arrivals at a rate that changes over the day and, if ``weekend`` is not 1, over the week.

    The rate is ``per_hour · (1 + amplitude · cos(2π (hour - peak_hour) / 24))``; on the sixth and seventh day,
    ``weekend`` times that. ``per_hour`` is the mean rate of a weekday. Time 0 is midnight before the first day.
    """

    per_hour: float
    amplitude: float = 0.5
    peak_hour: float = 14.0
    weekend: float = 1.0

    def __post_init__(self) -> None:
        _check_rate(self.per_hour)
        if not 0 <= self.amplitude <= 1:
            raise InputError(f"amplitude: {self.amplitude!r} is not between 0 and 1")
        if not 0 <= self.weekend <= 1:
            raise InputError(f"weekend: {self.weekend!r} is not between 0 and 1")

    def rate(self, time_s: float) -> float:
        """Return the arrivals per hour expected at a time."""
        wave = 1.0 + self.amplitude * cos(2 * pi * (time_s / HOUR - self.peak_hour) / 24)
        return self.per_hour * wave * (self.weekend if time_s % WEEK >= 5 * DAY else 1.0)

    def next_after(self, now_s: float, random: Random) -> float | None:
        highest = self.per_hour * (1.0 + self.amplitude)
        while True:  # thinning: candidates at the highest rate, kept with the probability of the present rate
            now_s += random.expovariate(1.0) * HOUR / highest
            if random.random() * highest <= self.rate(now_s):
                return now_s


@dataclass(frozen=True, slots=True)
class Regular:
    """One arrival per period, in seconds."""

    every_s: float

    def __post_init__(self) -> None:
        if not self.every_s > 0:
            raise InputError(f"every_s: {self.every_s!r} is not a number above 0")

    def next_after(self, now_s: float, random: Random) -> float | None:
        return now_s + self.every_s


@dataclass(frozen=True, slots=True)
class AtTimes:
    """Arrivals at given times, in increasing order. Equal times give one arrival: use a batch for several pods."""

    times: Sequence[float] = field(repr=False)

    def __post_init__(self) -> None:
        if any(later < earlier for earlier, later in zip(self.times, self.times[1:], strict=False)):
            raise InputError("times: the times of arrivals must increase")

    def next_after(self, now_s: float, random: Random) -> float | None:
        at = bisect_right(self.times, now_s)
        return None if at == len(self.times) else float(self.times[at])
