"""Requests to an API server behind a proxy, sent with aiohttp. Everything else sends its requests without a library."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp

from moorage.errors import ClusterError
from moorage.live.client.credentials import Endpoint
from moorage.live.client.pooled_connection import CUT_OFF, Reply
from moorage.live.client.response_stream import CONNECT_S, Stream, keep_alive, unreachable


class ProxiedRequests:
    """A session of one identity. ``headers`` are sent with each request."""

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, headers: Sequence[tuple[str, str]]) -> None:
        self._endpoint = endpoint
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls if tls is not None else True, socket_factory=_kept_alive),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None, headers: Mapping[str, str],
        timeout_s: float, max_bytes: int,
    ) -> Reply:  # fmt: skip
        """Send a request and return its response.

        Raises  ClusterError for no response, or one of more than ``max_bytes``; TimeoutError; OSError
        """
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        with _plain_errors():
            async with self._sent(method, path, params, headers, timeout, data=body) as response:
                parts, size = [], 0
                async for part in response.content.iter_any():
                    parts.append(part)
                    if (size := size + len(part)) > max_bytes:
                        raise ClusterError(f"the answer is longer than {max_bytes} bytes")
                return _head_of(response)._replace(body=b"".join(parts))

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], headers: Mapping[str, str], idle_s: float
    ) -> AsyncIterator[Stream]:
        """Send a request, and yield its response as ``open_stream`` does."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=idle_s)
        with _plain_errors():
            async with self._sent("GET", path, params, headers, timeout) as response:
                yield _head_of(response), _parts(response)

    def _sent(
        self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], timeout: aiohttp.ClientTimeout,
        **more: Any,
    ) -> Any:  # fmt: skip
        if self._endpoint.server_name:
            more["server_hostname"] = self._endpoint.server_name
        return self._session.request(
            method, self._endpoint.server + path, params=dict(params), headers=headers, timeout=timeout,
            allow_redirects=False, proxy=self._endpoint.proxy, **more,
        )  # fmt: skip


async def _parts(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    with _plain_errors():
        async for part in response.content.iter_any():
            yield part


def _head_of(response: aiohttp.ClientResponse) -> Reply:
    """Return a response without its body, and without its encoding, which aiohttp takes away."""
    headers = {"retry-after": response.headers.get("Retry-After", "")}
    return Reply(response.status, response.reason or "", headers, b"")


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except aiohttp.ClientPayloadError:
        raise ClusterError(CUT_OFF) from None
    except aiohttp.ClientSSLError:
        raise
    except aiohttp.ClientConnectorError as error:
        raise unreachable(error.os_error) from error
    except aiohttp.ClientError as error:
        if isinstance(error, OSError):  # among them TimeoutError
            raise
        raise ClusterError(str(error) or type(error).__name__) from error


def _kept_alive(address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(*address[:3])
    keep_alive(made)
    return made
