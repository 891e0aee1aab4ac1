"""Execute controllers' steps as calls of the store, under the field manager that the controller has in Kubernetes."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache
from typing import Final

from moorage.apiserver.fields.managed_fields import FieldManager
from moorage.apiserver.storage.deferral import AskOwner
from moorage.apiserver.storage.detached_store import DetachedStore, StaleReadError
from moorage.apiserver.storage.store import DeleteOptions, Store
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.apiserver.vocabulary.statuses import ApiError, conflict
from moorage.controllers.machinery.kind_names import EVENTS
from moorage.controllers.machinery.object_fields import copied, name_of, namespace_of, stamp, uid_of
from moorage.controllers.machinery.steps import Create, DeleteStep, EventStep, ExecutableStep, SetStatus, Update
from moorage.controllers.nodes.kubelets import KUBELET

__all__ = ["StepExecutor"]

#: Number of events that are cached for aggregation. If an event recurs after it was evicted, a new object is created.
_REMEMBERED: Final = 4096
#: From this number of similar events on (equal except for the message), events are combined, until a pause of ten minutes.
_MOST_SIMILAR: Final = 10
_FORGOTTEN_S: Final = 600.0
#: Maximum number of attempts at a step on a large object; an attempt fails if an object that it read changes meanwhile.
_TRIES: Final = 5


class StepExecutor:
    """Executes steps on a store. Repeated events increase a count, and many similar ones are combined, as in event recorders.

    Source  client-go, tools/record/events_cache.go
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[tuple[str, ...], str] = {}
        #: The messages of recent similar events about an object, and the time of the last one.
        self._similar: dict[tuple[str, ...], tuple[dict[str, None], float]] = {}

    def carry_out(self, step: ExecutableStep, source: str) -> None:
        """Execute a step for the controller named ``source``.

        Raises  ApiError as the store does; 409 also if another object has taken the name
        """
        match step:
            case Create(kind, document):
                self._create(step, kind, document, source)
            case Update(kind, document, subresource):
                held = self._own(kind, document)["metadata"]
                document["metadata"] = {**document["metadata"], "resourceVersion": held["resourceVersion"]}
                document["metadata"].pop("managedFields", None)
                self._update(kind, document, source, subresource)
            case SetStatus(kind, document, status):
                self._set_status(kind, document, status, source)
            case DeleteStep(kind, document):
                options = DeleteOptions(step.grace_s, uid_of(document), "", step.propagation)
                self._delete(kind, document, options)
            case EventStep():
                self._record(step, source)

    def carry_out_detached(self, step: ExecutableStep, source: str, ask: AskOwner) -> None:
        """Execute a step in a worker thread; ``ask`` calls functions on the store's thread. No other step may run meanwhile.

        Do nothing if the object has changed since the controller saw it: the change triggers another reconcile.

        Raises  ApiError as ``carry_out`` does
        """
        for _ in range(_TRIES):
            store = DetachedStore(self._store, ask)
            if not isinstance(step, Create) and _is_outdated(store, step):
                return
            executor = copy(self)
            executor._store = store
            try:
                executor.carry_out(replace(step, document=copied(step.document)), source)
            except StaleReadError:
                if store.has_changed:
                    return
            else:
                return

    def _create(self, step: Create, kind: ServedKind, document: Document, source: str) -> None:
        try:
            made = self._store.create(kind, namespace_of(document), document, manager=_manager(source, kind))
        except ApiError as error:
            if (step.or_keep and error.reason == "AlreadyExists") or _is_closing(error):
                return
            if step.owner is not None:
                prefix = step.event_texts[1] if step.event_texts else "Error creating: "
                self._record(EventStep(*step.owner, "Warning", "FailedCreate", f"{prefix}{error}"), source)
            if step.otherwise is not None:
                self.carry_out(step.otherwise(str(error)), source)
            raise
        if step.owner is not None:
            text = step.event_texts[0] if step.event_texts else f"Created {kind.kind.lower()}: {made.name}"
            self._record(EventStep(*step.owner, "Normal", "SuccessfulCreate", text), source)

    def _own(self, kind: ServedKind, document: Document) -> Document:
        """Return the stored object, if it still has the same UID."""
        held = self._store.get(kind, namespace_of(document), name_of(document)).document()
        if uid_of(held) != uid_of(document):
            raise conflict(kind.resource, kind.group, name_of(document), "another object has taken this name")
        return held

    def _update(self, kind: ServedKind, document: Document, source: str, subresource: str = "") -> None:
        manager = _manager(source, kind, subresource)
        self._store.update(kind, namespace_of(document), name_of(document), document, subresource=subresource, manager=manager)

    def _set_status(self, kind: ServedKind, document: Document, status: Document, source: str) -> None:
        held = self._own(kind, document)
        if held.get("status") == status:
            return
        held["status"] = status
        self._update(kind, held, source, "status" if kind.has_status else "")

    def _delete(self, kind: ServedKind, document: Document, options: DeleteOptions) -> None:
        try:
            self._store.delete(kind, namespace_of(document), name_of(document), options)
        except ApiError as error:
            if error.code != 404:
                raise

    # -- events ---------------------------------------------------------------------------------------------------------

    def _record(self, note: EventStep, source: str) -> None:
        regarding = note.document
        key: tuple[str, ...] = (source, uid_of(regarding), note.type, note.reason, note.message)
        many = self._are_many(key)
        if many:
            note = replace(note, message=f"(combined from similar events): {note.message}")
            key = key[:-1]
        now = stamp(self._store.clock())
        namespace = namespace_of(regarding) or "default"
        known = self._names.get(key)
        held = None if known is None else self._store.find(EVENTS, namespace, known)
        if held is not None:
            event = held.document()
            event |= {"count": int(event.get("count") or 1) + 1, "lastTimestamp": now, "message": note.message}
            self._update(EVENTS, event, source)
            return
        try:
            # The store never issues a resource version twice, so the name is unique across restarts.
            mark = f"{int(self._store.clock() * 1e6):x}{self._store.version:x}"
            event = _event(note, source, now, namespace, mark)
            if many:
                event["reportingComponent"] = ""
            made = self._store.create(EVENTS, namespace, event, manager=_manager(source, EVENTS))
        except ApiError as error:
            if error.code not in {403, 404}:
                raise
            return  # its namespace is being deleted, with its events
        if len(self._names) >= _REMEMBERED:
            del self._names[next(iter(self._names))]
        self._names[key] = made.name

    def _are_many(self, key: tuple[str, ...]) -> bool:
        """Return True if similar events about an object are so many that this one is combined with them."""
        now = self._store.clock()
        texts, last = self._similar.pop(key[:-1], ({}, now))
        if now - last > _FORGOTTEN_S:
            texts = {}
        texts[key[-1]] = None
        if len(self._similar) >= _REMEMBERED:
            del self._similar[next(iter(self._similar))]
        self._similar[key[:-1]] = texts, now
        if len(texts) < _MOST_SIMILAR:
            return False
        del texts[next(iter(texts))]
        return True


