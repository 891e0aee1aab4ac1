"""Acme: jobs of large models on two GPU clusters of Shanghai AI Laboratory, March to August 2023 (NSDI 2024).

Pods   ``trace_seren.csv`` or ``trace_kalos.csv``: job_id, user, node_num, gpu_num, cpu_num, mem_per_pod_GB, type, state,
       submit_time, start_time, end_time, duration, queue, …. A job is one pod for each of its nodes, which start together.
       duration is in seconds
Nodes  none: nodes of eight GPUs, 128 cores and 1 TiB; as many as the busiest moment of the trace needs
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from moorage.api.core import Node
from moorage.simulator.trace import Trace, most_at_once
from moorage.simulator.traces.streams import TraceRow, table_rows
from moorage.simulator.traces.task_tables import TaskTable, machine

_NEEDED: Final = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "submit_time", "duration")
_JOBS: Final = (
    "job_id", "user", "node_num", "gpu_num", "cpu_num", "mem_per_pod_GB", "shared_mem_per_pod", "type", "state", "submit_time",
    "start_time", "end_time", "fail_time", "stop_time", "duration", "queue", "gpu_time",
)  # fmt: skip
_GPUS, _CPU_MILLI, _MEMORY = 8, 128_000, 1 << 40
_MOST: Final = 10_000


def read_acme(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace. Jobs of evaluation and the like that use no GPU are pods without GPUs.

    Raises  InputError
    """
    table = TaskTable()
    for row in table_rows(pods, _JOBS, required=_NEEDED):
        count = max(_whole(row, "node_num"), 1)
        if count > _MOST:
            raise row.fault("node_num", f"expected at most {_MOST}")
        gpus, cpus = _whole(row, "gpu_num"), _whole(row, "cpu_num")
        labels = [("user", row.text("user"))]
        labels += [(name, row.text(name)) for name in ("type",) if name in row.cells and row.text(name)]
        memory = round((row.optional("mem_per_pod_GB") or 0.0) * (1 << 30)) if "mem_per_pod_GB" in row.cells else 0
        for part in range(count):
            table.add(
                f"job-{row.text('job_id')}", _seconds(row, "submit_time"), row.number("duration"),
                1000 * _part(cpus, count, part), memory, gpus=_part(gpus, count, part), labels=labels,
                job=f"job-{row.text('job_id')}", gang=True,
            )  # fmt: skip
    notes = [
        "nodes are not published: they have 8 GPUs, 128 cores and 1 TiB, and are as many as the busiest moment needs",
        "GPUs and cpus of a job are spread evenly over its nodes",
    ]
    trace = table.builder.finish([], notes, origin_s=None)
    return trace.with_nodes(_machines(trace))


def _machines(trace: Trace) -> list[Node]:
    """Return the nodes that the busiest moment needs, if each job started when it arrived."""
    gpus, cpu = (most_at_once(trace.arrivals, resource) for resource in ("gpu", "cpu"))
    count = max(-(-round(gpus) // (1000 * _GPUS)), -(-round(cpu) // _CPU_MILLI), 1)
    return [machine(f"node-{number:04}", _CPU_MILLI, _MEMORY, gpus=_GPUS) for number in range(count)]


def _whole(row: TraceRow, column: str) -> int:
    """Return a number that the trace may write as ``8.0``."""
    number = row.optional(column) or 0.0
    if number != int(number):
        raise row.fault(column, "expected a whole number")
    return int(number)


def _part(whole: int, count: int, part: int) -> int:
    return whole // count + (part < whole % count)


def _seconds(row: TraceRow, column: str) -> float:
    try:
        found = datetime.fromisoformat(row.text(column))
    except ValueError:
        raise row.fault(column, "expected a time such as 2023-05-01 00:00:00+08:00") from None
    if found.tzinfo is None:
        raise row.fault(column, "expected a time with its zone, such as 2023-05-01 00:00:00+08:00")
    return found.timestamp()
