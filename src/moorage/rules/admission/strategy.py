"""Prepare objects for create and update: the rules of each kind for which fields a client may write.

The server owns part of every object: the status changes only through its subresource, identity never changes, and a change
of the spec increments ``generation``. An invalid object is rejected with all its faults at once.

Source  apiserver, pkg/registry/rest/create.go and update.go; kubernetes, pkg/registry/*/strategy.go
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final

import msgspec
from msgspec import structs

from moorage.api.core import Pod
from moorage.api.decode import decode
from moorage.api.defaults import complete_pod_level
from moorage.api.documents.records import key_of
from moorage.api.documents.served_kinds import Document, ServedKind, set_or_drop
from moorage.api.documents.statuses import bad_request, conflict, invalid
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import Object
from moorage.api.pod_groups import PodGroup, Workload
from moorage.api.schema.go_structs import as_sent, go_value
from moorage.api.validation import faults_of
from moorage.api.validation.metadata import object_meta
from moorage.errors import Fault, InputError
from moorage.rules.admission.admission_plugins import keep_finalizers, with_finalizer
from moorage.rules.admission.custom_resource_strategy import (
    custom_faults,
    is_custom_changed,
    keep_all_but_status,
    prepare_custom,
)
from moorage.rules.admission.defaulting import (
    TEMPLATE_GENERATION,
    apply_changes,
    complete_decoded,
    complete_sources,
    drop_disabled_fields,
    drop_disabled_status_fields,
    drop_topology,
    needs_decoding,
    set_defaults,
    set_release_defaults,
)
from moorage.rules.admission.definition_validation import new_definition_faults, prepare_definition
from moorage.rules.admission.device_validation import selector_faults
from moorage.rules.admission.group_changes import as_checked, is_checked_anew
from moorage.rules.admission.pod_checks import RULES
from moorage.rules.admission.quota_usage import qos_class
from moorage.rules.admission.status_validation import status_faults
from moorage.rules.admission.update_validation import change_faults, ephemeral_faults, resize_faults
from moorage.rules.admission.validation import metadata_faults, new_object_faults, unread_field_faults

#: Metadata that clients may change through the status subresource, unless the kind resets it.
_STATUS_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields", "generateName")
#: Kinds for which a status write cannot change labels, annotations and the like.
_RESET_METADATA: Final = frozenset([
    "CSINode", "CompositePodGroup", "DeviceTaintRule", "Eviction", "EvictionRequest", "FlowSchema", "PodCertificateRequest",
    "PodGroup", "PriorityLevelConfiguration", "ResourceClaim", "ResourcePoolStatusRequest", "ServiceCIDR", "StorageVersion",
    "StorageVersionMigration", "ValidatingAdmissionPolicy", "VolumeAttachment",
])  # fmt: skip
#: Storage prefixes under /registry that differ from the resource name.
_REGISTRY: Final = {
    "endpoints": "services/endpoints", "nodes": "minions", "replicationcontrollers": "controllers",
    "services": "services/specs",
}  # fmt: skip
#: Metadata that no client can change.
_SERVER_METADATA: Final = (
    "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "name", "namespace", "uid",
)  # fmt: skip


def decode_document(kind: ServedKind, document: Document) -> Object:
    """Return a document decoded to its kind's struct, or to its metadata for kinds that scheduling does not read.

    Raises  ApiError 400 if a field has the wrong type
    """
    try:
        return decode(document, kind.struct or Object, "")
    except InputError as error:
        what = f"{kind.kind} in version {kind.version!r}".replace("'", '"')
        why = str(error).removeprefix(": ")
        raise bad_request(f"{what} cannot be handled as a {kind.kind}: {why}") from None


def set_defaults_and_decode(kind: ServedKind, document: Document, *, sent: bool = False) -> Object:
    """Set a document's defaults in place and return it decoded. ``sent``: keep the empty lists that the client sent.

    Raises  ApiError 400 if a field has the wrong type
    """
    try:
        set_defaults(kind, document, sent=sent)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        decode_document(kind, document)  # names the field whose type is wrong
        raise
    try:
        return complete_decoded(document, decode_document(kind, document))
    except InputError as error:
        raise bad_request(str(error)) from None


def set_first_defaults(kind: ServedKind, document: Document, *, decodes: bool) -> Object | None:
    """Set the defaults of a new object as it was sent, in place. Return it decoded if ``decodes``, or if defaults need it.

    Raises  ApiError 400 if a field has the wrong type
    """
    if decodes or needs_decoding(kind.struct):
        return set_defaults_and_decode(kind, document, sent=True)
    try:
        set_defaults(kind, document, sent=True)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        decode_document(kind, document)  # names the field whose type is wrong
        raise
    return None


class Admitted:
    """A new object as admission left it, decoded; ``decoded`` is None where neither admission nor defaults needed it.

    It is decoded again only if something changed its document since, other than the status and the generation that a new
    object gets.
    """

    def __init__(self, kind: ServedKind, document: Document, decoded: Object | None) -> None:
        self._kind, self._decoded = kind, decoded
        self._text = b"" if decoded is None else _lasting_text(document)

    def complete(self, document: Document) -> Object:
        """Set the defaults of a document that may have changed since, in place, and return it decoded.

        Raises  ApiError 400 if a field has the wrong type
        """
        decoded = self._decoded
        if decoded is None:
            return set_defaults_and_decode(self._kind, document)
        set_defaults(self._kind, document)
        if _lasting_text(document) != self._text:
            return complete_decoded(document, decode_document(self._kind, document))
        metadata = structs.replace(decoded.metadata, generation=document["metadata"].get("generation") or 0)
        decoded = structs.replace(decoded, metadata=metadata)
        if "status" not in document or not hasattr(decoded, "status"):
            return decoded
        return structs.replace(decoded, status=decode(document["status"], type(decoded.status), ""))


def _lasting_text(document: Document) -> bytes:
    kept = {name: value for name, value in document.items() if name != "status"}
    kept["metadata"] = {name: value for name, value in document["metadata"].items() if name != "generation"}
    return msgspec.json.encode(kept)


def prepare_create(
    kind: ServedKind, document: Document, gates: FeatureGates, more: Iterable[Fault] = (), admitted: Admitted | None = None
) -> None:
    """Turn a document with name, uid and creation time into a new object, in place: initial status, generation, defaults;
    then validate it. ``more`` are faults that other objects cause; ``admitted`` is what admission left.

    Raises  ApiError 422 with all its faults
    """
    if kind.custom is not None:
        prepare_custom(kind, document)
        drop_empty(document["metadata"])
        decoded = set_defaults_and_decode(kind, document)
        faults = custom_faults(kind, decoded, None, document)
        _raise_if_any(kind, document, chain(faults, metadata_faults(document["metadata"], kind)))
        return
    if kind.status_on_create is not None:
        document["status"] = copy.deepcopy(kind.status_on_create)
    if _has_generation(kind, gates):
        document["metadata"]["generation"] = 1
    if kind.native == "Job":
        _select_own_pods(document)
    drop_empty(document["metadata"])
    _complete_new(kind, document)
    drop_disabled_fields(kind, None, document, gates)
    set_release_defaults(kind, document, gates)
    decoded = (admitted or Admitted(kind, document, None)).complete(document)
    if isinstance(decoded, Pod):
        if gates.emulated.groups_as_one and not gates.closes("PodLevelResourcesFixDefaulting"):  # 1.37 and later
            before, decoded = decoded, complete_pod_level(decoded)
            apply_changes(document, before, decoded)
        _set_pod_status(document)
    new = new_definition_faults(document) if kind.native == "CustomResourceDefinition" else new_object_faults(kind, document)
    found = (more, _read_faults(kind, document, decoded, gates), unread_field_faults(kind, document), new)
    _raise_if_any(kind, document, _arranged(kind, chain(*found, _selector_faults(kind, document, gates))))


def _complete_new(kind: ServedKind, document: Document) -> None:
    """Set what the server adds to a new object of some kinds before its defaults."""
    now = document["metadata"].get("creationTimestamp")
    match kind.native:
        case "CustomResourceDefinition":
            prepare_definition(None, document)
        case "DaemonSet":
            _set_template_generation(None, document)
        case "Namespace":
            with_finalizer(document)
        case "EndpointSlice":
            drop_topology(None, document)
        case "PersistentVolumeClaim":
            complete_sources(None, document)
        case "PersistentVolume":
            document["status"]["lastPhaseTransitionTime"] = now
        case "ResourceSlice":
            _set_taint_times(document, now)


def _complete_changed(kind: ServedKind, old: Document, new: Document, subresource: str, now: str) -> None:
    """Set what the server adds to a changed object of some kinds before its defaults."""
    match kind.native:
        case "PersistentVolume" if subresource == "status":
            _set_phase_time(old, new, now)
        case "EndpointSlice":
            drop_topology(old, new)
        case "PersistentVolumeClaim":
            complete_sources(old, new)
        case "ResourceSlice":
            _set_taint_times(new, now)
        case "CertificateSigningRequest" if subresource in {"approval", "status"}:
            _set_condition_times(old, new, now)


def _complete_defaulted(kind: ServedKind, old: Document, new: Document, subresource: str) -> None:
    """Set what the server adds to a changed object of some kinds after its defaults."""
    match kind.native:
        case "DaemonSet":
            _set_template_generation(old, new)
        case "Namespace":
            new["status"] = {**(new.get("status") or {}), "phase": (new.get("status") or {}).get("phase") or "Active"}
        case "CustomResourceDefinition" if not subresource:
            prepare_definition(old, new)


def _set_pod_status(pod: Document) -> None:
    """Set the service class and the first condition of a new pod."""
    spec, status = pod.get("spec") or {}, pod["status"]
    status["qosClass"] = qos_class(spec)
    if spec.get("schedulingGates"):
        status["conditions"] = [{**_GATED, "lastTransitionTime": pod["metadata"].get("creationTimestamp")}]


#: The condition of a pod with scheduling gates.
_GATED: Final = {
    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates", "lastProbeTime": None,
}  # fmt: skip


def _select_own_pods(job: Document) -> None:
    """Generate a job's selector and the matching labels of its pod template, unless the user set a selector.

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
    marks = {"job-name": metadata["name"], "controller-uid": metadata["uid"]}
    made = {**marks, **{f"batch.kubernetes.io/{name}": value for name, value in marks.items()}, **labels}
    if labels and metadata.get("labels") is labels:
        metadata["labels"] = made  # as in kube-apiserver, where both are one map
    template["metadata"] = {**held, "labels": made}
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}}


