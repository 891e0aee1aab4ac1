"""The types of fields: scalars, lists, maps and structs, with what patches and field management need to know of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Scalar:
    """``letter`` is the type letter of ``protobuf``; ``go`` is the type name in error messages."""

    letter: str
    go: str


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list: associative (``keys``), a set (``is_set``), or atomic."""

    item: Type
    go: str
    keys: tuple[str, ...] = ()
    is_set: bool = False

    @property
    def is_atomic(self) -> bool:
        return not self.keys and not self.is_set


@dataclass(frozen=True, slots=True)
class MapOf:
    item: Type
    go: str
    is_atomic: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """``name`` is the message name; ``go`` is the Go type without its package. ``rest`` is the type of fields that are not in
    ``fields``, None if there are no others.
    """

    name: str
    go: str
    fields: Mapping[str, Field]
    is_atomic: bool = False
    rest: Type | None = None

    @property
    def full_go(self) -> str:
        """The Go type with its package, for error messages."""
        return go_type(self.name)


Type: TypeAlias = Scalar | ListOf | MapOf | Struct


def go_type(name: str) -> str:
    """Return the Go type of a struct, whose package is named after the API version."""
    package, _, own = name.rpartition(".")
    return f"{package.partition('.')[2] or 'v1'}.{own}"


#: The type of values without a schema: an object has fields of this type, and any other value is atomic.
UNTYPED: Final = MapOf(Scalar("R", ""), "")


def is_leaf(shape: Type, value: Any) -> bool:
    """Return True if a value is atomic: compared, merged and owned as a whole. Values of the wrong type are atomic, too."""
    if isinstance(shape, Scalar) or shape.is_atomic:
        return True
    return not isinstance(value, list if isinstance(shape, ListOf) else dict)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct. A pointer field (``is_pointer``) distinguishes empty from absent; an ``omits_empty`` field has
    omitempty.

    ``embedded`` is the embedded Go struct that declares the field, for error messages. ``merges``, ``merge_key`` and
    ``retains`` configure strategic merge patches. ``keeps_empty``: an empty list is no absent one for defaults. ``gate`` is the
    feature gate that keeps the field, "" for none.
    """

    name: str
    type: Type
    is_pointer: bool = False
    omits_empty: bool = False
    is_required: bool = False
    default: Any = None
    merges: bool = False
    merge_key: str = ""
    retains: bool = False
    embedded: str = ""
    keeps_empty: bool = False
    gate: str = ""
