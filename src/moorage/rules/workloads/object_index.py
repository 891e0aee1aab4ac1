"""All objects of a cluster as documents in memory, indexed by key, namespace, owner and node.

Watch events fill it, so it equals the store whenever all of the store's watches have been read. Documents in it are shared:
copy one before changing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import ALL_KINDS, Document, ServedKind


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object before and after an event; ``old`` is None for a created object, ``new`` for a deleted one."""

    kind: ServedKind
    old: Document | None
    new: Document | None

    @property
    def latest(self) -> Document:
        """The new object, or the last state of a deleted one."""
        found = self.old if self.new is None else self.new
        if found is None:
            raise ValueError("an event has an object")
        return found


class _KindIndex:
    """The objects of one kind, under each index."""

    def __init__(self) -> None:
        self.by_key: dict[str, Document] = {}
        self.by_namespace: dict[str, dict[str, Document]] = {}
        self.by_owner: dict[str, dict[str, Document]] = {}
        self.unmanaged: dict[str, dict[str, Document]] = {}


_EMPTY: Final[dict[str, Document]] = {}


class ObjectIndex:
    """All existing objects. ``note`` records a change and returns it with the previous object."""

    def __init__(self) -> None:
        #: The kinds that the cluster serves.
        self.kinds = ALL_KINDS
        self._indexes: dict[ServedKind, _KindIndex] = {}
        self._by_uid: dict[str, tuple[ServedKind, Document]] = {}
        self._pods_on: dict[str, dict[str, Document]] = {}

    # -- reading --------------------------------------------------------------------------------------------------------

    def get(self, kind: ServedKind, namespace: str, name: str) -> Document | None:
        return self.find(kind, f"{namespace}/{name}")

    def find(self, kind: ServedKind, key: str) -> Document | None:
        """Return an object by its ``key_of``."""
        index = self._indexes.get(kind)
        return None if index is None else index.by_key.get(key)

    def all(self, kind: ServedKind, namespace: str | None = None) -> list[Document]:
        """Return the objects of a kind, in one namespace or all, in the order of their first event."""
        index = self._indexes.get(kind)
        if index is None:
            return []
        return list((index.by_key if namespace is None else index.by_namespace.get(namespace, _EMPTY)).values())

    def count(self, kind: ServedKind) -> int:
        """Return the number of objects of a kind."""
        index = self._indexes.get(kind)
        return 0 if index is None else len(index.by_key)

    def by_uid(self, uid: str) -> tuple[ServedKind, Document] | None:
        return self._by_uid.get(uid)

    def controlled(self, kind: ServedKind, owner: Document) -> list[Document]:
        """Return the objects of a kind whose controller is ``owner``."""
        uid = k8s.uid_of(owner)
        return [one for one in self.dependents(kind, uid) if (k8s.controller_of(one) or {}).get("uid") == uid]

    def dependents(self, kind: ServedKind, uid: str) -> list[Document]:
        """Return the objects of a kind with ``uid`` among their owners."""
        index = self._indexes.get(kind)
        return [] if index is None else list(index.by_owner.get(uid, _EMPTY).values())

    def all_dependents(self, uid: str) -> Iterator[tuple[ServedKind, Document]]:
        """Yield the objects of all kinds with ``uid`` among their owners."""
        for kind in self._indexes:
            for one in self.dependents(kind, uid):
                yield kind, one

    def is_closing(self, namespace: str) -> bool:
        """Return True for a namespace that is being deleted: nothing can be created in it."""
        home = self.get(k8s.NAMESPACES, "", namespace)
        return home is not None and k8s.is_ending(home)

    def unmanaged(self, kind: ServedKind, namespace: str) -> list[Document]:
        """Return the objects of a kind without a controller."""
        index = self._indexes.get(kind)
        return [] if index is None else list(index.unmanaged.get(namespace, _EMPTY).values())

    def pods_on(self, node: str) -> list[Document]:
        return list(self._pods_on.get(node, _EMPTY).values())

    # -- writing --------------------------------------------------------------------------------------------------------

    def note(self, kind: ServedKind, document: Document, *, gone: bool = False) -> ObjectChange:
        """Record an object's new state, or its deletion."""
        index = self._indexes.setdefault(kind, _KindIndex())
        key = k8s.key_of(document)
        old = index.by_key.get(key)
        if old is not None and (
            gone or k8s.uid_of(old) != k8s.uid_of(document) or _index_fields(kind, old) != _index_fields(kind, document)
        ):
            self._forget(kind, index, key, old)
        if gone:
            return ObjectChange(kind, old or document, None)
        index.by_key[key] = document
        namespace = k8s.namespace_of(document)
        index.by_namespace.setdefault(namespace, {})[key] = document
        for owner in document["metadata"].get("ownerReferences") or ():
            index.by_owner.setdefault(owner["uid"], {})[key] = document
        if k8s.controller_of(document) is None:
            index.unmanaged.setdefault(namespace, {})[key] = document
        self._by_uid[k8s.uid_of(document)] = kind, document
        if kind is k8s.PODS and (node := document["spec"].get("nodeName")):
            self._pods_on.setdefault(node, {})[key] = document
        return ObjectChange(kind, old, document)

    def rename(self, old: ServedKind, new: ServedKind) -> None:
        """Keep the objects of a custom kind when its changed definition replaces the ``ServedKind`` ``old`` by ``new``."""
        index = self._indexes.pop(old, None)
        if index is not None:
            self._indexes[new] = index
            for document in index.by_key.values():
                self._by_uid[k8s.uid_of(document)] = new, document

    def _forget(self, kind: ServedKind, index: _KindIndex, key: str, old: Document) -> None:
        namespace = k8s.namespace_of(old)
        del index.by_key[key]
        _drop(index.by_namespace, namespace, key)
        for owner in old["metadata"].get("ownerReferences") or ():
            _drop(index.by_owner, owner["uid"], key)
        if k8s.controller_of(old) is None:
            _drop(index.unmanaged, namespace, key)
        self._by_uid.pop(k8s.uid_of(old), None)
        if kind is k8s.PODS and (node := old["spec"].get("nodeName")):
            _drop(self._pods_on, node, key)


def _index_fields(kind: ServedKind, document: Document) -> tuple[object, object]:
    """Return the fields from which the index entries of an object are computed."""
    place = document["spec"].get("nodeName") if kind is k8s.PODS else None
    return document["metadata"].get("ownerReferences"), place


def _drop(index: dict[str, dict[str, Document]], entry: str, key: str) -> None:
    held = index.get(entry)
    if held is None:
        return
    held.pop(key, None)
    if not held:
        del index[entry]
