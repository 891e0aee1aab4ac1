"""Process CustomResourceDefinitions: accept their names, serve their kinds, and delete their objects with them.

kube-apiserver leaves this to controllers. Here it is part of the change of a definition, so the definition has its conditions,
and its kinds can be used, at once.

Source  apiextensions-apiserver, pkg/controller: status/naming_controller.go, establish/establishing_controller.go,
        finalizer/crd_finalizer.go
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from moorage.api.documents.records import Record, condition_of
from moorage.api.documents.served_kinds import (
    KINDS,
    Document,
    ServedKind,
    served,
    set_or_drop,
)
from moorage.api.fields.managed_fields import FieldManager, track
from moorage.api.schema import custom_kinds
from moorage.api.schema.custom_kinds import CLEANUP, is_established
from moorage.api.schema.schemas import kind_schema
from moorage.rules.admission.admission_plugins import add_finalizer
from moorage.rules.admission.definition_validation import approval_of
from moorage.rules.store.watches import StoreChange

# The interface between a store and a worker thread: the store defers work to the thread, which calls back.

T = TypeVar("T")


class AskOwner(Protocol):
    """Calls a function on the store's own thread; returns its result or raises its error."""

    def __call__(self, function: Callable[[], T]) -> T: ...


class Defer(Protocol):
    """Call ``work`` soon in a worker thread, with a function that makes calls on the store's thread.

    If several functions wait under one key, only the last is called.
    """

    def __call__(self, key: Hashable, work: Callable[[AskOwner], None]) -> None: ...


DEFINITIONS: Final = served("customresourcedefinitions", "apiextensions.k8s.io")
#: The manager of the status of definitions.
_CONTROLLER: Final = FieldManager("kube-apiserver", version="apiextensions.k8s.io/v1", subresource="status")
#: Number of objects that are deleted at a time, when a definition with many objects is deleted.
_AT_ONCE: Final = 50


class DefinitionStore(Protocol):
    """The methods of ``moorage.rules.store.store.Store`` that definitions use."""

    defer: Defer | None

    @property
    def now(self) -> str: ...
    def find(self, kind: ServedKind, namespace: str, name: str, /) -> Record | None: ...
    def all(self, kind: ServedKind, /) -> Iterator[Record]: ...
    def count(self, kind: ServedKind, /) -> int: ...
    def put(self, kind: ServedKind, before: Record, document: Document, /) -> Record: ...
    def update(self, kind: ServedKind, namespace: str, name: str, document: Document, /, *, subresource: str) -> Record: ...
    def delete(self, kind: ServedKind, namespace: str, name: str, /) -> object: ...
    def serve_custom_kinds(self, custom: Sequence[ServedKind], /) -> None: ...


class _Defined(NamedTuple):
    """What is remembered of a definition, so that a change of another one need not read it.

    ``state``: what its kinds are made from (``served_state``).
    """

    state: tuple[Any, ...]
    kinds: tuple[ServedKind, ...]
    group: str
    names: Document


