"""The other versions of built-in kinds: an object is stored in one version, and converted for clients of another.

Most versions have the fields of the stored one, and only ``apiVersion`` differs. Horizontal pod autoscalers of version 1 know a
target of CPU alone: what else version 2 has is in annotations. Devices and requests of ``resource.k8s.io/v1beta1`` have their
fields in another place, and two fields of pod certificate requests are gone from version 1.

Source  kubernetes, pkg/apis/autoscaling/v1: conversion.go; pkg/apis/autoscaling: annotations.go; pkg/apis/resource/v1beta1:
        conversion.go
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import bad_request
from moorage.api.schema.normalization import FieldTypeError, conform
from moorage.api.schema.schemas import kind_schema

_Convert = Callable[[Document], None]


def is_renamed(kind: ServedKind) -> bool:
    """Return whether a version has the fields of the stored one."""
    return (kind.api_version, kind.kind) not in _CONVERSIONS


def convert(kind: ServedKind, source: ServedKind, document: Document) -> None:
    """Make a document of a kind one of another version of it, in place. One of the two is the stored version.

    Raises  ApiError 400 for annotations that hold no fields of the stored version
    """
    other = source if kind.stored_as is None else kind
    to_stored, from_stored = _CONVERSIONS.get((other.api_version, other.kind), (None, None))
    edit = to_stored if kind.stored_as is None else from_stored
    if edit is not None:
        edit(document)
    document["apiVersion"] = kind.api_version
    if edit is not None and kind.stored_as is None:
        try:
            made, _ = conform(kind_schema(kind), document)
        except FieldTypeError as error:
            raise bad_request(str(error)) from None
        document.clear()
        document.update(made)


# -- horizontal pod autoscalers ----------------------------------------------------------------------------------------

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
#: Annotation → where its value is in version 2.
_IN_ANNOTATIONS: Final = {
    "metrics": ("spec", "metrics"), "behavior": ("spec", "behavior"), "current-metrics": ("status", "currentMetrics"),
    "conditions": ("status", "conditions"),
}  # fmt: skip
_SIDES: Final = {"metrics": "target", "current-metrics": "current"}
#: What an autoscaler without any metric aims at.
_DEFAULT_PERCENT: Final = 80


def _autoscaler_to_v2(document: Document) -> None:
    annotations = document["metadata"].get("annotations") or {}
    found = {name: _read(annotations.pop(_PREFIX + name)) for name in _IN_ANNOTATIONS if _PREFIX + name in annotations}
    spec, status = document.setdefault("spec", {}), document.get("status") or {}
    metrics: list[Any] = []
    if (percent := spec.pop("targetCPUUtilizationPercentage", None)) is not None:
        metrics.append(_cpu_metric("target", {"type": "Utilization", "averageUtilization": percent}))
    if (percent := status.pop("currentCPUUtilizationPercentage", None)) is not None:
        status["currentMetrics"] = [_cpu_metric("current", {"averageUtilization": percent})]
    for name, (part, field) in _IN_ANNOTATIONS.items():
        if name in found:
            holder = spec if part == "spec" else status
            holder[field] = _new_metrics(found[name], _SIDES[name]) if name in _SIDES else found[name]
    spec["metrics"] = [*metrics, *(spec.get("metrics") or ())] or [
        _cpu_metric("target", {"type": "Utilization", "averageUtilization": _DEFAULT_PERCENT})
    ]


def _autoscaler_to_v1(document: Document) -> None:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    if "status" in document:
        status.setdefault("currentReplicas", 0)
    metrics = spec.get("metrics") or []
    target = next((one for one in metrics if _cpu_percent(one, "target") is not None), None)
    spec["metrics"] = [one for one in metrics if one is not target]
    if target is not None:
        spec["targetCPUUtilizationPercentage"] = _cpu_percent(target, "target")
    percents = [_cpu_percent(one, "current") for one in status.get("currentMetrics") or ()]
    if (percent := next((one for one in percents if one is not None), None)) is not None:
        status["currentCPUUtilizationPercentage"] = percent
    annotations = {}
    for name, (part, field) in _IN_ANNOTATIONS.items():
        value = (spec if part == "spec" else status).pop(field, None)
        if value:
            held = _old_metrics(value, _SIDES[name]) if name in _SIDES else value
            annotations[_PREFIX + name] = json.dumps(held, separators=(",", ":"))
    if annotations:
        document["metadata"]["annotations"] = {**(document["metadata"].get("annotations") or {}), **annotations}


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise bad_request(f"an annotation with fields of another version is not JSON: {error}") from None


def _cpu_metric(side: str, value: Mapping[str, Any]) -> Document:
    return {"type": "Resource", "resource": {"name": "cpu", side: dict(value)}}


def _cpu_percent(metric: Mapping[str, Any], side: str) -> Any:
    source = metric.get("resource") or {}
    is_cpu = metric.get("type") == "Resource" and source.get("name") == "cpu"
    return (source.get(side) or {}).get("averageUtilization") if is_cpu else None


def _source_of(metric: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the field of a metric's type, such as ``containerResource``, and its content."""
    kind = str(metric.get("type") or "")
    name = kind[:1].lower() + kind[1:]
    return name, metric.get(name) or {}


