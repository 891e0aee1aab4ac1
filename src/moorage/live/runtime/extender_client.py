"""HTTP calls to extenders: one POST per call, limited in size and total time, without following redirects.

The engine interprets the response body. Every failure becomes an ``ExtenderError``, with Go's message where there is one,
because users search for it.

Source  kube-scheduler 1.36, extender.go, makeTransport and send; client-go/transport/transport.go, TLSConfigFor
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp

from moorage.basis.client.credentials import Endpoint, Identity, proxy_for, tls_context
from moorage.basis.files import read_bytes
from moorage.core.config.configuration import Extender, ExtenderTLSConfig
from moorage.core.extenders.wire import ExtenderError, shown
from moorage.errors import ConfigError, Fault, InputError
from moorage.framework.effects import Question

#: Maximum size of a response in bytes.
MOST_BYTES: Final = 16 << 20
_LATE_HEADERS: Final = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
_LATE_BODY: Final = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"


class ExtenderClient:
    """Connections to the configured extenders; use it as an async context manager.

    Raises  ConfigError if an extender's server cannot be verified, or its TLS settings cannot be used
    """

    def __init__(self, extenders: Sequence[Extender], env: Mapping[str, str] = os.environ) -> None:
        faults: list[Fault] = []
        self._endpoints = [_endpoint(one, f"extenders[{at}]", env, faults) for at, one in enumerate(extenders)]
        if faults:
            raise ConfigError("these extenders cannot be called:", faults)
        self._sessions: list[aiohttp.ClientSession] = []

    async def __aenter__(self) -> Self:
        for endpoint, tls in self._endpoints:
            connector = aiohttp.TCPConnector(limit=100, ssl=tls if tls is not None else True)
            self._sessions.append(
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers={"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "moorage"},
                    proxy=endpoint.proxy or None,
                    auto_decompress=False,
                )
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self._sessions:
            await session.close()
        self._sessions.clear()

    async def ask(self, question: Question) -> bytes:
        """Send a request to an extender and return the response body.

        Raises  ExtenderError
        """
        endpoint, _ = self._endpoints[question.extender]
        options: dict[str, Any] = {"server_hostname": endpoint.server_name} if endpoint.server_name else {}
        timeout_message = _LATE_HEADERS
        try:
            async with self._sessions[question.extender].post(
                question.url, data=question.body, allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=question.timeout_s), **options,
            ) as response:  # fmt: skip
                if response.status != 200:
                    message = f"failed {question.verb} with extender at URL {shown(question.url)}, code {response.status}"
                    raise ExtenderError(message)
                timeout_message = _LATE_BODY
                return await _bounded(response)
        except TimeoutError:
            raise ExtenderError(f'Post "{shown(question.url)}": {timeout_message}') from None
        except aiohttp.ClientPayloadError:
            raise ExtenderError("unexpected EOF") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = str(error).replace(question.url, shown(question.url)) or type(error).__name__
            raise ExtenderError(f'Post "{shown(question.url)}": {why}') from None


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MOST_BYTES:
            response.close()
            raise ExtenderError(f"the reply is longer than {MOST_BYTES} bytes")
        parts.append(chunk)
    return b"".join(parts)


# -- TLS settings ------------------------------------------------------------------------------------------------------


def _endpoint(
    extender: Extender, path: str, env: Mapping[str, str], faults: list[Fault]
) -> tuple[Endpoint, ssl.SSLContext | None]:
    """Return an extender's endpoint and TLS context; add what is wrong with its settings to ``faults``."""
    url = extender.url_prefix
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        faults.append(
            Fault("Invalid value", f"{path}.urlPrefix", "must be an address that starts with http:// or https://", shown(url))
        )
        return Endpoint(shown(url)), None
    tls = extender.tls_config or ExtenderTLSConfig()
    ca, certificate, key = (_pem(tls, what, f"{path}.tlsConfig", faults) for what in ("ca", "cert", "key"))
    if extender.enable_https and parts.scheme == "https" and ca is None and not tls.insecure:
        detail = (
            "is not set, so the extender could not be verified; set caFile or caData,"
            " or tlsConfig.insecure: true for kube-scheduler's behavior"
        )
        faults.append(Fault("Invalid value", f"{path}.tlsConfig.caFile", detail, ""))
    if tls.insecure and ca is not None:
        detail = "specifying a root certificates file with the insecure flag is not allowed"
        faults.append(Fault("Invalid value", f"{path}.tlsConfig.insecure", detail, True))
    if (certificate is None) != (key is None):
        faults.append(Fault("Invalid value", f"{path}.tlsConfig", "a certificate needs its key, and a key its certificate", ""))
    endpoint = Endpoint(shown(url), ca=ca, insecure=tls.insecure, server_name=tls.server_name, proxy=proxy_for(url, env))
    try:
        return endpoint, tls_context(endpoint, Identity(certificate=certificate, key=key) if key else Identity())
    except InputError as error:
        faults.append(Fault("Invalid value", f"{path}.tlsConfig", str(error), ""))
        return endpoint, None


def _pem(tls: ExtenderTLSConfig, what: str, path: str, faults: list[Fault]) -> bytes | None:
    """Return the PEM data of ``ca``, ``cert`` or ``key`` from the configuration, or from the file that it names; or None."""
    data: bytes = getattr(tls, f"{what}_data")
    file: str = getattr(tls, f"{what}_file")
    if data or not file:
        return data or None
    try:
        return read_bytes(file)
    except InputError as error:
        faults.append(Fault("Invalid value", f"{path}.{what}File", str(error), file))
    return None
