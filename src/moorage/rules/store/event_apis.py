"""Events in both of their APIs: an event written through one can be read through the other, and expires after an hour.

Kubernetes stores one object and converts it. Here each form is stored as its own object with the same name and uid, and
every change is copied to the other form in the same step. kubectl, which reads the core API, thus shows events that a
scheduler writes through ``events.k8s.io``.

Source  kubernetes, pkg/apis/events/v1/conversion.go; kube-apiserver, --event-ttl
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from moorage.api.documents.served_kinds import Document, ServedKind, served
from moorage.api.documents.statuses import ApiError
from moorage.api.schema.normalization import conform
from moorage.api.schema.schemas import kind_schema
from moorage.rules.admission.strategy import set_defaults_and_decode
from moorage.rules.store.detached_store import FollowUp
from moorage.rules.store.store import Store
from moorage.rules.store.watches import StoreChange

#: How long events are kept, in seconds.
EVENT_TTL_S: Final = 3600.0
_CORE: Final = served("events")
_EVENTS: Final = served("events", "events.k8s.io")
#: Names of fields in the core API, by their name in events.k8s.io.
_TO_CORE_NAMES: Final = {
    "regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent",
    "deprecatedSource": "source", "deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}  # fmt: skip
_TO_EVENTS_NAMES: Final = {old: new for new, old in _TO_CORE_NAMES.items()}
#: Larger events, in bytes, are copied in a worker thread.
_SMALL: Final = 16 << 10
_NOT_SHARED: Final = frozenset(["managedFields", "resourceVersion"])


def mirror_events(store: Store) -> None:
    """From now on, copy every change of an event to its other form."""
    follow_up = FollowUp(store)

    def on_change(kind: ServedKind, change: StoreChange) -> None:
        if not follow_up.is_active and kind in {_CORE, _EVENTS}:
            event = kind, change.after.namespace, change.after.name
            is_large = not change.gone and len(change.after.body) > _SMALL
            follow_up.do(event, lambda store: _copy(store, *event), is_large=is_large)

    store.follow(on_change)


def _copy(store: Store, kind: ServedKind, namespace: str, name: str) -> None:
    """Create, update or delete the other form of an event, so that it equals this form."""
    other = _EVENTS if kind is _CORE else _CORE
    record = store.find(kind, namespace, name)
    try:
        if record is not None:
            _write(store, other, record.document())
        elif store.find(other, namespace, name) is not None:
            store.delete(other, namespace, name)
    except ApiError:
        pass  # the name or namespace is invalid in the other API: the event exists in one form only


def _write(store: Store, other: ServedKind, document: Document) -> None:
    made = _converted(other, document)
    metadata = made["metadata"]
    record = store.find(other, metadata["namespace"], metadata["name"])
    if record is None:
        store.adopt(other, made)
        return
    held = record.document()["metadata"]
    made["metadata"] = {**metadata, **{name: held[name] for name in ("managedFields", "uid") if name in held}}
    set_defaults_and_decode(other, made)
    store.put(other, record, made)


def _converted(kind: ServedKind, document: Document) -> Document:
    """Return an event in the other API's form, without fields that this form omits when empty."""
    names = _TO_EVENTS_NAMES if kind is _EVENTS else _TO_CORE_NAMES
    made = {names.get(name, name): value for name, value in document.items()}
    metadata = {name: value for name, value in document["metadata"].items() if name not in _NOT_SHARED}
    head = {"kind": kind.kind, "apiVersion": kind.api_version}
    converted, _ = conform(kind_schema(kind), {**head, **made, **head, "metadata": metadata})
    return converted


def delete_expired_events(store: Store) -> int:
    """Delete events that were not updated for an hour, and return their number."""
    limit = store.clock() - EVENT_TTL_S
    old = [record for record in store.all(_CORE) if _last_updated(record.document()) < limit]
    for record in old:
        store.delete(_CORE, record.namespace, record.name)
    return len(old)


def _last_updated(event: Document) -> float:
    series: Any = event.get("series")
    last = series.get("lastObservedTime") if isinstance(series, dict) else None
    times = (event["metadata"].get("creationTimestamp"), event.get("lastTimestamp"), event.get("eventTime"), last)
    return max(map(_seconds, times))


def _seconds(text: Any) -> float:
    try:
        return datetime.datetime.fromisoformat(text).timestamp() if isinstance(text, str) else 0.0
    except ValueError:
        return 0.0
