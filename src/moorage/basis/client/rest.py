"""HTTP/1.1 requests to an API server: throttled, limited in time and size, retried when the server asks for it.

Every failure becomes a ``ClusterError`` with the server's message. Binds have priority over all other requests and use
their own connections, so that nothing else can delay them.
"""

from __future__ import annotations

import asyncio
import heapq
import platform
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from typing import Final, Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from moorage.api.reading.json_tree import UNREADABLE
from moorage.basis.client.connection_pool import ConnectionPool, RequestBatch
from moorage.basis.client.credentials import Endpoint, Identity, tls_context
from moorage.basis.client.pooled_connection import Reply, UnsentError
from moorage.basis.client.response_stream import ServerAddress, error_text, open_stream, proxy_address
from moorage.basis.unpacking import CUT, UnpackingBound, gunzipped
from moorage.errors import ClusterError, InputError, MoorageError

# Client-side throttling: a token bucket in which binds have priority.

#: Lanes in order of priority.
BINDING, OTHER = 0, 1


class Throttle:
    """``qps`` tokens a second, with up to ``burst`` saved; a rate of 0 or less means no limit."""

    def __init__(self, qps: float, burst: int, clock: Callable[[], float]) -> None:
        self._qps, self._burst, self._clock = qps, float(max(burst, 1)), clock
        self._tokens, self._filled_at = self._burst, clock()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, lane: int = OTHER) -> None:
        """Wait for a token. Requests of a lane are served in order."""
        if self._qps <= 0:
            return
        self._fill()
        if not self._waiting and self._tokens >= 1.0:
            self._tokens -= 1.0
            return
        self._serial += 1
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (lane, self._serial, granted))
        self._arm()
        await granted

    def take_now(self, count: int) -> bool:
        """Take tokens for some requests and return True; return False if that needs waiting."""
        if self._qps <= 0:
            return True
        self._fill()
        if self._waiting or self._tokens < count:
            return False
        self._tokens -= count
        return True

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now

    def _grant(self) -> None:
        self._timer = None
        self._fill()
        while self._waiting and self._tokens >= 1.0 - 1e-9:
            _, _, granted = heapq.heappop(self._waiting)
            if not granted.done():  # cancelled requests take no token
                self._tokens -= 1.0
                granted.set_result(None)
        if self._waiting:
            self._arm()

    def _arm(self) -> None:
        if self._timer is None:
            wait_s = max(0.0, (1.0 - self._tokens) / self._qps)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._grant)


STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

_MAX_ATTEMPTS = 10
_REQUEST_S = 30.0
#: Difference between kube-scheduler's default leaseDuration and renewDeadline, in seconds.
BIND_S = 5.0
#: How long an identity is used without asking the credentials again.
_IDENTITY_S: Final = 1.0
_MAX_OBJECT = 16 << 20
_MAX_LIST = 2 << 30
_MAX_LINE = 16 << 20
#: What a list may be compressed with, and the number by which zlib knows it.
_GZIP = "gzip"
_ACCEPTS_JSON: Final = "Accept: application/json\r\n"
#: Methods that may be sent again when an idle connection turns out to be closed.
_REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})
_PATH_CHARACTERS: Final = "/%:@!$&'()*+,;=~"
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/._-]*").fullmatch


def user_agent(version: str, program: str = "moorage") -> str:
    """Return our User-Agent, in the format of Kubernetes' programs."""
    return f"{program}/v{version} ({platform.system().lower()}/{platform.machine().lower()}) scheduler"


