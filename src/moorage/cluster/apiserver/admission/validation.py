"""Validation of object fields that scheduling does not read.

``moorage.api.validation`` checks what scheduling reads. This module checks images and policies of containers, mounts and
volume sources, and finds the checks of every other kind, which stand in the modules beside it.

Source  kubernetes, pkg/apis/core/validation/validation.go; pkg/apis/coordination/validation; apimachinery,
        pkg/util/validation
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from moorage.api.cron import CronError, parse_schedule
from moorage.api.names import check_dns1123_label
from moorage.api.validation.faults import in_range
from moorage.cluster.apiserver.admission.container_validation import (
    container_faults,
    probe_faults,
    source_faults,
    variable_name_faults,
)
from moorage.cluster.apiserver.admission.custom_resource_strategy import declared_faults
from moorage.cluster.apiserver.admission.device_validation import device_claim_faults, device_class_faults, device_slice_faults
from moorage.cluster.apiserver.admission.plain_kind_validation import (
    config_map_faults,
    controller_faults,
    endpoints_faults,
    event_faults,
    ingress_faults,
    limit_faults,
    node_faults,
    revision_faults,
    runtime_class_faults,
    secret_faults,
    stateful_set_faults,
)
from moorage.cluster.apiserver.admission.pod_setting_validation import pod_annotation_faults, pod_setting_faults
from moorage.cluster.apiserver.admission.policy_kind_validation import (
    admission_policy_faults,
    autoscaler_faults,
    network_policy_faults,
)
from moorage.cluster.apiserver.admission.services import service_faults
from moorage.cluster.apiserver.admission.storage_validation import (
    attachment_faults,
    claim_faults,
    csi_node_faults,
    driver_faults,
    storage_class_faults,
    volume_faults,
    volume_source_faults,
)
from moorage.cluster.apiserver.admission.string_formats import NON_STANDARD_IP, has_address
from moorage.cluster.apiserver.admission.workload_validation import cron_job_limit_faults, job_faults, rollout_faults
from moorage.cluster.apiserver.schema.schemas import schema
from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.cluster.apiserver.vocabulary.served_kinds import ServedKind
from moorage.errors import Fault

_INT32_MAX: Final = 2**31 - 1
_FINALIZERS: Final = frozenset(["foregroundDeletion", "kubernetes", "orphan"])
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_ZONE_PART: Final = re.compile(r"[-A-Za-z._0-9+]{1,14}")
#: Message for a time zone within a schedule.
SCHEDULE_ZONE: Final = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"


def unread_field_faults(kind: ServedKind, document: Document) -> Iterator[Fault]:
    """Yield the faults of a defaulted object in fields that scheduling does not read."""
    yield from metadata_faults(document["metadata"], kind)
    for path, spec in pod_specs(kind, document):
        yield from _pod_spec_faults(path, spec, is_pod=kind.native == "Pod")
        if kind.native != "Pod" and spec.get("ephemeralContainers"):
            yield Fault("Forbidden", f"{path}.ephemeralContainers", "ephemeral containers not allowed in pod template")
    rule = _RULES.get((kind.group, kind.kind))
    if rule is not None:
        yield from rule(document)
    if kind.struct is None:
        yield from declared_faults(kind, document)


def new_pod_faults(pod: Document) -> Iterator[Fault]:
    """Yield the faults of a new pod that only apply on create."""
    spec = pod.get("spec") or {}
    if spec.get("ephemeralContainers"):
        yield Fault("Forbidden", "spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield Fault("Forbidden", "spec.nodeName", "cannot be set until all schedulingGates have been cleared")


#: Groups whose objects may have finalizers without a domain, as those of custom kinds may.
_ANY_FINALIZER: Final = frozenset(
    [
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
        "policy",
    ]
)


def metadata_faults(metadata: Document, kind: ServedKind | None = None) -> Iterator[Fault]:
    """Yield the faults in the finalizers and owner references of an object.

    Source  apis/core/validation (ValidateObjectMeta), which other groups do not use
    """
    if kind is None or (kind.custom is None and kind.group not in _ANY_FINALIZER):
        yield from _finalizer_faults("metadata", metadata)
    finalizers = metadata.get("finalizers") or []
    if {"orphan", "foregroundDeletion"} <= {*finalizers}:
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        yield Fault("Invalid value", "metadata.finalizers", why, finalizers)
    for owner in metadata.get("ownerReferences") or ():
        if not owner.get("apiVersion"):
            yield Fault("Invalid value", "metadata.ownerReferences.apiVersion", "version must not be empty", "")
        if not owner.get("uid"):
            yield Fault("Invalid value", "metadata.ownerReferences.uid", "must not be empty", "")


def _finalizer_faults(path: str, holder: Document) -> Iterator[Fault]:
    for i, name in enumerate(holder.get("finalizers") or ()):
        if "/" not in name and name not in _FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield Fault("Invalid value", f"{path}.finalizers[{i}]", why, name)


def finalizer_warnings(metadata: Document) -> tuple[str, ...]:
    """Return the warnings about finalizers of a new custom object without a domain."""
    return tuple(
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{_PATH if "." in name else ""} '
        "to avoid accidental conflicts with other finalizer writers"
        for name in sorted({*(metadata.get("finalizers") or ())} - _FINALIZERS)
        if "/" not in name
    )


_PATH: Final = " including a path (/)"


def _namespace(namespace: Document) -> Iterator[Fault]:
    for name in (namespace.get("spec") or {}).get("finalizers") or ():
        if "/" not in name and name not in _FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield Fault("Invalid value", "spec.finalizers", why, name)


# -- pods --------------------------------------------------------------------------------------------------------------

_WITH_POD_TEMPLATE: Final = frozenset(["DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"])


def pod_specs(kind: ServedKind, document: Document) -> Iterator[tuple[str, Document]]:
    """Yield the pod spec of a pod, or of an object's pod template, with its path."""
    spec = document.get("template" if kind.native == "PodTemplate" else "spec")
    if not isinstance(spec, dict):
        return
    if kind.native == "PodTemplate":
        if inner := spec.get("spec"):
            yield "template.spec", inner
    elif kind.native == "Pod":
        yield "spec", spec
    elif kind.native in _WITH_POD_TEMPLATE or kind.native == "CronJob":
        job = (spec.get("jobTemplate") or {}).get("spec") or {} if kind.native == "CronJob" else spec
        path = "spec.jobTemplate.spec.template.spec" if kind.native == "CronJob" else "spec.template.spec"
        if inner := (job.get("template") or {}).get("spec"):
            yield path, _with_claims(inner, spec) if kind.native == "StatefulSet" else inner


