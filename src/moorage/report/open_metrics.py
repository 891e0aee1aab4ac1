"""A run in the OpenMetrics text format, with the simulated time as timestamps: for Prometheus (``promtool``) and Grafana.

Source  OpenMetrics 1.0.0: samples of one metric are together and in the order of time, and the text ends with ``# EOF``
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from moorage.basis.printable import one_line
from moorage.report.outcome import Run
from moorage.report.run_document import moments

__all__ = ["as_open_metrics"]

#: Upper bounds of the buckets of waits, in seconds: waits for an attempt, a backoff of up to 10 s, or the flush after 5 min.
_WAITS_S: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


def as_open_metrics(run: Run) -> str:
    """Return the document."""
    return "".join(f"{line}\n" for line in (*_lines(run), "# EOF"))


def _lines(run: Run) -> Iterator[str]:
    course = moments(run)
    end = max(run.ended_s, course[-1].at_s)
    yield from _head("moorage_run", "info", "The release whose rules applied, and the seed.")
    yield _sample("moorage_run_info", {"release": run.release, "seed": str(run.seed)}, 1, end)
    yield from _head("moorage_pending_pods", "gauge", "Pods that wait for a node.")
    yield from (_sample("moorage_pending_pods", {}, one.pending, one.at_s) for one in course)
    yield from _head("moorage_requested_ratio", "gauge", "Requested share of what the nodes offer.", "ratio")
    for resource in course[-1].shares:
        labels = {"resource": resource}
        yield from (_sample("moorage_requested_ratio", labels, one.shares[resource], one.at_s) for one in course)
    yield from _head("moorage_pods", "gauge", "Pods at the end of the run, by state.")
    for state, count in sorted(Counter(pod.state for pod in run.pods).items()):
        yield _sample("moorage_pods", {"state": state}, count, end)
    yield from _head("moorage_scheduling_attempts", "counter", "Attempts to schedule a pod.")
    yield _sample("moorage_scheduling_attempts_total", {}, run.attempts, end)
    yield from _waits([pod.placed_s - pod.arrived_s for pod in run.pods if pod.placed_s is not None], end)


def _waits(waits_s: Iterable[float], end: float) -> Iterator[str]:
    name = "moorage_pod_wait_seconds"
    yield from _head(name, "histogram", "Simulated time from the arrival of a pod to its place.", "seconds")
    counts, total = [0] * (len(_WAITS_S) + 1), 0.0
    for wait_s in waits_s:
        counts[bisect_left(_WAITS_S, wait_s)] += 1
        total += wait_s
    so_far = 0
    for bound, count in zip([*map(str, _WAITS_S), "+Inf"], counts, strict=True):
        so_far += count
        yield _sample(f"{name}_bucket", {"le": bound}, so_far, end)
    yield _sample(f"{name}_count", {}, so_far, end)
    yield _sample(f"{name}_sum", {}, total, end)


def _head(name: str, kind: str, text: str, unit: str = "") -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    if unit:
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {text}"


def _sample(name: str, labels: Mapping[str, str], value: float, at_s: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{'{' + shown + '}' if shown else ''} {_number(value)} {_number(at_s)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(round(value, 6))


def _escaped(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')
