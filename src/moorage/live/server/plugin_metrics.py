"""Measure plugins: wrap every call of a profile to count it and to measure its duration.

A measured call costs two clock reads. A nested call (a what-if of preemption) counts as part of the outer one. The duration of
an extension point in an attempt is the sum of its plugins' calls; single calls are recorded in one attempt out of ten, as in
kube-scheduler.

An unwrapped profile has no overhead: simulations and benchmarks are not measured.

Source  kube-scheduler, framework/runtime/framework.go and instrumented_plugins.go
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from moorage.api.releases.metrics import Spec, exponential
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import Profile, Step
from moorage.framework.verdicts import Code, Hold, Reject, Skip, Wait
from moorage.state.pod_info import PodInfo

__all__ = [
    "SAMPLED", "CounterVec", "EarlierName", "Family", "Filter", "Gauge", "Histogram", "MetricRegistry", "Probe",
    "Spec", "exponential",
]  # fmt: skip


# Counters, gauges and histograms for one thread, and a registry that exports them to prometheus-client.
#
# Nothing takes a lock, because the loop's thread both counts and exports. An observation is kept as it is, and many are
# counted into their buckets together. prometheus-client formats the output and adds the process metrics.

Labels = tuple[str, ...]
Single = CounterMetricFamily | GaugeMetricFamily
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
        return _summed(CounterMetricFamily(spec.name, spec.text, labels=spec.labels), self.values.items(), expected, spec)


def _summed(family: Single, values: Iterable[tuple[Labels, float]], expected: Filter, spec: Spec) -> Single:
    """Add the values to a family; those of labels that are shown alike are summed."""
    sums: dict[Labels, float] = {}
    for labels, value in values:
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
        return _summed(kind(spec.name, spec.text, labels=spec.labels), self.read(), expected, spec)


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


#: The calls of one attempt out of this many are recorded one by one.
SAMPLED: Final = 10
#: Extension points by the names in metrics. PreBind and Bind run later and are measured by the loop.
_LABELS: Final = {
    "preEnqueue": "PreEnqueue", "preFilter": "PreFilter", "filter": "Filter", "postFilter": "PostFilter",
    "preScore": "PreScore", "score": "Score", "reserve": "Reserve", "permit": "Permit", "postBind": "PostBind",
}  # fmt: skip
_COUNTED: Final = frozenset(["PreFilter", "Filter", "PreScore", "Score"])
#: Points outside of an attempt: PostBind is observed call by call, PreEnqueue once per pod.
_POST_BIND: Final = "PostBind"
_PRE_ENQUEUE: Final = "PreEnqueue"
_POST_FILTER: Final = "PostFilter"
_SUCCESS: Final = Code.SUCCESS.value
_SKIP: Final = Code.SKIP.value
_ERROR: Final = Code.ERROR.value
_AFTER_DECISION: Final = ("reserve", "permit")
_PASSING: Final = frozenset([_SUCCESS, _SKIP])
_NOT_YET: Final = (0.0, _SUCCESS)


class Probe:
    """Measures the calls of all profiles. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float], points: Histogram, calls: Histogram, evaluations: CounterVec) -> None:
        self._clock, self._points, self._calls = clock, points, calls
        self._evaluations = evaluations
        self._inside = False
        self._sampled = False
        self._attempts = 0
        #: Extension point → seconds and status in the current attempt.
        self._took: dict[str, tuple[float, str]] = {}
        #: Profile → number of its PreEnqueue plugins; and for the pod in PreEnqueue: seconds, and how many plugins admitted it.
        self._gates: dict[str, int] = {}
        self._gate_s, self._passed_gates = 0.0, 0
        #: Profile → the points after a decision that each placed pod passes.
        self._passed: dict[str, tuple[str, ...]] = {}

    def watched(self, profile: Profile) -> Profile:
        """Return a profile that behaves the same and measures its plugins."""
        self._gates[profile.scheduler_name] = len(profile.at("preEnqueue"))
        self._passed[profile.scheduler_name] = tuple(_LABELS[point] for point in _AFTER_DECISION if profile.at(point))
        steps = {
            point: tuple(self._measured(step, _LABELS[point], profile.scheduler_name) for step in in_point)
            if point in _LABELS
            else in_point
            for point, in_point in profile.steps.items()
        }
        return replace(profile, steps=steps)

    def began(self) -> None:
        """Start an attempt and discard measurements from outside of attempts."""
        self._took.clear()
        self._sampled = self._attempts % SAMPLED == 0

    def ended(self, profile: str, *, placed: bool = False) -> None:
        """End an attempt and observe the duration of each extension point.

        Plugins that skipped the pod in PreFilter are not called from Reserve on. A point where all did counts with 0 seconds.
        """
        self._attempts += 1
        if placed:
            for point in self._passed.get(profile, ()):
                self._took.setdefault(point, _NOT_YET)
        for point, (seconds, status) in self._took.items():
            self._points.observe(seconds, point, status, profile)
        self._took.clear()

    def placed(self, profile: str, count: int) -> None:
        """End attempts in which no plugin had work after the decision."""
        self.ended(profile, placed=True)
        self._attempts += count - 1
        for point in self._passed.get(profile, ()):
            self._points.observe_all([0.0] * (count - 1), point, _SUCCESS, profile)

    def _measured(self, step: Step, point: str, profile: str) -> Step:
        return self._measured_gate(step, profile) if point == _PRE_ENQUEUE else self._watched(step, point, profile)

    def _measured_gate(self, step: Step, profile: str) -> Step:
        """Measure a PreEnqueue plugin in few steps: every pod passes all of them."""
        call, clock, name = step.call, self._clock, step.name

        def measured(pod: PodInfo) -> Any:
            if self._inside:
                return call(pod)
            self._inside = True
            status = _ERROR
            begun = clock()
            try:
                answer = call(pod)
                status = _SUCCESS if answer is None else _status(answer)
                return answer
            finally:
                seconds = clock() - begun
                self._inside = False
                self._gate_s += seconds
                self._passed_gates += 1
                if status != _SUCCESS or self._passed_gates >= self._gates[profile]:
                    self._end_gates(profile)
                if self._sampled:
                    self._calls.observe(seconds, name, _PRE_ENQUEUE, status)

        return replace(step, call=measured)

    def _watched(self, step: Step, point: str, profile: str) -> Step:
        call, clock, name = step.call, self._clock, step.name
        asked, counted, drains = (name, point, profile), point in _COUNTED, point == "Filter"
        if counted:
            self._evaluations.inc(*asked, by=0.0)

        def counting(*args: Any) -> Any:
            answer = call(*args)
            if counted and not isinstance(answer, Skip):
                self._evaluations.inc(*asked)
            return answer

        def measured(*args: Any) -> Any:
            if self._inside:
                return counting(*args)
            self._inside = True
            answer: Any = None
            status = _ERROR
            begun = clock()
            try:
                answer = counting(*args)
                if drains and not isinstance(answer, list):
                    answer = list(answer or ())  # a generator runs only when it is consumed
                status = _SUCCESS if drains or answer is None else _status(answer)
            finally:
                seconds = clock() - begun
                self._inside = False
                self._note(point, profile, seconds, status)
                if self._sampled:
                    self._calls.observe(seconds, name, point, _verdict(answer) if drains and status == _SUCCESS else status)
            return answer

        return replace(step, call=measured)

    def _note(self, point: str, profile: str, seconds: float, status: str) -> None:
        if point == _POST_BIND:
            self._points.observe(seconds, point, status, profile)
        else:
            so_far, before = self._took.get(point, _NOT_YET)
            # A success does not change the point's status, except in PostFilter, where it replaces an earlier failure.
            new = before if status in _PASSING and point != _POST_FILTER else status
            self._took[point] = (so_far + seconds, new)

    def _end_gates(self, profile: str) -> None:
        """Observe PreEnqueue once a plugin gated the pod or all have admitted it; kube-scheduler records both as a success."""
        self._points.observe(self._gate_s, _PRE_ENQUEUE, _SUCCESS, profile)
        self._gate_s, self._passed_gates = 0.0, 0


def _status(answer: Any) -> str:
    """Return the status of an answer other than None."""
    if isinstance(answer, (Hold, PostFilterResult)):
        return answer.code.value
    if isinstance(answer, Skip):
        return _SKIP
    return Code.WAIT.value if isinstance(answer, Wait) else _SUCCESS


def _verdict(rejects: list[Reject]) -> str:
    """Return the most severe status that a Filter plugin returned for any node."""
    hit = [reject for reject in rejects if isinstance(reject, Reject) and reject.rows.any()]
    if not hit:
        return _SUCCESS
    if any(reject.error for reject in hit):
        return Code.ERROR.value
    final = any(reject.unresolvable is True for reject in hit)
    return Code.UNRESOLVABLE.value if final else Code.UNSCHEDULABLE.value
