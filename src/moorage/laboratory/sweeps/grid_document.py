"""A document whose errors name their place: the line in a file, or the path in a mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.positions import line_of
from moorage.errors import InputError


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