class Rest:
    """A session with one API server; use it as an async context manager.

    ``bind_s`` limits a bind, as another scheduler may already lead when a slower one takes effect. ``on_response`` is
    called with the method and response status (0 for none) of requests, and the seconds that each took; ``on_throttled``
    with the method, and the seconds that each waited for the throttle.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        qps: float = 50.0,
        burst: int = 100,
        agent: str = "moorage",
        bind_s: float = BIND_S,
        on_response: Callable[[str, int, Sequence[float]], None] = lambda method, status, seconds: None,
        on_throttled: Callable[[str, Sequence[float]], None] = lambda method, seconds: None,
    ) -> None:
        self.endpoint = endpoint
        where = urlsplit(endpoint.server)
        self._proxy = proxy_address(endpoint.proxy) if endpoint.proxy else None
        #: The beginning of the targets of requests; a proxy that forwards them gets whole URLs.
        self._prefix = where.path.rstrip("/")
        self._origin = f"http://{where.netloc}" if self._proxy is not None and where.scheme == "http" else ""
        named = [
            ("Host", where.netloc.rpartition("@")[2]),
            ("User-Agent", agent),
            ("Accept", "application/json"),
            *endpoint.headers,
        ]
        self._head = "".join(f"{name}: {_printable(name, value)}\r\n" for name, value in named)
        self._head += self._proxy.login if self._proxy is not None and self._origin else ""
        self._on_response, self._on_throttled = on_response, on_throttled
        self._bind_s = bind_s
        self._qps, self._burst = qps, burst
        self._throttle: Throttle
        self._pools: dict[int, ConnectionPool] = {}
        self._identity: Identity | None = None
        #: When ``post_soon`` has to ask for the identity again, on the monotonic clock, and the headers that it sends.
        self._identity_until = 0.0
        self._identity_token: str | None = None
        self._post_head = b""
        #: Asks for the identity while ``post_soon`` still uses the last one.
        self._renewing: asyncio.Task[None] | None = None
        #: Status → the durations of responses to ``post_soon`` that are not reported yet.
        self._responses: dict[int, list[float]] = {}

    async def __aenter__(self) -> Self:
        self._throttle = Throttle(self._qps, self._burst, asyncio.get_running_loop().time)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        for pool in self._pools.values():
            pool.close()
        await asyncio.sleep(0)  # connections close in the next turn of the loop

    # -- requests ------------------------------------------------------------------------------------------------------

    async def get(self, path: str, params: Mapping[str, str] = {}) -> bytes:
        """Return the body of a response.

        Raises  ClusterError
        """
        return await self.send("GET", path, params=params, max_bytes=_MAX_LIST)

    async def _wait_for_throttle(self, method: str, lane: int) -> None:
        began = time.monotonic()
        await self._throttle.take(lane)
        self._on_throttled(method, [time.monotonic() - began])

    async def send(
        self, method: str, path: str, body: bytes | None = None, *, params: Mapping[str, str] = {},
        content_type: str = "application/json", lane: int = OTHER, check: Callable[[], None] = lambda: None,
        max_bytes: int = _MAX_OBJECT, accept: str = "",
    ) -> bytes:  # fmt: skip
        """Send a request and return the body of its response. ``check`` is called right before each attempt, and may raise.

        ``accept``: the media type of the response, if it is not JSON.

        Raises  ClusterError; what ``check`` raises
        """
        headers = {"Content-Type": content_type} if body is not None else {}
        if max_bytes == _MAX_LIST:
            headers["Accept-Encoding"] = _GZIP
        if accept:
            headers["Accept"] = accept
        rejected = False
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            await self._wait_for_throttle(method, lane)
            auth = await self._authorize()
            try:
                return await self._send_once(lane, method, path, params, body, headers | auth, max_bytes, check)
            except ClusterError as error:
                if error.status == 401 and not rejected:
                    rejected = True
                    self.endpoint.credentials.invalidate()
                    continue
                if error.retry_after_s is None or attempt == _MAX_ATTEMPTS:
                    raise
                await asyncio.sleep(error.retry_after_s)
        raise ClusterError(f"{method} {path}: Unauthorized on the last attempt", 401, "Unauthorized")

    def post_soon(
        self, posts: Sequence[tuple[str, bytes]], done: Callable[[Sequence[int], MoorageError | None], None], *,
        lane: int = OTHER, check: Callable[[], None] = lambda: None, apart: bool = False,
    ) -> bool:  # fmt: skip
        """Send POST requests, each a path and a body, together on one connection. The server answers in order.

        ``done`` is called with the indexes of requests that ended in the same way and their error, None for success. Nothing
        is retried. ``check`` is called right before sending; ``done`` gets the MoorageError that it raises. ``apart``: the
        requests may go over several connections, in any order.

        Return True; or False, and send nothing, if the rate limit or the credentials would require waiting.
        """
        began = time.monotonic()
        if not self._post_head or began > self._identity_until:
            return False
        if began > self._identity_until - _IDENTITY_S / 2 and (self._renewing is None or self._renewing.done()):
            # In the background, so that steady use need not wait for the identity.
            self._renewing = asyncio.get_running_loop().create_task(self._renew(), name="renew the identity")
        if not self._throttle.take_now(len(posts)):
            return False
        head = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n"
        requests = [head % (self._target(path).encode(), self._post_head, len(body)) + body for path, body in posts]
        timeout_s = self._bind_s if lane == BINDING else _REQUEST_S
        self._on_throttled("POST", [0.0] * len(posts))
        answers = _Posts(posts, began, self._posted, done)
        self._pools[lane].send_soon(RequestBatch(requests, answers, _MAX_OBJECT, timeout_s, check, apart))
        return True

    def _target(self, path: str) -> str:
        """Return the target of a request: the escaped path, behind a proxy the URL."""
        target = self._prefix + path
        return self._origin + (target if _PLAIN_PATH(target) else quote(target, safe=_PATH_CHARACTERS))

    def _posted(self, status: int, seconds: float, count: int) -> None:
        """Record responses to requests of ``post_soon``: all that the loop has read since its last turn together."""
        if not self._responses:
            asyncio.get_running_loop().call_soon(self._report_responses)
        self._responses.setdefault(status, []).extend([seconds] * count)
        if status == 401:
            self.endpoint.credentials.invalidate()
            self._identity_until = 0.0

    def _report_responses(self) -> None:
        responses, self._responses = self._responses, {}
        for status, seconds in responses.items():
            self._on_response("POST", status, seconds)

    @asynccontextmanager
    async def watch(self, path: str, params: Mapping[str, str], idle_s: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Open a watch and yield its lines, as many at a time as have arrived.

        They end when the server ends the stream or sends nothing for ``idle_s``.
        """
        await self._wait_for_throttle("GET", OTHER)
        auth = await self._authorize()
        try:
            began = time.monotonic()
            request = self._request("GET", path, params, None, auth)
            async with open_stream(self._pools[OTHER].address, request, idle_s) as (reply, parts):
                self._on_response("GET", reply.status, [time.monotonic() - began])
                if reply.status != 200:
                    raise _reply_error("watch", path, reply._replace(body=await _bounded(parts)))
                yield _lines(parts)
        except ClusterError as error:
            if error.status == 401:
                self.endpoint.credentials.invalidate()
            raise error if error.status else _transport_error(f"watch {path}", error) from error
        except (TimeoutError, OSError) as error:
            raise _transport_error(f"watch {path}", error) from error

    # -- one request ---------------------------------------------------------------------------------------------------

    async def _send_once(
        self, lane: int, method: str, path: str, params: Mapping[str, str], body: bytes | None,
        headers: Mapping[str, str], max_bytes: int, check: Callable[[], None],
    ) -> bytes:  # fmt: skip
        timeout_s = self._bind_s if lane == BINDING else _REQUEST_S
        began, status = 0.0, 0

        def checked() -> None:
            nonlocal began
            check()
            began = time.monotonic()

        try:
            request = self._request(method, path, params, body, headers)
            try:
                reply = await self._pools[lane].request(request, max_bytes, timeout_s, checked)
            except UnsentError:
                if method not in _REPEATABLE:
                    raise
                reply = await self._pools[lane].request(request, max_bytes, timeout_s, checked)
            status = reply.status
            if reply.headers.get("content-encoding", "").lower() == _GZIP:
                reply = reply._replace(body=_unpacked(reply.body, max_bytes))
        except (ClusterError, TimeoutError, OSError, UnicodeError) as error:
            raise _transport_error(f"{method} {path}", error) from error
        finally:
            if began:
                self._on_response(method, status, [time.monotonic() - began])
        if status >= 300:
            raise _reply_error(method, path, reply)
        return reply.body

    def _request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        """Return the encoded request."""
        target = self._target(path)
        if params:
            target = f"{target}?{urlencode(params)}"
        header_lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if header_lines.count("\r") != len(headers) or header_lines.count("\n") != len(headers) or "\0" in header_lines:
            raise ClusterError(f"{method} {path}: a header would be more than one line")
        length = "" if body is None and method == "GET" else f"Content-Length: {len(body or b'')}\r\n"
        head = self._head.replace(_ACCEPTS_JSON, "") if "Accept" in headers else self._head
        return f"{method} {target} HTTP/1.1\r\n{head}{header_lines}{length}\r\n".encode() + (body or b"")

    async def _authorize(self) -> dict[str, str]:
        """Return the authorization header. A new certificate requires new connections."""
        try:
            identity = await self.endpoint.credentials.identity()
            changed = self._identity is None or identity.certificate != self._identity.certificate
            if changed:
                for pool in self._pools.values():
                    pool.close()
                address = self._address(identity)
                self._pools = {lane: ConnectionPool(address) for lane in (BINDING, OTHER)}
            if changed or identity.token != self._identity_token:
                self._set_post_head(identity)
        except InputError as error:
            raise ClusterError(f"no credentials for {self.endpoint.server}: {error}", 401, "Unauthorized") from error
        self._identity, self._identity_until = identity, time.monotonic() + _IDENTITY_S
        return {"Authorization": f"Bearer {identity.token}"} if identity.token else {}

    async def _renew(self) -> None:
        with suppress(ClusterError):  # the next request that needs the identity reports it
            await self._authorize()

    def _set_post_head(self, identity: Identity) -> None:
        """Prepare the headers of ``post_soon``. They stay empty for a token that no header can contain."""
        token = f"Authorization: Bearer {identity.token}\r\n" if identity.token else ""
        usable = identity.token.isprintable()
        self._post_head = f"{self._head}Content-Type: application/json\r\n{token}".encode() if usable else b""
        self._identity_token = identity.token

    def _address(self, identity: Identity) -> ServerAddress:
        where = urlsplit(self.endpoint.server)
        tls = tls_context(self.endpoint, identity)
        try:
            port = where.port or (443 if tls is not None else 80)
        except ValueError as error:
            raise InputError(f"{self.endpoint.server}: {error}") from None
        host = where.hostname or ""
        server_name = (self.endpoint.server_name or host) if tls is not None else None
        return ServerAddress(host, port, tls, server_name, self._proxy)


