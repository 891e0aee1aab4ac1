"""Authenticate requests: check the Host and Origin headers, then a client certificate or a bearer token.

A web page in a browser can send requests to a local port. The server rejects such requests before it looks at anything
else: the Host header must name this server, and a cross-origin ``Origin`` or ``Sec-Fetch-Site`` header is refused.

It then accepts one of three credentials: a client certificate signed by the cluster's authority, a static bearer token
given at startup, or a service account token. Tokens are compared in constant time and never appear in logs or responses.

Source  apiserver, pkg/authentication/request/{x509,bearertoken}; kubectl, pkg/proxy/proxy_server.go, for the host names
"""

from __future__ import annotations

import hmac
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from moorage.api.documents.http_messages import AUTHENTICATED, MASTERS, User, authenticated
from moorage.api.documents.statuses import ApiError, bad_request, quoted, unauthorized
from moorage.basis.serving.certificate_authority import ADMIN, Authority
from moorage.cluster.apiserver.access.bootstrap import publish_client_ca
from moorage.cluster.apiserver.access.rbac import Attributes, Authorizer, denied
from moorage.cluster.apiserver.access.service_account_tokens import ISSUER, AccountTokens, TokenIdentity, account_groups
from moorage.rules.store.store import Store

#: Paths that need no credentials.
OPEN_PATHS: Final = frozenset(["/healthz", "/livez", "/readyz", "/version"])
_LOCAL: Final = ("127.0.0.1", "[::1]", "localhost")
_MAX_TOKEN: Final = 16 << 10


def make_authenticator(store: Store, authority: Authority, hosts: Iterable[str] = ()) -> Authenticator:
    """Return the authenticator of a cluster: client certificates, the administrator's token and service account tokens."""
    publish_client_ca(store, authority.certificate, authority.front_proxies)
    return Authenticator({authority.admin_token: ADMIN}, hosts, AccountTokens(store, authority.signing_key))


class ProvenUser(NamedTuple):
    """Who makes a request, and whether the credential that showed it is still valid: what is made for it ends with it."""

    user: User
    holds: Callable[[], bool]

    def acting_for(self, headers: Iterable[tuple[str, str]], authorizer: Authorizer) -> ProvenUser:
        """Return the proof for the user whom the headers impersonate; it holds as long as the first user may do that.

        Raises  ApiError as ``impersonated``
        """
        asked = [(name, value) for name, value in headers if name.lower().startswith("impersonate-")]
        if not asked:
            return self

        def holds() -> bool:
            try:
                impersonated(self.user, asked, authorizer)
            except ApiError:
                return False
            return self.holds()

        return ProvenUser(impersonated(self.user, asked, authorizer), holds)


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
        host = headers.get("Host", "").lower()
        name, _, port = host.rpartition(":")
        if (name if name and port.isascii() and port.isdigit() else host) not in self._hosts:
            raise ApiError(403, "Forbidden", "the Host header names a host that this server is not")
        check_page(headers, host)

    def identify(self, headers: Mapping[str, str], holder: User | None = None) -> User | None:
        """Return the user of a request by its certificate or token; None without a valid one."""
        user = holder if holder is not None else self.user_of(headers.get("Authorization", ""))
        return None if user is None else authenticated(user)

    def prove(self, headers: Mapping[str, str], holder: User | None, until: float) -> ProvenUser | None:
        """Return the user of a request, and whether its certificate, valid until then, or its token is still valid."""
        if holder is not None:
            return ProvenUser(authenticated(holder), lambda: time.time() < until)
        authorization = headers.get("Authorization", "")
        user = self.user_of(authorization)
        return None if user is None else ProvenUser(authenticated(user), lambda: self.user_of(authorization) is not None)

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


