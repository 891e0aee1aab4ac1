"""From what a client sent to what is stored: each kind's own rules for creating and changing objects.

The server owns part of every object: status is written through its own path only, identity never changes, and a change of
the spec is counted in ``generation``. Whatever breaks a rule is refused with all faults at once.

Source  apiserver, pkg/registry/rest/create.go and update.go; kubernetes, pkg/registry/*/strategy.go
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from moorage.api.decode import decode
from moorage.api.meta import ObjectMeta, Value
from moorage.api.pod_groups import PodGroup, Workload
from moorage.api.quantity import parse
from moorage.api.validation import faults_of
from moorage.api.validation.metadata import object_meta
from moorage.apiserver.admission.defaulting import fill_in
from moorage.apiserver.admission.event_validation import new_event_faults
from moorage.apiserver.admission.gated_fields import drop_guarded, drop_guarded_status
from moorage.apiserver.admission.namespace_lifecycle import keep_finalizers, with_finalizer
from moorage.apiserver.admission.status_validation import status_faults
from moorage.apiserver.admission.update_validation import change_faults, ephemeral_faults, resize_faults
from moorage.apiserver.admission.validation import further_faults, metadata_faults, new_cron_job_faults, new_pod_faults
from moorage.apiserver.vocabulary.records import Document, key_of
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import bad_request, conflict, invalid
from moorage.errors import Fault, InputError
from moorage.framework.features import FeatureGates

__all__ = ["completed", "prepare_adopted", "prepare_create", "prepare_update", "read"]

#: What clients may change through a status path besides the status itself; of pod groups, nothing of it.
_STATUS_METADATA: Final = ("labels", "annotations", "finalizers", "managedFields")
#: What an object keeps whatever a client sends.
#: What kinds are kept under, where it is not their own name.
_REGISTRY: Final = {
    "endpoints": "services/endpoints", "nodes": "minions", "replicationcontrollers": "controllers",
    "services": "services/specs",
}  # fmt: skip
_OWNED: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "name",
    "namespace",
    "uid",
)


class _Named(Value):
    metadata: ObjectMeta = ObjectMeta()


def read(kind: ServedKind, document: Document) -> Value:
    """Return what scheduling reads of a document, or its metadata for a kind that scheduling does not read.

    Raises  ApiError 400 if a field does not hold what it should
    """
    try:
        return decode(document, kind.struct or _Named, "")
    except InputError as error:
        what = f"{kind.kind} in version {kind.version!r}".replace("'", '"')
        why = str(error).removeprefix(": ")
        raise bad_request(f"{what} cannot be handled as a {kind.kind}: {why}") from None


def completed(kind: ServedKind, document: Document) -> Value:
    """Fill in what a document leaves out, in place, and return it as read."""
    try:
        fill_in(kind, document, read(kind, document))
    except InputError as error:
        raise bad_request(str(error)) from None
    return read(kind, document)


def prepare_create(kind: ServedKind, document: Document, gates: FeatureGates) -> None:
    """Make a new object of a document that has its name, uid and time: status, generation, defaults; then check it.

    Raises  ApiError 422 with all its faults
    """
    if kind.status_on_create is not None:
        document["status"] = copy.deepcopy(kind.status_on_create)
    if kind.has_generation:
        document["metadata"]["generation"] = 1
    if kind.kind == "Job":
        _select_own_pods(document)
    drop_empty(document["metadata"])
    now = document["metadata"].get("creationTimestamp")
    match kind.kind:
        case "DaemonSet":
            _count_template(None, document)
        case "Namespace":
            with_finalizer(document)
        case "PersistentVolume":
            document["status"]["lastPhaseTransitionTime"] = now
        case "ResourceSlice":
            _time_taints(document, now)
    drop_guarded(kind, None, document, gates)
    found = completed(kind, document)
    if kind.kind == "Pod":
        spec = document.get("spec") or {}
        document["status"]["qosClass"] = qos_class(spec)
        if spec.get("schedulingGates"):
            document["status"]["conditions"] = [{**_GATED, "lastTransitionTime": now}]
    new = _NEW_FAULTS.get(kind.kind, _no_faults)
    _refuse(kind, document, chain(_faults(kind, found), further_faults(kind, document), new(document)))


def _no_faults(_: Document) -> Iterator[Fault]:
    return iter(())


#: What tells of a pod that nobody may place yet.
_GATED: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
    "lastProbeTime": None,
}
#: What some objects may not begin with.
_NEW_FAULTS: Final[Mapping[str, Callable[[Document], Iterator[Fault]]]] = {
    "CronJob": new_cron_job_faults, "Event": new_event_faults, "Pod": new_pod_faults,
}  # fmt: skip


def _select_own_pods(job: Document) -> None:
    """Give a job the selector and its pods the labels by which they know each other, unless the user has made them.

    Source  kubernetes, pkg/registry/batch/job/strategy.go, generateSelector
    """
    spec, metadata = job.get("spec"), job["metadata"]
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(template, dict) or spec.get("manualSelector") or spec.get("selector"):
        return
    held = template.get("metadata") or {}
    labels = held.get("labels") or {} if isinstance(held, dict) else None
    if not isinstance(labels, dict):
        return
    marks = {"controller-uid": metadata["uid"], "job-name": metadata["name"]}
    prefixed = {f"batch.kubernetes.io/{name}": value for name, value in marks.items()}
    template["metadata"] = {**held, "labels": {**labels, **marks, **prefixed}}
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}}


#: Where a daemon set of today keeps what was once a field of its spec.
_TEMPLATES: Final = "deprecated.daemonset.template.generation"


def _count_template(old: Document | None, new: Document) -> None:
    """Say of a daemon set how often its template has changed."""
    if old is None:
        count = 1
    else:
        held = str((old["metadata"].get("annotations") or {}).get(_TEMPLATES) or "")
        count = int(held) if held.isascii() and held.isdigit() else 0
        count += (old.get("spec") or {}).get("template") != (new.get("spec") or {}).get("template")
    new["metadata"]["annotations"] = {**(new["metadata"].get("annotations") or {}), _TEMPLATES: str(count)}


def _time_taints(resource_slice: Document, now: Any) -> None:
    """Say of taints of devices since when there are."""
    spec = resource_slice.get("spec")
    for device in (spec.get("devices") if isinstance(spec, dict) else None) or ():
        for taint in device.get("taints") or () if isinstance(device, dict) else ():
            if isinstance(taint, dict):
                taint.setdefault("timeAdded", now)


def _time_phase(old: Document, new: Document, now: str) -> None:
    """Say of a volume since when its phase is what it is, unless the client does."""
    before, status = old.get("status") or {}, new.get("status")
    if not isinstance(status, dict):
        return
    held, given = before.get("lastPhaseTransitionTime"), status.get("lastPhaseTransitionTime")
    if before.get("phase") == status.get("phase"):
        _put(status, "lastPhaseTransitionTime", given or held)
    elif not given or given == held:
        status["lastPhaseTransitionTime"] = now


def prepare_adopted(kind: ServedKind, document: Document) -> None:
    """Complete and check an object that another cluster had; its status stays.

    Raises  ApiError 422 with all its faults
    """
    if kind.has_generation:
        document["metadata"].setdefault("generation", 1)
    if kind.status_on_create is not None and not document.get("status"):
        document["status"] = copy.deepcopy(kind.status_on_create)
    if kind.kind == "Namespace" and not document["metadata"].get("deletionTimestamp"):
        with_finalizer(document)
    _refuse(kind, document, _faults(kind, completed(kind, document)))


def prepare_update(
    kind: ServedKind, old: Document, new: Document, subresource: str, gates: FeatureGates, now: str = ""
) -> None:  # fmt: skip
    """Turn what was sent for an existing object into its next version, in place.

    Through the main path everything but the status changes; through ``status`` nothing but that and some metadata. What a
    namespace waits for changes through ``finalize`` only. ``now`` is the time, as objects carry it.

    Raises  ApiError 409 for another object of the same name, 422 for what must not change or breaks a rule
    """
    _keep_identity(kind, old, new)
    drop_empty(new["metadata"])
    _narrow(kind, old, new, subresource, gates)
    _keep_time(kind, old, new, subresource, now)
    drop_guarded(kind, old, new, gates)
    found = completed(kind, new)
    if kind.kind == "DaemonSet":
        _count_template(old, new)
    if kind.has_generation or kind.kind == "CSIDriver":
        counted = subresource != "status" and _is_changed(kind, old, new)
        _put(new["metadata"], "generation", (old["metadata"].get("generation", 0) + counted) or None)
    if subresource == "status":
        _refuse(kind, new, chain(_changed_metadata_faults(kind, old, new), status_faults(kind, old, new, found)))
        return
    match subresource:
        case "resize":
            changes = resize_faults(old, new, qos_class)
        case "ephemeralcontainers":
            changes = ephemeral_faults(old, new)
        case _:
            changes = change_faults(kind, old, new, gates)
    _refuse(kind, new, chain(_update_faults(kind, found), further_faults(kind, new), changes))


def drop_empty(metadata: Document) -> None:
    """Take out of an object's metadata what says nothing: such fields are neither stored nor shown."""
    for name in _SENT:
        if name in metadata and not metadata[name]:
            del metadata[name]


