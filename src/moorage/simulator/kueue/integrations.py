"""Integrations: which pod sets an object asks a queue for, and the pods that it starts with.

``job_kinds`` says for each kind where its pod sets stand. Jobs, Deployments, StatefulSets and plain pods
have controllers in the simulator, which create their pods. A trace has no queues: LocalQueues share its pods out. Which pod
goes to which queue depends on the seed and the pod's name, so that another configuration of the queues sees the same jobs.

Source  Kueue, pkg/controller/jobs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from moorage.api.core import ObjectMeta, Pod, PodSpec, PodTemplateSpec
from moorage.api.documents.object_fields import stable_uid
from moorage.api.pod_requests import every_request
from moorage.api.selectors import Selector, SelectorError, parse_selector
from moorage.api.workloads import Job
from moorage.basis import text_of
from moorage.basis.printable import counted, some
from moorage.errors import InputError
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.job_kinds import kind_of, pod_sets_of, suffixes_of, whole_number
from moorage.simulator.kueue.objects import Objects
from moorage.simulator.kueue.request_defaults import RequestDefaults
from moorage.simulator.kueue.settings import ManagedJobs, seconds_at
from moorage.simulator.kueue.workloads import Completing, Workload, read_workload
from moorage.simulator.owners import controller_of, is_active, owner_reference
from moorage.simulator.pod_creation import create_pods
from moorage.simulator.pod_factory import PodFactory
from moorage.simulator.trace import Arrival, Trace
from moorage.simulator.workloads import is_finished, next_jobs

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
#: Annotations: how long each pod of an object runs, and when the object arrives, as durations such as ``1h30m``.
DURATION: Final = "moorage.dev/duration"
ARRIVAL: Final = "moorage.dev/arrival"
_PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
_LEAST_PODS: Final = "kueue.x-k8s.io/job-min-parallelism"
_GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
_GROUP_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
_FAST: Final = "kueue.x-k8s.io/pod-group-fast-admission"
_ROLE: Final = "kueue.x-k8s.io/role-hash"
_TIME_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
#: Annotations of a LocalQueue: which part of the pods of a trace it gets, in proportion to others, and a selector of them.
_SHARE: Final = "moorage.dev/trace-share"
_SELECTOR: Final = "moorage.dev/trace-selector"


#: Fields of a topology request by the annotation that sets each.
_TOPOLOGY: Final[Mapping[str, str]] = msgspec.toml.decode(
    text_of("moorage.simulator.kueue", "topology_annotations.toml"), type=dict[str, dict[str, str]]
)["topology"]


@dataclass(slots=True, eq=False)
class QueuedWork:
    """What a queue admits as a whole: a workload, and the pods that stand for it.

    ``title``        the object, as ``Job/train``
    ``pods``         for each pod set the pods that it starts with, without the labels of flavors
    ``completions``  how many pods of each pod set must end well; 0: as many as it starts with
    ``duration_s``   how long each pod runs; None: it never ends
    ``lasts_s``      how long the workload may hold its quota
    ``until_gone``   when it is evicted it holds its quota until its pods are gone, not until they begin to end
    ``is_bare``      no controller makes its pods again once they are evicted
    ``held_back``    why Kueue makes no Workload for it: it is not queued
    """

    title: str
    workload: Workload
    pods: list[list[Pod]]
    completions: list[int]
    arrival_s: float = 0.0
    duration_s: float | None = None
    lasts_s: float | None = None
    until_gone: bool = False
    is_bare: bool = False
    held_back: str = ""


class Times(NamedTuple):
    """When a work was created, for its place in the queue, when it arrives in the simulation, and how long its pods run."""

    created: float
    arrival_s: float = 0.0
    duration_s: float | None = None


class _Item(NamedTuple):
    """An object that makes workloads. If it has no pod sets here, a controller in the simulation makes its pods."""

    kind: str
    meta: ObjectMeta
    pod_sets: tuple[tuple[str, int, PodTemplateSpec], ...] = ()
    job: Job | None = None
    suffix: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.meta.namespace, self.kind, self.meta.name


def find_works(
    cluster: ClusterInput, objects: Objects, priorities: Mapping[str, int], held: Iterable[Workload] = (),
    jobs: ManagedJobs | None = None, completing: RequestDefaults | None = None,
) -> tuple[ClusterInput, list[QueuedWork]]:  # fmt: skip
    """Return the works of a cluster, in the order of its objects, and the cluster without them and their waiting pods.

    ``held``: Workloads of the input, which stand for their owners. ``jobs``: which jobs Kueue manages; None: those with a queue
    Raises  InputError for objects that cannot be read
    """
    managed, completing = _Managed(objects, jobs or ManagedJobs()), completing or RequestDefaults(cluster)
    cluster = _with_started(cluster, managed)
    items = [*_typed_items(cluster, managed), *_custom_items(cluster, managed)]
    queued = {item.key for item in items}
    known = _by_owner(held)
    cluster, known = _without_resized(cluster, items, known, completing)
    reader = _Reader(cluster, priorities, known, managed, completing)
    children = {_key(one.metadata): owner for one in cluster.jobs if (owner := _owner(one.metadata)) in queued}
    given_pods = {pod.uid for pod in cluster.pods}
    running = {owner for pod in cluster.pods for owner in _owners(pod, children)}
    made = [[] if item.key in running else _new_pods(item) for item in items]

    def controllers(*, are_queued: bool) -> dict[str, Any]:
        found: dict[str, Any] = {
            field: tuple(one for one in getattr(cluster, field) if (_key(one.metadata, kind) in queued) is are_queued)
            for field, kind in (("deployments", "Deployment"), ("stateful_sets", "StatefulSet"))
        }
        owned = tuple(one for one in cluster.replica_sets if (_owner(one.metadata) in queued) is are_queued)
        return {**found, "replica_sets": owned}

    subset = with_fields(
        cluster, **controllers(are_queued=True),
        jobs=tuple(item.job.replace(spec=item.job.spec.replace(suspend=False)) for item in items if item.job is not None),
        daemon_sets=(), cron_jobs=(), replication_controllers=(), job_objects=(),
        pods=(*cluster.pods, *(pod for sets in made for pods in sets for pod in pods)),
    )  # fmt: skip
    created = create_pods(subset, quota=False).cluster
    above = {_key(one.metadata, "ReplicaSet"): owner for one in created.replica_sets if (owner := _owner(one.metadata))}
    found: dict[tuple[str, str, str], list[Pod]] = {}
    for pod in created.pods:
        if is_active(pod):
            for owner in _owners(pod, {**children, **above}):
                found.setdefault(owner, []).append(pod)
    by_uid = {pod.uid: pod for pod in created.pods}
    for item, sets in zip(items, made, strict=True):
        reader.add(item, [[by_uid[pod.uid] for pod in pods] for pods in sets] if any(sets) else [found.get(item.key, [])])
    reader.add_loose(pod for pod in created.pods if not pod.metadata.owner_references and managed.has("pod", pod.metadata))
    taken = {pod.uid for work in reader.works for pods in work.pods for pod in pods if not pod.spec.node_name} | reader.gone
    left = with_fields(
        cluster,
        **controllers(are_queued=False),
        jobs=tuple(one for one in cluster.jobs if not {_key(one.metadata), children.get(_key(one.metadata))} & queued),
        pods=tuple(one for one in created.pods if one.uid in given_pods and one.uid not in taken),
        job_objects=tuple(one for one in cluster.job_objects if _key(one.metadata, kind_of(one)) not in queued),
        persistent_volume_claims=created.persistent_volume_claims,
        resource_claims=created.resource_claims,
        report=with_fields(cluster.report, notes=(*cluster.report.notes, *reader.notes)),
    )
    return left, reader.works


_Known = dict[tuple[str, str, str], Workload]


def _by_owner(held: Iterable[Workload]) -> _Known:
    """Return Workloads by their owners; that of a pod group has the name of the group."""
    found: _Known = {}
    for one in held:
        if one.owner is not None:
            found[one.namespace, *one.owner] = one
            if one.owner[0] == "Pod":
                found[one.namespace, "PodGroup", one.name] = one
    return found


def _without_resized(
    cluster: ClusterInput, items: Sequence[_Item], known: _Known, completing: Completing
) -> tuple[ClusterInput, _Known]:
    """Return a cluster without the pods of Jobs that ask for other pods than their Workloads hold quota for.

    Kueue suspends such a Job, deletes its Workload, and queues it again; one that holds no quota yet is changed where it waits.
    """
    gone: dict[tuple[str, str, str], Workload] = {}
    for item in items:
        workload = known.get(item.key)
        if item.job is not None and workload is not None and not _stands_for(workload, item, completing):
            gone[item.key] = workload
    if not gone:
        return cluster, known
    stopped = {key for key, workload in gone.items() if workload.admission}
    notes = [
        f"{kind} {namespace}/{name} asks for other pods than its Workload {gone[namespace, kind, name].name} was admitted for: "
        "Kueue suspends it, and queues it again"
        for namespace, kind, name in sorted(stopped)
    ]
    pods = tuple(pod for pod in cluster.pods if not stopped.intersection(_owners(pod, {})))
    report = with_fields(cluster.report, notes=(*cluster.report.notes, *notes))
    return with_fields(cluster, pods=pods, report=report), {key: one for key, one in known.items() if key not in gone}


def _stands_for(workload: Workload, item: _Item, completing: Completing) -> bool:
    """Return whether a Workload asks for the pods that an object has now."""
    if len(workload.pod_sets) != len(item.pod_sets):
        return False
    admitted = {one.name: one.count for one in workload.admission}
    for held, (_, count, template) in zip(workload.pod_sets, item.pod_sets, strict=True):
        counts = {held.count + workload.reclaimed.get(held.name, 0)}
        if held.min_count is not None and held.name in admitted:
            counts.add(admitted[held.name] + workload.reclaimed.get(held.name, 0))
        if count not in counts or every_request(completing.complete(workload.namespace, template.spec)) != held.requests:
            return False
    return True


class _Managed:
    """Which objects Kueue manages."""

    def __init__(self, objects: Objects, jobs: ManagedJobs) -> None:
        self._objects = objects
        self._jobs = jobs

    def has(self, framework: str, meta: ObjectMeta) -> bool:
        namespace = meta.namespace or "default"
        labels = self._objects.namespaces.get(namespace, {"kubernetes.io/metadata.name": namespace})
        if not self._jobs.has(framework) or not self._jobs.namespaces.matches(labels):
            return False
        if QUEUE_LABEL in meta.labels:
            return True
        # Where the kinds are not listed, those that serve are not taken for jobs.
        is_job = "/" in framework or self._jobs.frameworks is not None
        return is_job and (self._jobs.all_jobs or self._has_default(namespace))

    def queue_of(self, meta: ObjectMeta) -> str:
        """Return the LocalQueue; in a namespace that has one of the name ``default``, jobs without a label go there."""
        default = "default" if self._has_default(meta.namespace or "default") else ""
        return meta.labels.get(QUEUE_LABEL, default)

    def _has_default(self, namespace: str) -> bool:
        return f"{namespace}/default" in self._objects.local_queues


def work_of_pods(
    title: str, pods: Sequence[Pod], queue: str, priority: int, times: Times, *, count: int = 0,
    completing: Completing | None = None,
) -> QueuedWork:  # fmt: skip
    """Return the work of pods that are admitted together; pods of one role make one pod set.

    ``count``: how many pods it asks for, all of the first role; 0: as many as there are
    """
    roles: dict[str, list[Pod]] = {}
    shapes: dict[int, str] = {}
    for pod in pods:
        if id(pod.spec) not in shapes:
            shapes[id(pod.spec)] = pod.metadata.annotations.get(_ROLE) or role_of(pod.spec)
        roles.setdefault(shapes[id(pod.spec)], []).append(pod)
    if all(_ROLE in group[0].metadata.annotations for group in roles.values()):
        roles = {name: roles[name] for name in sorted(roles)}
    sets = list(roles.values())
    names = ["main"] if len(sets) == 1 else list(roles)
    meta = pods[0].metadata
    kind, _, name = title.partition("/")
    pod_sets = [
        _pod_set(named, count or len(group), group[0].spec, group[0].metadata) for named, group in zip(names, sets, strict=True)
    ]
    data = _workload_data(meta.namespace, f"{kind.lower()}-{name}", meta.uid, queue, priority, pod_sets)
    workload = read_workload(data, times.created, completing=completing)
    return QueuedWork(title, workload, sets, [0] * len(sets), times.arrival_s, times.duration_s, until_gone=True)


def role_of(spec: PodSpec) -> str:
    """Return the role of a pod in its group: pods with one role ask for the same.

    Source  Kueue, pkg/util/pod/pod.go, GenerateRoleHash
    """
    shape = [
        [[sorted(one.resources.requests.items()), one.ports] for one in spec.init_containers],
        [[sorted(one.resources.requests.items()), one.ports] for one in spec.containers],
        sorted(spec.node_selector.items()), spec.affinity, spec.tolerations, spec.runtime_class_name, spec.priority,
        spec.topology_spread_constraints, sorted(spec.overhead.items()), spec.resource_claims,
    ]  # fmt: skip
    return blake2b(msgspec.json.encode(shape), digest_size=4).hexdigest()


class _Reader:
    """Makes the works; those without a time of creation are as old as their place says."""

    def __init__(
        self, cluster: ClusterInput, priorities: Mapping[str, int], known: _Known, managed: _Managed, completing: Completing
    ) -> None:
        self.works: list[QueuedWork] = []
        #: The UIDs of pods that Kueue, or its webhook, removes; and what to tell of them.
        self.gone: set[str] = set()
        self.notes: list[str] = []
        self._managed = managed
        self._completing = completing
        self._priorities = priorities
        self._known = known
        self._last = max((one.created for one in known.values()), default=0.0)
        self._classes = {one.name: one.value for one in cluster.priority_classes}
        self._default = next((one.value for one in cluster.priority_classes if one.global_default), 0)

    def add(self, item: _Item, sets: list[list[Pod]]) -> None:
        title, meta, times = f"{item.kind}/{item.meta.name}", item.meta, self._times(item.meta)
        if not item.pod_sets:
            is_split = item.kind == "Deployment"  # each of its pods is a work
            for group in [[pod] for pod in sets[0]] if is_split else filter(None, sets):
                self._add_pods(title, group, meta, times)
                if is_split:
                    self.works[-1].workload = with_fields(self.works[-1].workload, name=f"pod-{group[0].name}")
            return
        pod_sets = [_pod_set(name, count, template.spec, template.metadata) for name, count, template in item.pod_sets]
        completions = [0] * len(pod_sets)
        if item.job is not None:
            if (least := meta.annotations.get(_LEAST_PODS, "")).isdigit():
                pod_sets[0]["minCount"] = int(least)
            if item.job.spec.completions:
                completions = [max(item.job.spec.completions - item.job.status.succeeded, 1)]
        priority = self._priority(meta, item.pod_sets[0][2].spec)
        name, uid = f"{item.kind.lower()}-{meta.name}{item.suffix}", (meta.uid or meta.name) + item.suffix
        data = _workload_data(meta.namespace, name, uid, self._managed.queue_of(meta), priority, pod_sets)
        workload = self._known.get(item.key) or read_workload(data, times.created, completing=self._completing)
        sets += [[] for _ in pod_sets[len(sets) :]]  # where the pods are those of the input
        lasts = meta.labels.get(_TIME_LABEL, "")
        lasts_s = float(lasts) if lasts.isdigit() else None
        self.works.append(QueuedWork(title, workload, sets, completions, times.arrival_s, times.duration_s, lasts_s))

    def _add_pods(self, title: str, pods: list[Pod], meta: ObjectMeta, times: Times, *, count: int = 0) -> None:
        priority = self._priority(meta, pods[0].spec)
        queue = self._managed.queue_of(meta)
        work = work_of_pods(title, pods, queue, priority, times, count=count, completing=self._completing)
        self.works.append(work)

    def add_loose(self, pods: Iterable[Pod]) -> None:
        """Make works of pods without a controller, together if they name a group."""
        groups: dict[tuple[str, str, str], list[Pod]] = {}
        for pod in pods:
            name = pod.labels.get(_GROUP_LABEL)
            groups.setdefault((pod.namespace, "PodGroup" if name else "Pod", name or pod.name), []).append(pod)
        for key, group in groups.items():
            if key[1] == "Pod":
                if is_active(group[0]):
                    self._add_group(key, group, group)
                continue
            if refused := [pod for pod in group if pod.metadata.creation_timestamp is None and _GROUP_TOTAL not in _notes(pod)]:
                self.gone |= {pod.uid for pod in refused}
                self.notes.append(
                    f"Kueue's webhook refuses {counted(len(refused), 'pod')} ({some([pod.key for pod in refused])}): "
                    f"metadata.annotations[{_GROUP_TOTAL}]: Required value: both the '{_GROUP_TOTAL}' annotation and the "
                    f"'{_GROUP_LABEL}' label should be set"
                )
            members = [pod for pod in group if pod.uid not in self.gone and _may_run(pod)]
            if any(is_active(pod) for pod in members):
                self._add_group(key, members, [pod for pod in members if is_active(pod)])

    def _add_group(self, key: tuple[str, str, str], members: list[Pod], active: list[Pod]) -> None:
        """Add the work of a pod or a group. ``members`` have run or may run, ``active`` are those that do."""
        meta, is_group = active[0].metadata, key[1] == "PodGroup"
        total, why = _total_of(key[2], members) if is_group else (1, "")
        if is_group and not why and len(members) > total:
            # Those that were created last go, gated ones first.
            ordered = sorted(active, key=lambda pod: (bool(pod.spec.scheduling_gates), pod.metadata.creation_timestamp or ""))
            extra = ordered[total - len(members) + len(active) :] if total > len(members) - len(active) else ordered
            self.gone |= {pod.uid for pod in extra}
            self.notes.append(f"Kueue deletes {some([pod.key for pod in extra])}: pod group {key[2]} is of {total}")
            active = [pod for pod in active if pod.uid not in self.gone]
            if not active:
                return
        fast = is_group and _FAST in _notes(active[0])
        self._add_pods(f"{key[1]}/{key[2]}", active, meta, self._times(meta), count=total if fast else 0)
        work = self.works[-1]
        work.is_bare = True
        work.held_back = "" if fast else why
        if (known := self._known.get(key)) is not None:
            ours = {one.name: pods for one, pods in zip(work.workload.pod_sets, work.pods, strict=True)}
            names = [one.name for one in known.pod_sets]
            if not ours.keys() <= {*names}:  # Kueue's names of roles are not ours
                ours = dict(zip(names, work.pods, strict=False))
            work.pods = [ours.get(name, []) for name in names]
            work.completions = [0] * len(names)
            work.workload, work.held_back = known, ""

    def _times(self, meta: ObjectMeta) -> Times:
        self._last += 1
        where, stamp = f"{meta.namespace}/{meta.name}: metadata.annotations", meta.creation_timestamp
        arrival, duration = (
            None if (text := meta.annotations.get(name)) is None else seconds_at(text, f"{where}[{name}]")
            for name in (ARRIVAL, DURATION)
        )
        return Times(datetime.fromisoformat(stamp).timestamp() if stamp else self._last, arrival or 0.0, duration)

    def _priority(self, meta: ObjectMeta, spec: PodSpec) -> int:
        named = meta.labels.get(_PRIORITY_LABEL)
        if named is None:
            return self._classes.get(spec.priority_class_name, self._default)
        if named not in self._priorities:
            raise InputError(f"{meta.namespace}/{meta.name}: WorkloadPriorityClass {named} is not in the input")
        return self._priorities[named]


def _notes(pod: Pod) -> Mapping[str, str]:
    return pod.metadata.annotations


def _may_run(pod: Pod) -> bool:
    """Return whether a pod can run, runs, or has run well."""
    is_lost = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return not is_lost and pod.status.phase != "Failed"


def _total_of(name: str, members: Sequence[Pod]) -> tuple[int, str]:
    """Return of how many pods a group is, and why it is not admitted as it stands."""
    texts = [_notes(pod).get(_GROUP_TOTAL) for pod in members]
    first, text = members[0], texts[0]
    if text is None:
        return len(members), f"failed to extract '{_GROUP_TOTAL}' annotation"
    if not text.isdigit() or int(text) < 1:
        what = "group total count should be greater than zero"
        return len(members), f"incorrect annotation value '{_GROUP_TOTAL}={text}': {what}"
    total = int(text)
    if len(members) < total:
        return total, f"'{name}' group has fewer runnable pods than expected"
    for pod, other in zip(members, texts, strict=True):
        queues = first.labels.get(QUEUE_LABEL, ""), pod.labels.get(QUEUE_LABEL, "")
        if queues[0] != queues[1]:
            return total, f"pods '{first.name}' and '{pod.name}' has different queue names: {queues[0]}!={queues[1]}"
        if other != text:
            return total, f"pods '{first.name}' and '{pod.name}' has different '{_GROUP_TOTAL}' values: {text}!={other}"
    return total, ""


def _with_started(cluster: ClusterInput, managed: _Managed) -> ClusterInput:
    """Return the cluster with the next jobs of its cron jobs, as far as they wait in queues, in place of these cron jobs."""
    started = [(one.key, job) for one, job in next_jobs(cluster) if managed.has("batch/job", job.metadata)]
    keys = {key for key, _ in started}
    return with_fields(
        cluster,
        jobs=(*cluster.jobs, *(job for _, job in started)),
        cron_jobs=tuple(one for one in cluster.cron_jobs if one.key not in keys),
    ) if started else cluster  # fmt: skip


def _typed_items(cluster: ClusterInput, managed: _Managed) -> Iterator[_Item]:
    for job in cluster.jobs:
        owner = controller_of(job.metadata)
        if (owner is None or owner.kind == "CronJob") and managed.has("batch/job", job.metadata) and not is_finished(job):
            yield _Item("Job", job.metadata, (("main", _parallelism(job), job.spec.template),), job)
    for kind, controllers in (("Deployment", cluster.deployments), ("StatefulSet", cluster.stateful_sets)):
        yield from (_Item(kind, one.metadata) for one in controllers if managed.has(kind.lower(), one.metadata))


def _custom_items(cluster: ClusterInput, managed: _Managed) -> Iterator[_Item]:
    for one in cluster.job_objects:
        group = one.resource.split(".", 2)[2]
        if managed.has(f"{group}/{kind_of(one).lower()}", one.metadata):
            sets = pod_sets_of(one)
            yield from (_Item(kind_of(one), one.metadata, sets, suffix=suffix) for suffix in suffixes_of(one))


def _new_pods(item: _Item) -> list[list[Pod]]:
    """Return the pods of an object whose controller is not part of the simulator. A Job owns them: it replaces lost ones."""
    found = []
    for name, count, template in item.pod_sets if item.job is None else ():
        meta = replace(item.meta, name=f"{item.meta.name}{item.suffix}-{name}")
        owner = owner_reference("batch/v1", "Job", replace(meta, uid=stable_uid("Job", meta.namespace, meta.name)))
        factory = PodFactory(template, meta.namespace or "default", owner, set())
        found.append([factory.named(f"{meta.name}-{number}") for number in range(count)])
    return found


def _workload_data(
    namespace: str, name: str, uid: str, queue: str, priority: int, pod_sets: list[dict[str, Any]]
) -> dict[str, Any]:  # fmt: skip
    meta = {"namespace": namespace or "default", "name": name, "uid": uid, "labels": {"kueue.x-k8s.io/job-uid": uid}}
    return {"metadata": meta, "spec": {"queueName": queue, "priority": priority, "podSets": pod_sets}}


def _pod_set(name: str, count: int, spec: PodSpec, meta: ObjectMeta) -> dict[str, Any]:
    pod_set: dict[str, Any] = {"name": name, "count": count, "template": {"spec": msgspec.to_builtins(spec)}}
    asked: dict[str, Any] = {field: meta.annotations[label] for label, field in _TOPOLOGY.items() if label in meta.annotations}
    if "podSetSliceSize" in asked:
        asked["podSetSliceSize"] = whole_number(asked["podSetSliceSize"], f"metadata.annotations[{_SLICE_SIZE}]")
    if asked:
        pod_set["topologyRequest"] = asked
    return pod_set


def _parallelism(job: Job) -> int:
    count = 1 if job.spec.parallelism is None else job.spec.parallelism
    return count if job.spec.completions is None else min(count, job.spec.completions)


def _key(meta: ObjectMeta, kind: str = "Job") -> tuple[str, str, str]:
    return meta.namespace, kind, meta.name


def _owner(meta: ObjectMeta) -> tuple[str, str, str] | None:
    owner = controller_of(meta)
    return None if owner is None else (meta.namespace, owner.kind, owner.name)


def _owners(pod: Pod, above: Mapping[tuple[str, str, str], tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield the owner of a pod, and its owner."""
    for one in pod.metadata.owner_references:
        key = (pod.namespace, one.kind, one.name)
        yield key
        if key in above:
            yield above[key]


