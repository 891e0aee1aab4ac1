"""Find the file and line of each object in the input, for reports that refer to manifests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import yaml

from moorage.basis.inputs.cleaned_objects import find_kind
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.objects import FoundObject, find_objects

__all__ = ["FileLine", "ObjectKey", "find_positions", "line_of"]


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


# -- positions ---------------------------------------------------------------------------------------------------------
# Find the line of a field in a file, for messages. This parses the file again, which is slow, so only faults use it.

#: Larger files were not written by hand, and parsing them takes seconds.
_MOST_BYTES: Final = 1 << 20
_PLACE: Final = re.compile(r"(?::(?P<line>\d+))?(?P<items>(?:: items\[\d+\])*)")


def line_of(source: InputFile, where: str, path: Sequence[str | int]) -> int | None:
    """Return the line of a field, counted from 1; None if it cannot be found.

    ``where`` is the position of an object of ``source``, as ``find_objects`` gives it; ``path`` leads from the object to the
    field.
    """
    place = _PLACE.fullmatch(where.removeprefix(source.where))
    if place is None or source.size > _MOST_BYTES:
        return None
    root = _root(source.data, int(place["line"] or 0))
    steps: list[str | int] = []
    for index in re.findall(r"\d+", place["items"]):
        steps += ["items", int(index)]
    return _line(root, [*steps, *path])


@lru_cache(maxsize=4)
def _root(data: bytes, line: int) -> yaml.Node | None:
    """Return the document that starts on a line, or the first one for line 0; None if there is none."""
    for node in _documents(data):
        if line in {0, node.start_mark.line + 1}:
            return node
    return None


def _documents(data: bytes) -> Iterator[yaml.Node]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from (node for node in yaml.compose_all(data, Loader=loader) if node is not None)
    except (yaml.YAMLError, ValueError, RecursionError):
        return


def _line(node: yaml.Node | None, path: Sequence[str | int]) -> int | None:
    found: int | None = None
    for step in path:
        found, node = _child(node, step)
        if found is None:
            return None
    return found


def _child(node: yaml.Node | None, step: str | int) -> tuple[int | None, yaml.Node | None]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if getattr(key, "value", None) == step:
                return key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    return None, None
