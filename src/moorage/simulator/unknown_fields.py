"""Fields that a kind does not have: misspelt ones in a manifest, or ones of a newer release in an API server's output.

``field_types`` finds values that a field cannot hold.

Misspelt fields of manifests are faults, as with ``kubectl apply --validate=strict``. An object that an API server printed has
none, because servers drop them; an unknown field there belongs to a newer release, and one note says so.

Source  kubectl 1.36, --validate; sigs.k8s.io/json, strict errors
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import msgspec

from moorage.api.kinds import Kind
from moorage.api.reading.json_tree import UNREADABLE
from moorage.api.schema.field_types import ListOf, MapOf, Scalar, Struct, Type
from moorage.api.schema.protobuf import message_of, messages
from moorage.api.schema.schemas import schema
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.objects import FoundObject, is_printed, plain_object
from moorage.basis.inputs.positions import line_of
from moorage.basis.printable import counted, some
from moorage.simulator.field_types import MapKey, wrong_values

#: Objects of one kind that an API server printed are alike; this many of them are checked.
_MOST_PRINTED: Final = 200
#: Fields reported for one object.
_MOST_FIELDS: Final = 20
_HEAD: Final = {"apiVersion", "kind"}
#: The depth to which the right place of a misplaced field is searched.
_MISPLACED_DEPTH: Final = 4

_Path = tuple[str | int, ...]


class Validation(StrEnum):
    """How to handle unknown fields, as kubectl's ``--validate``: report an error, a note, or nothing."""

    STRICT = "strict"
    WARN = "warn"
    IGNORE = "ignore"


class FieldCheck:
    """Checks the fields of objects and collects the notes about them."""

    def __init__(self, validation: Validation) -> None:
        self._validation = validation
        self._printed: Counter[str] = Counter()
        self._noted: dict[tuple[str, str], list[str]] = {}

    def is_done_with(self, kind: Kind) -> bool:
        """Return True once no object of a kind that an API server printed is checked any more."""
        return self._validation is Validation.IGNORE or self._printed[kind.slot] > _MOST_PRINTED

    def faults(self, found: FoundObject, kind: Kind, source: InputFile | None) -> list[str]:
        """Return a fault for each unknown field, unless only notes are wanted; ``source``: the object's file, if it has one."""
        if self._validation is Validation.IGNORE:
            return []
        tree = plain_object(found)
        printed = is_printed(tree)
        if printed:
            self._printed[kind.slot] += 1
            if self._printed[kind.slot] > _MOST_PRINTED:
                return []
        shape = _shape(found.api_version, found.kind)
        if shape is None:
            return []
        title = f"{kind.name} {_name(tree)}"
        strict = self._validation is Validation.STRICT and not printed
        faults = []
        for path, inside in _unknown(shape, tree, ()):
            field = _text(path)
            near = _nearest(shape, inside, path)
            if strict:
                line = None if source is None else line_of(source, found.where, path)
                where = found.where if source is None or line is None else f"{source.where}:{line}"
                faults.append(f'{where}: {title}: unknown field "{field}"{near}')
            else:
                pattern = _text(tuple(step for step in path if isinstance(step, str)))
                self._noted.setdefault((f"{kind.name}.{pattern}", near), []).append(title)
            if len(faults) >= _MOST_FIELDS:
                break
        return faults

    def wrong_values(self, found: FoundObject, source: InputFile | None) -> list[str]:
        """Return a fault for each value that its field cannot hold. It matters to no other rule whether scheduling reads it."""
        key = f"{found.api_version}/{found.kind}"
        if self._validation is Validation.IGNORE or self._printed[key] > _MOST_PRINTED:
            return []
        shape = _shape(found.api_version, found.kind)
        if shape is None:
            return []
        tree = plain_object(found)
        self._printed[key] += is_printed(tree)
        faults = []
        for path, why in islice(wrong_values(shape, tree), _MOST_FIELDS):
            line = None if source is None else line_of(source, found.where, path)
            where = found.where if source is None or line is None else f"{source.where}:{line}"
            faults.append(f"{where}: {found.kind} {_name(tree)}: {_text(path)}: {why}")
        return faults

    def notes(self) -> list[str]:
        """Return a note for each unknown field that was not a fault."""
        return [
            f"unknown field {field} in {counted(len(titles), 'object')}, ignored: {some(titles)}{near}"
            for (field, near), titles in self._noted.items()
        ]


