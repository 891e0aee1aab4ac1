"""The interface between controllers and the manager."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from moorage.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.controllers.machinery.steps import Step

__all__ = ["Controller"]


class Controller(Protocol):
    """Manages the objects of one kind, or one aspect of all objects.

    ``name`` is the source of its events. Each controller defines its own keys; most use ``object_fields.key_of`` of the managed
    object. The manager calls ``reconcile`` for every key that ``keys`` returned for an event; it computes the necessary steps
    from the index and the time (seconds since 1970) alone. The manager executes the steps after ``reconcile`` has finished.
    """

    @property
    def name(self) -> str: ...

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]: ...

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]: ...
