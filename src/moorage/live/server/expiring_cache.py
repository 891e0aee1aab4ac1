"""A bounded cache whose entries expire."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Expiring"]

T = TypeVar("T")


class Expiring(Generic[T]):
    """Values that expire at a time in seconds on the caller's clock. When it is full, the oldest entry is dropped."""

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._held: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable, now: float) -> tuple[T] | None:
        """Return the value in a tuple; None if it is missing or has expired."""
        held = self._held.get(key)
        return (held[0],) if held is not None and now < held[1] else None

    def put(self, key: Hashable, value: T, until: float, now: float) -> None:
        """Store a value until a time; a value that has already expired is not stored."""
        self._held.pop(key, None)
        if until > now:
            self._held[key] = (value, until)
        while len(self._held) > self._capacity:
            self._held.popitem(last=False)
