"""What a controller is to the manager."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from moorage.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.controllers.machinery.steps import Step

__all__ = ["Controller"]


class Controller(Protocol):
    """Looks after the objects of one kind, or after one thing about all objects.

    ``name`` is what events it records come from. Keys are its own: most use ``documents.key_of`` of the object they look
    after. ``reconcile`` is asked after anything happened that ``keys`` found to concern a key; it works out what to do from
    nothing but the world and the time, in seconds since 1970. What it yields is carried out when it has ended.
    """

    @property
    def name(self) -> str: ...

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]: ...

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]: ...
