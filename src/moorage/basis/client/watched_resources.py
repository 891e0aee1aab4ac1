"""The resources that a scheduler watches, with their groups, versions and paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from msgspec import structs

from moorage.api.core import LabelSelector, Object, Pod
from moorage.api.custom_objects import CustomKind, CustomObject, custom_type, read_custom
from moorage.api.decode import decode
from moorage.api.devices import DeviceTaintRule
from moorage.api.feature_gates import FeatureGates
from moorage.api.kinds import KINDS, Reader
from moorage.api.pod_groups import PodGroup
from moorage.api.storage import CSIStorageCapacity
from moorage.api.workloads import PodDisruptionBudget

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class WatchedResource(Generic[T]):
    """A kind, its API version and its resource name.

    ``fields`` is the field selector of the watch. ``redelivers`` selects objects that every list delivers again although they
    are unchanged. ``gate`` is the feature gate that enables the watch; servers without it do not serve the kind. ``read``
    decodes an object from JSON and raises InputError; without it, ``type`` is decoded. A kind that is not served is retried
    after ``unserved_s``, and before that in its ``older`` versions.
    """

    type: type[T]
    api_version: str
    plural: str
    namespaced: bool = True
    fields: str = ""
    redelivers: Callable[[T], bool] = lambda obj: False
    gate: str = ""
    read: Callable[[bytes], T] | None = None
    unserved_s: float = 60.0
    older: tuple[WatchedResource[T], ...] = ()

    @property
    def kind(self) -> str:
        return self.type.__name__

    @property
    def root(self) -> str:
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    @property
    def path(self) -> str:
        """The path that lists all objects in all namespaces."""
        return f"{self.root}/{self.plural}"

    def path_in(self, namespace: str) -> str:
        """The path of the collection in a namespace; ``path`` for cluster-scoped kinds."""
        return f"{self.root}/namespaces/{namespace}/{self.plural}" if self.namespaced and namespace else self.path

    def path_of(self, namespace: str, name: str, subresource: str = "") -> str:
        """The path of one object."""
        one = f"{self.path_in(namespace)}/{name}"
        return f"{one}/{subresource}" if subresource else one


_STORAGE, _DEVICES = "storage.k8s.io/v1", "resource.k8s.io/v1"

#: client-go retries a kind that is not served after up to half a minute.
_CUSTOM_RETRY_S: Final = 10.0


def _decode_v1beta1_budget(raw: bytes) -> PodDisruptionBudget:
    """Decode a policy/v1beta1 budget, whose empty selector selects nothing."""
    found = decode(raw, PodDisruptionBudget, "PodDisruptionBudget")
    if found.spec.selector != LabelSelector():
        return found
    return structs.replace(found, spec=structs.replace(found.spec, selector=None))


#: PodDisruptionBudget in the version of 1.19 and 1.20.
_V1BETA1_BUDGETS: Final[WatchedResource[Object]] = WatchedResource(
    PodDisruptionBudget, "policy/v1beta1", "poddisruptionbudgets", read=_decode_v1beta1_budget
)

_DETAILS: Final[Mapping[type[Object], Mapping[str, Any]]] = {
    # Every list delivers unbound pods again: after a failed bind the scheduler may have read that the pod is deleted, but a
    # server that lost its last writes still has the pod.
    Pod: {
        "fields": "status.phase!=Succeeded,status.phase!=Failed",
        "redelivers": lambda obj: isinstance(obj, Pod) and not obj.spec.node_name,
    },
    PodDisruptionBudget: {"older": (_V1BETA1_BUDGETS,)},
    DeviceTaintRule: {"older": (WatchedResource(DeviceTaintRule, "resource.k8s.io/v1beta2", "devicetaintrules", False),)},
    CSIStorageCapacity: {"older": (WatchedResource(CSIStorageCapacity, "storage.k8s.io/v1beta1", "csistoragecapacities"),)},
}


#: All kinds that the engine and the built-in plugins look up. Pods that have ended use nothing, so they are not watched.
WATCHED: Final[tuple[WatchedResource[Object], ...]] = tuple(
    WatchedResource(one.type, one.api_version, one.resource, one.namespaced, gate=one.gate, **_DETAILS.get(one.type, {}))
    for one in KINDS
    if Reader.SCHEDULER in one.readers
)


def watched(gates: FeatureGates) -> tuple[WatchedResource[Object], ...]:
    """Return the resources that a scheduler watches with these gates, pod groups in the versions of the emulated release."""
    found = (resource for resource in WATCHED if _is_watched(resource, gates))
    return tuple(groups_of(gates) if resource.type is PodGroup else resource for resource in found)


def groups_of(gates: FeatureGates) -> WatchedResource[Object]:
    """Return the resource of pod groups in the versions that the emulated release serves."""
    first, *others = (f"scheduling.k8s.io/{version}" for version in gates.emulated.group_versions)
    known = _BY_TYPE[PodGroup]
    older = tuple(replace(known, api_version=version) for version in others)
    return replace(known, api_version=first, older=older)


def _is_watched(resource: WatchedResource[Object], gates: FeatureGates) -> bool:
    if resource.gate and not gates.serves(resource.gate):
        return False
    gate = gates.emulated.gated_kinds.get(resource.type.__name__)
    return gate is None or (bool(gate) and gates[gate])


def custom_resource(kind: CustomKind) -> WatchedResource[Object]:
    """Return the resource of a kind that a plugin names. It may be installed at any time, so it is retried more often."""
    name = str(kind)
    return WatchedResource(
        custom_type(name),
        kind.api_version,
        kind.plural,
        read=lambda raw: read_custom(raw, name, kind.plural),
        unserved_s=_CUSTOM_RETRY_S,
    )


_BY_TYPE = {resource.type: resource for resource in WATCHED}


def resource_of(kind: type[Object]) -> WatchedResource[Object]:
    """Return the resource of a kind.

    Raises  KeyError for kinds that are not watched
    """
    named = CustomKind.parse(kind.resource) if issubclass(kind, CustomObject) else None
    return _BY_TYPE[kind] if named is None else custom_resource(named)
