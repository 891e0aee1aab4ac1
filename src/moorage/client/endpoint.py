"""Where an API server is, how to be sure that it is the one, and who we say we are."""

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

__all__ = ["Anonymous", "Credentials", "Endpoint", "Identity", "proxy_for", "tls_context"]

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----")


@dataclass(frozen=True, slots=True)
class Identity:
    """What goes with a request: a bearer token, or a certificate and its key in PEM, or both; "" and None for neither."""

    token: str = field(default="", repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


class Credentials(Protocol):
    """Where the identity comes from; it may change while we run."""

    async def identity(self) -> Identity:
        """Return the identity to use now.

        Raises  InputError if there is none to be had
        """

    def refused(self) -> None:
        """The server did not take the identity (401): get a fresh one next time."""


@dataclass(frozen=True, slots=True)
class Anonymous:
    """An identity that never changes; the empty one by default."""

    fixed: Identity = Identity()

    async def identity(self) -> Identity:
        return self.fixed

    def refused(self) -> None:
        """Nothing fresher can be had."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API server. ``server`` is its address without a slash at the end; ``ca`` PEM, None for the system's authorities.

    ``headers`` say for whom we act, where that is not ourselves (impersonation). ``namespace`` is the context's own.
    """

    server: str
    credentials: Credentials = field(default_factory=Anonymous)
    ca: bytes | None = None
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    namespace: str = "default"


def tls_context(endpoint: Endpoint, identity: Identity) -> ssl.SSLContext | None:
    """Return the TLS settings for an endpoint, None for plain HTTP.

    Raises  InputError for certificates and keys that cannot be used
    """
    if not endpoint.server.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cadata=None if endpoint.ca is None else _authorities(endpoint.ca))
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"the certificate authority of {endpoint.server} cannot be used: {error}") from None
    # As Go has it: an authority need be no root, and certificates need no key identifiers, which many clusters' do not have.
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if endpoint.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if identity.certificate is not None:
        _load(context, identity.certificate, identity.key or b"")
    return context


def _authorities(pem: bytes) -> str:
    """Return the certificates in a file, without what stands between them.

    Raises  ValueError if there are none, which to ``ssl`` would mean those of the system
    """
    found = _CERTIFICATE.findall(pem)
    if not found:
        raise ValueError("it holds no certificate")
    return "\n".join(one.decode("ascii") for one in found)


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate. OpenSSL only takes it from a file, which is ours alone and gone at once."""
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
    """Return the proxy that the environment wants for an address, "" for none; NO_PROXY and loopback go directly."""
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