class _Posts:
    """The answers to the requests of one ``post_soon``. ``record`` gets status, seconds and number of responses."""

    is_brief = True

    def __init__(
        self, posts: Sequence[tuple[str, bytes]], began: float, record: Callable[[int, float, int], None],
        done: Callable[[Sequence[int], MoorageError | None], None],
    ) -> None:  # fmt: skip
        self._posts, self._began, self._record, self._done = posts, began, record, done

    def succeeded(self, which: Sequence[int], status: int) -> None:
        self._record(status, time.monotonic() - self._began, len(which))
        self._done(which, None)

    def ended(self, at: int, answer: Reply | MoorageError) -> None:
        self._done([at], self._error(self._posts[at][0], answer))

    def _error(self, path: str, answer: Reply | MoorageError) -> MoorageError | None:
        if not isinstance(answer, Reply | ClusterError):  # ``check`` raised the error, and nothing was sent
            return answer
        status = answer.status if isinstance(answer, Reply) else 0
        self._record(status, time.monotonic() - self._began, 1)
        if not isinstance(answer, Reply):
            return _transport_error(f"POST {path}", answer)
        return None if status < 300 else _reply_error("POST", path, answer)


def _printable(name: str, value: str) -> str:
    if not value.isprintable():
        raise InputError(f"the header {name} cannot contain {value!r}: it has unprintable characters")
    return value


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: _Details | None = None


