"""Keep a deleted volume attributes class until no volume and no claim names it.

Admission adds a finalizer to every new class; this controller removes it, and adds it where it is missing.

Source  kubernetes, pkg/controller/volume/vacprotection/vac_protection_controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moorage.api import storage
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import Step, Update


class AttributesClassProtection:
    name = "volumeattributesclass-protection-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is k8s.ATTRIBUTES_CLASSES and event.new is not None:
            yield k8s.key_of(event.new)
        elif event.kind in {k8s.CLAIMS, k8s.VOLUMES} and event.old is not None:
            left = set(_named(event.old)) - set(_named(event.new) if event.new is not None else ())
            yield from (f"/{name}" for name in sorted(left))

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        found = world.find(k8s.ATTRIBUTES_CLASSES, key)
        if found is None:
            return
        held = found["metadata"].get("finalizers") or []
        if not k8s.is_ending(found):
            if storage.ATTRIBUTES_PROTECTION not in held:
                yield Update(k8s.ATTRIBUTES_CLASSES, k8s.revised(found, finalizers=[*held, storage.ATTRIBUTES_PROTECTION]))
        elif storage.ATTRIBUTES_PROTECTION in held:
            users = (*world.all(k8s.VOLUMES), *world.all(k8s.CLAIMS))
            if not any(k8s.name_of(found) in _named(user) for user in users):
                left = [one for one in held if one != storage.ATTRIBUTES_PROTECTION]
                yield Update(k8s.ATTRIBUTES_CLASSES, k8s.revised(found, finalizers=left))


def _named(user: Document) -> Iterator[str]:
    """Yield the names of the classes that a volume or a claim refers to: requested, current and target."""
    requested, status = k8s.spec_of(user).get("volumeAttributesClassName"), k8s.status_of(user)
    target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    yield from filter(None, (requested, status.get("currentVolumeAttributesClassName"), target))
