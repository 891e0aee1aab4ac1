"""How much at once: seats for requests and for watches, shared so that one busy client cannot take them all.

A client that has all its seats taken waits a little for one of them, as bursts are no fault; after that, and where the
server as a whole is full, it is told to come again later (429).

Source  apiserver, pkg/server/config.go (MaxRequestsInFlight) and filters/maxinflight.go, for the numbers and the text
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from moorage.apiserver.vocabulary.statuses import ApiError, too_many

__all__ = ["Seats", "ServerLimits"]

_BUSY: Final = "too many requests, please try again later"
_RETRY_S: Final = 1


@dataclass(frozen=True)
class ServerLimits:
    """What one server takes on at a time. ``waiting`` is how many requests may wait for a seat, ``seat_s`` how long.

    ``unread_per_client`` is how many bytes of long answers one user may leave unread, lists apart, which are made as they are
    read; one answer is let through whatever its length. ``large_waiting`` is how many large requests may wait while one is
    carried out, ``large_per_client`` how many of one user, and ``large_s`` how long one may take with its waiting.
    ``client_s`` is how long a client may take for a handshake, a request's head, its body, or to read part of a watch;
    ``answer_s`` is how long it may take to read an answer.
    """

    reading: int = 400
    mutating: int = 200
    per_client: int = 64
    waiting: int = 2000
    unread_per_client: int = 256 << 20
    watches: int = 4000
    watches_per_client: int = 1000
    connections: int = 5000
    large_waiting: int = 64
    large_per_client: int = 16
    large_s: float = 60.0
    seat_s: float = 1.0
    client_s: float = 10.0
    answer_s: float = 60.0


class _Waiter(NamedTuple):
    mutating: bool
    client: str
    turn: asyncio.Future[None]


class Seats:
    """Counts who is being served. Clients are told apart by the name of their user."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._kinds: Counter[bool] = Counter()
        self._clients: Counter[str] = Counter()
        self._watching: Counter[str] = Counter()
        self._unread: Counter[str] = Counter()
        self._waiting: deque[_Waiter] = deque()

    @property
    def reading(self) -> int:
        return self._kinds[False]

    @property
    def mutating(self) -> int:
        return self._kinds[True]

    @property
    def watches(self) -> int:
        return self._watching.total()

    def taken(self, client: str, *, mutating: bool) -> AbstractAsyncContextManager[None]:
        """Hold a seat for a request.

        Raises  ApiError 429, on entering, where there is none, nor in a while
        """
        return _Seat(self, client, mutating)

    async def sit(self, mutating: bool, client: str) -> None:
        """Take a seat, which ``rise`` gives back.

        Raises  ApiError 429 where there is none, nor in a while
        """
        if self._has_room(mutating, client):
            self._sit(mutating, client)
        else:
            await self._wait(mutating, client)

    @contextmanager
    def watching(self, client: str) -> Iterator[None]:
        """Hold one of the seats for watches, which last long and cost little.

        Raises  ApiError 429 where there is none
        """
        limits = self._limits
        if self.watches >= limits.watches or self._watching[client] >= limits.watches_per_client:
            raise too_many("too many watches, please try again later", _RETRY_S)
        self._watching[client] += 1
        try:
            yield
        finally:
            self._watching[client] -= 1
            if not self._watching[client]:
                del self._watching[client]

    @contextmanager
    def sending(self, client: str, size: int, *, refusable: bool) -> Iterator[None]:
        """Count a long answer while its client reads it.

        Raises  ApiError 429 where the client leaves too much unread already, if the answer may be refused
        """
        unread = self._unread[client]
        if refusable and unread and unread + size > self._limits.unread_per_client:
            raise too_many("too many answers are unread, please try again later", _RETRY_S)
        self._unread[client] += size
        try:
            yield
        finally:
            self._unread[client] -= size
            if not self._unread[client]:
                del self._unread[client]

    def _has_room(self, mutating: bool, client: str) -> bool:
        most = self._limits.mutating if mutating else self._limits.reading
        return self._kinds[mutating] < most and self._clients[client] < self._limits.per_client

    def _sit(self, mutating: bool, client: str) -> None:
        self._kinds[mutating] += 1
        self._clients[client] += 1

    async def _wait(self, mutating: bool, client: str) -> None:
        if len(self._waiting) >= self._limits.waiting:
            raise _busy()
        waiter = _Waiter(mutating, client, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._limits.seat_s):
                await waiter.turn
        except BaseException as error:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self.rise(mutating, client)  # the seat came just too late
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            if isinstance(error, TimeoutError):
                raise _busy() from None
            raise

    def rise(self, mutating: bool, client: str) -> None:
        """Give a seat back, to who waits for one if there is somebody."""
        self._kinds[mutating] -= 1
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]
        for waiter in self._waiting:
            if not waiter.turn.done() and self._has_room(waiter.mutating, waiter.client):
                self._waiting.remove(waiter)
                self._sit(waiter.mutating, waiter.client)
                waiter.turn.set_result(None)
                return


class _Seat:
    """A request's seat, from when it is entered to when it is left."""

    __slots__ = ("_client", "_mutating", "_seats")

    def __init__(self, seats: Seats, client: str, mutating: bool) -> None:
        self._seats, self._client, self._mutating = seats, client, mutating

    async def __aenter__(self) -> None:
        await self._seats.sit(self._mutating, self._client)

    async def __aexit__(self, *_: object) -> None:
        self._seats.rise(self._mutating, self._client)


def _busy() -> ApiError:
    return too_many(_BUSY, _RETRY_S)