def _set_template_generation(old: Document | None, new: Document) -> None:
    """Update the template generation annotation of a daemon set."""
    if old is None:
        count = 1
    else:
        held = str((old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION) or "")
        count = int(held) if held.isascii() and held.isdigit() else 0
        count += (old.get("spec") or {}).get("template") != (new.get("spec") or {}).get("template")
    new["metadata"]["annotations"] = {**(new["metadata"].get("annotations") or {}), TEMPLATE_GENERATION: str(count)}


def _set_taint_times(resource_slice: Document, now: Any) -> None:
    """Default the time of device taints to ``now``."""
    spec = resource_slice.get("spec")
    for device in (spec.get("devices") if isinstance(spec, dict) else None) or ():
        for taint in device.get("taints") or () if isinstance(device, dict) else ():
            if isinstance(taint, dict):
                taint.setdefault("timeAdded", now)


def _set_condition_times(old: Document, new: Document, now: str) -> None:
    """Set when the conditions of a certificate request changed, unless the client says it.

    Source  kubernetes, pkg/registry/certificates/certificates/strategy.go
    """
    held = {(one.get("type"), one.get("status")): one for one in (old.get("status") or {}).get("conditions") or ()}
    conditions = status.get("conditions") if isinstance(status := new.get("status"), dict) else None
    for one in conditions or ():
        if isinstance(one, dict):
            one["lastUpdateTime"] = one.get("lastUpdateTime") or now
            before = held.get((one.get("type"), one.get("status"))) or {}
            one["lastTransitionTime"] = one.get("lastTransitionTime") or before.get("lastTransitionTime") or now


