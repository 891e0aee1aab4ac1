"""Credentials that change at run time: rotated token files, and exec plugins that return tokens or certificates.

Source  client-go: rest/token_source.go, plugin/pkg/client/auth/exec/exec.go
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from moorage.api.reading.json_tree import UNREADABLE
from moorage.basis.files import read_bytes
from moorage.errors import InputError

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


def for_another_loop(endpoint: Endpoint) -> Endpoint:
    """Return the same endpoint, with credentials that another event loop may use at the same time."""
    credentials = endpoint.credentials
    return replace(endpoint, credentials=credentials.apart()) if isinstance(credentials, ExecCredentials) else endpoint


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
        try:
            load_pair(context, identity.certificate, identity.key or b"")
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = "the key does not belong to it" if "MISMATCH" in str(error) else str(error)
            raise InputError(f"the client certificate cannot be used: {reason}") from None
    return context


def _authorities(pem: bytes) -> str:
    """Return the certificates in a PEM bundle without other text.

    Raises  ValueError if there are none, which ``ssl`` would take as a request for the system's CAs
    """
    found = _CERTIFICATE.findall(pem)
    if not found:
        raise ValueError("it holds no certificate")
    return "\n".join(one.decode("ascii") for one in found)


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and its key. OpenSSL accepts only a file, so a private temporary one is used and deleted at once.

    Raises  ssl.SSLError, OSError, ValueError
    """
    handle, path = tempfile.mkstemp(prefix="moorage-", suffix=".pem")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(path, password=b"")
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


_REREAD_S = 60.0
_EXEC_S = 60.0
_MAX_OUTPUT = 1 << 20
_KILL_S = 5.0


class PairFiles:
    """A client certificate and its key in files, reread every minute and after a 401.

    While the files are unreadable or do not belong together, as in the middle of a rotation, the last pair is used.
    ``identity`` is the pair as first read; a part without a path does not change.

    Source  client-go, transport/cert_rotation.go
    """

    def __init__(self, certificate: Path | None, key: Path | None, clock: Callable[[], float], identity: Identity) -> None:
        self._certificate, self._key, self._clock = certificate, key, clock
        self._held = identity
        self._read_at = clock()

    async def identity(self) -> Identity:
        return self.current()

    def current(self) -> Identity:
        """Return the current identity."""
        if self._clock() - self._read_at >= _REREAD_S:
            self._read()
        return self._held

    def invalidate(self) -> None:
        self._read_at = float("-inf")

    def _read(self) -> None:
        self._read_at = self._clock()
        held = self._held
        try:
            certificate = held.certificate if self._certificate is None else read_bytes(self._certificate)
            key = held.key if self._key is None else read_bytes(self._key)
            if (certificate, key) != (held.certificate, held.key):
                load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate or b"", key or b"")
        except (InputError, ssl.SSLError, OSError, ValueError):
            return
        self._held = replace(held, certificate=certificate, key=key)


class TokenFile:
    """A bearer token in a file, reread every minute and after a 401. While the file is unreadable, the last token is used.

    ``pair``: the client certificate that is sent, too.
    """

    def __init__(
        self, path: Path, clock: Callable[[], float], identity: Identity | None = None, pair: PairFiles | None = None
    ) -> None:  # fmt: skip
        self._path, self._clock = path, clock
        self._pair = pair or PairFiles(None, None, clock, identity or Identity())
        self._token = ""
        self._read_at = float("-inf")

    async def identity(self) -> Identity:
        if self._clock() - self._read_at >= _REREAD_S:
            self._read()
        return replace(self._pair.current(), token=self._token)

    def invalidate(self) -> None:
        self._read_at = float("-inf")
        self._pair.invalidate()

    def _read(self) -> None:
        try:
            token = read_bytes(self._path).decode("ascii").strip()
        except (InputError, UnicodeDecodeError) as error:
            if self._token:
                return
            raise InputError(f"token file {self._path}: {error}") from None
        if not token and not self._token:
            raise InputError(f"token file {self._path}: it is empty")
        self._token = token or self._token
        self._read_at = self._clock()


