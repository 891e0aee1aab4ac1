"""Integrations: which pod sets an object asks a queue for, and the pods that it starts with.

``job_kinds`` says for each kind where its pod sets stand. Jobs, Deployments, StatefulSets and plain pods
have controllers in the simulator, which create their pods. A trace has no queues: LocalQueues share its pods out. Which pod
goes to which queue depends on the seed and the pod's name, so that another configuration of the queues sees the same jobs.

Source  Kueue, pkg/controller/jobs
"""

from __future__ import annotations

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
from moorage.api.selectors import Selector, SelectorError, parse_selector
from moorage.api.workloads import Job
from moorage.basis import text_of
from moorage.errors import InputError
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.job_kinds import kind_of, pod_sets_of, suffixes_of, whole_number
from moorage.simulator.kueue.objects import Objects
from moorage.simulator.kueue.settings import seconds_at
from moorage.simulator.kueue.workloads import Workload, read_workload
from moorage.simulator.owners import controller_of, is_active, owner_reference
from moorage.simulator.pod_creation import create_pods
from moorage.simulator.pod_factory import PodFactory
from moorage.simulator.trace import Trace
from moorage.simulator.workloads import is_finished

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
#: Annotations: how long each pod of an object runs, and when the object arrives, as durations such as ``1h30m``.
DURATION: Final = "moorage.dev/duration"
ARRIVAL: Final = "moorage.dev/arrival"
_PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
_LEAST_PODS: Final = "kueue.x-k8s.io/job-min-parallelism"
_GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
_GROUP_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
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
    """

    title: str
    workload: Workload
    pods: list[list[Pod]]
    completions: list[int]
    arrival_s: float = 0.0
    duration_s: float | None = None
    lasts_s: float | None = None
    until_gone: bool = False


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
    cluster: ClusterInput, objects: Objects, priorities: Mapping[str, int], held: Iterable[Workload] = ()
) -> tuple[ClusterInput, list[QueuedWork]]:
    """Return the works of a cluster, in the order of its objects, and the cluster without them and their waiting pods.

    ``held``: Workloads of the input, which stand for their owners.
    Raises  InputError for objects that cannot be read
    """
    items = [*_typed_items(cluster, objects), *_custom_items(cluster, objects)]
    queued = {item.key for item in items}
    reader = _Reader(cluster, priorities, {(one.namespace, *one.owner): one for one in held if one.owner})
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
    reader.add_loose(pod for pod in created.pods if QUEUE_LABEL in pod.labels and not pod.metadata.owner_references)
    taken = {pod.uid for work in reader.works for pods in work.pods for pod in pods if not pod.spec.node_name}
    left = with_fields(
        cluster,
        **controllers(are_queued=False),
        jobs=tuple(one for one in cluster.jobs if not {_key(one.metadata), children.get(_key(one.metadata))} & queued),
        pods=tuple(one for one in created.pods if one.uid in given_pods and one.uid not in taken),
        job_objects=tuple(one for one in cluster.job_objects if _key(one.metadata, kind_of(one)) not in queued),
        persistent_volume_claims=created.persistent_volume_claims,
        resource_claims=created.resource_claims,
    )
    return left, reader.works


def work_of_pods(title: str, pods: Sequence[Pod], queue: str, priority: int, times: Times) -> QueuedWork:
    """Return the work of pods that are admitted together; equal specs make one pod set."""
    roles: dict[int, list[Pod]] = {}
    for pod in pods:
        roles.setdefault(id(pod.spec), []).append(pod)
    sets = list(roles.values())
    names = ["main"] if len(sets) == 1 else [f"role-{number}" for number in range(len(sets))]
    meta = pods[0].metadata
    kind, _, name = title.partition("/")
    pod_sets = [_pod_set(named, len(group), group[0].spec, meta) for named, group in zip(names, sets, strict=True)]
    data = _workload_data(meta.namespace, f"{kind.lower()}-{name}", meta.uid, queue, priority, pod_sets)
    workload = read_workload(data, times.created)
    return QueuedWork(title, workload, sets, [0] * len(sets), times.arrival_s, times.duration_s, until_gone=True)


class _Reader:
    """Makes the works; those without a time of creation are as old as their place says."""

    def __init__(
        self, cluster: ClusterInput, priorities: Mapping[str, int], known: Mapping[tuple[str, str, str], Workload]
    ) -> None:
        self.works: list[QueuedWork] = []
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
        data = _workload_data(meta.namespace, name, uid, _queue_name(meta), priority, pod_sets)
        workload = self._known.get(item.key) or read_workload(data, times.created)
        sets += [[] for _ in pod_sets[len(sets) :]]  # where the pods are those of the input
        lasts = meta.labels.get(_TIME_LABEL, "")
        lasts_s = float(lasts) if lasts.isdigit() else None
        self.works.append(QueuedWork(title, workload, sets, completions, times.arrival_s, times.duration_s, lasts_s))

    def _add_pods(self, title: str, pods: list[Pod], meta: ObjectMeta, times: Times) -> None:
        self.works.append(work_of_pods(title, pods, _queue_name(meta), self._priority(meta, pods[0].spec), times))

    def add_loose(self, pods: Iterable[Pod]) -> None:
        """Make works of pods without a controller, together if they name a group."""
        groups: dict[tuple[str, str, str], list[Pod]] = {}
        for pod in pods:
            name = pod.labels.get(_GROUP_LABEL)
            groups.setdefault((pod.namespace, "PodGroup" if name else "Pod", name or pod.name), []).append(pod)
        for key, group in groups.items():
            meta = group[0].metadata
            total = meta.annotations.get(_GROUP_TOTAL, "1")
            if key[1] == "PodGroup" and (not total.isdigit() or len(group) < int(total)):
                continue  # Kueue waits for all pods of a group before it makes the Workload
            self._add_pods(f"{key[1]}/{key[2]}", group, meta, self._times(meta))
            if (known := self._known.get(key)) is not None:
                self.works[-1].workload = known

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


def _typed_items(cluster: ClusterInput, objects: Objects) -> Iterator[_Item]:
    queued = {_key(one.metadata) for one in cluster.jobs if _is_queued(one.metadata, objects)}
    for job in cluster.jobs:
        if _key(job.metadata) in queued and _owner(job.metadata) is None and not is_finished(job):
            yield _Item("Job", job.metadata, (("main", _parallelism(job), job.spec.template),), job)
    for kind, controllers in (("Deployment", cluster.deployments), ("StatefulSet", cluster.stateful_sets)):
        yield from (_Item(kind, one.metadata) for one in controllers if QUEUE_LABEL in one.metadata.labels)


def _custom_items(cluster: ClusterInput, objects: Objects) -> Iterator[_Item]:
    for one in cluster.job_objects:
        if _is_queued(one.metadata, objects):
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
    meta = {"namespace": namespace or "default", "name": name, "uid": uid}
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


def _is_queued(meta: ObjectMeta, objects: Objects) -> bool:
    return QUEUE_LABEL in meta.labels or f"{meta.namespace or 'default'}/default" in objects.local_queues


def _queue_name(meta: ObjectMeta) -> str:
    """Return the LocalQueue; in a namespace that has one of the name ``default``, jobs without a label go there."""
    return meta.labels.get(QUEUE_LABEL, "default")


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
    """Yield a work for each arrival, in a LocalQueue. All LocalQueues take equal parts unless one of them states a part.

    Raises  InputError if no queue takes a pod, or an annotation cannot be read
    """
    takers = _takers(documents)
    if not takers:
        raise InputError(f"no LocalQueue takes the pods of the trace; add one, or give one the annotation {_SHARE}")
    for space in {taker.namespace for taker in takers}:
        if space not in objects.namespaces:
            objects.add_namespace(space, {})
    for number, arrival in enumerate(trace.arrivals):
        pod = arrival.pod
        taker = _choose([taker for taker in takers if taker.selector.matches(pod.labels)], pod, seed)
        moved = replace(pod, metadata=replace(pod.metadata, namespace=taker.namespace))
        times = Times(float(number), arrival.time_s, arrival.duration_s)
        yield work_of_pods(f"Pod/{pod.name}", [moved], taker.name, pod.spec.priority or 0, times)


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
