"""The result of a sweep: a table with a row for each run, the columns of single runs, the summary, and failed runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from string import ascii_uppercase
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from moorage.basis.printable import close_to, counted, one_line
from moorage.errors import InputError
from moorage.laboratory.compare.paired_metrics import compare_pairs
from moorage.laboratory.frames import ColumnFrame, frame_of
from moorage.laboratory.sweeps.grid import SEED, Label, SweepGrid, version
from moorage.laboratory.sweeps.jobs import FailedRun, StoredRun
from moorage.report.answer import Stopped, plain, stopped_text
from moorage.report.comparison import interval_text, shown_p
from moorage.report.gates import ONE_RUN, MetricComparison, amount_text, difference_text, kind_of, title_of
from moorage.report.run_document import API_VERSION
from moorage.report.run_values import json_number
from moorage.report.style import are_tables_fitted, columns, item, lines_of, text_width

# The summary of a sweep: each metric over the seeds of a point, and its difference from a baseline, paired by seed.
#
# The statistics are those of ``moorage compare``: Student's intervals, and the exact test of the signs.


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
    runs: Sequence[StoredRun], metrics: Sequence[str] = (), baseline: SweepBaseline | None = None
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
        close, some = close_to(unknown[0], known), ", ".join(sorted(known))
        raise InputError(f"{unknown[0]}: no run has this metric{close}; runs have {some}")
    return [
        SweepGroup(_without_seed(held[0]), _group(held, _compared_with(held[0], groups, baseline), names))
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


def _group(held: Sequence[StoredRun], others: Sequence[StoredRun], names: Sequence[str]) -> dict[str, MetricSummary]:
    found = {}
    for name in names:
        values = {run.labels.get(SEED, at): run.metrics[name] for at, run in enumerate(held) if name in run.metrics}
        before = {run.labels.get(SEED, at): run.metrics[name] for at, run in enumerate(others) if name in run.metrics}
        if values:
            numbers = list(values.values())
            alone = compare_pairs(name, (), numbers)
            pairs = [seed for seed in values if seed in before]
            difference = compare_pairs(name, [before[s] for s in pairs], [values[s] for s in pairs]) if pairs else None
            found[name] = MetricSummary(
                seeds=len(numbers),
                mean=alone.b,
                deviation=statistics.stdev(numbers) if len(numbers) > 1 and all(map(math.isfinite, numbers)) else None,
                interval=alone.interval_of_b,
                least=min(numbers),
                most=max(numbers),
                difference=difference,
            )
    return found


@dataclass(frozen=True)
class SweepResult:
    """The runs in the order of the grid. ``made`` were run now; the others were in the store; ``stopped`` if some were left.

    The frames give NumPy columns, and Arrow's C stream to pandas and polars.
    """

    grid: SweepGrid
    all: tuple[StoredRun, ...]
    failed: tuple[FailedRun, ...] = ()
    made: int = 0
    metrics: tuple[str, ...] = ()
    against: str | None = None
    stopped: Stopped | None = None

    def __len__(self) -> int:
        return len(self.all)

    @cached_property
    def runs(self) -> ColumnFrame:
        """A row for each run: its values of the axes, and its numbers; NaN where a run does not have one."""
        axes = list(self.all[0].labels) if self.all else []
        names = list(dict.fromkeys(name for run in self.all for name in run.metrics))
        rows = [
            (*(run.labels[axis] for axis in axes), *(run.metrics.get(name, float("nan")) for name in names)) for run in self.all
        ]
        return frame_of([*axes, *names], rows)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of ``runs``."""
        return self.runs.columns()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.runs.__arrow_c_stream__(requested_schema)

    @cached_property
    def series(self) -> ColumnFrame:
        """The columns of all runs that have any, concatenated, with the values of the axes as first columns."""
        with_series = [run for run in self.all if run.series]
        names = list(dict.fromkeys(name for run in with_series for name in run.series))
        counts = [len(next(iter(run.series.values()))) for run in with_series]
        columns: dict[str, npt.NDArray[Any]] = {}
        for axis in with_series[0].labels if with_series else ():
            columns[axis] = np.repeat(frame_of([axis], [[run.labels[axis]] for run in with_series])[axis], counts)
        for name in names:
            parts = [
                run.series[name] if name in run.series else np.full(count, np.nan)
                for run, count in zip(with_series, counts, strict=True)
            ]
            columns[name] = np.concatenate(parts)
        return ColumnFrame(columns)

    def select(self, **labels: Label) -> SweepResult:
        """Return the runs with these values, by axis.

        Raises  InputError for an axis that the grid does not have
        """
        known = [axis.name for axis in self.grid.axes]
        if unknown := [name for name in labels if name not in known]:
            raise InputError(f"{unknown[0]}: no such axis; the axes are {', '.join(known)}")
        kept = tuple(run for run in self.all if all(run.labels[name] == label for name, label in labels.items()))
        return replace(self, all=kept)

    def groups(self, metrics: Sequence[str] = (), against: str | None = None) -> list[SweepGroup]:
        """Return the summary of the runs that differ in their seed alone, and differences from a baseline, paired by seed.

        ``metrics``  empty: those of the sweep
        ``against``  ``AXIS=VALUE``; None: what the grid says, or else the first value of the first axis that has several

        Raises  InputError for a baseline that is not in the grid
        """
        return summarise(self.all, metrics or self.metrics, baseline_of(self.grid, against or self.against))

    def summary(self, metrics: Sequence[str] = (), against: str | None = None) -> ColumnFrame:
        """Return ``groups`` as a table: a row for each group and metric."""
        axes = [axis.name for axis in self.grid.axes if axis.name != "seed"]
        names = (*axes, "metric", "seeds", "mean", "deviation", "low", "high", "difference", "difference_low",
                 "difference_high", "exact", "p")  # fmt: skip
        return frame_of(names, _summary_rows(self.groups(metrics, against), axes))


