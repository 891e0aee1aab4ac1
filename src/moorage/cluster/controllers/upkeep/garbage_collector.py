"""The garbage collector: delete dependents of deleted owners, with the owner's propagation policy.

Background: the owner is deleted at once, then its dependents. Foreground: the owner waits for the dependents that block its
deletion. Orphan: the dependents lose the owner reference and stay. An object stays as long as one of its owners exists.

Source  kubernetes, pkg/controller/garbagecollector/garbagecollector.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.rules.admission.admission_plugins import GROUP_PROTECTION
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import DeleteStep, Later, SetStatus, Step, Update

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


# -- pod garbage collector ---------------------------------------------------------------------------------------------
# The pod garbage collector: delete pods without a node, on missing or out-of-service nodes, and excess ended pods.
#
# Source  kubernetes, pkg/controller/podgc/gc_controller.go

#: How long a node has to be missing before its pods are deleted, in seconds.
QUARANTINE_S: Final = 40.0
#: The number of ended pods that are kept.
MOST_ENDED: Final = 12_500
_OUT: Final = "node.kubernetes.io/out-of-service"


class PodGarbageCollector:
    """Keys are node names, ``/`` with the key of a pod without a node, and "" for the ended pods.

    Keeps the time since which each node is missing.
    """

    name = "pod-garbage-collector"

    def __init__(self) -> None:
        self._missing: dict[str, float] = {}
        self._ended: set[str] = set()

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.NODES:
            yield k8s.name_of(event.latest)
        elif event.kind is k8s.PODS:
            node = k8s.spec_of(event.latest).get("nodeName")
            if not node and event.new is not None and k8s.is_ending(event.new):
                yield f"/{k8s.key_of(event.new)}"
            if node and event.new is not None and (world.get(k8s.NODES, "", node) is None or k8s.is_ending(event.latest)):
                yield node
            yield from self._count(event)

    def _count(self, event: ObjectChange) -> Iterator[str]:
        uid = event.latest["metadata"]["uid"]
        if event.new is None or k8s.phase_of(event.latest) not in ENDED_PHASES:
            self._ended.discard(uid)
            return
        self._ended.add(uid)
        if len(self._ended) > MOST_ENDED:
            yield ""

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        if not key:
            yield from self._clear(world)
            return
        if key.startswith("/"):
            pod = world.find(k8s.PODS, key[1:])
            if pod is not None and k8s.is_ending(pod) and not k8s.spec_of(pod).get("nodeName"):
                yield from _lost(pod, now, "")
            return
        node = world.get(k8s.NODES, "", key)
        if node is not None:
            self._missing.pop(key, None)
            yield from _from_broken(node, world, now)
            return
        pods = world.pods_on(key)
        if not pods:
            self._missing.pop(key, None)
            return
        since = self._missing.setdefault(key, now)
        if now - since < QUARANTINE_S:
            yield Later(since + QUARANTINE_S - now)
            return
        for pod in pods:
            yield from _lost(pod, now, "PodGC: node no longer exists")

    @staticmethod
    def _clear(world: ObjectIndex) -> Iterator[Step]:
        over = sorted((pod for pod in world.all(k8s.PODS) if k8s.phase_of(pod) in ENDED_PHASES), key=k8s.age_order)
        for pod in over[: max(0, len(over) - MOST_ENDED)]:
            yield DeleteStep(k8s.PODS, pod, grace_s=0)


def _from_broken(node: Document, world: ObjectIndex, now: float) -> Iterator[Step]:
    """Yield the deletion of terminating pods on a node with the out-of-service taint."""
    out = any(one.get("key") == _OUT for one in k8s.spec_of(node).get("taints") or ())
    if not out or k8s.is_condition_true(k8s.status_of(node), "Ready"):
        return
    for pod in world.pods_on(k8s.name_of(node)):
        if k8s.is_ending(pod):
            yield from _lost(pod, now, "")


def _lost(pod: Document, now: float, message: str) -> Iterator[Step]:
    if k8s.phase_of(pod) not in ENDED_PHASES:
        status = {**k8s.status_of(pod), "phase": "Failed"}
        if message:
            conditions = status.get("conditions") or ()
            status["conditions"] = k8s.with_condition(conditions, "DisruptionTarget", "True", now, "DeletionByPodGC", message)
        yield SetStatus(k8s.PODS, pod, status)
    yield DeleteStep(k8s.PODS, pod, grace_s=0)


# -- pod group protection ----------------------------------------------------------------------------------------------
# Keep a deleted pod group until the last of its pods has ended or is deleted.
#
# Admission adds a finalizer to every new group; this controller removes it.
#
# Source  kubernetes, pkg/controller/scheduling/podgroupprotection/podgroup_protection_controller.go


class PodGroupProtection:
    name = "pod-group-protection-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.POD_GROUPS and event.new is not None:
            yield k8s.key_of(event.new)
        elif event.kind is k8s.PODS and (event.new is None or k8s.phase_of(event.new) in ENDED_PHASES):
            yield from _group_of(event.latest)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        group = world.find(k8s.POD_GROUPS, key)
        if group is None or not k8s.is_ending(group):
            return
        held = group["metadata"].get("finalizers") or []
        if GROUP_PROTECTION in held and not _is_in_use(key, world):
            yield Update(k8s.POD_GROUPS, k8s.revised(group, finalizers=[one for one in held if one != GROUP_PROTECTION]))


def _group_of(pod: Document) -> Iterator[str]:
    name = (k8s.spec_of(pod).get("schedulingGroup") or {}).get("podGroupName")
    if name:
        yield f"{k8s.namespace_of(pod)}/{name}"


def _is_in_use(key: str, world: ObjectIndex) -> bool:
    pods = world.all(k8s.PODS, key.partition("/")[0])
    return any(key in _group_of(pod) for pod in pods if k8s.phase_of(pod) not in ENDED_PHASES)
