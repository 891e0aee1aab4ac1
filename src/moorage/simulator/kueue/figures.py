"""Figures of a timeline: what each queue used, borrowed and lent over time, and how long its workloads waited."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from moorage.report.queue_report import (
    CohortFigures,
    QueueAmounts,
    QueueEviction,
    QueueFigures,
    QueueReport,
    QueueWaits,
    WorkloadFigures,
)
from moorage.simulator.kueue.cycle import QueueAdmission
from moorage.simulator.kueue.objects import ClusterQueue, Objects
from moorage.simulator.kueue.quota import CohortNode, QuotaNode
from moorage.simulator.kueue.timeline import TimedWork
from moorage.simulator.kueue.workloads import Key

_HOUR: Final = 3600.0
_N = TypeVar("_N", int, float)


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
    shares = [share for name in objects.queues if (share := _satisfied(uses[name], by_queue[name]))]
    workloads = tuple(_workload(one, admission) for one in works)
    cohorts = tuple(
        CohortFigures(
            name, cohort.parent.name if cohort.parent else "",
            _summed((resource, quota.nominal) for (_, resource), quota in cohort.quotas.items()),
        )
        for name, cohort in sorted(objects.cohorts.items())
    )  # fmt: skip
    return QueueReport(tuple(queues), workloads, admission.fair, end_s, jain(shares), cohorts)


def _summed(pairs: Iterable[tuple[str, _N]]) -> dict[str, _N]:
    total: dict[str, _N] = {}
    for name, amount in pairs:
        total[name] = total[name] + amount if name in total else amount
    return total


def jain(values: Sequence[float]) -> float | None:
    """Return Jain's index of fairness: 1 if all values are equal; None without values."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def why_waiting(admission: QueueAdmission, one: TimedWork) -> str:
    """Return why a work waits."""
    workload, objects = one.work.workload, admission.objects
    if one.deactivated:
        return one.deactivated
    if one.work.held_back:
        return one.work.held_back
    if not workload.queue_name:
        return "Kueue manages jobs without a queue, too (manageJobsWithoutQueueName), and this one names no LocalQueue"
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
    status, _, message = admission.waiting[queue.name].refusal(workload)
    return message if status == "False" else f"waits for its turn in ClusterQueue {queue.name}"


# -- use over time ------------------------------------------------------------------------------------------------------


#: The quota of a queue by flavor and resource with its use, and what was used as a sum over time.
_Uses = dict[Key, tuple[QueueAmounts, float]]


def _uses(objects: Objects, works: Mapping[str, list[TimedWork]], end_s: float) -> dict[str, _Uses]:
    found: dict[str, _Uses] = {name: {} for name in objects.queues}
    for root in dict.fromkeys(queue.root() for queue in objects.queues.values()):
        queues = [queue for queue in objects.queues.values() if queue.root() is root]
        for key in dict.fromkeys(key for queue in queues for key in queue.quotas):
            _uses_of_key(key, queues, _nominal_of_cohorts(root, key), works, end_s, found)
    return found


def _nominal_of_cohorts(node: QuotaNode, key: Key) -> int:
    if not isinstance(node, CohortNode):
        return 0
    return node.quota(key).nominal + sum(_nominal_of_cohorts(child, key) for child in node.cohorts)


