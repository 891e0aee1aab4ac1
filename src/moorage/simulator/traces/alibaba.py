"""Reads the cluster traces of Alibaba of 2018 and of 2020 (GPU).

Pods   ``pai_task_table.csv``: job_name, task_name, inst_num, status, start_time, end_time, plan_cpu, plan_mem, plan_gpu,
       gpu_type; no header. Each instance is a pod. plan_cpu and plan_gpu are in percent of one core and one GPU, plan_mem in GB
Nodes  ``pai_machine_spec.csv``: machine, gpu_type, cap_cpu (cores), cap_mem (GB), cap_gpu; no header
"""

from __future__ import annotations

from typing import Final

from moorage.api.core import Node
from moorage.simulator.trace import Trace, plain_name
from moorage.simulator.traces.streams import TraceRow, table_rows
from moorage.simulator.traces.task_tables import TaskTable, copies_in, machine, machines_in

# Alibaba 2018 (cluster-trace-v2018): batch tasks of a cluster of some 4,000 machines over eight days.
#
# Pods   ``batch_task.csv``: task_name, instance_num, job_name, task_type, status, start_time, end_time, plan_cpu, plan_mem;
#        no header. Each instance of a task is a pod. plan_cpu is in hundredths of cores, plan_mem in percent of the largest
#        memory Nodes  ``machine_meta.csv``: machine_id, time_stamp, failure_domain_1, failure_domain_2, cpu_num, mem_size,
#        status; no header. mem_size is in percent of the largest memory

#: The memory of the largest machine is not published; amounts are percent of it.
LARGEST_MEMORY: Final = 100 << 30
_TASKS: Final = (
    "task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
)  # fmt: skip
_MACHINES: Final = (
    "machine_id", "time_stamp", "failure_domain_1", "failure_domain_2", "cpu_num", "mem_size", "status",
)  # fmt: skip
#: Maximum number of instances of one task.
_MOST: Final = 1_000_000


def read_alibaba_2018(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace. Tasks without a start or without requests are left out, and counted in a note.

    Raises  InputError
    """
    table, left_out = TaskTable(), 0
    for row in table_rows(pods, _TASKS, header=None):
        start, end = row.optional("start_time"), row.optional("end_time")
        if not start or not row.text("plan_cpu") or not row.text("plan_mem"):
            left_out += 1
            continue
        cpu, memory = round(10 * row.number("plan_cpu")), round(row.number("plan_mem") * LARGEST_MEMORY / 100)
        name = f"{row.text('job_name')}-{row.text('task_name')}"
        labels = (("job", row.text("job_name")), ("type", row.text("task_type")))
        duration = end - start if end and end >= start else None
        for _ in range(copies_in(row, "instance_num", _MOST)):
            table.add(name, start, duration, cpu, memory, labels=labels, job=row.text("job_name"))
    notes = [
        "memory is in percent of the largest machine; one percent is taken as 1 GiB",
        "dependencies between tasks, usage and the online containers are not in it",
        "the instances of a task start one by one, as batch tasks do",
    ]
    if left_out:
        notes.append(f"{left_out} tasks without a start or without requests left out")
    return table.builder.finish([] if nodes is None else machines_in(nodes, _MACHINES, _machine), notes)


def _machine(row: TraceRow) -> Node | None:
    if not row.text("cpu_num") or not row.text("mem_size"):
        return None
    name, memory = plain_name(row.text("machine_id"), "machine"), round(row.number("mem_size") * LARGEST_MEMORY / 100)
    return machine(name, 1000 * row.integer("cpu_num"), memory, zone=row.text("failure_domain_1"))


_PAI_TASKS: Final = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip
_PAI_MACHINES: Final = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
_GIB: Final = 1 << 30


def read_alibaba_2020(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace. Tasks that never started are left out, and counted in a note.

    Raises  InputError
    """
    table, left_out, first = TaskTable(), 0, float("inf")
    for row in table_rows(pods, _PAI_TASKS, header=None):
        start, end = row.optional("start_time"), row.optional("end_time")
        if start is None:
            left_out += 1
            continue
        first = min(first, start)
        model = row.text("gpu_type")
        gpu_milli = round(10 * (row.optional("plan_gpu") or 0.0))
        task = f"{row.text('job_name')}-{row.text('task_name')}"
        for _ in range(copies_in(row, "inst_num", _MOST)):
            table.add(
                task, start, end - start if end and end >= start else None,
                round(10 * (row.optional("plan_cpu") or 0.0)), round((row.optional("plan_mem") or 0.0) * _GIB),
                gpu_milli=gpu_milli, models=(model,) if gpu_milli and model else (), labels=(("job", row.text("job_name")),),
                job=task, gang=True,
            )  # fmt: skip
    notes = [
        "arrivals are the starts of tasks, not their submissions",
        "a task accepts the one GPU type that it was given, and its instances start together",
        "parts of GPUs are counted over a node, not by device",
    ]
    if left_out:
        notes.append(f"{left_out} tasks that never started left out")
    found = [] if nodes is None else machines_in(nodes, _PAI_MACHINES, _pai_machine)
    return table.builder.finish(found, notes, origin_s=first if len(table.builder) else 0.0)


def _pai_machine(row: TraceRow) -> Node:
    gpus = row.integer("cap_gpu") if row.text("cap_gpu") else 0
    return machine(
        plain_name(row.text("machine"), "machine"), round(1000 * row.number("cap_cpu")), round(row.number("cap_mem") * _GIB),
        gpus=gpus, shared=True, model=row.text("gpu_type") if gpus else "",
    )  # fmt: skip
