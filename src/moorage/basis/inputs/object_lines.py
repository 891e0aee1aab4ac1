"""Find the file and line of each object in the input, for reports that refer to manifests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.objects import FoundObject, find_objects
from moorage.basis.inputs.positions import line_of
from moorage.basis.inputs.simulated_kinds import find_kind

_LINE: Final = re.compile(r":(\d+)(?:: items\[\d+\])*$")


class FileLine(NamedTuple):
    """A line of a file, counted from 1."""

    file: str
    line: int = 1


class ObjectKey(NamedTuple):
    """The kind, namespace and name of an object; the namespace is empty for kinds without one."""

    kind: str
    namespace: str
    name: str


class _NamedMeta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _NamedObject(msgspec.Struct):
    metadata: _NamedMeta = _NamedMeta()


_decode = msgspec.json.Decoder(_NamedObject).decode


def find_positions(sources: Iterable[InputFile]) -> dict[ObjectKey, FileLine]:
    """Return the file and line of each object in the sources; the first one for an object that occurs twice."""
    found: dict[ObjectKey, FileLine] = {}
    for source in sources:
        for key, line in _positions(source):
            found.setdefault(key, FileLine(source.where, line))
    return found


def line_of_field(source: InputFile, key: ObjectKey, path: Sequence[str | int]) -> int | None:
    """Return the line of a field of an object, or of the deepest field above it that the file has; None for neither."""
    where = next((one.where for one in find_objects(source) if _key(one) == key), None)
    if where is None:
        return None
    found = (line_of(source, where, path[:depth]) for depth in range(len(path), 0, -1))
    return next((line for line in found if line is not None), None)


def _positions(source: InputFile) -> Iterator[tuple[ObjectKey, int]]:
    data, offset, line = source.data, 0, 1
    for one in find_objects(source):
        if not isinstance(one.payload, dict):
            start = data.find(bytes(one.payload), offset)
            if start >= 0:
                line += data.count(b"\n", offset, start)
                offset = start
        key = _key(one)
        if key is not None:
            said = _LINE.search(one.where)
            yield key, int(said[1]) if said else line


def _key(found: FoundObject) -> ObjectKey | None:
    kind = find_kind(found.api_version, found.kind)
    if kind is None:
        return None
    try:
        given = (
            msgspec.convert(found.payload, _NamedObject) if isinstance(found.payload, dict) else _decode(bytes(found.payload))
        )
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    metadata = given.metadata
    return ObjectKey(found.kind, (metadata.namespace or "default") if kind.namespaced else "", metadata.name)
