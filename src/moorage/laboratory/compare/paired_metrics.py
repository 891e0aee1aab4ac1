"""The metrics of pairs of runs: means, mean differences, and how certain they are (``report/certainty.py``)."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.report.certainty import differences, is_certain, mean_of, printed_p, t_interval
from moorage.report.gates import MetricComparison
from moorage.report.run_values import MeasuredRun

#: The only metric that differs between equal runs.
SPEED = "decisionsPerSecond"


def paired_metrics(a: Sequence[MeasuredRun], b: Sequence[MeasuredRun], *, timing: bool = False) -> dict[str, MetricComparison]:
    """Return the metrics that all runs have, by name, in the order of the first run of B. Without runs of A, those of B."""
    runs = (*a, *b)
    names = [name for name in b[0].metrics if all(name in run.metrics for run in runs)]
    found = {name: compare_pairs(name, [run.metrics[name] for run in a], [run.metrics[name] for run in b]) for name in names}
    if timing:
        found[SPEED] = compare_pairs(SPEED, [run.speed for run in a], [run.speed for run in b])
    return found


def compare_pairs(name: str, a: Sequence[float], b: Sequence[float]) -> MetricComparison:
    """Compare the values of a metric, pair by pair; ``a`` may be empty."""
    of_a, of_b = tuple(a), tuple(b)
    mean = mean_of(of_b)
    assert mean is not None
    if not a:
        return MetricComparison(name, mean, exact=is_certain((), of_b), of_b=of_b)
    found = differences(of_a, of_b)
    return MetricComparison(
        name, mean, mean_of(of_a), mean_of(found), t_interval(found), is_certain(of_a, of_b), printed_p(found), of_a, of_b,
    )  # fmt: skip
