"""Lists as sequences of parts, one object at a time, in every encoding.

A list of all pods of a large cluster can take hundreds of megabytes, so it is never assembled. The server holds the
objects' own bytes, which the store holds anyway, and the parts that the client reads next.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from moorage.api.documents.http_messages import HTTPRequest
from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.documents.statuses import invalid
from moorage.api.schema.protobuf import write_event
from moorage.basis.serving.connections import HEADERS
from moorage.cluster.apiserver.schema.representations import JSON, YAML, as_yaml, in_version, listed_as_protobuf, metadata_of
from moorage.cluster.apiserver.tables.tables import rows, table
from moorage.rules.admission.pod_checks import RULES
from moorage.rules.store.list_selection import check_selector
from moorage.rules.store.watches import WatchedObject

# Send long responses in pieces as the client reads them, so that a slow client holds one or two pieces in memory.

#: Minimum size of a long response in bytes; those in memory count as unread.
LONG_RESPONSE: Final = 64 << 10
#: Size in bytes of a piece, after which the sender waits for the reader; the connection buffers as much again.
PIECE: Final = 32 << 10
#: Socket send buffer in bytes; the kernel doubles it.
_SEND_BUFFER: Final = 8 * PIECE

_LOG: Final = logging.getLogger(__name__)

Part = bytes | memoryview
#: Returns the next non-empty piece of a response, b"" at the end.
MakeNext = Callable[[Iterator[Part]], Awaitable[Part]]


class LargeParts(Iterator[Part]):
    """An iterator over parts, each of which may take long to compute."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = iter(parts)

    def __next__(self) -> Part:
        return next(self._parts)


def into_pieces(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the bytes of ``parts`` in pieces of about ``PIECE``: small parts are joined, large ones sliced without copying.

    An empty part becomes an empty piece.
    """
    pending: list[Part] = []
    size = 0
    for part in parts:
        pending.append(part)
        size += len(part)
        if len(part) > PIECE:
            large = pending.pop()
            piece, pending, size = b"".join(pending), [], 0
            yield from (piece,) if piece else ()
            yield from (memoryview(large)[at : at + PIECE] for at in range(0, len(large), PIECE))
        elif size >= PIECE or not part:
            piece, pending, size = b"".join(pending), [], 0
            yield piece
    if pending:
        yield b"".join(pending)


async def next_piece(pieces: Iterator[Part]) -> Part:
    """Make the next non-empty piece on the event loop, or return b"" at the end. Other tasks run before each piece."""
    for piece in pieces:
        await asyncio.sleep(0)
        if piece:
            return piece
    return b""


async def send(
    request: web.BaseRequest, code: int, headers: CIMultiDict[str], parts: Iterable[Part], within_s: float,
    make_next: MakeNext = next_piece,
) -> web.StreamResponse:  # fmt: skip
    """Return a response of one piece unsent; send a longer one within ``within_s``.

    ``make_next`` returns the next piece. If ``parts`` is a list, the response has a Content-Length.
    """
    pieces = into_pieces(parts)
    first, second = await make_next(pieces), await make_next(pieces)
    if not second:
        return web.Response(status=code, body=bytes(first), headers=headers)
    response = web.StreamResponse(status=code, headers=headers)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if isinstance(parts, list):
        response.content_length = sum(map(len, parts))
    close_after(request, response)
    limit_buffers(request)
    try:
        async with asyncio.timeout(within_s):
            await _send_all(request, response, (first, second), pieces, make_next)
    except TimeoutError:
        abort(request)
    except ConnectionError:
        pass
    except Exception:  # A bug in the server: the client must see that the response is incomplete.
        _LOG.exception("%s %r", request.method, request.path)
        abort(request)
    return response


async def _send_all(
    request: web.BaseRequest, response: web.StreamResponse, begin: tuple[Part, Part], rest: Iterator[Part], make_next: MakeNext
) -> None:  # fmt: skip
    writer = await response.prepare(request)
    if request.method != "HEAD":
        first, piece = begin
        await write(response, writer, first)
        while piece:
            await write(response, writer, piece)
            piece = await make_next(rest)
    await response.write_eof()


async def write(response: web.StreamResponse, writer: AbstractStreamWriter | None, piece: Part) -> None:
    """Send a piece, and wait until the buffer has room for another."""
    await response.write(piece)
    if writer is not None:
        await writer.drain()


def limit_buffers(request: web.BaseRequest) -> None:
    """Limit a connection's buffers: by default half a megabyte with TLS, and several in the kernel."""
    if request.transport is not None:
        request.transport.set_write_buffer_limits(high=PIECE)
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)


