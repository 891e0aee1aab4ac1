"""Connections that have ended leave nothing behind: no object, no buffer, without help of the collector of cycles."""

from __future__ import annotations

import asyncio
import gc
import ssl
import warnings
from asyncio.sslproto import SSLProtocol
from collections import Counter
from pathlib import Path

import pytest

from moorage.basis.client.connection_pool import ConnectionPool
from moorage.basis.client.pooled_connection import PooledConnection, ResponseParser
from moorage.basis.client.response_stream import ServerAddress, open_stream
from moorage.errors import ClusterError
from tests.basis.client.certificates import CERTIFICATE, KEY

ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
KEPT = (SSLProtocol, ResponseParser, PooledConnection, asyncio.StreamReader, asyncio.StreamReaderProtocol, ssl.SSLObject)


def alive() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KEPT))


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server and of its client."""
    certificate, key = folder / "certificate", folder / "key"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)
    return theirs, ssl.create_default_context(cadata=CERTIFICATE)


class Server(asyncio.Protocol):
    """Answers each request, and ends the connection by the way that the request names."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(ANSWER + b"0\r\n\r\n" if b"whole" in data else ANSWER)
        if b"ended" in data:
            self.transport.write(b"0\r\n\r\n")
            self.transport.close()
        elif b"cut" in data:
            self.transport.abort()


async def watch(to: ServerAddress, how: str) -> None:
    """Read a stream up to its end, or leave it."""
    try:
        async with open_stream(to, f"GET /{how} HTTP/1.1\r\n\r\n".encode(), 0.05 if how == "silent" else 5.0) as (_, parts):
            async for _ in parts:
                if how == "left":
                    return
    except (TimeoutError, ClusterError):
        assert how in {"silent", "cut"}


async def renewed(to: ServerAddress, count: int) -> None:
    for at in range(count):
        await watch(to, ("ended", "left", "cut", "silent")[at % 4 if at % 20 < 4 else at % 3])
        if at % 10 == 0:
            pool = ConnectionPool(to)
            await pool.request(b"GET /whole HTTP/1.1\r\n\r\n", 1 << 20, 5.0, lambda: None)
            pool.close()


@pytest.mark.slow
@pytest.mark.parametrize("secured", [True, False], ids=["tls", "plain"])
def test_a_thousand_renewed_watches_leave_nothing(secured, tmp_path):
    async def main() -> tuple[Counter[str], Counter[str]]:
        loop = asyncio.get_running_loop()
        theirs, ours = contexts(tmp_path) if secured else (None, None)
        server = await loop.create_server(Server, "127.0.0.1", 0, ssl=theirs)
        port = server.sockets[0].getsockname()[1]
        to = ServerAddress("127.0.0.1", port, ours, "127.0.0.1" if secured else None)
        await renewed(to, 40)
        gc.collect()
        gc.disable()
        try:
            before = alive()
            await renewed(to, 1000)
            await asyncio.sleep(0.2)
            return before, alive()
        finally:
            gc.enable()
            server.close()

    before, after = asyncio.run(main())
    assert sum(after.values()) <= sum(before.values()) + 8, after - before


FAILING = {"no server listens": "nowhere", "an unknown authority": "unknown", "given up during the handshake": "silent"}


@pytest.mark.parametrize("how", FAILING.values(), ids=FAILING)
def test_a_connection_that_fails_leaves_no_open_transport(how, tmp_path):
    async def main():
        loop = asyncio.get_running_loop()
        theirs, ours = contexts(tmp_path)
        secured = None if how == "silent" else theirs  # a server without TLS never answers a handshake
        server = await loop.create_server(asyncio.Protocol if how == "silent" else Server, "127.0.0.1", 0, ssl=secured)
        port = server.sockets[0].getsockname()[1]
        if how == "nowhere":
            server.close()
            await server.wait_closed()
        trusted = ssl.create_default_context() if how == "unknown" else ours
        to = ServerAddress("127.0.0.1", port, trusted, "127.0.0.1")
        with pytest.raises((ClusterError, OSError, TimeoutError)):
            async with asyncio.timeout(0.2 if how == "silent" else 5.0), open_stream(to, b"GET / HTTP/1.1\r\n\r\n", 5.0):
                pass
        server.close()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(one.message) for one in found if "unclosed" in str(one.message)] == []
