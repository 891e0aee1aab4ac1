"""Pods that arrive, run for a while and end: by a distribution of times, or from a trace."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import cos, exp, isfinite, pi
from random import Random
from typing import Final, Protocol, TypeAlias

from msgspec.structs import replace

from moorage.api.core import OwnerReference, Pod
from moorage.core.engine.facts import Seen
from moorage.errors import InputError
from moorage.laboratory.cluster_objects import ObjectLike, read_given
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.simulator.admission import admit
from moorage.simulator.simulation import SimulatedCluster
from moorage.simulator.trace import Arrival, another, next_copy

# -- distributions -----------------------------------------------------------------------------------------------------
# Distributions of times and sizes: lifetimes of pods, times to failure and to repair, delays, sizes of batches.
#
# Each is a frozen value; ``draw`` takes the generator, so equal seeds give equal runs. Times are in seconds.

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


# -- arrival times -----------------------------------------------------------------------------------------------------
# Arrival times of pods: random with a constant or a daily rate, regular, or given. Times are in seconds.


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


@dataclass(frozen=True, slots=True)
class PodKind:
    """Pods of one template.

    ``weight``    how often it is chosen, relative to the others
    ``lifetime``  seconds that a placed pod runs; None: for good
    """

    pod: ObjectLike
    weight: float = 1.0
    lifetime: DistributionLike | None = None


PodKindLike: TypeAlias = PodKind | ObjectLike


class PodArrivals:
    """Pods that arrive at random or regular times.

    ``times``     when; each time brings ``batch`` pods of one kind
    ``kinds``     what: templates as structs, dicts, YAML text or paths, or ``PodKind`` with weights and lifetimes
    ``lifetime``  for kinds without one of their own
    ``until_s``   no pods arrive after this time; None: arrivals have no end
    ``replaced``  a Job owns the pods: if one is lost or evicted, a new pod replaces it and runs from the start
    ``name``      the pods are named ``name-1``, ``name-2`` …; also the name of the generator
    """

    def __init__(
        self,
        times: ArrivalTimes,
        kinds: PodKindLike | Sequence[PodKindLike],
        *,
        lifetime: DistributionLike | None = None,
        batch: DistributionLike = 1,
        until_s: float | None = None,
        replaced: bool = True,
        name: str = "arrival",
    ) -> None:
        listed = list(kinds) if isinstance(kinds, Sequence) and not isinstance(kinds, str) else [kinds]
        if not listed:
            raise InputError("arrivals need at least one kind of pod")
        self._kinds = [one if isinstance(one, PodKind) else PodKind(one) for one in listed]
        self._sums = list(accumulate(one.weight for one in self._kinds))
        if any(one.weight < 0 for one in self._kinds) or not self._sums[-1] > 0:
            raise InputError("arrivals: weights are numbers from 0, and not all are 0")
        self._templates = [_template(one.pod, name if replaced else "") for one in self._kinds]
        common = None if lifetime is None else distribution_of(lifetime)
        self._lifetimes: list[Distribution | None] = [
            common if one.lifetime is None else distribution_of(one.lifetime) for one in self._kinds
        ]
        self._times, self._batch, self._until_s, self._name = times, distribution_of(batch), until_s, name
        #: How many pods arrived.
        self.count = 0

    def start(self, simulation: Simulation) -> None:
        self._random = simulation.random(self._name)
        self._simulation = simulation
        simulation.endless += self._until_s is None
        self._schedule(simulation.now_s)

    def _schedule(self, now_s: float) -> None:
        then = self._times.next_after(now_s, self._random)
        ends = then is None or (self._until_s is not None and then > self._until_s)
        if then is not None and not ends:
            self._simulation.engine.at(then, self._arrive)
        elif self._until_s is None:
            self._simulation.endless -= 1

    def _arrive(self) -> None:
        random, engine = self._random, self._simulation.engine
        at = 0 if len(self._sums) == 1 else bisect_right(self._sums, random.random() * self._sums[-1])
        template, lifetime = self._templates[at], self._lifetimes[at]
        for _ in range(max(1, round(self._batch.draw(random)))):
            self.count += 1
            pod = another(template, f"{self._name}-{self.count}")
            if lifetime is not None:
                engine.durations[pod.metadata.uid] = lifetime.draw(random)
            engine.at(engine.now, Seen(pod))
        self._schedule(engine.now)


class TraceArrivals:
    """The arrivals of a trace, at their times and with their lifetimes. The trace is read as time passes.

    A pod that arrives again is another pod, with a number in its name.

    ``stay``     pods never end
    ``speed``    2.0: pods arrive twice as fast; lifetimes are unchanged
    ``repeat_s``  begin again every so many seconds, with new names; the arrivals must then be a sequence
    """

    def __init__(
        self, arrivals: Iterable[Arrival], *, stay: bool = False, speed: float = 1.0, repeat_s: float | None = None
    ) -> None:
        if not speed > 0 or (repeat_s is not None and not repeat_s > 0):
            raise InputError("a trace is replayed with a speed above 0, and repeated after a time above 0")
        if repeat_s is not None and not isinstance(arrivals, Sequence):
            raise InputError("only a sequence of arrivals can be repeated; this one can be read once")
        self._arrivals, self._stay, self._speed, self._repeat_s = arrivals, stay, speed, repeat_s
        self._round = 0
        #: The number of the last copy of a pod that arrived again, by the UID of the first.
        self._copies: dict[str, int] = {}
        #: The pod groups that are there.
        self._groups: set[str] = set()
        #: How many pods arrived.
        self.count = 0

    def start(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._began = simulation.now_s
        simulation.endless += self._repeat_s is not None
        self._left: Iterator[Arrival] = iter(self._arrivals)
        self._schedule_next()

    def _schedule_next(self) -> None:
        arrival = next(self._left, None)
        if arrival is None and self._repeat_s is not None:
            self._round += 1
            self._left = iter(self._arrivals)
            arrival = next(self._left, None)
        if arrival is None:
            return
        engine = self._simulation.engine
        offset = self._began + self._round * (self._repeat_s or 0.0)
        time_s = max(engine.now, offset + arrival.time_s / self._speed)
        engine.at(time_s, lambda: self._arrive(arrival))

    def _arrive(self, arrival: Arrival) -> None:
        engine, pod = self._simulation.engine, arrival.pod
        if self._round:
            pod = another(pod, f"{pod.name}-{self._round + 1}")
        if engine.knows(pod.metadata.uid):
            pod = next_copy(pod, _Known(engine), self._copies)
        if arrival.duration_s is not None and not self._stay:
            engine.durations[pod.metadata.uid] = arrival.duration_s
        self.count += 1
        if (group := arrival.group) is not None and not self._round and group.key not in self._groups:
            self._groups.add(group.key)
            engine.at(engine.now, Seen(group))
        engine.at(engine.now, Seen(pod))
        self._schedule_next()


@dataclass(frozen=True, slots=True)
class _Known(Container[str]):
    """The UIDs of the pods that a simulation has, or has a record of."""

    engine: SimulatedCluster

    def __contains__(self, uid: object) -> bool:
        return self.engine.knows(str(uid))


def _template(given: ObjectLike, owner: str) -> Pod:
    """Return a pod of this description as admission leaves it, owned by a Job if ``owner`` is not empty."""
    read = admit(read_given([given]))
    if len(read.pods) != 1:
        raise InputError(f"a kind of pod is one Pod; found {len(read.pods)}")
    pod = read.pods[0]
    if pod.spec.node_name:
        raise InputError(f"pod {pod.key} is on node {pod.spec.node_name}; a kind of pod has no node")
    if not owner or pod.metadata.owner_references:
        return pod
    job = OwnerReference(api_version="batch/v1", kind="Job", name=owner, uid=f"Job/{owner}", controller=True)
    return replace(pod, metadata=replace(pod.metadata, owner_references=(job,)))
