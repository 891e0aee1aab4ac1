"""What the API server writes into objects that leave it out, on documents, so that no field a client wrote gets lost.

Rules that ``moorage.api`` has for its structs are used as they are: an object is read, completed, and what changed is laid
over the document it came from. Fields that scheduling never reads, and clients still expect to find, are filled in here.

Source  kubernetes, pkg/apis/*/v1/defaults.go
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from moorage.api.core import LimitRange, Namespace, Node, Pod, ReplicationController
from moorage.api.defaults import (
    default_limit_range,
    default_namespace,
    default_node,
    default_pod,
    default_replication_controller,
    default_resource_claim,
    default_resource_claim_template,
)
from moorage.api.devices import ResourceClaim, ResourceClaimTemplate
from moorage.api.meta import Value
from moorage.apiserver.kinds import Kind
from moorage.apiserver.records import Document
from moorage.apiserver.schemas import Struct, kind_schema

__all__ = ["fill_in", "lay_over", "write_nulls"]

_RULES: Final[Mapping[type[Value], Callable[[Any], Value]]] = {
    LimitRange: default_limit_range,
    Namespace: default_namespace,
    Node: default_node,
    Pod: default_pod,
    ReplicationController: default_replication_controller,
    ResourceClaim: default_resource_claim,
    ResourceClaimTemplate: default_resource_claim_template,
}


def fill_in(kind: Kind, document: Document, read: Value | None) -> None:
    """Complete a document. ``read`` is the same object as scheduling reads it, or None for kinds it does not."""
    for name in _written_when_empty(kind):
        document.setdefault(name, {})
    if kind.kind == "Secret" and isinstance(texts := document.pop("stringData", None), dict):
        document["data"] = {**(document.get("data") or {}), **{key: _base64(str(text)) for key, text in texts.items()}}
    spec = document.get("spec")
    if isinstance(spec, dict):
        for fill in _SPECS.get((kind.group, kind.kind), ()):
            fill(spec)
    if kind.kind in {"ClusterRoleBinding", "RoleBinding"}:
        _binding(document)
    for name, value in _TOP.get((kind.group, kind.kind), {}).items():
        document.setdefault(name, value)
    rule = _RULES.get(type(read)) if read is not None else None
    if rule is not None and read is not None:
        lay_over(document, read, rule(read))


def write_nulls(kind: Kind, document: Document) -> None:
    """Write the nulls of fields that are written even where there is nothing in them."""
    spec = document.get("spec")
    if isinstance(spec, dict):
        if kind.kind == "PodGroup":
            spec.setdefault("podGroupTemplateRef", None)
        elif kind.kind == "Workload":
            for template in spec.get("podGroupTemplates") or ():
                template.setdefault("schedulingConstraints", None)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@cache
def _written_when_empty(kind: Kind) -> tuple[str, ...]:
    """Return the parts of an object that are there even with nothing in them: its spec and status, for most kinds."""
    fields = kind_schema(kind).fields.values()
    return tuple(field.name for field in fields if isinstance(field.type, Struct) and not field.is_pointer)


# -- what the structs' rules change -------------------------------------------------------------------------------------


def lay_over(document: Document, before: Value, after: Value) -> None:
    """Write what differs between two values of a struct into the document that the first was read from."""
    if before is not after:
        # As JSON would have them: lists, not tuples.
        was, becomes = (msgspec.json.decode(msgspec.json.encode(value)) for value in (before, after))
        _lay(document, was, becomes)


def _lay(document: Document, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    for name, value in after.items():
        old = before.get(name)
        if value == old and name in document:
            continue
        here = document.get(name)
        if isinstance(value, dict) and isinstance(here, dict):
            _lay(here, old or {}, value)
        elif isinstance(value, list) and isinstance(here, list) and _aligned(here, old, value):
            for inner, was, becomes in zip(here, old or [], value, strict=False):
                _lay(inner, was, becomes)
            here += value[len(here) :]
        elif value != old:
            document[name] = value


def _aligned(here: list[Any], old: Any, new: list[Any]) -> bool:
    """Return True when the items that a list began with are still the first of it, and can be completed one by one."""
    return len(here) == len(old or []) <= len(new) and all(isinstance(one, dict) for one in (*here, *(old or []), *new))


# -- what scheduling does not read --------------------------------------------------------------------------------------


def _pod_spec(spec: Document) -> None:
    for name, value in _POD_SPEC.items():
        spec.setdefault(name, value() if callable(value) else value)
    for volume in spec.get("volumes") or ():
        if isinstance(volume, dict) and volume.keys() <= {"name"}:
            volume["emptyDir"] = {}
    for container in _containers(spec):
        image = str(container.get("image", ""))
        latest = image.endswith(":latest") or (":" not in image.rpartition("/")[2] and "@" not in image)
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        for port in container.get("ports") or ():
            if isinstance(port, dict):
                port.setdefault("protocol", "TCP")


def _containers(spec: Document) -> Iterator[Document]:
    for part in ("initContainers", "containers", "ephemeralContainers"):
        held = spec.get(part)
        yield from (one for one in (held if isinstance(held, list) else ()) if isinstance(one, dict))


_POD_SPEC: Final[Mapping[str, Any]] = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": dict,
    "terminationGracePeriodSeconds": 30,
}


def _own_pod_spec(spec: Document) -> None:
    _pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)


def _template(spec: Document) -> None:
    """Complete the pods that a workload makes."""
    template = spec.get("template")
    if isinstance(template, dict):
        template.setdefault("metadata", {})
        if isinstance(inner := template.get("spec"), dict):
            _pod_spec(inner)


def _given(**defaults: Any) -> Callable[[Document], None]:
    def fill(spec: Document) -> None:
        for name, value in defaults.items():
            spec.setdefault(name, msgspec.json.decode(msgspec.json.encode(value)))

    return fill


def _deployment(spec: Document) -> None:
    strategy = spec.setdefault("strategy", {})
    if isinstance(strategy, dict) and strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        if isinstance(rolling, dict):
            rolling.setdefault("maxSurge", "25%")
            rolling.setdefault("maxUnavailable", "25%")


def _cron_job(spec: Document) -> None:
    inner = spec.get("jobTemplate")
    if isinstance(inner, dict) and isinstance(job := inner.get("spec"), dict):
        _template(job)


def _job(spec: Document) -> None:
    """A job that says neither how many pods nor how many at once has one."""
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed")


def _service(spec: Document) -> None:
    for port in spec.get("ports") or ():
        if isinstance(port, dict):
            port.setdefault("protocol", "TCP")
            if "port" in port:
                port.setdefault("targetPort", port["port"])


def _binding(document: Document) -> None:
    """Say of users, groups and roles that they are RBAC's."""
    subjects = document.get("subjects")
    for named in [document.get("roleRef"), *(subjects if isinstance(subjects, list) else ())]:
        if isinstance(named, dict) and named.get("kind") in {"ClusterRole", "Group", "Role", "User"}:
            named["apiGroup"] = named.get("apiGroup") or "rbac.authorization.k8s.io"


