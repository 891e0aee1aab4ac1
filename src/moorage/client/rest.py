"""Requests to an API server over HTTP/1.1: throttled, bounded in time and size, tried again where the server asks for it.

Whatever goes wrong becomes a ``ClusterError`` with the server's own words. Binds are served before all other requests, over
connections of their own, so that nothing else can keep them waiting.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import msgspec

from moorage.api.json_tree import UNREADABLE
from moorage.client.endpoint import Endpoint, Identity, tls_context
from moorage.client.exchange import Exchange, Reply, UnsentError
from moorage.client.throttle import BINDING, OTHER, Throttle
from moorage.errors import UNREACHABLE, ClusterError, InputError

__all__ = ["BIND_S", "MERGE_PATCH", "STRATEGIC_MERGE_PATCH", "Rest", "user_agent"]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

_TRIES = 10
_REQUEST_S = 30.0
#: Seconds between kube-scheduler's renewDeadline and its leaseDuration, where nothing else is configured.
BIND_S = 5.0
_CONNECT_S = 10.0
_MOST_OBJECT = 16 << 20
_MOST_LIST = 2 << 30
_MOST_LINE = 16 << 20
_CHUNK = 1 << 16
#: What may be sent a second time when a kept connection ends under it.
_REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})
_PATH_CHARACTERS: Final = "/%:@!$&'()*+,;=~"
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/._-]*").fullmatch


def user_agent(version: str, program: str = "moorage") -> str:
    """Return what we call ourselves, in the form Kubernetes' own programs use."""
    return f"{program}/v{version} ({platform.system().lower()}/{platform.machine().lower()}) scheduler"