def _narrow(kind: ServedKind, old: Document, new: Document, subresource: str, gates: FeatureGates) -> None:
    """Let nothing change but what the path is for."""
    match subresource:
        case "status":
            _only_status(kind, old, new)
            drop_guarded_status(kind, old, new, gates)
            if kind.kind == "Pod":
                _keep_class(old, new)
        case "resize":
            _only_resources(old, new)
        case "ephemeralcontainers":
            _only_ephemeral(old, new)
        case _ if kind.has_status:
            _put(new, "status", old.get("status"))
    if kind.kind == "Namespace" and subresource != "finalize":
        keep_finalizers(old, new)


def _keep_time(kind: ServedKind, old: Document, new: Document, subresource: str, now: str) -> None:
    if kind.kind == "PersistentVolume" and subresource == "status":
        _time_phase(old, new, now)
    elif kind.kind == "ResourceSlice":
        _time_taints(new, now)


def _is_changed(kind: ServedKind, old: Document, new: Document) -> bool:
    """Return True for a change that is counted: of all but metadata and status; deployments hand annotations on, too."""
    if kind.kind == "PriorityClass":
        return False
    before, after = ({name: value for name, value in one.items() if name not in _NOT_SPEC} for one in (old, new))
    notes = [one["metadata"].get("annotations") or {} for one in (old, new)] if kind.kind == "Deployment" else [{}, {}]
    return before != after or notes[0] != notes[1]


