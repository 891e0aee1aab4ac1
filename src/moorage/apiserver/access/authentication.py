"""Authenticate requests: check the Host and Origin headers, then a client certificate or a bearer token.

A web page in a browser can send requests to a local port. The server rejects such requests before it looks at anything
else: the Host header must name this server, and a cross-origin ``Origin`` or ``Sec-Fetch-Site`` header is refused.

It then accepts one of three credentials: a client certificate signed by the cluster's authority, a static bearer token
given at startup, or a service account token. Tokens are compared in constant time and never appear in logs or responses.

Source  apiserver, pkg/authentication/request/{x509,bearertoken}; kubectl, pkg/proxy/proxy_server.go, for the host names
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Final

from moorage.apiserver.access.bootstrap import publish_client_ca
from moorage.apiserver.access.certificate_authority import ADMIN, Authority
from moorage.apiserver.access.service_account_tokens import ISSUER, AccountTokens, TokenIdentity
from moorage.apiserver.storage.store import Store
from moorage.apiserver.vocabulary.statuses import ApiError, unauthorized
from moorage.apiserver.vocabulary.users import User, authenticated

__all__ = ["OPEN_PATHS", "Authenticator", "User", "certificate_user", "make_authenticator"]

#: Paths that need no credentials.
OPEN_PATHS: Final = frozenset(["/healthz", "/livez", "/readyz", "/version"])
_LOCAL: Final = ("127.0.0.1", "[::1]", "localhost")
_MAX_TOKEN: Final = 16 << 10


def make_authenticator(store: Store, authority: Authority, hosts: Iterable[str] = ()) -> Authenticator:
    """Return the authenticator of a cluster: client certificates, the administrator's token and service account tokens."""
    publish_client_ca(store, authority.certificate, authority.front_proxies)
    return Authenticator({authority.admin_token: ADMIN}, hosts, AccountTokens(store, authority.signing_key))


class Authenticator:
    """Authenticates requests.

    ``tokens`` maps static bearer tokens to users. ``hosts`` are the accepted Host names in addition to the local ones.
    """

    def __init__(self, tokens: Mapping[str, User], hosts: Iterable[str] = (), accounts: AccountTokens | None = None) -> None:
        self._tokens = [(token.encode(), authenticated(user)) for token, user in tokens.items() if token]
        self._hosts = frozenset([*_LOCAL, *(host.lower() for host in hosts)])
        self.accounts = accounts

    def authenticate(self, path: str, headers: Mapping[str, str], holder: User | None = None) -> User | None:
        """Return the user of a request, or None for an open path. ``holder`` is the user of the connection's client
        certificate.

        Raises  ApiError 403 for a foreign host or origin, 401 without a valid credential
        """
        self.check_source(headers)
        if path in OPEN_PATHS:
            return None
        user = self.identify(headers, holder)
        if user is None:
            raise unauthorized()
        return user

    def check_source(self, headers: Mapping[str, str]) -> None:
        """Check that a request names this server, and that no page of another site sent it.

        Raises  ApiError 403
        """
        self._check_host(headers.get("Host", ""))
        self._check_origin(headers)

    def identify(self, headers: Mapping[str, str], holder: User | None = None) -> User | None:
        """Return the user of a request by its certificate or token; None without a valid one."""
        user = holder if holder is not None else self.user_of(headers.get("Authorization", ""))
        return None if user is None else authenticated(user)

    def user_of(self, authorization: str) -> User | None:
        """Return the user whose token an ``Authorization`` header carries, or None if there is no valid token."""
        scheme, _, token = authorization.partition(" ")
        identity = self.authenticate_token(token.strip()) if scheme.lower() == "bearer" else None
        return identity.user if identity is not None else None

    def authenticate_token(self, token: str, audiences: tuple[str, ...] = (ISSUER,)) -> TokenIdentity | None:
        """Return the user of a token that is valid for one of ``audiences``, or None.

        The time taken does not depend on how much of a wrong token matches.
        """
        given = token.encode("utf-8", "surrogateescape")
        if not given or len(given) > _MAX_TOKEN:
            return None
        found = None
        for known, user in self._tokens:
            if hmac.compare_digest(known, given):
                found = user
        if found is not None:
            return TokenIdentity(found, (ISSUER,)) if ISSUER in audiences else None
        if self.accounts is None or not token.isascii():
            return None
        identity = self.accounts.authenticate_token(token, audiences)
        return identity._replace(user=authenticated(identity.user)) if identity is not None else None

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


def certificate_user(certificate: Mapping[str, Any] | None) -> User | None:
    """Return the user that a verified certificate, in the form of ``ssl.getpeercert``, identifies; None without a
    common name.
    """
    if not certificate:
        return None
    fields = [field for part in certificate.get("subject", ()) for field in part]
    names = [value for key, value in fields if key == "commonName"]
    groups = tuple(value for key, value in fields if key == "organizationName")
    return authenticated(User(names[-1], groups)) if names and names[-1] else None
