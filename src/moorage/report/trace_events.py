"""A run as Chrome trace events, which Perfetto and chrome://tracing show: pods on their nodes over simulated time.

Each node is a process. Slices of one lane must not overlap, so each process has as many lanes as it needs, and a pod takes the
first free one. The process "queue" has the waits of pods, and the counters.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from moorage.basis.printable import escape_json, one_line
from moorage.report.outcome import PodOutcome, Run
from moorage.report.run_document import moments

__all__ = ["as_trace", "trace_events"]

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


# -- counters ------------------------------------------------------------------------------------------------------------


def _counters(run: Run) -> Iterator[_Event]:
    """Yield the pending pods and the share of each resource in use, whenever they change."""
    for moment in moments(run):
        at = {"ph": "C", "pid": _QUEUE, "ts": _micros(moment.at_s)}
        yield {**at, "name": "pending", "args": {"pods": moment.pending}}
        yield {**at, "name": "utilisation %", "args": {name: round(100 * share, 3) for name, share in moment.shares.items()}}
