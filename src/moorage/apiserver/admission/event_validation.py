"""Validation of events. Once an event is created through ``events.k8s.io``, only its series may change.

An event with an ``eventTime`` is validated by the rules of ``events.k8s.io`` in either API; an event created through that
API must have one. Faults name the fields of the core type, as in kube-apiserver.

Source  kubernetes, pkg/apis/core/validation/events.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moorage.api.names import check_qualified_name
from moorage.apiserver.vocabulary.records import Document
from moorage.errors import Fault

__all__ = ["event_change_faults", "event_faults", "new_event_faults"]

_MOST: Final = (("reportingInstance", 128), ("action", 128), ("reason", 128))
_MOST_NOTE: Final = 1024
_UNSET: Final = (
    ("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp"), ("deprecatedCount", "count"),
    ("deprecatedSource", "source"),
)  # fmt: skip
#: Immutable fields, under their names in ``events.k8s.io`` and in the core API.
_FIXED: Final = (
    ("regarding", "involvedObject"), ("reason", "reason"), ("note", "message"), ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp"), ("deprecatedCount", "count"),
    ("type", "type"), ("eventTime", "eventTime"), ("action", "action"), ("related", "related"),
    ("reportingController", "reportingController"), ("reportingInstance", "reportingInstance"),
)  # fmt: skip


def _is_core(event: Document) -> bool:
    return "/" not in str(event.get("apiVersion", "v1"))


def event_faults(event: Document) -> Iterator[Fault]:
    """Yield the faults of an event of either API."""
    is_core = _is_core(event)
    subject: Any = event.get("involvedObject" if is_core else "regarding") or {}
    namespace, subject_namespace = event["metadata"].get("namespace") or "", subject.get("namespace") or ""
    elsewhere = Fault("Invalid value", "involvedObject.namespace", "does not match event.namespace", subject_namespace)
    if not event.get("eventTime"):
        if namespace != subject_namespace and (subject_namespace or namespace != "default"):
            yield elsewhere
        return
    if not subject_namespace and namespace not in {"default", "kube-system"}:
        yield elsewhere
    name = "reportingComponent" if is_core else "reportingController"
    reporter = event.get(name) or ""
    if not reporter:
        yield Fault("Required value", name)
    else:
        for why in check_qualified_name(reporter):
            yield Fault("Invalid value", name, why, reporter)
    for field, most in _MOST:
        if not event.get(field):
            yield Fault("Required value", field)
        yield from _too_long(field, event.get(field), most)
    yield from _too_long("message", event.get("message" if is_core else "note"), _MOST_NOTE)


def _too_long(field: str, value: str | None, most: int) -> Iterator[Fault]:
    if len((value or "").encode()) > most:
        yield Fault("Invalid value", field, f"can have at most {most} characters", "")


def new_event_faults(event: Document) -> Iterator[Fault]:
    """Yield the additional faults of a new event of ``events.k8s.io``."""
    if _is_core(event):
        return
    yield from _series_faults(event)
    if not event.get("eventTime"):
        yield Fault("Required value", "eventTime")
    if event.get("type") not in {"Normal", "Warning"}:
        yield Fault("Invalid value", "type", f"has invalid value: {event.get('type', '')}", "")
    for field, name in _UNSET:
        if event.get(field):
            yield Fault("Invalid value", name, "needs to be unset", "")


def _series_faults(event: Document) -> Iterator[Fault]:
    series = event.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield Fault("Invalid value", "series.count", "should be at least 2", "")
    if not series.get("lastObservedTime"):
        yield Fault("Required value", "series.lastObservedTime")


def event_change_faults(old: Document, new: Document) -> Iterator[Fault]:
    """Yield changes of immutable fields in an update through ``events.k8s.io``; the core API allows any change."""
    if _is_core(new):
        return
    if old.get("series") != new.get("series"):
        yield from _series_faults(new)
    for field, name in _FIXED:
        if (old.get(field) or None) != (new.get(field) or None):  # Go does not distinguish empty from absent
            yield Fault("Invalid value", name, "field is immutable", new.get(field))
