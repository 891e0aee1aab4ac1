"""What events must say, and what of one may change once it is told: its series, and nothing else.

An event that says when it happened, to the microsecond, is of the new kind, whichever API it came through; one that came
through ``events.k8s.io`` must be. Faults name the fields of the old kind, as the original's do.

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
#: What stays, under the names of both kinds.
_FIXED: Final = (
    ("regarding", "involvedObject"), ("reason", "reason"), ("note", "message"), ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp"), ("deprecatedCount", "count"),
    ("type", "type"), ("eventTime", "eventTime"), ("action", "action"), ("related", "related"),
    ("reportingController", "reportingController"), ("reportingInstance", "reportingInstance"),
)  # fmt: skip


def _is_old(event: Document) -> bool:
    return "/" not in str(event.get("apiVersion", "v1"))


def event_faults(event: Document) -> Iterator[Fault]:
    """Find what is wrong with an event of either API."""
    old = _is_old(event)
    subject: Any = event.get("involvedObject" if old else "regarding") or {}
    home, theirs = event["metadata"].get("namespace") or "", subject.get("namespace") or ""
    elsewhere = Fault("Invalid value", "involvedObject.namespace", "does not match event.namespace", theirs)
    if not event.get("eventTime"):
        if home != theirs and (theirs or home != "default"):
            yield elsewhere
        return
    if not theirs and home not in {"default", "kube-system"}:
        yield elsewhere
    name = "reportingComponent" if old else "reportingController"
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
    yield from _too_long("message", event.get("message" if old else "note"), _MOST_NOTE)


def _too_long(field: str, value: str | None, most: int) -> Iterator[Fault]:
    if len((value or "").encode()) > most:
        yield Fault("Invalid value", field, f"can have at most {most} characters", "")


def new_event_faults(event: Document) -> Iterator[Fault]:
    """Find what is wrong with an event that is told through the new API."""
    if _is_old(event):
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
    """Find changes to what stays of an event, through the new API; the old one allows all."""
    if _is_old(new):
        return
    if old.get("series") != new.get("series"):
        yield from _series_faults(new)
    for field, name in _FIXED:
        if (old.get(field) or None) != (new.get(field) or None):  # Go knows no difference between empty and absent
            yield Fault("Invalid value", name, "field is immutable", new.get(field))
