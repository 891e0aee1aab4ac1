"""The interface between a store and a worker thread: the store defers work to the thread, which calls back."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

__all__ = ["AskOwner", "Defer"]

T = TypeVar("T")


class AskOwner(Protocol):
    """Calls a function on the store's own thread; returns its result or raises its error."""

    def __call__(self, function: Callable[[], T]) -> T: ...


class Defer(Protocol):
    """Call ``work`` soon in a worker thread, with a function that makes calls on the store's thread.

    If several functions wait under one key, only the last is called.
    """

    def __call__(self, key: Hashable, work: Callable[[AskOwner], None]) -> None: ...
