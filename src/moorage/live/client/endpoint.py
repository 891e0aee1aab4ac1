"""The endpoint of an API server: address, trusted CA, credentials and TLS settings."""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Final, Protocol
from urllib.parse import urlsplit

from moorage.errors import InputError

__all__ = ["Credentials", "Endpoint", "FixedCredentials", "Identity", "proxy_for", "tls_context"]

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----")


@dataclass(frozen=True, slots=True)
class Identity:
    """The credentials of a request: a bearer token, a client certificate with its key in PEM, both, or neither
    ("" and None).
    """

    token: str = field(default="", repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


class Credentials(Protocol):
    """A source of identities, which may change at run time."""

    async def identity(self) -> Identity:
        """Return the current identity.

        Raises  InputError if there is none
        """

    def invalidate(self) -> None:
        """Discard the identity, because the server rejected it with 401; the next call fetches a new one."""


@dataclass(frozen=True, slots=True)
class FixedCredentials:
    """An identity that never changes; anonymous by default."""

    fixed: Identity = Identity()

    async def identity(self) -> Identity:
        return self.fixed

    def invalidate(self) -> None:
        """Do nothing; the identity is fixed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API server. ``server`` is its URL without a trailing slash; ``ca`` is a CA bundle in PEM, None for the system's CAs.

    ``headers`` are the impersonation headers. ``namespace`` is the context's namespace.
    """

    server: str
    credentials: Credentials = field(default_factory=FixedCredentials)
    ca: bytes | None = None
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    namespace: str = "default"


def tls_context(endpoint: Endpoint, identity: Identity) -> ssl.SSLContext | None:
    """Return the TLS context of an endpoint, None for plain HTTP.

    Raises  InputError for unusable certificates and keys
    """
    if not endpoint.server.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cadata=None if endpoint.ca is None else _authorities(endpoint.ca))
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"the certificate authority of {endpoint.server} cannot be used: {error}") from None
    # As in Go: a trusted CA need not be a root, and certificates need no key identifiers, which many clusters'
    # certificates lack.
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if endpoint.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if identity.certificate is not None:
        _load(context, identity.certificate, identity.key or b"")
    return context


def _authorities(pem: bytes) -> str:
    """Return the certificates in a PEM bundle without other text.

    Raises  ValueError if there are none, which ``ssl`` would take as a request for the system's CAs
    """
    found = _CERTIFICATE.findall(pem)
    if not found:
        raise ValueError("it holds no certificate")
    return "\n".join(one.decode("ascii") for one in found)


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate. OpenSSL accepts only a file, so a private temporary one is used and deleted at once."""
    handle, path = tempfile.mkstemp(prefix="moorage-", suffix=".pem")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(path, password=b"")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = "the key does not belong to it" if "MISMATCH" in str(error) else str(error)
        raise InputError(f"the client certificate cannot be used: {reason}") from None
    finally:
        os.unlink(path)


def proxy_for(server: str, env: Mapping[str, str]) -> str:
    """Return the proxy that the environment sets for a URL, or "". NO_PROXY hosts and loopback are connected directly."""
    where = urlsplit(server)
    host = where.hostname or ""
    scheme = where.scheme
    excluded = [one.strip().lower().lstrip(".") for one in (env.get("NO_PROXY") or env.get("no_proxy") or "").split(",")]
    if host in {"localhost", "127.0.0.1", "::1"} or "*" in excluded:
        return ""
    if any(one and (host == one or host.endswith(f".{one}") or _is_in(host, one)) for one in excluded):
        return ""
    return env.get(f"{scheme.upper()}_PROXY") or env.get(f"{scheme}_proxy") or ""


def _is_in(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
