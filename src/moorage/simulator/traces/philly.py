"""Philly: 117,000 jobs of deep learning on Microsoft's GPU clusters, August to December 2017.

Pods   ``cluster_job_log``: a JSON list of jobs with jobid, vc, user, status, submitted_time and attempts, each with start_time,
       end_time and detail: the servers (ip) and GPUs it had. Each server of the first attempt is a pod;
       the pods of a job start together
Nodes  ``cluster_machine_list``: machineId, number of GPUs, single GPU mem
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from moorage.api.core import Node
from moorage.errors import InputError
from moorage.simulator.trace import Trace, plain_name
from moorage.simulator.traces.streams import TraceRow, whole_bytes
from moorage.simulator.traces.task_tables import TaskTable, machine, machines_in

#: The largest file, in bytes.
_MOST_BYTES: Final = 16 << 30
_MACHINES: Final = ("machineId", "number of GPUs", "single GPU mem")
#: The trace has no cpu and memory: a pod requests the same share of a machine's cpu and memory as of its GPUs.
_CPU_MILLI, _MEMORY = 4_000, 48 << 30


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[dict[str, Any]] = []


class _Job(msgspec.Struct):
    jobid: str
    submitted_time: str | None = None
    attempts: list[_Attempt] = []
    status: str = ""
    vc: str = ""


def read_philly(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace. Jobs that were never placed are left out, as their size is not recorded, and counted in a note.

    Raises  InputError
    """
    table, left_out = TaskTable(), 0
    for job in _jobs(pods):
        submitted, attempt = _seconds(job.submitted_time, pods), next((one for one in job.attempts if one.detail), None)
        if submitted is None or attempt is None:
            left_out += 1
            continue
        duration = _duration_s(job, pods)
        for server in attempt.detail:
            gpus = len(server.get("gpus") or ())
            labels = (("vc", job.vc), ("job", job.jobid))
            table.add(
                job.jobid,
                submitted,
                duration,
                gpus * _CPU_MILLI,
                gpus * _MEMORY,
                gpus=gpus,
                labels=labels,
                job=job.jobid,
                gang=True,
            )
    notes = [
        "cpu and memory are not recorded: 4 cores and 48 GiB for each GPU",
        "the pods of a job are the servers of its first attempt, and run as long as all attempts together",
    ]
    if left_out:
        notes.append(f"{left_out} jobs that were never placed left out")
    found = [] if nodes is None else machines_in(nodes, _MACHINES, _machine)
    return table.builder.finish(found, notes, origin_s=None)


def _jobs(path: str) -> Iterator[_Job]:
    """Yield the jobs; only one is decoded at a time."""
    decode = msgspec.json.Decoder(_Job).decode
    with whole_bytes(path, _MOST_BYTES) as data:
        try:
            for job in msgspec.json.decode(data, type=list[msgspec.Raw]):
                yield decode(job)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: this is not a job log of Philly: {error}") from None


def _duration_s(job: _Job, path: str) -> float | None:
    """Return how long the attempts ran together; None if the last one was still running."""
    total = 0.0
    for attempt in job.attempts:
        start, end = _seconds(attempt.start_time, path), _seconds(attempt.end_time, path)
        if end is None and attempt is job.attempts[-1]:
            return None
        if start is not None and end is not None:
            total += max(end - start, 0.0)
    return total


def _seconds(text: str | None, path: str) -> float | None:
    if not text or text == "None":
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(f"{path}: {text!r} is not a time such as 2017-10-07 01:11:39") from None


def _machine(row: TraceRow) -> Node:
    name, gpus = plain_name(row.text("machineId"), "machine"), row.integer("number of GPUs")
    return machine(name, gpus * _CPU_MILLI, gpus * _MEMORY, gpus=gpus, model=row.text("single GPU mem"))
