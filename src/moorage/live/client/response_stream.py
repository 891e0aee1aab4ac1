"""A response that is read as it arrives: that of a watch, which has no end. It has a connection of its own.

Nothing is read ahead of its reader but what asyncio keeps, so that a slow reader slows down the server.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final, NamedTuple, TypeAlias

from moorage.errors import UNREACHABLE, ClusterError
from moorage.live.client.pooled_connection import CUT_OFF, MAX_HEAD, ChunkedBody, Reply, parse_head, parse_number

#: A response without its body, and the parts of its body.
Stream: TypeAlias = tuple[Reply, AsyncIterator[bytes]]

#: How long a connection may take, in seconds.
CONNECT_S: Final = 10.0
#: How many bytes are read at once.
_AT_ONCE: Final = 1 << 16
_END: Final = b"\r\n"
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
#: A dead peer is detected within 45 s, as by kube-scheduler's HTTP/2 pings. Not every system has all of these options.
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


class ServerAddress(NamedTuple):
    """The address of a server. ``server_name``: the name in its certificate; None without TLS."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None

    @property
    def race_s(self) -> float | None:
        """After how long another address of the name is tried, too; None for an IP address.

        A race that is cancelled when a connection is just made leaves it open.
        """
        try:
            ip_address(self.host)
        except ValueError:
            return 0.25
        return None


@asynccontextmanager
async def connecting() -> AsyncIterator[None]:
    """Limit the time of making a connection.

    Raises  ClusterError with the reason ``UNREACHABLE`` if there is none; TimeoutError; OSError for a failed handshake
    """
    try:
        async with asyncio.timeout(CONNECT_S):
            yield
    except (TimeoutError, ConnectionResetError, ssl.SSLError):
        raise
    except OSError as error:
        raise unreachable(error) from error


def unreachable(error: OSError) -> ClusterError:
    """Return the error for a connection that cannot be made."""
    numbers = set(_ERRNO.findall(str(error))) or {error.errno or 0}  # asyncio's message has one for each address
    number = int(numbers.pop()) if len(numbers) == 1 else 0
    return ClusterError(f"cannot connect: {os.strerror(number) if number > 0 else error}", reason=UNREACHABLE)


def keep_alive(made: socket.socket) -> None:
    """Have the system ask the peer whether it still exists while nothing arrives."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)


@asynccontextmanager
async def open_stream(to: ServerAddress, request: bytes, idle_s: float) -> AsyncIterator[Stream]:
    """Send a request, and yield its response, whose parts raise TimeoutError when nothing arrives for ``idle_s``.

    Raises  ClusterError for what is not HTTP or ends too early; TimeoutError; OSError
    """
    async with connecting():
        reader, writer = await asyncio.open_connection(
            to.host, to.port, ssl=to.tls, server_hostname=to.server_name, happy_eyeballs_delay=to.race_s, limit=MAX_HEAD
        )
    try:
        keep_alive(writer.get_extra_info("socket"))
        writer.write(request)
        try:
            async with asyncio.timeout(idle_s):
                head = await _head(reader)
        except (ValueError, IndexError, asyncio.LimitOverrunError) as error:
            raise ClusterError(f"the answer is not HTTP: {error}") from None
        except asyncio.IncompleteReadError:
            raise ClusterError("Server disconnected") from None
        yield head, _parts(reader, head.headers, idle_s)
    finally:
        writer.transport.abort()


async def _head(reader: asyncio.StreamReader) -> Reply:
    while True:
        _, status, phrase, headers = parse_head((await reader.readuntil(_END * 2))[: -len(_END * 2)])
        if status >= 200:  # 1xx responses only announce the final one
            return Reply(status, phrase, headers, b"")


async def _parts(reader: asyncio.StreamReader, headers: Mapping[str, str], idle_s: float) -> AsyncIterator[bytes]:
    chunks = ChunkedBody() if headers.get("transfer-encoding", "").lower() == "chunked" else None
    length = headers.get("content-length")
    left = None if chunks is not None or length is None else parse_number(length, 10)
    while left != 0 and not (chunks is not None and chunks.ended):
        async with asyncio.timeout(idle_s):
            data = await reader.read(_AT_ONCE)
        if not data:
            if chunks is None and left is None:
                return
            raise ClusterError(CUT_OFF)
        if chunks is not None:
            try:
                data = chunks.taken(data)
            except ValueError as error:
                raise ClusterError(f"the answer is not HTTP: {error}") from None
        elif left is not None:
            left -= len(data)
        if data:
            yield data
