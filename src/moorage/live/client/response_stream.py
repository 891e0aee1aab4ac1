"""A response that is read as it arrives: that of a watch, which has no end. It has a connection of its own.

Nothing is read ahead of its reader but what asyncio keeps, so that a slow reader slows down the server.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final, NamedTuple, TypeAlias

from moorage.errors import UNREACHABLE, ClusterError
from moorage.live.client.pooled_connection import CUT_OFF, MAX_HEAD, Reply, ResponseParser

#: A response without its body, and the parts of its body.
Stream: TypeAlias = tuple[Reply, AsyncIterator[bytes]]

#: How long a connection may take, in seconds.
CONNECT_S: Final = 10.0
#: How many bytes are read at once.
_AT_ONCE: Final = 1 << 16
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


def error_text(error: BaseException) -> str:
    """Return the text of an error of a connection, some of which have none."""
    if not str(error) and isinstance(error, TimeoutError):
        return "no answer within the time limit"
    if not str(error) and isinstance(error, ConnectionResetError):
        return "the connection ended before it was secured"
    return str(error) or type(error).__name__


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
        body = _Body(reader, idle_s)
        yield await body.head(), body.parts()
    finally:
        writer.transport.abort()


class _Body:
    """A response that is read part by part."""

    def __init__(self, reader: asyncio.StreamReader, idle_s: float) -> None:
        self._reader, self._idle_s = reader, idle_s
        self._parser = ResponseParser(self._completed)
        self._ended: Reply | None = None

    def _completed(self, reply: Reply, keep_alive: bool) -> None:
        self._ended = self._ended or reply

    async def head(self) -> Reply:
        """Return the response without its body."""
        while (head := self._ended or self._parser.head) is None:
            if not await self._read():
                raise ClusterError("Server disconnected")
        return head._replace(body=b"")

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        while self._ended is None:
            if self._parser.parts:
                yield self._parser.take()
            elif not await self._read() and not self._parser.end():
                raise ClusterError(CUT_OFF)
        if self._ended.body:
            yield self._ended.body

    async def _read(self) -> bool:
        async with asyncio.timeout(self._idle_s):
            data = await self._reader.read(_AT_ONCE)
        try:
            self._parser.feed(data)
        except ValueError as error:
            raise ClusterError(f"the answer is not HTTP: {error}") from None
        return bool(data)
