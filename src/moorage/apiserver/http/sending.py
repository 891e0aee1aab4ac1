"""Long answers: sent piece by piece as the client reads them, so that each is in memory once, and in time."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

__all__ = ["LONG", "PIECE", "length", "send", "unwritten"]

#: What answer is long, in bytes; the others are written at once.
LONG: Final = 64 << 10
#: How much of a long answer is written at a time. What is written and not read is held once more, encrypted.
PIECE: Final = 256 << 10


def length(response: web.StreamResponse) -> int:
    """Return how long the body of an answer is that is there as a whole; 0 for any other."""
    body = response.body if isinstance(response, web.Response) else None
    return len(body) if isinstance(body, bytes) else 0


def unwritten(response: web.Response) -> web.StreamResponse:
    """Return the head of an answer whose body is to be sent piece by piece."""
    head = web.StreamResponse(status=response.status, headers=response.headers)
    head.content_length = length(response)
    if response.keep_alive is False:
        head.force_close()
    return head


async def send(request: web.BaseRequest, head: web.StreamResponse, body: bytes, within_s: float) -> None:
    """Send an answer piece by piece.

    Raises  TimeoutError if the client has not read it in time, ConnectionError if it went away
    """
    rest = memoryview(body)
    async with asyncio.timeout(within_s):
        await head.prepare(request)
        for at in range(0, len(body), PIECE):
            await head.write(rest[at : at + PIECE])
        await head.write_eof()