# -- traces ---------------------------------------------------------------------------------------------------------------


class _Taker(NamedTuple):
    """A LocalQueue and the part of the pods that it gets."""

    namespace: str
    name: str
    share: float
    selector: Selector


def works_of_trace(
    trace: Trace, objects: Objects, documents: Sequence[Mapping[str, Any]], *, seed: int = 0
) -> Iterator[QueuedWork]:
    """Yield a work for each arrival, in a LocalQueue: one for all pods of a gang.

    All LocalQueues take equal parts unless one of them states a part.

    Raises  InputError if no queue takes a pod, or an annotation cannot be read
    """
    takers = _takers(documents)
    if not takers:
        raise InputError(f"no LocalQueue takes the pods of the trace; add one, or give one the annotation {_SHARE}")
    for space in {taker.namespace for taker in takers}:
        if space not in objects.namespaces:
            objects.add_namespace(space, {})
    for number, held in enumerate(_admitted_together(trace)):
        first = held[0]
        pod = first.pod
        taker = _choose([taker for taker in takers if taker.selector.matches(pod.labels)], pod, seed)
        moved = [replace(one.pod, metadata=replace(one.pod.metadata, namespace=taker.namespace)) for one in held]
        times = Times(float(number), first.time_s, first.duration_s)
        title = f"Job/{first.job}" if first.job and len(held) > 1 else f"Pod/{pod.name}"
        yield work_of_pods(title, moved, taker.name, pod.spec.priority or 0, times)


