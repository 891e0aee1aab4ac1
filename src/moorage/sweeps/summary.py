"""The summary of a sweep: each metric over the seeds of a point, and its difference from a baseline, paired by seed.

The statistics are those of ``moorage compare``: BCa bootstrap intervals from five seeds on, and the exact test of the signs up
to twelve pairs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moorage.errors import InputError
from moorage.laboratory.paired_metrics import Draws, compare_pairs
from moorage.report.gates import MetricComparison
from moorage.sweeps.grid import SEED, Label, SweepGrid
from moorage.sweeps.jobs import StoredRun

__all__ = ["MetricSummary", "SweepBaseline", "SweepGroup", "baseline_of", "summarise"]


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """A metric over the seeds. ``difference`` is against the baseline; None for the baseline itself and without one.

    ``deviation``  the standard deviation of the sample; None with one seed, and where values are infinite
    """

    seeds: int
    mean: float
    deviation: float | None
    interval: tuple[float, float] | None
    least: float
    most: float
    difference: MetricComparison | None = None


@dataclass(frozen=True, slots=True)
class SweepGroup:
    """The runs that differ in their seed alone."""

    labels: Mapping[str, Label]
    metrics: Mapping[str, MetricSummary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SweepBaseline:
    """The value of an axis with which the other values of this axis are compared."""

    axis: str
    label: Label

    def __str__(self) -> str:
        return f"{self.axis}={self.label}"


def baseline_of(grid: SweepGrid, text: str | None) -> SweepBaseline | None:
    """Return the baseline that ``AXIS=VALUE`` names; without a text, the first value of the first axis that has several.

    Raises  InputError for an axis or a value that is not in the grid
    """
    if text is None:
        axis = next((axis for axis in grid.axes if axis.varies and axis.name != SEED), None)
        return None if axis is None else SweepBaseline(axis.name, axis.values[0].label)
    name, equals, label = text.partition("=")
    known = {axis.name: axis for axis in grid.axes if axis.name != SEED}
    if not equals or name not in known:
        raise InputError(f"{text}: the baseline is AXIS=VALUE; the axes are {', '.join(known) or 'none'}")
    labels = {str(value.label): value.label for value in known[name].values}
    if label not in labels:
        raise InputError(f"{text}: {name} has no value {label}; its values are {', '.join(labels)}")
    return SweepBaseline(name, labels[label])


def summarise(
    runs: Sequence[StoredRun], digest: str, metrics: Sequence[str] = (), baseline: SweepBaseline | None = None
) -> list[SweepGroup]:
    """Return the groups of runs in order. ``metrics``: those to summarise, in this order; empty: all that every run has.

    Raises  InputError for a metric that no run has
    """
    groups: dict[tuple[Label, ...], list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(_place(run), []).append(run)
    names = metrics or _common(runs)
    known = {name for run in runs for name in run.metrics}
    if runs and (unknown := [name for name in names if name not in known]):
        raise InputError(f"{unknown[0]}: no run has this metric; runs have {', '.join(sorted(known))}")
    draws = Draws(digest)
    return [
        SweepGroup(_without_seed(held[0]), _group(held, _compared_with(held[0], groups, baseline), names, draws))
        for held in groups.values()
    ]


def _place(run: StoredRun, **changed: Label) -> tuple[Label, ...]:
    return tuple({**_without_seed(run), **changed}.values())


def _without_seed(run: StoredRun) -> dict[str, Label]:
    return {name: label for name, label in run.labels.items() if name != SEED}


def _common(runs: Sequence[StoredRun]) -> list[str]:
    return [name for name in runs[0].metrics if all(name in run.metrics for run in runs)] if runs else []


def _compared_with(
    run: StoredRun, groups: Mapping[tuple[Label, ...], list[StoredRun]], baseline: SweepBaseline | None
) -> list[StoredRun]:
    if baseline is None or run.labels[baseline.axis] == baseline.label:
        return []
    return groups.get(_place(run, **{baseline.axis: baseline.label}), [])


def _group(
    held: Sequence[StoredRun], others: Sequence[StoredRun], names: Sequence[str], draws: Draws
) -> dict[str, MetricSummary]:
    found = {}
    for name in names:
        values = {run.labels.get(SEED, at): run.metrics[name] for at, run in enumerate(held) if name in run.metrics}
        before = {run.labels.get(SEED, at): run.metrics[name] for at, run in enumerate(others) if name in run.metrics}
        if values:
            found[name] = _summary(name, values, before, draws)
    return found


def _summary(name: str, values: Mapping[Label, float], before: Mapping[Label, float], draws: Draws) -> MetricSummary:
    numbers = list(values.values())
    alone = compare_pairs(name, (), numbers, draws)
    pairs = [seed for seed in values if seed in before]
    difference = compare_pairs(name, [before[s] for s in pairs], [values[s] for s in pairs], draws) if pairs else None
    return MetricSummary(
        seeds=len(numbers),
        mean=alone.b,
        deviation=statistics.stdev(numbers) if len(numbers) > 1 and all(map(math.isfinite, numbers)) else None,
        interval=alone.interval_of_b,
        least=min(numbers),
        most=max(numbers),
        difference=difference,
    )