class Definitions:
    """The definitions of a store, and the kinds that they define."""

    def __init__(self, store: DefinitionStore) -> None:
        self._store = store
        self._defined: dict[str, _Defined] = {}

    def on_change(self, kind: ServedKind, change: StoreChange) -> None:
        """Process a change of a definition, or the deletion of an object of a custom kind."""
        if kind is DEFINITIONS:
            name = change.after.name
            if change.gone:
                gone = self._defined.pop(name, None)
                if gone is None:
                    return
                self._serve(gone.kinds, ())
                for other in [name for name, one in self._defined.items() if one.group == gone.group]:
                    self._settle(other)  # names have become free
                return
            if self._settle(name):
                return  # changing the status called this method again, which has done the rest
            document = self._find(name)
            if document is None:
                return
            before = self._defined.get(name)
            after = self._defined[name] = self._read(name, document)
            self._serve(() if before is None else before.kinds, after.kinds)
            if "deletionTimestamp" in document["metadata"]:
                self._clean(name)
        elif change.gone and kind.custom is not None and kind.custom.is_terminating and not self._store.count(kind):
            self._finish(kind.qualified)

    def load(self) -> None:
        """Serve the kinds of all stored definitions."""
        self._defined = {record.name: self._read(record.name, record.document()) for record in self._store.all(DEFINITIONS)}
        self._serve((), tuple(kind for one in self._defined.values() for kind in one.kinds))

    def _read(self, name: str, document: Document) -> _Defined:
        state, held = custom_kinds.served_state(document), self._defined.get(name)
        is_same = held is not None and held.state == state
        kinds = held.kinds if held is not None and is_same else custom_kinds.custom_kinds(document)
        names = (document.get("status") or {}).get("acceptedNames") or {}
        return _Defined(state, kinds, document["spec"]["group"], names)

    def _serve(self, before: tuple[ServedKind, ...], after: tuple[ServedKind, ...]) -> None:
        """Serve the kinds of all definitions if those of one of them changed."""
        if before is not after and before != after:
            self._store.serve_custom_kinds([kind for _, one in sorted(self._defined.items()) for kind in one.kinds])

    def _find(self, name: str) -> Document | None:
        record = self._store.find(DEFINITIONS, "", name)
        return None if record is None else record.document()

    # -- names ---------------------------------------------------------------------------------------------------------

    def _settle(self, name: str) -> bool:
        """Update the accepted names and the conditions of a definition; return True if they changed."""
        record = self._store.find(DEFINITIONS, "", name)
        if record is None:
            return False
        document = record.document()
        group = document["spec"]["group"]
        others = [one.names for other, one in self._defined.items() if other != name and one.group == group]
        is_judged = _judge_approval(document, self._store.now)
        if not _accept_names(document, others, self._store.now) and not is_judged:
            return False
        track(kind_schema(DEFINITIONS), record.document(), document, _CONTROLLER, self._store.now)
        self._store.put(DEFINITIONS, record, document)
        return True

    # -- deletion ------------------------------------------------------------------------------------------------------

    def _clean(self, name: str) -> None:
        """Delete the objects of a definition that is being deleted; if there are none, remove its finalizer."""
        kind = next(iter(self._defined[name].kinds), None)
        if kind is None or not self._store.count(kind):
            self._finish(name)
        elif self._store.defer is not None and self._store.count(kind) > _AT_ONCE:
            self._store.defer(("definition", name), lambda ask: self._clean_in_steps(name, ask))
        else:
            self._delete_some(name, self._store.count(kind))

    def _clean_in_steps(self, name: str, ask: AskOwner) -> None:
        while ask(lambda: self._delete_some(name, _AT_ONCE)):
            pass

    def _delete_some(self, name: str, most: int) -> bool:
        """Delete some objects that are not being deleted yet; return whether there may be more."""
        kinds = self._defined[name].kinds if name in self._defined else ()
        if not kinds:
            return False
        fresh = (one for one in self._store.all(kinds[0]) if b'"deletionTimestamp"' not in one.body)
        found = [*islice(fresh, most)]
        for record in found:
            self._store.delete(kinds[0], record.namespace, record.name)
        return len(found) == most

    def _finish(self, name: str) -> None:
        """Remove the finalizer of a definition that is being deleted and has no objects left."""
        document = self._find(name)
        if document is None or CLEANUP not in (document["metadata"].get("finalizers") or ()):
            return
        if is_established(document):
            reason, why = "InstanceDeletionCompleted", "removed all instances"
        else:
            reason, why = "NeverEstablished", "resource was never established"
        _set_condition(document, "Terminating", "False", reason, why, self._store.now)
        document["metadata"]["finalizers"].remove(CLEANUP)
        self._store.update(DEFINITIONS, "", name, document, subresource="status")


def mark_for_cleanup(definition: Document, now: str) -> None:
    """Add the finalizer and the condition Terminating to a definition that a client deletes, in place."""
    add_finalizer(definition["metadata"], CLEANUP)
    why = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    _set_condition(definition, "Terminating", "True", "InstanceDeletionPending", why, now)


# -- conditions --------------------------------------------------------------------------------------------------------


