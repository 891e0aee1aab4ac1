"""A run for other programs: as Chrome trace events, for Perfetto, and in the OpenMetrics text format, for Prometheus.

Source  OpenMetrics 1.0.0: samples of one metric are together and in the order of time, and the text ends with ``# EOF``
"""

from __future__ import annotations

import heapq
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from moorage.basis.printable import escape_json, one_line
from moorage.report.outcome import PodOutcome, Run
from moorage.report.run_document import moments

# A run as Chrome trace events, which Perfetto and chrome://tracing show: pods on their nodes over simulated time.
#
# Each node is a process. Slices of one lane must not overlap, so each process has as many lanes as it needs, and a pod takes
# the first free one. The process "queue" has the waits of pods, and the counters.

_QUEUE: Final = 1
_FIRST_NODE: Final = 2
#: Slices that last until the end of the run are this much longer, in seconds, so that all slices have a length.
_AFTER_S: Final = 1.0
_Event = dict[str, Any]


class _Slice(NamedTuple):
    """A pod in a process from one time to another."""

    start_s: float
    end_s: float
    process: int
    pod: PodOutcome


def as_trace(run: Run) -> str:
    """Return the document. Times are microseconds of simulated time."""
    document = {
        "traceEvents": list(trace_events(run)),
        "displayTimeUnit": "ms",
        "otherData": {"release": run.release, "seed": run.seed, "endedSeconds": run.ended_s},
    }
    return escape_json(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"


def trace_events(run: Run) -> Iterator[_Event]:
    """Yield the events: names, slices of pods, arrows from victims to preemptors, counters."""
    end_s = run.ended_s + _AFTER_S
    process = {node.name: number for number, node in enumerate(run.nodes, _FIRST_NODE)}
    yield from _names("queue", _QUEUE)
    for name, number in process.items():
        yield from _names(f"node {name}", number)
    placed = _with_lanes(_on_nodes(run.pods, process, end_s))
    waits = _with_lanes(_in_queue(run.pods, end_s))
    yield from (_slice(one, lane) for one, lane in (*waits, *placed))
    yield from _arrows(placed)
    yield from _counters(run)


def _names(name: str, process: int) -> Iterator[_Event]:
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": one_line(name)}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}


# -- slices --------------------------------------------------------------------------------------------------------------


def _on_nodes(pods: Iterable[PodOutcome], process: Mapping[str, int], end_s: float) -> Iterator[_Slice]:
    """Yield the time of each pod on its node; pods placed before the run are included only if they left."""
    for pod in pods:
        if pod.node in process and (pod.placed_s is not None or pod.ended_s is not None):
            ended_s = end_s if pod.ended_s is None else pod.ended_s
            yield _Slice(pod.placed_s or 0.0, ended_s, process[pod.node], pod)


def _in_queue(pods: Iterable[PodOutcome], end_s: float) -> Iterator[_Slice]:
    """Yield the waits in the queue that were longer than 0 s."""
    for pod in pods:
        if pod.placed_s is not None or pod.state == "Pending":
            until_s = end_s if pod.placed_s is None else pod.placed_s
            if until_s > pod.arrived_s:
                yield _Slice(pod.arrived_s, until_s, _QUEUE, pod)


def _with_lanes(slices: Iterable[_Slice]) -> list[tuple[_Slice, int]]:
    """Give each slice the lowest lane of its process that is free when it starts."""
    busy: dict[int, list[tuple[float, int]]] = {}
    free: dict[int, list[int]] = {}
    found = []
    for one in sorted(slices, key=lambda one: one[:3]):
        lanes, idle = busy.setdefault(one.process, []), free.setdefault(one.process, [])
        while lanes and lanes[0][0] <= one.start_s:
            heapq.heappush(idle, heapq.heappop(lanes)[1])
        lane = heapq.heappop(idle) if idle else len(lanes) + 1
        heapq.heappush(lanes, (one.end_s, lane))
        found.append((one, lane))
    return found


def _slice(one: _Slice, lane: int) -> _Event:
    pod = one.pod
    shown = {
        "state": pod.state, "workload": pod.workload, "priority": pod.priority, "attempts": pod.attempts,
        "requests": dict(pod.requests), "message": pod.message, "preemptedBy": pod.preempted_by,
    }  # fmt: skip
    return {
        "ph": "X", "name": one_line(f"{pod.namespace}/{pod.name}"), "cat": "wait" if one.process == _QUEUE else "pod",
        "pid": one.process, "tid": lane, "ts": _micros(one.start_s), "dur": _micros(one.end_s) - _micros(one.start_s),
        "args": {name: value for name, value in shown.items() if value not in ("", {})},
    }  # fmt: skip


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)


def _arrows(placed: list[tuple[_Slice, int]]) -> Iterator[_Event]:
    """Yield an arrow from each victim to the pod that preempted it, if that pod was placed."""
    where = {f"{one.pod.namespace}/{one.pod.name}": (one, lane) for one, lane in placed}
    for number, (victim, lane) in enumerate(placed, 1):
        target = where.get(victim.pod.preempted_by)
        if target is None:
            continue
        arrow = {"cat": "preemption", "name": "preempted", "id": number}
        left = max(_micros(victim.start_s), _micros(victim.end_s) - 1)
        yield {"ph": "s", **arrow, "pid": victim.process, "tid": lane, "ts": left}
        to, to_lane = target
        yield {"ph": "f", "bp": "e", **arrow, "pid": to.process, "tid": to_lane, "ts": _micros(to.start_s)}


def _counters(run: Run) -> Iterator[_Event]:
    """Yield the pending pods and the share of each resource in use, whenever they change."""
    for moment in moments(run):
        at = {"ph": "C", "pid": _QUEUE, "ts": _micros(moment.at_s)}
        yield {**at, "name": "pending", "args": {"pods": moment.pending}}
        yield {**at, "name": "utilisation %", "args": {name: round(100 * share, 3) for name, share in moment.shares.items()}}


# -- open metrics ------------------------------------------------------------------------------------------------------

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