def _set_phase_time(old: Document, new: Document, now: str) -> None:
    """Set when a volume entered its phase, unless the client sets it."""
    before, status = old.get("status") or {}, new.setdefault("status", {})
    if not isinstance(status, dict):
        return
    status["phase"] = status.get("phase") or "Pending"
    held, given = before.get("lastPhaseTransitionTime"), status.get("lastPhaseTransitionTime")
    if before.get("phase") == status.get("phase"):
        set_or_drop(status, "lastPhaseTransitionTime", given or held)
    elif not given or given == held:
        status["lastPhaseTransitionTime"] = now


def prepare_adopted(kind: ServedKind, document: Document) -> None:
    """Default and validate an object that comes from another cluster, in place; its status is kept.

    Raises  ApiError 422 with all its faults
    """
    if kind.has_generation:
        document["metadata"].setdefault("generation", 1)
    if kind.native == "CustomResourceDefinition":
        prepare_definition(None, document)
    if kind.custom is not None:
        decoded = set_defaults_and_decode(kind, document)
        _raise_if_any(kind, document, custom_faults(kind, decoded, None, document))
        return
    if kind.status_on_create is not None and not document.get("status"):
        document["status"] = copy.deepcopy(kind.status_on_create)
    if kind.native == "Namespace" and not document["metadata"].get("deletionTimestamp"):
        with_finalizer(document)
    decoded = set_defaults_and_decode(kind, document)
    more = new_definition_faults(document) if kind.native == "CustomResourceDefinition" else ()
    _raise_if_any(kind, document, chain(_faults(kind, decoded), more))


