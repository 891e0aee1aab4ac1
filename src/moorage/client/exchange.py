"""A pool of HTTP/1.1 keep-alive connections for short requests: binds, events and patches.

A general HTTP library costs several times the work of a binding itself. Here a request is one write, and a response is parsed
as it arrives. A connection carries one request at a time, or several that are sent together; when all are in use, requests
wait in order. Redirects, cookies, compression and proxies are not supported.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from moorage.client.pooled_connection import NEVER, Answer, PooledConnection, Reply, UnsentError
from moorage.errors import ClusterError

__all__ = ["ConnectionPool", "Reply", "UnsentError"]

#: Maximum number of connections; kube-apiserver's HTTP/2 allows 250 streams on one.
_MAX_CONNECTIONS: Final = 64
#: Idle time in seconds after which a connection is not reused, as the server may be about to close it.
_MAX_IDLE_S: Final = 15.0
_CONNECT_S: Final = 10.0


class ConnectionPool:
    """A pool of connections to one server. ``server_name`` is the name in its certificate."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, server_name: str = "") -> None:
        self._host, self._port, self._tls = host, port, tls
        self._server_name = (server_name or host) if tls is not None else None
        self._idle: list[PooledConnection] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._connections: dict[PooledConnection, None] = {}
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
        response: asyncio.Future[Reply] = loop.create_future()
        self._send(connection, request, [partial(_resolve, response)], most, timeout_s, check, loop)
        try:
            return await response
        except asyncio.CancelledError:
            connection.close()
            raise

    def send_soon(
        self, requests: bytes, answers: Sequence[Answer], most: int, timeout_s: float, check: Callable[[], None]
    ) -> bool:
        """Send one request or several, if a connection is idle, and return True. ``answers``: see ``PooledConnection.send``.

        Return False if there is none, and call nothing.

        Raises  OSError; what ``check`` raises
        """
        loop = asyncio.get_running_loop()
        connection = self._idle_connection(loop.time())
        if connection is None:
            return False
        self._send(connection, requests, answers, most, timeout_s, check, loop)
        return True

    def _send(
        self,
        connection: PooledConnection,
        requests: bytes,
        answers: Sequence[Answer],
        most: int,
        timeout_s: float,
        check: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        try:
            check()
            deadline = loop.time() + timeout_s
            try:
                connection.send(requests, answers, most, deadline, timeout_s)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            self._release(connection)
            raise
        self._arm_timer(deadline, loop)

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
        next_due = NEVER
        for connection in list(self._connections):
            if connection.deadline <= now:
                connection.time_out()
            next_due = min(next_due, connection.deadline)
        if next_due < NEVER:
            self._arm_timer(next_due, loop)

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _acquire(self, loop: asyncio.AbstractEventLoop) -> PooledConnection:
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

    def _idle_connection(self, now: float) -> PooledConnection | None:
        """Return the connection that was idle for the shortest time; close those that were idle for too long."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and now - connection.idle_since < _MAX_IDLE_S:
                return connection
            self._drop(connection)
        return None

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> PooledConnection:
        self._count += 1
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: PooledConnection(self._tls, self._server_name, self._session, self._release),
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
    async def _wait_until_ready(connection: PooledConnection) -> None:
        try:
            await connection.ready
        except BaseException:
            connection.close()
            raise

    def _release(self, connection: PooledConnection) -> None:
        if connection.usable and not self._closed:
            if not connection.idle_since:
                self._session = connection.session
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            self._drop(connection)
        self._wake_waiter()

    def _drop(self, connection: PooledConnection) -> None:
        connection.close()
        self._connections.pop(connection, None)
        self._count -= 1

    def _wake_waiter(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


def _resolve(response: asyncio.Future[Reply], answer: Reply | ClusterError) -> None:
    if response.done():  # cancelled
        return
    if isinstance(answer, Reply):
        response.set_result(answer)
    else:
        response.set_exception(answer)