def _with_claims(pod: Document, spec: Document) -> Document:
    """Return a stateful set's pod spec with the volumes that its controller adds for its claim templates."""
    claims = [(claim.get("metadata") or {}).get("name") for claim in spec.get("volumeClaimTemplates") or ()]
    named = frozenset(claims)
    own = [volume for volume in pod.get("volumes") or () if volume.get("name") not in named]
    added = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims if name]
    kept = {name: value for name, value in pod.items() if name not in {"hostname", "subdomain"}}
    return {**kept, "volumes": [*own, *added]}


def _pod_spec_faults(path: str, spec: Document, *, is_pod: bool) -> Iterator[Fault]:
    volumes: dict[str, Document] = {}
    for i, volume in enumerate(spec.get("volumes") or ()):
        found = list(_volume_faults(f"{path}.volumes[{i}]", volume, is_pod=is_pod))
        yield from found
        if not found:
            volumes[volume.get("name", "")] = volume
    for part in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(part) or ()):
            yield from _container_faults(f"{path}.{part}[{i}]", container, volumes)
            yield from container_faults(f"{path}.{part}[{i}]", container, volumes, spec)
            yield from probe_faults(f"{path}.{part}[{i}]", container, is_init=part == "initContainers")
    yield from pod_setting_faults(path, spec, is_pod=is_pod)
    yield from _ephemeral_faults(f"{path}.ephemeralContainers", spec, volumes)
    yield from _one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    yield from in_range(f"{path}.activeDeadlineSeconds", spec.get("activeDeadlineSeconds"), 1, _INT32_MAX)
    for name in ("hostname", "subdomain"):
        for why in check_dns1123_label(spec[name]) if spec.get(name) else ():
            yield Fault("Invalid value", f"{path}.{name}", why, spec[name])


