"""Find the objects in a file: their kind, undecoded content and position.

JSON is parsed only as far as needed: the items of a list stay bytes until their type is known, so that a dump of a large
cluster is decoded in one step. ``moorage.api.reading.manifests`` parses everything that is not valid JSON: YAML, streams of
documents, and input with errors. Lists may contain lists, up to a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from json import JSONDecoder
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

import msgspec

from moorage.api.reading.json_tree import UNREADABLE
from moorage.api.reading.manifests import Document, OnRepeat, read_documents, read_json
from moorage.api.reading.text_encoding import to_utf8
from moorage.api.reading.text_mistakes import explained
from moorage.basis.inputs.files import InputFile, LargeFile
from moorage.basis.inputs.simulated_kinds import find_kind
from moorage.errors import InputError

# Read the items of a large List in JSON piece by piece, so that the whole text is never in memory with the objects.
#
# A piece ends at a comma between two items. To test a comma, put the text from the start of an item up to the comma in
# brackets: only a comma between two items makes it a valid JSON array.

#: Bytes to read at once, and the maximum number of bytes to search for the end of an item.
_PIECE: Final = 4 << 20
_MOST_PIECE: Final = 64 << 20
#: Bytes at the start and at the end of a file that are searched for the fields before and after the items.
_HEAD: Final = 1 << 16
_TAIL: Final = 1 << 16
#: Maximum number of positions to try for the end of the items, and for the end of a piece.
_TRIES: Final = 40
_PIECE_TRIES: Final = 12
#: The fields before the items. Their values contain no lists or nested objects.
_BEFORE: Final = re.compile(
    rb'\s*\{(?:\s*"(?:apiVersion|kind)"\s*:\s*"[^"\\]*"\s*,|\s*"metadata"\s*:\s*\{[^{}\[\]]*\}\s*,)*\s*"items"\s*:\s*\['
)
_BETWEEN: Final = re.compile(rb"\}\s*,\s*(?=\{)")
#: Number of bytes of an item's start that are compared with the start of the first item.
_OPENING: Final = 24
_read_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class NotInPiecesError(Exception):
    """The file cannot be read in pieces, as it is not a large List in JSON. Read it as a whole."""


class ListFrame(NamedTuple):
    """A List without its items, as JSON; and the offsets in the file at which the text of its items begins and ends."""

    text: bytes
    start: int
    end: int


def find_frame(file: BinaryIO, size: int) -> ListFrame:
    """Find the items of the List in a file of ``size`` bytes.

    Raises  NotInPiecesError; OSError
    """
    before = _BEFORE.match(file.read(_HEAD))
    if before is None:
        raise NotInPiecesError
    file.seek(max(before.end(), size - _TAIL))
    tail = file.read(_TAIL)
    at = len(tail)
    for _ in range(_TRIES):
        at = tail.rfind(b"]", 0, at)
        if at < 0:
            break
        text = before[0] + tail[at:]
        try:
            msgspec.json.decode(text)
        except UNREADABLE:
            continue
        return ListFrame(text, before.end(), size - len(tail) + at)
    raise NotInPiecesError


def items_in(file: BinaryIO, frame: ListFrame) -> Iterator[list[msgspec.Raw]]:
    """Yield the undecoded items of a List, some at a time.

    Raises  NotInPiecesError if the text is not a sequence of items; OSError
    """
    file.seek(frame.start)
    left = frame.end - frame.start
    rest, opening = b"", b""
    while left > 0:
        read = file.read(min(_PIECE, left))
        left -= len(read)
        if not read or len(rest) > _MOST_PIECE:
            raise NotInPiecesError
        text = rest + read
        opening = opening or text.lstrip()[:_OPENING]
        if left:
            items, rest = _first_items(text, opening)
        else:
            items, rest = _items(text), b""
        if items is None:
            if not left:
                raise NotInPiecesError
            rest = text
        elif items:
            yield items


def _first_items(text: bytes, opening: bytes) -> tuple[list[msgspec.Raw] | None, bytes]:
    """Return the complete items at the start of a text, and the rest of it; None and the text if no item ends in it.

    ``opening`` is the start of the first item. Most items start with the same bytes, so such positions are tried first.
    """
    found = [(match.start() + 1, match.end()) for match in _BETWEEN.finditer(text, max(0, len(text) - _PIECE // 4))]
    alike = [one for one in found if text.startswith(opening, one[1])]
    for end, start in [*reversed(alike[-_PIECE_TRIES:]), *reversed(found[-_PIECE_TRIES:])]:
        items = _items(text[:end])
        if items is not None:
            return items, text[start:]
    return None, text


def _items(text: bytes) -> list[msgspec.Raw] | None:
    try:
        return _read_items(b"".join((b"[", text, b"]")))
    except UNREADABLE:
        return None


#: How deep lists may be nested.
MAX_LIST_DEPTH: Final = 10
#: The kind of the object that stands for the output of ``kubectl version``. Its field ``version`` is the API server's version.
SERVER_VERSION: Final = "kubectl version"
#: The kind that stands for an item of a list that is no object. Its field ``fault`` says why.
_NO_OBJECT: Final = "no object"
#: JSON up to this size may be written by hand and is checked for duplicate fields; larger JSON is a dump.
_HAND_WRITTEN: Final = 1 << 20
#: Bytes at the start of a stream of JSON that are searched for the end of its first document.
_MOST_FIRST: Final = 4 << 20
#: The undecoded content of an object: JSON text, or plain data.
Payload: TypeAlias = msgspec.Raw | bytes | dict[str, Any]


class FoundObject(NamedTuple):
    """An object of a file, and its position.

    ``is_dumped``: it is one of many that a program wrote (in a list or a stream of JSON), or that a directory holds. A fault in
    one of them is no reason to read none.
    """

    api_version: str
    kind: str
    payload: Payload
    where: str
    is_dumped: bool = False


def plain_object(found: FoundObject) -> dict[str, Any]:
    """Return an object as plain data; {} if it cannot be parsed. Decoding it reports the fault."""
    if isinstance(found.payload, dict):
        return found.payload
    try:
        tree = msgspec.json.decode(found.payload)
    except UNREADABLE:
        return {}
    return tree if isinstance(tree, dict) else {}


def is_printed(tree: Mapping[str, Any]) -> bool:
    """Return True for an object that an API server printed."""
    metadata = tree.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("uid")) and bool(metadata.get("creationTimestamp"))


class _Head(msgspec.Struct, rename="camel", gc=False):
    api_version: str | None = None
    kind: str | None = None


class _Envelope(_Head):
    items: list[msgspec.Raw] | None = None
    server_version: dict[str, Any] | None = None


_read_envelope = msgspec.json.Decoder(_Envelope).decode
#: How objects from kubectl and the API server start.
_OBJECTS_OPENING = re.compile(rb'\s*\{\s*"apiVersion"\s*:\s*"([^"\\]*)"\s*,\s*"kind"\s*:\s*"([^"\\]*)"')


def find_objects(
    source: InputFile,
    on_repeat: OnRepeat | None = None,
    on_other: Callable[[str], None] | None = None,
    on_fault: Callable[[InputError], None] | None = None,
) -> Iterator[FoundObject]:
    """Yield the objects of a file, those of lists one by one.

    Of duplicate fields the last one counts, as with kubectl; ``on_repeat`` receives a message for each. A file of a directory
    may have other documents, with neither apiVersion nor kind; ``on_other`` receives its name. ``on_fault`` receives an error
    for each item of a list that is no Kubernetes object; without it, the first one is raised.
    Raises  InputError for a file that is neither YAML nor JSON, and for documents that are not Kubernetes objects
    """
    for found in _find(source, on_repeat, on_other or _pass_over):
        if found.kind == _NO_OBJECT:
            error = InputError(plain_object(found)["fault"])
            if on_fault is None:
                raise error
            on_fault(error)
        else:
            yield found


def _find(source: InputFile, on_repeat: OnRepeat | None, on_other: Callable[[str], None]) -> Iterator[FoundObject]:
    read = 0
    if isinstance(source, LargeFile):
        try:
            for found in _in_pieces(source):
                yield found
                read += 1
        except NotInPiecesError:
            pass
        else:
            return
    yield from islice(_find_in_whole(source, on_repeat, on_other), read, None)


def _pass_over(_: str) -> None:
    """Say nothing about a document that is no object."""


def _is_other(document: Any) -> bool:
    """Return True for a document that does not claim to be an object."""
    return not isinstance(document, dict) or not (
        document.get("apiVersion") or document.get("kind") or _version_of(document) is not None
    )


def _in_pieces(source: LargeFile) -> Iterator[FoundObject]:
    """Yield the objects of a List.

    Raises  NotInPiecesError, maybe after some objects; InputError
    """
    with source.opened() as file:
        frame = find_frame(file, source.size)
        try:
            envelope = _read_envelope(frame.text)
        except UNREADABLE:
            raise NotInPiecesError from None
        if envelope.items is None or not _is_list(envelope.kind):
            raise NotInPiecesError
        inside, read = _item_head(_completed(envelope, None, source.where)), 0
        for items in items_in(file, frame):
            yield from _open_items(items, read, source.where, inside, 0)
            read += len(items)


def _find_in_whole(source: InputFile, on_repeat: OnRepeat | None, on_other: Callable[[str], None]) -> Iterator[FoundObject]:
    data = to_utf8(source.data, source.where)
    if data.lstrip(b" \t\r\n")[:1] == b"{":
        if on_repeat is not None and len(data) <= _HAND_WRITTEN:
            _find_duplicates(data, source.where, on_repeat)
        try:
            envelope = _read_envelope(data)
        except UNREADABLE:
            pass
        else:
            if source.is_found and not (envelope.api_version or envelope.kind or envelope.server_version):
                on_other(source.where)
            else:
                opened = _open_envelope(data, envelope, source.where, None, 0)
                yield from _dumped(opened, source.where) if source.is_found else opened
            return
    many = source.is_found or _is_stream(data)
    for document in _documents(data, source, on_repeat):
        if source.is_found and _is_other(document.data):
            on_other(source.where)
            continue
        where = f"{source.where}:{document.line}"
        opened = _open_plain(document.data, where, None, 0)
        yield from _dumped(opened, where) if many else opened


def _dumped(found: Iterator[FoundObject], where: str) -> Iterator[FoundObject]:
    """Yield the objects at a position, each as one of many; an error there stands for one that is no object."""
    try:
        yield from (one if one.is_dumped else one._replace(is_dumped=True) for one in found)
    except InputError as error:
        yield FoundObject("", _NO_OBJECT, {"fault": str(error)}, where, True)


def _is_stream(data: bytes) -> bool:
    """Return True for several documents of JSON in a row."""
    if data.lstrip(b" \t\r\n")[:1] != b"{":
        return False
    text = data[:_MOST_FIRST].decode(errors="replace").lstrip()
    try:
        _, end = JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return text[end:].lstrip()[:1] == "{"


def _documents(data: bytes, source: InputFile, on_repeat: OnRepeat | None) -> Iterator[Document]:
    try:
        yield from read_documents(data, source.where, on_repeat=on_repeat)
    except InputError as error:
        raise explained(error, source.where, source.data) from None


def _find_duplicates(data: bytes, where: str, on_repeat: OnRepeat) -> None:
    """Report the duplicate fields of one document in JSON. Of several documents they are reported as they are parsed."""
    found: list[str] = []
    try:
        documents = [*read_json(data, where, on_repeat=found.append)]
    except InputError:
        return  # It may still be YAML, whose parser reports faults; a fault within an object is reported when it is read.
    if len(documents) == 1:
        for message in found:
            on_repeat(message)


def _open_envelope(
    data: bytes | msgspec.Raw, envelope: _Envelope, where: str, implied: _Head | None, depth: int
) -> Iterator[FoundObject]:
    if envelope.server_version is not None and envelope.kind is None:
        yield _version(envelope.server_version, where)
    else:
        yield from _open(data, envelope, envelope.items, where, implied, depth)


def _open(payload: Payload, given: _Head, items: Any, where: str, implied: _Head | None, depth: int) -> Iterator[FoundObject]:
    head = _completed(given, implied, where)
    if not _is_list(head.kind) or (not isinstance(items, list) and not _holds_known_items(head)):
        yield FoundObject(head.api_version or "", head.kind or "", payload, where)
        return
    if not isinstance(items, list | None):
        raise InputError(f"{where}: {head.kind}: items: expected a list of objects")
    if depth >= MAX_LIST_DEPTH:
        raise InputError(f"{where}: lists within lists, more than {MAX_LIST_DEPTH} deep")
    yield from _open_items(items or (), 0, where, _item_head(head), depth)


def _open_items(items: Iterable[Any], first: int, where: str, inside: _Head | None, depth: int) -> Iterator[FoundObject]:
    """Yield the objects in items of a list, counted from ``first``; ``inside`` is the kind that the list implies for them."""
    for index, item in enumerate(items, first):
        at = f"{where}: items[{index}]"
        opening = _OBJECTS_OPENING.match(item) if isinstance(item, msgspec.Raw) else None
        if opening is None or opening[2].endswith(b"List"):
            yield from _dumped(_open_item(item, at, inside, depth + 1), at)
        else:
            yield FoundObject(*_named(opening[1], opening[2]), item, at, True)


@lru_cache(maxsize=256)
def _named(api_version: bytes, kind: bytes) -> tuple[str, str]:
    return api_version.decode(errors="replace"), kind.decode(errors="replace")


def _open_item(item: Any, where: str, implied: _Head | None, depth: int) -> Iterator[FoundObject]:
    if not isinstance(item, msgspec.Raw):
        yield from _open_plain(item, where, implied, depth)
        return
    try:
        envelope = _read_envelope(item)
    except UNREADABLE:
        yield from _open_plain(msgspec.json.decode(item), where, implied, depth)
    else:
        yield from _open_envelope(item, envelope, where, implied, depth)


_PATCHES: Final = "these are JSON patches of a kustomization: build it first, kubectl kustomize DIR | moorage simulate -f -"


def _is_patch(item: Any) -> bool:
    return isinstance(item, dict) and "op" in item and "path" in item


def _open_plain(data: Any, where: str, implied: _Head | None, depth: int) -> Iterator[FoundObject]:
    if not isinstance(data, dict):
        found = "null" if data is None else "a list" if isinstance(data, list) else "a scalar"
        hint = f"; {_PATCHES}" if isinstance(data, list) and data and all(map(_is_patch, data)) else ""
        raise InputError(f"{where}: expected a Kubernetes object with apiVersion and kind, found {found}{hint}")
    for name in ("apiVersion", "kind"):
        if not isinstance(data.get(name, ""), str | None):
            raise InputError(
                f"{where}: {name}: expected str, found {msgspec.json.encode(data[name])[:60].decode(errors='replace')}"
            )
    if "kind" not in data and (version := _version_of(data)) is not None:
        yield _version(version, where)
        return
    head = _Head(api_version=data.get("apiVersion"), kind=data.get("kind"))
    yield from _open(data, head, data.get("items"), where, implied, depth)


def _version_of(data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the API server's version if ``data`` is the output of ``kubectl version``, in YAML or as text; None otherwise."""
    found = data.get("serverVersion")
    if isinstance(found, dict):
        return found
    text = data.get("Server Version")
    return {"gitVersion": text} if isinstance(text, str) else None


