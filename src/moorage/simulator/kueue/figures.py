"""Figures of a timeline: what each queue used, borrowed and lent over time, and how long its workloads waited."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from moorage.report.queue_report import CohortFigures, QueueAmounts, QueueFigures, QueueReport, QueueWaits, WorkloadFigures
from moorage.simulator.kueue.cycle import QueueAdmission
from moorage.simulator.kueue.objects import ClusterQueue, Objects
from moorage.simulator.kueue.quota import CohortNode
from moorage.simulator.kueue.timeline import TimedWork
from moorage.simulator.kueue.workloads import Key

_HOUR: Final = 3600.0
_Floats = npt.NDArray[np.float64]


def queue_report(admission: QueueAdmission, works: Sequence[TimedWork], end_s: float, *, ran: bool = True) -> QueueReport:
    """Return the report on works and their queues at the end of a run, or before one."""
    objects = admission.objects
    by_queue: dict[str, list[TimedWork]] = {name: [] for name in objects.queues}
    for one in works:
        if one.work.workload.cluster_queue in by_queue:
            by_queue[one.work.workload.cluster_queue].append(one)
    uses = _uses(objects, by_queue, end_s)
    queues = [
        _queue(queue, by_queue[name], uses[name], end_s, math.inf if ran else end_s, objects.faults.get(name, ""))
        for name, queue in objects.queues.items()
    ]
    shares = [share for name, queue in objects.queues.items() if (share := _satisfied(queue, uses[name], by_queue[name]))]
    workloads = tuple(_workload(one, objects) for one in works)
    cohorts: list[CohortFigures] = []
    for name, cohort in sorted(objects.cohorts.items()):
        nominal: dict[str, int] = {}
        for (_, resource), quota in cohort.quotas.items():
            nominal[resource] = nominal.get(resource, 0) + quota.nominal
        cohorts.append(CohortFigures(name, "" if cohort.parent is None else cohort.parent.name, nominal))
    return QueueReport(tuple(queues), workloads, admission.fair, end_s, jain(shares), tuple(cohorts))


def jain(values: Sequence[float]) -> float | None:
    """Return Jain's index of fairness: 1 if all values are equal; None without values."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def why_waiting(objects: Objects, one: TimedWork) -> str:
    """Return why a work waits."""
    workload = one.work.workload
    if one.deactivated:
        return one.deactivated
    queue = objects.queue_of(workload.namespace, workload.queue_name)
    if queue is None:
        local = objects.local_queues.get(workload.local_queue)
        if local is None:
            return f"LocalQueue {workload.queue_name} doesn't exist in namespace {workload.namespace}"
        if workload.local_queue in objects.stopped_locals:
            return f"LocalQueue {workload.queue_name} is inactive"
        return f"ClusterQueue {local} doesn't exist"
    if (fault := objects.faults.get(queue.name)) is not None:
        return f"ClusterQueue {queue.name} {fault}"
    status, _, message = workload.conditions.get("QuotaReserved", ("", "", ""))
    return message if status == "False" else f"waits for its turn in ClusterQueue {queue.name}"


# -- use over time ------------------------------------------------------------------------------------------------------


class _Use:
    """What a queue used, borrowed and lent of one flavor and resource: at the end, and as sums over time."""

    __slots__ = ("borrowed", "lent", "used")

    def __init__(self, used: _Floats, borrowed: _Floats, lent: _Floats, spans: _Floats) -> None:
        self.used, self.borrowed, self.lent = ((float(each[-1]), float(each @ spans)) for each in (used, borrowed, lent))


def _uses(objects: Objects, works: Mapping[str, list[TimedWork]], end_s: float) -> dict[str, dict[Key, _Use]]:
    found: dict[str, dict[Key, _Use]] = {name: {} for name in objects.queues}
    trees: dict[str, list[ClusterQueue]] = {}
    for name, queue in objects.queues.items():
        root = f"/{name}" if queue.parent is None else queue.root().name
        trees.setdefault(root, []).append(queue)
    for root, queues in trees.items():
        cohorts = _cohorts(objects.cohorts[root]) if root in objects.cohorts else []
        for key in dict.fromkeys(key for queue in queues for key in queue.quotas):
            own = sum(cohort.quota(key).nominal for cohort in cohorts)
            _uses_of_key(key, queues, own, works, end_s, found)
    return found


def _uses_of_key(
    key: Key, queues: Sequence[ClusterQueue], own: int, works: Mapping[str, list[TimedWork]], end_s: float,
    found: dict[str, dict[Key, _Use]],
) -> None:  # fmt: skip
    """Sum up over time for one flavor and resource of a tree; ``own``: what belongs to no queue and is borrowed first."""
    events: list[tuple[float, int, int]] = []
    for at, queue in enumerate(queues):
        for one in works[queue.name]:
            for episode in one.episodes:
                if amount := episode.usage.get(key, 0):
                    events.append((episode.since_s, at, amount))
                    if episode.until_s is not None:
                        events.append((episode.until_s, at, -amount))
    times, steps = np.unique(np.array([0.0, *(event[0] for event in events)]), return_inverse=True)
    used = np.zeros((len(times), len(queues)))
    if events:
        np.add.at(used, (steps[1:], np.array([event[1] for event in events])), [event[2] for event in events])
    used = used.cumsum(axis=0)
    spans = np.diff(times, append=max(end_s, times[-1]))
    nominal = np.array([queue.quota(key).nominal for queue in queues], dtype=np.float64)
    limits = [queue.quota(key).lending_limit for queue in queues]
    lendable = np.minimum(nominal, [math.inf if limit is None else limit for limit in limits])
    borrowed = np.maximum(0.0, used - nominal)
    spare = np.clip(nominal - used, 0.0, lendable)
    wanted = np.maximum(0.0, borrowed.sum(axis=1) - own)
    there = spare.sum(axis=1)
    lent = spare * np.divide(wanted, there, out=np.zeros_like(wanted), where=there > 0).clip(max=1.0)[:, None]
    for at, queue in enumerate(queues):
        if key in queue.quotas:
            found[queue.name][key] = _Use(used[:, at], borrowed[:, at], lent[:, at], spans)