def _one_of(path: str, value: Any, supported: tuple[str, ...]) -> Iterator[Fault]:
    if value and value not in supported:
        shown = ", ".join(f'"{one}"' for one in supported)
        yield Fault("Unsupported value", path, f"supported values: {shown}", value)


@cache
def _sources(name: str) -> tuple[str, ...]:
    """Return the field names of volume sources, in the order in which they are checked."""
    names = [one for one in schema(name).fields if one != "emptyDir"]
    return ("emptyDir", *names)


def _volume_faults(path: str, volume: Document, *, is_pod: bool) -> Iterator[Fault]:
    given = [one for one in _sources("core.VolumeSource") if one in volume]
    if not given:
        yield Fault("Required value", path, "must specify a volume type")
    for extra in given[1:]:
        yield Fault("Forbidden", f"{path}.{extra}", "may not specify more than 1 volume type")
    for name in given[:1]:
        if name == "hostPath" and not volume[name].get("path"):
            yield Fault("Required value", f"{path}.hostPath.path")
        yield from volume_source_faults(path, name, volume[name], is_pod=is_pod)


def _container_faults(path: str, container: Document, volumes: Mapping[str, Document]) -> Iterator[Fault]:
    if not container.get("image"):
        yield Fault("Required value", f"{path}.image")
    yield from _one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES)
    yield from _one_of(f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _MESSAGE_POLICIES)
    for i, port in enumerate(container.get("ports") or ()):
        if port.get("hostIP") and not has_address(port["hostIP"]):
            yield Fault("Invalid value", f"{path}.ports[{i}].hostIP", NON_STANDARD_IP, port["hostIP"])
    for i, variable in enumerate(container.get("env") or ()):
        yield from variable_name_faults(f"{path}.env[{i}].name", variable.get("name", ""))
        yield from source_faults(f"{path}.env[{i}].valueFrom", variable)
    yield from _mount_faults(f"{path}.volumeMounts", container.get("volumeMounts") or (), volumes)


#: Fields that an ephemeral container may have.
_EPHEMERAL: Final = frozenset(
    ["args", "command", "env", "envFrom", "image", "imagePullPolicy", "name", "securityContext", "stdin",
     "stdinOnce", "targetContainerName", "terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices",
     "volumeMounts", "workingDir"]
)  # fmt: skip


def _ephemeral_faults(path: str, spec: Document, volumes: Mapping[str, Document]) -> Iterator[Fault]:
    others = {one.get("name") for part in ("containers", "initContainers") for one in spec.get(part) or ()}
    names = set(others)
    for i, container in enumerate(spec.get("ephemeralContainers") or ()):
        at, name = f"{path}[{i}]", container.get("name") or ""
        if not name:
            yield Fault("Required value", f"{at}.name")
        else:
            yield from (Fault("Invalid value", f"{at}.name", why, name) for why in check_dns1123_label(name))
        yield from _container_faults(at, container, volumes)
        if name in names:
            yield Fault("Duplicate value", f"{at}.name", "", name)
        names.add(name)
        target = container.get("targetContainerName")
        if target and target not in others:
            yield Fault("Not found", f"{at}.targetContainerName", "", target)
        for field, value in container.items():
            if value and field not in _EPHEMERAL:
                yield Fault("Forbidden", f"{at}.{field}", "cannot be set for an Ephemeral Container")


def _mount_faults(path: str, mounts: Any, volumes: Mapping[str, Document]) -> Iterator[Fault]:
    places: set[str] = set()
    for i, mount in enumerate(mounts):
        name, place = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield Fault("Required value", f"{path}[{i}].name")
        if name not in volumes:
            yield Fault("Not found", f"{path}[{i}].name", "", name)
        if not place:
            yield Fault("Required value", f"{path}[{i}].mountPath")
        if place in places:
            yield Fault("Invalid value", f"{path}[{i}].mountPath", "must be unique", place)
        places.add(place)


