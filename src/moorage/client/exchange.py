"""A pool of HTTP/1.1 keep-alive connections for short requests: binds, events and patches.

A general HTTP library costs several times the work of a binding itself. Here a request is one write, and the response is
parsed as it arrives: status, headers, and a body with a length, in chunks, or up to the end of the connection. A connection
carries one request at a time; when all are in use, requests wait in order. Redirects, cookies, compression and proxies are
not supported.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from moorage.client.channel import Channel
from moorage.errors import ClusterError

__all__ = ["ConnectionPool", "Reply", "UnsentError"]

#: Maximum number of connections; kube-apiserver's HTTP/2 allows 250 streams on one.
_MAX_CONNECTIONS: Final = 64
#: Idle time in seconds after which a connection is not reused, as the server may be about to close it.
_MAX_IDLE_S: Final = 15.0
_MAX_HEAD: Final = 1 << 16
_CONNECT_S: Final = 10.0
#: The headers that are parsed; all others are ignored.
_HEADERS: Final = re.compile(
    rb"\r\n(connection|content-length|retry-after|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n|$)", re.IGNORECASE
)
#: Start of a response with a body.
_STATUS: Final = re.compile(rb"HTTP/1\.1 (?!204|304)([2-9]\d\d) ([^\r\n]*)").match
_NEVER: Final = float("inf")


class Reply(NamedTuple):
    """A response. ``phrase`` is the status text; ``headers`` are the parsed headers, in lower case."""

    status: int
    phrase: str
    headers: dict[str, str]
    body: bytes


class UnsentError(ClusterError):
    """The server closed an idle connection without a response, most likely before it received the request."""


class _PooledConnection(Channel):
    """One pooled connection. ``deadline`` is when the pending response is due, on the loop's clock."""

    def __init__(self, tls: ssl.SSLContext | None, server_name: str | None, session: ssl.SSLSession | None) -> None:
        super().__init__(tls, server_name, session)
        self.idle_since = 0.0
        self.deadline = _NEVER
        self._timeout_s = 0.0
        self._used = False
        self._response: asyncio.Future[Reply] | None = None
        self._received = bytearray()
        self._most = 0
        self._head: tuple[int, str, dict[str, str]] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._keep_alive = True

    @property
    def usable(self) -> bool:
        # Unsolicited data would be taken for the response to the next request.
        return self._keep_alive and not self._received and self.is_open

    def close(self) -> None:
        self._keep_alive = False
        super().close()

    def request(self, request: bytes, most: int, deadline: float, timeout_s: float) -> asyncio.Future[Reply]:
        """Send a request and return the future of its response. The caller calls ``finish`` when it stops waiting.

        The future holds a ClusterError if there is no response, if it exceeds ``most`` bytes, or if it is not HTTP.

        Raises  OSError if the request cannot be sent
        """
        response: asyncio.Future[Reply] = self.ready.get_loop().create_future()
        self._response, self.deadline, self._timeout_s, self._most = response, deadline, timeout_s, most
        self._head, self._parts, self._size = None, [], 0
        self.send_message(request)
        return response

    def finish(self) -> None:
        """Record that no request is pending."""
        self._response, self.deadline, self._used = None, _NEVER, True

    def time_out(self) -> None:
        """Fail the pending response, whose deadline has passed."""
        self.fail(ClusterError(f"no answer within {self._timeout_s:g}s"))

    def fail(self, error: ClusterError) -> None:
        """Fail the pending response."""
        self.deadline = _NEVER
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)

    # -- called by Channel ---------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        if self._response is None or self._response.done():
            self._received += data
            self.close()
            return
        if not self._received and self._head is None:
            reply = _simple_reply(data, self._most)
            if reply is not None:
                self._response.set_result(reply)
                return
        self._received += data
        try:
            body = self._read()
        except (ValueError, IndexError) as error:
            self.fail(ClusterError(f"the answer is not HTTP: {error}"))
            return
        if self._size > self._most:
            self.fail(ClusterError(f"the answer is longer than {self._most} bytes"))
        elif body is not None:
            self._complete(body)

    def closed(self, error: Exception | None) -> None:
        self._keep_alive = False
        if self._response is None or self._response.done():
            return
        if error is None and self._head is not None and not _is_framed(self._head[2]):
            self._complete(bytes(self._received))
        elif self._used and self._head is None and not self._received:
            self.fail(UnsentError("Server disconnected"))
        else:
            self.fail(ClusterError(str(error or "") or "Server disconnected"))

    def _complete(self, body: bytes) -> None:
        if self._response is not None and self._head is not None:
            self._response.set_result(Reply(*self._head, body))

    # -- parsing -------------------------------------------------------------------------------------------------------

    def _read(self) -> bytes | None:
        """Parse the data received so far, and return the body once it is complete.

        Raises  ValueError, IndexError if it is not HTTP
        """
        while self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > _MAX_HEAD:
                    raise ValueError("its head does not end")
                return None
            version, status, phrase, headers = _head(bytes(self._received[:end]))
            del self._received[: end + 4]
            if status >= 200:  # 1xx responses only announce the final one
                self._head = status, phrase, headers
                self._keep_alive = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        return self._body(self._head[0], self._head[2])

    def _body(self, status: int, headers: dict[str, str]) -> bytes | None:
        if status in {204, 304}:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        length = headers.get("content-length")
        if length is None:
            self._keep_alive, self._size = False, len(self._received)
            return None
        wanted = self._size = _number(length, 10)
        if len(self._received) < wanted:
            return None
        body = bytes(self._received[:wanted])
        del self._received[:wanted]
        return body

    def _chunks(self) -> bytes | None:
        """Parse complete chunks, and return the body after the last one."""
        while True:
            end = self._received.find(b"\r\n")
            if end < 0:
                if len(self._received) > _MAX_HEAD:
                    raise ValueError("a chunk has no length")
                return None
            length = _number(self._received[:end].partition(b";")[0].decode("ascii").strip(), 16)
            if length == 0:
                return self._trailer(end)
            if self._size + length > self._most:
                self._size += length
                return None
            if len(self._received) < end + length + 4:
                return None
            self._parts.append(bytes(self._received[end + 2 : end + 2 + length]))
            self._size += length
            if self._received[end + 2 + length : end + length + 4] != b"\r\n":
                raise ValueError("a chunk is longer than it says")
            del self._received[: end + length + 4]

    def _trailer(self, start: int) -> bytes | None:
        end = self._received.find(b"\r\n\r\n", start)
        if end < 0:
            return None
        del self._received[: end + 4]
        return b"".join(self._parts)