_NOT_SPEC: Final = frozenset(["apiVersion", "kind", "metadata", "status"])


def _put(document: Document, name: str, value: Any) -> None:
    if value is None:
        document.pop(name, None)
    else:
        document[name] = value


def _keep_identity(kind: ServedKind, old: Document, new: Document) -> None:
    held, sent = old["metadata"], new["metadata"]
    if sent.get("uid") and sent["uid"] != held["uid"]:
        key = f"/registry/{_REGISTRY.get(kind.qualified, kind.resource)}/{key_of(held.get('namespace') or '', held['name'])}"
        why = (
            f"StorageError: invalid object, Code: 4, Key: {key.replace('//', '/')}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {sent['uid']}, UID in object meta: {held['uid']}"
        )
        raise conflict(kind.resource, kind.group, held["name"], why)
    sent.pop("selfLink", None)
    fixed = [
        Fault("Invalid value", f"metadata.{name}", "field is immutable", sent[name])
        for name in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
        if sent.get(name) is not None and sent[name] != held.get(name)
    ]
    if fixed:
        raise invalid(kind.kind, kind.group, held["name"], fixed)
    for name in _OWNED:
        _put(sent, name, held.get(name))


def _only_status(kind: ServedKind, old: Document, new: Document) -> None:
    status = new.get("status")
    metadata = {**old["metadata"]}
    for name in _STATUS_METADATA if kind.kind != "PodGroup" else ("managedFields",):
        _put(metadata, name, new["metadata"].get(name))
    _put(metadata, "resourceVersion", new["metadata"].get("resourceVersion"))
    new.clear()
    new.update(copy.deepcopy(old))
    new["metadata"] = metadata
    _put(new, "status", status)


def _keep_class(old: Document, new: Document) -> None:
    """Give a pod's next status the quality of service of the last, where it says none."""
    held, status = (old.get("status") or {}).get("qosClass"), new.setdefault("status", {})
    if held and isinstance(status, dict) and not status.get("qosClass"):
        status["qosClass"] = held


