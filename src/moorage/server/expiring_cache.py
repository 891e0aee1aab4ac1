"""What others said, remembered for a while, and not more of it than fits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Expiring"]

T = TypeVar("T")


class Expiring(Generic[T]):
    """Values with an end each, in seconds on the caller's clock. When it is full, the one put first is dropped."""

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._held: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable, now: float) -> tuple[T] | None:
        """Return the value in a tuple; None if there is none, or its time is over."""
        held = self._held.get(key)
        return (held[0],) if held is not None and now < held[1] else None

    def put(self, key: Hashable, value: T, until: float, now: float) -> None:
        """Remember a value; one whose time is over already is not kept."""
        self._held.pop(key, None)
        if until > now:
            self._held[key] = (value, until)
        while len(self._held) > self._capacity:
            self._held.popitem(last=False)