def _admitted_together(trace: Trace) -> Iterator[list[Arrival]]:
    """Yield the arrivals of each gang, and each other arrival. In queues, a gang is one Workload and needs no pod group."""
    units, apart = trace.arrivals.units().tolist(), trace.with_pods_apart().arrivals
    held: dict[int, list[Arrival]] = {}
    sizes = Counter(units)
    for unit, arrival in zip(units, apart, strict=True):
        held.setdefault(unit, []).append(arrival)
        if len(held[unit]) == sizes[unit]:
            yield held.pop(unit)


def _takers(documents: Sequence[Mapping[str, Any]]) -> list[_Taker]:
    queues = [one for one in documents if one.get("kind") == "LocalQueue"]
    notes = [(one.get("metadata") or {}).get("annotations") or {} for one in queues]
    shared = any(_SHARE in note for note in notes)
    found = []
    for one, note in zip(queues, notes, strict=True):
        meta = one["metadata"]
        where = f"LocalQueue {meta.get('namespace', 'default')}/{meta['name']}: metadata.annotations"
        text = note.get(_SHARE, "0" if shared else "1")
        try:
            share = float(text)
            selector = parse_selector(str(note.get(_SELECTOR, "")))
        except SelectorError as error:
            raise InputError(f"{where}[{_SELECTOR}]: {error}") from None
        except ValueError:
            share, selector = -1.0, parse_selector("")
        if not 0 <= share < float("inf"):
            raise InputError(f"{where}[{_SHARE}]: {text!r} is no part; use a number such as 1 or 2.5")
        if share:
            found.append(_Taker(str(meta.get("namespace", "default")), str(meta["name"]), share, selector))
    return found


def _choose(takers: Sequence[_Taker], pod: Pod, seed: int) -> _Taker:
    if not takers:
        raise InputError(f"no LocalQueue takes the pod {pod.name} of the trace: no {_SELECTOR} matches its labels")
    draw = int.from_bytes(blake2b(f"{seed}/{pod.name}".encode(), digest_size=8).digest(), "big") / 2**64
    draw *= sum(taker.share for taker in takers)
    for taker in takers:
        draw -= taker.share
        if draw < 0:
            return taker
    return takers[-1]
