"""The HTTP server of the store: the only module that depends on aiohttp and waits for clients.

A request passes authentication, authorization and the concurrency limits, and is then routed to the store by its path.
Every error becomes a ``Status`` object. The response to a change is sent when the change is on disk. A watch is a response
that does not end and is written as the store changes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from aiohttp import HttpVersion10, HttpVersion11, web
from multidict import CIMultiDict, istr

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.request_targets import ReviewTarget, Target, find_target
from moorage.api.documents.statuses import (
    ApiError,
    PlainError,
    bad_request,
    internal,
    no_such_page,
    not_allowed,
    too_large,
)
from moorage.api.durations import DurationError, parse_duration
from moorage.basis.serving.connections import HEADERS, Connection, answering
from moorage.cluster.apiserver.access.authentication import (
    Authenticator,
    ProvenUser,
    certificate_end,
    certificate_user,
    impersonated,
)
from moorage.cluster.apiserver.access.rbac import Attributes, Authorizer, Verdict, denied
from moorage.cluster.apiserver.access.request_attributes import attributes_at, attributes_of
from moorage.cluster.apiserver.http import lists
from moorage.cluster.apiserver.http.audit_log import AuditEvent, AuditLog
from moorage.cluster.apiserver.http.limits import Seats, ServerLimits, carry_out, is_large
from moorage.cluster.apiserver.http.requests import check_may_create, deprecation_warning, serve
from moorage.cluster.apiserver.http.responses import OutgoingResponse, encode_response, error_response, warning_headers
from moorage.cluster.apiserver.http.server_documents import check_method, check_route, document, health, is_document, is_health
from moorage.cluster.apiserver.http.streams import STREAMS
from moorage.cluster.apiserver.http.watch_stream import Stream, is_watch, open_stream
from moorage.cluster.apiserver.http.worker import Worker
from moorage.cluster.apiserver.schema.representations import check_types
from moorage.cluster.apiserver.schema.request_bodies import MAX_BODY
from moorage.rules.store.definitions import AskOwner
from moorage.rules.store.store import Store

# -- request metrics ---------------------------------------------------------------------------------------------------
# The server's metrics in Prometheus text format, with kube-apiserver's names and labels.
#
# Source  apiserver, pkg/endpoints/metrics/metrics.go

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[tuple[tuple[str, str], ...], int]


class RequestMetrics:
    """Counts requests. Labels come from the served kinds and never from clients, so their number is bounded."""

    _VERBS: Final = frozenset(["CREATE", "DELETE", "DELETECOLLECTION", "GET", "LIST", "PATCH", "UPDATE", "WATCH"])

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, str, str, str]] = Counter()
        self._others: Counter[str] = Counter()

    def count(self, verb: str, group: str, resource: str, code: int) -> None:
        """Count an answered request."""
        verb = verb if verb in self._VERBS else "OTHER"
        self._answers[verb, group, resource, str(code)] += 1

    def count_other(self, code: int) -> None:
        """Count a request without a resource, or one rejected before its resource was known."""
        self._others[str(code)] += 1

    def text(self, store: Store, seats: Seats) -> str:
        """Return the current metrics."""
        labels = ("verb", "group", "resource", "code")
        answers = [(tuple(zip(labels, key, strict=True)), count) for key, count in sorted(self._answers.items())]
        refused = [((("code", code),), count) for code, count in sorted(self._others.items())]
        inflight = [((("request_kind", "mutating"),), seats.mutating), ((("request_kind", "readOnly"),), seats.reading)]
        objects = [
            ((("resource", kind.qualified),), store.count(kind)) for kind in store.kinds.served if kind.stored_as is None
        ]
        lines = [
            *_metric("apiserver_request_total", "counter", "Requests answered, by what they asked and how it went.", answers),
            *_metric("moorage_apiserver_other_requests_total", "counter", "Requests about no resource, by code.", refused),
            *_metric("apiserver_current_inflight_requests", "gauge", "Requests being served.", inflight),
            *_metric("apiserver_longrunning_requests", "gauge", "Watches.", [((("verb", "WATCH"),), seats.watches)]),
            *_metric("apiserver_storage_objects", "gauge", "Objects stored, by resource.", objects),
            *_metric("moorage_apiserver_resource_version", "gauge", "The version of the last change.", [((), store.version)]),
        ]
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        shown = ",".join(f'{key}="{text}"' for key, text in labels)
        yield f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"


# -- web site ----------------------------------------------------------------------------------------------------------
# The interface for pages beside the API, such as a web interface, on the same port and with the same credentials.

#: Answers a request to the API that a page makes in a user's name: the JSON of the response. Raises ApiError.
Perform = Callable[[HTTPRequest], Awaitable[bytes]]


class WebSite(Protocol):
    """Answers the requests to its paths. The server checks Host and Origin first."""

    def connect(self, perform: Perform) -> None:
        """Store ``perform``, which makes requests to the API. The server calls this once, before the first request."""

    def serves(self, path: str) -> bool:
        """Return True for a path of the site."""

    def session_user(self, request: web.BaseRequest) -> User | None:
        """Return the user of the session that a request belongs to."""

    async def answer(self, request: web.BaseRequest, proof: ProvenUser | None, seats: Seats) -> web.StreamResponse:
        """Return the response to a request; ``proof`` is None without a valid credential.

        Raises  ApiError
        """

    def end(self) -> None:
        """End all streams, because the server stops."""


MAX_PARAMETERS: Final = 1000
_READ_ONLY: Final = frozenset(["GET", "HEAD"])
_METHODS: Final = _READ_ONLY | {"DELETE", "PATCH", "POST", "PUT"}
_LONG_RUNNING: Final = tuple(f"/{one}" for one in STREAMS)
_COMMON_HEADERS: Final = tuple((istr(name), value) for name, value in HEADERS.items())

_LOG: Final = logging.getLogger(__name__)


class Front:
    """Handles the requests of a store. ``moorage.cluster.apiserver.http.serve`` runs it behind limited connections."""

    def __init__(
        self, store: Store, authenticator: Authenticator, limits: ServerLimits, worker: Worker, site: WebSite | None = None,
        audit: AuditLog | None = None,
    ) -> None:  # fmt: skip
        self.store = store
        self.authenticator = authenticator
        self.authorizer = Authorizer(store)
        self.limits = limits
        self.seats = Seats(limits)
        self.meter = RequestMetrics()
        self._streams: set[Stream] = set()
        self._worker = worker
        self._site = site
        self._audit = audit
        if site is not None:
            site.connect(self._perform)

    def make_request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        """Return aiohttp's request object with our body limit."""
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)

    def end_watches(self) -> None:
        """End all watches, so that a stopping server does not wait for them."""
        for stream in self._streams:
            stream.end()
        if self._site is not None:
            self._site.end()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the response to any request; no exception but cancellation and lost connections escapes."""
        with answering(request):
            if self._audit is None or (self._site is not None and self._site.serves(request.path)):
                return await self._answer(request, [], None)
            event, attributes = self._audit.received(request), list[Attributes]()
            try:
                return await self._answer(request, attributes, event)
            finally:
                event.complete(is_deprecated=bool(attributes) and self._is_deprecated(request))

    async def _answer(
        self, request: web.BaseRequest, attributes: list[Attributes], event: AuditEvent | None
    ) -> web.StreamResponse:
        response = await self._respond(request, attributes, event)
        self._count(attributes, response.status)
        if event is not None:
            headers = event.answered(response.status)
            if not response.prepared:
                response.headers.update(headers)
        return await self._finish(request, response)

    def _is_deprecated(self, request: web.BaseRequest) -> bool:
        """Return whether a path is that of a kind that clients are warned about."""
        try:
            return bool(deprecation_warning(find_target(request.rel_url.raw_path, self.store.kinds)))
        except ApiError:
            return False

    def _count(self, attributes: list[Attributes], code: int) -> None:
        for one in attributes:
            self.meter.count(one.verb.upper(), one.group, one.combined, code)
        if not attributes:
            self.meter.count_other(code)

    async def _respond(
        self, request: web.BaseRequest, attributes: list[Attributes], event: AuditEvent | None
    ) -> web.StreamResponse:  # fmt: skip
        try:
            return await self._handle(request, attributes, event)
        except ApiError as error:
            refused = error
        except web.HTTPRequestEntityTooLarge:
            refused = too_large(MAX_BODY)
        except TimeoutError:
            refused = ApiError(408, "Timeout", "the request's body did not arrive in time")
        except RecursionError:
            refused = bad_request("the object is nested too deeply")
        except web.HTTPException as error:
            refused = ApiError(error.status, "", error.reason)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:  # a bug in the server must not affect the connection's other requests
            _LOG.exception("%s %r", request.method, request.path)
            refused = internal(type(error).__name__)
        if event is not None and not isinstance(refused, PlainError):
            event.notes.concluded(refused.status())
        return error_response(refused, request.headers.get("Accept", ""))

    async def _handle(
        self, request: web.BaseRequest, about: list[Attributes], event: AuditEvent | None
    ) -> web.StreamResponse:  # fmt: skip
        """Handle a request, and add its attributes to ``about`` once they are known."""
        path = request.path.rstrip("/")
        _check_timeout(request)
        if self._site is not None and self._site.serves(request.path):
            return await self._visit(request, self._site)
        user = self._authenticate(request, path, event)
        if not HttpVersion10 <= request.version <= HttpVersion11:
            raise ApiError(505, "", "requests must be HTTP/1.0 or HTTP/1.1")
        if request.method not in _METHODS:
            raise not_allowed()
        if not request.raw_path.startswith("/"):
            raise ApiError(403, "Forbidden", "requests name a path; this server is no proxy")
        if len(request.query) > MAX_PARAMETERS:
            raise ApiError(414, "RequestURITooLong", f"more than {MAX_PARAMETERS} parameters")
        if user is None:
            return self._server_document(request, path)
        note = None if event is None else event.impersonating
        user = impersonated(user, request.headers.items(), self.authorizer, partial(self._attributes, request), note)
        if (request.content_length or 0) > MAX_BODY:
            raise too_large(MAX_BODY)  # checked first, so that the client need not send the body
        if path == "/metrics" or is_document(path) or is_health(path):
            self._authorize(user, Attributes(request.method.lower(), path=path), event)
            return self._server_document(request, path)
        target = self._target(request, user, event)
        attributes = attributes_of(request.method, target, request.query)
        about.append(attributes)
        self._authorize(user, attributes, event)
        check_route(request.method, target, _content_type(request), attributes.verb)
        _check_accepted(request, target)
        if attributes.verb == "watch":
            with self.seats.watching(user.name):
                return await self._watch(request, user, target, event)
        async with self.seats.taken(user.name, mutating=request.method not in _READ_ONLY):
            api_request = await _read(request, user, self.limits.client_s, event)
            answer = await self._serve(api_request, target)
            answer.headers.update(() if event is None else event.answered(answer.code))
            if answer.held <= lists.LONG_RESPONSE:
                return await self._send(request, user, answer)
            # The response to a change is always sent, however much the client has left unread.
            with self.seats.sending(user.name, answer.held, refusable=api_request.dry_run or api_request.method in _READ_ONLY):
                return await self._send(request, user, answer)

    def _authenticate(self, request: web.BaseRequest, path: str, event: AuditEvent | None) -> User | None:
        """Return the user of a request, None for an open path.

        Raises  ApiError as ``Authenticator.authenticate``
        """
        holder = _certificate_user(request)
        user = self.authenticator.authenticate(path, request.headers, holder)
        if event is not None and user is not None:
            event.begin(user)
        elif event is not None:
            event.begin(self.authenticator.identify(request.headers, holder))
            verdict = self.authorizer.judge(event.user, Attributes(request.method.lower(), path=path))
            event.authorized(verdict if verdict.allowed else Verdict(True))
        return user

    def _authorize(self, user: User, attributes: Attributes, event: AuditEvent | None) -> None:
        """Check that a user may make a request.

        Raises  ApiError 403
        """
        verdict = self.authorizer.judge(user, attributes)
        if event is not None:
            event.authorized(verdict)
        if not verdict.allowed:
            raise denied(user, attributes, verdict.reason)

    async def _visit(self, request: web.BaseRequest, site: WebSite) -> web.StreamResponse:
        """Handle a request to the web site. A certificate or token takes precedence over the site's session."""
        self.authenticator.check_source(request.headers)
        proof = self.authenticator.prove(request.headers, _certificate_user(request), _certificate_end(request))
        if proof is None and "Authorization" not in request.headers:
            user = site.session_user(request)
            proof = None if user is None else ProvenUser(user, lambda: site.session_user(request) is not None)
        if proof is not None:
            proof = proof.acting_for(request.headers.items(), self.authorizer)
        return await site.answer(request, proof, self.seats)

    async def _perform(self, request: HTTPRequest) -> bytes:
        """Answer a request that a page of the web site makes in a user's name, with the user's rights."""
        if self._audit is None:
            return await self._perform_recorded(request, None)
        event = self._audit.of_page(request)
        event.begin(request.user)
        try:
            return await self._perform_recorded(replace(request, audit=event.notes), event)
        except ApiError as error:
            event.notes.concluded(error.status())
            raise
        finally:
            event.complete()

    async def _perform_recorded(self, request: HTTPRequest, event: AuditEvent | None) -> bytes:
        target = find_target(request.path, self.store.kinds)
        attributes = attributes_of(request.method, target, request.query)
        self._authorize(request.user, attributes, event)
        check_route(request.method, target, request.media_type, attributes.verb)
        answer = await self._serve(request, target)
        self._count([attributes], answer.code)
        if event is not None:
            event.answered(answer.code)
        return b"".join(bytes(part) for part in answer.parts)

    def _target(self, request: web.BaseRequest, user: User, event: AuditEvent | None) -> Target | ReviewTarget:
        """Return the target of a path. Users without the right to it get 403 instead of 404."""
        try:
            return find_target(request.rel_url.raw_path, self.store.kinds)
        except ApiError:
            self._authorize(user, attributes_at(request.method, request.path), event)
            raise

    def _attributes(self, request: web.BaseRequest) -> Attributes:
        try:
            return attributes_of(request.method, find_target(request.rel_url.raw_path, self.store.kinds), request.query)
        except ApiError:
            return attributes_at(request.method, request.path)

    def _server_document(self, request: web.BaseRequest, path: str) -> web.Response:
        check_method(path, request.method)
        if path == "/metrics":
            return web.Response(body=self.meter.text(self.store, self.seats).encode(), headers={"Content-Type": CONTENT_TYPE})
        if is_health(request.path):
            excluded = request.query.getall("exclude", [])
            return web.Response(text=health(path, self.store, verbose="verbose" in request.query, excluded=excluded))
        if is_health(path):
            raise no_such_page()
        page = document(path, request.headers.get("Accept", ""), request.headers.get("Host", ""), self.store.kinds)
        if not page.tag:
            return web.Response(body=page.body, headers={"Content-Type": page.form})
        headers = {"Content-Type": page.form, "ETag": page.tag, "Vary": "Accept", "Cache-Control": "public"}
        if request.headers.get("If-None-Match") == page.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=page.body, headers=headers)

    async def _serve(self, api_request: HTTPRequest, target: Target | ReviewTarget) -> OutgoingResponse:
        """Handle a request other than a watch; return when its changes are on disk."""
        if api_request.method in _READ_ONLY:
            return await self._carry_out(api_request, target)
        if self.store.log is not None:
            await self.store.log.check()
        try:
            return await self._carry_out(api_request, target)
        finally:
            await self.store.settle()

    async def _carry_out(self, api_request: HTTPRequest, target: Target | ReviewTarget) -> OutgoingResponse:
        """Handle a request here, or in the worker's thread if it is large."""
        if isinstance(target, Target) and target.kind.custom is not None:
            target = find_target(api_request.path, self.store.kinds)  # its definition may have changed meanwhile
        if is_large(self.store, api_request, target):
            return await self._worker.run(
                api_request.user.name, partial(carry_out, self.store, self.authenticator, api_request, target)
            )
        check_may_create(self.store, self.authorizer, api_request, target)
        response = serve(self.store, self.authenticator, self.authorizer, api_request, target)
        return encode_response(api_request, response)

    async def _send(self, request: web.BaseRequest, user: User, answer: OutgoingResponse) -> web.StreamResponse:
        """Return a short response unsent. Send a long one; its request keeps its seat until the client has read it."""

        async def next_in_worker(pieces: Iterator[lists.Part]) -> lists.Part:
            return await self._worker.run(user.name, lambda ask: next((piece for piece in pieces if piece), b""))

        make_next = next_in_worker if isinstance(answer.parts, lists.LargeParts) else lists.next_piece
        return await lists.send(request, answer.code, answer.headers, answer.parts, self.limits.answer_s, make_next)

    async def _watch(
        self, request: web.BaseRequest, user: User, target: Target | ReviewTarget, event: AuditEvent | None
    ) -> web.StreamResponse:  # fmt: skip
        api_request = await _read(request, user, self.limits.client_s, event)
        if not is_watch(api_request, target):
            return await self._send(request, user, await self._serve(api_request, target))
        stream = open_stream(self.store, api_request, target)
        headers = CIMultiDict({"Content-Type": stream.media_type, **HEADERS})
        for warning in warning_headers([text] if (text := deprecation_warning(target)) else []):
            headers.add("Warning", warning)
        headers.update(() if event is None else event.answered(200))
        response = web.StreamResponse(headers=headers)
        if request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        self._streams.add(stream)
        if isinstance(request.protocol, Connection):
            request.protocol.when_lost = stream.end
        lists.limit_buffers(request)
        try:
            async with asyncio.timeout(self.limits.client_s):
                writer = await response.prepare(request)
            if event is not None:
                event.started(response.status)
            async for parts in stream:
                pieces = lists.into_pieces(parts)
                if isinstance(parts, lists.LargeParts):
                    pieces = await self._worker.run(user.name, partial(_make_all, pieces))
                for piece in pieces:
                    async with asyncio.timeout(self.limits.client_s):
                        await lists.write(response, writer, piece)
        except (TimeoutError, ApiError):
            lists.abort(request)  # the client stopped reading, or the worker is busy; it lists again when it returns
        except ConnectionError:
            pass  # the client disconnected
        finally:
            stream.close()
            self._streams.discard(stream)
        return response

    async def _finish(self, request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
        """Add the common headers, and send a long response. A short one fits into the socket's buffer, so aiohttp sends it."""
        if response.prepared:
            return response
        headers = response.headers
        for name, value in _COMMON_HEADERS:
            if name not in headers:
                headers[name] = value
        lists.close_after(request, response)
        body = response.body if isinstance(response, web.Response) else None
        if not isinstance(body, bytes) or len(body) <= lists.LONG_RESPONSE:
            return response
        return await lists.send(request, response.status, headers, [body], self.limits.answer_s)


def _make_all(pieces: Iterator[lists.Part], ask: AskOwner) -> Iterator[lists.Part]:
    """Compute all pieces. ``ask`` is part of the worker's interface and not used."""
    return iter(list(pieces))


def _check_timeout(request: web.BaseRequest) -> None:
    """Check the timeout parameter, which has no other effect.

    Raises  ApiError 400, except for long-running requests
    """
    timeout = request.query.get("timeout") if request.query_string else None
    is_watch = request.method in _READ_ONLY and request.query.get("watch", "0") not in {"0", "false", ""}
    if not timeout or is_watch or request.path.endswith(_LONG_RUNNING):
        return
    try:
        parse_duration(timeout)
    except DurationError as error:
        raise bad_request(f"invalid timeout specified in the request URL - {error}") from None


def _certificate_user(request: web.BaseRequest) -> User | None:
    """Return the user of the connection's client certificate, cached on the connection."""
    connection = request.protocol
    if not isinstance(connection, Connection):
        return certificate_user(request.get_extra_info("peercert"))
    if connection.holder is None:
        connection.holder = certificate_user(request.get_extra_info("peercert"))
        connection.holds_until = _certificate_end(request)
    return connection.holder if time.time() < connection.holds_until else None


def _certificate_end(request: web.BaseRequest) -> float:
    """Return when the connection's client certificate expires, in seconds since 1970."""
    return certificate_end(request.get_extra_info("peercert"))


def _check_accepted(request: web.BaseRequest, target: Target | ReviewTarget) -> None:
    """Check that a client accepts a type that a path serves.

    Raises  ApiError 406
    """
    stored = target if isinstance(target, Target) else None
    streams = stored is not None and not stored.name and request.method in _READ_ONLY
    is_custom = stored is not None and stored.kind.custom is not None
    check_types(request.headers.get("Accept", ""), streams=streams, tables=stored is not None, is_routed=is_custom)


def _content_type(request: web.BaseRequest) -> str:
    """Return the media type of the body as sent."""
    return request.headers.get("Content-Type", "application/json").partition(";")[0].strip()


async def _read(request: web.BaseRequest, user: User, client_s: float, event: AuditEvent | None) -> HTTPRequest:
    media_type = _content_type(request).lower()
    body = b""
    if request.method != "GET" and request.body_exists:
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise ApiError(415, "UnsupportedMediaType", "bodies are not read compressed")
        if (request.content_length or 0) > MAX_BODY:
            raise too_large(MAX_BODY)
        await _send_continue(request)
        if request.content.is_eof():  # short bodies arrive with the head
            body = await request.read()
        else:
            async with asyncio.timeout(client_s):
                body = await request.read()
    query = {name: request.query[name] for name in request.query}
    accept, agent = request.headers.get("Accept", ""), request.headers.get("User-Agent", "")
    raw_path, raw_query = request.rel_url.raw_path, request.rel_url.raw_query_string
    upgrades = "upgrade" in request.headers.get("Connection", "").lower()
    notes = None if event is None else event.notes
    return HTTPRequest(request.method, raw_path, query, accept, media_type, body, user, agent, raw_query, upgrades, notes)


async def _send_continue(request: web.BaseRequest) -> None:
    """Send 100 Continue to a client that expects it.

    Raises  ApiError 417 for any other expectation
    """
    expected = request.headers.get("Expect", "").lower()
    if not expected or request.version < HttpVersion11:
        return
    if expected != "100-continue":
        raise ApiError(417, "", "nothing can be expected but 100-continue")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # aiohttp must not take this for the start of the final response
