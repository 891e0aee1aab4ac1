"""A client connection with the limits that aiohttp lacks: time and size of a request's head, time to send a response, and
errors for input that is not HTTP.

The head of a request is everything before its body. A client that sends it byte by byte is disconnected when the time is
up. Bodies have their own limits where they are read; their bytes never count towards a head, whether a handler reads them
or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from aiohttp import StreamReader, web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from moorage.cluster.apiserver.vocabulary.http_messages import User
from moorage.cluster.apiserver.vocabulary.statuses import ApiError

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
    "ConnectionOwner",
]

#: Maximum size of the request line, of a header field and of the whole head, in bytes.
MAX_LINE: Final = 16 << 10
MAX_FIELD: Final = 64 << 10
MAX_HEAD: Final = 128 << 10
MAX_HEADERS: Final = 128
#: Bytes of a body that are buffered before the handler reads them; up to twice this plus one read.
READ_AHEAD: Final = 32 << 10
#: Number of requests that may queue behind the current one before reading from the socket pauses.
MAX_QUEUED: Final = 2
#: Maximum idle time of a connection between two requests, in seconds.
IDLE_S: Final = 75.0

#: Headers of every response: browsers must not render, execute, frame or cache it.
HEADERS: Final = {
    "Cache-Control": "no-cache, private",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ConnectionOwner(Protocol):
    """The listener that a connection belongs to. ``patience_s`` limits a request's head, ``answer_s`` sending a response."""

    @property
    def patience_s(self) -> float: ...
    @property
    def answer_s(self) -> float: ...
    def on_request(self, connection: Connection) -> None: ...
    def on_idle(self, connection: Connection) -> None: ...
    def on_closed(self, connection: Connection) -> None: ...


class Connection(RequestHandler):
    """One client connection. The handler of its requests calls ``began`` and ``ended``.

    ``when_lost`` is called if the client disconnects during a request. ``holder`` is the user of the client certificate,
    cached by the server.
    """

    __slots__ = (
        "_body",
        "_head_bytes",
        "_head_deadline",
        "_head_timer",
        "_owner",
        "_serving",
        "_transport",
        "holder",
        "when_lost",
    )

    def __init__(self, owner: ConnectionOwner, manager: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager, loop=loop, access_log=None, keepalive_timeout=IDLE_S, lingering_time=owner.patience_s,  # type: ignore[arg-type]
            max_line_size=MAX_LINE, max_field_size=MAX_FIELD, max_headers=MAX_HEADERS, auto_decompress=False,
            read_bufsize=READ_AHEAD,
        )  # fmt: skip
        # aiohttp would queue 32 requests with their bodies. As requests are answered one after the other, that only costs
        # memory.
        self._max_msg_queue_size, self._msg_queue_resume_size = MAX_QUEUED, MAX_QUEUED - 1
        self._owner = owner
        self._head_timer: asyncio.TimerHandle | None = None
        #: Deadline for a request's head; None while none is expected.
        self._head_deadline: float | None = None
        self.holder: User | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._serving = False
        #: Body of the last request whose head is complete. It may still arrive after the response was sent.
        self._body: StreamReader | None = None
        #: Bytes of the next head received so far, without those that arrived together with preceding data.
        self._head_bytes = 0
        self.when_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._transport = transport
        self._set_head_deadline()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel_head_deadline()
        self._owner.on_closed(self)
        if self.when_lost is not None:
            self.when_lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before, in_body = self._request_count, self._in_body
        super().data_received(data)
        is_new = self._request_count != before
        if is_new:
            self._body = self._messages[-1][1]
        # Only the parser knows where in the data a body or a head ended, so data with such an end does not count; it is
        # one read at most.
        self._head_bytes = 0 if in_body or is_new else self._head_bytes + len(data)
        if self._head_bytes > MAX_HEAD:
            self._abort()
        else:
            self._start_head_deadline()

    @property
    def is_connected(self) -> bool:
        """True once the connection is established; ``on_closed`` is called when it closes."""
        return self._transport is not None

    @property
    def _in_body(self) -> bool:
        """True if the next bytes belong to a body."""
        return self._body is not None and not self._body.is_eof()

    def began(self) -> None:
        """Record that a request is being handled."""
        self._serving = True
        self._head_deadline = None
        self._owner.on_request(self)

    def ended(self) -> None:
        """Record that the request is answered."""
        self._serving = False
        self.when_lost = None
        self._owner.on_idle(self)
        self._start_head_deadline()

    def cut(self) -> None:
        """Abort the connection."""
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()

    def _start_head_deadline(self) -> None:
        """Start the deadline of a head that has begun to arrive, unless the server is busy with an earlier request."""
        if self._head_bytes and self._head_deadline is None and not self._serving and not self._messages:
            self._set_head_deadline()

    def _set_head_deadline(self) -> None:
        self._head_deadline = self._loop.time() + self._owner.patience_s
        if self._head_timer is None:
            self._head_timer = self._loop.call_at(self._head_deadline, self._check_head_deadline)

    def _check_head_deadline(self) -> None:
        """Abort if a head is overdue. One timer serves all requests of a connection, as heads are rarely late."""
        self._head_timer = None
        if self._head_deadline is None:
            return
        if self._loop.time() >= self._head_deadline:
            self._abort()
        else:
            self._head_timer = self._loop.call_at(self._head_deadline, self._check_head_deadline)

    def _cancel_head_deadline(self) -> None:
        self._head_deadline = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _abort(self) -> None:
        self._cancel_head_deadline()
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response within the time limit."""
        try:
            async with asyncio.timeout(self._owner.answer_s):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            self._abort()
            return resp, True

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Return the response to input that is not valid HTTP. It never repeats the input, which may contain secrets."""
        if isinstance(exc, LineTooLong):
            status = 414 if exc.args[1] == MAX_LINE else 431
        elif exc is not None and "Too many" in str(exc):
            status = 431
        what, why = _ERRORS.get(status, ("InternalError", "the request could not be answered"))
        if status >= 500 and not isinstance(exc, ConnectionError):  # a client that disconnects is not an error of the server
            self.logger.error("a request failed in the HTTP library: %s", type(exc).__name__)
        body = msgspec.json.encode(ApiError(status, what, why).status())
        response = web.Response(status=status, body=body, headers={"Content-Type": "application/json", **HEADERS})
        response.force_close()
        return response


_ERRORS: Final = {
    400: ("BadRequest", "the request is not HTTP/1.1"),
    414: ("RequestURITooLong", f"the request line is longer than {MAX_LINE} bytes"),
    431: ("RequestHeaderFieldsTooLarge", f"more than {MAX_HEADERS} headers, or one longer than {MAX_FIELD} bytes"),
}
