"""A grid: axes of values, and the points that take one value of each axis.

The axis ``seed`` comes last, so that runs that differ in their seed alone are neighbours. A point's key is a hash of the
function, the version and the digests of its values: equal keys stand for equal results.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from typing import Any, Final

from moorage.errors import InputError

#: The axis whose values make pairs.
SEED: Final = "seed"
Label = str | int | float | bool


@dataclass(frozen=True, slots=True)
class AxisValue:
    """A value of an axis: its label in tables, the value that the function receives, and the digest of its content."""

    label: Label
    value: Any
    digest: str


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """A name and its values, in order. ``shown``: tables have a column for it even if it has one value."""

    name: str
    values: tuple[AxisValue, ...]
    shown: bool = True

    @property
    def varies(self) -> bool:
        """Whether there is more than one value."""
        return len(self.values) > 1


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One run: ``labels`` for tables, ``values`` for the function, by axis."""

    key: str
    labels: Mapping[str, Label]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class SweepGrid:
    """All axes, and everything else that determines the results: ``function`` is the digest of the function to run."""

    axes: tuple[SweepAxis, ...]
    function: str

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        for axis in self.axes:
            if not axis.values:
                raise InputError(f"{axis.name}: no values; give at least one")
            seen: set[Label] = set()
            for value in axis.values:
                if value.label in seen:
                    raise InputError(f"{axis.name}: {value.label} is listed twice")
                seen.add(value.label)
        if len(set(names)) < len(names):
            raise InputError(f"two axes have the same name: {', '.join(map(str, names))}")

    def __len__(self) -> int:
        count = 1
        for axis in self.axes:
            count *= len(axis.values)
        return count

    def points(self) -> Iterator[GridPoint]:
        """Yield every combination; the last axis changes fastest."""
        ordered = sorted(self.axes, key=lambda axis: axis.name == SEED)
        for chosen in product(*(axis.values for axis in ordered)):
            named = dict(zip((axis.name for axis in ordered), chosen, strict=True))
            yield GridPoint(
                key=self._key({name: value.digest for name, value in named.items()}),
                labels={name: value.label for name, value in named.items()},
                values={name: value.value for name, value in named.items()},
            )

    def _key(self, digests: Mapping[str, str]) -> str:
        text = json.dumps([version(), self.function, sorted(digests.items())])
        return blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def digest(self) -> str:
        """The digest of the whole grid."""
        hasher = blake2b(digest_size=16)
        for point in self.points():
            hasher.update(point.key.encode())
        return hasher.hexdigest()


def version() -> str:
    """Return the version of Moorage. The package itself imports this module, so it is looked up when it is needed."""
    found: str = importlib.import_module("moorage").__version__
    return found


def axis_of(name: str, values: Iterable[Any]) -> SweepAxis:
    """Return the axis of plain values: numbers, texts, or what JSON can hold.

    Raises  InputError for another value
    """
    return SweepAxis(name, tuple(AxisValue(_label(value), value, digest_of_value(value, name)) for value in values))


def digest_of_value(value: Any, where: str) -> str:
    """Return the digest of a value that JSON can hold, or that has a ``digest``.

    Raises  InputError for another value
    """
    known = getattr(value, "digest", None)
    if known is not None:
        return str(known() if callable(known) else known)
    try:
        text = json.dumps(value, sort_keys=True, default=_plain)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise InputError(f"{where}: a {kind} cannot be part of a key; use numbers, texts, or give it a digest") from None
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _plain(value: Any) -> Any:
    item = getattr(value, "item", None)  # a NumPy scalar
    if item is None:
        raise TypeError
    return item()


def _label(value: Any) -> Label:
    if isinstance(value, Label):
        return value
    name = getattr(value, "name", None) or getattr(value, "item", None)
    if isinstance(name, str):
        return name
    if callable(name):
        found = name()
        return found if isinstance(found, Label) else str(found)
    return json.dumps(value, sort_keys=True, default=str)
