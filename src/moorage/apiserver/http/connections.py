"""A client's connection, with the limits that aiohttp leaves open: how long and how large the head of a request may be, how
long a client may take to read an answer, and what is said to those who do not speak HTTP.

A request's head is what comes before its body. Who sends it byte by byte is cut off when the time is up. A body has limits of
its own, where it is read: its bytes never count as a head, whether a handler reads them or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from aiohttp import StreamReader, web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from moorage.apiserver.vocabulary.statuses import ApiError
from moorage.apiserver.vocabulary.users import User

__all__ = [
    "HEADERS",
    "IDLE_S",
    "MAX_FIELD",
    "MAX_HEAD",
    "MAX_HEADERS",
    "MAX_LINE",
    "MAX_QUEUED",
    "READ_AHEAD",
    "Connection",
    "Host",
]

#: Longest request line, longest header field, and all of a request's head, in bytes.
MAX_LINE: Final = 16 << 10
MAX_FIELD: Final = 64 << 10
MAX_HEAD: Final = 128 << 10
MAX_HEADERS: Final = 128
#: How much of a body is read before it is wanted, in bytes: up to twice this, and one read more.
READ_AHEAD: Final = 32 << 10
#: How many requests may wait behind the one that is answered before nothing more is read.
MAX_QUEUED: Final = 2
#: How long a connection may be idle between two requests, in seconds.
IDLE_S: Final = 75.0

#: What every answer carries: it is data, no page may show it or run it, and nobody keeps a copy.
HEADERS: Final = {
    "Cache-Control": "no-cache, private",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Host(Protocol):
    """Who a connection belongs to. ``patience_s`` is for a request's head, ``answer_s`` for reading an answer."""

    @property
    def patience_s(self) -> float: ...
    @property
    def answer_s(self) -> float: ...
    def asks(self, connection: Connection) -> None: ...
    def rests(self, connection: Connection) -> None: ...
    def leaves(self, connection: Connection) -> None: ...


class Connection(RequestHandler):
    """One connection. ``began`` and ``ended`` are called by whoever handles its requests.

    ``when_lost`` is called if the client goes away while a request is served. ``holder`` is whom the client's certificate is
    made out to, once somebody has looked.
    """

    __slots__ = ("_body", "_due", "_head", "_host", "_late", "_pipe", "_serving", "holder", "when_lost")

    def __init__(self, host: Host, manager: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager, loop=loop, access_log=None, keepalive_timeout=IDLE_S, lingering_time=host.patience_s,  # type: ignore[arg-type]
            max_line_size=MAX_LINE, max_field_size=MAX_FIELD, max_headers=MAX_HEADERS, auto_decompress=False,
            read_bufsize=READ_AHEAD,
        )  # fmt: skip
        # aiohttp reads 32 requests ahead, each with its body: for nothing but memory, as one is answered after the other.
        self._max_msg_queue_size, self._msg_queue_resume_size = MAX_QUEUED, MAX_QUEUED - 1
        self._host = host
        self._late: asyncio.TimerHandle | None = None
        #: When the head of a request must be complete; None while none is awaited.
        self._due: float | None = None
        self.holder: User | None = None
        self._pipe: asyncio.BaseTransport | None = None
        self._serving = False
        #: The body of the last request whose head is complete. It may still be coming when the request is answered already.
        self._body: StreamReader | None = None
        #: How many bytes of the next head are here, not counting those that came in one piece with what precedes it.
        self._head = 0
        self.when_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._pipe = transport
        self._wait_for_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_looking()
        self._host.leaves(self)
        if self.when_lost is not None:
            self.when_lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before, in_body = self._request_count, self._in_body
        super().data_received(data)
        is_new = self._request_count != before
        if is_new:
            self._body = self._messages[-1][1]
        # The parser alone knows where in a piece a body or a head ended, so a piece with such an end counts for nothing: it
        # is one read at most.
        self._head = 0 if in_body or is_new else self._head + len(data)
        if self._head > MAX_HEAD:
            self._hang_up()
        else:
            self._time_head()

    @property
    def is_made(self) -> bool:
        """Return True once the connection was made, its handshake over; ``leaves`` is called when it is lost."""
        return self._pipe is not None

    @property
    def _in_body(self) -> bool:
        """Return True if what comes next belongs to a body."""
        return self._body is not None and not self._body.is_eof()

    def began(self) -> None:
        """Note that a request is served from now on."""
        self._serving = True
        self._due = None
        self._host.asks(self)

    def ended(self) -> None:
        """Note that the request was answered."""
        self._serving = False
        self.when_lost = None
        self._host.rests(self)
        self._time_head()

    def cut(self) -> None:
        """Close the connection at once, whatever goes on."""
        if isinstance(self._pipe, asyncio.WriteTransport):
            self._pipe.abort()

    def _time_head(self) -> None:
        """Give a head that has begun so long to be complete, unless it has to wait for us."""
        if self._head and self._due is None and not self._serving and not self._messages:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        self._due = self._loop.time() + self._host.patience_s
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

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer, if the client reads it in time."""
        try:
            async with asyncio.timeout(self._host.answer_s):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            self._hang_up()
            return resp, True

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what is no HTTP. Nothing of it is repeated, as there may be secrets in it."""
        if isinstance(exc, LineTooLong):
            status = 414 if exc.args[1] == MAX_LINE else 431
        elif exc is not None and "Too many" in str(exc):
            status = 431
        what, why = _REFUSALS.get(status, ("InternalError", "the request could not be answered"))
        if status >= 500 and not isinstance(exc, ConnectionError):  # a client that goes away is no fault of ours
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
