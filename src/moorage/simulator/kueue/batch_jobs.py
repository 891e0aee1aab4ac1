"""The jobs of a cluster in their queues: a simulation admits them before it schedules their pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any, Final

from moorage.errors import StateError
from moorage.report.queue_report import QueueReport
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.kueue.cycle import QueueAdmission
from moorage.simulator.kueue.figures import queue_report
from moorage.simulator.kueue.integrations import KINDS_OF_JOBS, QueuedWork, find_works
from moorage.simulator.kueue.objects import Objects, read_objects
from moorage.simulator.kueue.settings import Settings, read_settings
from moorage.simulator.kueue.timeline import QueueTimeline
from moorage.simulator.kueue.workloads import read_workload
from moorage.simulator.simulation import SimulatedCluster

__all__ = ["KINDS", "QUEUE_KINDS", "QueuedCluster", "has_queues", "queued_cluster"]

_PLURALS: Final = (
    "clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloads", "workloadpriorityclasses", "admissionchecks",
    "topologies",
)  # fmt: skip
#: The kinds of Kueue by their names.
QUEUE_KINDS: Final = (
    *(f"{plural}.{version}.kueue.x-k8s.io" for plural in _PLURALS for version in ("v1beta1", "v1beta2")),
    "configurations.v1beta1.config.kueue.x-k8s.io",
    "configurations.v1beta2.config.kueue.x-k8s.io",
)
#: These, and the kinds of jobs that Moorage knows only for queues.
KINDS: Final = (*QUEUE_KINDS, *KINDS_OF_JOBS)


@dataclass(slots=True)
class QueuedCluster:
    """A cluster, its queues, and the works that wait in them: good for one run; ``fresh`` gives another.

    ``cluster``  what is left without the works and their waiting pods: the simulation begins with it
    ``titles``   the object of each pod that was created, by UID
    """

    cluster: ClusterInput
    objects: Objects
    works: list[QueuedWork]
    settings: Settings
    documents: Sequence[Mapping[str, Any]] = ()
    timeline: QueueTimeline | None = None
    titles: dict[str, str] = field(default_factory=dict)

    def fresh(self) -> QueuedCluster:
        """Return the same as it was before any run. Call it before this one runs."""
        objects = read_objects(self.documents, "Kueue")
        objects.namespaces.update(self.objects.namespaces)
        works = [with_fields(one, workload=one.workload.copied()) for one in self.works]
        return QueuedCluster(self.cluster, objects, works, self.settings, self.documents)

    def attach(self, simulation: SimulatedCluster) -> None:
        """Let an empty simulation of ``cluster`` admit the works."""
        zero_s = max((max(one.workload.created, one.workload.reserved_at or 0.0) for one in self.works), default=0.0) + 1
        admission = QueueAdmission(self.objects, fair=self.settings.fair)
        self.timeline = QueueTimeline(simulation, admission, self.works, self.settings, zero_s, self.titles)
        self.timeline.start()

    def report(self, end_s: float) -> QueueReport:
        """Return the report on the queues after the run.

        Raises  StateError before it
        """
        if self.timeline is None:
            raise StateError("the queues of this cluster were not simulated; attach them to a simulation first")
        return queue_report(self.timeline, end_s, fair=self.settings.fair)


def has_queues(documents: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether there is a ClusterQueue."""
    return any(one.get("kind") == "ClusterQueue" for one in documents)


def queued_cluster(
    cluster: ClusterInput, documents: Sequence[Mapping[str, Any]], more: Callable[[Objects], Iterable[QueuedWork]] | None = None
) -> QueuedCluster:
    """Return a cluster with its works in queues. ``more`` makes works that the cluster does not have, such as those of a trace.

    Raises  InputError for objects that cannot be read
    """
    objects = read_objects(documents, "Kueue")
    for space in cluster.namespaces:
        objects.namespaces[space.name] = {"kubernetes.io/metadata.name": space.name, **space.metadata.labels}
    priorities = {
        str(one["metadata"]["name"]): int(one.get("value") or 0)
        for one in documents
        if one.get("kind") == "WorkloadPriorityClass"
    }
    held = [
        read_workload(one, where="Kueue: Workload")
        for one in documents
        if one.get("kind") == "Workload" and not _is_finished(one)
    ]
    rest, works = find_works(cluster, objects, priorities, held)
    standing = {id(work.workload) for work in works}
    for one in held:
        if id(one) not in standing:
            works.append(QueuedWork(f"Workload/{one.name}", one, [[] for _ in one.pod_sets], [0] * len(one.pod_sets)))
    if more is not None:
        works += more(objects)
    if not cluster.namespaces:
        for work in works:
            name = work.workload.namespace
            objects.namespaces.setdefault(name, {"kubernetes.io/metadata.name": name})
    return QueuedCluster(rest, objects, works, read_settings(documents), documents)


def _is_finished(workload: Mapping[str, Any]) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Finished" and one.get("status") == "True" for one in conditions)
