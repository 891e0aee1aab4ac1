"""Sessions of browsers: the token in a link opens one session, which a cookie then identifies.

The token is in the fragment of the link, which browsers send to no server. The page sends it in a request and gets a cookie
that scripts cannot read and that the browser sends to this site only. Only hashes are kept here.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from moorage.cluster.apiserver.vocabulary.statuses import ApiError
from moorage.interfaces.web.mirror import View

T = TypeVar("T")
#: Seconds after which an unused link and a session end.
LINK_S: Final = 24 * 3600.0
SESSION_S: Final = 12 * 3600.0
#: Maximum number of unused links and of sessions; the oldest end first.
MOST_LINKS: Final = 64
MOST_SESSIONS: Final = 256
_MOST_SECRET: Final = 128


class _Held(NamedTuple, Generic[T]):
    user: T
    until: float


class Sessions(Generic[T]):
    """The unused links and the sessions, each with its user."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._links: OrderedDict[bytes, _Held[T]] = OrderedDict()
        self._sessions: OrderedDict[bytes, _Held[T]] = OrderedDict()

    def make_token(self, user: T) -> str:
        """Return a token that opens one session of a user."""
        return self._add(self._links, user, LINK_S, MOST_LINKS)

    def open(self, token: str) -> str | None:
        """Return the cookie of a new session, and invalidate the token that opens it; None if the token is not valid."""
        held = self._valid(self._links, token)
        if held is None:
            return None
        del self._links[_hash(token)]
        return self.start(held.user)

    def start(self, user: T) -> str:
        """Return the cookie of a new session."""
        return self._add(self._sessions, user, SESSION_S, MOST_SESSIONS)

    def user_of(self, cookie: str) -> T | None:
        """Return the user of a session; None if it has ended or never existed."""
        held = self._valid(self._sessions, cookie)
        return None if held is None else held.user

    def end(self, cookie: str) -> None:
        self._sessions.pop(_hash(cookie), None)

    def _add(self, place: OrderedDict[bytes, _Held[T]], user: T, lasts_s: float, most: int) -> str:
        secret = secrets.token_urlsafe(32)
        place[_hash(secret)] = _Held(user, self._clock() + lasts_s)
        while len(place) > most:
            place.popitem(last=False)
        return secret

    def _valid(self, place: OrderedDict[bytes, _Held[T]], secret: str) -> _Held[T] | None:
        """Return the entry of a secret, None if it is not valid. The lookup by hash keeps timing from revealing secrets."""
        if not secret or len(secret) > _MOST_SECRET:
            return None
        held = place.get(_hash(secret))
        if held is None or held.until >= self._clock():
            return held
        del place[_hash(secret)]
        return None


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


# -- visitors ----------------------------------------------------------------------------------------------------------
# Visitors: the users of requests, and what they may see.


class Visitor(Protocol):
    """An authenticated user."""

    @property
    def name(self) -> str: ...

    @property
    def credential(self) -> Any | None:
        """The user to store in a new session; None for a visitor who is identified by a session."""

    async def check(self, verb: str, resource: str, namespace: str = "", group: str = "", name: str = "") -> None:
        """Check that the user has a right, in one namespace or (with "") in all.

        Raises  ApiError 403
        """


async def may(visitor: Visitor, verb: str, resource: str, namespace: str = "") -> bool:
    """Return whether a visitor has a right."""
    try:
        await visitor.check(verb, resource, namespace)
    except ApiError as error:
        if error.code != 403:
            raise
        return False
    return True


async def view_of(visitor: Visitor, namespaces: Iterable[str]) -> View:
    """Return what a visitor may see: nodes, and the pods of all namespaces or of those in which they may list pods.

    Raises  ApiError 403 for a visitor who may not list nodes, or pods in any namespace
    """
    await visitor.check("list", "nodes")
    if await may(visitor, "list", "pods"):
        return View()
    seen = frozenset([name for name in namespaces if await may(visitor, "list", "pods", name)])
    if not seen:
        await visitor.check("list", "pods")
    return View(seen)


async def check_may_list(visitor: Visitor, kinds: Iterable[tuple[str, str]]) -> None:
    """Check that a visitor may list all objects of the kinds, given as (group, resource): answers may show any of them.

    Raises  ApiError 403
    """
    for group, resource in kinds:
        await visitor.check("list", resource, group=group)