def _simple_reply(data: bytes, most: int) -> Reply | None:
    """Return a response in the usual form: complete, with a length, on a keep-alive connection.

    None for any other, which ``_read`` parses.
    """
    begins, end = _STATUS(data), data.find(b"\r\n\r\n")
    if begins is None or end < 0:
        return None
    found = _HEADERS.findall(data, 0, end)
    if len(found) != 1 or found[0][0].lower() != b"content-length":
        return None
    length = found[0][1]
    if not length.isdigit() or len(length) > 15 or int(length) > most or len(data) != end + 4 + int(length):
        return None
    return Reply(int(begins[1]), begins[2].decode("latin-1"), {"content-length": length.decode()}, data[end + 4 :])


def _head(raw: bytes) -> tuple[str, int, str, dict[str, str]]:
    first = raw.partition(b"\r\n")[0].decode("latin-1")
    version, _, finish = first.partition(" ")
    code, _, phrase = finish.partition(" ")
    if version not in {"HTTP/1.1", "HTTP/1.0"} or len(code) != 3:
        raise ValueError(f"it begins with {first[:40]!r}")
    found = _HEADERS.findall(raw)
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in found}
    if len(headers) < len(found):
        raise ValueError("a header that stands once stands twice")
    return version, _number(code, 10), phrase, headers


