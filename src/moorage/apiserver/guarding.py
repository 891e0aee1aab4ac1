"""Who may talk to the server at all: callers on this machine, under a name it answers to, with a token that it gave.

A page in a browser can send requests to a port of the machine it runs on. What keeps it from doing so is checked before
anything else: the Host it must name, the Origin it cannot hide, and a header it cannot know.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Final

from moorage.apiserver.statuses import ApiError, unauthorized
from moorage.apiserver.users import User

__all__ = ["OPEN_PATHS", "Guard", "User", "is_loopback"]

#: What anybody on the machine may read.
OPEN_PATHS: Final = frozenset(["/healthz", "/livez", "/readyz", "/version"])
_LOCAL: Final = ("127.0.0.1", "[::1]", "localhost")
_MAX_TOKEN: Final = 4096


def is_loopback(address: str) -> bool:
    """Return True for an address that only this machine can reach."""
    return address in {"127.0.0.1", "::1", "localhost"}


class Guard:
    """Checks requests. ``tokens`` are the bearer tokens of users, ``hosts`` the names answered to besides the local ones."""

    def __init__(self, tokens: Mapping[str, User], hosts: Iterable[str] = ()) -> None:
        self._tokens = [(token.encode(), user) for token, user in tokens.items() if token]
        self._hosts = frozenset([*_LOCAL, *(host.lower() for host in hosts)])

    def admit(self, path: str, headers: Mapping[str, str]) -> User | None:
        """Return who is asking; None for an open path.

        Raises  ApiError 403 for another host or origin, 401 without a token that is known
        """
        self._check_host(headers.get("Host", ""))
        self._check_origin(headers)
        if path in OPEN_PATHS:
            return None
        user = self.user_of(headers.get("Authorization", ""))
        if user is None:
            raise unauthorized()
        return user

    def user_of(self, authorization: str) -> User | None:
        """Return whose token an ``Authorization`` header carries. Takes the same time for every wrong one."""
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        if scheme.lower() != "bearer" or not given or len(given) > _MAX_TOKEN:
            return None
        found = None
        for known, user in self._tokens:
            if hmac.compare_digest(known, given):
                found = user
        return found

    def _check_host(self, host: str) -> None:
        name, _, port = host.lower().rpartition(":")
        if not name or not port.isdigit():
            name = host.lower()
        if name not in self._hosts:
            raise ApiError(403, "Forbidden", "the Host header names a host that this server is not")

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        origin = headers.get("Origin")
        if origin is not None and not self._is_own(origin):
            raise ApiError(403, "Forbidden", "requests from pages of other origins are refused")
        if headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
            raise ApiError(403, "Forbidden", "requests from pages of other sites are refused")

    def _is_own(self, origin: str) -> bool:
        scheme, _, place = origin.lower().partition("://")
        name, _, port = place.rpartition(":")
        return scheme in {"http", "https"} and ((port.isdigit() and name in self._hosts) or place in self._hosts)