def prepare_update(
    kind: ServedKind, old: Document, new: Document, subresource: str, gates: FeatureGates, now: str = "",
    more: Iterable[Fault] = (),
) -> None:  # fmt: skip
    """Turn the object that a client sent into the next version of the stored one, in place.

    The main path changes everything but the status; ``status`` changes the status and some metadata; ``finalize`` alone
    changes a namespace's finalizers. ``now`` is the time as an RFC 3339 text, and ``more`` are faults that other objects cause.

    Raises  ApiError 409 if the uid differs, 422 for immutable or invalid fields
    """
    _keep_identity(kind, old, new, subresource)
    drop_empty(new["metadata"])
    _restore_unwritten(kind, old, new, subresource, gates)
    counts_all = kind.native in _COUNTED_BEFORE and _is_changed(kind, old, _completed(kind, new, now))
    _complete_changed(kind, old, new, subresource, now)
    drop_disabled_fields(kind, old, new, gates)
    set_release_defaults(kind, new, gates)
    decoded = set_defaults_and_decode(kind, new)
    _complete_defaulted(kind, old, new, subresource)
    if _has_generation(kind, gates) or kind.native == "CSIDriver":
        counted = subresource != "status" and (counts_all or _is_changed(kind, old, new))
        set_or_drop(new["metadata"], "generation", (old["metadata"].get("generation", 0) + counted) or None)
    if kind.custom is not None:
        faults = custom_faults(kind, decoded, old, new, subresource=subresource)
        _raise_if_any(kind, new, chain(faults, _changed_metadata_faults(kind, old, new)))
        return
    if subresource == "status":
        _raise_if_any(kind, new, chain(more, _changed_metadata_faults(kind, old, new), status_faults(kind, old, new, decoded)))
        return
    match subresource:
        case "resize":
            changes = resize_faults(old, new, qos_class)
        case "ephemeralcontainers":
            changes = ephemeral_faults(old, new)
        case _:
            changes = change_faults(kind, old, new, gates)
    _raise_if_any(kind, new, _in_order_of(kind, new, decoded, changes, gates))


#: Kinds whose generation counts changes of fields, too, that are dropped afterwards.
_COUNTED_BEFORE: Final = frozenset(["EndpointSlice", "ResourceSlice"])


def _completed(kind: ServedKind, new: Document, now: str) -> Document:
    """Return a changed object of these kinds with its defaults, but with all that the client sent."""
    made = copy.deepcopy(new)
    if kind.native == "ResourceSlice":
        _set_taint_times(made, now)
    set_defaults_and_decode(kind, made)
    return made


