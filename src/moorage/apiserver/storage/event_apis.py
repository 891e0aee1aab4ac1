"""Events under both of their APIs: whatever is written through one can be read through the other, and goes after an hour.

Kubernetes keeps one object and shows it in two forms. Here each form is kept as an object of its own, under the same name and
uid, and a change of one is made to the other at once. So kubectl, which reads the old form, shows what a scheduler has
written in the new one.

Source  kubernetes, pkg/apis/events/v1/conversion.go; kube-apiserver, --event-ttl
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from moorage.apiserver.admission.strategy import set_defaults_and_decode
from moorage.apiserver.schema.normalization import conform
from moorage.apiserver.schema.schemas import kind_schema
from moorage.apiserver.storage.store import Store
from moorage.apiserver.storage.watch_cache import Change
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind, served
from moorage.apiserver.vocabulary.statuses import ApiError

__all__ = ["forget_old_events", "mirror_events"]

#: How long events are kept, in seconds.
LASTS_S: Final = 3600.0
_OLD: Final = served("events")
_NEW: Final = served("events", "events.k8s.io")
#: What a field is called in the old form, by its name in the new.
_NAMES: Final = {
    "regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent",
    "deprecatedSource": "source", "deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}  # fmt: skip
_BACK: Final = {old: new for new, old in _NAMES.items()}
_NOT_SHARED: Final = frozenset(["managedFields", "resourceVersion"])


def mirror_events(store: Store) -> None:
    """Keep the two forms of a store's events the same from now on."""
    store.follow(_Mirror(store).see)


class _Mirror:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._writing = False

    def see(self, kind: ServedKind, change: Change) -> None:
        if self._writing or kind not in {_OLD, _NEW}:
            return
        self._writing = True
        try:
            if change.gone:
                self._remove(_NEW if kind is _OLD else _OLD, change)
            else:
                self._write(_NEW if kind is _OLD else _OLD, change.after.document())
        except ApiError:
            pass  # a name or a namespace that cannot be: it stays in the one form
        finally:
            self._writing = False

    def _remove(self, other: ServedKind, change: Change) -> None:
        if self._store.find(other, change.after.namespace, change.after.name) is not None:
            self._store.delete(other, change.after.namespace, change.after.name)

    def _write(self, other: ServedKind, document: Document) -> None:
        made = _converted(other, document)
        metadata = made["metadata"]
        if self._store.find(other, metadata["namespace"], metadata["name"]) is None:
            self._store.adopt(other, made)
        else:
            record = self._store.get(other, metadata["namespace"], metadata["name"])
            held = record.document()["metadata"]
            made["metadata"] = {**metadata, **{name: held[name] for name in ("managedFields", "uid") if name in held}}
            set_defaults_and_decode(other, made)
            self._store.put(other, record, made)


def _converted(kind: ServedKind, document: Document) -> Document:
    """Return an event in the form of another kind, without the fields that this form leaves out while they are empty."""
    names = _BACK if kind is _NEW else _NAMES
    made = {names.get(name, name): value for name, value in document.items()}
    metadata = {name: value for name, value in document["metadata"].items() if name not in _NOT_SHARED}
    head = {"kind": kind.kind, "apiVersion": kind.api_version}
    converted, _ = conform(kind_schema(kind), {**head, **made, **head, "metadata": metadata})
    return converted


def forget_old_events(store: Store) -> int:
    """Delete the events that nothing was heard of for an hour; return how many."""
    limit = store.clock() - LASTS_S
    old = [record for record in store.all(_OLD) if _heard_of(record.document()) < limit]
    for record in old:
        store.delete(_OLD, record.namespace, record.name)
    return len(old)


def _heard_of(event: Document) -> float:
    series: Any = event.get("series")
    last = series.get("lastObservedTime") if isinstance(series, dict) else None
    times = (event["metadata"].get("creationTimestamp"), event.get("lastTimestamp"), event.get("eventTime"), last)
    return max(map(_seconds, times))


def _seconds(text: Any) -> float:
    try:
        return datetime.datetime.fromisoformat(text).timestamp() if isinstance(text, str) else 0.0
    except ValueError:
        return 0.0