class Rest:
    """A session with one API server; use it as an async context manager.

    ``bind_s`` is how long a bind may take: one that took longer could be done when another scheduler leads already.
    ``told`` hears of every request that was sent: its method, the status of its answer (0 for none), and how long that took;
    ``waited`` before that how long it waited for its turn.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        qps: float = 50.0,
        burst: int = 100,
        agent: str = "moorage",
        bind_s: float = BIND_S,
        told: Callable[[str, int, float], None] = lambda method, status, seconds: None,
        waited: Callable[[str, float], None] = lambda method, seconds: None,
    ) -> None:
        self.endpoint = endpoint
        where = urlsplit(endpoint.server)
        self._prefix = where.path.rstrip("/")
        named = [
            ("Host", where.netloc.rpartition("@")[2]),
            ("User-Agent", agent),
            ("Accept", "application/json"),
            *endpoint.headers,
        ]
        self._head = "".join(f"{name}: {_in_one_line(name, value)}\r\n" for name, value in named)
        self._told, self._waited = told, waited
        self._bind_s = bind_s
        self._qps, self._burst = qps, burst
        self._agent = agent
        self._throttle: Throttle
        self._sessions: dict[int, aiohttp.ClientSession] = {}
        self._exchanges: dict[int, Exchange] = {}
        self._identity: Identity | None = None
        self._retired: list[aiohttp.ClientSession] = []

    async def __aenter__(self) -> Self:
        self._throttle = Throttle(self._qps, self._burst, asyncio.get_running_loop().time)
        return self

    async def __aexit__(self, *_: object) -> None:
        for exchange in self._exchanges.values():
            exchange.close()
        for session in (*self._sessions.values(), *self._retired):
            await session.close()
        await asyncio.sleep(0)  # connections take a turn of the loop to be closed

    # -- what others call --------------------------------------------------------------------------------------------------

    async def get(self, path: str, params: Mapping[str, str] = {}) -> bytes:
        """Return the body of an answer.

        Raises  ClusterError
        """
        return await self.send("GET", path, params=params, most=_MOST_LIST)

    async def _turn(self, method: str, lane: int) -> None:
        began = time.monotonic()
        await self._throttle.take(lane)
        self._waited(method, time.monotonic() - began)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        params: Mapping[str, str] = {},
        content_type: str = "application/json",
        lane: int = OTHER,
        check: Callable[[], None] = lambda: None,
        most: int = _MOST_OBJECT,
    ) -> bytes:
        """Send a request and return the body of the answer. ``check`` is called right before each sending, and may raise.

        Raises  ClusterError; what ``check`` raised
        """
        headers = {"Content-Type": content_type} if body is not None else {}
        refused = False
        for tries in range(1, _TRIES + 1):
            await self._turn(method, lane)
            session, auth = await self._session(lane)
            try:
                if most == _MOST_LIST or self.endpoint.proxy:
                    check()
                    return await self._once(session, method, path, params, body, headers | auth, most)
                return await self._exchanged(lane, method, path, params, body, headers | auth, most, check)
            except ClusterError as error:
                if error.status == 401 and not refused:
                    refused = True
                    self.endpoint.credentials.refused()
                    continue
                if error.retry_after_s is None or tries == _TRIES:
                    raise
                await asyncio.sleep(error.retry_after_s)
        raise ClusterError(f"{method} {path}: refused every time", 401, "Unauthorized")

    @asynccontextmanager
    async def watch(self, path: str, params: Mapping[str, str], idle_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield its lines. They end when the server ends them, or is silent for ``idle_s``."""
        await self._turn("GET", OTHER)
        session, auth = await self._session(OTHER)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=idle_s)
        try:
            began = time.monotonic()
            async with session.get(self.endpoint.server + path, headers=auth, timeout=timeout, **self._how(params)) as response:
                self._told("GET", response.status, time.monotonic() - began)
                if response.status != 200:
                    raise _refusal("watch", path, response, await _bounded(response, _MOST_OBJECT))
                yield _lines(response)
        except ClusterError as error:
            if error.status == 401:
                self.endpoint.credentials.refused()
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _failure(f"watch {path}", error) from error

    # -- one request ---------------------------------------------------------------------------------------------------------

    async def _once(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        headers: Mapping[str, str],
        most: int,
    ) -> bytes:
        began, status = time.monotonic(), 0
        try:
            request = session.request(method, self.endpoint.server + path, data=body, headers=headers, **self._how(params))
            async with request as response:
                status = response.status
                answer = await _bounded(response, most)
                if response.status >= 300:
                    raise _refusal(method, path, response, answer)
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _failure(f"{method} {path}", error) from error
        finally:
            self._told(method, status, time.monotonic() - began)

    async def _exchanged(
        self,
        lane: int,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        headers: Mapping[str, str],
        most: int,
        check: Callable[[], None],
    ) -> bytes:
        """Do what ``_once`` does for a request whose answer is short, at a fraction of the cost."""
        request = self._request(method, path, params, body, headers)
        patience_s = self._bind_s if lane == BINDING else _REQUEST_S
        began, status = 0.0, 0

        def checked() -> None:
            nonlocal began
            check()
            began = time.monotonic()

        try:
            exchange = self._exchanges[lane]
            try:
                reply = await exchange.ask(request, most, patience_s, checked)
            except UnsentError:
                if method not in _REPEATABLE:
                    raise
                reply = await exchange.ask(request, most, patience_s, checked)
            status = reply.status
        except (ClusterError, TimeoutError, OSError, UnicodeError) as error:
            raise _failure(f"{method} {path}", error) from error
        finally:
            if began:
                self._told(method, status, time.monotonic() - began)
        if status >= 300:
            raise _refused(method, path, reply)
        return reply.body

    def _request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        """Return a request as it is sent."""
        target = self._prefix + path
        if not _PLAIN_PATH(target):
            target = quote(target, safe=_PATH_CHARACTERS)
        if params:
            target = f"{target}?{urlencode(params)}"
        said = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if said.count("\r") != len(headers) or said.count("\n") != len(headers) or "\0" in said:
            raise ClusterError(f"{method} {path}: a header would be more than one line")
        length = "" if body is None and method == "GET" else f"Content-Length: {len(body or b'')}\r\n"
        return f"{method} {target} HTTP/1.1\r\n{self._head}{said}{length}\r\n".encode() + (body or b"")

    def _how(self, params: Mapping[str, str]) -> dict[str, Any]:
        how: dict[str, Any] = {"params": dict(params), "allow_redirects": False, "proxy": self.endpoint.proxy or None}
        if self.endpoint.server_name:
            how["server_hostname"] = self.endpoint.server_name
        return how

    async def _session(self, lane: int) -> tuple[aiohttp.ClientSession, dict[str, str]]:
        """Return the lane's session and the headers that say who we are. A new certificate means new connections."""
        try:
            identity = await self.endpoint.credentials.identity()
            changed = self._identity is None or identity.certificate != self._identity.certificate
            if changed:
                self._retired += self._sessions.values()
                for exchange in self._exchanges.values():
                    exchange.close()
                self._sessions = {lane: self._new_session(identity, lane) for lane in (BINDING, OTHER)}
                self._exchanges = {lane: self._new_exchange(identity) for lane in (BINDING, OTHER)}
        except InputError as error:
            raise ClusterError(f"no credentials for {self.endpoint.server}: {error}", 401, "Unauthorized") from error
        self._identity = identity
        return self._sessions[lane], {"Authorization": f"Bearer {identity.token}"} if identity.token else {}

    def _new_session(self, identity: Identity, lane: int) -> aiohttp.ClientSession:
        tls = tls_context(self.endpoint, identity)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls if tls is not None else True, socket_factory=_probing),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=[("User-Agent", self._agent), ("Accept", "application/json"), *self.endpoint.headers],
            timeout=aiohttp.ClientTimeout(total=self._bind_s if lane == BINDING else _REQUEST_S, sock_connect=_CONNECT_S),
        )

    def _new_exchange(self, identity: Identity) -> Exchange:
        where = urlsplit(self.endpoint.server)
        tls = tls_context(self.endpoint, identity)
        try:
            port = where.port or (443 if tls is not None else 80)
        except ValueError as error:
            raise InputError(f"{self.endpoint.server}: {error}") from None
        return Exchange(where.hostname or "", port, tls, self.endpoint.server_name)


