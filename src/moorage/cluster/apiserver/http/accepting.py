"""Accept connections up to a limit, and close unused ones when the limit is reached.

A connection counts from the moment it is accepted, before the TLS handshake. At the limit, the server closes the connection
that has been without a request for longest, if that is at least a second: first one that never sent a request, then one
that is idle between two requests. If no connection qualifies, accepting pauses, and clients wait in the kernel's queue. The
limit reserves file descriptors for everything else, so the server never runs out of them. Connections that never sent a
request have their own limit, as a handshake holds about 80 KiB of memory.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiohttp import web

from moorage.cluster.apiserver.http.connections import Connection

__all__ = [
    "BACKLOG", "MAX_RESERVE", "MAX_WITHOUT_REQUEST", "MIN_RESERVE", "MIN_UNUSED_S", "TLS_BUFFER", "AcceptLimits",
    "ConnectionAcceptor", "Tally", "connections_for",
]  # fmt: skip


# -- tally -------------------------------------------------------------------------------------------------------------
# Count recurring errors, and log them in at most one line a minute.

#: Minimum number of seconds between two log lines.
EVERY_S: Final = 60.0


class Tally:
    """Log the first error at once; count later ones and log their number when the interval is over.

    ``say`` writes a line, which starts with ``subject``.
    """

    def __init__(self, subject: str, say: Callable[[str], None], every_s: float = EVERY_S) -> None:
        self._subject = subject
        self._say = say
        self._every_s = every_s
        self._counts: Counter[str] = Counter()
        self._details: dict[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, what: str, detail: str = "") -> None:
        """Count an error. The line shows the latest ``detail`` of each kind."""
        self._counts[what] += 1
        self._details[what] = detail
        if self._timer is None:
            self._flush()

    def close(self) -> None:
        """Stop logging."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._counts.clear()

    def _flush(self) -> None:
        self._timer = None
        if not self._counts:
            return
        parts = [_times(what, count, self._details[what]) for what, count in self._counts.items()]
        self._counts.clear()
        self._details.clear()
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._flush)
        self._say(f"{self._subject}: {'; '.join(parts)}")


def _times(what: str, count: int, detail: str) -> str:
    often = "once" if count == 1 else f"{count} times"
    return f"{what} {often} ({'' if count == 1 else 'last: '}{detail})" if detail else f"{what} {often}"


# -- accepting ---------------------------------------------------------------------------------------------------------

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
        self._limits = limits
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

    @property
    def patience_s(self) -> float:
        return self._limits.patience_s

    @property
    def answer_s(self) -> float:
        return self._limits.answer_s

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
        limits = self._limits
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
            if error is not None and not _is_closed_by_client(error):
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
                self._drop(connection)
                return
        self._tally.add("accepting paused", f"{len(self._connections)} are open")

    def _drop(self, connection: Connection) -> None:
        self._forget(connection)
        handshake = self._handshakes.get(connection)
        if handshake is not None:
            handshake.cancel()
        else:
            connection.cut()

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


def _is_closed_by_client(error: BaseException) -> bool:
    """Return True if the client closed the connection before the handshake ended.

    That is no fault: probes only connect, and a client that opens several connections at once closes those it does not need.
    """
    return isinstance(error, ConnectionError) and not isinstance(error, ConnectionAbortedError)