def _set_condition(definition: Document, name: str, state: str, reason: str, message: str, now: str) -> None:
    status = definition.setdefault("status", {})
    held = condition_of(definition, name)
    since = held["lastTransitionTime"] if held is not None and held["status"] == state else now
    made = {"type": name, "status": state, "lastTransitionTime": since, "reason": reason, "message": message}
    conditions = status.get("conditions") or []
    if held is None:
        status["conditions"] = [*conditions, made]
    else:
        status["conditions"] = [made if one is held else one for one in conditions]


#: State of an approval → the status and the reason of the condition.
_APPROVALS: Final = {
    "missing": ("False", "MissingAnnotation"), "invalid": ("False", "InvalidAnnotation"),
    "approved": ("True", "ApprovedAnnotation"), "bypassed": ("False", "UnapprovedAnnotation"),
}  # fmt: skip
_CONFORMANT: Final = "KubernetesAPIApprovalPolicyConformant"


def _judge_approval(definition: Document, now: str) -> bool:
    """Set the condition for the approval of a definition in a Kubernetes group; return True if it changed."""
    state, message = approval_of(definition)
    if not state:
        return False
    status, reason = _APPROVALS[state]
    held = condition_of(definition, _CONFORMANT) or {}
    if (held.get("status"), held.get("reason"), held.get("message")) == (status, reason, message):
        return False
    _set_condition(definition, _CONFORMANT, status, reason, message, now)
    return True


#: Names that must be unique in a group: the field, the reason of a conflict, and whether it is the name of a kind.
_COMPARED: Final = (
    ("plural", "PluralConflict", False), ("singular", "SingularConflict", False), ("kind", "KindConflict", True),
    ("listKind", "ListKindConflict", True),
)  # fmt: skip


def _accept_names(definition: Document, others: Sequence[Document], now: str) -> bool:
    """Accept the names of a definition that no other of its group uses, in place; return True if its status changed.

    ``others``: the names that have been accepted for the other definitions of the group.
    """
    status = definition.setdefault("status", {})
    wanted, held = definition["spec"]["names"], status.get("acceptedNames") or {}
    if wanted == held and is_established(definition):
        return False
    names, reason, message = _accepted(wanted, held, *_used_names(definition["spec"]["group"], others))
    accepted = condition_of(definition, "NamesAccepted") or {}
    if names == held and (accepted.get("reason"), accepted.get("message")) == (reason, message):
        return False
    status["acceptedNames"] = names
    is_accepted = reason == "NoConflicts"
    _set_condition(definition, "NamesAccepted", "True" if is_accepted else "False", reason, message, now)
    if is_accepted:
        why = "the initial names have been accepted"
        _set_condition(definition, "Established", "True", "InitialNamesAccepted", why, now)
    elif condition_of(definition, "Established") is None:
        _set_condition(definition, "Established", "False", "NotAccepted", "not all names are accepted", now)
    return True


def _accepted(wanted: Document, held: Document, resources: set[str], kinds: set[str]) -> tuple[Document, str, str]:
    """Return the accepted names, and the reason and message of the last conflict."""
    names, reason, message = dict(held), "NoConflicts", "no conflicts found"
    for name, conflict, is_kind in _COMPARED:
        if name == "kind":
            short = [one for one in wanted.get("shortNames") or () if one not in (held.get("shortNames") or ())]
            if texts := [f'"{one}" is already in use' for one in short if one in resources]:
                reason, message = "ShortNamesConflict", texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
            else:
                set_or_drop(names, "shortNames", wanted.get("shortNames") or None)
        text = wanted.get(name, "")
        if text != held.get(name) and text in (kinds if is_kind else resources):
            reason, message = conflict, f'"{text}" is already in use'
        else:
            names[name] = text
    set_or_drop(names, "categories", wanted.get("categories") or None)
    return names, reason, message


def _used_names(group: str, others: Sequence[Document]) -> tuple[set[str], set[str]]:
    """Return the names of resources and of kinds that others have: built-in kinds of a group, and accepted ones."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for names in others:
        resources |= {names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or ())}
        kinds |= {names.get("kind", ""), names.get("listKind", "")}
    for kind in KINDS:
        if kind.group == group:
            resources |= {kind.resource, kind.singular, *kind.short_names}
            kinds |= {kind.kind, kind.list_kind}
    return resources - {""}, kinds - {""}
