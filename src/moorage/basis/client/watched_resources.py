"""The resources that a scheduler watches, with their groups, versions and paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import structs

from moorage.api.core import LabelSelector, Namespace, Node, Object, Pod
from moorage.api.custom_objects import CustomKind, CustomObject, custom_type, read_custom
from moorage.api.decode import decode
from moorage.api.devices import DeviceClass, DeviceTaintRule, ResourceClaim
from moorage.api.feature_gates import FeatureGates
from moorage.api.kinds import KINDS, Reader
from moorage.api.pod_groups import PodGroup
from moorage.api.storage import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from moorage.api.workloads import PodDisruptionBudget
from moorage.basis.client.raw_json import merged
from moorage.errors import ClusterError, MoorageError

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


# -- server version ----------------------------------------------------------------------------------------------------
# The version that an API server reports at ``/version``.


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


async def server_version(get: Callable[[str, Mapping[str, str]], Awaitable[bytes]]) -> str:
    """Return the version of an API server, such as ``v1.34.1``; "" if its response has none. ``get`` makes the request.

    Raises  ClusterError
    """
    try:
        return msgspec.json.decode(await get("/version", {}), type=_Version).git_version
    except msgspec.MsgspecError as error:
        raise ClusterError(f"GET /version: the answer is not a version: {error}") from None


async def cluster_uid(get: Callable[[str, Mapping[str, str]], Awaitable[bytes]]) -> str:
    """Return the UID of the namespace kube-system, which tells clusters apart; "" if it cannot be read."""
    try:
        return decode(await get("/api/v1/namespaces/kube-system", {}), Namespace, "kube-system").metadata.uid
    except MoorageError:
        return ""


# -- raw objects -------------------------------------------------------------------------------------------------------
# The raw JSON of objects: for extenders, which receive more fields than scheduling decodes, and for objects that the scheduler
# writes, which get back what it does not change as it came.
#
# All other code uses ``moorage.api``.

#: The kinds that the scheduler may write as a whole, and those whose fields it copies into them.
WRITTEN: Final = frozenset[type[Object]]([DeviceClass, PersistentVolume, PersistentVolumeClaim, ResourceClaim])
#: What extenders receive.
FOR_EXTENDERS: Final = frozenset[type[Object]]([Node, Pod])


class RawObjects:
    """The latest JSON of each object of these kinds that may still be used, without ``managedFields``.

    These are pods without a node, volumes without a claim, and claims without a volume; and all objects of other kinds.
    """

    def __init__(self, kinds: Iterable[type[Object]] = FOR_EXTENDERS) -> None:
        self.kinds = frozenset(kinds)
        self._json: dict[type[Object], dict[str, bytes]] = {kind: {} for kind in self.kinds}

    def __len__(self) -> int:
        return sum(map(len, self._json.values()))

    def store(self, obj: Object, json: bytes) -> None:
        """Store an object's JSON if it may be used."""
        if type(obj) not in self.kinds:
            return
        if _is_settled(obj):
            self.drop(obj)
        else:
            self._json[type(obj)][_identity(obj)] = _kept(obj, json)

    def drop(self, obj: Object) -> None:
        """Remove a deleted object, or one that is not used any more."""
        self._json.get(type(obj), {}).pop(_identity(obj), None)

    def json_of(self, obj: Object) -> bytes | None:
        """Return the latest JSON of an object, or None if it is not stored."""
        return self._json.get(type(obj), {}).get(_identity(obj))

    def of_kind(self, kind: type[Object]) -> Iterable[bytes]:
        """Return the JSON of all stored objects of a kind."""
        return self._json.get(kind, {}).values()


def _is_settled(obj: Object) -> bool:
    """Return whether a scheduler has no more use for an object's JSON."""
    match obj:
        case Pod():
            return bool(obj.spec.node_name)
        case PersistentVolumeClaim():
            return bool(obj.spec.volume_name)
        case PersistentVolume():
            return obj.status.phase == "Bound"
    return False


def _identity(obj: Object) -> str:
    return obj.metadata.uid or obj.metadata.name


def _kept(obj: Object, json: bytes) -> bytes:
    """Return the JSON without ``managedFields``; as extenders get it also without kind and version, which are implied."""
    change: dict[str, Any] = {"metadata": {"managedFields": None}} if b'"managedFields"' in json else {}
    if type(obj) in FOR_EXTENDERS:
        change |= {"kind": None, "apiVersion": None}
    return merged(json, change) if change else json
