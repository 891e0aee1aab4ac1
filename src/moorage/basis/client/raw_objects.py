"""The raw JSON of objects: for extenders, which receive more fields than scheduling decodes, and for objects that the scheduler
writes, which get back what it does not change as it came.

All other code uses ``moorage.api``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from moorage.api.core import Node, Object, Pod
from moorage.api.devices import DeviceClass, ResourceClaim
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.basis.client.raw_json import merged

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
