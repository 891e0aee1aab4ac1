"""Transports for ``check_cluster``: a store in this process, or any API server over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import aiohttp

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.statuses import ApiError
from moorage.basis.client.credentials import Endpoint, tls_context
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.requests import serve
from moorage.cluster.apiserver.http.server_documents import check_route
from moorage.cluster.apiserver.http.watch_stream import open_stream
from moorage.rules.store.store import Store

__all__ = ["ClusterWire", "HttpWire", "StoreWire", "WireAnswer"]

Document = dict[str, Any]
_JSON = "application/json"
_ADMIN = User("admin", ("system:masters",))


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """The response: the status code, and the object or ``Status``."""

    code: int
    body: Document

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def version(self) -> int:
        return int(self.body.get("metadata", {}).get("resourceVersion") or 0)


class ClusterWire(Protocol):
    """Requests to an API server with administrator rights."""

    async def ask(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] = {}, form: str = _JSON
    ) -> WireAnswer: ...
    def watch(self, path: str, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[Document]]:
        """Yield the events of a watch, as objects with ``type`` and ``object``."""


class StoreWire:
    """The embedded API server without HTTP."""

    def __init__(self, store: Store) -> None:
        self._store, self._guard, self._authorizer = store, Authenticator({}), Authorizer(store)

    def _request(self, method: str, path: str, query: Mapping[str, str], form: str = "", body: bytes = b"") -> HTTPRequest:
        return HTTPRequest(method, path, dict(query), _JSON, form, body, _ADMIN)

    async def ask(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] = {}, form: str = _JSON
    ) -> WireAnswer:
        """Execute a request."""
        raw = b"" if body is None else json.dumps(body).encode()
        try:
            request, target = self._request(method, path, query, form, raw), find_target(path, self._store.kinds)
            check_route(method, target, form)
            response = serve(self._store, self._guard, self._authorizer, request, target)
        except ApiError as error:
            return WireAnswer(error.code, error.status())
        return WireAnswer(response.code, json.loads(response.body))

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[Document]]:
        request = self._request("GET", path, {**query, "watch": "true"})
        stream = open_stream(self._store, request, find_target(path, self._store.kinds))
        try:
            yield _events(b"".join(parts) async for parts in stream)
        finally:
            stream.close()


class HttpWire:
    """An API server over HTTP; use it as an async context manager."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        identity = await self._endpoint.credentials.identity()
        tls = tls_context(self._endpoint, identity)
        headers = {"Accept": _JSON, **dict(self._endpoint.headers)}
        if identity.token:
            headers["Authorization"] = f"Bearer {identity.token}"
        connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] = {}, form: str = _JSON
    ) -> WireAnswer:
        """Send a request, without retries."""
        raw = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": form} if raw is not None else {}
        url = self._endpoint.server + path
        async with self._session.request(method, url, data=raw, params=dict(query), headers=headers) as response:
            text = await response.read()
            return WireAnswer(response.status, json.loads(text) if text[:1] == b"{" else {"message": text.decode()})

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[Document]]:
        params = {**query, "watch": "true"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._endpoint.server + path, params=params, timeout=timeout) as response:
            if response.status != 200:
                raise AssertionError(f"watch {path}: {response.status} {(await response.text())[:200]}")
            yield _events(response.content.iter_any())


async def _events(chunks: Any) -> AsyncIterator[Document]:
    rest = b""
    async for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            if line.strip():
                yield json.loads(line)
        await asyncio.sleep(0)
