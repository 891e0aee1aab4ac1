"""A client connection with the limits that aiohttp lacks: time and size of a request's head, time to send a response, and
errors for input that is not HTTP.

The head of a request is everything before its body. A client that sends it byte by byte is disconnected when the time is
up. Bodies have their own limits where they are read; their bytes never count towards a head, whether a handler reads them
or not.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

import msgspec
from aiohttp import StreamReader, web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from moorage.api.documents.http_messages import User
from moorage.api.documents.statuses import ApiError
from moorage.basis.serving.tally import Tally

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


class Connection(RequestHandler):
    """One client connection. The handler of its requests calls ``began`` and ``ended``, as ``answering`` does.

    ``when_lost`` is called if the client disconnects during a request. ``holder`` is the user of the client certificate, and
    ``holds_until`` when that expires, cached by the server.
    """

    __slots__ = (
        "_body", "_head_bytes", "_head_deadline", "_head_timer", "_owner", "_serving", "_transport", "holder", "holds_until",
        "when_lost",
    )  # fmt: skip

    def __init__(self, owner: ConnectionAcceptor, manager: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager, loop=loop, access_log=None, keepalive_timeout=IDLE_S, lingering_time=owner.limits.patience_s,  # type: ignore[arg-type]
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
        self.holds_until = inf
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
        self._head_deadline = self._loop.time() + self._owner.limits.patience_s
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
            async with asyncio.timeout(self._owner.limits.answer_s):
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


@contextmanager
def answering(request: web.BaseRequest) -> Iterator[None]:
    """Tell the connection of a request that it is being answered, and when it is."""
    connection = request.protocol
    if not isinstance(connection, Connection):
        yield
        return
    connection.began()
    try:
        yield
    finally:
        connection.ended()


# -- accepting ---------------------------------------------------------------------------------------------------------
# Accept connections up to a limit, and close unused ones when the limit is reached.
#
# A connection counts from the moment it is accepted, before the TLS handshake. At the limit, the server closes the connection
# that has been without a request for longest, if that is at least a second: first one that never sent a request, then one
# that is idle between two requests. If no connection qualifies, accepting pauses, and clients wait in the kernel's queue. The
# limit reserves file descriptors for everything else, so the server never runs out of them. Connections that never sent a
# request have their own limit, as a handshake holds about 80 KiB of memory.

#: Length of the kernel's queue of pending connections.
BACKLOG: Final = 1024
#: File descriptors reserved for files and outgoing connections: a quarter of the limit, within these bounds.
MIN_RESERVE: Final = 64
MAX_RESERVE: Final = 512
#: Minimum number of connections, however few descriptors there are.
_MIN_CONNECTIONS: Final = 8
#: Maximum number of connections that never sent a request.
MAX_WITHOUT_REQUEST: Final = 1000
#: Seconds without a request after which a connection may be closed to make room.
MIN_UNUSED_S: Final = 1.0
#: Maximum number of connections accepted per turn of the event loop; a handshake takes about a millisecond.
_MAX_PER_TURN: Final = 16
#: Pauses in accepting, in seconds: when no connection can be closed, and after an error such as too few descriptors.
_FULL_S: Final = 0.1
_ERROR_S: Final = 1.0

#: Size in bytes of a TLS connection's receive buffer.
TLS_BUFFER: Final = 32 << 10

_LOG: Final = logging.getLogger(__name__)


def connections_for(wanted: int, descriptors: int) -> int:
    """Return the maximum number of connections of a process with ``descriptors`` as its RLIMIT_NOFILE."""
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    reserve = min(max(descriptors // 4, MIN_RESERVE), MAX_RESERVE)
    return min(wanted, max(descriptors - reserve, _MIN_CONNECTIONS))


@dataclass(frozen=True, slots=True)
class AcceptLimits:
    """Limits of a listener. ``most`` is the maximum number of connections.

    ``patience_s`` limits a handshake and the arrival of a request's head; ``answer_s`` limits sending a response;
    ``farewell_s`` limits the TLS shutdown. ``tls`` of None serves plain HTTP.
    """

    most: int
    patience_s: float
    answer_s: float
    farewell_s: float
    tls: ssl.SSLContext | None = None


class _Tls(SSLProtocol):
    """TLS of one connection with a smaller buffer: asyncio's 256 KiB would be most of what a connection costs."""

    max_size = TLS_BUFFER


