"""The result of a sweep: a table with a row for each run, the columns of single runs, the summary, and failed runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from moorage.errors import InputError
from moorage.laboratory.frames import ColumnFrame, frame_of
from moorage.report.answer import Stopped
from moorage.sweeps.grid import Label, SweepGrid
from moorage.sweeps.jobs import FailedRun, StoredRun
from moorage.sweeps.summary import SweepGroup, baseline_of, summarise

__all__ = ["SweepResult"]


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
        return _series(self.all)

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
        return summarise(self.all, self.grid.digest, metrics or self.metrics, baseline_of(self.grid, against or self.against))

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


def _series(runs: Sequence[StoredRun]) -> ColumnFrame:
    with_series = [run for run in runs if run.series]
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