def _in_order_of(
    kind: ServedKind, new: Document, decoded: Object, changes: Iterator[Fault], gates: FeatureGates
) -> Iterator[Fault]:
    """Yield the faults of a changed object in the order in which its kind is checked."""
    if kind.native == "ResourceClaim":
        return chain(object_meta(decoded.metadata, True), metadata_faults(new["metadata"]), changes)
    is_frozen = isinstance(decoded, _FROZEN) and not is_checked_anew(kind, gates)
    own = object_meta(decoded.metadata, True) if is_frozen else _read_faults(kind, new, decoded, gates)
    own = (fault for fault in own if kind.native in _CHECKED_BASES or fault.field != "metadata.generateName")
    found = _arranged(kind, chain(own, unread_field_faults(kind, new), _selector_faults(kind, new, gates)))
    return chain(changes, found) if kind.native in _CHANGES_FIRST else chain(found, changes)


#: So many faults are arranged; an object with more is reported as it is read.
_MOST_ARRANGED: Final = 1000


def _arranged(kind: ServedKind, faults: Iterator[Fault]) -> Iterator[Fault]:
    """Yield faults in the order of the fields in the table ``order``, those of items by their index."""
    fields = RULES.order(kind.native)
    if not fields:
        return faults
    some = [*islice(faults, _MOST_ARRANGED)]
    return chain(sorted(some, key=lambda fault: _rank(kind, fields, fault)) if len(some) > 1 else some, faults)


def _rank(kind: ServedKind, fields: Sequence[str], fault: Fault) -> tuple[Any, ...]:
    """Return what faults are sorted by: the rank of their field, then the indexes in it, and within a pod those of its spec."""
    first = _rank_of(fields, fault.field, fault.kind)
    before, found, rest = fault.field.partition(_POD_SPECS.get(kind.native, "") + ".")
    if before or not found or kind.native not in _POD_SPECS:
        return first
    second, part = _rank_of(RULES.order("PodSpec"), rest, fault.kind), _CONTAINER.match(rest)
    return (*first, *second, *(_rank_of(RULES.order("Container"), rest[part.end() :], fault.kind) if part else ()))


def _rank_of(fields: Sequence[str], path: str, kind: str) -> tuple[Any, ...]:
    place, indexes = _INDEX.sub("[]", path), [int(one) for one in _NUMBER.findall(path)]
    best, length, count = len(fields), -1, 0
    for rank, field in enumerate(fields):
        name, _, only = field.partition(": ")
        fits = place.startswith(name) and place[len(name) : len(name) + 1] in {"", ".", "["} and only in {"", kind}
        if fits and len(field) > length:
            best, length = rank, len(field)
            count = name.count("[]") + (place[len(name) : len(name) + 2] == "[]")
    return best, tuple(indexes[:count])


_CONTAINER: Final = re.compile(r"(?:containers|initContainers)\[\d+\]\.")
_NUMBER: Final = re.compile(r"\[(\d+)\]")
#: Kind → the place of its pod spec.
_POD_SPECS: Final = {
    "CronJob": "spec.jobTemplate.spec.template.spec", "Pod": "spec", "PodTemplate": "template.spec",
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"), "spec.template.spec"
    ),
}  # fmt: skip


#: Kinds whose changes are checked before their fields.
_CHANGES_FIRST: Final = frozenset(["ConfigMap", "DaemonSet", "Deployment", "IngressClass", "Secret", "VolumeAttributesClass"])


def _selector_faults(kind: ServedKind, document: Document, gates: FeatureGates) -> Iterator[Fault]:
    has_selectors = kind.native in {"DeviceClass", "ResourceClaim", "ResourceClaimTemplate"}
    return selector_faults(document, has_lists=gates["DRAListTypeAttributes"]) if has_selectors else iter(())


def drop_empty(metadata: Document) -> None:
    """Remove empty metadata fields, which are neither stored nor shown."""
    for name in _CLIENT_METADATA:
        if name in metadata and not metadata[name]:
            del metadata[name]


def _has_generation(kind: ServedKind, gates: FeatureGates) -> bool:
    """Return whether objects of a kind count their changes; autoscalers do since 1.37."""
    return kind.has_generation or (kind.native == "HorizontalPodAutoscaler" and gates.emulated.groups_as_one)


