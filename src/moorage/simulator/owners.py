"""Ownership: the pods, replica sets and jobs of the input by their controllers.

An owner reference decides, by UID as for the garbage collector; by name if the owner's UID was generated here because the input
had none. Like real controllers, the first controller whose selector matches an object without a controller adopts it.

Source  kubernetes, pkg/controller/controller_ref_manager.go
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, LabelSelector, Object, ObjectMeta, OwnerReference, Pod
from moorage.api.documents.object_fields import stable_uid
from moorage.api.pod_groups import PodGroup
from moorage.api.selectors import Selector, SelectorError, compile_label_selector
from moorage.api.workloads import DaemonSet, Job, ReplicaSet
from moorage.errors import InputError
from moorage.rules.workloads.missing_pods import POD_TEMPLATE_HASH

T = TypeVar("T", Pod, ReplicaSet, Job, PodGroup)
_MIRROR: Final = "kubernetes.io/config.mirror"


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the reference to an object's controller, if any."""
    for owner in metadata.owner_references:  # for many pods; a generator would take twice as long
        if owner.controller:
            return owner
    return None


def controller_kind(pod: Pod) -> str:
    """Return the kind of a pod's controller; "" without one."""
    owner = controller_of(pod.metadata)
    return "" if owner is None else owner.kind


def controller_title(metadata: ObjectMeta) -> str:
    """Return the kind and name of an object's controller: ``ReplicaSet/web-1``; "" without one."""
    owner = controller_of(metadata)
    return "" if owner is None else f"{owner.kind}/{owner.name}"


def deployment_name(pod: Pod) -> str:
    """Return the name of a pod's Deployment: that of its ReplicaSet without the template's hash; "" for other pods."""
    owner, mark = controller_of(pod.metadata), pod.labels.get(POD_TEMPLATE_HASH)
    if owner is None or owner.kind != "ReplicaSet" or not mark or not owner.name.endswith(f"-{mark}"):
        return ""
    return owner.name.removesuffix(f"-{mark}")


def owner_reference(api_version: str, kind: str, metadata: ObjectMeta) -> OwnerReference:
    """Return the owner reference to a controller."""
    return OwnerReference(api_version=api_version, kind=kind, name=metadata.name, uid=metadata.uid, controller=True)


def daemon_of(daemon: DaemonSet) -> Pod:
    """Return a pod of a DaemonSet, as its template says."""
    meta, template = daemon.metadata, daemon.spec.template
    made = ObjectMeta(
        name=meta.name, namespace=meta.namespace, uid=f"daemon of {meta.namespace}/{meta.name}",
        labels=template.metadata.labels, owner_references=(owner_reference("apps/v1", "DaemonSet", meta),),
    )  # fmt: skip
    return Pod(metadata=made, spec=template.spec)


def is_active(pod: Pod) -> bool:
    """Return True for a pod that counts as a replica: neither finished nor terminating."""
    return pod.status.phase not in ENDED_PHASES and pod.metadata.deletion_timestamp is None


def is_owned_by(pod: Pod, kind: str) -> bool:
    """Return True if an object of this kind owns a pod, as its controller or not."""
    return any(owner.kind == kind for owner in pod.metadata.owner_references)


def is_made_for(obj: Object, uids: Collection[str]) -> bool:
    """Return True for an object, such as a claim, that was made for one of the pods or groups with these UIDs."""
    return any(owner.uid in uids for owner in obj.metadata.owner_references)


def is_mirror(pod: Pod) -> bool:
    """Return True for a mirror pod, which a kubelet created for a static pod."""
    return _MIRROR in pod.metadata.annotations


def compiled(selector: LabelSelector | None, title: str) -> Selector:
    """Return a workload's compiled selector.

    Raises  InputError, naming the workload, if it is invalid
    """
    try:
        return compile_label_selector(selector)
    except SelectorError as error:
        raise InputError(f"{title}: spec.selector: {error}") from None


class Claimed(Generic[T]):
    """Objects by controller; ``adopt`` gives a controller those that have none."""

    def __init__(self, objects: Iterable[T]) -> None:
        self._by_uid: dict[str, list[T]] = {}
        self._by_name: dict[tuple[str, str, str], list[T]] = {}
        self._orphans: dict[str, dict[str, T]] = {}
        self._adopted: dict[tuple[str, str], OwnerReference] = {}
        siblings: dict[tuple[int, str], tuple[list[T], list[T]]] = {}  # by the id of their references, which they may share
        for held in objects:
            metadata = held.metadata
            key = id(metadata.owner_references), metadata.namespace
            if (lists := siblings.get(key)) is None:
                owner = controller_of(metadata)
                if owner is None:
                    self._orphans.setdefault(metadata.namespace, {})[metadata.name] = held
                    continue
                by_name = self._by_name.setdefault((metadata.namespace, owner.kind, owner.name), [])
                lists = siblings[key] = self._by_uid.setdefault(owner.uid, []), by_name
            lists[0].append(held)
            lists[1].append(held)

    def of(self, kind: str, metadata: ObjectMeta) -> list[T]:
        """Return the objects whose controller this object is."""
        if metadata.uid == stable_uid(kind, metadata.namespace, metadata.name):
            return self._by_name.get((metadata.namespace, kind, metadata.name), [])
        return [held for held in self._by_uid.get(metadata.uid, ()) if held.metadata.namespace == metadata.namespace]

    def by_owner_name(self, kind: str, namespace: str, name: str) -> list[T]:
        """Return the objects whose controller has this name but is not in the input."""
        return self._by_name.get((namespace, kind, name), [])

    def adopt(
        self, owner: OwnerReference, namespace: str, selector: Selector, suits: Callable[[T], bool] = lambda _: True
    ) -> list[T]:
        """Let a controller adopt the objects without one that its selector matches; no other controller can adopt them."""
        waiting = self._orphans.get(namespace)
        if not waiting or selector.matches_nothing or selector.is_empty:
            return []
        found = [
            held
            for held in waiting.values()
            if selector.matches(held.metadata.labels) and held.metadata.deletion_timestamp is None and suits(held)
        ]
        for held in found:
            del waiting[held.metadata.name]
            self._adopted[namespace, held.metadata.name] = owner
        return found

    def with_owners(self, objects: Iterable[T]) -> tuple[T, ...]:
        """Return the objects, with a reference to the controller if they were adopted."""
        return tuple(self._owned(held) for held in objects) if self._adopted else tuple(objects)

    def _owned(self, held: T) -> T:
        owner = self._adopted.get((held.metadata.namespace, held.metadata.name))
        if owner is None:
            return held
        owners = (*held.metadata.owner_references, owner)
        return replace(held, metadata=replace(held.metadata, owner_references=owners))