def _summary_rows(groups: Sequence[SweepGroup], axes: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for group in groups:
        for name, one in group.metrics.items():
            low, high = one.interval or (None, None)
            change = one.difference
            ends = (None, None) if change is None or change.interval is None else change.interval
            against = (None, None, None) if change is None else (change.difference, change.exact, change.p)
            yield (
                *(group.labels[axis] for axis in axes), name, one.seeds, one.mean, one.deviation, low, high,
                against[0], *ends, *against[1:],
            )  # fmt: skip


# -- report ------------------------------------------------------------------------------------------------------------

#: How many failed runs are listed.
_LISTED: Final = 10
#: Longer names of axes are letters in tables that would be too wide.
_SHORT: Final = 8
_TIMES: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"))


def headline_of(found: SweepResult) -> str:
    """Return the first line: the number of runs, how many came from the store, and how many failed."""
    seeds = next((len(axis.values) for axis in found.grid.axes if axis.name == SEED), 1)
    points = counted(len(found.grid) // seeds, "point")
    stored = len(found) - found.made
    made = f"{found.made} made now, {stored} from the store" if stored else "all made now" if found.made else "none to make"
    lost = f", {len(found.failed)} failed" if found.failed else ""
    runs = counted(len(found), "run") if found.stopped is None else f"{len(found)} of {counted(len(found.grid), 'run')}"
    return f"{runs}: {points}, {counted(seeds, 'seed')} each; {made}{lost}."


def sweep_text(found: SweepResult) -> str:
    """Return a table for each metric: the points, their means, and the differences from the baseline."""
    baseline = baseline_of(found.grid, found.against)
    groups = found.groups()
    names = list(dict.fromkeys(name for group in groups for name in group.metrics))
    parts = [headline_of(found)]
    if found.stopped is not None:
        parts[0] += "\n" + item(stopped_text(found.stopped))
    tables = {name: _table(name, groups, found, baseline) for name in names}
    lines = (line for table in tables.values() for line in table.splitlines())
    if are_tables_fitted() and any(len(line) > text_width() for line in lines):
        tables = {name: _table(name, groups, found, baseline, is_short=True) for name in names}
        parts.append("\n".join(_legend(found, baseline)))
    parts += [f"{title_of(name)}\n{table}" for name, table in tables.items()]
    if found.failed:
        parts.append("\n".join(_failures(found.failed)))
    return "\n\n".join(parts) + "\n"


def _axes(found: SweepResult) -> dict[str, str]:
    """Return the axes that vary, each with a short name."""
    axes = [axis.name for axis in found.grid.axes if axis.name != SEED and axis.varies]
    letters = iter(ascii_uppercase)
    return {name: name if len(name) <= _SHORT else next(letters, name) for name in axes}


def _legend(found: SweepResult, baseline: SweepBaseline | None) -> Iterator[str]:
    """Yield what the short names of columns stand for."""
    for name, short in _axes(found).items():
        if name != short:
            yield one_line(f"  {short}  {name}")
    yield "  SD: deviation; *: from the least to the most"
    if baseline is not None:
        yield one_line(f"  CHANGE: against {baseline}")


def _table(
    name: str, groups: Sequence[SweepGroup], found: SweepResult, baseline: SweepBaseline | None, *, is_short: bool = False
) -> str:
    """Return the table of a metric, as wide as it needs; or a short one, with rounded amounts."""
    axes = _axes(found)
    header = [*(axes.values() if is_short else axes), "MEAN", "SD" if is_short else "DEVIATION", "95% INTERVAL"]
    if baseline is not None:
        header += ["CHANGE" if is_short else f"AGAINST {one_line(str(baseline))}", "95% INTERVAL", "P"]
    rows = []
    for group in groups:
        if name not in group.metrics:
            continue
        one = group.metrics[name]
        row = [*(str(group.labels[axis]) for axis in axes), *_amounts(name, one, _short_amount if is_short else amount_text)]
        if (change := one.difference) is not None:
            row += (
                [_short_amount(name, change.difference, signed=True), _short_ends(change)]
                if is_short
                else [difference_text(name, change.difference), interval_text(change)]
            )
            row.append(shown_p(change))
        elif baseline is not None:
            row += ["", "", ""]
        rows.append([cell.replace("seeds ", "*") for cell in row] if is_short else row)
    with nullcontext() if is_short else lines_of(None):
        table = columns(header, rows, right=(len(axes), len(axes) + 1, len(axes) + 3), gap=" " * (3 - is_short), indent=2)
    return "\n".join(f"  {line}".rstrip() for line in table.splitlines())


def _amounts(name: str, one: MetricSummary, shown: Callable[[str, float], str]) -> tuple[str, str, str]:
    low, high = one.interval or (one.least, one.most)
    if one.seeds == 1:
        return shown(name, one.mean), "", ONE_RUN
    ends = "" if low == high else f"{'' if one.interval else 'seeds '}{shown(name, low)} … {shown(name, high)}"
    return shown(name, one.mean), "" if one.deviation is None else shown(name, one.deviation), ends


def _short_ends(change: MetricComparison) -> str:
    """Return the interval of a difference, with rounded amounts."""
    if change.exact or change.runs == 1 or (change.interval is not None and change.may_be_zero):
        return interval_text(change)
    ends = change.interval or change.range_of
    return ("*" if change.interval is None else "") + " … ".join(_short_amount(change.name, end, signed=True) for end in ends)


def _short_amount(name: str, value: float | None, *, signed: bool = False) -> str:
    """Return an amount of a metric with few digits; long times in minutes, hours or days."""
    if value is None or kind_of(name).unit != "seconds" or not math.isfinite(value) or abs(value) < 60:
        return (difference_text if signed else amount_text)(name, None if value is None else float(f"{value:.4g}"))
    size, unit = next((size, unit) for size, unit in _TIMES if abs(value) >= size)
    number = value / size
    return f"{number:{'+' if signed else ''}{'.0f' if abs(number) >= 100 else '.3g'}}{unit}"


def _failures(failed: Sequence[FailedRun]) -> Iterator[str]:
    yield f"{counted(len(failed), 'run')} failed:"
    for one in failed[:_LISTED]:
        place = " ".join(f"{name}={label}" for name, label in one.labels.items())
        yield one_line(f"  ✗ {place}: {one.message}")
    if len(failed) > _LISTED:
        yield f"  and {len(failed) - _LISTED} more"


# -- the document --------------------------------------------------------------------------------------------------------


def sweep_document(found: SweepResult) -> dict[str, Any]:
    """Return the result as plain data; docs/reference/sweep.schema.json describes it."""
    baseline = baseline_of(found.grid, found.against)
    return {
        "apiVersion": API_VERSION,
        "kind": "Sweep",
        "version": version(),
        "digest": found.grid.digest,
        "summary": headline_of(found),
        **({} if found.stopped is None else {"stopped": plain(found.stopped)}),
        "axes": [{"name": axis.name, "values": [one.label for one in axis.values]} for axis in found.grid.axes],
        **({} if baseline is None else {"baseline": {"axis": baseline.axis, "value": baseline.label}}),
        "groups": [_report_group(group) for group in found.groups()],
        "runs": [
            {"key": run.key, "point": dict(run.labels), "metrics": {n: json_number(v) for n, v in run.metrics.items()}}
            for run in found.all
        ],
        "failed": [{"key": one.key, "point": dict(one.labels), "message": one.message} for one in found.failed],
    }


def _report_group(group: SweepGroup) -> dict[str, Any]:
    labels: dict[str, Label] = dict(group.labels)
    return {"point": labels, "metrics": {name: _metric(one) for name, one in group.metrics.items()}}


def _metric(one: MetricSummary) -> dict[str, Any]:
    return {
        "seeds": one.seeds,
        "mean": json_number(one.mean),
        "deviation": json_number(one.deviation),
        "interval": _pair(one.interval),
        "range": _pair((one.least, one.most)),
        **({} if one.difference is None else {"difference": _difference(one.difference)}),
    }


def _difference(change: MetricComparison) -> dict[str, Any]:
    return {
        "mean": json_number(change.difference),
        "interval": _pair(change.interval),
        "exact": change.exact,
        "n": change.runs,
        "p": json_number(change.p),
    }


def _pair(ends: tuple[float, float] | None) -> list[float | int | None] | None:
    return None if ends is None else [json_number(end) for end in ends]
