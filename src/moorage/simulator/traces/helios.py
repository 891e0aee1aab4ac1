"""Helios: jobs of deep learning on SenseTime's GPU clusters, April to September 2020.

Pods   ``cluster_log.csv``: job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, duration,
       queue. A job is one pod for each of its nodes, which start together. duration is in seconds
Nodes  ``cluster_gpu_number.csv``: date, the GPUs of each virtual cluster, total. The largest total is divided into nodes of
       eight GPUs
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from moorage.api.core import Node
from moorage.simulator.trace import Trace
from moorage.simulator.traces.streams import TraceRow, table_rows
from moorage.simulator.traces.task_tables import TaskTable, machine

_JOBS: Final = (
    "job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time", "end_time", "duration",
    "queue",
)  # fmt: skip
_NEEDED: Final = ("job_id", "gpu_num", "cpu_num", "node_num", "submit_time", "duration")
#: A node of the clusters, as the paper describes them; requests have no memory.
_GPUS, _CPU_MILLI, _MEMORY = 8, 48_000, 256 << 30
_MOST: Final = 10_000


def read_helios(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace.

    Raises  InputError
    """
    table = TaskTable()
    for row in table_rows(pods, _JOBS, required=_NEEDED):
        count = max(row.integer("node_num"), 1)
        if count > _MOST:
            raise row.fault("node_num", f"expected at most {_MOST}")
        submitted = _seconds(row, "submit_time")
        gpus, cpus = row.integer("gpu_num"), row.integer("cpu_num")
        for part in range(count):
            table.add(
                f"job-{row.text('job_id')}", submitted, row.number("duration"), 1000 * _part(cpus, count, part), 0,
                gpus=_part(gpus, count, part), labels=(("vc", row.text("vc")), ("user", row.text("user"))),
                job=f"job-{row.text('job_id')}", gang=True,
            )  # fmt: skip
    notes = [
        "memory is not recorded, so pods request none; nodes are taken as 8 GPUs, 48 cores and 256 GiB",
        "GPUs and cpus of a job are spread evenly over its nodes",
        "queues of virtual clusters are labels alone",
    ]
    return table.builder.finish([] if nodes is None else _machines(nodes), notes, origin_s=None)


def _part(whole: int, count: int, part: int) -> int:
    return whole // count + (part < whole % count)


def _seconds(row: TraceRow, column: str) -> float:
    try:
        return datetime.strptime(row.text(column), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise row.fault(column, "expected a time such as 2020-06-09 18:41:01") from None


def _machines(path: str) -> list[Node]:
    gpus = max((row.integer("total") for row in table_rows(path, ("date", "total"))), default=0)
    return [machine(f"node-{number:04}", _CPU_MILLI, _MEMORY, gpus=_GPUS) for number in range(-(-gpus // _GPUS))]
