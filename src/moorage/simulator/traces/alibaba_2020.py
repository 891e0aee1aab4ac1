"""Alibaba 2020 (cluster-trace-gpu-v2020, PAI): machine-learning tasks on some 1,800 machines with 6,500 GPUs, two months.

Pods   ``pai_task_table.csv``: job_name, task_name, inst_num, status, start_time, end_time, plan_cpu, plan_mem, plan_gpu,
       gpu_type; no header. Each instance is a pod. plan_cpu and plan_gpu are in percent of one core and one GPU, plan_mem in GB
Nodes  ``pai_machine_spec.csv``: machine, gpu_type, cap_cpu (cores), cap_mem (GB), cap_gpu; no header
"""

from __future__ import annotations

from typing import Final

from moorage.api.core import Node
from moorage.simulator.trace import Trace
from moorage.simulator.traces.streams import table_rows
from moorage.simulator.traces.tasks import TaskTable, machine, plain_name

__all__ = ["read_alibaba_2020"]

_TASKS: Final = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip
_MACHINES: Final = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
_GIB: Final = 1 << 30
_MOST: Final = 1_000_000


def read_alibaba_2020(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace. Tasks that never started are left out, and counted in a note.

    Raises  InputError
    """
    table, left_out, first = TaskTable(), 0, float("inf")
    for row in table_rows(pods, _TASKS, header=None):
        start, end = row.optional("start_time"), row.optional("end_time")
        if start is None:
            left_out += 1
            continue
        first = min(first, start)
        count = row.integer("inst_num") if row.text("inst_num") else 1
        if not 0 <= count <= _MOST:
            raise row.fault("inst_num", f"expected 0 to {_MOST}")
        model = row.text("gpu_type")
        gpu_milli = round(10 * (row.optional("plan_gpu") or 0.0))
        for _ in range(count):
            table.add(
                f"{row.text('job_name')}-{row.text('task_name')}", start, end - start if end and end >= start else None,
                round(10 * (row.optional("plan_cpu") or 0.0)), round((row.optional("plan_mem") or 0.0) * _GIB),
                gpu_milli=gpu_milli, models=(model,) if gpu_milli and model else (), labels=(("job", row.text("job_name")),),
            )  # fmt: skip
    notes = [
        "arrivals are the starts of tasks, not their submissions",
        "a task accepts the one GPU type that it was given",
        "parts of GPUs are counted over a node, not by device",
    ]
    if left_out:
        notes.append(f"{left_out} tasks that never started left out")
    return table.builder.finish([] if nodes is None else _machines(nodes), notes, origin_s=first if len(table.builder) else 0.0)


def _machines(path: str) -> list[Node]:
    found: dict[str, Node] = {}
    for row in table_rows(path, _MACHINES, header=None):
        name = plain_name(row.text("machine"), "machine")
        model = row.text("gpu_type")
        gpus = row.integer("cap_gpu") if row.text("cap_gpu") else 0
        found.setdefault(
            name,
            machine(
                name, round(1000 * row.number("cap_cpu")), round(row.number("cap_mem") * _GIB), gpus=gpus, shared=True,
                model=model if gpus else "",
            ),
        )  # fmt: skip
    return list(found.values())
