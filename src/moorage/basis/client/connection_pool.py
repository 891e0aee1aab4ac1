"""A pool of HTTP/1.1 keep-alive connections for requests and whole responses: lists, binds, events and patches.

A general HTTP library costs several times the work of a binding itself. Here a request is one write, and httptools parses the
responses. A connection carries one request at a time, or several that are sent together; when all are in use, requests wait in
order. Redirects, cookies and compression are not supported.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from moorage.basis.client.pooled_connection import NEVER, PooledConnection, Reply, ResponseHandler
from moorage.basis.client.response_stream import ServerAddress, connect, connecting, error_text
from moorage.errors import ClusterError, MoorageError

#: Maximum number of connections; kube-apiserver's HTTP/2 allows 250 streams on one.
_MAX_CONNECTIONS: Final = 32
#: Idle time in seconds after which a connection is not reused, as the server may be about to close it.
_MAX_IDLE_S: Final = 15.0
#: How many connections are opened at a time for requests that may share one. A handshake costs as much as several binds.
_OPENING: Final = 2
#: Maximum number of waiting batches of requests that are sent together over one connection.
_TOGETHER: Final = 8


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """Requests to send soon, with the same limits. ``answers`` get the responses by the requests' indexes.

    ``apart``: the requests may go over several connections, in any order. Otherwise they go over one, in their order.
    ``alone``: nothing else is sent with them. ``check`` is called right before sending and may raise a MoorageError, which
    ``answers`` get.
    """

    requests: Sequence[bytes]
    answers: ResponseHandler
    most: int
    timeout_s: float
    check: Callable[[], None] = lambda: None
    apart: bool = False
    alone: bool = False


class _Queued(NamedTuple):
    """Requests that wait for a connection: those of a batch with these indexes."""

    batch: RequestBatch
    which: range

    def fail(self, error: MoorageError) -> None:
        for at in self.which:
            self.batch.answers.ended(at, error)


class _Response:
    """The answer to one request, as a future."""

    is_brief = False

    def __init__(self, future: asyncio.Future[Reply]) -> None:
        self._future = future

    def succeeded(self, which: Sequence[int], status: int) -> None:
        """Do nothing: the answer is not brief."""

    def ended(self, at: int, answer: Reply | MoorageError) -> None:
        if self._future.done():  # cancelled
            return
        if isinstance(answer, Reply):
            self._future.set_result(answer)
        else:
            self._future.set_exception(answer)


class ConnectionPool:
    """A pool of connections to one server."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._idle: list[PooledConnection] = []
        #: The requests that wait for a connection, and the tasks that open connections for them.
        self._queue: deque[_Queued] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._connections: dict[PooledConnection, None] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def request(self, request: bytes, most: int, timeout_s: float, check: Callable[[], None]) -> Reply:
        """Send a request and return its response. ``check`` is called right before sending, and may raise a MoorageError.

        Raises  ClusterError for no response, a timeout, a response of more than ``most`` bytes or not in HTTP; what ``check``
                raises
        """
        response: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        answers = _Response(response)

        def checked() -> None:
            if response.done():
                raise MoorageError("cancelled")
            check()

        self.send_soon(RequestBatch([request], answers, most, timeout_s, checked, alone=True))
        try:
            return await response
        except asyncio.CancelledError:
            for connection in [one for one in self._connections if one.answers(answers)]:
                connection.close()
            raise

    def send_soon(self, batch: RequestBatch) -> None:
        """Send requests at once, or when a connection becomes idle."""
        count = len(batch.requests)
        if batch.apart:
            self._queue.extend([_Queued(batch, range(at, at + 1)) for at in range(count)])
        else:
            self._queue.append(_Queued(batch, range(count)))
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._queue:
            connection = self._idle_connection(now)
            if connection is None:
                self._open_for_queue(loop)
                return
            self._release(connection)

    def _send_queued(self, connection: PooledConnection) -> bool:
        """Send waiting requests over an idle connection, several if many wait. Return whether any was sent."""
        loop = asyncio.get_running_loop()
        sent = self._next_in_queue()
        if not sent:
            return False
        timeout_s = min([one.batch.timeout_s for one in sent])
        deadline = loop.time() + timeout_s
        requests = [one.batch.requests[at] for one in sent for at in one.which]
        pending = [(one.batch.answers, at) for one in sent for at in one.which]
        connection.send(b"".join(requests), pending, max([one.batch.most for one in sent]), deadline, timeout_s)
        self._arm_timer(deadline, loop)
        return True

    def _next_in_queue(self) -> list[_Queued]:
        """Remove and return waiting requests to send together. Those whose check fails end with its error."""
        most_now = min(_TOGETHER, 1 + len(self._queue) // self._count)
        sent: list[_Queued] = []
        checked: RequestBatch | None = None
        while self._queue and len(sent) < most_now and not (sent and self._queue[0].batch.alone):
            one = self._queue.popleft()
            if one.batch is not checked:
                try:
                    one.batch.check()
                except MoorageError as error:
                    one.fail(error)
                    continue
                checked = one.batch
            sent.append(one)
            if one.batch.alone:
                break
        return sent

    def _open_for_queue(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open another connection, unless enough are being opened for the waiting requests or the maximum is reached."""
        alone = bool(self._queue) and self._queue[-1].batch.alone
        most = len(self._queue) if alone else min(_OPENING, len(self._queue))
        if len(self._opening) < most and self._count < _MAX_CONNECTIONS:
            self._count += 1
            task = loop.create_task(self._open(loop), name="open a connection")
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        fault: OSError | ClusterError | UnicodeError | None = None
        try:
            async with connecting():
                _, connection = await connect(self.address, lambda: PooledConnection(self._release))
        except BaseException as error:
            self._count -= 1
            if not isinstance(error, (OSError, ClusterError, UnicodeError)):
                raise
            fault = error
        self._opening.discard(asyncio.current_task())
        if fault is None:
            self._connections[connection] = None
            self._release(connection)
            if self._queue:
                self._open_for_queue(loop)
        elif not self._count:  # no other connection can send the waiting requests
            failed, self._queue = self._queue, deque()
            for one in failed:
                one.fail(fault if isinstance(fault, ClusterError) else ClusterError(error_text(fault)))

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

    def _idle_connection(self, now: float) -> PooledConnection | None:
        """Return the connection that was idle for the shortest time; close those that were idle for too long."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and now - connection.idle_since < _MAX_IDLE_S:
                return connection
            self._drop(connection)
        return None

    def _release(self, connection: PooledConnection) -> None:
        if connection.usable and self._queue and self._send_queued(connection):
            return
        if connection.usable and not self._closed:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            self._drop(connection)

    def _drop(self, connection: PooledConnection) -> None:
        connection.close()
        self._connections.pop(connection, None)
        self._count -= 1
        if self._queue:
            self._open_for_queue(asyncio.get_running_loop())
