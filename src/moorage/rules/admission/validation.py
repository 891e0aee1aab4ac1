"""Validation of object fields that scheduling does not read.

``moorage.api.validation`` checks what scheduling reads. What else kube-apiserver checks stands in tables of rules, by type
(``rule_tables``), and in the modules of checks that these name.

Source  kubernetes, pkg/apis/core/validation/validation.go; pkg/apis/coordination/validation; apimachinery,
        pkg/util/validation
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.meta import LabelSelector
from moorage.api.packing import pack
from moorage.api.validation.rule_checks import STANDARD_FINALIZERS, finalizer_faults
from moorage.api.validation.values import is_selector
from moorage.errors import Fault

# The modules of checks register them.
from moorage.rules.admission import (  # noqa: F401
    device_checks,
    kind_checks,
    migration_status,
    network_checks,
    policy_expressions,
    registration_checks,
    workload_checks,
)
from moorage.rules.admission.custom_resource_strategy import declared_faults
from moorage.rules.admission.pod_checks import RULES, pod_spec_faults


def unread_field_faults(kind: ServedKind, document: Document) -> Iterator[Fault]:
    """Yield the faults of a defaulted object in fields that scheduling does not read."""
    yield from metadata_faults(document["metadata"], kind)
    for path, spec in pod_specs(kind, document) if _checks_template(kind, document) else ():
        yield from _spec_faults(path, spec, is_pod=kind.native == "Pod")
        if kind.native != "Pod" and spec.get("ephemeralContainers"):
            yield Fault("Forbidden", f"{path}.ephemeralContainers", "ephemeral containers not allowed in pod template")
    if kind.custom is None and RULES.has(type_name := _type_name(kind, document)):
        yield from RULES.faults(type_name, document)
    if kind.struct is None:
        yield from declared_faults(kind, document)


#: Specs without faults, encoded: pods of a workload are copies. At most so many, and none that is longer than this.
_VALID_SPECS: Final[set[bytes]] = set()
_MOST_SPECS: Final = 1024
_LONGEST_SPEC: Final = 8 << 10


def _spec_faults(path: str, spec: Document, *, is_pod: bool) -> Iterator[Fault]:
    encoded = pack((is_pod, spec))
    if encoded in _VALID_SPECS:
        return
    faults = pod_spec_faults(path, spec, is_pod=is_pod)
    if (first := next(faults, None)) is not None:
        yield first
        yield from faults
    elif len(encoded) <= _LONGEST_SPEC:
        if len(_VALID_SPECS) >= _MOST_SPECS:
            _VALID_SPECS.clear()
        _VALID_SPECS.add(encoded)


#: Kinds whose pod template is not checked if the selector is none.
_SELECTING: Final = frozenset(["Deployment", "ReplicaSet", "StatefulSet"])


def _checks_template(kind: ServedKind, document: Document) -> bool:
    if kind.native not in _SELECTING or not isinstance(spec := document.get("spec"), dict):
        return True
    given = spec.get("selector")
    return is_selector(msgspec.convert(given, LabelSelector) if given is not None else None)


def _type_name(kind: ServedKind, document: Document) -> str:
    """Return the name of a kind's table."""
    if kind.kind == "Event":
        return "Event" if "/" in str(document.get("apiVersion", "v1")) else "CoreEvent"
    return "AdmissionPolicy" if "AdmissionPolicy" in kind.kind else kind.kind


def new_object_faults(kind: ServedKind, document: Document) -> Iterator[Fault]:
    """Yield the faults of a new object that only apply on create."""
    if kind.native == "Event":
        yield from RULES.faults("NewEvent", document) if _type_name(kind, document) == "Event" else ()
    elif RULES.has(f"New{kind.native}"):
        yield from RULES.faults(f"New{kind.native}", document)


#: Groups whose objects may have finalizers without a domain, as those of custom kinds may.
_ANY_FINALIZER: Final = frozenset([
    "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "coordination.k8s.io",
    "node.k8s.io", "policy",
])  # fmt: skip


def metadata_faults(metadata: Document, kind: ServedKind | None = None) -> Iterator[Fault]:
    """Yield the faults in the finalizers of an object.

    Source  apis/core/validation (ValidateObjectMeta), which other groups do not use
    """
    if kind is None or (kind.custom is None and kind.group not in _ANY_FINALIZER):
        for i, name in enumerate(metadata.get("finalizers") or ()):
            yield from finalizer_faults(f"metadata.finalizers[{i}]", name)
    finalizers = metadata.get("finalizers") or []
    if {"orphan", "foregroundDeletion"} <= {*finalizers}:
        why = "finalizer orphan and foregroundDeletion cannot be both set"
        yield Fault("Invalid value", "metadata.finalizers", why, finalizers)


def finalizer_warnings(metadata: Document) -> tuple[str, ...]:
    """Return the warnings about finalizers of a new custom object without a domain."""
    return tuple(
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{_PATH if "." in name else ""} '
        "to avoid accidental conflicts with other finalizer writers"
        for name in sorted({*(metadata.get("finalizers") or ())} - STANDARD_FINALIZERS)
        if "/" not in name
    )


_PATH: Final = " including a path (/)"


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


def pod_template(kind: ServedKind, document: Document) -> tuple[Document, Document] | None:
    """Return the metadata and the spec of the pod template of a workload; None if it has none."""
    template = document.get("template") if kind.native == "PodTemplate" else None
    if kind.native in _WITH_POD_TEMPLATE or kind.native == "CronJob":
        spec = document.get("spec") or {}
        job = (spec.get("jobTemplate") or {}).get("spec") or {} if kind.native == "CronJob" else spec
        template = job.get("template")
    return (template.get("metadata") or {}, template.get("spec") or {}) if isinstance(template, dict) else None


def _with_claims(pod: Document, spec: Document) -> Document:
    """Return a stateful set's pod spec with the volumes that its controller adds for its claim templates."""
    claims = [(claim.get("metadata") or {}).get("name") for claim in spec.get("volumeClaimTemplates") or ()]
    named = frozenset(claims)
    own = [volume for volume in pod.get("volumes") or () if volume.get("name") not in named]
    added = [{"name": name or "", "persistentVolumeClaim": {"claimName": name or ""}} for name in claims]
    kept = {name: value for name, value in pod.items() if name not in {"hostname", "subdomain"}}
    return {**kept, "volumes": [*added, *own]}
