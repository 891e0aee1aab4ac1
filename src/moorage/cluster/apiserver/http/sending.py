"""Send long responses in pieces as the client reads them, so that a slow client holds one or two pieces in memory."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from moorage.cluster.apiserver.http.connections import HEADERS

__all__ = [
    "LONG_RESPONSE", "PIECE", "LargeParts", "MakeNext", "Part", "abort", "close_after", "into_pieces", "limit_buffers",
    "next_piece", "send", "write",
]  # fmt: skip

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
