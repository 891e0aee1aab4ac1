"""How another thread reaches the store's thread, and how a store hands it work."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

__all__ = ["AskOwner", "Defer"]

T = TypeVar("T")


class AskOwner(Protocol):
    """Calls a function on the store's own thread; returns its result or raises its error."""

    def __call__(self, function: Callable[[], T]) -> T: ...


class Defer(Protocol):
    """Call a function soon, in another thread than the store's. It is handed what reaches the store's thread.

    Of several functions under one key, only the last is called.
    """

    def __call__(self, key: Hashable, work: Callable[[AskOwner], None]) -> None: ...