def _is_outdated(store: Store, step: ExecutableStep) -> bool:
    held = store.find(step.kind, namespace_of(step.document), name_of(step.document))
    seen = step.document["metadata"].get("resourceVersion")
    return held is not None and bool(seen) and seen != str(held.version)


@cache
def _manager(source: str, kind: ServedKind, subresource: str = "") -> FieldManager:
    """Return the field manager of a controller's writes: the Kubernetes program that the controller is part of."""
    return FieldManager(
        source if source == KUBELET else "kube-controller-manager", version=kind.api_version, subresource=subresource
    )


def _is_closing(error: ApiError) -> bool:
    """Return True if a create failed because the namespace is being deleted."""
    return any(cause.reason == "NamespaceTerminating" for cause in error.causes)


def _event(note: EventStep, source: str, now: str, namespace: str, mark: str) -> Document:
    about = note.document
    regarding = {
        "kind": note.kind.kind, "apiVersion": note.kind.api_version, "name": name_of(about), "uid": uid_of(about),
        "resourceVersion": about["metadata"].get("resourceVersion", ""),
    }  # fmt: skip
    if namespace_of(about):
        regarding["namespace"] = namespace_of(about)
    return {
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": f"{name_of(about)}.{mark}", "namespace": namespace},
        "involvedObject": regarding, "reason": note.reason, "message": note.message, "type": note.type,
        "source": {"component": source}, "reportingComponent": source, "reportingInstance": "",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    }  # fmt: skip
