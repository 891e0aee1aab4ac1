"""Jobs of a cluster in their queues: who is admitted, before the scheduler sees any pod.

Every Job with a queue's name gets a Workload, unless the input has it. Cycles run until nothing changes; evicted Jobs lose
their pods and wait again. Admitted Jobs are unsuspended, with the labels and tolerations of their flavors; the others are
suspended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from datetime import datetime
from textwrap import fill
from typing import Any, Final

import msgspec

from moorage.api.workloads import Job
from moorage.errors import InputError
from moorage.report.style import columns
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.kueue.cycle import QueueAdmission
from moorage.simulator.kueue.objects import Objects, read_objects
from moorage.simulator.kueue.workloads import Workload, read_workload, text_of

__all__ = ["KINDS", "QUEUE_LABEL", "QueuedJobs", "admit_jobs", "has_queues"]

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
_LEAST_PODS: Final = "kueue.x-k8s.io/job-min-parallelism"
_PLURALS: Final = ("clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloads", "workloadpriorityclasses")

#: The kinds to read, by their names.
KINDS: Final = (
    *(f"{plural}.{version}.kueue.x-k8s.io" for plural in _PLURALS for version in ("v1beta1", "v1beta2")),
    "configurations.v1beta1.config.kueue.x-k8s.io",
    "configurations.v1beta2.config.kueue.x-k8s.io",
)


@dataclass(slots=True)
class QueuedJobs:
    """A cluster after admission, and what became of each workload.

    ``jobs``     workload → the Job that it stands for, as ``Job/NAME`` in its namespace
    ``nowhere``  workloads of queues that do not exist
    """

    cluster: ClusterInput
    objects: Objects
    fair: bool
    admitted: list[Workload] = field(default_factory=list)
    waiting: list[Workload] = field(default_factory=list)
    nowhere: list[Workload] = field(default_factory=list)
    evicted: set[str] = field(default_factory=set)
    jobs: dict[str, str] = field(default_factory=dict)

    def reason(self, workload: Workload) -> str:
        """Return why a workload waits."""
        queue = self.objects.queue_of(workload.namespace, workload.queue_name)
        if queue is None:
            local = self.objects.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
            if local is None:
                return f"LocalQueue {workload.queue_name} doesn't exist in namespace {workload.namespace}"
            return f"ClusterQueue {local} doesn't exist"
        if (fault := self.objects.faults.get(queue.name)) is not None:
            return f"ClusterQueue {queue.name} {fault}"
        status, _, message = workload.conditions.get("QuotaReserved", ("", "", ""))
        if status == "False":
            return message
        return f"behind others in ClusterQueue {queue.name}"

    def table(self, pending: Mapping[str, int]) -> str:
        """Return the queues and their workloads as text; ``pending``: how many pods of a workload no node takes."""
        text = f"{self._queue_table()}\n\n{self._workload_table(pending)}\n"
        waits = [
            f"  {workload.namespace}/{self._title(workload)}\n{_paragraph(self.reason(workload))}"
            for workload in (*self.waiting, *self.nowhere)
        ]
        return "\n".join([text, "Waiting for quota:", *waits, ""]) if waits else text

    def _queue_table(self) -> str:
        counted = {name: [0, 0] for name in self.objects.queues}
        for place, group in enumerate((self.admitted, self.waiting)):
            for workload in group:
                counted[workload.cluster_queue][place] += 1
        rows = []
        for queue in self.objects.queues.values():
            numbers = list(map(str, counted[queue.name]))
            for (flavor, resource), quota in queue.quotas.items():
                used = queue.usage.get((flavor, resource), 0)
                amounts = [quota.nominal, used, max(0, used - quota.nominal)]
                lead = [queue.name, queue.cohort or "-", flavor, resource]
                rows.append([*lead, *(text_of(resource, one) for one in amounts), *numbers])
                numbers = ["", ""]
        head = ["CLUSTERQUEUE", "COHORT", "FLAVOR", "RESOURCE", "QUOTA", "USED", "BORROWED", "ADMITTED", "WAITING"]
        return columns(head, rows, right=(4, 5, 6, 7, 8), gap="  ")

    def _workload_table(self, pending: Mapping[str, int]) -> str:
        rows = []
        for workload in (*self.admitted, *self.waiting, *self.nowhere):
            asked = sum(one.count for one in workload.pod_sets)
            held = sum(one.count for one in workload.admission)
            state = "evicted, waiting" if workload.key in self.evicted else "waiting"
            if workload.admission:
                stuck = pending.get(workload.key, 0)
                state = f"admitted, {stuck} without a node" if stuck else "admitted"
            size = f"{held} of {asked}" if 0 < held < asked else str(asked)
            rows.append([workload.namespace, self._title(workload), workload.cluster_queue or "-", size, state])
        return columns(["NAMESPACE", "WORKLOAD", "CLUSTERQUEUE", "PODS", "STATE"], rows, right=(3,))

    def _title(self, workload: Workload) -> str:
        return self.jobs.get(workload.key, workload.name)

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each workload that waits."""
        for workload in (*self.waiting, *self.nowhere):
            yield f"{workload.namespace}/{self._title(workload)} waits for quota: {self.reason(workload)}"