def _cohorts(cohort: CohortNode) -> list[CohortNode]:
    return [cohort, *(each for child in cohort.cohorts for each in _cohorts(child))]


def _satisfied(queue: ClusterQueue, uses: Mapping[Key, _Use], works: Iterable[TimedWork]) -> float | None:
    """Return the largest share of its quota that a queue used over time; None for a queue that no job wanted."""
    if not any(works):
        return None
    shares = [use.used[1] / queue.quota(key).nominal for key, use in uses.items() if queue.quota(key).nominal]
    return max(shares, default=None)


# -- one queue, one workload --------------------------------------------------------------------------------------------


def _queue(
    queue: ClusterQueue, works: Sequence[TimedWork], uses: Mapping[Key, _Use], end_s: float, late_s: float, fault: str
) -> QueueFigures:
    hours: dict[str, float] = {}
    lost: dict[str, float] = {}
    amounts = []
    for (flavor, resource), use in uses.items():
        quota = queue.quota((flavor, resource))
        ends, sums = zip(use.used, use.borrowed, use.lent, strict=True)
        means = [total / end_s for total in sums] if end_s else ends
        hours[resource] = hours.get(resource, 0.0) + use.used[1] / _HOUR
        amounts.append(
            QueueAmounts(
                flavor, resource, quota.nominal, quota.borrowing_limit, quota.lending_limit,
                *(round(amount) for amount in ends), *(round(mean, 3) for mean in means),
            )
        )  # fmt: skip
    for one in works:
        for resource, amount in one.lost.items():
            lost[resource] = lost.get(resource, 0.0) + amount / _HOUR
    arrived = [one for one in works if one.arrived_s <= end_s]
    return QueueFigures(
        name=queue.name, cohort=queue.cohort, weight=queue.weight, share=queue.share().shown, arrived=len(arrived),
        admitted=sum(one.holds for one in works),
        waiting=sum(not one.holds and one.finished_s is None for one in arrived),
        finished=sum(one.finished_s is not None for one in works), evictions=sum(map(_evictions, works)),
        amounts=tuple(amounts), waits=_waits(arrived, late_s),
        used_hours={name: round(value, 3) for name, value in hours.items()},
        lost_hours={name: round(value, 3) for name, value in lost.items()}, fault=fault,
    )  # fmt: skip


def _waits(works: Iterable[TimedWork], late_s: float) -> QueueWaits | None:
    """Return percentiles of waits. What waits at the end of a run waits without end; without a run, until ``late_s``."""
    waits = sorted((one.episodes[0].since_s if one.episodes else late_s) - one.arrived_s for one in works)
    if not waits:
        return None
    p50, p90, p99 = (waits[max(math.ceil(percent * len(waits) / 100), 1) - 1] for percent in (50, 90, 99))
    return QueueWaits(p50, p90, p99, waits[-1])


def _spans(one: TimedWork) -> Iterator[tuple[float, float | None]]:
    """Yield when it held quota; giving back a part of it does not end a span."""
    begun: float | None = None
    for at, episode in enumerate(one.episodes):
        begun = episode.since_s if begun is None else begun
        goes_on = at + 1 < len(one.episodes) and one.episodes[at + 1].since_s == episode.until_s and not episode.reason
        if not goes_on:
            yield begun, episode.until_s
            begun = None


def _evictions(one: TimedWork) -> int:
    return sum(bool(episode.reason) for episode in one.episodes)


def _workload(one: TimedWork, objects: Objects) -> WorkloadFigures:
    workload = one.work.workload
    if one.finished_s is not None:
        state = "Finished"
    elif one.holds:
        state = "Admitted"
    else:
        state = "Deactivated" if one.deactivated else "Waiting"
    waits = state in {"Waiting", "Deactivated"}
    return WorkloadFigures(
        namespace=workload.namespace, name=workload.name, object=one.work.title, cluster_queue=workload.cluster_queue,
        priority=workload.priority, pods=sum(pod_set.count for pod_set in workload.pod_sets),
        admitted_pods=sum(held.count for held in workload.admission), state=state,
        reason=why_waiting(objects, one) if waits else "", arrived=one.arrived_s,
        reserved=one.episodes[0].since_s if one.episodes else None, started=one.started_s, finished=one.finished_s,
        evictions=_evictions(one), held=tuple(_spans(one)),
        without_node=len(one.pods) - len(one.placed) if state == "Admitted" else 0,
    )  # fmt: skip
