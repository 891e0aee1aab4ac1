"""A response that is read as it arrives: that of a watch, which has no end. It has a connection of its own.

Nothing is read ahead of its reader but what asyncio keeps, so that a slow reader slows down the server.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from moorage.basis.client.pooled_connection import CUT_OFF, MAX_HEAD, Reply, ResponseParser
from moorage.errors import UNREACHABLE, ClusterError, InputError

#: A response without its body, and the parts of its body.
Stream: TypeAlias = tuple[Reply, AsyncIterator[bytes]]
_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)

#: How long a connection may take, in seconds.
CONNECT_S: Final = 10.0
#: Size in bytes of a TLS connection's receive buffer. asyncio's own, of 256 KiB, would be most of what a connection costs.
_TLS_BUFFER: Final = 32 << 10
#: How many bytes are read at once.
_AT_ONCE: Final = 1 << 16
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
#: A dead peer is detected within 45 s, as by kube-scheduler's HTTP/2 pings. Not every system has all of these options.
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 45_000))


class ServerAddress(NamedTuple):
    """The address of a server. ``server_name``: the name in its certificate; None without TLS.

    ``proxy``  the proxy to reach it through; ``login``: of a proxy, the header line with its password, "" without one
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: ServerAddress | None = None
    login: str = ""

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


# -- proxies -----------------------------------------------------------------------------------------------------------
# A proxy forwards requests of plain HTTP, whose targets are then whole URLs; for TLS it opens a tunnel.


def proxy_address(url: str) -> ServerAddress:
    """Return the address of a proxy.

    Raises  InputError
    """
    where = urlsplit(url)
    if where.scheme not in {"http", "https"} or not where.hostname:
        raise InputError("the proxy's address must start with http:// or https://")
    tls = ssl.create_default_context() if where.scheme == "https" else None
    login = b64encode(f"{unquote(where.username or '')}:{unquote(where.password or '')}".encode()).decode()
    return ServerAddress(
        where.hostname, where.port or (443 if tls else 80), tls, where.hostname if tls else None,
        login=f"Proxy-Authorization: Basic {login}\r\n" if where.username is not None else "",
    )  # fmt: skip


class _Tunnel(asyncio.Protocol):
    """The response of a proxy that is asked for a tunnel; ``opened`` completes with it."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self.opened.done() or (b"\r\n\r\n" not in self._head and len(self._head) < MAX_HEAD):
            return
        _, _, status = self._head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        if status.startswith("200"):
            self.opened.set_result(None)
        else:
            self.opened.set_exception(ClusterError(f"the proxy opens no tunnel: {status or 'its answer is not HTTP'}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ClusterError(f"the proxy opens no tunnel: {exc or 'it disconnected'}"))


async def connect(to: ServerAddress, protocol: Callable[[], _Protocol]) -> tuple[asyncio.Transport, _Protocol]:
    """Connect a protocol to a server, if need be through its proxy.

    Raises  ClusterError if the proxy refuses; OSError
    """
    loop = asyncio.get_running_loop()
    if to.proxy is None and to.tls is None:
        return await loop.create_connection(protocol, to.host, to.port, happy_eyeballs_delay=to.race_s)
    if to.proxy is None:
        made, secured, tls = _secured(to, protocol)
        try:
            plain, _ = await loop.create_connection(lambda: tls, to.host, to.port, happy_eyeballs_delay=to.race_s)
        except BaseException:
            tls.end()
            raise
        return await _handshaken(plain, tls, secured), made
    if to.tls is None:
        return await connect(to.proxy, protocol)
    transport, tunnel = await connect(to.proxy, _Tunnel)
    try:
        place = f"[{to.host}]:{to.port}" if ":" in to.host else f"{to.host}:{to.port}"
        transport.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{to.proxy.login}\r\n".encode())
        await tunnel.opened
    except BaseException:
        transport.abort()
        raise
    made, secured, tls = _secured(to, protocol)
    transport.pause_reading()
    transport.set_protocol(tls)
    loop.call_soon(tls.connection_made, transport)
    loop.call_soon(transport.resume_reading)
    return await _handshaken(transport, tls, secured), made


class _Tls(SSLProtocol):
    """TLS of one connection, with a smaller buffer."""

    max_size = _TLS_BUFFER

    @property
    def inner(self) -> Any:
        """The transport of what is encrypted; None once the connection has ended."""
        return self._app_transport

    def end(self) -> None:
        """Close the inner transport of a connection that was never secured: asyncio warns of one that is left open."""
        if self.inner is not None:
            self.inner.close()


def _secured(to: ServerAddress, protocol: Callable[[], _Protocol]) -> tuple[_Protocol, asyncio.Future[None], _Tls]:
    """Return a protocol, what completes with its handshake, and the TLS between it and a plain connection."""
    loop = asyncio.get_running_loop()
    made, secured = protocol(), loop.create_future()
    of_any: Any = made
    assert to.tls is not None, "only called for servers with TLS"
    return made, secured, _Tls(loop, of_any, to.tls, secured, server_side=False, server_hostname=to.server_name)


async def _handshaken(plain: asyncio.Transport, tls: _Tls, secured: asyncio.Future[None]) -> asyncio.Transport:
    """Return the transport of a connection whose handshake is under way, when it is secured.

    Raises  ssl.SSLError; OSError
    """
    transport = tls.inner
    try:
        await secured
    except BaseException:
        tls.end()
        plain.abort()
        raise
    found: asyncio.Transport = transport
    return found


@asynccontextmanager
async def open_stream(to: ServerAddress, request: bytes, idle_s: float) -> AsyncIterator[Stream]:
    """Send a request, and yield its response, whose parts raise TimeoutError when nothing arrives for ``idle_s``.

    Raises  ClusterError for what is not HTTP or ends too early; TimeoutError; OSError
    """
    async with connecting():
        reader = asyncio.StreamReader(MAX_HEAD)
        transport, _ = await connect(to, lambda: asyncio.StreamReaderProtocol(reader))
    body = _Body(reader, idle_s)
    try:
        keep_alive(transport.get_extra_info("socket"))
        transport.write(request)
        yield await body.head(), body.parts()
    finally:
        transport.abort()
        body.close()


class _Body:
    """A response that is read part by part."""

    def __init__(self, reader: asyncio.StreamReader, idle_s: float) -> None:
        self._reader, self._idle_s = reader, idle_s
        self._parser = ResponseParser(self._completed)
        self._ended: Reply | None = None

    def _completed(self, reply: Reply, keep_alive: bool) -> None:
        self._ended = self._ended or reply

    def close(self) -> None:
        """Release the connection. Otherwise it would live, with its buffers, until a collection of cycles."""
        self._parser.close()
        self._reader = asyncio.StreamReader()

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
        try:
            async with asyncio.timeout(self._idle_s):
                data = await self._reader.read(_AT_ONCE)
        except TimeoutError as error:
            if error.errno is None:  # nothing arrived in time
                raise
            raise ClusterError(f"the connection is dead: {error_text(error)}") from None  # the system has given it up
        try:
            self._parser.feed(data)
        except ValueError as error:
            raise ClusterError(f"the answer is not HTTP: {error}") from None
        return bool(data)
