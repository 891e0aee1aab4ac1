"""The outcome of a run as rows of pods and of jobs, and what studies of schedulers report of them.

A job is a workload (``Job/train``, or what a trace calls a job), or a pod without one. Times are seconds since the run began,
and None for what did not happen. ``cost`` and ``energy_kwh`` are those of a pod's share of its node while it is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from moorage.report.outcome import NodeOutcome, PodOutcome, Run

#: The labels that name the owner of a pod and its queue; the first that it has.
OWNERS: Final = ("user", "owner", "tenant", "subscription", "app.kubernetes.io/managed-by")
QUEUES: Final = ("kueue.x-k8s.io/queue-name", "vc", "queue")
#: Shorter jobs count as this long in the bounded slowdown.
SHORT_S: Final = 10.0

#: Watts of a pod on its node.
PodPower = Callable[[PodOutcome, str], float]


class TableSetting(Struct, frozen=True):
    """``prices``: of a node by its name, per hour. ``power``: the power of a pod on a node. None: there are none."""

    prices: Mapping[str, float] | None = None
    power: PodPower | None = None
    owners: tuple[str, ...] = OWNERS
    queues: tuple[str, ...] = QUEUES


class PodTableRow(Struct, frozen=True, kw_only=True):
    """A pod. ``slowdown``: the time from arrival to end over the time on the node."""

    namespace: str
    pod: str
    job: str
    owner: str
    queue: str
    state: str
    node: str
    arrived_s: float
    started_s: float | None
    ended_s: float | None
    waited_s: float | None
    slowdown: float | None
    attempts: int
    preempted: bool
    cpu_milli: int
    memory_bytes: int
    gpus: float
    cost: float | None
    energy_kwh: float | None


class JobTableRow(Struct, frozen=True, kw_only=True):
    """A job. It starts with its first pod and ends with its last; it has not ended while one of them is pending or there.

    ``waited_s``          from its arrival to its start
    ``completion_s``      from its arrival to its end: the job completion time (JCT)
    ``slowdown``          completion over the time from start to end; ``bounded_slowdown``: with ten seconds at least, and 1
    ``nodes``             on how many nodes its pods were
    ``gpu_hours``         of all its pods
    """

    namespace: str
    job: str
    owner: str
    queue: str
    state: str
    pods: int
    nodes: int
    arrived_s: float
    started_s: float | None
    ended_s: float | None
    waited_s: float | None
    completion_s: float | None
    slowdown: float | None
    bounded_slowdown: float | None
    attempts: int
    preemptions: int
    cpu_milli: int
    memory_bytes: int
    gpus: float
    gpu_hours: float
    cost: float | None
    energy_kwh: float | None


_NO_SETTING: Final = TableSetting()


def pod_rows(run: Run, setting: TableSetting = _NO_SETTING) -> list[PodTableRow]:
    """Return a row for each pod of a run, in order of arrival."""
    nodes = {node.name: node for node in run.nodes}
    return [_pod(pod, run, nodes, setting) for pod in run.pods]


def job_rows(run: Run, setting: TableSetting = _NO_SETTING) -> list[JobTableRow]:
    """Return a row for each job of a run, in order of the arrival of their first pods."""
    held: dict[tuple[str, str], list[PodTableRow]] = {}
    for row in pod_rows(run, setting):
        held.setdefault((row.namespace, row.job), []).append(row)
    return [_job(rows, run.ended_s) for rows in held.values()]


def _pod(pod: PodOutcome, run: Run, nodes: Mapping[str, NodeOutcome], setting: TableSetting) -> PodTableRow:
    end_s = pod.ended_s if pod.ended_s is not None else run.ended_s
    on_node_s = max(end_s - pod.placed_s, 0.0) if pod.placed_s is not None else 0.0
    ended = pod.ended_s if pod.placed_s is not None else None
    cost = energy = None
    if setting.prices is not None:
        cost = setting.prices.get(pod.node, 0.0) * _share(pod, nodes.get(pod.node)) * on_node_s / 3600
    if setting.power is not None:
        energy = setting.power(pod, pod.node) * on_node_s / 3.6e6 if pod.node else 0.0
    return PodTableRow(
        namespace=pod.namespace, pod=pod.name, job=pod.workload or f"Pod/{pod.name}", owner=_label(pod, setting.owners),
        queue=_label(pod, setting.queues), state=pod.state, node=pod.node, arrived_s=pod.arrived_s, started_s=pod.placed_s,
        ended_s=ended, waited_s=None if pod.placed_s is None else pod.placed_s - pod.arrived_s,
        slowdown=None if ended is None or not on_node_s else (ended - pod.arrived_s) / on_node_s,
        attempts=pod.attempts, preempted=bool(pod.preempted_by), cpu_milli=pod.requests.get("cpu", 0),
        memory_bytes=pod.requests.get("memory", 0), gpus=gpus_of(pod), cost=cost, energy_kwh=energy,
    )  # fmt: skip


def gpus_of(pod: PodOutcome) -> float:
    """Return how many GPUs a pod requests, parts of them included."""
    whole = sum(amount for name, amount in pod.requests.items() if name.endswith("/gpu"))
    return whole + pod.requests.get("alibabacloud.com/gpu-milli", 0) / 1000


def _share(pod: PodOutcome, node: NodeOutcome | None) -> float:
    """Return the largest share of a node's resources that a pod requests."""
    if node is None:
        return 0.0
    return max(
        (amount / node.allocatable[name] for name, amount in pod.requests.items() if node.allocatable.get(name)), default=0
    )


