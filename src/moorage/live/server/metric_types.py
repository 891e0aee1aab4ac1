"""Counters, gauges and histograms for one thread, and a registry that exports them to prometheus-client.

Nothing takes a lock, because the loop's thread both counts and exports. An observation is kept as it is, and many are counted
into their buckets together. prometheus-client formats the output and adds the process metrics.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from moorage.api.releases.release import Spec, exponential

__all__ = ["CounterVec", "EarlierName", "Family", "Filter", "Gauge", "Histogram", "MetricRegistry", "Spec", "exponential"]

Labels = tuple[str, ...]
UNEXPECTED: Final = "unexpected"
#: The most values that a histogram keeps for a set of label values before it counts them.
_KEPT: Final = 512


class CounterVec:
    """A counter for each set of label values."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.values: dict[Labels, float] = {}
        self.reset()

    def inc(self, *labels: str, by: float = 1.0) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + by

    def reset(self) -> None:
        self.values = {} if self.spec.labels else {(): 0.0}

    def collect(self, expected: Filter, spec: Spec | None = None) -> Metric:
        spec = spec or self.spec
        family = CounterMetricFamily(spec.name, spec.text, labels=spec.labels)
        sums: dict[Labels, float] = {}
        for labels, value in self.values.items():
            kept = expected.labels(spec, labels)
            sums[kept] = sums.get(kept, 0.0) + value
        for labels in sorted(sums):
            family.add_metric(labels, sums[labels])
        return family


@dataclass(slots=True)
class Gauge:
    """Values that are read at each scrape: ``read`` yields label values and the number.

    ``counts``: export it as a counter, because the value only grows.
    """

    spec: Spec
    read: Callable[[], Iterable[tuple[Labels, float]]]
    counts: bool = False

    def reset(self) -> None:
        """Do nothing: the value is read again at each scrape."""

    def collect(self, expected: Filter, spec: Spec | None = None) -> Metric:
        spec = spec or self.spec
        kind = CounterMetricFamily if self.counts else GaugeMetricFamily
        family: CounterMetricFamily | GaugeMetricFamily = kind(spec.name, spec.text, labels=spec.labels)
        sums: dict[Labels, float] = {}
        for labels, value in self.read():
            kept = expected.labels(spec, labels)
            sums[kept] = sums.get(kept, 0.0) + value
        for labels in sorted(sums):
            family.add_metric(labels, sums[labels])
        return family


class _Buckets:
    __slots__ = ("counts", "total")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total = 0.0


class Histogram:
    """The number of values in each bucket, for each set of label values."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._bounds = spec.buckets
        self._children: dict[Labels, _Buckets] = {}
        #: Values that are not counted into the buckets yet.
        self._kept: dict[Labels, list[float]] = {}
        self.reset()

    def observe(self, value: float, *labels: str) -> None:
        kept = self._kept.get(labels) or self._list_of(labels)
        kept.append(value)
        if len(kept) >= _KEPT:
            self._count(labels, kept)

    def observe_all(self, values: Iterable[float], *labels: str) -> None:
        """Observe several values."""
        kept = self._list_of(labels)
        kept.extend(values)
        if len(kept) >= _KEPT:
            self._count(labels, kept)

    def reset(self) -> None:
        self._kept.clear()
        self._children = {} if self.spec.labels else {(): _Buckets(len(self.spec.buckets) + 1)}

    @property
    def children(self) -> Mapping[Labels, _Buckets]:
        """The buckets by label values, with every value counted."""
        for labels, kept in self._kept.items():
            if kept:
                self._count(labels, kept)
        return self._children

    def _list_of(self, labels: Labels) -> list[float]:
        return self._kept.setdefault(labels, [])

    def _count(self, labels: Labels, kept: list[float]) -> None:
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = _Buckets(len(self._bounds) + 1)
        child.total += sum(kept)
        kept.sort()
        counts, below = child.counts, 0
        for at, bound in enumerate(self._bounds):
            upto = bisect_right(kept, bound)
            counts[at] += upto - below
            below = upto
        counts[-1] += len(kept) - below
        kept.clear()

    def collect(self, expected: Filter, spec: Spec | None = None) -> Metric:
        spec = spec or self.spec
        family = HistogramMetricFamily(spec.name, spec.text, labels=spec.labels)
        merged: dict[Labels, _Buckets] = {}
        for labels, child in self.children.items():
            into = merged.setdefault(expected.labels(spec, labels), _Buckets(len(child.counts)))
            into.counts = [a + b for a, b in zip(into.counts, child.counts, strict=True)]
            into.total += child.total
        names = [*map(floatToGoString, self.spec.buckets), "+Inf"]
        for labels in sorted(merged):
            running, buckets = 0, []
            for name, count in zip(names, merged[labels].counts, strict=True):
                running += count
                buckets.append((name, float(running)))
            family.add_metric(labels, buckets, merged[labels].total)
        return family


@dataclass(frozen=True, slots=True)
class EarlierName:
    """The values of a metric under an earlier name, with that name's help and labels."""

    spec: Spec
    family: CounterVec | Gauge | Histogram

    def reset(self) -> None:
        """Do nothing: the metric itself is reset."""

    def collect(self, expected: Filter) -> Metric:
        return self.family.collect(expected, self.spec)


Family = CounterVec | EarlierName | Gauge | Histogram


@dataclass(frozen=True, slots=True)
class Filter:
    """Which metrics are shown: all but ``disabled``; labels listed in ``allowed`` are restricted to the given values.

    ``allowed``: (metric, label) → values; other values become "unexpected". ``hidden_too``: also metrics that the release hides
    because an earlier one deprecated them.
    """

    disabled: Collection[str] = ()
    allowed: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    hidden_too: bool = False

    def shows(self, spec: Spec) -> bool:
        is_hidden = spec.hidden and not (spec.deprecated and self.hidden_too)
        return not is_hidden and spec.name not in self.disabled

    def labels(self, spec: Spec, values: Labels) -> Labels:
        if not self.allowed:
            return values
        return tuple(
            value if value in self.allowed.get((spec.name, name), (value,)) else UNEXPECTED
            for name, value in zip(spec.labels, values, strict=True)
        )


class MetricRegistry(Collector):
    """All metrics of an endpoint, sorted by name."""

    def __init__(self, families: Iterable[Family] = (), shown: Filter | None = None) -> None:
        self._families = sorted(families, key=lambda family: family.spec.name)
        self._shown = shown or Filter()

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            if not self._shown.shows(family.spec):
                continue
            metric = family.collect(self._shown)
            if metric.samples:  # like Go's client, omit a metric without series
                yield metric

    def reset(self) -> None:
        """Set all metrics back to their initial values."""
        for family in self._families:
            family.reset()

    def with_others(self, *others: Collector) -> CollectorRegistry:
        """Return a prometheus-client registry with this collector and others."""
        registry = CollectorRegistry(auto_describe=False)
        for one in (self, *others):
            registry.register(one)
        return registry
