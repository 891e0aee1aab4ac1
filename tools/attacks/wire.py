"""A client that sends arbitrary bytes over a socket and parses responses strictly."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass, field

__all__ = ["AttackConnection", "AttackResponse", "Malformed"]

_PATIENCE_S = 20.0
_GLANCE_S = 0.005


class Malformed(Exception):  # noqa: N818 - never leaves this package
    """A response that is not valid HTTP."""


@dataclass
class AttackResponse:
    """A response. ``streams``: it had not ended when it was read."""

    version: str
    code: int
    headers: dict[str, str]
    body: bytes = b""
    streams: bool = False
    warnings: list[str] = field(default_factory=list)

    @property
    def closes(self) -> bool:
        connection = self.headers.get("connection", "").lower()
        return self.streams or connection == "close" or (self.version == "1.0" and connection != "keep-alive")


class AttackConnection:
    """A connection that is reopened after it was closed. ``glance_s`` is how long it waits for each event of a watch."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, glance_s: float = _GLANCE_S,
        patience_s: float = _PATIENCE_S,
    ) -> None:  # fmt: skip
        self._port, self._host, self._tls, self._glance_s, self._patience_s = port, host, tls, glance_s, patience_s
        self._pipe: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_open(self) -> bool:
        return self._pipe is not None

    async def ask(self, request: bytes, *, is_head: bool = False, ends: bool = False) -> AttackResponse | None:
        """Send a request; return the response, None where the server closes the connection. ``ends``: half-close after sending.

        Raises  Malformed, and TimeoutError without a response
        """
        async with asyncio.timeout(self._patience_s):
            if self._pipe is None:
                self._pipe = await asyncio.open_connection(self._host, self._port, limit=1 << 24, ssl=self._tls)
            reader, writer = self._pipe
            try:
                writer.write(request)
                if ends and writer.can_write_eof():
                    writer.write_eof()
                answer = await _read(reader, is_head, self._glance_s)
            except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
                await self.close()
                return None
        if ends or answer.closes:
            await self.close()
        return answer

    async def close(self) -> None:
        if self._pipe is not None:
            writer, self._pipe = self._pipe[1], None
            if self._tls is not None:
                writer.transport.abort()  # a server that still sends events would not answer the end of TLS
                return
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader, is_head: bool, glance_s: float) -> AttackResponse:
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        if not first.startswith(("HTTP/1.1 ", "HTTP/1.0 ")) or not first[9:12].isdigit():
            raise Malformed(f"begins with {first[:80]!r}")
        if first[9:12] != "100":
            break
    warnings = [line.partition(": ")[2] for line in lines if line.lower().startswith("warning: ")]
    answer = AttackResponse(first[5:8], int(first[9:12]), _fields(lines), warnings=warnings)
    if is_head or answer.code in {204, 304}:
        return answer
    if answer.headers.get("transfer-encoding", "").lower() == "chunked":
        await _stream(reader, answer, glance_s)
    elif "content-length" in answer.headers:
        answer.body = await reader.readexactly(int(answer.headers["content-length"]))
    elif answer.version == "1.0" and answer.closes:
        await _stream(reader, answer, glance_s, in_chunks=False)
    else:
        raise Malformed("neither a length nor chunks")
    return answer


def _fields(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(": ")
        key = name.lower()
        if not colon or not name.isprintable() or any(not " " <= letter != "\x7f" for letter in value if letter != "\t"):
            raise Malformed(f"header {line[:80]!r}")
        if key in fields and key not in {"vary", "warning"}:
            raise Malformed(f"header {name} stands twice")
        fields[key] = value
    return fields


async def _stream(reader: asyncio.StreamReader, answer: AttackResponse, glance_s: float, *, in_chunks: bool = True) -> None:
    """Read the events that a watch sends immediately; without chunks, its end is that of the connection."""
    try:
        while True:
            async with asyncio.timeout(glance_s):
                if not in_chunks:
                    answer.body += (part := await reader.read(1 << 16))
                    if part:
                        continue
                    return
                size = int(await reader.readuntil(b"\r\n"), 16)
                answer.body += (await reader.readexactly(size + 2))[:-2]
            if not size:
                return
    except (TimeoutError, asyncio.IncompleteReadError):
        answer.streams = True