# -- other kinds -------------------------------------------------------------------------------------------------------


def _cron_job(cron_job: Document) -> Iterator[Fault]:
    schedule, zone = cron_job["spec"].get("schedule") or "", cron_job["spec"].get("timeZone")
    if schedule and (why := _schedule_fault(schedule)):
        yield Fault("Invalid value", "spec.schedule", why, schedule)
    if "TZ" in schedule and zone is not None:
        yield Fault("Invalid value", "spec.schedule", "cannot use both timeZone field and TZ or CRON_TZ in schedule", schedule)
    if zone is not None and (why := _zone_fault(zone)):
        yield Fault("Invalid value", "spec.timeZone", why, zone)
    yield from cron_job_limit_faults(cron_job)


def new_cron_job_faults(cron_job: Document) -> Iterator[Fault]:
    """Yield the fault of a new cron job whose schedule contains a time zone; existing ones may keep it."""
    schedule, zone = cron_job["spec"].get("schedule") or "", cron_job["spec"].get("timeZone")
    if "TZ" in schedule and zone is None:
        yield Fault("Invalid value", "spec.schedule", SCHEDULE_ZONE, schedule)


@lru_cache(maxsize=256)
def _schedule_fault(schedule: str) -> str:
    """Return what is wrong with a schedule, or ""."""
    try:
        parse_schedule(schedule)
    except CronError as error:
        return str(error)
    return ""


@lru_cache(maxsize=256)
def _zone_fault(zone: str) -> str:
    """Return what is wrong with the name of a time zone, or ""."""
    if not zone:
        return "timeZone must be nil or non-empty string"
    if zone.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    parts = zone.split("/")
    if all(part not in {".", ".."} and part[:1] != "-" and _ZONE_PART.fullmatch(part) for part in parts):
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
        else:
            return ""
    return f"unknown time zone {zone}"


def _stateful_set(found: Document) -> Iterator[Fault]:
    yield from rollout_faults(found)
    yield from stateful_set_faults(found)


_RULES: Final[Mapping[tuple[str, str], Callable[[Document], Iterator[Fault]]]] = {
    **{
        ("admissionregistration.k8s.io", f"{form}AdmissionPolicy{part}"): admission_policy_faults
        for form in ("Mutating", "Validating")
        for part in ("", "Binding")
    },
    **{("apps", kind): rollout_faults for kind in ("DaemonSet", "Deployment", "ReplicaSet")},
    ("apps", "StatefulSet"): _stateful_set,
    ("", "ConfigMap"): config_map_faults,
    ("", "Endpoints"): endpoints_faults,
    ("", "Event"): event_faults,
    ("", "LimitRange"): limit_faults,
    ("", "Namespace"): _namespace,
    ("", "Node"): node_faults,
    ("", "PersistentVolume"): volume_faults,
    ("", "PersistentVolumeClaim"): claim_faults,
    ("", "Pod"): pod_annotation_faults,
    ("", "ReplicationController"): controller_faults,
    ("", "Secret"): secret_faults,
    ("", "Service"): service_faults,
    ("apps", "ControllerRevision"): revision_faults,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscaler_faults,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): job_faults,
    ("resource.k8s.io", "DeviceClass"): device_class_faults,
    ("resource.k8s.io", "ResourceClaim"): device_claim_faults,
    ("resource.k8s.io", "ResourceClaimTemplate"): device_claim_faults,
    ("resource.k8s.io", "ResourceSlice"): device_slice_faults,
    ("events.k8s.io", "Event"): event_faults,
    ("networking.k8s.io", "Ingress"): ingress_faults,
    ("networking.k8s.io", "NetworkPolicy"): network_policy_faults,
    ("node.k8s.io", "RuntimeClass"): runtime_class_faults,
    ("storage.k8s.io", "CSIDriver"): driver_faults,
    ("storage.k8s.io", "CSINode"): csi_node_faults,
    ("storage.k8s.io", "StorageClass"): storage_class_faults,
    ("storage.k8s.io", "VolumeAttachment"): attachment_faults,
}
