"""Look-ups of objects for the search for changes, and a list of objects that provides them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final, Protocol

from moorage.api.core import Object
from moorage.simulator.cluster_input import WrittenObjects


class Surroundings(Protocol):
    """Objects that are found by kind and name. ``written``: what the input's admission policies read of it, if it has any."""

    @property
    def written(self) -> WrittenObjects | None: ...

    def find(self, kind: type[Object], namespace: str, name: str) -> Object | None:
        """Return the object of a kind and name, if there is one."""

    def all_of(self, kind: type[Object]) -> Iterable[Object]:
        """Return all objects of a kind."""


class ListedObjects:
    """A list of objects. The index by name is built at the first look-up."""

    def __init__(self, objects: Iterable[Object], written: WrittenObjects | None = None) -> None:
        self._objects = list(objects)
        self.written = written

    def find(self, kind: type[Object], namespace: str, name: str) -> Object | None:
        return self._named.get((kind, namespace, name))

    def all_of(self, kind: type[Object]) -> Iterable[Object]:
        return [obj for obj in self._objects if isinstance(obj, kind)]

    @cached_property
    def _named(self) -> dict[tuple[type[Object], str, str], Object]:
        return {(type(obj), obj.metadata.namespace, obj.metadata.name): obj for obj in reversed(self._objects)}


NOTHING_AROUND: Final = ListedObjects(())
