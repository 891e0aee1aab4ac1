"""The metrics of pairs of runs: means, mean differences, and how certain they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from moorage.laboratory.intervals import BootstrapRows, draw_rows, mean_difference
from moorage.report.gates import MetricComparison
from moorage.report.run_values import MeasuredRun

__all__ = ["SPEED", "Draws", "compare_pairs", "paired_metrics"]

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