def _reply_error(method: str, path: str, reply: Reply) -> ClusterError:
    status = _Status()
    with suppress(*UNREADABLE):
        status = msgspec.json.decode(reply.body, type=_Status)
    text = status.message or f"{reply.status} {reply.phrase}".rstrip()
    retry_after = _retry_after(reply.headers.get("retry-after", "")) if reply.status == 429 or reply.status >= 500 else None
    return ClusterError(f"{method} {path}: {text}", reply.status, status.reason, retry_after, status.message)


def _retry_after(text: str) -> float | None:
    """Return the seconds in a Retry-After header; Kubernetes uses whole seconds only."""
    return float(min(int(text), 600)) if text.isdecimal() and len(text) < 9 else None


def _unpacked(body: bytes, max_bytes: int) -> bytes:
    """Return what a compressed body holds.

    Raises  ClusterError if it is longer than ``max_bytes``, or damaged
    """
    rest = BytesIO(body)
    try:
        return b"".join(gunzipped(rest.read, UnpackingBound(max_bytes)))
    except InputError as error:
        is_cut = str(error).endswith(CUT)
        raise ClusterError("the response was cut off" if is_cut else f"the answer cannot be unpacked: {error}") from None


async def _bounded(parts: AsyncIterator[bytes]) -> bytes:
    held = bytearray()
    async for part in parts:
        held += part
        if len(held) > _MAX_OBJECT:
            raise ClusterError(f"the answer is longer than {_MAX_OBJECT} bytes")
    return bytes(held)


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    rest = b""
    with suppress(TimeoutError):
        async for part in parts:
            *whole, rest = (rest + part).split(b"\n")
            lines = [line for line in whole if line and not line.isspace()]
            if lines:
                yield lines
            if len(rest) > _MAX_LINE:
                raise ClusterError(f"an event is longer than {_MAX_LINE} bytes")


def _transport_error(what: str, error: BaseException) -> ClusterError:
    """Return the error for a request without a response."""
    return ClusterError(f"{what}: {error_text(error)}", reason=error.reason if isinstance(error, ClusterError) else "")
