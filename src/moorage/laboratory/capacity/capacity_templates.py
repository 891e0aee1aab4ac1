"""Templates for questions of capacity: a pod, or a workload whose pods are counted.

A template comes from a file, from objects in any form, or from the cluster itself: ``deployment/web``, ``pod/shop/web-0``.
Pods of a workload are those that its controller would create next, with the labels, owner and claims that they would have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from os.path import exists
from typing import Any, Final

from msgspec.structs import replace

from moorage.api.core import Object, ObjectMeta, Pod, PodStatus, ReplicationController
from moorage.api.documents.object_fields import stable_uid
from moorage.api.workloads import CronJob, DaemonSet, Deployment, Job, ReplicaSet, StatefulSet, StatefulSetOrdinals
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.basis.printable import close_to
from moorage.errors import InputError
from moorage.laboratory.cluster_objects import ObjectLike, key_of, kind_name, read_given, text_of
from moorage.laboratory.edit.edits import WORKLOAD_KINDS
from moorage.rules.workloads import daemon_set as daemon_nodes
from moorage.rules.workloads.missing_pods import content_hash
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import controller_of, owner_reference
from moorage.simulator.pod_factory import PodFactory
from moorage.simulator.workloads import expand

_SLOTS: Final = {kind.type: kind.slot for kind in KINDS}
#: Owners of pods that the scheduler reads.
_OWNERS: Final = (ReplicaSet, StatefulSet, ReplicationController)
_PODS_FROM: Final = (Deployment, StatefulSet, ReplicaSet, ReplicationController, Job, CronJob, DaemonSet)


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """The methods of a cluster that templates need: ``get`` returns a present object by name, ``objects`` all of them."""

    get: Callable[[str], Object]
    objects: Callable[[], Iterable[Object]]


@dataclass(frozen=True, slots=True)
class CapacityTemplate:
    """A pod to be counted. ``instance`` makes the pods; ``around`` are objects that must exist before the first of them.

    ``numbered``: the stateful set whose pods have claims of their own.
    """

    name: str
    pod: Pod
    kind: str = "Pod"
    around: tuple[Object, ...] = ()
    numbered: StatefulSet | None = field(default=None)

    def instances(self, taken: Callable[[str], bool]) -> Iterator[tuple[Pod, tuple[Object, ...]]]:
        """Yield pods ``NAME-0``, ``NAME-1`` …, each with the objects that it needs. ``taken``: is a name in use?"""
        number = -1
        while True:
            number += 1
            name = f"{self.name}-{number}"
            if taken(f"{self.pod.namespace}/{name}"):
                continue
            yield self._numbered(number) if self.numbered is not None else (self._named(name), ())

    def _named(self, name: str) -> Pod:
        metadata = self.pod.metadata
        uid = stable_uid("Pod", metadata.namespace, f"{name}/capacity")
        return replace(self.pod, metadata=replace(metadata, name=name, uid=uid))

    def _numbered(self, number: int) -> tuple[Pod, tuple[Object, ...]]:
        assert self.numbered is not None
        metadata = replace(self.numbered.metadata, deletion_timestamp=None)
        one = replace(self.numbered.spec, replicas=1, ordinals=StatefulSetOrdinals(start=number))
        made = expand(ClusterInput(stateful_sets=(replace(self.numbered, metadata=metadata, spec=one),)))
        (pod,) = made.pods
        spec = replace(pod.spec, **{name: getattr(self.pod.spec, name) for name in _ADMITTED})
        return replace(pod, spec=spec), made.persistent_volume_claims


#: Fields of a pod's spec that admission sets.
_ADMITTED: Final = (
    "containers", "init_containers", "priority", "priority_class_name", "preemption_policy", "tolerations", "overhead",
    "node_selector", "scheduler_name",
)  # fmt: skip


def read_template(given: ObjectLike, source: TemplateSource, name: str = "") -> CapacityTemplate:
    """Return the template from a file, an object, YAML text or the name of an object in the cluster.

    ``name`` replaces the name of the pods.
    Raises  InputError for input that cannot be read, and for objects without pods or with several templates
    """
    if isinstance(given, str | PathLike) and text_of(given) is None and not exists(fspath(given)):
        return _template(_found(fspath(given), source), (), source.objects(), name)
    read = read_given([given])
    where = fspath(given) if isinstance(given, str | PathLike) and text_of(given) is None else "the template"
    objects = [obj for kind in KINDS for obj in getattr(read, kind.slot, ()) if isinstance(obj, Object)]
    with_pods = [obj for obj in objects if isinstance(obj, (Pod, *_PODS_FROM))]
    if len(with_pods) != 1:
        found = ", ".join(map(key_of, with_pods)) or "none"
        raise InputError(f"{where}: a template is one pod or one workload; found {found}")
    others = [obj for obj in objects if obj is not with_pods[0] and kind_name(obj) != "Namespace"]
    return _template(with_pods[0], others, (), name)


def _found(ref: str, source: TemplateSource) -> Object:
    """Return the object with this name; a name without a kind may be the name of a workload."""
    try:
        found = source.get(ref)
    except InputError as error:
        if "." in ref.rpartition("/")[2] and not ref.startswith(("pod/", "deployment/")):
            raise InputError(f"{ref}: no such file, and {error}") from None
        first, _, short = ref.rpartition("/")
        kind = WORKLOAD_KINDS.get(first.lower())
        workloads = [obj for obj in source.objects() if isinstance(obj, _PODS_FROM) and controller_of(obj.metadata) is None]
        named = [
            obj for obj in workloads
            if obj.name == short and (kind_name(obj) == kind if kind else first in ("", obj.namespace))
        ]  # fmt: skip
        named = [obj for obj in named if not first and obj.namespace == "default"] or named
        if len(named) != 1:
            several = f"; {ref} may be {', '.join(map(key_of, named))}" if named else ""
            close = "" if several or "; close: " in str(error) else close_to(ref, [obj.key for obj in workloads])
            raise InputError(f"{ref}: no such file, and {error}{several}{close}") from None
        found = named[0]
    if not isinstance(found, (Pod, *_PODS_FROM)):
        raise InputError(f"{ref} is not a pod or a workload")
    return found


def _template(obj: Object, others: Sequence[Object], present: Iterable[Object], name: str) -> CapacityTemplate:
    """Return the template of a pod or workload. ``present``: the cluster's objects, if the workload is one of them."""
    if isinstance(obj, Pod):
        return CapacityTemplate(name or obj.name, _cleared(obj), around=tuple(others))
    if isinstance(obj, DaemonSet):
        template = daemon_nodes.pod_template(obj, content_hash(obj.spec.template))
        owner = owner_reference("apps/v1", "DaemonSet", obj.metadata)
        pod = _cleared(PodFactory(template, obj.namespace, owner, set()).named(obj.name))
        return CapacityTemplate(name or obj.name, pod, "DaemonSet", tuple(others))
    known = list(present)
    made = expand(_alone(obj, known))
    if not made.pods:
        raise InputError(f"{key_of(obj)} makes no pod: another controller manages it")
    owners: list[Object] = [*made.replica_sets, *made.stateful_sets, *made.replication_controllers]
    uids = {one.metadata.uid for one in known if isinstance(one, _OWNERS)}
    around = (*others, *(one for one in owners if one.metadata.uid not in uids))
    numbered = obj if isinstance(obj, StatefulSet) and obj.spec.volume_claim_templates else None
    return CapacityTemplate(name or obj.name, _cleared(made.pods[0]), kind_name(obj), around, numbered)