def check_page(headers: Mapping[str, str], host: str) -> None:
    """Check that no page of another origin sent a request: another port of the same host is one, too.

    A browser that names the own origin may call it the same site, as after a redirect between ports.

    Raises  ApiError 403
    """
    origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
    if origin is not None and not _is_origin_of(origin.lower(), host.lower()):
        raise ApiError(403, "Forbidden", "requests from pages of other origins are refused")
    if site not in {"none", "same-origin"} and not (origin is not None and site == "same-site"):
        raise ApiError(403, "Forbidden", "requests from pages of other sites are refused")


def _is_origin_of(origin: str, host: str) -> bool:
    """Return True for the origin of pages of the server with this Host header."""
    scheme, _, place = origin.partition("://")
    usual = {"http": ":80", "https": ":443"}.get(scheme)
    return usual is not None and place.removesuffix(usual) == host.removesuffix(usual)


def certificate_end(certificate: Mapping[str, Any] | None) -> float:
    """Return when a certificate expires, in seconds since 1970; infinity without one."""
    end = (certificate or {}).get("notAfter")
    return inf if end is None else float(ssl.cert_time_to_seconds(end))


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


# -- impersonation -----------------------------------------------------------------------------------------------------
# User impersonation: the ``Impersonate-`` headers that ``kubectl --as`` sends.
#
# A user needs the right to ``impersonate`` another user, or two rights that are limited to a mode: to impersonate the user in
# this mode (``impersonate:user-info``), and to make this request in it (``impersonate-on:user-info:list``).
#
# Source  apiserver, pkg/endpoints/filters/impersonation

_USER, _GROUP, _UID = "impersonate-user", "impersonate-group", "impersonate-uid"
_EXTRA: Final = "impersonate-extra-"
_AUTHENTICATION: Final = "authentication.k8s.io"
_ANONYMOUS: Final = "system:anonymous"


def impersonated(
    user: User, headers: Iterable[tuple[str, str]], authorizer: Authorizer,
    attributes: Callable[[], Attributes] | None = None, note: Callable[[User, str], None] | None = None,
) -> User:  # fmt: skip
    """Return the impersonated user, or ``user`` if there are no impersonation headers.

    ``attributes`` returns those of the request; without it, only the right to ``impersonate`` counts. ``note`` gets the
    impersonated user, and the verb of a limited right to it.

    Raises  ApiError 403 for a user, group, uid or extra that this user may not impersonate; 400 if the headers do not name
            a user
    """
    requested = [(name.lower(), value) for name, value in headers if name.lower().startswith("impersonate-")]
    if not requested:
        return user
    name, uid = _last(requested, _USER), _last(requested, _UID)
    groups = tuple(value for key, value in requested if key == _GROUP)
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in requested:
        if key.startswith(_EXTRA):
            field = unquote(key.removeprefix(_EXTRA))
            extra[field] = (*extra.get(field, ()), value)
    if not name:
        raise bad_request(f"requested {_shown(uid, groups, extra)} without impersonating a user name")
    wanted = User(name, groups, uid, extra)
    mode, refusal = _constrained(user, wanted, authorizer, attributes) if attributes is not None else ("", None)
    if not mode:
        try:
            for needed in _needed(name, groups, uid, extra):
                authorizer.check(user, needed)
        except ApiError as error:
            raise (refusal or error) from None
    groups = groups or account_groups(name) or ((_NODES,) if mode == _NODE_MODE else ())
    if name != _ANONYMOUS and AUTHENTICATED not in groups and "system:unauthenticated" not in groups:
        groups = (*groups, AUTHENTICATED)
    elif name == _ANONYMOUS and not groups:
        groups = ("system:unauthenticated",)
    made = User(name, groups, uid, extra)
    if note is not None:
        note(made, f"impersonate:{mode}" if mode else "")
    return made


# -- modes -------------------------------------------------------------------------------------------------------------

_NODES: Final = "system:nodes"
_NODE: Final = "system:node:"
_NODE_MODE: Final = "arbitrary-node"
#: From how many groups or values on the right to all of them is checked first.
_MANY: Final = 4


