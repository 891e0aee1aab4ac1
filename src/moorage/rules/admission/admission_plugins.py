"""The admission plugins of kube-apiserver that matter for scheduling, and the admission of claim resizes and
gang-scheduled jobs.

A new pod gets the default resources of its namespace's limit ranges and must stay within their limits; its priority class
name becomes a number; it gets tolerations for not-ready and unreachable nodes (300 s) and the overhead of its runtime
class. A persistent volume claim without a class gets the default storage class. A pod group gets its priority and a
finalizer that keeps it while it has pods, and must reference an existing workload and template.

Source  kubernetes, plugin/pkg/admission: limitranger, priority, defaulttolerationseconds, runtimeclass,
        storage/storageclass, podgroup, scheduling/podgroupprotection, job
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from msgspec import structs

from moorage.api import admission
from moorage.api.core import LimitRange, Node, Object, Pod
from moorage.api.decode import decode
from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import ApiError, Cause, forbidden, not_found, quoted
from moorage.api.feature_gates import FeatureGates
from moorage.api.pod_groups import CompositePodGroup, PodGroup, Workload
from moorage.api.pod_requests import RequestOptions, pod_requests
from moorage.api.quantity import milli_value, parse, value
from moorage.api.storage import ATTRIBUTES_PROTECTION, PersistentVolumeClaim, StorageClass
from moorage.api.workloads import PriorityClass
from moorage.rules.admission.defaulting import apply_changes

#: The finalizer of pod groups; a controller removes it when the group has no pods left.
GROUP_PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"
T = TypeVar("T", bound=Object)
#: An object as plugins change it, and why they refuse it.
_Admitted = tuple[Object, tuple[str, ...]]


class Lookup(Protocol):
    """Returns all objects of a type in a namespace ("" for cluster-scoped types)."""

    def __call__(self, struct: type[T], namespace: str) -> Iterable[T]: ...


def reads(kind: ServedKind) -> bool:
    """Return whether ``admit`` needs new objects of a kind decoded."""
    return kind.native in _PLUGINS


def _admits(kind: ServedKind, gates: FeatureGates) -> bool:
    """Return whether an admission plugin judges new objects of a kind."""
    return kind.native in _PLUGINS and (kind.native != "PodGroup" or gates["WorkloadAwarePreemption"])


def admit(kind: ServedKind, document: Document, decoded: Object, find: Lookup, gates: FeatureGates) -> Object:
    """Apply the mutating and validating admission plugins to a new object, in place. ``decoded`` is the same object with its
    defaults. Return it as it is now, for a kind that a plugin reads.

    Raises  ApiError 403 if a plugin rejects the object, 400 if a field has the wrong type
    """
    if isinstance(decoded, PodGroup):
        add_finalizer(document["metadata"], GROUP_PROTECTION)
        decoded = structs.replace(
            decoded, metadata=structs.replace(decoded.metadata, finalizers=tuple(document["metadata"]["finalizers"]))
        )
    if not _admits(kind, gates):
        return decoded
    if isinstance(decoded, Pod) and isinstance(spec := document.get("spec"), dict):
        spec.setdefault("serviceAccountName", "default")
        spec["serviceAccount"] = spec["serviceAccountName"]
        decoded = structs.replace(decoded, spec=structs.replace(decoded.spec, service_account_name=spec["serviceAccountName"]))
    after, refusals = _PLUGINS[kind.native](decoded, find)
    if not refusals and isinstance(after, PodGroup | CompositePodGroup) and gates["PodGroupPreemptionPolicy"]:
        after, refusals = admission.resolve_group_preemption(after, _by_name(PriorityClass, find))
    if refusals:
        raise refused(kind, document, _joined(refusals))
    apply_changes(document, decoded, after)
    return after


def _joined(refusals: tuple[str, ...]) -> str:
    """Return refusals as one text, as Go prints a list of errors."""
    return refusals[0] if len(refusals) == 1 else f"[{', '.join(refusals)}]"


def refused(kind: ServedKind, document: Document, why: str) -> ApiError:
    """Return the 403 error. It shows ``generateName`` instead of a generated name, as admission runs before the name is
    generated.
    """
    name, base = document["metadata"]["name"], document["metadata"].get("generateName")
    return forbidden(kind.resource, kind.group, base if base and name[:-5] == base else name, why)


def add_finalizer(metadata: Document, name: str) -> None:
    """Add a finalizer to the metadata of an object that lacks it."""
    held = metadata.get("finalizers") or []
    if name not in held:
        metadata["finalizers"] = [*held, name]


def admit_new(kind: ServedKind, document: Document, find: Lookup, gates: FeatureGates) -> None:
    """Check a new, valid object against others: a pod and a claim against the limit ranges of their namespace, up to 1.36 a pod
    group against its workload and template, which must exist.

    Raises  ApiError 403
    """
    if kind.native in {"Pod", "PersistentVolumeClaim"}:
        _check_bounds(kind, document, [*find(LimitRange, document["metadata"]["namespace"])])
    if kind.native != "PodGroup" or gates.emulated.groups_as_one:
        return
    origin = (document["spec"].get("podGroupTemplateRef") or {}).get("workload")
    if origin is None:
        return
    wanted, template = origin["workloadName"], origin["podGroupTemplateName"]
    namespace, why = document["metadata"]["namespace"], ""
    found = next((one for one in find(Workload, namespace) if one.metadata.name == wanted), None)
    if found is None:
        why = f'Workload "{wanted}" not found'
    elif found.metadata.deletion_timestamp:
        why = f'Workload "{wanted}" is being deleted'
    elif all(one.name != template for one in found.spec.pod_group_templates):
        why = f'PodGroupTemplate "{template}" not found in Workload "{wanted}"'
    if why:
        raise refused(kind, document, f"PodGroup rejected: {why}")


def _check_bounds(kind: ServedKind, document: Document, ranges: Sequence[LimitRange]) -> None:
    if not ranges or kind.struct is None:
        return
    decoded = decode(document, kind.struct, "")
    refusals: tuple[str, ...] = ()
    if isinstance(decoded, Pod):
        refusals = admission.out_of_pods_bounds(decoded, ranges)
    elif isinstance(decoded, PersistentVolumeClaim):
        refusals = admission.out_of_claims_bounds(decoded, ranges)
    if refusals:
        raise refused(kind, document, _joined(refusals))


def check_change(kind: ServedKind, old: Document, new: Document, find: Lookup, gates: FeatureGates) -> None:
    """Check an update against other objects: a claim can grow only if its class allows expansion, and the job of a
    gang-scheduled pod group cannot change its parallelism.

    Raises  ApiError 403
    """
    _check_growth(kind, old, new, find)
    if kind.native != "Job" or not gates["GenericWorkload"] or old["spec"].get("parallelism") == new["spec"].get("parallelism"):
        return
    named = ((old["spec"]["template"].get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    uid = old["metadata"]["uid"]
    for group in find(PodGroup, old["metadata"]["namespace"]):
        if group.min_count is None:
            continue
        owners = group.metadata.owner_references
        if group.name == named if named else any(owner.controller and owner.uid == uid for owner in owners):
            why = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{group.name}"'
            raise refused(kind, old, why)


def _group(group: PodGroup | CompositePodGroup, find: Lookup) -> _Admitted:
    return admission.resolve_group_priority(group, _by_name(PriorityClass, find))


def _by_name(struct: type[T], find: Lookup) -> dict[str, T]:
    """Return the cluster-scoped objects of a type by name."""
    return {one.metadata.name: one for one in find(struct, "")}


def _pod(pod: Pod, find: Lookup) -> _Admitted:
    ranges, priorities = [*find(LimitRange, pod.metadata.namespace)], _by_name(PriorityClass, find)
    runtimes = _by_name(admission.RuntimeClass, find)
    steps: tuple[Callable[[Pod], admission.Admitted], ...] = (
        lambda pod: admission.Admitted(admission.limit_range_defaults(pod, ranges)),
        lambda pod: admission.resolve_priority(pod, priorities),
        lambda pod: admission.Admitted(admission.add_default_tolerations(pod)),
        lambda pod: admission.apply_runtime_class(pod, runtimes),
    )
    for step in steps:
        pod, refusals = step(pod)
        if refusals:
            return pod, refusals
    return pod, ()


def admit_resize(document: Document, decoded: Object, find: Lookup) -> None:
    """Apply the limit ranges to the new version of a pod whose resources change, in place.

    Raises  ApiError 403 if a limit range rejects it
    """
    if not isinstance(decoded, Pod):
        return
    ranges = [*find(LimitRange, decoded.metadata.namespace)]
    after = admission.limit_range_defaults(decoded, ranges)
    if refusals := admission.out_of_pods_bounds(after, ranges):
        raise forbidden("pods", "", decoded.metadata.name, _joined(refusals))
    apply_changes(document, decoded, after)


def _claim(claim: PersistentVolumeClaim, find: Lookup) -> _Admitted:
    return admission.set_default_storage_class(claim, [*find(StorageClass, "")]), ()


def _priority_class(priority: PriorityClass, find: Lookup) -> _Admitted:
    for other in find(PriorityClass, "") if priority.global_default else ():
        if other.global_default and other.metadata.name != priority.metadata.name:
            why = f"PriorityClass {other.metadata.name} is already marked as default. Only one default can exist"
            return priority, (why,)
    return priority, ()


_NOT_READY: Final = "node.kubernetes.io/not-ready"
_IN_USE: Final = {
    "PersistentVolume": "kubernetes.io/pv-protection",
    "PersistentVolumeClaim": "kubernetes.io/pvc-protection",
    "VolumeAttributesClass": ATTRIBUTES_PROTECTION,
}


def admit_with_controllers(kind: ServedKind, document: Document) -> None:
    """Add to a new object what running controllers remove later: the not-ready taint of a node, and the finalizer that
    protects volumes, claims and VolumeAttributesClasses in use.

    Source  kubernetes, plugin/pkg/admission: nodetaint, storage/storageobjectinuseprotection
    """
    if kind.native == "Node":
        spec = document.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any((one.get("key"), one.get("effect")) == (_NOT_READY, "NoSchedule") for one in taints):
            spec["taints"] = [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]
    elif (name := _IN_USE.get(kind.native)) is not None:
        add_finalizer(document["metadata"], name)


# -- updates -----------------------------------------------------------------------------------------------------------


def restore_admitted(kind: ServedKind, old: Document, new: Document) -> None:
    """Restore, in the new version of a pod, the priority and tolerations that admission added and the client left out."""
    spec, held = new.get("spec"), old.get("spec") or {}
    if kind.native != "Pod" or not isinstance(spec, dict):
        return
    for name in ("priority", "preemptionPolicy"):
        if spec.get(name) is None and held.get(name) is not None:
            spec[name] = held[name]
    given = spec.get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": admission.PATIENCE_S}
        for key in admission.TROUBLES
        if not any(one.get("key", "") in {"", key} and one.get("effect", "") in {"", "NoExecute"} for one in given)
    ]
    if added:
        spec["tolerations"] = [*given, *added]


def _check_growth(kind: ServedKind, old: Document, new: Document, find: Lookup) -> None:
    """Check that a claim that grows is bound and that its storage class allows expansion.

    Raises  ApiError 403

    Source  kubernetes, plugin/pkg/admission/storage/persistentvolume/resize
    """
    if kind.native != "PersistentVolumeClaim":
        return
    before, after = (
        (((one.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage", "0") for one in (old, new)
    )
    if parse(after) <= parse(before):
        return
    name, wanted = new["metadata"]["name"], [(one.get("spec") or {}).get("storageClassName") for one in (old, new)]
    if (old.get("status") or {}).get("phase") != "Bound":
        raise forbidden(kind.resource, kind.group, name, "Only bound persistent volume claims can be expanded")
    found = _by_name(StorageClass, find).get(wanted[1] or "")
    if not wanted[0] or wanted[0] != wanted[1] or found is None or not found.allow_volume_expansion:
        why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
        raise forbidden(kind.resource, kind.group, name, why)


_PLUGINS: Final[dict[str, Callable[[Any, Lookup], _Admitted]]] = {
    "CompositePodGroup": _group,
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "PodGroup": _group,
    "PriorityClass": _priority_class,
}


# -- pod resize --------------------------------------------------------------------------------------------------------
# The admission plugin PodResizeValidator: a bound pod may not be resized beyond what its node can hold.
#
# Source  kubernetes, plugin/pkg/admission/podresize

_OS: Final = "kubernetes.io/os"
_WANTED: Final = RequestOptions(use_status=False, pod_level_status=False)


def check_resize(pod: Pod, node: Node | None) -> None:
    """Check that the new requests of a bound pod are within what its node can allocate.

    Raises  ApiError 403
    """
    if node is None:
        raise _resize_refused(pod, f"node {quoted(pod.spec.node_name or '')} not found")
    name = node.metadata.name
    if (system := node.metadata.labels.get(_OS, "linux")) != "linux":
        why = f"pod resize is only supported on linux nodes, node {quoted(name)} is {quoted(system)}"
        raise _resize_refused(pod, why, "UnsupportedPlatform")
    if lacking := "; ".join(_lacking(pod, node)):
        raise _resize_refused(pod, f"node didn't have enough allocatable resources: {lacking}", "NodeCapacity")


def _lacking(pod: Pod, node: Node) -> Iterator[str]:
    requests, allocatable = pod_requests(pod, _WANTED).requests, node.status.allocatable
    for resource, amount in (("cpu", milli_value), ("memory", value)):
        wanted, held = requests.get(resource, 0), amount(allocatable.get(resource, "0"))
        if wanted > held:
            yield f"{resource}, requested: {wanted}, allocatable: {held}"


def _resize_refused(pod: Pod, why: str, reason: str = "") -> ApiError:
    return forbidden("pods", "", pod.metadata.name, why, [Cause(reason, "")] if reason else ())


# -- namespace lifecycle -----------------------------------------------------------------------------------------------
# The lifecycle of namespaces: a terminating namespace accepts no new objects and is removed when its content is deleted.
#
# A deleted namespace waits for the finalizers in ``spec.finalizers``. The default one, ``kubernetes``, belongs to the
# namespace controller, which deletes the content and then removes its finalizer through the ``finalize`` subresource, the
# only way to change the list. Where no controllers run, the store does that (``Store.empties_namespaces``).
#
# Source  kubernetes, pkg/registry/core/namespace: strategy.go, storage/storage.go; apiserver, pkg/admission/plugin/namespace

#: Namespaces that every cluster has, and below those that cannot be deleted.
SYSTEM_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_UNDELETABLE: Final = ("default", "kube-public", "kube-system")
_FINALIZER: Final = "kubernetes"


def check_deletable(kind: ServedKind, name: str) -> None:
    """Check that an object may be deleted.

    Raises  ApiError 403 for system namespaces and system priority classes
    """
    if kind.native == "Namespace" and name in _UNDELETABLE:
        raise forbidden("namespaces", "", name, "this namespace may not be deleted")
    if kind.native == "PriorityClass" and name in admission.SYSTEM_PRIORITY_CLASSES:
        raise forbidden(kind.resource, kind.group, name, "this is a system priority class and cannot be deleted")


def check_creatable(record: Record | None, namespace: str, kind: ServedKind, name: str) -> None:
    """Check that an object may be created in a namespace.

    Raises  ApiError 404 if the namespace does not exist, 403 if it is terminating
    """
    if record is None:
        raise not_found("namespaces", "", namespace)
    if record.fields["status.phase"] == "Terminating":
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
        raise forbidden(kind.resource, kind.group, name, why, [cause])


def finalizers_of(namespace: Document) -> list[str]:
    """Return the finalizers in a namespace's spec (not those in its metadata)."""
    return (namespace.get("spec") or {}).get("finalizers") or []


def with_finalizer(namespace: Document) -> None:
    """Add the namespace controller's finalizer to a new namespace, in place."""
    held = finalizers_of(namespace)
    if _FINALIZER not in held:
        namespace["spec"] = {**(namespace.get("spec") or {}), "finalizers": [*held, _FINALIZER]}


def keep_finalizers(old: Document, new: Document) -> None:
    """Copy ``spec.finalizers`` of the old version to the new one."""
    new["spec"] = {**(new.get("spec") or {}), "finalizers": finalizers_of(old)}
    if not new["spec"]["finalizers"]:
        del new["spec"]["finalizers"]


def finalized(namespace: Document) -> Document:
    """Return a namespace without the namespace controller's finalizer."""
    left = [one for one in finalizers_of(namespace) if one != _FINALIZER]
    spec = {name: value for name, value in (namespace.get("spec") or {}).items() if name != "finalizers"}
    return {**namespace, "spec": {**spec, "finalizers": left} if left else spec}