class ConnectionAcceptor:
    """Accepts connections for a server. ``open`` starts, ``shut`` stops accepting, ``close`` aborts the remaining
    connections.
    """

    def __init__(self, manager: web.Server, limits: AcceptLimits) -> None:
        self._manager = manager
        self.limits = limits
        self._most = connections_for(limits.most, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._listening: list[socket.socket] = []
        self._connections: set[Connection] = set()
        #: Connections without a request, oldest first, with the time when they were accepted or last got a response.
        self._without_request: dict[Connection, float] = {}
        self._idle: dict[Connection, float] = {}
        #: The task that performs each connection's handshake.
        self._handshakes: dict[Connection, asyncio.Task[None]] = {}
        self._connection_closed = asyncio.Event()
        #: Timer that ends a pause in accepting; None outside a pause.
        self._pause: asyncio.TimerHandle | None = None
        self._tally = Tally("connections", _LOG.warning)
        self._loop = asyncio.get_running_loop()

    def open(self, listening: Iterable[socket.socket]) -> None:
        """Accept connections on listening sockets. ``shut`` closes them."""
        self._listening = [*listening]
        for each in self._listening:
            each.setblocking(False)
        self._accept_again()

    def shut(self) -> None:
        """Stop listening, and cancel all handshakes."""
        self._stop_accepting()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for each in self._listening:
            each.close()
        self._listening = []
        for handshake in self._handshakes.values():
            handshake.cancel()

    async def close(self, within_s: float) -> None:
        """Abort all remaining connections, and wait up to ``within_s`` seconds until they are closed."""
        for connection in self._connections:
            connection.cut()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._connections:
                    self._connection_closed.clear()
                    await self._connection_closed.wait()
        self._tally.close()

    # -- called by connections -----------------------------------------------------------------------------------------

    def on_request(self, connection: Connection) -> None:
        """Record that a connection has received a request."""
        self._forget(connection)
        if self._pause is not None:
            self._end_pause()

    def on_idle(self, connection: Connection) -> None:
        """Record that a connection's request is answered."""
        if connection in self._connections:
            self._idle[connection] = self._loop.time()

    def on_closed(self, connection: Connection) -> None:
        """Record that a connection is closed."""
        self._forget(connection)
        self._connections.discard(connection)
        self._connection_closed.set()
        if self._pause is not None:
            self._end_pause()

    def _forget(self, connection: Connection) -> None:
        self._without_request.pop(connection, None)
        self._idle.pop(connection, None)

    # -- accepting -----------------------------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket) -> None:
        """Accept pending connections. The event loop calls this while there are any."""
        room = min(self._most - len(self._connections), MAX_WITHOUT_REQUEST - len(self._without_request))
        if room <= 0:
            self._make_room()
        for _ in range(min(_MAX_PER_TURN, room)):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._tally.add("accepting failed", error.strerror or type(error).__name__)
                self._pause_for(_ERROR_S)
                return
            self._admit(accepted, str(peer[0]))

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        connection = Connection(self, self._manager, self._loop)
        self._connections.add(connection)
        self._without_request[connection] = self._loop.time()
        handshake = self._loop.create_task(self._handshake(connection, accepted))
        self._handshakes[connection] = handshake
        handshake.add_done_callback(partial(self._handshake_done, connection, accepted, peer))

    async def _handshake(self, connection: Connection, accepted: socket.socket) -> None:
        made: Any = connection
        limits = self.limits
        if limits.tls is None:
            await self._loop.connect_accepted_socket(lambda: made, accepted)
            return
        done = self._loop.create_future()
        tls = _Tls(
            self._loop, made, limits.tls, done, server_side=True,
            ssl_handshake_timeout=limits.patience_s, ssl_shutdown_timeout=limits.farewell_s,  # type: ignore[arg-type]
        )  # fmt: skip
        transport, _ = await self._loop.connect_accepted_socket(lambda: tls, accepted)
        try:
            await done
        except BaseException:
            transport.abort()
            raise

    def _handshake_done(
        self, connection: Connection, accepted: socket.socket, peer: str, handshake: asyncio.Task[None]
    ) -> None:
        self._handshakes.pop(connection, None)
        if not handshake.cancelled():
            error = handshake.exception()
            if error is None and connection.is_connected:
                return
            # A client that closes the connection is no fault: probes only connect, and a client that opens several
            # connections at once closes those it does not need.
            if error is not None and (isinstance(error, ConnectionAbortedError) or not isinstance(error, ConnectionError)):
                self._tally.add("TLS handshake failed", f"{peer}: {_reason(error)}")
        accepted.close()  # the transport may not have taken over the socket yet
        self.on_closed(connection)

    def _make_room(self) -> None:
        """Pause accepting, and close the connection that has been without a request for longest, if it may be closed."""
        self._pause_for(_FULL_S)
        closable_before = self._loop.time() - MIN_UNUSED_S
        for waiting in (self._without_request, self._idle if len(self._connections) >= self._most else {}):
            connection, since = next(iter(waiting.items()), (None, closable_before))
            if connection is not None and since <= closable_before:
                self._tally.add("closed to make room", f"{len(self._connections)} were open")
                self._forget(connection)
                (self._handshakes[connection].cancel if connection in self._handshakes else connection.cut)()
                return
        self._tally.add("accepting paused", f"{len(self._connections)} are open")

    def _pause_for(self, seconds: float) -> None:
        self._stop_accepting()
        if self._pause is None:
            self._pause = self._loop.call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._accept_again()

    def _accept_again(self) -> None:
        for each in self._listening:
            self._loop.add_reader(each.fileno(), self._accept, each)

    def _stop_accepting(self) -> None:
        for each in self._listening:
            self._loop.remove_reader(each.fileno())


def _reason(error: BaseException) -> str:
    """Return why a handshake failed."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "a TLS error").lower().replace("_", " ")
    return "timed out" if isinstance(error, ConnectionAbortedError) else type(error).__name__