def _old_metrics(metrics: Iterable[Mapping[str, Any]], side: str) -> list[Document]:
    """Return metrics of version 2 in the form that annotations have. ``side``: ``target`` or ``current``."""
    made = []
    for metric in metrics:
        name, source = _source_of(metric)
        value, of = source.get(side) or {}, source.get("metric") or {}
        selector = "metricSelector" if name == "external" else "selector"
        held = {
            "name": source.get("name"), "container": source.get("container"), "target": source.get("describedObject"),
            "metricName": of.get("name"), selector: of.get("selector"), f"{side}Value": value.get("value"),
            f"{side}AverageUtilization": value.get("averageUtilization"),
            ("averageValue" if name == "object" else f"{side}AverageValue"): value.get("averageValue"),
        }  # fmt: skip
        made.append({"type": metric.get("type"), name: {key: one for key, one in held.items() if one is not None}})
    return made


def _new_metrics(metrics: Any, side: str) -> list[Document]:
    """Return metrics of annotations in the form of version 2.

    Raises  ApiError 400 for what is no list of metrics
    """
    made = []
    for metric in metrics if isinstance(metrics, list) else [None]:
        metric = metric if isinstance(metric, dict) else {}  # noqa: PLW2901
        name, source = _source_of(metric)
        if not name or not isinstance(source, dict):
            raise bad_request("an annotation of the autoscaler does not hold metrics")
        values = {
            "value": source.get(f"{side}Value"), "averageUtilization": source.get(f"{side}AverageUtilization"),
            "averageValue": source.get("averageValue", source.get(f"{side}AverageValue")),
        }  # fmt: skip
        value = {key: one for key, one in values.items() if one is not None}
        if side == "target":
            value["type"] = next((_TYPES[key] for key in ("averageUtilization", "averageValue", "value") if key in value), "")
        of = {"name": source.get("metricName"), "selector": source.get("selector", source.get("metricSelector"))}
        held = {
            "name": source.get("name"), "container": source.get("container"), "describedObject": source.get("target"),
            "metric": {key: one for key, one in of.items() if one is not None} or None, side: value,
        }  # fmt: skip
        made.append({"type": metric["type"], name: {key: one for key, one in held.items() if one is not None}})
    return made


_TYPES: Final = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}


# -- devices -----------------------------------------------------------------------------------------------------------


def _requests(document: Document) -> list[Any]:
    spec = document.get("spec") or {}
    spec = spec.get("spec") or {} if "spec" in spec else spec
    return (spec.get("devices") or {}).get("requests") or []


