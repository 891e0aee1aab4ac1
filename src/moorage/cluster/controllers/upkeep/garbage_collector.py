"""The garbage collector: delete dependents of deleted owners, with the owner's propagation policy.

Background: the owner is deleted at once, then its dependents. Foreground: the owner waits for the dependents that block its
deletion. Orphan: the dependents lose the owner reference and stay. An object stays as long as one of its owners exists.

Source  kubernetes, pkg/controller/garbagecollector/garbagecollector.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import DeleteStep, Step, Update

_FOREGROUND: Final = "foregroundDeletion"
_ORPHAN: Final = "orphan"


class GarbageCollector:
    name = "garbage-collector"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        found = event.latest
        refs = found["metadata"].get("ownerReferences")
        if event.new is None:
            for kind, one in world.all_dependents(k8s.uid_of(found)):
                yield _key(kind, one)
            yield from _owners(refs or (), world)
        elif k8s.is_ending(found) and _waiting_finalizer(found):
            yield _key(event.kind, found)
        elif refs and (event.old is None or event.old["metadata"].get("ownerReferences") != refs):
            yield _key(event.kind, found)
            yield from _owners(refs, world)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        name, _, place = key.partition("|")
        kind = world.kinds.find_stored(name)
        found = None if kind is None else world.find(kind, place)
        if kind is None or found is None:
            return
        waits = _waiting_finalizer(found) if k8s.is_ending(found) else ""
        if waits == _ORPHAN:
            for other, one in world.all_dependents(k8s.uid_of(found)):
                yield _without(other, one, {k8s.uid_of(found)})
            yield _done(kind, found, _ORPHAN)
        elif waits == _FOREGROUND:
            yield from _delete_dependents(kind, found, world)
        elif not k8s.is_ending(found):
            yield from _sync_dependent(kind, found, world)


def _key(kind: ServedKind, document: Document) -> str:
    return f"{kind.qualified}|{k8s.key_of(document)}"


def _owners(refs: Iterable[dict[str, Any]], world: ObjectIndex) -> Iterator[str]:
    """Yield the keys of the owners that are being deleted."""
    for ref in refs:
        held = world.by_uid(ref["uid"])
        if held is not None and k8s.is_ending(held[1]):
            yield _key(*held)


def _waiting_finalizer(document: Document) -> str:
    """Return the finalizer by which an object waits for the garbage collector; "" without one. Orphan precedes foreground."""
    finalizers = document["metadata"].get("finalizers") or ()
    return next((one for one in (_ORPHAN, _FOREGROUND) if one in finalizers), "")


def _done(kind: ServedKind, found: Document, finalizer: str) -> Step:
    left = [one for one in found["metadata"]["finalizers"] if one != finalizer]
    return Update(kind, k8s.revised(found, finalizers=left))


def _without(kind: ServedKind, one: Document, uids: set[str]) -> Step:
    kept = [ref for ref in one["metadata"]["ownerReferences"] if ref["uid"] not in uids]
    return Update(kind, k8s.revised(one, ownerReferences=kept))


def _delete_dependents(kind: ServedKind, found: Document, world: ObjectIndex) -> Iterator[Step]:
    blocked = False
    for other, one in world.all_dependents(k8s.uid_of(found)):
        blocked = blocked or any(ref["uid"] == k8s.uid_of(found) and ref.get("blockOwnerDeletion") for ref in _refs(one))
        if not k8s.is_ending(one):
            yield from _sync_dependent(other, one, world)
    if not blocked:
        yield _done(kind, found, _FOREGROUND)


def _refs(one: Document) -> list[dict[str, Any]]:
    return one["metadata"].get("ownerReferences") or []


def _sync_dependent(kind: ServedKind, one: Document, world: ObjectIndex) -> Iterator[Step]:
    """Yield the steps for an object that has owners: delete it if none is left, else drop the references to lost owners."""
    gone: set[str] = set()
    waiting: set[str] = set()
    stays = False
    for ref in _refs(one):
        held = world.by_uid(ref["uid"])
        if _is_gone(ref, held, k8s.namespace_of(one), world):
            gone.add(ref["uid"])
        elif held is not None and k8s.is_ending(held[1]) and _waiting_finalizer(held[1]) == _FOREGROUND:
            waiting.add(ref["uid"])
        else:
            stays = True
    if not gone and not waiting:
        return
    if stays:
        yield _without(kind, one, gone | waiting)
        return
    owned = [held for _, held in world.all_dependents(k8s.uid_of(one))]
    owns = bool(owned)
    finalizers = one["metadata"].get("finalizers") or ()
    if _ORPHAN in finalizers:
        policy = "Orphan"
    else:
        policy = "Foreground" if (waiting and owns) or _FOREGROUND in finalizers else "Background"
    if waiting and any(k8s.is_ending(held) and _waiting_finalizer(held) == _FOREGROUND for held in owned):
        # In a cycle of owners each would wait for the other, so let this object no longer block its owners.
        refs = [{**ref, "blockOwnerDeletion": False} if ref.get("blockOwnerDeletion") else ref for ref in _refs(one)]
        yield Update(kind, k8s.revised(one, ownerReferences=refs))
    yield DeleteStep(kind, one, propagation=policy)


def _is_gone(ref: dict[str, Any], held: tuple[ServedKind, Document] | None, namespace: str, world: ObjectIndex) -> bool:
    """Return True for a missing owner; an owner of a kind that is not served is assumed to exist."""
    if held is None:
        return world.kinds.has_type(ref["apiVersion"], ref["kind"])
    return k8s.namespace_of(held[1]) not in {"", namespace}