def _uses_of_key(
    key: Key, queues: Sequence[ClusterQueue], own: int, works: Mapping[str, list[TimedWork]], end_s: float,
    found: dict[str, _Uses],
) -> None:  # fmt: skip
    """Sum up over time for one flavor and resource of a tree; ``own``: what belongs to no queue and is borrowed first."""
    events: list[tuple[float, int, int]] = [(0.0, 0, 0)]
    for at, queue in enumerate(queues):
        for one in works[queue.name]:
            for episode in one.episodes:
                if amount := episode.usage.get(key, 0):
                    events.append((episode.since_s, at, amount))
                    if episode.until_s is not None:
                        events.append((episode.until_s, at, -amount))
    moments, places, changes = zip(*events, strict=True)
    times, steps = np.unique(moments, return_inverse=True)
    used = np.zeros((len(times), len(queues)))
    np.add.at(used, (steps, np.array(places)), changes)
    used = used.cumsum(axis=0)
    spans = np.diff(times, append=max(end_s, times[-1]))
    quotas = [queue.quota(key) for queue in queues]
    nominal = np.array([quota.nominal for quota in quotas], dtype=np.float64)
    lendable = np.minimum(nominal, [math.inf if quota.lending_limit is None else quota.lending_limit for quota in quotas])
    borrowed = np.maximum(0.0, used - nominal)
    spare = np.clip(nominal - used, 0.0, lendable)
    wanted = np.maximum(0.0, borrowed.sum(axis=1) - own)
    there = spare.sum(axis=1)
    lent = spare * np.divide(wanted, there, out=np.zeros_like(wanted), where=there > 0).clip(max=1.0)[:, None]
    for at, queue in enumerate(queues):
        if key in queue.quotas:
            ends = [float(each[-1, at]) for each in (used, borrowed, lent)]
            sums = [float(each[:, at] @ spans) for each in (used, borrowed, lent)]
            means = [total / end_s for total in sums] if end_s else ends
            limits = quotas[at].borrowing_limit, quotas[at].lending_limit
            now, over_time = map(round, ends), (round(mean, 3) for mean in means)
            found[queue.name][key] = QueueAmounts(*key, quotas[at].nominal, *limits, *now, *over_time), sums[0]


def _satisfied(uses: _Uses, works: Sequence[TimedWork]) -> float | None:
    """Return the largest share of its quota that a queue used over time; None for a queue that no job wanted."""
    return max((used / shown.nominal for shown, used in uses.values() if shown.nominal), default=None) if works else None


# -- one queue, one workload --------------------------------------------------------------------------------------------


def _queue(
    queue: ClusterQueue, works: Sequence[TimedWork], uses: _Uses, end_s: float, late_s: float, fault: str
) -> QueueFigures:
    hours = _summed((resource, used / _HOUR) for (_, resource), (_, used) in uses.items())
    lost = _summed((resource, amount / _HOUR) for one in works for resource, amount in one.lost.items())
    arrived = [one for one in works if one.arrived_s <= end_s]
    return QueueFigures(
        name=queue.name, cohort=queue.cohort, weight=queue.weight, share=queue.share().shown, arrived=len(arrived),
        admitted=sum(one.holds for one in works),
        waiting=sum(not one.holds and one.finished_s is None and not one.is_gone for one in arrived),
        finished=sum(one.finished_s is not None for one in works), evictions=sum(map(_evictions, works)),
        amounts=tuple(shown for shown, _ in uses.values()),
        # What waits at the end of a run waits without end; without a run, until ``late_s``.
        waits=QueueWaits.of((one.episodes[0].since_s if one.episodes else late_s) - one.arrived_s for one in arrived),
        used_hours={name: round(value, 3) for name, value in hours.items()},
        lost_hours={name: round(value, 3) for name, value in lost.items()}, fault=fault,
    )  # fmt: skip


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


def _last_eviction(one: TimedWork) -> str:
    return next((episode.message for episode in reversed(one.episodes) if episode.reason), "")


def _workload(one: TimedWork, admission: QueueAdmission) -> WorkloadFigures:
    workload = one.work.workload
    if one.finished_s is not None:
        state = "Finished"
    elif one.holds:
        state = "Admitted"
    elif one.is_gone:
        state = "Gone"
    else:
        state = "Deactivated" if one.deactivated else "Waiting"
    waits = state in {"Waiting", "Deactivated"}
    return WorkloadFigures(
        namespace=workload.namespace, name=workload.name, object=one.work.title, cluster_queue=workload.cluster_queue,
        priority=workload.priority, pods=sum(pod_set.count for pod_set in workload.pod_sets),
        admitted_pods=sum(held.count for held in workload.admission), state=state,
        reason=why_waiting(admission, one) if waits else _last_eviction(one) if state == "Gone" else "", arrived=one.arrived_s,
        reserved=one.episodes[0].since_s if one.episodes else None, started=one.started_s, finished=one.finished_s,
        evictions=_evictions(one), held=tuple(_spans(one)),
        without_node=len(one.pods) - len(one.placed) if state == "Admitted" else 0,
        lost=tuple(
            QueueEviction(episode.until_s or 0.0, episode.reason, episode.by, episode.message)
            for episode in one.episodes
            if episode.reason
        ),
    )  # fmt: skip
