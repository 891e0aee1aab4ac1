"""A grid: axes of values, and the points that take one value of each axis.

The axis ``seed`` comes last, so that runs that differ in their seed alone are neighbours. A point's key is a hash of the
function, the version and the digests of its values: equal keys stand for equal results.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import blake2b
from itertools import product
from typing import Any, Final

from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.positions import line_of
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


# -- grid document -----------------------------------------------------------------------------------------------------
# A document whose errors name their place: the line in a file, or the path in a mapping.


@dataclass(frozen=True, slots=True)
class GridField:
    """A value of the document and its place. ``source`` is None if the document is a mapping, not a file."""

    value: Any
    path: tuple[str | int, ...] = ()
    source: InputFile | None = None

    def fault(self, why: str) -> InputError:
        """Return the error with the place."""
        name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).removeprefix(".")
        if self.source is None:
            return InputError(f"{name or 'the grid'}: {why}")
        line = line_of(self.source, self.source.where, self.path)
        place = self.source.where if line is None else f"{self.source.where}:{line}"
        return InputError(f"{place}: {name}: {why}" if name else f"{place}: {why}")

    def child(self, step: str | int, value: Any) -> GridField:
        """Return a part of this value."""
        return GridField(value, (*self.path, step), self.source)

    def fields(self, known: Sequence[str] = ()) -> dict[str, GridField]:
        """Return the fields of a mapping; ``known``: all allowed fields.

        Raises  InputError for anything else, and for an unknown field
        """
        if not isinstance(self.value, Mapping):
            raise self.fault(f"expected a mapping, found {_kind(self.value)}")
        found = {str(name): self.child(name, value) for name, value in self.value.items()}
        for name, one in found.items():
            if known and name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}"
                raise one.fault(f"no such field; {hint}")
        return found

    def items(self) -> Iterator[GridField]:
        """Yield the values of a list that is not empty.

        Raises  InputError for anything else
        """
        if not isinstance(self.value, Sequence) or isinstance(self.value, (str, bytes)) or not self.value:
            raise self.fault(f"expected a list with at least one value, found {_kind(self.value)}")
        return (self.child(at, value) for at, value in enumerate(self.value))

    def text(self) -> str:
        """Return a text that is not empty.

        Raises  InputError for anything else
        """
        if not isinstance(self.value, str) or not self.value:
            raise self.fault(f"expected a text, found {_kind(self.value)}")
        return self.value

    def texts(self) -> list[str]:
        """Return one text, or the texts of a list."""
        return [self.text()] if isinstance(self.value, str) else [one.text() for one in self.items()]

    def flag(self) -> bool:
        """Return true or false.

        Raises  InputError for anything else
        """
        if not isinstance(self.value, bool):
            raise self.fault(f"expected true or false, found {_kind(self.value)}")
        return self.value


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return "an empty list" if value == [] else names.get(type(value), f"a {type(value).__name__}")
