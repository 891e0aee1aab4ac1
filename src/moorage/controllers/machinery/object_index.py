"""All objects of a cluster as documents in memory, found by key, namespace, owner and node.

It is filled by events, and so agrees with the store whenever all of the store's watches were read. Documents in it are
shared: whoever wants one changed makes a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.controllers.machinery.kind_names import NAMESPACES, PODS
from moorage.controllers.machinery.object_fields import controller_of, is_ending, key_of, name_of, namespace_of, uid_of

__all__ = ["ObjectChange", "ObjectIndex"]


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object before and after; ``old`` is None for one that is new, ``new`` for one that is gone."""

    kind: ServedKind
    old: Document | None
    new: Document | None

    @property
    def latest(self) -> Document:
        """The object as it is, or was last."""
        found = self.old if self.new is None else self.new
        if found is None:
            raise ValueError("an event is about something")
        return found


class _Shelf:
    """The objects of one kind."""

    def __init__(self) -> None:
        self.by_key: dict[str, Document] = {}
        self.by_namespace: dict[str, dict[str, Document]] = {}
        self.by_owner: dict[str, dict[str, Document]] = {}
        self.unmanaged: dict[str, dict[str, Document]] = {}


_EMPTY: Final[dict[str, Document]] = {}


class ObjectIndex:
    """What is known to exist. ``note`` tells it of a change and returns what it was before."""

    def __init__(self) -> None:
        self._shelves: dict[ServedKind, _Shelf] = {}
        self._by_uid: dict[str, tuple[ServedKind, Document]] = {}
        self._pods_on: dict[str, dict[str, Document]] = {}

    # -- asking ---------------------------------------------------------------------------------------------------------

    def get(self, kind: ServedKind, namespace: str, name: str) -> Document | None:
        return self.find(kind, f"{namespace}/{name}")

    def find(self, kind: ServedKind, key: str) -> Document | None:
        """Return an object by what ``key_of`` says of it."""
        shelf = self._shelves.get(kind)
        return None if shelf is None else shelf.by_key.get(key)

    def all(self, kind: ServedKind, namespace: str | None = None) -> list[Document]:
        """Return the objects of a kind, in one namespace or all, in the order they were first heard of."""
        shelf = self._shelves.get(kind)
        if shelf is None:
            return []
        return list((shelf.by_key if namespace is None else shelf.by_namespace.get(namespace, _EMPTY)).values())

    def count(self, kind: ServedKind) -> int:
        """Return how many objects of a kind there are."""
        shelf = self._shelves.get(kind)
        return 0 if shelf is None else len(shelf.by_key)

    def by_uid(self, uid: str) -> tuple[ServedKind, Document] | None:
        return self._by_uid.get(uid)

    def controlled(self, kind: ServedKind, owner: Document) -> list[Document]:
        """Return the objects of a kind that name ``owner`` as their controller."""
        uid = uid_of(owner)
        return [one for one in self.dependents(kind, uid) if (found := controller_of(one)) is not None and found["uid"] == uid]

    def dependents(self, kind: ServedKind, uid: str) -> list[Document]:
        """Return the objects of a kind that name ``uid`` among their owners."""
        shelf = self._shelves.get(kind)
        return [] if shelf is None else list(shelf.by_owner.get(uid, _EMPTY).values())

    def all_dependents(self, uid: str) -> Iterator[tuple[ServedKind, Document]]:
        """Yield the objects of all kinds that name ``uid`` among their owners."""
        for kind in self._shelves:
            for one in self.dependents(kind, uid):
                yield kind, one

    def is_closing(self, namespace: str) -> bool:
        """Return True for a namespace that was deleted and is not gone yet: nothing can be made in it."""
        home = self.get(NAMESPACES, "", namespace)
        return home is not None and is_ending(home)

    def unmanaged(self, kind: ServedKind, namespace: str) -> list[Document]:
        """Return the objects of a kind that have no controller."""
        shelf = self._shelves.get(kind)
        return [] if shelf is None else list(shelf.unmanaged.get(namespace, _EMPTY).values())

    def pods_on(self, node: str) -> list[Document]:
        return list(self._pods_on.get(node, _EMPTY).values())

    def nodes_with_pods(self) -> list[str]:
        """Return the names that pods give their nodes, whether there is such a node or not."""
        return list(self._pods_on)

    # -- telling --------------------------------------------------------------------------------------------------------

    def note(self, kind: ServedKind, document: Document, *, gone: bool = False) -> ObjectChange:
        """Take in that an object is there as it stands, or is gone."""
        shelf = self._shelves.setdefault(kind, _Shelf())
        key = key_of(document)
        old = shelf.by_key.get(key)
        if old is not None and (gone or uid_of(old) != uid_of(document) or _places(kind, old) != _places(kind, document)):
            self._forget(kind, shelf, key, old)
        if gone:
            return ObjectChange(kind, old or document, None)
        shelf.by_key[key] = document
        namespace = namespace_of(document)
        shelf.by_namespace.setdefault(namespace, {})[key] = document
        for owner in document["metadata"].get("ownerReferences") or ():
            shelf.by_owner.setdefault(owner["uid"], {})[key] = document
        if controller_of(document) is None:
            shelf.unmanaged.setdefault(namespace, {})[key] = document
        self._by_uid[uid_of(document)] = kind, document
        if kind is PODS and (node := document["spec"].get("nodeName")):
            self._pods_on.setdefault(node, {})[key] = document
        return ObjectChange(kind, old, document)

    def _forget(self, kind: ServedKind, shelf: _Shelf, key: str, old: Document) -> None:
        namespace = namespace_of(old)
        del shelf.by_key[key]
        _drop(shelf.by_namespace, namespace, key)
        for owner in old["metadata"].get("ownerReferences") or ():
            _drop(shelf.by_owner, owner["uid"], key)
        if controller_of(old) is None:
            _drop(shelf.unmanaged, namespace, key)
        self._by_uid.pop(uid_of(old), None)
        if kind is PODS and (node := old["spec"].get("nodeName")):
            _drop(self._pods_on, node, key)


def _places(kind: ServedKind, document: Document) -> tuple[object, object]:
    """Return what decides under which headings an object is filed."""
    return document["metadata"].get("ownerReferences"), document["spec"].get("nodeName") if kind is PODS else name_of(document)


def _drop(filed: dict[str, dict[str, Document]], heading: str, key: str) -> None:
    held = filed.get(heading)
    if held is None:
        return
    held.pop(key, None)
    if not held:
        del filed[heading]