def _probing(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket for an address that notices within 45 s that nobody is there, as kube-scheduler's pings of HTTP/2 do."""
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _in_one_line(name: str, value: str) -> str:
    if not value.isprintable():
        raise InputError(f"the header {name} cannot hold {value!r}: characters that are not printed")
    return value


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: _Details | None = None


def _refusal(method: str, path: str, response: aiohttp.ClientResponse, body: bytes) -> ClusterError:
    headers = {"retry-after": response.headers.get("Retry-After", "")}
    return _refused(method, path, Reply(response.status, response.reason or "", headers, body))


def _refused(method: str, path: str, reply: Reply) -> ClusterError:
    status = _Status()
    with suppress(*UNREADABLE):
        status = msgspec.json.decode(reply.body, type=_Status)
    text = status.message or f"{reply.status} {reply.phrase}".rstrip()
    retry_after = _retry_after(reply.headers.get("retry-after", "")) if reply.status == 429 or reply.status >= 500 else None
    return ClusterError(f"{method} {path}: {text}", reply.status, status.reason, retry_after, status.message)


def _retry_after(text: str) -> float | None:
    """Seconds that the server wants us to wait; other forms of the header than whole seconds are not Kubernetes'."""
    return float(min(int(text), 600)) if text.isdecimal() and len(text) < 9 else None


async def _bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    parts, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > most:
            raise ClusterError(f"the answer is longer than {most} bytes")
        parts.append(chunk)
    return b"".join(parts)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    try:
        async for chunk in response.content.iter_any():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                if line.strip():
                    yield line
            if len(rest) > _MOST_LINE:
                raise ClusterError(f"an event is longer than {_MOST_LINE} bytes")
    except (aiohttp.SocketTimeoutError, TimeoutError):
        return


def _failure(what: str, error: BaseException) -> ClusterError:
    """Return what to raise where no answer came. A server that nobody reaches is told apart from one that fell silent."""
    if isinstance(error, aiohttp.ClientPayloadError):
        return ClusterError(f"{what}: the answer broke off")
    if isinstance(error, (aiohttp.ClientSSLError, TimeoutError)):
        return ClusterError(f"{what}: {_words(error)}")
    if isinstance(error, (aiohttp.ClientConnectorError, ConnectionRefusedError, socket.gaierror)):
        return ClusterError(f"{what}: {_why_unreached(error)}", reason=UNREACHABLE)
    return ClusterError(f"{what}: {_words(error)}")


def _why_unreached(error: OSError) -> str:
    """Return the system's words for it, where it has some; asyncio replaces them by an address."""
    number = error.errno
    return f"cannot connect: {os.strerror(number) if number is not None and number > 0 else _words(error)}"


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
