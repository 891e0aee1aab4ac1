"""Kinds of jobs that controllers outside Kubernetes run: JobSet, LeaderWorkerSet, RayJob, PyTorchJob and their like.

``job_kinds.toml`` says for each kind where its pod sets stand. Without a queue that holds it back, such an object has the pods
that its controller creates for it, as far as templates and counts say it: no object disappears because its controller is none
of Kubernetes' own.

Source  the API types of JobSet, LeaderWorkerSet, KubeRay, Kubeflow Trainer v1 and MPI Operator; Kueue, pkg/controller/jobs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from moorage.api.core import Pod, PodTemplateSpec
from moorage.api.custom_objects import CustomObject
from moorage.api.decode import decode
from moorage.api.validation.rule_tables import field_of
from moorage.basis import text_of
from moorage.basis.printable import clip
from moorage.errors import InputError
from moorage.simulator.owners import owner_reference
from moorage.simulator.pod_factory import MAX_PODS, PodFactory


class PodSetPlace(Struct, frozen=True, forbid_unknown_fields=True):
    """Pod sets at one place of an object; ``job_kinds.toml`` explains the fields."""

    at: str
    template: str
    name: str = ""
    numbers: tuple[str, ...] = ()
    most: str = ""
    keys: tuple[str, ...] = ()
    less: int = 0


class _Data(Struct, frozen=True, forbid_unknown_fields=True):
    kinds: dict[str, tuple[PodSetPlace, ...]]
    suspended: dict[str, str]
    submitter: dict[str, Any]


_DATA: Final = msgspec.toml.decode(text_of("moorage.simulator", "job_kinds.toml"), type=_Data)
#: Kinds by plural, version and group, and where their pod sets stand.
PLACES: Final[Mapping[str, tuple[PodSetPlace, ...]]] = _DATA.kinds
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
KINDS: Final = (*QUEUE_KINDS, *PLACES)
#: The name, the count and the template of a pod set.
PodSet = tuple[str, int, PodTemplateSpec]
#: Counts have 32 bits, one of them for the sign.
_MOST_COUNT: Final = 2**31
_ENDED: Final = frozenset({"Completed", "Complete", "Failed", "Succeeded"})


def kind_of(obj: CustomObject) -> str:
    """Return the kind of an object, as it says it."""
    return str(obj.document.get("kind"))


def title_of(obj: CustomObject) -> str:
    """Return the kind, namespace and name of an object."""
    return f"{kind_of(obj)} {obj.namespace}/{obj.name}"


def pod_sets_of(obj: CustomObject) -> tuple[PodSet, ...]:
    """Return the pod sets of an object of a kind in ``PLACES``; of a LeaderWorkerSet, those of one replica.

    Raises  InputError for templates and counts that cannot be read
    """
    document = _with_submitter(obj.document) if obj.resource.startswith("rayjobs") else obj.document
    return tuple(found for place in PLACES[obj.resource] for found in _pod_sets(document, place, title_of(obj)))


def suffixes_of(obj: CustomObject) -> tuple[str, ...]:
    """Return the suffixes of the names of an object's equal parts: one for each replica of a LeaderWorkerSet.

    Raises  InputError for a number of replicas that cannot be read, or that is beyond what can be simulated
    """
    if not obj.resource.startswith("leaderworkersets"):
        return ("",)
    where = f"{title_of(obj)}: spec.replicas"
    replicas = whole_number(obj.get("spec", "replicas", default=1), where)
    if replicas > MAX_PODS:
        raise InputError(f"{where}: {replicas} are more than {MAX_PODS}, the most that can be simulated")
    return tuple(f"-{number}" for number in range(replicas))


def is_suspended(obj: CustomObject) -> bool:
    """Return True for an object that waits to be resumed."""
    path = _DATA.suspended.get(obj.resource.partition(".")[2].partition(".")[2])
    return path is not None and field_of(obj.document, path) is True


def is_over(obj: CustomObject) -> bool:
    """Return True for an object that has ended, or is being deleted."""
    status = obj.document.get("status")
    status = status if isinstance(status, Mapping) else {}
    if obj.metadata.deletion_timestamp is not None or {status.get("terminalState"), status.get("jobDeploymentStatus")} & _ENDED:
        return True
    conditions = status.get("conditions")
    return any(
        isinstance(one, Mapping) and one.get("type") in _ENDED and one.get("status") == "True"
        for one in (conditions if isinstance(conditions, list) else ())
    )


def new_pods(obj: CustomObject, taken: set[tuple[str, str]]) -> Iterator[Pod]:
    """Yield the pods that an object's controller creates. ``taken``: the namespaces and names of pods.

    Raises  InputError for an object that cannot be read
    """
    owner = owner_reference(str(obj.document.get("apiVersion")), kind_of(obj), obj.metadata)
    sets = pod_sets_of(obj)
    for suffix in suffixes_of(obj):
        for name, count, template in sets:
            factory = PodFactory(template, obj.namespace or "default", owner, taken)
            yield from factory.numbered(count, f"{obj.name}{suffix}-{name}")


def _pod_sets(document: Mapping[str, Any], place: PodSetPlace, where: str) -> Iterator[PodSet]:
    there = field_of(document, place.at)
    if isinstance(there, list):
        named = [(str(field_of(one, place.name)), one) for one in there]
    elif place.keys:
        named = [(key, there[key]) for key in place.keys if key in (there or {})]
    else:
        named = [(place.name.removeprefix("="), there)]
    for name, one in named:
        template = field_of(one, place.template)
        if template is None:
            continue
        count = 1
        for path in place.numbers:
            number = field_of(one, path)
            factor = 1 if number is None else whole_number(number, f"{where}: {place.at}: {path}")
            if path == place.numbers[-1] and place.most and (limit := field_of(one, place.most)) is not None:
                factor = min(factor, whole_number(limit, f"{where}: {place.at}: {place.most}"))
            count *= factor
        if place.less and field_of(one, "leaderTemplate") is not None:
            count -= place.less
        yield name.lower(), count, decode(template, PodTemplateSpec, f"{where}: {place.at}: {place.template}")


def _with_submitter(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a RayJob with the pod, or the container of the head, that submits it; KubeRay adds it if the object has none."""
    spec = {**(document.get("spec") or {})}
    mode, given = spec.get("submissionMode") or "K8sJobMode", spec.pop("submitterPodTemplate", None)
    head = field_of(spec, "rayClusterSpec.headGroupSpec")
    containers = field_of(head, "template.spec.containers") or []
    if mode == "K8sJobMode":
        image = containers[0].get("image", "") if containers else ""
        default = {"spec": {"containers": [{**_DATA.submitter, "image": image}], "restartPolicy": "Never"}}
        spec["submitterPodTemplate"] = given or default
    elif mode == "SidecarMode" and containers:
        template = {**head["template"], "spec": {**head["template"]["spec"], "containers": [*containers, _DATA.submitter]}}
        spec["rayClusterSpec"] = {**spec["rayClusterSpec"], "headGroupSpec": {**head, "template": template}}
    return {**document, "spec": spec}


def whole_number(value: Any, where: str) -> int:
    """Return a count of an object or an annotation.

    Raises  InputError unless it is a whole number of at least 0 that has 32 bits, as the fields of counts have
    """
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number < _MOST_COUNT:
        raise InputError(f"{where}: {clip(repr(value), 60)} is no count; use a whole number of at least 0")
    return number