def title_of(found: FoundObject) -> str:
    """Return the kind and name of an object, also of one whose numbers cannot be read."""
    tree = plain_object(found)
    if not tree and not isinstance(found.payload, dict):
        with suppress(*UNREADABLE):
            tree = {"metadata": msgspec.json.decode(bytes(found.payload), type=_Titled).metadata}
    return f"{found.kind} {_name(tree)}"


class _Titled(msgspec.Struct):
    metadata: dict[str, Any] = {}


@lru_cache(maxsize=256)
def _shape(api_version: str, kind: str) -> Struct | None:
    group, _, version = api_version.rpartition("/")
    message = message_of(group, version, kind)
    return schema(message) if message in messages() else None


def _name(tree: dict[str, Any]) -> str:
    metadata = tree.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    name = found.get("name") or found.get("generateName") or "without a name"
    return f"{found['namespace']}/{name}" if found.get("namespace") else str(name)


def _unknown(shape: Type, value: Any, path: _Path) -> Iterator[tuple[_Path, Struct]]:
    """Yield the path of each unknown field, and the struct that lacks it."""
    if isinstance(value, dict):
        if isinstance(shape, Struct):
            for name, inner in value.items():
                field = shape.fields.get(name)
                if field is not None:
                    if not isinstance(field.type, Scalar):
                        yield from _unknown(field.type, inner, (*path, name))
                elif path or name not in _HEAD:
                    yield (*path, name), shape
        elif isinstance(shape, MapOf) and not isinstance(shape.item, Scalar):
            for name, inner in value.items():
                yield from _unknown(shape.item, inner, (*path, name))
    elif isinstance(value, list) and isinstance(shape, ListOf) and not isinstance(shape.item, Scalar):
        for i, one in enumerate(value):
            yield from _unknown(shape.item, one, (*path, i))


def _text(path: Sequence[str | int]) -> str:
    """Return a path as kube-apiserver writes it: ``spec.containers[0].image``."""
    parts = [f"[{step}]" if isinstance(step, int | MapKey) else f".{step}" for step in path]
    return "".join(parts).removeprefix(".")


def _nearest(root: Struct, inside: Struct, path: _Path) -> str:
    """Return a hint: the field with the most similar name, or the place where the field belongs; "" if there is neither."""
    name = str(path[-1])
    same = [known for known in inside.fields if known.casefold() == name.casefold()]
    close = same or get_close_matches(name, list(inside.fields), 1, 0.7)
    if close:
        return f'; did you mean "{close[0]}"?'
    place = _place_of(name, root)
    return f'; "{name}" belongs in "{place}"' if place else ""


def _place_of(name: str, root: Struct) -> str:
    """Return the path nearest to the root that has a field of this name; "" if there is none, or only in the status."""
    level: list[tuple[str, Struct]] = [("", root)]
    for _ in range(_MISPLACED_DEPTH):
        below: list[tuple[str, Struct]] = []
        for path, shape in level:
            if path and name in shape.fields:
                return path
            for field in shape.fields.values():
                suffix = "[]" if isinstance(field.type, ListOf) else ""
                inner = field.type.item if isinstance(field.type, ListOf) else field.type
                if isinstance(inner, Struct) and field.name not in {"status", "metadata"}:
                    below.append((f"{path}.{field.name}{suffix}".removeprefix("."), inner))
        level = below
    return ""
