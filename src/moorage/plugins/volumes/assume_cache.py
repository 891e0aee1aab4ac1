"""Assumed claims and volumes: decisions that are still to be written, on top of the API server's state.

An assumption about an object holds as long as the object is unchanged: a newer version overrides it. Until then no other pod
can get the same volume.

Source  kube-scheduler 1.36, plugins/volumebinding/passive_assume_cache.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.state.view import Snapshot

K = TypeVar("K", bound=PersistentVolume | PersistentVolumeClaim)


class _Entry(Generic[K]):
    """The assumed object, the stored object it was made from, and the pods that rely on it."""

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

    def save(self) -> Callable[[], None]:
        """Return a function that restores the present assumptions."""
        saved = [(key, entry, entry.obj, entry.owners.copy()) for key, entry in self._entries.items()]

        def restore() -> None:
            self._entries = {key: entry for key, entry, _, _ in saved}
            for _, entry, obj, owners in saved:
                entry.obj, entry.owners = obj, owners

        return restore

    def get(self, key: str) -> K | None:
        """Return the assumed object if there is one, else the stored one."""
        stored = self._objects.get(key)
        entry = self._entries.get(key)
        if entry is None or stored is None or not is_still(stored, entry.base):
            return stored
        return entry.obj

    def all(self) -> Iterator[tuple[str, K]]:
        """Yield all assumed objects that still hold, by key."""
        for key, entry in self._entries.items():
            stored = self._objects.get(key)
            if stored is not None and is_still(stored, entry.base):
                yield key, entry.obj

    def assume(self, key: str, obj: K, owner: str) -> K:
        """Assume ``obj`` for the pod with this UID. Return the stored object that it replaces."""
        kept = dict(self.all())  # without those that are outdated
        self._entries = {key: entry for key, entry in self._entries.items() if key in kept}
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
        """Drop a pod's assumptions, except objects that other pods rely on."""
        for key, entry in list(self._entries.items()):
            if owner in entry.owners:
                del entry.owners[owner]
                if not entry.owners:
                    del self._entries[key]


class Assumptions:
    """All assumptions of a cluster, shared by all profiles. An index: get it from ``Snapshot.index``."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.volumes = Assumed(snapshot.objects(PersistentVolume))
        self.claims = Assumed(snapshot.objects(PersistentVolumeClaim))

    def save(self) -> Callable[[], None]:
        """Return a function that restores the present assumptions."""
        volumes, claims = self.volumes.save(), self.claims.save()

        def restore() -> None:
            volumes()
            claims()

        return restore

    def release(self, owner: str) -> None:
        """Drop all assumptions of a pod."""
        self.volumes.release(owner)
        self.claims.release(owner)


def is_still(stored: PersistentVolume | PersistentVolumeClaim, base: PersistentVolume | PersistentVolumeClaim) -> bool:
    """Return whether an object is unchanged; the API server may have sent it again."""
    return stored is base or stored == base
