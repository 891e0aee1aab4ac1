"""One version of one object as the store keeps it: its bytes, and beside them only what objects are selected by.

Bytes are a tenth of what the same object takes as dicts, go out to clients as they are, and cannot be changed by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec

from moorage.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["Confirm", "Document", "Record", "key_of", "text_at"]

Document = dict[str, Any]
#: Refuses a write by what it makes: given the object before (None if it is new) and after, it passes or raises ``ApiError``.
Confirm = Callable[[Document | None, Document], None]


class Record(msgspec.Struct, frozen=True, gc=False):
    """A version of an object. ``fields`` are the values that field selectors of its kind look at."""

    namespace: str
    name: str
    version: int
    labels: dict[str, str]
    fields: dict[str, str]
    body: bytes

    @classmethod
    def of(cls, kind: ServedKind, document: Document, version: int) -> Record:
        """Return the record of a document as the given version. The document's own ``resourceVersion`` is written."""
        metadata = document["metadata"]
        if version:
            metadata["resourceVersion"] = str(version)
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        fields = _fields(kind, document)
        return cls(namespace, name, version, metadata.get("labels") or {}, fields, msgspec.json.encode(document))

    @classmethod
    def read(cls, kind: ServedKind, body: bytes, version: int) -> Record:
        """Return the record whose bytes were kept."""
        document = msgspec.json.decode(body)
        metadata = document["metadata"]
        fields = _fields(kind, document)
        return cls(metadata.get("namespace") or "", metadata["name"], version, metadata.get("labels") or {}, fields, body)

    @property
    def key(self) -> str:
        return key_of(self.namespace, self.name)

    def document(self) -> Document:
        """Return the object as plain data of the caller's own."""
        document: Document = msgspec.json.decode(self.body)
        return document

    def as_of(self, version: int) -> Record:
        """Return the same object under another version."""
        document = self.document()
        document["metadata"]["resourceVersion"] = str(version)
        return msgspec.structs.replace(self, version=version, body=msgspec.json.encode(document))


def key_of(namespace: str, name: str) -> str:
    """Return what objects of a kind are ordered by. No name holds a slash, so keys of two objects never meet."""
    return f"{namespace}/{name}"


@cache
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


#: Where those fields stand that are not where their names say.
_HELD_AT = {
    ("Event", "source"): ("source.component", "reportingComponent"),
    ("Job", "status.successful"): ("status.succeeded",),
}  # fmt: skip


@cache
def _looked_at(kind: ServedKind) -> tuple[tuple[str, tuple[tuple[str, ...], ...], str], ...]:
    """Return each field that selectors of a kind look at, with the places it may stand at and what stands for it otherwise."""
    places = {path: _HELD_AT.get((kind.kind, path), (path,)) for path, _ in kind.fields}
    return tuple((path, tuple(map(_steps, places[path])), absent) for path, absent in kind.fields)


def _fields(kind: ServedKind, document: Document) -> dict[str, str]:
    """Return what field selectors of the kind look at."""
    return {path: _first(document, places) or absent for path, places, absent in _looked_at(kind)}


def _first(document: Document, places: tuple[tuple[str, ...], ...]) -> str:
    if len(places) == 1:
        return _text(document, places[0])
    return next((text for steps in places if (text := _text(document, steps))), "")


def text_at(document: Mapping[str, Any], path: str) -> str:
    """Return what stands at a dotted path, as a field selector spells it; empty where nothing does."""
    return _text(document, _steps(path))


def _text(document: Mapping[str, Any], steps: tuple[str, ...]) -> str:
    here: Any = document
    for step in steps:
        if type(here) is not dict and not isinstance(here, Mapping):  # asking an ABC takes ten times as long
            return ""
        here = here.get(step)
    if type(here) is str:
        return here
    if isinstance(here, bool):
        return "true" if here else "false"
    return "" if here is None or isinstance(here, (Mapping, list)) else str(here)