def _paragraph(text: str) -> str:
    return fill(text, 76, initial_indent="    ", subsequent_indent="      ")


def has_queues(documents: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether there is a ClusterQueue."""
    return any(one.get("kind") == "ClusterQueue" for one in documents)


def admit_jobs(cluster: ClusterInput, documents: Iterable[Mapping[str, Any]]) -> QueuedJobs:
    """Run admission over the Jobs and the Workloads of a cluster; ``documents`` are the objects of Kueue.

    Raises  InputError for objects that cannot be read
    """
    found = list(documents)
    objects = read_objects(found, "Kueue")
    for space in cluster.namespaces:
        objects.namespaces[space.name] = {"kubernetes.io/metadata.name": space.name, **space.metadata.labels}
    priorities = {
        str(one["metadata"]["name"]): int(one.get("value") or 0) for one in found if one.get("kind") == "WorkloadPriorityClass"
    }
    result = QueuedJobs(cluster, objects, any(_is_fair(one) for one in found if one.get("kind") == "Configuration"))
    workloads = [
        read_workload(one, where="Kueue: Workload") for one in found if one.get("kind") == "Workload" and not _is_finished(one)
    ]
    owners = {
        (str((one.get("metadata") or {}).get("namespace", "default")), str(owner.get("name"))): read
        for read, one in zip(workloads, (w for w in found if w.get("kind") == "Workload" and not _is_finished(w)), strict=True)
        for owner in (one.get("metadata") or {}).get("ownerReferences") or ()
        if owner.get("kind") == "Job"
    }
    last = max((one.created for one in workloads), default=0.0)
    standing: dict[tuple[str, str], Workload] = {}
    queued = [job for job in cluster.jobs if QUEUE_LABEL in job.metadata.labels and not _is_over(job)]
    for number, job in enumerate(queued):
        place = (job.namespace or "default", job.name)
        workload = owners.get(place)
        if workload is None:
            workload = _workload_of(job, priorities, cluster, last + 1 + number)
            workloads.append(workload)
        standing[place] = workload
        result.jobs[workload.key] = f"Job/{job.name}"
    if not cluster.namespaces:
        for workload in workloads:
            objects.namespaces.setdefault(workload.namespace, {"kubernetes.io/metadata.name": workload.namespace})
    _settle(result, workloads)
    result.cluster = _with_decisions(cluster, standing, result)
    return result


def _settle(result: QueuedJobs, workloads: list[Workload]) -> None:
    """Run cycles until a whole round of them decides nothing new."""
    objects = result.objects
    admission = QueueAdmission(objects, fair=result.fair)
    now = max((max(one.created, one.reserved_at or 0.0) for one in workloads), default=0.0) + 1
    for workload in workloads:
        if workload.admission and workload.cluster_queue in objects.queues:
            admission.hold(workload)
        elif not admission.add(workload, now):
            result.nowhere.append(workload)
    idle, rounds = 0, 1 + max((len(group.flavors) for queue in objects.queues.values() for group in queue.groups), default=0)
    for _ in range(100 + 20 * len(workloads)):
        if not admission.runnable or idle > rounds:
            break
        decided = admission.cycle(now)
        idle = 0 if decided.admitted or decided.evicted else idle + 1
        now += 1
        for eviction in decided.evicted:
            result.evicted.add(eviction.workload.key)
            admission.requeue_evicted(eviction.workload, now)
        admission.wake(now)
    for queue in objects.queues.values():
        result.admitted += queue.workloads.values()
        result.waiting += admission.waiting[queue.name]
    result.evicted -= {one.key for one in result.admitted}


def _with_decisions(cluster: ClusterInput, standing: Mapping[tuple[str, str], Workload], result: QueuedJobs) -> ClusterInput:
    """Return the cluster with admitted Jobs started, the others suspended, and without the pods of evicted Jobs."""
    jobs = []
    stopped: set[tuple[str, str]] = set()
    for job in cluster.jobs:
        workload = standing.get((job.namespace or "default", job.name))
        if workload is None:
            jobs.append(job)
        elif workload.admission:
            jobs.append(_started(job, workload, result.objects))
        else:
            stopped.add((job.namespace or "default", job.name))
            jobs.append(job.replace(spec=job.spec.replace(suspend=True)))
    pods = tuple(
        pod
        for pod in cluster.pods
        if not any(one.kind == "Job" and (pod.namespace, one.name) in stopped for one in pod.metadata.owner_references)
    )
    return with_fields(cluster, jobs=tuple(jobs), pods=pods)


def _started(job: Job, workload: Workload, objects: Objects) -> Job:
    spec, [held] = job.spec, workload.admission
    pod = spec.template.spec
    for name in sorted(set(held.flavors.values())):
        flavor = objects.flavors[name]
        pod = pod.replace(
            node_selector={**pod.node_selector, **flavor.labels}, tolerations=(*pod.tolerations, *flavor.tolerations)
        )
    fewer = {"parallelism": held.count} if held.count < workload.pod_sets[0].count else {}
    return job.replace(spec=spec.replace(suspend=False, template=spec.template.replace(spec=pod), **fewer))


def _workload_of(job: Job, priorities: Mapping[str, int], cluster: ClusterInput, arrives: float) -> Workload:
    spec, meta = job.spec, job.metadata
    count = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is not None:
        count = min(count, spec.completions)
    named = meta.labels.get(_PRIORITY_LABEL)
    if named is not None and named not in priorities:
        raise InputError(f"Job {meta.namespace}/{meta.name}: WorkloadPriorityClass {named} is not in the input")
    least = meta.annotations.get(_LEAST_PODS)
    pod_set = {
        "name": "main",
        "count": count,
        "minCount": int(least) if least and least.isdigit() else None,
        "template": {"spec": msgspec.to_builtins(spec.template.spec)},
    }
    pod_class = spec.template.spec.priority_class_name
    of_pods = next((one.value for one in cluster.priority_classes if one.name == pod_class), 0)
    data = {
        "metadata": {"namespace": meta.namespace or "default", "name": f"job-{meta.name}", "uid": meta.uid or meta.name},
        "spec": {
            "queueName": meta.labels[QUEUE_LABEL],
            "priority": priorities[named] if named is not None else of_pods,
            "podSets": [pod_set],
        },
    }
    created = meta.creation_timestamp
    return read_workload(data, datetime.fromisoformat(created).timestamp() if created else arrives)


def _is_over(job: Job) -> bool:
    return any(one.type in {"Complete", "Failed"} and one.status == "True" for one in job.status.conditions)


def _is_finished(workload: Mapping[str, Any]) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Finished" and one.get("status") == "True" for one in conditions)


def _is_fair(configuration: Mapping[str, Any]) -> bool:
    settings = configuration.get("fairSharing")
    return settings is not None and settings.get("enable", True) is not False