@dataclass(frozen=True, slots=True)
class ExecCommand:
    """An exec plugin. ``cluster`` is the cluster information passed to it, None if ``provideClusterInfo`` is not set."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None
    directory: str = ""


#: Runs a program with arguments and environment, and returns its standard output.
Runner = Callable[[list[str], Mapping[str, str]], Awaitable[bytes]]


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _ExecCredentialStatus | None = None


class _ExecCredentialStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class ExecCredentials:
    """Runs an exec plugin for an identity: at first use, after its expiry and after a 401."""

    def __init__(
        self, command: ExecCommand, env: Mapping[str, str], wall: Callable[[], datetime], run: Runner | None = None
    ) -> None:
        self._command, self._env, self._wall = command, env, wall
        self._run = run or run_program
        self._identity: Identity | None = None
        self._expires: datetime | None = None
        self._lock = asyncio.Lock()
        self._failures, self._failure = 0, ""

    def apart(self) -> ExecCredentials:
        """Return the same for another event loop."""
        return ExecCredentials(self._command, self._env, self._wall, self._run)

    async def identity(self) -> Identity:
        failures = self._failures
        async with self._lock:
            if self._failures != failures:
                raise InputError(self._failure)  # the plugin failed while this call waited for it
            if self._identity is None or (self._expires is not None and self._wall() >= self._expires):
                try:
                    self._identity, self._expires = await self._run_plugin()
                except InputError as error:
                    self._failures, self._failure = self._failures + 1, str(error)
                    raise
            return self._identity

    def invalidate(self) -> None:
        self._identity = None

    async def _run_plugin(self) -> tuple[Identity, datetime | None]:
        command = self._command
        spec: dict[str, Any] = {"interactive": False}
        if command.cluster is not None:
            spec["cluster"] = dict(command.cluster)
        info = {"kind": "ExecCredential", "apiVersion": command.api_version, "spec": spec}
        env = {**self._env, **dict(command.env), "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        program = command.command
        if command.directory and os.sep in program and not Path(program).is_absolute():
            program = str(Path(command.directory) / program)
        try:
            output_bytes = await self._run([program, *command.args], env)
        except InputError as error:
            hint = f" ({' '.join(command.install_hint.split())})" if command.install_hint else ""
            raise InputError(f"exec plugin {command.command}: {error}{hint}") from None
        return self._read(output_bytes)

    def _read(self, output_bytes: bytes) -> tuple[Identity, datetime | None]:
        name = f"exec plugin {self._command.command}"
        try:
            credential = msgspec.json.decode(output_bytes, type=_ExecCredential)
        except UNREADABLE as error:
            raise InputError(f"{name}: its output is not an ExecCredential: {error}") from None
        status = credential.status
        if credential.kind != "ExecCredential" or credential.api_version != self._command.api_version or status is None:
            wanted = f"an ExecCredential of {self._command.api_version} with a status"
            found = f"{credential.kind or 'nothing'} of {credential.api_version or 'no version'}"
            raise InputError(f"{name}: expected {wanted}, got {found}")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise InputError(f"{name}: a certificate and its key must come together")
        if not status.token and not status.client_certificate_data:
            raise InputError(f"{name}: it returned neither a token nor a certificate")
        expires = status.expiration_timestamp
        if expires is not None and expires <= self._wall():
            raise InputError(f"{name}: the credential expired at {expires.isoformat()}")
        certificate = status.client_certificate_data.encode() or None
        return Identity(status.token, certificate, status.client_key_data.encode() or None), expires


async def run_program(args: list[str], env: Mapping[str, str]) -> bytes:
    """Run a program and return its output: at most a mebibyte within a minute.

    Raises  InputError
    """
    try:
        # A process group of its own, so that its children are killed with it.
        transport, output = await asyncio.get_running_loop().subprocess_exec(
            _Output, *args, env=dict(env), stdin=asyncio.subprocess.DEVNULL, stderr=None, process_group=0
        )
    except (OSError, ValueError) as error:
        raise InputError(f"it cannot be run: {getattr(error, 'strerror', None) or error}") from None
    try:
        async with asyncio.timeout(_EXEC_S):
            await output.over
    except TimeoutError:
        raise InputError(f"it did not end within {_EXEC_S:g}s") from None
    finally:
        await _end(transport, output)
    if len(output.output_bytes) > _MAX_OUTPUT:
        raise InputError(f"it printed more than {_MAX_OUTPUT} bytes")
    if (status := transport.get_returncode()) != 0:
        raise InputError(f"it failed with exit status {status}")
    return bytes(output.output_bytes)


class _Output(asyncio.SubprocessProtocol):
    """The output of a program. ``over`` completes when all output was read or there is too much; ``exited`` when the
    program ends.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.output_bytes = bytearray()
        self.over: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if len(self.output_bytes) <= _MAX_OUTPUT:
            self.output_bytes += data
        if len(self.output_bytes) > _MAX_OUTPUT:
            _complete(self.over)

    def process_exited(self) -> None:
        _complete(self.exited)

    def connection_lost(self, exc: Exception | None) -> None:
        _complete(self.over)


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _end(transport: asyncio.SubprocessTransport, output: _Output) -> None:
    """Kill a program that is still running, with its children, and close its pipes."""
    if not output.exited.done() or not output.over.done() or len(output.output_bytes) > _MAX_OUTPUT:
        with suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILL_S):
                await output.exited
    transport.close()
