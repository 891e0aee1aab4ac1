"""Keep a deleted volume attributes class until no volume and no claim names it.

Admission adds a finalizer to every new class; this controller removes it, and adds it where it is missing.

Source  kubernetes, pkg/controller/volume/vacprotection/vac_protection_controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moorage.apiserver.admission.admission_plugins import ATTRIBUTES_PROTECTION
from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.kind_names import ATTRIBUTES_CLASSES, CLAIMS, VOLUMES
from moorage.controllers.machinery.object_fields import is_ending, key_of, revised, spec_of, status_of
from moorage.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.controllers.machinery.steps import Step, Update

__all__ = ["AttributesClassProtection"]


class AttributesClassProtection:
    name = "volumeattributesclass-protection-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is ATTRIBUTES_CLASSES and event.new is not None:
            yield key_of(event.new)
        elif event.kind in {CLAIMS, VOLUMES} and event.old is not None:
            left = set(_named(event.old)) - set(_named(event.new) if event.new is not None else ())
            yield from (f"/{name}" for name in sorted(left))

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        found = world.find(ATTRIBUTES_CLASSES, key)
        if found is None:
            return
        held = found["metadata"].get("finalizers") or []
        if not is_ending(found):
            if ATTRIBUTES_PROTECTION not in held:
                yield Update(ATTRIBUTES_CLASSES, revised(found, finalizers=[*held, ATTRIBUTES_PROTECTION]))
        elif ATTRIBUTES_PROTECTION in held and not _is_in_use(found["metadata"]["name"], world):
            yield Update(ATTRIBUTES_CLASSES, revised(found, finalizers=[one for one in held if one != ATTRIBUTES_PROTECTION]))


def _named(user: Document) -> Iterator[str]:
    """Yield the names of the classes that a volume or a claim refers to: requested, current and target."""
    status = status_of(user)
    for name in (
        spec_of(user).get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    ):  # fmt: skip
        if name:
            yield name


def _is_in_use(name: str, world: ObjectIndex) -> bool:
    return any(name in _named(user) for kind in (VOLUMES, CLAIMS) for user in world.all(kind))
