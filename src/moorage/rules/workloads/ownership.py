"""Ownership: a controller adopts unmanaged objects that its selector matches, and releases its own that no longer match.

Source  kubernetes, pkg/controller/controller_ref_manager.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.selectors import Selector
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import Step, Update


class Claim:
    """The objects of a controller; they are its own after ``steps`` are executed."""

    def __init__(self) -> None:
        self.held: list[Document] = []
        self.steps: list[Step] = []


def claim(
    kind: ServedKind, owner_kind: ServedKind, owner: Document, selector: Selector, world: ObjectIndex,
    suits: Callable[[Document], bool] = lambda _: True,
) -> Claim:  # fmt: skip
    """Return the objects of a kind that belong to a controller, and the steps that adopt and release.

    An owner that is being deleted adopts nothing. ``suits`` filters the objects to adopt.
    """
    made = Claim()
    for one in world.controlled(kind, owner):
        if selector.matches(k8s.labels_of(one)) or k8s.is_ending(one):
            made.held.append(one)
        elif not k8s.is_ending(owner):
            others = [ref for ref in one["metadata"]["ownerReferences"] if ref["uid"] != k8s.uid_of(owner)]
            made.steps.append(Update(kind, k8s.revised(one, ownerReferences=others)))
    if k8s.is_ending(owner) or selector.matches_nothing:
        return made
    for one in world.unmanaged(kind, k8s.namespace_of(owner)):
        has_ended = kind is k8s.PODS and k8s.phase_of(one) in ENDED_PHASES
        if selector.matches(k8s.labels_of(one)) and not k8s.is_ending(one) and not has_ended and suits(one):
            refs = [*(one["metadata"].get("ownerReferences") or ()), k8s.reference_to(owner_kind, owner)]
            adopted = k8s.revised(one, ownerReferences=refs)
            made.steps.append(Update(kind, adopted))
            made.held.append(adopted)
    return made


def keys_by_owner(event: ObjectChange, world: ObjectIndex, owned: ServedKind, owner: ServedKind) -> Iterator[str]:
    """Yield the keys of the owners that an event concerns: the object's owner, or all that may adopt it."""
    if event.kind is owner:
        yield k8s.key_of(event.latest)
    elif event.kind is owned:
        for one in (event.old, event.new):
            if one is None:
                continue
            ref = k8s.controller_of(one)
            if ref is None:
                for other in world.all(owner, k8s.namespace_of(one)):
                    if k8s.selector_of(k8s.spec_of(other).get("selector")).matches(k8s.labels_of(one)):
                        yield k8s.key_of(other)
            elif ref["kind"] == owner.kind:
                yield f"{k8s.namespace_of(one)}/{ref['name']}"


def pod_of_template(kind: ServedKind, owner: Document, template: Document, **metadata: object) -> Document:
    """Return a new pod from a template, as controllers create it; ``metadata`` overrides or adds fields.

    The pod shares nothing with the template, because admission modifies the pod, for example with a limit range's defaults.
    """
    held = template.get("metadata") or {}
    made = {
        "namespace": k8s.namespace_of(owner),
        "labels": dict(held.get("labels") or {}),
        "annotations": dict(held.get("annotations") or {}),
        "finalizers": list(held.get("finalizers") or ()),
        "ownerReferences": [k8s.reference_to(kind, owner)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {name: value for name, value in {**made, **metadata}.items() if value},
        "spec": k8s.copied(k8s.spec_of(template)),
    }


def active(pods: list[Document]) -> list[Document]:
    """Return the pods that count as replicas."""
    return [pod for pod in pods if k8s.is_active(pod)]
