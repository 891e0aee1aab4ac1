"""The jobs of a cluster in their queues: a simulation admits them before it schedules their pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any, Final

from moorage.core.cycle.decision import Decision
from moorage.errors import StateError
from moorage.report.outcome import Run
from moorage.report.queue_report import QueueReport
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import STRICT_RULES, read
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.job_kinds import QUEUE_KINDS
from moorage.simulator.kueue.cycle import QueueAdmission
from moorage.simulator.kueue.figures import queue_report
from moorage.simulator.kueue.integrations import QueuedWork, find_works
from moorage.simulator.kueue.objects import Objects, read_objects
from moorage.simulator.kueue.request_defaults import RequestDefaults
from moorage.simulator.kueue.settings import ResourceRules, Settings, read_settings
from moorage.simulator.kueue.timeline import Episode, QueueTimeline, TimedWork
from moorage.simulator.kueue.validation import with_defaults
from moorage.simulator.kueue.workloads import read_workload
from moorage.simulator.pod_records import SimulatedAttempt
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster

#: A time of creation before it is none: the input does not say it.
_EPOCH_S: Final = 1e8


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
        objects = read_objects(self.documents, lenient=self.settings.resources.lenient)
        objects.namespaces.update(self.objects.namespaces)
        works = [with_fields(one, workload=one.workload.copied()) for one in self.works]
        return QueuedCluster(self.cluster, objects, works, self.settings, self.documents)

    def attach(self, simulation: SimulatedCluster) -> None:
        """Let an empty simulation of ``cluster`` admit the works."""
        zero_s = max((max(one.workload.created, one.workload.reserved_at or 0.0) for one in self.works), default=0.0) + 1
        admission = self._admission()
        self.timeline = QueueTimeline(simulation, admission, self.works, self.settings, zero_s, self.titles)
        self.timeline.start()

    def _admission(self) -> QueueAdmission:
        given = self.settings
        return QueueAdmission(self.objects, fair=given.fair, strategies=given.strategies, usage=given.usage, gates=given.gates)

    def now(self) -> QueueReport:
        """Return the report on the queues as they are in the input, before any run; times are those before now."""
        now_s = max((max(one.workload.created, one.workload.reserved_at or 0.0) for one in self.works), default=0.0)
        admission = self._admission()
        timed = []
        for work in self.works:
            workload = work.workload
            one = TimedWork(work, workload.created - now_s if workload.created >= _EPOCH_S else 0.0)
            if workload.admission and workload.cluster_queue in self.objects.queues:
                admission.hold(workload)
                one.episodes.append(Episode((workload.reserved_at or now_s) - now_s, dict(workload.usage)))
                one.pods = {pod.uid: 0 for pods in work.pods for pod in pods}
                one.placed = {pod.uid for pods in work.pods for pod in pods if pod.spec.node_name}
            else:
                admission.add(workload, now_s)
            timed.append(one)
        return queue_report(admission, timed, 0.0, ran=False)

    def run(
        self, options: Options, on_attempt: Callable[[SimulatedAttempt], None] | None = None,
        on_result: Callable[[Decision], None] | None = None,
    ) -> tuple[SimulatedCluster, Run]:  # fmt: skip
        """Run the cluster with its queues until nothing more happens. It cannot run again.

        Raises  ConfigError, InputError
        """
        prepared = simulation, _ = prepare(options, on_attempt)
        simulation.on_result = on_result
        self.attach(simulation)
        return simulation, simulate_cluster(self.cluster, options, prepared=prepared, titles=self.titles)[1]

    def report(self, end_s: float) -> QueueReport:
        """Return the report on the queues after the run.

        Raises  StateError before it
        """
        if self.timeline is None:
            raise StateError("the queues of this cluster were not simulated; attach them to a simulation first")
        return queue_report(self.timeline.admission, self.timeline.works, end_s)


def read_queues(cluster: ClusterInput, file: str | None) -> list[Mapping[str, Any]]:
    """Return the objects of Kueue in a cluster, and those of a file, which replace objects of the same name.

    If there is no ClusterQueue, there are none.
    Raises  InputError
    """
    found = [one.document for one in cluster.custom if one.resource in QUEUE_KINDS]
    if file is not None:
        found += [one.document for one in read((file,), False, custom=QUEUE_KINDS, rules=STRICT_RULES).custom]
    last = {
        (one.get("kind"), *((one.get("metadata") or {}).get(field) for field in ("namespace", "name"))): one for one in found
    }
    return list(last.values()) if any(one.get("kind") == "ClusterQueue" for one in last.values()) else []


def queued_cluster(
    cluster: ClusterInput, documents: Sequence[Mapping[str, Any]], more: Callable[[Objects], Iterable[QueuedWork]] | None = None
) -> QueuedCluster:
    """Return a cluster with its works in queues. ``more`` makes works that the cluster does not have, such as those of a trace.

    Raises  InputError for objects that cannot be read
    """
    with_defaults(documents)
    manager = next((one for one in cluster.components if one.name == "kueue"), None)
    settings = read_settings(documents, manager)
    completing = RequestDefaults(cluster)
    objects = read_objects(documents, lenient=settings.resources.lenient)
    for space in cluster.namespaces:
        objects.add_namespace(space.name, space.metadata.labels)
    priorities = {
        str(one["metadata"]["name"]): int(one.get("value") or 0)
        for one in documents
        if one.get("kind") == "WorkloadPriorityClass"
    }
    given = [
        read_workload(one, where="Kueue: Workload", completing=completing) for one in documents if one.get("kind") == "Workload"
    ]
    held = [one for one in given if not one.has("Finished")]
    rest, works = find_works(cluster, objects, priorities, held, settings.jobs, completing)
    if settings.notes:
        rest = with_fields(rest, report=with_fields(rest.report, notes=(*rest.report.notes, *settings.notes)))
    standing = {id(work.workload) for work in works}
    replaced = {(work.workload.namespace, *work.title.split("/", 1)) for work in works}
    for one in held:
        if id(one) not in standing and (one.owner is None or (one.namespace, *one.owner) not in replaced):
            works.append(QueuedWork(f"Workload/{one.name}", one, [[] for _ in one.pod_sets], [0] * len(one.pod_sets)))
    if more is not None:
        works += more(objects)
    for name in () if cluster.namespaces else {work.workload.namespace for work in works} - {*objects.namespaces}:
        objects.add_namespace(name, {})
    for work in works if settings.resources != ResourceRules() else ():
        counted = settings.resources.counted
        work.workload.pod_sets = tuple(with_fields(one, counted=counted(one.requests)) for one in work.workload.pod_sets)
    return QueuedCluster(rest, objects, works, settings, documents)