def _as_before(old: Document, new: Document) -> Document:
    """Make a pod's next version what the last was, but for its version and managers; return the spec that was sent."""
    sent, metadata = new.get("spec") or {}, new["metadata"]
    kept = {name: metadata.get(name) for name in ("resourceVersion", "managedFields")}
    new.clear()
    new.update(copy.deepcopy(old))
    for name, value in kept.items():
        _put(new["metadata"], name, value)
    return dict(sent)


def _only_ephemeral(old: Document, new: Document) -> None:
    """Keep of a pod's next version the containers that are to look into it, and nothing else."""
    sent = _as_before(old, new)
    _put(new["spec"], "ephemeralContainers", sent.get("ephemeralContainers"))


def _only_resources(old: Document, new: Document) -> None:
    """Keep of a pod's next version what its containers ask for, and nothing else."""
    sent = _as_before(old, new)
    for part in ("containers", "initContainers"):
        given = {one.get("name"): one for one in sent.get(part) or ()}
        for container in new["spec"].get(part) or ():
            for name in ("resources", "resizePolicy"):
                _put(container, name, given.get(container.get("name"), container).get(name))


# -- rules --------------------------------------------------------------------------------------------------------------


def _faults(kind: ServedKind, found: Value) -> Iterator[Fault]:
    if kind.struct is not None:
        return faults_of(found)
    metadata = found.metadata if isinstance(found, _Named) else ObjectMeta()
    return object_meta(metadata, kind.namespaced, kind.check_name)


def _changed_metadata_faults(kind: ServedKind, old: Document, new: Document) -> Iterator[Fault]:
    """Find what is wrong with metadata that a write of the status changes.

    What stays is not looked at again: an object that was taken over from a file has to be able to run.
    """
    if any(old["metadata"].get(name) != new["metadata"].get(name) for name in _SENT):
        found = decode({"metadata": new["metadata"]}, _Named, "")
        yield from object_meta(found.metadata, kind.namespaced, kind.check_name)
        yield from metadata_faults(new["metadata"])


#: What clients write of an object's metadata.
_SENT: Final = ("annotations", "finalizers", "labels", "ownerReferences")


#: Kinds all of whose spec stays as it is: what is not changed is not looked at again.
_FROZEN: Final = (PodGroup, Workload)


def _update_faults(kind: ServedKind, found: Value) -> Iterator[Fault]:
    return object_meta(found.metadata, True) if isinstance(found, _FROZEN) else _faults(kind, found)


def _refuse(kind: ServedKind, document: Document, faults: Iterator[Fault]) -> None:
    first = next(faults, None)
    if first is not None:
        raise invalid(kind.kind, kind.group, document["metadata"]["name"], chain([first], faults))


_OF_QUALITY: Final = ("cpu", "memory")


def qos_class(spec: Mapping[str, Any]) -> str:
    """Return a pod's quality of service, from what it asks for as a whole or else from what its containers do.

    Source  kubernetes, pkg/apis/core/v1/helper/qos/qos.go
    """
    whole = spec.get("resources")
    if isinstance(whole, dict):
        asked, is_limited = [whole], not whole.get("limits") or len(_amounts(whole, "limits")) == len(_OF_QUALITY)
    else:
        containers = [one for part in ("initContainers", "containers") for one in spec.get(part) or () if isinstance(one, dict)]
        asked = [one.get("resources") or {} for one in containers]
        is_limited = all(len(_amounts(one, "limits")) == len(_OF_QUALITY) for one in asked)
    requests, limits = (_total(asked, side) for side in ("requests", "limits"))
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if is_limited and requests == limits else "Burstable"


def _amounts(resources: Mapping[str, Any], side: str) -> dict[str, int]:
    """Return how much processor and memory is asked for on one side, as far as it is anything, in nano-units."""
    given = resources.get(side) or {}
    return {name: amount for name in _OF_QUALITY if name in given and (amount := parse(given[name])) > 0}


def _total(asked: Iterable[Mapping[str, Any]], side: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for resources in asked:
        for name, amount in _amounts(resources, side).items():
            total[name] = total.get(name, 0) + amount
    return total