def _version(version: dict[str, Any], where: str) -> FoundObject:
    return FoundObject("", SERVER_VERSION, {"version": str(version.get("gitVersion") or "")}, where)


def _completed(head: _Head, implied: _Head | None, where: str) -> _Head:
    """Return the apiVersion and kind of an object; what it lacks comes from its list.

    Raises  InputError if apiVersion or kind is still missing
    """
    kind = head.kind or (implied.kind if implied else None)
    version = head.api_version or (implied.api_version if implied else None)
    missing = [name for name, found in (("apiVersion", version), ("kind", kind)) if not found]
    if missing:
        raise InputError(
            f"{where}: {' and '.join(missing)} not set; expected a Kubernetes object, as kubectl get -o json writes it"
        )
    return _Head(api_version=version, kind=kind)


def _is_list(kind: str | None) -> bool:
    return kind is not None and kind.endswith("List")


def _holds_known_items(head: _Head) -> bool:
    """Return True for real lists; some kinds only have a name that ends in "List"."""
    kind = (head.kind or "").removesuffix("List")
    return not kind or find_kind(head.api_version or "", kind) is not None


def _item_head(head: _Head) -> _Head | None:
    """Return the apiVersion and kind that a list implies for its items: Pod for a PodList, None for a List."""
    kind = (head.kind or "").removesuffix("List")
    return _Head(api_version=head.api_version, kind=kind) if kind else None
