"""Validation of object fields that scheduling does not read.

``moorage.api.validation`` checks what scheduling reads. This module checks images and policies of containers, mounts,
volume sources, config map and secret keys and the other fields whose errors clients expect.

Source  kubernetes, pkg/apis/core/validation/validation.go; pkg/apis/coordination/validation; apimachinery,
        pkg/util/validation
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from moorage.api.cron import CronError, parse_schedule
from moorage.api.names import check_dns1123_label
from moorage.apiserver.admission.event_validation import event_faults
from moorage.apiserver.admission.ingress_validation import ingress_faults
from moorage.apiserver.admission.probe_validation import probe_faults, source_faults
from moorage.apiserver.admission.rollout_validation import rollout_faults
from moorage.apiserver.admission.service_validation import service_faults
from moorage.apiserver.schema.schemas import schema
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.errors import Fault

__all__ = ["SCHEDULE_ZONE", "metadata_faults", "new_cron_job_faults", "new_pod_faults", "pod_specs", "unread_field_faults"]

_INT32_MAX: Final = 2**31 - 1
_FINALIZERS: Final = frozenset(["foregroundDeletion", "kubernetes", "orphan"])
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_MAX_DATA: Final = 1 << 20
_ENV_NAME: Final = re.compile(r"[ -<>-~]+")
_ZONE_PART: Final = re.compile(r"[-A-Za-z._0-9+]{1,14}")
_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
#: Message for a time zone within a schedule.
SCHEDULE_ZONE: Final = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
_ENV_NAME_TEXT: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '=' (e.g. 'my.env-name',  or "
    "'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is '^[ -<>-~]+$')"
)


def unread_field_faults(kind: ServedKind, document: Document) -> Iterator[Fault]:
    """Yield the faults of a defaulted object in fields that scheduling does not read."""
    yield from metadata_faults(document["metadata"])
    for path, spec in pod_specs(kind, document):
        yield from _pod_spec_faults(path, spec)
        if kind.native != "Pod" and spec.get("ephemeralContainers"):
            yield Fault("Forbidden", f"{path}.ephemeralContainers", "ephemeral containers not allowed in pod template")
    rule = _RULES.get((kind.group, kind.kind))
    if rule is not None:
        yield from rule(document)


def new_pod_faults(pod: Document) -> Iterator[Fault]:
    """Yield the faults of a new pod that only apply on create."""
    spec = pod.get("spec") or {}
    if spec.get("ephemeralContainers"):
        yield Fault("Forbidden", "spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield Fault("Forbidden", "spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def metadata_faults(metadata: Document) -> Iterator[Fault]:
    """Yield the faults in the finalizers and owner references of an object."""
    yield from _finalizer_faults("metadata", metadata)
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


def _namespace(namespace: Document) -> Iterator[Fault]:
    yield from _finalizer_faults("spec", namespace.get("spec") or {})


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


def _pod_spec_faults(path: str, spec: Document) -> Iterator[Fault]:
    volumes: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or ()):
        found = list(_volume_faults(f"{path}.volumes[{i}]", volume))
        yield from found
        if not found:
            volumes.add(volume.get("name", ""))
    for part in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(part) or ()):
            yield from _container_faults(f"{path}.{part}[{i}]", container, volumes)
            yield from probe_faults(f"{path}.{part}[{i}]", container, is_init=part == "initContainers")
    yield from _ephemeral_faults(f"{path}.ephemeralContainers", spec, volumes)
    yield from _one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _INT32_MAX:
        yield Fault(
            "Invalid value", f"{path}.activeDeadlineSeconds", f"must be between 1 and {_INT32_MAX}, inclusive", deadline
        )
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


def _volume_faults(path: str, volume: Document) -> Iterator[Fault]:
    given = [one for one in _sources("core.VolumeSource") if one in volume]
    if not given:
        yield Fault("Required value", path, "must specify a volume type")
    for extra in given[1:]:
        yield Fault("Forbidden", f"{path}.{extra}", "may not specify more than 1 volume type")
    if given[:1] == ["hostPath"] and not volume["hostPath"].get("path"):
        yield Fault("Required value", f"{path}.hostPath.path")


def _container_faults(path: str, container: Document, volumes: set[str]) -> Iterator[Fault]:
    if not container.get("image"):
        yield Fault("Required value", f"{path}.image")
    yield from _one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES)
    yield from _one_of(f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _MESSAGE_POLICIES)
    for i, port in enumerate(container.get("ports") or ()):
        if port.get("hostIP") and not _is_address(port["hostIP"]):
            why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            yield Fault("Invalid value", f"{path}.ports[{i}].hostIP", why, port["hostIP"])
    for i, variable in enumerate(container.get("env") or ()):
        yield from _variable_faults(f"{path}.env[{i}].name", variable.get("name", ""))
        yield from source_faults(f"{path}.env[{i}].valueFrom", variable)
    yield from _mount_faults(f"{path}.volumeMounts", container.get("volumeMounts") or (), volumes)


#: Fields that an ephemeral container may have.
_EPHEMERAL: Final = frozenset(
    ["args", "command", "env", "envFrom", "image", "imagePullPolicy", "name", "securityContext", "stdin",
     "stdinOnce", "targetContainerName", "terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices",
     "volumeMounts", "workingDir"]
)  # fmt: skip


def _ephemeral_faults(path: str, spec: Document, volumes: set[str]) -> Iterator[Fault]:
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


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _variable_faults(path: str, name: str) -> Iterator[Fault]:
    if not name:
        yield Fault("Required value", path)
    elif not _ENV_NAME.fullmatch(name):
        yield Fault("Invalid value", path, _ENV_NAME_TEXT, name)


def _mount_faults(path: str, mounts: Any, volumes: set[str]) -> Iterator[Fault]:
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


def _data(parts: tuple[str, ...]) -> Callable[[Document], Iterator[Fault]]:
    """Return the validation of a kind with the given data fields, whose keys must be file names."""

    def faults(document: Document) -> Iterator[Fault]:
        size = 0
        for part in parts:
            for key, value in (document.get(part) or {}).items():
                size += len(value)
                for why in _config_key_faults(key):
                    yield Fault("Invalid value", f"{part}[{key}]", why, key)
        if size > _MAX_DATA * (1 if parts == ("data", "binaryData") else 2):
            yield Fault("Too long", "", f"may not be more than {_MAX_DATA} bytes")

    return faults


def _config_key_faults(key: str) -> Iterator[str]:
    if len(key) > 253:
        yield "must be no more than 253 characters"
    if not _CONFIG_KEY.fullmatch(key):
        yield _CONFIG_KEY_TEXT
    if key == ".":
        yield "must not be '.'"
    elif key.startswith(".."):
        yield "must not be '..'" if key == ".." else "must not start with '..'"


def _lease(lease: Document) -> Iterator[Fault]:
    spec = lease.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield Fault("Invalid value", "spec.leaseDurationSeconds", "must be greater than 0", duration)
    if transitions is not None and transitions < 0:
        yield Fault("Invalid value", "spec.leaseTransitions", "must be greater than or equal to 0", transitions)


def _volume(volume: Document) -> Iterator[Fault]:
    spec = volume.get("spec") or {}
    given = [one for one in _sources("core.PersistentVolumeSource") if one in spec]
    if not given:
        yield Fault("Required value", "spec", "must specify a volume type")
    for extra in given[1:]:
        yield Fault("Forbidden", f"spec.{extra}", "may not specify more than 1 volume type")


def _driver(driver: Document) -> Iterator[Fault]:
    seen: set[str] = set()
    for i, one in enumerate((driver.get("spec") or {}).get("tokenRequests") or ()):
        audience = one.get("audience") or ""
        if audience in seen:
            yield Fault("Duplicate value", f"spec.tokenRequests[{i}].audience", "", audience)
        seen.add(audience)


def _cron_job(cron_job: Document) -> Iterator[Fault]:
    schedule, zone = cron_job["spec"].get("schedule") or "", cron_job["spec"].get("timeZone")
    if schedule and (why := _schedule_fault(schedule)):
        yield Fault("Invalid value", "spec.schedule", why, schedule)
    if "TZ" in schedule and zone is not None:
        yield Fault("Invalid value", "spec.schedule", "cannot use both timeZone field and TZ or CRON_TZ in schedule", schedule)
    if zone is not None and (why := _zone_fault(zone)):
        yield Fault("Invalid value", "spec.timeZone", why, zone)


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


_RULES: Final[Mapping[tuple[str, str], Callable[[Document], Iterator[Fault]]]] = {
    **{("apps", kind): rollout_faults for kind in ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")},
    ("storage.k8s.io", "CSIDriver"): _driver,
    ("", "ConfigMap"): _data(("data", "binaryData")),
    ("", "Event"): event_faults,
    ("", "Namespace"): _namespace,
    ("", "PersistentVolume"): _volume,
    ("", "Secret"): _data(("data",)),
    ("", "Service"): service_faults,
    ("batch", "CronJob"): _cron_job,
    ("coordination.k8s.io", "Lease"): _lease,
    ("networking.k8s.io", "Ingress"): ingress_faults,
    ("events.k8s.io", "Event"): event_faults,
}
