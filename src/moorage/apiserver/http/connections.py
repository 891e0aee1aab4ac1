"""A client's connection, with what aiohttp leaves open closed: how long and how large the head of a request may be, how many
connections there may be at all, and what is said to those who do not speak HTTP.

A request's head is whatever comes before a handler has the request. Who sends it byte by byte is cut off when the time is up;
a body, and reading an answer, have limits of their own where they are waited for.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from aiohttp import StreamReader, web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from moorage.apiserver.vocabulary.statuses import ApiError
from moorage.apiserver.vocabulary.users import User

__all__ = ["HEADERS", "MAX_FIELD", "MAX_HEAD", "MAX_LINE", "Connection", "Door"]

#: Longest request line, longest header field, and all of a request's head, in bytes.
MAX_LINE: Final = 16 << 10
MAX_FIELD: Final = 64 << 10
MAX_HEAD: Final = 128 << 10
MAX_HEADERS: Final = 128
#: How long a connection may be idle between two requests, in seconds.
IDLE_S: Final = 75.0
#: Files and sockets that are left for everything else.
_SPARE_FILES: Final = 64

#: What every answer carries: it is data, no page may show it or run it, and nobody keeps a copy.
HEADERS: Final = {
    "Cache-Control": "no-cache, private",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Connection(RequestHandler):
    """One connection. ``began`` and ``ended`` are called by whoever handles its requests.

    ``when_lost`` is called if the client goes away while a request is served. ``holder`` is whom the client's certificate is
    made out to, once somebody has looked.
    """

    __slots__ = ("_body", "_door", "_due", "_head", "_late", "_pipe", "_serving", "holder", "when_lost")

    def __init__(self, door: Door, manager: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager, loop=loop, access_log=None, keepalive_timeout=IDLE_S, lingering_time=door.patience_s,  # type: ignore[arg-type]
            max_line_size=MAX_LINE, max_field_size=MAX_FIELD, max_headers=MAX_HEADERS, auto_decompress=False,
        )  # fmt: skip
        self._door = door
        self._late: asyncio.TimerHandle | None = None
        #: When the head of a request must be complete; None while none is awaited.
        self._due: float | None = None
        self.holder: User | None = None
        self._pipe: asyncio.BaseTransport | None = None
        self._serving = False
        #: The body of the last request. It may still be coming when the request is answered already.
        self._body: StreamReader | None = None
        self._head = 0
        self.when_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._pipe = transport
        if self._door.let_in(transport):
            self._wait_for_head()
        else:
            self._hang_up()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_looking()
        self._door.let_out(self._pipe)
        if self.when_lost is not None:
            self.when_lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self._request_count
        if not self._serving and self._due is None:
            self._wait_for_head()
        super().data_received(data)
        in_body = self._body is not None and not self._body.is_eof()
        self._head = 0 if self._serving or in_body or self._request_count != before else self._head + len(data)
        if self._head > MAX_HEAD:
            self._hang_up()

    def began(self, body: StreamReader) -> None:
        """Note that a request's head is complete, and where its body is going to be."""
        self._serving = True
        self._due = None
        self._body = body

    def ended(self) -> None:
        """Note that the request was answered."""
        self._serving = False
        self.when_lost = None

    def _wait_for_head(self) -> None:
        self._due = self._loop.time() + self._door.patience_s
        if self._late is None:
            self._late = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        """Hang up if a head is overdue; one timer serves all the requests of a connection, as hardly a head is ever late."""
        self._late = None
        if self._due is None:
            return
        if self._loop.time() >= self._due:
            self._hang_up()
        else:
            self._late = self._loop.call_at(self._due, self._look)

    def _stop_looking(self) -> None:
        self._due = None
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _hang_up(self) -> None:
        self._stop_looking()
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what is no HTTP. Nothing of it is repeated, as there may be secrets in it."""
        if isinstance(exc, LineTooLong):
            status = 414 if exc.args[1] == MAX_LINE else 431
        elif exc is not None and "Too many" in str(exc):
            status = 431
        what, why = _REFUSALS.get(status, ("InternalError", "the request could not be answered"))
        if status >= 500:
            self.logger.error("a request failed in the HTTP library: %s", type(exc).__name__)
        body = msgspec.json.encode(ApiError(status, what, why).status())
        response = web.Response(status=status, body=body, headers={"Content-Type": "application/json", **HEADERS})
        response.force_close()
        return response


_REFUSALS: Final = {
    400: ("BadRequest", "the request is no HTTP/1.1"),
    414: ("RequestURITooLong", f"the request line is longer than {MAX_LINE} bytes"),
    431: ("RequestHeaderFieldsTooLarge", f"more than {MAX_HEADERS} headers, or one longer than {MAX_FIELD} bytes"),
}


class Door:
    """Makes connections for a server, so many at a time."""

    def __init__(self, manager: web.Server, most: int, patience_s: float) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._manager = manager
        self._most = min(most, max(files - _SPARE_FILES, 16))
        self._inside: set[asyncio.BaseTransport] = set()
        self._empty = asyncio.Event()
        self._closed = False
        #: What takes connections in, each until its handshake is over. Nothing else knows of such a connection.
        self._greetings: set[asyncio.Task[Any]] = set()
        self.patience_s = patience_s

    def __call__(self) -> asyncio.Protocol:
        greeting = asyncio.current_task()
        if greeting is not None:
            self._greetings.add(greeting)
            greeting.add_done_callback(self._greetings.discard)
        made: Any = Connection(self, self._manager, asyncio.get_running_loop())
        protocol: asyncio.Protocol = made
        return protocol

    def let_in(self, pipe: asyncio.BaseTransport) -> bool:
        """Count a connection in; False for one too many, or too late: a handshake may end after the server has."""
        self._inside.add(pipe)
        return len(self._inside) <= self._most and not self._closed

    def let_out(self, pipe: asyncio.BaseTransport | None) -> None:
        if pipe is not None:
            self._inside.discard(pipe)
        if not self._inside:
            self._empty.set()

    async def shut(self, listening: asyncio.Server) -> None:
        """Stop listening, and let nobody in who is still shaking hands.

        Who was accepted is greeted before the server closes: asyncio loses hold of those whose turn would come after.
        """
        self._closed = True
        try:
            for opened in listening.sockets:
                asyncio.get_running_loop().remove_reader(opened.fileno())
            await asyncio.sleep(0)
        finally:
            listening.close()

    async def close(self, within_s: float) -> None:
        """Cut all connections that are left, and wait until they are gone. Call it when the door is shut.

        A client that says nothing in a handshake is not waited for longer than ``within_s``, in seconds.
        """
        for pipe in [*self._inside]:
            if isinstance(pipe, asyncio.WriteTransport):
                pipe.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                if self._greetings:
                    await asyncio.wait(self._greetings)
                self._empty.clear()
                if self._inside:
                    await self._empty.wait()
