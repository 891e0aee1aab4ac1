"""Long answers, written piece by piece as the client reads them: what waits for a slow one is a piece or two."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Iterator
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from moorage.apiserver.http.connections import HEADERS

__all__ = ["LONG", "PIECE", "Part", "close_after", "cut", "hang_up", "narrow", "send", "write"]

#: Which answers are long, in bytes, and count as unread where they are there as a whole.
LONG: Final = 64 << 10
#: How much is written before the reader has to keep up, in bytes; as much again may wait for it within the connection.
PIECE: Final = 32 << 10
#: How much the kernel may hold for a client that does not read, in bytes; it counts double.
_KERNEL: Final = 8 * PIECE

_LOG: Final = logging.getLogger(__name__)

Part = bytes | memoryview


def cut(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the same bytes in pieces of about ``PIECE``: small ones joined, large ones as slices that copy nothing.

    An empty part becomes an empty piece.
    """
    gathered: list[Part] = []
    size = 0
    for part in parts:
        gathered.append(part)
        size += len(part)
        if len(part) > PIECE:
            large = gathered.pop()
            piece, gathered, size = b"".join(gathered), [], 0
            yield from (piece,) if piece else ()
            yield from (memoryview(large)[at : at + PIECE] for at in range(0, len(large), PIECE))
        elif size >= PIECE or not part:
            piece, gathered, size = b"".join(gathered), [], 0
            yield piece
    if gathered:
        yield b"".join(gathered)


async def send(
    request: web.BaseRequest, code: int, headers: CIMultiDict[str], parts: Iterable[Part], within_s: float
) -> web.StreamResponse:  # fmt: skip
    """Return an answer of one piece, to be sent; send a longer one, in so much time. Parts in a list tell how long it is."""
    pieces = cut(parts)
    first, second = await _next(pieces), await _next(pieces)
    if not second:
        return web.Response(status=code, body=bytes(first), headers=headers)
    response = web.StreamResponse(status=code, headers=headers)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if isinstance(parts, list):
        response.content_length = sum(map(len, parts))
    close_after(request, response)
    narrow(request)
    try:
        async with asyncio.timeout(within_s):
            await _send_all(request, response, first, second, pieces)
    except TimeoutError:
        hang_up(request)
    except ConnectionError:
        pass
    except Exception:  # a bug of ours: what was sent cannot be taken back, and the client is to see that it is not all
        _LOG.exception("%s %r", request.method, request.path)
        hang_up(request)
    return response


async def _send_all(
    request: web.BaseRequest, response: web.StreamResponse, first: Part, second: Part, rest: Iterator[Part]
) -> None:  # fmt: skip
    writer = await response.prepare(request)
    if request.method != "HEAD":
        await write(response, writer, first)
        while second:
            await write(response, writer, second)
            second = await _next(rest)
    await response.write_eof()


async def _next(pieces: Iterator[Part]) -> Part:
    """Return the next piece that holds something; nothing at the end. Others have a turn before each."""
    for piece in pieces:
        await asyncio.sleep(0)
        if piece:
            return piece
    return b""


async def write(response: web.StreamResponse, writer: AbstractStreamWriter | None, piece: Part) -> None:
    """Write a piece, and wait until there is room for another."""
    await response.write(piece)
    if writer is not None:
        await writer.drain()


def narrow(request: web.BaseRequest) -> None:
    """Let little wait within a connection: over TLS it would be half a megabyte, and several within the kernel."""
    if request.transport is not None:
        request.transport.set_write_buffer_limits(high=PIECE)
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL)


def hang_up(request: web.BaseRequest) -> None:
    """Cut a connection off, without waiting for what is still to be sent."""
    if request.transport is not None:
        request.transport.abort()


def close_after(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Close the connection after a request for another protocol: nothing but HTTP/1.1 is understood here."""
    if "Upgrade" in request.headers or request.method == "CONNECT":
        response.force_close()
