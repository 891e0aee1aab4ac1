"""The door of a server: it accepts connections, so many at a time, and keeps strangers from taking all the room.

A connection counts from the moment it is accepted, before any handshake. When there is no room, the connection that has asked
for nothing for longest is closed, if that is a second or more: first one that never sent a request, then one that is idle
between two requests. While every connection is younger than that or busy, accepting pauses, and clients wait in the kernel's
queue. The server never runs out of file descriptors that way: the limit leaves a reserve of them for everything else. Those
that never sent a request have a limit of their own, as a handshake holds some 80 KiB of memory.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiohttp import web

from moorage.apiserver.http.connections import Connection
from moorage.apiserver.http.tally import Tally

__all__ = [
    "BACKLOG",
    "MAX_RESERVE",
    "MAX_STRANGERS",
    "MIN_RESERVE",
    "SETTLE_S",
    "TLS_BUFFER",
    "Door",
    "Rules",
    "connections_for",
]

#: How many clients wait in the kernel's queue.
BACKLOG: Final = 1024
#: Descriptors that are left for files, for connections to others and for everything else: a quarter, within these bounds.
MIN_RESERVE: Final = 64
MAX_RESERVE: Final = 512
#: Connections that are accepted however few descriptors there are.
_FEWEST: Final = 8
#: How many connections may be open that never sent a request.
MAX_STRANGERS: Final = 1000
#: How long a connection may ask for nothing, in seconds, before it can be closed to make room for another.
SETTLE_S: Final = 1.0
#: How many connections are accepted in one turn of the loop: each may bring a handshake, which costs a millisecond.
_AT_ONCE: Final = 16
#: Pauses in accepting, in seconds: until something can be closed, and after an error such as too few descriptors.
_FULL_S: Final = 0.1
_ERROR_S: Final = 1.0

#: How much of a TLS connection is decrypted at a time, in bytes.
TLS_BUFFER: Final = 32 << 10

_LOG: Final = logging.getLogger(__name__)


def connections_for(wanted: int, descriptors: int) -> int:
    """Return how many connections to allow in a process that may have so many descriptors open (RLIMIT_NOFILE)."""
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    reserve = min(max(descriptors // 4, MIN_RESERVE), MAX_RESERVE)
    return min(wanted, max(descriptors - reserve, _FEWEST))


@dataclass(frozen=True, slots=True)
class Rules:
    """``most`` connections at a time. ``patience_s`` is for a handshake, and for a request's head; ``answer_s`` for the client
    to read an answer; ``farewell_s`` for the end of TLS. ``tls`` None is for plain HTTP.
    """

    most: int
    patience_s: float
    answer_s: float
    farewell_s: float
    tls: ssl.SSLContext | None = None


class _Tls(SSLProtocol):
    """TLS of one connection. asyncio holds a buffer of 256 KiB for each, idle or not, which is most of what one costs."""

    max_size = TLS_BUFFER


class Door:
    """Makes connections for a server. Call ``open``, then ``shut`` to accept no more, then ``close`` to cut what is left."""

    def __init__(self, manager: web.Server, rules: Rules) -> None:
        self._manager = manager
        self._rules = rules
        self._most = connections_for(rules.most, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._listening: list[socket.socket] = []
        self._inside: set[Connection] = set()
        #: Connections without a request, oldest first, each with when it was accepted or last answered.
        self._strangers: dict[Connection, float] = {}
        self._idle: dict[Connection, float] = {}
        #: What takes connections in, each until its handshake is over.
        self._greetings: dict[Connection, asyncio.Task[None]] = {}
        self._left = asyncio.Event()
        #: Ends a pause in accepting; None while there is no pause.
        self._pause: asyncio.TimerHandle | None = None
        self._tally = Tally("connections", _LOG.warning)
        self._loop = asyncio.get_running_loop()

    @property
    def patience_s(self) -> float:
        return self._rules.patience_s

    @property
    def answer_s(self) -> float:
        return self._rules.answer_s

    def open(self, listening: Iterable[socket.socket]) -> None:
        """Accept connections on sockets that listen. They are closed when the door is shut."""
        self._listening = [*listening]
        for each in self._listening:
            each.setblocking(False)
        self._accept_again()

    def shut(self) -> None:
        """Stop listening, and break off all handshakes."""
        self._stop_accepting()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        for each in self._listening:
            each.close()
        self._listening = []
        for greeting in self._greetings.values():
            greeting.cancel()

    async def close(self, within_s: float) -> None:
        """Cut all connections that are left, and wait until they are gone, for ``within_s`` seconds at most."""
        for connection in self._inside:
            connection.cut()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._inside:
                    self._left.clear()
                    await self._left.wait()
        self._tally.close()

    # -- what connections say -------------------------------------------------------------------------------------------

    def asks(self, connection: Connection) -> None:
        """Note that a connection has a request to be answered."""
        self._forget(connection)
        if self._pause is not None:
            self._end_pause()

    def rests(self, connection: Connection) -> None:
        """Note that a connection's request was answered."""
        if connection in self._inside:
            self._idle[connection] = self._loop.time()

    def leaves(self, connection: Connection) -> None:
        """Note that a connection is closed."""
        self._forget(connection)
        self._inside.discard(connection)
        self._left.set()
        if self._pause is not None:
            self._end_pause()

    def _forget(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        self._idle.pop(connection, None)

    # -- accepting ------------------------------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket) -> None:
        """Accept the clients that wait. The loop calls this only while there is one."""
        room = min(self._most - len(self._inside), MAX_STRANGERS - len(self._strangers))
        if room <= 0:
            self._make_room()
        for _ in range(min(_AT_ONCE, room)):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._tally.add("accepting failed", error.strerror or type(error).__name__)
                self._pause_for(_ERROR_S)
                return
            self._let_in(accepted, str(peer[0]))

    def _let_in(self, accepted: socket.socket, peer: str) -> None:
        connection = Connection(self, self._manager, self._loop)
        self._inside.add(connection)
        self._strangers[connection] = self._loop.time()
        greeting = self._loop.create_task(self._greet(connection, accepted))
        self._greetings[connection] = greeting
        greeting.add_done_callback(partial(self._greeted, connection, accepted, peer))

    async def _greet(self, connection: Connection, accepted: socket.socket) -> None:
        made: Any = connection
        rules = self._rules
        if rules.tls is None:
            await self._loop.connect_accepted_socket(lambda: made, accepted)
            return
        done = self._loop.create_future()
        tls = _Tls(
            self._loop, made, rules.tls, done, server_side=True,
            ssl_handshake_timeout=rules.patience_s, ssl_shutdown_timeout=rules.farewell_s,  # type: ignore[arg-type]
        )  # fmt: skip
        transport, _ = await self._loop.connect_accepted_socket(lambda: tls, accepted)
        try:
            await done
        except BaseException:
            transport.abort()
            raise

    def _greeted(self, connection: Connection, accepted: socket.socket, peer: str, greeting: asyncio.Task[None]) -> None:
        self._greetings.pop(connection, None)
        if not greeting.cancelled():
            error = greeting.exception()
            if error is None and connection.is_made:
                return
            if error is not None:
                self._tally.add("TLS handshake failed", f"{peer}: {_reason(error)}")
        accepted.close()  # the transport may never have had it
        self.leaves(connection)

    def _make_room(self) -> None:
        """Pause until a connection is closed. Close the one that has asked for nothing for longest, if that is long enough."""
        self._pause_for(_FULL_S)
        ripe = self._loop.time() - SETTLE_S
        for waiting in (self._strangers, self._idle if len(self._inside) >= self._most else {}):
            connection, since = next(iter(waiting.items()), (None, ripe))
            if connection is not None and since <= ripe:
                self._tally.add("closed for want of room", f"{len(self._inside)} were open")
                self._drop(connection)
                return
        self._tally.add("accepting paused", f"{len(self._inside)} are open")

    def _drop(self, connection: Connection) -> None:
        self._forget(connection)
        greeting = self._greetings.get(connection)
        if greeting is not None:
            greeting.cancel()
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
    """Say why a handshake failed."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "a TLS error").lower().replace("_", " ")
    if isinstance(error, ConnectionAbortedError):
        return "timed out"
    return "closed by the client" if isinstance(error, ConnectionError) else type(error).__name__
