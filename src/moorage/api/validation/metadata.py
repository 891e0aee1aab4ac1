"""Object metadata: names, namespaces, labels, annotations, owners and finalizers.

Source  apimachinery, pkg/api/validation/objectmeta.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.api.names import check_dns1123_label, check_dns1123_subdomain, check_qualified_name
from moorage.api.validation.faults import (
    NOT_NEGATIVE,
    Faults,
    forbidden,
    invalid,
    label_name,
    labels,
    named,
    required,
    too_long,
)

#: The maximum size of all annotations of an object together, keys and values, in bytes.
MAX_ANNOTATIONS: Final = 256 * 1024


def object_meta(
    metadata: ObjectMeta, namespaced: bool, check_name: Callable[[str], list[str]] = check_dns1123_subdomain
) -> Faults:
    """Yield the faults of an object's metadata."""
    if metadata.generate_name:
        yield from named("metadata.generateName", metadata.generate_name, lambda base: check_name(_as_prefix(base)))
    if not metadata.name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from named("metadata.name", metadata.name, check_name)
    if not namespaced:
        if metadata.namespace:
            yield forbidden("metadata.namespace", "not allowed on this type")
    elif not metadata.namespace:
        yield required("metadata.namespace")
    else:
        yield from named("metadata.namespace", metadata.namespace, check_dns1123_label)
    if metadata.generation < 0:
        yield invalid("metadata.generation", metadata.generation, NOT_NEGATIVE)
    yield from labels("metadata.labels", metadata.labels)
    yield from annotation_faults("metadata.annotations", metadata.annotations)
    yield from _owners(metadata.owner_references)
    for finalizer in metadata.finalizers:
        yield from label_name("metadata.finalizers", finalizer)


def _as_prefix(base: str) -> str:
    """Return a base for generated names with a trailing dash replaced by a letter."""
    return base[:-2] + "a" if len(base) > 1 and base.endswith("-") else base


def annotation_faults(path: str, given: Mapping[str, str]) -> Faults:
    """Yield the faults of annotations: keys that are no label keys (ignoring case), and excessive size."""
    for key in given:
        for fault in check_qualified_name(key.lower()):
            yield invalid(path, key, fault)
    size = sum(_size(key) + _size(value) for key, value in given.items())
    if size > MAX_ANNOTATIONS:
        yield too_long(path, MAX_ANNOTATIONS)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _owners(owners: tuple[OwnerReference, ...]) -> Faults:
    path, first = "metadata.ownerReferences", ""
    for i, owner in enumerate(owners):
        at = f"{path}[{i}]"
        if not owner.api_version:
            yield required(f"{at}.apiVersion", "must not be empty")
        elif owner.api_version.count("/") > 1 or owner.api_version.endswith("/"):
            yield invalid(f"{at}.apiVersion", owner.api_version, "must be <group>/<version> or <version>")
        for name, value in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
            if not value:
                yield required(f"{at}.{name}", "must not be empty")
        if (owner.api_version, owner.kind) == ("v1", "Event"):
            yield invalid(at, _shown_owner(owner), "/v1, Kind=Event is disallowed from being an owner")
        if owner.controller and first:
            both = f"{first} and {owner.kind}/{owner.name}"
            why = f'Only one reference can have Controller set to true. Found "true" in references for {both}'
            yield invalid(path, [_shown_owner(one) for one in owners], why)
        elif owner.controller:
            first = f"{owner.kind}/{owner.name}"


def _shown_owner(owner: OwnerReference) -> dict[str, object]:
    shown: dict[str, object] = {
        "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
    }  # fmt: skip
    return {**shown, "controller": True} if owner.controller else shown
