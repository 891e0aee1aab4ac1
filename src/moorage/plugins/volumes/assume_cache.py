"""What was decided about claims and volumes and is not written yet, laid over what the API server says.

A decision about an object holds as long as the object is the one it was made about: when anything newer is seen of it, that
counts instead. Until then no other pod may be promised the same volume.

Source  kube-scheduler 1.36, plugins/volumebinding/passive_assume_cache.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.state.cluster import Snapshot

__all__ = ["Assumed", "Assumptions", "is_still"]

K = TypeVar("K", bound=PersistentVolume | PersistentVolumeClaim)


class _Entry(Generic[K]):
    """An object as it will be, the one that this was made from, and the pods that count on it."""

    __slots__ = ("base", "obj", "owners")

    def __init__(self, base: K, obj: K) -> None:
        self.base = base
        self.obj = obj
        self.owners: dict[str, None] = {}


class Assumed(Generic[K]):
    """Assumptions about one kind of object, by key (``name``, or ``namespace/name``)."""

    def __init__(self, objects: Mapping[str, K]) -> None:
        self._objects = objects
        self._entries: dict[str, _Entry[K]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> K | None:
        """Return an object as it will be, if anything is assumed of it, or else as it is."""
        stored = self._objects.get(key)
        entry = self._entries.get(key)
        if entry is None or stored is None or not is_still(stored, entry.base):
            return stored
        return entry.obj

    def all(self) -> Iterator[tuple[str, K]]:
        """Yield everything that is assumed and still holds, by key."""
        for key, entry in self._entries.items():
            stored = self._objects.get(key)
            if stored is not None and is_still(stored, entry.base):
                yield key, entry.obj

    def assume(self, key: str, obj: K, owner: str) -> K:
        """Count on ``obj`` from now on, for the pod with this UID. Returns the object that this replaces, as it is stored."""
        self._drop_outdated()
        base = self._objects[key]
        entry = self._entries.get(key)
        if entry is None and obj == base:
            return base
        if entry is None:
            entry = self._entries[key] = _Entry(base, obj)
        entry.obj = obj
        entry.owners[owner] = None
        return base

    def release(self, owner: str) -> None:
        """Take back what was assumed for a pod, where no other pod counts on it."""
        for key, entry in list(self._entries.items()):
            if owner in entry.owners:
                del entry.owners[owner]
                if not entry.owners:
                    del self._entries[key]

    def _drop_outdated(self) -> None:
        kept = dict(self.all())
        self._entries = {key: entry for key, entry in self._entries.items() if key in kept}


class Assumptions:
    """All that is assumed in a cluster, by whatever profile. An index: ask ``Snapshot.index`` for it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.volumes = Assumed(snapshot.objects(PersistentVolume))
        self.claims = Assumed(snapshot.objects(PersistentVolumeClaim))

    def release(self, owner: str) -> None:
        """Take back everything that was assumed for a pod."""
        self.volumes.release(owner)
        self.claims.release(owner)


def is_still(stored: PersistentVolume | PersistentVolumeClaim, base: PersistentVolume | PersistentVolumeClaim) -> bool:
    """Say whether an object is as it was seen before; it may have been told of again."""
    return stored is base or stored == base
