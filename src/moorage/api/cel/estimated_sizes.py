"""Sizes that are known before an expression runs: of variables, by declaration, and of values derived from them.

A size is a range: characters of a string, bytes, elements of a list, entries of a map. Numbers saturate at 64 bits, as in
cel-go.

Source  cel-go: checker/cost.go, SizeEstimate; apiserver: pkg/cel/types.go, DeclType
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["ITEMS", "KEYS", "UNBOUNDED", "UNKNOWN", "VALUES", "DeclaredSize", "FieldPath", "SizeLookup", "SizeRange", "product",
           "scaled", "total"]  # fmt: skip

UNBOUNDED: Final = 2**64 - 1
ITEMS: Final = "@items"
VALUES: Final = "@values"
KEYS: Final = "@keys"


def total(*numbers: int) -> int:
    """Return the sum, at most UNBOUNDED."""
    return min(sum(numbers), UNBOUNDED)


def product(one: int, other: int) -> int:
    """Return the product, at most UNBOUNDED."""
    return min(one * other, UNBOUNDED)


def scaled(number: int, factor: float) -> int:
    """Return ``number * factor``, rounded up, at most UNBOUNDED."""
    found = float(number) * factor
    return UNBOUNDED if found >= 2.0**64 else math.ceil(found)


class SizeRange(NamedTuple):
    """The least and the greatest size of a value."""

    least: int
    most: int

    @classmethod
    def exactly(cls, size: int) -> SizeRange:
        return cls(size, size)

    def plus(self, other: SizeRange) -> SizeRange:
        return SizeRange(total(self.least, other.least), total(self.most, other.most))

    def times(self, other: SizeRange) -> SizeRange:
        return SizeRange(product(self.least, other.least), product(self.most, other.most))

    def union(self, other: SizeRange) -> SizeRange:
        return SizeRange(min(self.least, other.least), max(self.most, other.most))


UNKNOWN: Final = SizeRange(0, UNBOUNDED)
#: Returns the size of the value at a path from a variable, None if the path leads nowhere.
SizeLookup = Callable[[Sequence[str]], SizeRange | None]


@dataclass(frozen=True, slots=True)
class DeclaredSize:
    """The size of a variable's value, and of the values inside it.

    ``least_bytes``: the fewest bytes that it takes as JSON. ``others``: the size of every field that is not in ``fields``.
    """

    most: int = 0
    least_bytes: int = 0
    items: DeclaredSize | None = None
    fields: Mapping[str, DeclaredSize] = field(default_factory=dict)
    others: DeclaredSize | None = None
    keys: DeclaredSize | None = None

    def at(self, names: Iterable[str]) -> SizeRange | None:
        """Return the size of the value at a path of names: fields, ``@items``, ``@keys`` and ``@values``."""
        found: DeclaredSize | None = self
        for name in names:
            if found is None:
                return None
            if name in {ITEMS, VALUES}:
                found = found.items
            else:
                found = found.keys if name == KEYS else found.fields.get(name, found.others)
        return None if found is None else SizeRange(0, found.most % 2**64)


class FieldPath:
    """The way from a variable to a value, which shares its memory with the paths that it was made from, as Go's slices do.

    cel-go appends to such slices: of two paths made from one, the later may overwrite the last name of the earlier. What it
    estimates depends on this, and so does which rules kube-apiserver accepts.
    """

    __slots__ = ("_held", "_size")

    def __init__(self, held: list[str], size: int) -> None:
        self._held = held
        self._size = size

    @classmethod
    def of(cls, name: str) -> FieldPath:
        return cls([name], 1)

    def plus(self, name: str) -> FieldPath:
        """Return the path with one more name."""
        held = self._held
        if self._size == len(held):
            held = [*held, *[""] * max(1, len(held))]
        held[self._size] = name
        return FieldPath(held, self._size + 1)

    @property
    def names(self) -> list[str]:
        """The names as they are now."""
        return self._held[: self._size]