def _requests_to_v1(document: Document) -> None:
    for request in _requests(document):
        exactly = {name: request.pop(name) for name in [*request] if name not in {"name", "firstAvailable"}}
        if exactly:
            request["exactly"] = exactly


def _requests_to_v1beta1(document: Document) -> None:
    for request in _requests(document):
        request.update(request.pop("exactly", None) or {})


def _devices_to_v1(document: Document) -> None:
    for device in (document.get("spec") or {}).get("devices") or ():
        device.update(device.pop("basic", None) or {})


def _devices_to_v1beta1(document: Document) -> None:
    for device in (document.get("spec") or {}).get("devices") or ():
        device["basic"] = {name: device.pop(name) for name in [*device] if name != "name"}


def _without_keys(document: Document) -> None:
    for name in ("pkixPublicKey", "proofOfPossession"):
        (document.get("spec") or {}).pop(name, None)


# -- pod groups ----------------------------------------------------------------------------------------------------------

#: Held the fields that the stored version lacked, in files of earlier versions of this server.
_LATER_FIELDS: Final = "scheduling.moorage.dev/fields"
_MODES: Final = {"all": "PodGroup", "single": "Pod"}


def _group_specs(document: Document) -> list[Document]:
    """Return the specs that describe groups: that of a group, or the templates of a workload."""
    spec = document.get("spec") or {}
    if document.get("kind") != "Workload":
        return [spec]
    found, waiting = [], [spec]
    while waiting:
        holder = waiting.pop(0)
        found += [one for one in holder.get("podGroupTemplates") or () if isinstance(one, dict)]
        waiting += [one for one in holder.get("compositePodGroupTemplates") or () if isinstance(one, dict)]
    return found


def _groups_to_v1alpha2(document: Document) -> None:
    for spec in _group_specs(document):
        if (origin := spec.pop("workloadRef", None)) is not None:
            named = {"workloadName": origin.get("workloadName"), "podGroupTemplateName": origin.get("templateName")}
            spec["podGroupTemplateRef"] = {"workload": named}
        mode = spec.get("disruptionMode")
        if isinstance(mode, dict):
            spec["disruptionMode"] = next((word for name, word in _MODES.items() if mode.get(name) is not None), "")


def _groups_to_v1beta1(document: Document) -> None:
    annotations = document["metadata"].get("annotations") or {}
    later = _read(annotations.pop(_LATER_FIELDS, "[]"))
    if not annotations:
        document["metadata"].pop("annotations", None)
    for at, spec in enumerate(_group_specs(document)):
        spec.update(later[at] if at < len(later) else {})
        if origin := (spec.pop("podGroupTemplateRef", None) or {}).get("workload"):
            spec["workloadRef"] = {"workloadName": origin["workloadName"], "templateName": origin["podGroupTemplateName"]}
        if isinstance(word := spec.get("disruptionMode"), str):
            spec["disruptionMode"] = {name: {} for name, known in _MODES.items() if known == word}


_BETA: Final = "resource.k8s.io/v1beta1"
#: Version and kind → how its documents become those of the stored version, and back.
_CONVERSIONS: Final[Mapping[tuple[str, str], tuple[_Convert | None, _Convert | None]]] = {
    ("autoscaling/v1", "HorizontalPodAutoscaler"): (_autoscaler_to_v2, _autoscaler_to_v1),
    ("certificates.k8s.io/v1beta1", "PodCertificateRequest"): (_without_keys, None),
    (_BETA, "ResourceClaim"): (_requests_to_v1, _requests_to_v1beta1),
    (_BETA, "ResourceClaimTemplate"): (_requests_to_v1, _requests_to_v1beta1),
    (_BETA, "ResourceSlice"): (_devices_to_v1, _devices_to_v1beta1),
    **{
        (f"scheduling.k8s.io/{version}", kind): (_groups_to_v1alpha2, _groups_to_v1beta1)
        for version in ("v1alpha3", "v1beta1")
        for kind in ("PodGroup", "Workload")
    },
}
