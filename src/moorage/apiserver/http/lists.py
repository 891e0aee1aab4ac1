"""Lists as sequences of parts, one object at a time, in every encoding.

A list of all pods of a large cluster can take hundreds of megabytes, so it is never assembled. The server holds the
objects' own bytes, which the store holds anyway, and the parts that the client reads next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from moorage.apiserver.http.sending import LONG_RESPONSE, Part
from moorage.apiserver.schema.representations import JSON, YAML, as_yaml, listed_as_protobuf, metadata_of
from moorage.apiserver.tables.tables import rows, table
from moorage.apiserver.vocabulary.records import Document, Record
from moorage.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["ObjectList", "encoded_list", "metadata_list", "object_list", "table_list"]

#: Objects of at least this size in bytes are sliced without copying.
_LARGE: Final = 16 << 10


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A list: its ``head`` without items, the name of the items field, and a function that yields the items.

    Iteration yields the JSON in parts, and can be repeated. ``is_decoded``: iteration decodes each object, which takes time.
    """

    head: Document
    name: str
    items: Callable[[], Iterator[tuple[Part, ...]]]
    records: Sequence[Record] = ()
    is_decoded: bool = False

    def __iter__(self) -> Iterator[Part]:
        yield msgspec.json.encode(self.head)[:-1] + b',"' + self.name.encode() + b'":['
        comma = b""
        for item in self.items():
            if comma:
                yield comma
            yield from item
            comma = b","
        yield b"]}"

    @property
    def is_large(self) -> bool:
        """True if an object takes long to decode and to encode."""
        return any(len(record.body) > LONG_RESPONSE for record in self.records)

    def whole_items(self) -> Iterator[bytes]:
        return (b"".join(item) for item in self.items())


def object_list(kind: ServedKind, metadata: Document, records: Sequence[Record]) -> ObjectList:
    """Return a list of stored objects."""
    head = f'"kind":"{kind.kind}"'.encode(), f'"apiVersion":"{kind.api_version}"'.encode()
    starts = tuple(b"{" + b",".join(order) + b"," for order in (head, head[::-1]))
    return ObjectList(
        {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata},
        "items",
        # Items of custom kinds keep their kind and version, as unstructured objects do in kube-apiserver.
        lambda: ((record.body,) if kind.custom is not None else _headless(record.body, starts) for record in records),
        records,
    )


def _headless(body: bytes, starts: tuple[bytes, ...]) -> tuple[Part, ...]:
    """Return an object without its kind and API version, which the list states once."""
    if not body.startswith(starts):
        return (body,)
    rest = len(starts[0])
    return (b"{", memoryview(body)[rest:]) if len(body) > _LARGE else (b"{" + body[rest:],)


def metadata_list(version: str, metadata: Document, records: Sequence[Record]) -> ObjectList:
    """Return a list of the objects' metadata."""
    head = {"kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": metadata}
    return ObjectList(head, "items", lambda: ((metadata_of(record),) for record in records), records, is_decoded=True)


def table_list(kind: ServedKind, metadata: Document, records: Sequence[Record], now: float, include: str) -> ObjectList:
    """Return a list as a ``Table``."""
    head = {**table(kind, [], now, include), "metadata": metadata}
    del head["rows"]

    def items() -> Iterator[tuple[Part, ...]]:
        documents = (record.document() for record in records)
        return ((msgspec.json.encode(row),) for row in rows(kind, documents, now, include))

    return ObjectList(head, "rows", items, records, is_decoded=True)


# -- encodings ---------------------------------------------------------------------------------------------------------


def encoded_list(listing: ObjectList, encoding: str, *, pretty: bool = False) -> Iterator[Part]:
    """Yield an encoded list in parts, with the same bytes as one document. An empty part means that no part is ready yet.

    Raises  ApiError 406, at the first part, if the encoding cannot represent it
    """
    if encoding == YAML:
        return _as_yaml(listing)
    if encoding != JSON:
        return listed_as_protobuf(listing.head, listing.whole_items())
    return _indented(listing) if pretty else iter(listing)


def _indented(listing: ObjectList) -> Iterator[bytes]:
    head = msgspec.json.format(msgspec.json.encode(listing.head), indent=2)
    yield head.removesuffix(b"\n}") + b',\n  "' + listing.name.encode() + b'": ['
    between, end = b"\n    ", b"]\n}"
    for item in listing.whole_items():
        yield between + msgspec.json.format(item, indent=2).replace(b"\n", b"\n    ")
        between, end = b",\n    ", b"\n  ]\n}"
    yield end


def _as_yaml(listing: ObjectList) -> Iterator[bytes]:
    for name in sorted([*listing.head, listing.name]):
        if name != listing.name:
            yield as_yaml({name: listing.head[name]})
            continue
        first = True
        for item in listing.whole_items():
            yield (name.encode() + b":\n" if first else b"") + _yaml_item(as_yaml(msgspec.json.decode(item)))
            first = False
        if first:
            yield as_yaml({name: []})


def _yaml_item(text: bytes) -> bytes:
    """Return an object as a YAML list item; blank lines stay blank."""
    lines = text.splitlines(keepends=True)
    return b"".join([b"- " + lines[0], *(b"  " + line if line.strip() else line for line in lines[1:])])