_ROLLING: Final = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
_IN_TURN: Final = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}

_SPECS: Final[Mapping[tuple[str, str], tuple[Callable[[Document], None], ...]]] = {
    ("", "Pod"): (_own_pod_spec,),
    ("", "ReplicationController"): (_given(replicas=1), _template),
    ("", "Service"): (_given(type="ClusterIP", sessionAffinity="None"), _service),
    ("", "PersistentVolume"): (_given(persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem"),),
    ("", "PersistentVolumeClaim"): (_given(volumeMode="Filesystem"),),
    ("apps", "Deployment"): (_given(replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600), _deployment, _template),
    ("apps", "ReplicaSet"): (_given(replicas=1), _template),
    ("apps", "DaemonSet"): (_given(revisionHistoryLimit=10, updateStrategy=_ROLLING), _template),
    ("apps", "StatefulSet"): (
        _given(replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady", updateStrategy=_IN_TURN),
        _template,
    ),
    ("batch", "Job"): (
        _given(completionMode="NonIndexed", suspend=False),
        _job,
        _template,
    ),
    ("scheduling.k8s.io", "PodGroup"): (_given(disruptionMode="Pod"),),
    ("batch", "CronJob"): (
        _given(concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1),
        _cron_job,
    ),
}

_TOP: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("storage.k8s.io", "StorageClass"): {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    ("scheduling.k8s.io", "PriorityClass"): {"preemptionPolicy": "PreemptLowerPriority"},
    ("", "Secret"): {"type": "Opaque"},
}
