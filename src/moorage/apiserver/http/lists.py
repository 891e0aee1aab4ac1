"""Lists as they are sent: part by part, each made of one object when its turn comes, in every encoding.

A list of all pods of a large cluster takes hundreds of megabytes. It is never put together: what is kept are the objects'
own bytes, which the store keeps anyway, and what the client is about to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from moorage.apiserver.http.sending import Part
from moorage.apiserver.schema.representations import JSON, YAML, as_yaml, listed_as_protobuf, metadata_of
from moorage.apiserver.tables.tables import rows, table
from moorage.apiserver.vocabulary.records import Document, Record
from moorage.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["Listing", "encoded_list", "metadata_list", "object_list", "table_list"]

#: From how many bytes on an object is cut without a copy.
_LARGE: Final = 16 << 10


@dataclass(frozen=True, slots=True)
class Listing:
    """A list: its ``head`` without the items, what the field of the items is called, and what makes them.

    Iterated over, it is JSON, part by part. It can be gone through again.
    """

    head: Document
    name: str
    items: Callable[[], Iterator[tuple[Part, ...]]]

    def __iter__(self) -> Iterator[Part]:
        yield msgspec.json.encode(self.head)[:-1] + b',"' + self.name.encode() + b'":['
        comma = b""
        for item in self.items():
            if comma:
                yield comma
            yield from item
            comma = b","
        yield b"]}"

    def whole_items(self) -> Iterator[bytes]:
        return (b"".join(item) for item in self.items())


def object_list(kind: ServedKind, metadata: Document, records: Iterable[Record]) -> Listing:
    """Return a list of objects as they are kept."""
    head = f'"kind":"{kind.kind}"'.encode(), f'"apiVersion":"{kind.api_version}"'.encode()
    starts = tuple(b"{" + b",".join(order) + b"," for order in (head, head[::-1]))
    return Listing(
        {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata},
        "items",
        lambda: (_headless(record.body, starts) for record in records),
    )


def _headless(body: bytes, starts: tuple[bytes, ...]) -> tuple[Part, ...]:
    """Return an object as lists hold it: what kind it is stands at the list's own head."""
    if not body.startswith(starts):
        return (body,)
    rest = len(starts[0])
    return (b"{", memoryview(body)[rest:]) if len(body) > _LARGE else (b"{" + body[rest:],)


def metadata_list(version: str, metadata: Document, records: Iterable[Record]) -> Listing:
    """Return a list of objects' metadata."""
    head = {"kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": metadata}
    return Listing(head, "items", lambda: ((metadata_of(record),) for record in records))


def table_list(kind: ServedKind, metadata: Document, records: Iterable[Record], now: float, include: str) -> Listing:
    """Return a list as a ``Table``."""
    head = {**table(kind, [], now, include), "metadata": metadata}
    del head["rows"]

    def items() -> Iterator[tuple[Part, ...]]:
        documents = (record.document() for record in records)
        return ((msgspec.json.encode(row),) for row in rows(kind, documents, now, include))

    return Listing(head, "rows", items)


# -- encodings ----------------------------------------------------------------------------------------------------------


def encoded_list(listing: Listing, encoding: str, *, pretty: bool = False) -> Iterator[Part]:
    """Yield a list in an encoding, as if it were encoded whole. An empty part says that nothing is ready yet.

    Raises  ApiError 406, at the first part, for what has no such form
    """
    if encoding == YAML:
        return _as_yaml(listing)
    if encoding != JSON:
        return listed_as_protobuf(listing.head, listing.whole_items())
    return _indented(listing) if pretty else iter(listing)


def _indented(listing: Listing) -> Iterator[bytes]:
    head = msgspec.json.format(msgspec.json.encode(listing.head), indent=2)
    yield head.removesuffix(b"\n}") + b',\n  "' + listing.name.encode() + b'": ['
    between, end = b"\n    ", b"]\n}"
    for item in listing.whole_items():
        yield between + msgspec.json.format(item, indent=2).replace(b"\n", b"\n    ")
        between, end = b",\n    ", b"\n  ]\n}"
    yield end


def _as_yaml(listing: Listing) -> Iterator[bytes]:
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
    """Return an object as an item of a list; lines that are empty stay so."""
    lines = text.splitlines(keepends=True)
    return b"".join([b"- " + lines[0], *(b"  " + line if line.strip() else line for line in lines[1:])])