def _cleared(pod: Pod) -> Pod:
    """Return a pod without the fields that a scheduler or a kubelet sets, and without labels of a single instance."""
    labels = {key: value for key, value in pod.labels.items() if key not in _OF_ONE}
    metadata = replace(pod.metadata, labels=labels, deletion_timestamp=None, uid="", generate_name="")
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=""), status=PodStatus(phase="Pending"))


#: Labels of a single pod of a stateful set or an indexed job.
_OF_ONE: Final = frozenset(
    ["statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index"]
)


def _alone(workload: Any, present: Iterable[Object]) -> ClusterInput:
    """Return an input in which a workload lacks one pod. The pods of a deployment are those of its present replica sets."""
    metadata: ObjectMeta = replace(workload.metadata, deletion_timestamp=None)
    spec = workload.spec
    if isinstance(workload, CronJob):
        spec = replace(spec, suspend=False, job_template=replace(spec.job_template, spec=_one_pod(spec.job_template.spec)))
    elif isinstance(workload, Job):
        return ClusterInput(jobs=(replace(workload, metadata=metadata, spec=_one_pod(spec), status=type(workload.status)()),))
    elif isinstance(workload, Deployment):
        spec = replace(spec, replicas=1, paused=False)
    else:
        spec = replace(spec, replicas=1)
    fields: dict[str, Any] = {_SLOTS[type(workload)]: (replace(workload, metadata=metadata, spec=spec),)}
    if isinstance(workload, Deployment):
        owned = [obj for obj in present if isinstance(obj, ReplicaSet) and _owns(workload, obj)]
        sets = tuple(replace(obj, spec=replace(obj.spec, replicas=0)) for obj in owned)
        fields["replica_sets"] = sets
    return ClusterInput(**fields)


def _one_pod(spec: Any) -> Any:
    return replace(spec, parallelism=1, completions=1, suspend=False, managed_by=None)


def _owns(workload: Object, obj: Object) -> bool:
    owner, mine = controller_of(obj.metadata), workload.metadata
    return owner is not None and obj.metadata.namespace == mine.namespace and (owner.uid == mine.uid or owner.name == mine.name)
