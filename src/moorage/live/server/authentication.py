"""Authenticate requests: by front-proxy headers, a client certificate or a bearer token; otherwise as anonymous.

Source  apiserver/pkg/authentication (headerrequest, x509, token webhook); server/options/authentication.go
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar
from urllib.parse import unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID
from multidict import MultiMapping

from moorage.api.documents.http_messages import User, authenticated
from moorage.errors import MoorageError

T = TypeVar("T")


class Expiring(Generic[T]):
    """Values that expire at a time in seconds on the caller's clock. When it is full, the oldest entry is dropped."""

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._held: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable, now: float) -> tuple[T] | None:
        """Return the value in a tuple; None if it is missing or has expired."""
        held = self._held.get(key)
        return (held[0],) if held is not None and now < held[1] else None

    def put(self, key: Hashable, value: T, until: float, now: float) -> None:
        """Store a value until a time; a value that has already expired is not stored."""
        self._held.pop(key, None)
        if until > now:
            self._held[key] = (value, until)
        while len(self._held) > self._capacity:
            self._held.popitem(last=False)


_MOST_TOKEN: Final = 16 << 10
#: The flags with the lists of ``FrontProxies``, in the order of its fields.
_PROXY_FLAGS: Final = ("allowed-names", "username-headers", "group-headers", "uid-headers", "extra-headers-prefix")


class UnauthorizedError(MoorageError):
    """The credentials of a request are invalid."""


#: Returns the user of a bearer token, None for an invalid token; raises ClusterError.
ReviewToken: TypeAlias = Callable[[str], Awaitable[User | None]]
ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True, slots=True)
class FrontProxies:
    """Front proxies that authenticate users by headers: their CA, their common names (empty allows all), and their headers."""

    authorities: tuple[x509.Certificate, ...] = ()
    names: tuple[str, ...] = ()
    user_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    @classmethod
    def read(cls, listed: Callable[[str], Sequence[str]]) -> FrontProxies:
        """Return proxies without a CA; ``listed`` returns the values of a flag, or of the key that the cluster publishes."""
        return cls((), *(tuple(listed(f"requestheader-{flag}")) for flag in _PROXY_FLAGS))


@dataclass(slots=True)
class RequestAuthenticator:
    """Authenticates requests. ``authorities`` sign client certificates; ``review`` reviews tokens, None accepts none.

    Fields may be replaced while it is in use. ``ttl_s``: how long token reviews are cached.
    """

    review: ReviewToken | None
    clock: Callable[[], float]
    ttl_s: float = 10.0
    authorities: tuple[x509.Certificate, ...] = ()
    proxies: FrontProxies = FrontProxies()
    _known: Expiring[User | None] = field(default_factory=Expiring)

    async def authenticate(self, headers: MultiMapping[str], certificate: bytes | None) -> User:
        """Return the user of a request; ``certificate`` is the client certificate that TLS verified, in DER.

        Raises  UnauthorizedError for invalid credentials; ClusterError if they cannot be reviewed
        """
        shown = None if certificate is None else x509.load_der_x509_certificate(certificate)
        if shown is not None:
            spoken_for = self._by_proxy(headers, shown)
            if spoken_for is not None:
                return spoken_for
            if _vouched_for(shown, self.authorities):
                return _user_of(shown)
        token = _bearer(headers)
        if token and self.review is not None:
            return await self._by_token(token, self.review)
        return ANONYMOUS

    def _by_proxy(self, headers: MultiMapping[str], shown: x509.Certificate) -> User | None:
        proxies = self.proxies
        name = next((value for header in proxies.user_headers for value in headers.getall(header, ()) if value), "")
        if not name or not _vouched_for(shown, proxies.authorities):
            return None
        if proxies.names and _common_name(shown) not in proxies.names:
            return None
        groups = [value for header in proxies.group_headers for value in headers.getall(header, ()) if value]
        uid = next((value for header in proxies.uid_headers for value in headers.getall(header, ()) if value), "")
        return _member(User(name, tuple(groups), uid, _extra(headers, proxies.extra_prefixes)))

    async def _by_token(self, token: str, review: ReviewToken) -> User:
        if len(token) > _MOST_TOKEN:
            raise UnauthorizedError("the token is too long")
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        now = self.clock()
        found = self._known.get(key, now)
        caller = found[0] if found is not None else await review(token)
        if found is None:
            self._known.put(key, caller, now + self.ttl_s, now)
        if caller is None:
            raise UnauthorizedError("invalid bearer token")
        return _member(caller)


def _member(user: User) -> User:
    return user if user.name == ANONYMOUS.name else authenticated(user)


def _bearer(headers: MultiMapping[str]) -> str:
    for value in headers.getall("Authorization", ()):
        scheme, _, token = value.strip().partition(" ")
        if scheme.lower() == "bearer":
            return token.strip()
    return ""


def _extra(headers: MultiMapping[str], prefixes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for header in dict.fromkeys(headers):
        for prefix in prefixes:
            if header.lower().startswith(prefix.lower()):
                found[unquote(header[len(prefix) :].lower())] = tuple(headers.getall(header, ()))
    return found


# -- certificates -------------------------------------------------------------------------------------------------------


def _vouched_for(certificate: x509.Certificate, authorities: Sequence[x509.Certificate]) -> bool:
    """Return whether one of these CAs signed the certificate. TLS only checked that a CA of any bundle did."""
    return any(_signed(certificate, authority) for authority in authorities)


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _common_name(certificate: x509.Certificate) -> str:
    return next((str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)), "")


def _user_of(certificate: x509.Certificate) -> User:
    """Return the user of a client certificate: its common name, with the organizations as groups.

    Raises  UnauthorizedError for a certificate without a name
    """
    name = _common_name(certificate)
    if not name:
        raise UnauthorizedError("the client certificate has no common name")
    groups = tuple(str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    return _member(User(name, groups))