def _label(pod: PodOutcome, names: Iterable[str]) -> str:
    return next((pod.labels[name] for name in names if pod.labels.get(name)), "")


def _job(rows: Sequence[PodTableRow], end_s: float) -> JobTableRow:
    first = rows[0]
    arrived = min(row.arrived_s for row in rows)
    starts = [row.started_s for row in rows if row.started_s is not None]
    started = min(starts, default=None)
    states = {row.state for row in rows}
    state = next((one for one in ("Pending", "Placed", "Finished") if one in states), first.state)
    ends = [row.ended_s for row in rows if row.ended_s is not None]
    ended = max(ends) if ends and state == "Finished" else None
    ran = None if started is None or ended is None else ended - started
    completion = None if ended is None else ended - arrived
    until = [row.ended_s if row.ended_s is not None else end_s for row in rows]
    costs, energies = ([one for one in values if one is not None] for values in _amounts(rows))
    return JobTableRow(
        namespace=first.namespace, job=first.job, owner=first.owner, queue=first.queue, state=state, pods=len(rows),
        nodes=len({row.node for row in rows if row.node}), arrived_s=arrived, started_s=started, ended_s=ended,
        waited_s=None if started is None else started - arrived, completion_s=completion,
        slowdown=completion / ran if completion is not None and ran else None,
        bounded_slowdown=None if completion is None or ran is None else max(completion / max(ran, SHORT_S), 1.0),
        attempts=sum(row.attempts for row in rows), preemptions=sum(row.preempted for row in rows),
        cpu_milli=sum(row.cpu_milli for row in rows), memory_bytes=sum(row.memory_bytes for row in rows),
        gpus=sum(row.gpus for row in rows),
        gpu_hours=sum(
            row.gpus * (end - row.started_s) / 3600 for row, end in zip(rows, until, strict=True) if row.started_s is not None
        ),
        cost=sum(costs) if costs else None, energy_kwh=sum(energies) if energies else None,
    )  # fmt: skip


def _amounts(rows: Iterable[PodTableRow]) -> tuple[list[float | None], list[float | None]]:
    held = list(rows)
    return [row.cost for row in held], [row.energy_kwh for row in held]


# What is reported of jobs.

_PERCENTS: Final = (50, 90, 99)


def job_figures(rows: Sequence[JobTableRow]) -> dict[str, float]:
    """Return figures of the jobs that ended: mean and percentiles of completion times, waits and slowdowns, and fairness.

    ``jct``, ``jobWaits``, ``slowdown`` (bounded) with ``.mean``, ``.p50``, ``.p90``, ``.p99`` by nearest rank; and, if jobs
    have owners, Jain's index over them of their mean slowdown (``userFairness.slowdown``) and of their GPU hours
    (``userFairness.gpuHours``): 1 if all are equal, 1/n if one of n has all. Empty if no job ended.
    """
    ended = [row for row in rows if row.completion_s is not None and row.bounded_slowdown is not None]
    if not ended:
        return {}
    found: dict[str, float] = {}
    for name, values in (
        ("jct", [row.completion_s for row in ended]), ("jobWaits", [row.waited_s for row in ended]),
        ("slowdown", [row.bounded_slowdown for row in ended]),
    ):  # fmt: skip
        numbers = sorted(one for one in values if one is not None)
        found[f"{name}.mean"] = math.fsum(numbers) / len(numbers)
        found |= {f"{name}.p{percent}": nearest_rank(numbers, percent) for percent in _PERCENTS}
    owners: dict[str, list[JobTableRow]] = {}
    for row in ended:
        if row.owner:
            owners.setdefault(row.owner, []).append(row)
    if owners:
        slowdowns = [math.fsum(row.bounded_slowdown or 1.0 for row in held) / len(held) for held in owners.values()]
        found["userFairness.slowdown"] = jain(slowdowns)
        if any(row.gpu_hours for row in ended):
            found["userFairness.gpuHours"] = jain([math.fsum(row.gpu_hours for row in held) for held in owners.values()])
    return found


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """Return a percentile of sorted values: the least of them that so many percent do not exceed."""
    return ordered[max(math.ceil(percent * len(ordered) / 100), 1) - 1]


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of fairness: the square of the sum over n times the sum of squares; 1 for values that are all 0."""
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else 1.0
