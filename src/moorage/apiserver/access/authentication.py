"""Who may talk to the server at all: those who call it by a name it answers to, and say who they are.

A page in a browser can send requests to a port of the machine it runs on. What keeps it from doing so is checked before
anything else: the Host it must name, the Origin it cannot hide, and a credential it cannot know.

There are three: a client certificate of the cluster's authority, a bearer token that the server was started with, and a
service account's token. Tokens are compared in constant time and appear in no log and no answer.

Source  apiserver, pkg/authentication/request/{x509,bearertoken}; kubectl, pkg/proxy/proxy_server.go, for the names of the host
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Final

from moorage.apiserver.access.bootstrap import publish_authority
from moorage.apiserver.access.certificate_authority import ADMIN, Authority
from moorage.apiserver.access.service_account_tokens import ISSUER, Accounts, Vouched
from moorage.apiserver.storage.store import Store
from moorage.apiserver.vocabulary.statuses import ApiError, unauthorized
from moorage.apiserver.vocabulary.users import User, authenticated

__all__ = ["OPEN_PATHS", "Authenticator", "User", "guard_for", "holder_of"]

#: What anybody may read.
OPEN_PATHS: Final = frozenset(["/healthz", "/livez", "/readyz", "/version"])
_LOCAL: Final = ("127.0.0.1", "[::1]", "localhost")
_MAX_TOKEN: Final = 16 << 10


def guard_for(store: Store, authority: Authority, hosts: Iterable[str] = ()) -> Authenticator:
    """Return the guard of a cluster with an authority: its certificates, its administrator's token, its accounts' tokens."""
    publish_authority(store, authority.certificate, authority.front_proxies)
    return Authenticator({authority.admin_token: ADMIN}, hosts, Accounts(store, authority.signing_key))


class Authenticator:
    """Checks requests. ``tokens`` are the bearer tokens of users, ``hosts`` the names answered to besides the local ones."""

    def __init__(self, tokens: Mapping[str, User], hosts: Iterable[str] = (), accounts: Accounts | None = None) -> None:
        self._tokens = [(token.encode(), authenticated(user)) for token, user in tokens.items() if token]
        self._hosts = frozenset([*_LOCAL, *(host.lower() for host in hosts)])
        self.accounts = accounts

    def admit(self, path: str, headers: Mapping[str, str], holder: User | None = None) -> User | None:
        """Return who is asking; None for an open path. ``holder`` is whom the connection's certificate is made out to.

        Raises  ApiError 403 for another host or origin, 401 without a credential that is known
        """
        self._check_host(headers.get("Host", ""))
        self._check_origin(headers)
        if path in OPEN_PATHS:
            return None
        user = holder if holder is not None else self.user_of(headers.get("Authorization", ""))
        if user is None:
            raise unauthorized()
        return authenticated(user)

    def user_of(self, authorization: str) -> User | None:
        """Return whose token an ``Authorization`` header carries."""
        scheme, _, token = authorization.partition(" ")
        vouched = self.vouch(token.strip()) if scheme.lower() == "bearer" else None
        return vouched.user if vouched is not None else None

    def vouch(self, token: str, audiences: tuple[str, ...] = (ISSUER,)) -> Vouched | None:
        """Return whom a token speaks for, to any of the audiences. Takes the same time for every wrong token of a length."""
        given = token.encode("utf-8", "surrogateescape")
        if not given or len(given) > _MAX_TOKEN:
            return None
        found = None
        for known, user in self._tokens:
            if hmac.compare_digest(known, given):
                found = user
        if found is not None:
            return Vouched(found, (ISSUER,)) if ISSUER in audiences else None
        if self.accounts is None or not token.isascii():
            return None
        vouched = self.accounts.vouch(token, audiences)
        return vouched._replace(user=authenticated(vouched.user)) if vouched is not None else None

    def _check_host(self, host: str) -> None:
        name, _, port = host.lower().rpartition(":")
        if not name or not (port.isascii() and port.isdigit()):
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


def holder_of(certificate: Mapping[str, Any] | None) -> User | None:
    """Return whom a certificate, as ``ssl`` shows one that it checked, is made out to."""
    if not certificate:
        return None
    fields = [field for part in certificate.get("subject", ()) for field in part]
    names = [value for key, value in fields if key == "commonName"]
    groups = tuple(value for key, value in fields if key == "organizationName")
    return authenticated(User(names[-1], groups)) if names and names[-1] else None