def _number(text: str, base: int) -> int:
    if not text.isalnum() or not text.isascii() or len(text) > 15:
        raise ValueError(f"{text[:40]!r} is no length")
    return int(text, base)


def _is_framed(headers: dict[str, str]) -> bool:
    return "content-length" in headers or "transfer-encoding" in headers


class ConnectionPool:
    """A pool of connections to one server. ``server_name`` is the name in its certificate."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, server_name: str = "") -> None:
        self._host, self._port, self._tls = host, port, tls
        self._server_name = (server_name or host) if tls is not None else None
        self._idle: list[_PooledConnection] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._connections: dict[_PooledConnection, None] = {}
        self._session: ssl.SSLSession | None = None
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def request(self, request: bytes, most: int, timeout_s: float, check: Callable[[], None]) -> Reply:
        """Send a request and return its response. ``check`` is called right before sending, and may raise.

        Raises  ClusterError for no response, a timeout, a response of more than ``most`` bytes or not in HTTP; OSError;
                what ``check`` raises
        """
        loop = asyncio.get_running_loop()
        connection = self._idle_connection(loop.time()) or await self._acquire(loop)
        try:
            check()
            deadline = loop.time() + timeout_s
            try:
                response = connection.request(request, most, deadline, timeout_s)
                self._arm_timer(deadline, loop)
                return await response
            except BaseException:
                connection.close()
                raise
            finally:
                connection.finish()
        finally:
            self._release(connection)

    def close(self) -> None:
        """Close all connections; those in use when their request ends."""
        self._closed = True
        for connection in self._idle:
            self._drop(connection)
        self._idle.clear()

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def _arm_timer(self, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        """Arm the timer for a deadline. One timer serves all connections, as responses are rarely late."""
        if self._timer is None or deadline < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(deadline, self._check_deadlines, deadline, loop)

    def _check_deadlines(self, now: float, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        next_due = _NEVER
        for connection in list(self._connections):
            if connection.deadline <= now:
                connection.time_out()
            next_due = min(next_due, connection.deadline)
        if next_due < _NEVER:
            self._arm_timer(next_due, loop)

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _acquire(self, loop: asyncio.AbstractEventLoop) -> _PooledConnection:
        queue = self._waiting.append
        while True:
            connection = self._idle_connection(loop.time())
            if connection is not None:
                return connection
            if self._count < _MAX_CONNECTIONS:
                return await self._connect(loop)
            turn: asyncio.Future[None] = loop.create_future()
            queue(turn)
            queue = self._waiting.appendleft  # a request that lost its turn to another keeps its place
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake_waiter()
                raise

    def _idle_connection(self, now: float) -> _PooledConnection | None:
        """Return the connection that was idle for the shortest time; close those that were idle for too long."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and now - connection.idle_since < _MAX_IDLE_S:
                return connection
            self._drop(connection)
        return None

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> _PooledConnection:
        self._count += 1
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: _PooledConnection(self._tls, self._server_name, self._session),
                    self._host,
                    self._port,
                    happy_eyeballs_delay=0.25,
                )
                await self._wait_until_ready(connection)
        except BaseException:
            self._count -= 1
            self._wake_waiter()
            raise
        self._connections[connection] = None
        return connection

    @staticmethod
    async def _wait_until_ready(connection: _PooledConnection) -> None:
        try:
            await connection.ready
        except BaseException:
            connection.close()
            raise

    def _release(self, connection: _PooledConnection) -> None:
        if connection.usable and not self._closed:
            if not connection.idle_since:
                self._session = connection.session
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            self._drop(connection)
        self._wake_waiter()

    def _drop(self, connection: _PooledConnection) -> None:
        connection.close()
        self._connections.pop(connection, None)
        self._count -= 1

    def _wake_waiter(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
