"""Limits of requests: seats for them and for watches, which of them are large, and what carries those out.

Seats are shared so that one client cannot take all of them.

A client that has all its seats taken waits briefly for one, since bursts are normal. After that, and when the whole server
is full, it gets 429.

Source  apiserver, pkg/server/config.go (MaxRequestsInFlight) and filters/maxinflight.go, for the numbers and the message
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from moorage.api.documents.http_messages import HTTPRequest
from moorage.api.documents.request_targets import ReviewTarget, Target
from moorage.api.documents.served_kinds import MEASURED
from moorage.api.documents.statuses import ApiError, conflict, too_many
from moorage.api.schema.value_limits import count_marks
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.requests import check_may_create, serve
from moorage.cluster.apiserver.http.responses import OutgoingResponse, encode_response
from moorage.cluster.apiserver.schema.representations import Accepted, accepted
from moorage.rules.store.definitions import AskOwner
from moorage.rules.store.detached_store import retried
from moorage.rules.store.store import Store

_BUSY: Final = "too many requests, please try again later"
_RETRY_S: Final = 1


@dataclass(frozen=True)
class ServerLimits:
    """The limits of one server. ``waiting`` requests may wait for a seat, each for ``seat_s``.

    ``unread_per_client`` is the total size in bytes of long responses that one user may leave unread, except lists, which
    are encoded as they are read; one response is always allowed. ``large_waiting`` large requests may wait for the worker,
    ``large_per_client`` of one user, and one may take ``large_s`` including its wait. ``client_s`` limits a handshake, a
    request's head, its body, and reading a part of a watch; ``answer_s`` limits reading a response.
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
    """Counts the requests in progress. Clients are identified by their user name."""

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

    @asynccontextmanager
    async def taken(self, client: str, *, mutating: bool) -> AsyncIterator[None]:
        """Hold a seat for a request.

        Raises  ApiError 429 if no seat becomes free in time
        """
        if self._has_room(mutating, client):
            self._take(mutating, client)
        else:
            await self._wait(mutating, client)
        try:
            yield
        finally:
            self._release(mutating, client)

    def watching(self, client: str) -> AbstractContextManager[None]:
        """Hold a watch seat; watches last long and cost little.

        Raises  ApiError 429 if there is none
        """
        limits = self._limits
        if self.watches >= limits.watches or self._watching[client] >= limits.watches_per_client:
            raise too_many("too many watches, please try again later", _RETRY_S)
        return _counted(self._watching, client, 1)

    def sending(self, client: str, size: int, *, refusable: bool) -> AbstractContextManager[None]:
        """Count a long response while its client reads it.

        Raises  ApiError 429 if ``refusable`` and the client has too much unread already
        """
        unread = self._unread[client]
        if refusable and unread and unread + size > self._limits.unread_per_client:
            raise too_many("too many answers are unread, please try again later", _RETRY_S)
        return _counted(self._unread, client, size)

    def _has_room(self, mutating: bool, client: str) -> bool:
        most = self._limits.mutating if mutating else self._limits.reading
        return self._kinds[mutating] < most and self._clients[client] < self._limits.per_client

    def _take(self, mutating: bool, client: str) -> None:
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
                self._release(mutating, client)  # the seat became free just too late
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            if isinstance(error, TimeoutError):
                raise _busy() from None
            raise

    def _release(self, mutating: bool, client: str) -> None:
        """Release a seat, to a waiting request if there is one."""
        self._kinds[mutating] -= 1
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]
        for waiter in self._waiting:
            if not waiter.turn.done() and self._has_room(waiter.mutating, waiter.client):
                self._waiting.remove(waiter)
                self._take(waiter.mutating, waiter.client)
                waiter.turn.set_result(None)
                return


@contextmanager
def _counted(counts: Counter[str], client: str, amount: int) -> Iterator[None]:
    counts[client] += amount
    try:
        yield
    finally:
        counts[client] -= amount
        if not counts[client]:
            del counts[client]


def _busy() -> ApiError:
    return too_many(_BUSY, _RETRY_S)


# -- large requests ----------------------------------------------------------------------------------------------------
# Large requests, which would block the event loop for too long: recognize them, and handle them in another thread.
#
# The cost of a request is estimated from the number of values in its body and in the object that it changes. Values are
# counted by the JSON punctuation between them, which is fast and may overestimate.

#: Bodies and objects up to ``SMALL`` bytes are always handled on the event loop, those above ``LONG`` never.
SMALL: Final = 8 << 10
LONG: Final = 256 << 10
#: Between these sizes, the event loop handles bodies with at most this number of values: about 30 ms of work.
VALUES: Final = 2000
#: Maximum number of objects of a kind for which the loop deletes a collection.
OBJECTS: Final = 50
_MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


def is_large(store: Store, request: HTTPRequest, target: Target | ReviewTarget) -> bool:
    """Return True for a request that could block the event loop for long."""
    if isinstance(target, Target) and target.kind.custom is not None and request.method in {"PATCH", "POST", "PUT"}:
        return True  # patterns and rules can take long, however small the object is
    if is_heavy(request.body, counted=request.media_type.endswith("json")):
        return True
    if isinstance(target, ReviewTarget) or target.kind in MEASURED:
        return False
    if not target.name:
        return request.method == "DELETE" and store.count(target.kind) > OBJECTS
    held = store.find(target.kind, target.namespace or "", target.name)
    if held is None or not is_heavy(held.body):
        return False
    with suppress(ApiError):
        # A body is plain if it is sent as stored.
        return request.method not in {"GET", "HEAD"} or request.flag("pretty") or accepted(request.accept) != Accepted()
    return False


def is_heavy(body: bytes, *, counted: bool = True) -> bool:
    """Return True for an object that takes long to handle. ``counted``: it is JSON, so its values can be counted."""
    if len(body) <= SMALL:
        return False
    return not counted or len(body) > LONG or count_marks(body) > VALUES


def carry_out(
    store: Store, guard: Authenticator, request: HTTPRequest, target: Target | ReviewTarget, ask: AskOwner
) -> OutgoingResponse:
    """Handle a request in a worker thread, and return the response. ``ask`` calls functions on the store's thread.

    Raises  ApiError for a rejected request, and 409 or 429 if the objects that it read keep changing
    """
    answer = retried(store, ask, lambda detached: _attempt(detached, guard, request, target))
    if answer is not None:
        return answer
    if isinstance(target, Target) and target.name:
        raise conflict(target.kind.resource, target.kind.group, target.name, _MODIFIED)
    raise too_many("too many changes at a time, please try again later", 1)


def _attempt(store: Store, guard: Authenticator, request: HTTPRequest, target: Target | ReviewTarget) -> OutgoingResponse:
    authorizer = Authorizer(store)
    check_may_create(store, authorizer, request, target)
    return encode_response(request, serve(store, guard, authorizer, request, target))