def _constrained(
    user: User, wanted: User, authorizer: Authorizer, attributes: Callable[[], Attributes]
) -> tuple[str, ApiError | None]:
    """Return the mode in which a user may impersonate another for a request, or "" and why not."""
    mode = _mode_of(wanted)
    if not mode:
        return "", None
    asked = attributes()
    try:
        authorizer.check(user, asked._replace(verb=f"impersonate-on:{mode}:{asked.verb}"))
        _check_fields(user, wanted, f"impersonate:{mode}", authorizer)
    except ApiError as error:
        return "", error
    return mode, None


def _mode_of(wanted: User) -> str:
    """Return the mode that a user belongs to; "" for a node or service account with more than a name."""
    is_node, is_account = len(wanted.name) > len(_NODE) and wanted.name.startswith(_NODE), bool(account_groups(wanted.name))
    if not is_node and not is_account:
        return "user-info"
    if wanted.groups or wanted.uid or wanted.extra:
        return ""
    return _NODE_MODE if is_node else "serviceaccount"


def _check_fields(user: User, wanted: User, verb: str, authorizer: Authorizer) -> None:
    of = partial(Attributes, verb, _AUTHENTICATION)
    if account_groups(wanted.name):
        _, _, home, account = wanted.name.split(":", 3)
        authorizer.check(user, of("serviceaccounts", name=account, namespace=home))
    elif wanted.name.startswith(_NODE):
        authorizer.check(user, of("nodes", name=wanted.name.removeprefix(_NODE)))
    else:
        authorizer.check(user, of("users", name=wanted.name))
    if wanted.uid:
        authorizer.check(user, of("uids", name=wanted.uid))
    if "" in wanted.groups:
        raise denied(user, of("groups"), "impersonating the empty string group is not allowed")
    if MASTERS in wanted.groups:
        raise denied(user, of("groups", name=MASTERS), f"impersonating the {MASTERS} group is not allowed")
    if len(wanted.groups) < _MANY or not authorizer.judge(user, of("groups", name="*")).allowed:
        for group in wanted.groups:
            authorizer.check(user, of("groups", name=group))
    values = [(key, value) for key, held in wanted.extra.items() for value in held]
    if any(not value for _, value in values):
        raise denied(user, of("userextras"), "impersonating the empty string value in extra is not allowed")
    if len(values) < _MANY or not authorizer.judge(user, of("userextras", "*", "*")).allowed:
        for key, value in values:
            authorizer.check(user, of("userextras", key, value))


def _shown(uid: str, groups: tuple[str, ...], extra: dict[str, tuple[str, ...]]) -> str:
    """Return the requested identity the way Go formats it."""
    fields = ", ".join(f"{quoted(key)}:{_strings(extra[key])}" for key in sorted(extra))
    shown = f"map[string][]string{{{fields}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{quoted(uid)}, Groups:{_strings(groups)}, Extra:{shown}}}'


def _strings(texts: tuple[str, ...]) -> str:
    return f"[]string{{{', '.join(map(quoted, texts))}}}" if texts else "[]string(nil)"


def _last(requested: list[tuple[str, str]], wanted: str) -> str:
    return next((value for key, value in reversed(requested) if key == wanted), "")


def _needed(name: str, groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]) -> Iterator[Attributes]:
    """Yield the rights that the user needs to impersonate this identity."""
    if account_groups(name):
        _, _, home, account = name.split(":", 3)
        yield Attributes("impersonate", "", "serviceaccounts", name=account, namespace=home)
    else:
        yield Attributes("impersonate", "", "users", name=name)
    for group in groups:
        yield Attributes("impersonate", "", "groups", name=group)
    for key, values in extra.items():
        for value in values:
            yield Attributes("impersonate", _AUTHENTICATION, "userextras", key, value)
    if uid:
        yield Attributes("impersonate", _AUTHENTICATION, "uids", name=uid)
