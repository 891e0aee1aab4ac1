"""The namespace controller: delete the content of a deleted namespace, pods first with their grace period, then finalize it.

Conditions of the namespace show the remaining content and finalizers.

Source  kubernetes, pkg/controller/namespace/deletion: namespaced_resources_deleter.go, status_condition_utils.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.rules.admission.admission_plugins import SYSTEM_NAMESPACES, finalized, finalizers_of
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import Create, DeleteAll, SetStatus, Step, Update

#: Conditions, with reason and message while there is no problem.
_WELL: Final[Mapping[str, tuple[str, str]]] = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


class Namespaces:
    name = "namespace-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        found = event.latest
        if event.kind is k8s.NAMESPACES:
            if k8s.is_ending(found) or k8s.name_of(found) in SYSTEM_NAMESPACES:
                yield k8s.name_of(found)
        elif (home := k8s.namespace_of(found)) and world.is_closing(home):
            yield home

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        namespace = world.get(k8s.NAMESPACES, "", key)
        if namespace is None:
            if key in SYSTEM_NAMESPACES:
                yield Create(k8s.NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": key}}, or_keep=True)
        elif k8s.is_ending(namespace) and finalizers_of(namespace):
            yield from _clear(namespace, world, now)


def _clear(namespace: Document, world: ObjectIndex, now: float) -> Iterator[Step]:
    name = k8s.name_of(namespace)
    kinds = [kind for kind in world.kinds.stored if kind.namespaced and kind.native not in {"Event", "Pod"}]
    pods = world.all(k8s.PODS, name)
    left = {k8s.PODS: pods} if pods else {kind: held for kind in kinds if (held := world.all(kind, name))}
    fresh = [kind for kind, objects in left.items() if not all(map(k8s.is_ending, objects))]
    for kind in fresh:
        yield DeleteAll(kind, name)
    if fresh:
        return  # their deletion events trigger the next reconcile
    status = {**k8s.status_of(namespace), "phase": "Terminating", "conditions": _conditions(namespace, left, now)}
    yield SetStatus(k8s.NAMESPACES, namespace, status)
    if not left:
        # Events are not watched, and nothing blocks their deletion.
        yield DeleteAll(k8s.EVENTS, name)
        yield Update(k8s.NAMESPACES, finalized(namespace), "finalize")


def _conditions(namespace: Document, left: Mapping[ServedKind, list[Document]], now: float) -> list[Document]:
    problems: dict[str, tuple[str, str]] = {}
    if left:
        counts = sorted(f"{kind.resource}.{kind.group} has {len(objects)} resource instances" for kind, objects in left.items())
        problems["NamespaceContentRemaining"] = "SomeResourcesRemain", f"Some resources are remaining: {', '.join(counts)}"
    holders = Counter(one for objects in left.values() for held in objects for one in held["metadata"].get("finalizers") or ())
    if holders:
        counts = [f"{one} in {holders[one]} resource instances" for one in sorted(holders)]
        text = f"Some content in the namespace has finalizers remaining: {', '.join(counts)}"
        problems["NamespaceFinalizersRemaining"] = "SomeFinalizersRemain", text
    conditions: list[Document] = k8s.status_of(namespace).get("conditions") or []
    for name, well in _WELL.items():
        truth = "True" if name in problems else "False"
        conditions = k8s.with_condition(conditions, name, truth, now, *problems.get(name, well))
    return conditions
