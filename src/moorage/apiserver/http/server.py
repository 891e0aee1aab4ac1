"""The store over HTTP: the one layer of the server that waits, and the only one that knows aiohttp.

Requests go through the guard (who is it), the authorizer (may they) and the seats (is there room), then by their path to the
store; refusals of any kind become ``Status`` objects. What changes something is answered when the change is kept. A watch is a
response that does not end, written as the store's changes come.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final

from aiohttp import HttpVersion10, HttpVersion11, web
from multidict import istr

from moorage.api.durations import DurationError, parse_duration
from moorage.apiserver.access.authentication import Authenticator, User, certificate_user
from moorage.apiserver.access.impersonation import impersonated
from moorage.apiserver.access.rbac_authorizer import Authorizer
from moorage.apiserver.access.rbac_rules import Attributes
from moorage.apiserver.access.request_attributes import attributes_at, attributes_of
from moorage.apiserver.http.connections import HEADERS, Connection
from moorage.apiserver.http.large_requests import carry_out, is_large
from moorage.apiserver.http.limits import Seats, ServerLimits
from moorage.apiserver.http.lines import Lines
from moorage.apiserver.http.request_metrics import CONTENT_TYPE, RequestMetrics
from moorage.apiserver.http.requests import HTTPRequest, check_making, serve
from moorage.apiserver.http.responses import OutgoingResponse, answer_of, refusal
from moorage.apiserver.http.routes import check_route
from moorage.apiserver.http.sending import LONG, close_after, cut, hang_up, narrow, send, write
from moorage.apiserver.http.server_documents import check_method, document, health, is_document, is_health
from moorage.apiserver.http.watch_stream import Stream, is_watch, open_stream
from moorage.apiserver.http.worker import Worker
from moorage.apiserver.schema.representations import check_types
from moorage.apiserver.schema.request_bodies import MAX_BODY
from moorage.apiserver.storage.store import Store
from moorage.apiserver.vocabulary.request_targets import ReviewTarget, Target, find_target
from moorage.apiserver.vocabulary.statuses import (
    ApiError,
    bad_request,
    internal,
    no_such_page,
    not_allowed,
    too_large,
)

__all__ = ["Front"]

MAX_PARAMETERS: Final = 1000
_READ_ONLY: Final = frozenset(["GET", "HEAD"])
_METHODS: Final = _READ_ONLY | {"DELETE", "PATCH", "POST", "PUT"}
_GO_ON: Final = ("/attach", "/exec", "/log", "/portforward", "/proxy")
_ALWAYS: Final = tuple((istr(name), value) for name, value in HEADERS.items())

_LOG: Final = logging.getLogger(__name__)


class Front:
    """Answers requests about a store. ``moorage.apiserver.http.serve`` runs it, behind connections with limits."""

    def __init__(self, store: Store, guard: Authenticator, limits: ServerLimits, worker: Worker) -> None:
        self.store = store
        self.guard = guard
        self.authorizer = Authorizer(store)
        self.limits = limits
        self.seats = Seats(limits)
        self.meter = RequestMetrics()
        self._streams: set[Stream] = set()
        self._lines = Lines()
        self._worker = worker

    def make_request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        """Return a request of what the HTTP library read, with our limit for bodies."""
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)

    def end_watches(self) -> None:
        """Let every watch end, so that a server that stops need not wait for them."""
        for stream in self._streams:
            stream.end()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer any request; nothing gets out of here but responses."""
        connection = request.protocol
        if isinstance(connection, Connection):
            connection.began()
        try:
            asked: list[Attributes] = []
            response = await self._answer_or_refuse(request, asked)
            self._count(asked, response.status)
            return await self._completed(request, response)
        finally:
            if isinstance(connection, Connection):
                connection.ended()

    def _count(self, asked: list[Attributes], code: int) -> None:
        for one in asked:
            self.meter.count(one.verb.upper(), one.group, one.combined, code)
        if not asked:
            self.meter.count_other(code)

    async def _answer_or_refuse(self, request: web.BaseRequest, asked: list[Attributes]) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        try:
            return await self._answer(request, asked)
        except ApiError as error:
            return refusal(error, accept)
        except web.HTTPRequestEntityTooLarge:
            return refusal(too_large(MAX_BODY), accept)
        except TimeoutError:
            return refusal(ApiError(408, "Timeout", "the request's body did not arrive in time"), accept)
        except RecursionError:
            return refusal(bad_request("the object is nested too deeply"), accept)
        except web.HTTPException as error:
            return refusal(ApiError(error.status, "", error.reason), accept)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:  # a bug of ours must not take the connection's other requests with it
            _LOG.exception("%s %r", request.method, request.path)
            return refusal(internal(type(error).__name__), accept)

    async def _answer(self, request: web.BaseRequest, about: list[Attributes]) -> web.StreamResponse:
        """Answer a request. What it is about is added to ``about`` once that is known."""
        path = request.path.rstrip("/")
        _check_timeout(request)
        user = self.guard.authenticate(path, request.headers, _holder(request))
        if not HttpVersion10 <= request.version <= HttpVersion11:
            raise ApiError(505, "", "requests must be HTTP/1.0 or HTTP/1.1")
        if request.method not in _METHODS:
            raise not_allowed()
        if not request.raw_path.startswith("/"):
            raise ApiError(403, "Forbidden", "requests name a path; this server is no proxy")
        if len(request.query) > MAX_PARAMETERS:
            raise ApiError(414, "RequestURITooLong", f"more than {MAX_PARAMETERS} parameters")
        if user is None:
            return self._about_itself(request, path)
        user = impersonated(user, request.headers.items(), self.authorizer)
        if (request.content_length or 0) > MAX_BODY:
            raise too_large(MAX_BODY)  # before anything else is said of it, as nobody waits for the rest
        if path == "/metrics" or is_document(path) or is_health(path):
            self.authorizer.check(user, Attributes(request.method.lower(), path=path))
            return self._about_itself(request, path)
        target = self._target(request, user)
        attributes = attributes_of(request.method, target, request.query)
        about.append(attributes)
        self.authorizer.check(user, attributes)
        check_route(request.method, target, _content_type(request))
        many = isinstance(target, Target) and not target.name
        check_types(request.headers.get("Accept", ""), many=many, tables=isinstance(target, Target))
        if attributes.verb == "watch":
            with self.seats.watching(user.name):
                return await self._watch(request, user, target)
        async with self.seats.taken(user.name, mutating=request.method not in _READ_ONLY):
            asked = await _read(request, user, self.limits.client_s)
            answer = await self._serve(asked, target)
            if answer.held <= LONG:
                return await self._sent(request, answer)
            # The answer to a change is sent however much is unread.
            with self.seats.sending(user.name, answer.held, refusable=asked.dry_run or asked.method in _READ_ONLY):
                return await self._sent(request, answer)

    def _target(self, request: web.BaseRequest, user: User) -> Target | ReviewTarget:
        """Return what a path is about. What is not served is told only to those who could ask for anything."""
        try:
            return find_target(request.rel_url.raw_path, self.store.offers)
        except ApiError:
            self.authorizer.check(user, attributes_at(request.method, request.path))
            raise

    def _about_itself(self, request: web.BaseRequest, path: str) -> web.Response:
        check_method(path, request.method)
        if path == "/metrics":
            return web.Response(body=self.meter.text(self.store, self.seats).encode(), headers={"Content-Type": CONTENT_TYPE})
        if is_health(request.path):
            excluded = request.query.getall("exclude", [])
            return web.Response(text=health(path, self.store, verbose="verbose" in request.query, excluded=excluded))
        if is_health(path):
            raise no_such_page()
        page = document(path, request.headers.get("Accept", ""), request.headers.get("Host", ""), self.store.offers)
        if not page.tag:
            return web.Response(body=page.body, headers={"Content-Type": page.form})
        headers = {"Content-Type": page.form, "ETag": page.tag, "Vary": "Accept", "Cache-Control": "public"}
        if request.headers.get("If-None-Match") == page.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=page.body, headers=headers)

    async def _serve(self, asked: HTTPRequest, target: Target | ReviewTarget) -> OutgoingResponse:
        """Carry out a request that ends; one that may change something is done once the change is kept."""
        if asked.method in _READ_ONLY:
            return await self._carry_out(asked, target)
        if self.store.log is not None:
            await self.store.log.check()
        try:
            return await self._carry_out(asked, target)
        finally:
            await self.store.settle()

    async def _carry_out(self, asked: HTTPRequest, target: Target | ReviewTarget) -> OutgoingResponse:
        """Carry out a request: here, or in the worker's thread if it is large."""
        if is_large(self.store, asked, target):
            return await self._worker.run(asked.user.name, partial(carry_out, self.store, self.guard, asked, target))
        check_making(self.store, self.authorizer, asked, target)
        return answer_of(asked, serve(self.store, self.guard, self.authorizer, asked, target))

    async def _sent(self, request: web.BaseRequest, answer: OutgoingResponse) -> web.StreamResponse:
        """Return a short answer. Send a long one: it keeps its seat until it is read."""
        return await send(request, answer.code, answer.headers, answer.parts, self.limits.answer_s)

    async def _watch(self, request: web.BaseRequest, user: User, target: Target | ReviewTarget) -> web.StreamResponse:
        asked = await _read(request, user, self.limits.client_s)
        if not is_watch(asked, target):
            return await self._sent(request, await self._serve(asked, target))
        stream = open_stream(self.store, asked, target, self._lines)
        headers = {"Content-Type": stream.media_type, **HEADERS}
        response = web.StreamResponse(headers=headers)
        if request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        self._streams.add(stream)
        if isinstance(request.protocol, Connection):
            request.protocol.when_lost = stream.end
        narrow(request)
        try:
            async with asyncio.timeout(self.limits.client_s):
                writer = await response.prepare(request)
            async for parts in stream:
                for piece in cut(parts):
                    async with asyncio.timeout(self.limits.client_s):
                        await write(response, writer, piece)
        except TimeoutError:
            hang_up(request)  # a client that stopped reading; it lists again when it is back
        except ConnectionError:
            pass  # a client that went away
        finally:
            stream.close()
            self._streams.discard(stream)
        return response

    async def _completed(self, request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
        """Give a response what all have, and send it if it is long; what is short is left to aiohttp, as it never waits."""
        if response.prepared:
            return response
        headers = response.headers
        for name, value in _ALWAYS:
            if name not in headers:
                headers[name] = value
        close_after(request, response)
        body = response.body if isinstance(response, web.Response) else None
        if not isinstance(body, bytes) or len(body) <= LONG:
            return response
        return await send(request, response.status, headers, [body], self.limits.answer_s)


def _check_timeout(request: web.BaseRequest) -> None:
    """Check how long a client wants to wait for an answer, which nothing else is made of: all of them come at once.

    Raises  ApiError 400, but not for what goes on for as long as it takes
    """
    asked = request.query.get("timeout") if request.query_string else None
    if not asked or request.query.get("watch", "0") not in {"0", "false", ""} or request.path.endswith(_GO_ON):
        return
    try:
        parse_duration(asked)
    except DurationError as error:
        raise bad_request(f"invalid timeout specified in the request URL - {error}") from None


def _holder(request: web.BaseRequest) -> User | None:
    """Return whom the connection's certificate is made out to, which is the same for all that is asked over it."""
    connection = request.protocol
    if not isinstance(connection, Connection):
        return certificate_user(request.get_extra_info("peercert"))
    if connection.holder is None:
        connection.holder = certificate_user(request.get_extra_info("peercert"))
    return connection.holder


def _content_type(request: web.BaseRequest) -> str:
    """Return the type of a body as its client spells it."""
    return request.headers.get("Content-Type", "application/json").partition(";")[0].strip()


def _media_type(request: web.BaseRequest) -> str:
    return _content_type(request).lower()


async def _read(request: web.BaseRequest, user: User, client_s: float) -> HTTPRequest:
    media_type = _media_type(request)
    body = b""
    if request.method != "GET" and request.body_exists:
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise ApiError(415, "UnsupportedMediaType", "bodies are not read compressed")
        if (request.content_length or 0) > MAX_BODY:
            raise too_large(MAX_BODY)
        await _let_come(request)
        if request.content.is_eof():  # it came with the head, as short ones do
            body = await request.read()
        else:
            async with asyncio.timeout(client_s):
                body = await request.read()
    query = {name: request.query[name] for name in request.query}
    accept, agent = request.headers.get("Accept", ""), request.headers.get("User-Agent", "")
    return HTTPRequest(request.method, request.rel_url.raw_path, query, accept, media_type, body, user, agent)


async def _let_come(request: web.BaseRequest) -> None:
    """Tell a client that asks first to send its body.

    Raises  ApiError 417 for one that expects anything else
    """
    expected = request.headers.get("Expect", "").lower()
    if not expected or request.version < HttpVersion11:
        return
    if expected != "100-continue":
        raise ApiError(417, "", "nothing can be expected but 100-continue")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer proper is yet to begin