def abort(request: web.BaseRequest) -> None:
    """Abort a connection without sending what is buffered."""
    if request.transport is not None:
        request.transport.abort()


def close_after(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Close the connection after a request for another protocol; only HTTP/1.1 is supported."""
    if "Upgrade" in request.headers or request.method == "CONNECT":
        response.force_close()


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
        if self.is_null:
            yield msgspec.json.encode({**self.head, self.name: None})
            return
        yield msgspec.json.encode(self.head)[:-1] + b',"' + self.name.encode() + b'":['
        comma = b""
        for item in self.items():
            if comma:
                yield comma
            yield from item
            comma = b","
        yield b"]}"

    @property
    def is_null(self) -> bool:
        """True for an empty list whose items are null, as those of metadata are in kube-apiserver."""
        return not self.records and self.head.get("kind") == "PartialObjectMetadataList"

    @property
    def is_large(self) -> bool:
        """True if an object takes long to decode and to encode."""
        return any(len(record.body) > LONG_RESPONSE for record in self.records)

    def in_version(self, version: str) -> ObjectList:
        """Return a list of tables' rows or of metadata in another version of ``meta.k8s.io``."""
        head = msgspec.json.decode(in_version(version, msgspec.json.encode(self.head)))
        return replace(self, head=head, items=lambda: ((in_version(version, b"".join(item)),) for item in self.items()))

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
        return iter([as_yaml({**listing.head, listing.name: None})]) if listing.is_null else _as_yaml(listing)
    if encoding != JSON:
        return listed_as_protobuf(listing.head, listing.whole_items())
    return _indented(listing) if pretty else iter(listing)


def _indented(listing: ObjectList) -> Iterator[bytes]:
    if listing.is_null:
        yield msgspec.json.format(b"".join(listing), indent=2)
        return
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
            lines = as_yaml(msgspec.json.decode(item)).splitlines(keepends=True)
            body = b"".join(b"  " + line if line.strip() else line for line in lines[1:])
            yield (name.encode() + b":\n" if first else b"") + b"- " + lines[0] + body
            first = False
        if first:
            yield as_yaml({name: []})


# -- list options ------------------------------------------------------------------------------------------------------
# Validation of list and watch parameters.
#
# Source  apimachinery, pkg/apis/meta/internalversion: validation/validation.go, defaults.go

_INITIAL: Final = "sendInitialEvents"


def check_list(request: HTTPRequest, *, is_watch: bool) -> None:
    """Validate the parameters of a list or a watch.

    Raises  ApiError 400 for invalid numbers and label selectors, 422 with all other faults
    """
    request.number("limit")
    request.number("timeoutSeconds")
    if labels := request.query.get("labelSelector"):
        check_selector(labels)
    if faults := [*RULES.faults("WatchOptions" if is_watch else "ListOptions", dict(request.query))]:
        raise invalid("ListOptions", "meta.k8s.io", "", faults)


def requests_initial_list(request: HTTPRequest) -> bool:
    """Return True for a watch that explicitly requests the initial list."""
    return request.flag(_INITIAL)


def starts_with_list(request: HTTPRequest) -> bool:
    """Return True for a watch that starts with the existing objects, by request or for lack of a version."""
    if _INITIAL in request.query:
        return requests_initial_list(request)
    return request.query.get("resourceVersion", "") in {"", "0"}


# -- watch events ------------------------------------------------------------------------------------------------------


def event_parts(event: WatchedObject, form: str, encoding: str, version: str = "v1") -> tuple[bytes, ...]:
    """Return an encoded event in parts. It contains the full object or, if ``form`` starts with "Partial", its metadata in a
    version of ``meta.k8s.io``.
    """
    body, is_partial = event.held.body, form.startswith("Partial")
    if len(body) > PIECE and encoding == JSON and not is_partial and event.held.version == event.version:
        return _head(event.type), body, _TAIL  # large objects are not copied
    shown = in_version(version, metadata_of(event.record)) if is_partial else event.record.body
    return (event_line(event.type, shown, encoding),)


def _head(kind: str) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":'


_TAIL: Final = b"}\n"


def event_line(kind: str, body: bytes, encoding: str) -> bytes:
    """Return one watch event: a line of JSON, or a protobuf frame."""
    if encoding == JSON:
        return b"".join([_head(kind), body, _TAIL])
    return write_event(kind, msgspec.json.decode(body))