def _restore_unwritten(kind: ServedKind, old: Document, new: Document, subresource: str, gates: FeatureGates) -> None:
    """Restore every field that the subresource does not write."""
    match subresource:
        case "status" if kind.custom is not None:
            keep_all_but_status(old, new)
        case "status":
            _only_status(kind, old, new)
            drop_disabled_status_fields(kind, old, new, gates)
            if kind.native == "Pod":
                held, given = (old.get("status") or {}).get("qosClass"), new.setdefault("status", {})
                if held and isinstance(given, dict):
                    given["qosClass"] = given.get("qosClass") or held
        case "resize":
            _only_resources(old, new)
        case "ephemeralcontainers":
            sent = _reset_but_metadata(old, new)
            set_or_drop(new["spec"], "ephemeralContainers", sent.get("ephemeralContainers"))
        case _ if kind.has_status:
            set_or_drop(new, "status", old.get("status"))
    if kind.native == "Namespace" and subresource != "finalize":
        keep_finalizers(old, new)
    if kind.native == "CertificateSigningRequest":
        set_or_drop(new, "spec", copy.deepcopy(old.get("spec")))


def _is_changed(kind: ServedKind, old: Document, new: Document) -> bool:
    """Return True for a change that increments ``generation``: of any field but metadata and status, or of some metadata."""
    if kind.native == "PriorityClass":
        return False
    if kind.custom is not None:
        return is_custom_changed(old, new)
    before, after = ({name: value for name, value in one.items() if name not in _NOT_SPEC} for one in (old, new))
    counted = _COUNTED_METADATA.get(kind.native)
    notes = [one["metadata"].get(counted) or {} for one in (old, new)] if counted else [{}, {}]
    return before != after or notes[0] != notes[1]


#: The metadata that counts as part of the spec.
_COUNTED_METADATA: Final = {"Deployment": "annotations", "EndpointSlice": "labels"}


_NOT_SPEC: Final = frozenset(["apiVersion", "kind", "metadata", "status"])


def _keep_identity(kind: ServedKind, old: Document, new: Document, subresource: str) -> None:
    held, sent = old["metadata"], new["metadata"]
    if sent.get("uid") and sent["uid"] != held["uid"]:
        key = f"/registry/{_REGISTRY.get(kind.qualified, kind.resource)}/{key_of(held.get('namespace') or '', held['name'])}"
        why = (
            f"StorageError: invalid object, Code: 4, Key: {key.replace('//', '/')}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {sent['uid']}, UID in object meta: {held['uid']}"
        )
        raise conflict(kind.resource, kind.group, held["name"], why)
    sent.pop("selfLink", None)
    resets_deletion = subresource == "status" and (kind.native == "Pod" or kind.native in _RESET_METADATA)
    if held.get("deletionTimestamp") or resets_deletion:
        sent.pop("deletionTimestamp", None)
    fixed = [
        Fault("Invalid value", f"metadata.{name}", "field is immutable", sent[name])
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds")
        if sent.get(name) is not None and sent[name] != held.get(name)
    ]
    if fixed and not (subresource == "status" and kind.custom is not None):
        raise invalid(kind.kind, kind.group, held["name"], fixed)
    for name in _SERVER_METADATA:
        set_or_drop(sent, name, held.get(name))


#: Metadata that an update of the status does not change.
_KEPT_METADATA: Final = frozenset([("Deployment", "labels"), ("Pod", "ownerReferences")])


def _only_status(kind: ServedKind, old: Document, new: Document) -> None:
    status = new.get("status")
    metadata = {**old["metadata"]}
    for name in _STATUS_METADATA:
        is_reset = kind.native in _RESET_METADATA and name not in {"managedFields", "generateName"}
        if not is_reset and (kind.native, name) not in _KEPT_METADATA:
            set_or_drop(metadata, name, new["metadata"].get(name))
    set_or_drop(metadata, "resourceVersion", new["metadata"].get("resourceVersion"))
    new.clear()
    new.update(copy.deepcopy(old))
    new["metadata"] = metadata
    set_or_drop(new, "status", status)


def _reset_but_metadata(old: Document, new: Document) -> Document:
    """Reset a pod's new version to the old one, except resource version and managed fields; return the spec from the client."""
    sent, metadata = new.get("spec") or {}, new["metadata"]
    kept = {name: metadata.get(name) for name in ("resourceVersion", "managedFields")}
    new.clear()
    new.update(copy.deepcopy(old))
    for name, value in kept.items():
        set_or_drop(new["metadata"], name, value)
    return dict(sent)


def _only_resources(old: Document, new: Document) -> None:
    """Revert everything but the containers' resources and resize policies in an update of a pod.

    If the containers are not those of the old pod, they are kept, and validation reports them.
    """
    sent = _reset_but_metadata(old, new)
    for part in ("containers", "initContainers"):
        held, given = new["spec"].get(part) or [], sent.get(part) or []
        if [one.get("name") for one in held] != [one.get("name") for one in given]:
            new["spec"][part] = given
            continue
        for container, other in zip(held, given, strict=True):
            for name in ("resources", "resizePolicy"):
                set_or_drop(container, name, other.get(name))


# -- validation --------------------------------------------------------------------------------------------------------


def _read_faults(kind: ServedKind, document: Document, decoded: Object, gates: FeatureGates) -> Iterator[Fault]:
    """Yield the faults of what scheduling reads, named as the release names it."""
    if is_checked_anew(kind, gates):
        shown = as_checked(kind, document)
        return _faults(kind, decoded if shown is document else decode_document(kind, shown))
    if kind.native == "Workload":
        return map(_as_before_composites, _faults(kind, decoded))
    return _faults(kind, decoded)


def _as_before_composites(fault: Fault) -> Fault:
    """Return a fault of a workload as up to 1.36, where the templates of pod groups are the only ones."""
    return Fault("Required value", "spec.podGroupTemplates") if fault.field == "spec" and fault.value == "" else fault


def _faults(kind: ServedKind, decoded: Object) -> Iterator[Fault]:
    if kind.struct is not None:
        return faults_of(decoded)
    return object_meta(decoded.metadata, kind.namespaced, kind.check_name)


def _changed_metadata_faults(kind: ServedKind, old: Document, new: Document) -> Iterator[Fault]:
    """Yield the faults of metadata that a status write changes.

    Unchanged metadata is not validated again, so that objects adopted from a dump can run.
    """
    if any(old["metadata"].get(name) != new["metadata"].get(name) for name in _CLIENT_METADATA):
        decoded = decode({"metadata": {**new["metadata"], "generateName": ""}}, Object, "")
        yield from object_meta(decoded.metadata, kind.namespaced, kind.check_name)
        yield from metadata_faults(new["metadata"], kind)


#: Metadata fields that clients write.
_CLIENT_METADATA: Final = ("annotations", "finalizers", "labels", "ownerReferences")


#: Types whose spec is immutable up to 1.36, so that updates do not validate it again.
_FROZEN: Final = (PodGroup, Workload)


#: Kinds whose updates validate ``generateName``, too.
_CHECKED_BASES: Final = frozenset([
    "CSINode", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Endpoints", "Ingress", "LimitRange", "PersistentVolume",
    "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "ResourceClaim", "ResourceClaimTemplate", "Role", "RoleBinding",
    "Secret", "Service", "ServiceAccount", "VolumeAttachment", "VolumeAttributesClass",
])  # fmt: skip


def _raise_if_any(kind: ServedKind, document: Document, faults: Iterator[Fault]) -> None:
    first = next(faults, None)
    if first is not None:
        group = "" if kind.kind == "Event" else kind.group  # faults of events name the core API, also for events.k8s.io
        shown = (_as_shown(kind, fault, document) for fault in chain([first], faults))
        raise invalid(kind.kind, group, document["metadata"]["name"], shown)


def _as_shown(kind: ServedKind, fault: Fault, document: Document) -> Fault:
    """Return a fault about a struct of kube-apiserver with its value as that writes it, by the table ``structs``."""
    if fault.kind not in {"Invalid value", "Duplicate value"} or not isinstance(
        fault.value, dict | list | msgspec.Struct | None
    ):
        return fault
    path = _INDEX.sub("[]", fault.field)
    for place in (f"{kind.native} {path}", *(f"* {path[at:]}" for at, mark in enumerate(path) if mark == ".")):
        if struct := RULES.struct(place):
            at = fault.field if re.split(r"[.\[]", fault.field)[0] in document else f"spec.{fault.field}"
            return replace(fault, value=go_value(struct, as_sent(msgspec.json.decode(msgspec.json.encode(fault.value)), at)))
    return fault


_INDEX: Final = re.compile(r"\[[^\]]*\]")
