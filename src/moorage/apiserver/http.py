"""The store over HTTP: the one layer of the server that waits, and the only one that knows aiohttp.

Requests go through the guard, then by their path to the store; refusals of any kind become ``Status`` objects. A watch is a
response that does not end: lines of JSON, written as the store's changes come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from moorage.apiserver import discovery, openapi
from moorage.apiserver.bodies import MAX_BODY
from moorage.apiserver.guarding import OPEN_PATHS, Guard, User
from moorage.apiserver.requests import Request, Response, serve
from moorage.apiserver.reviews import may
from moorage.apiserver.statuses import ApiError, bad_request, forbidden, internal, not_found_path, quoted, too_large, too_many
from moorage.apiserver.store import Store
from moorage.apiserver.targets import ReviewTarget, Target, find_target
from moorage.apiserver.watching import Stream, is_watch, open_stream

__all__ = ["make_app"]

#: Requests that may be in the server at a time, watches aside, and watches.
MAX_REQUESTS: Final = 400
MAX_WATCHES: Final = 1000
#: Longest URL and header, and largest sum of headers, in bytes.
MAX_LINE: Final = 16 << 10
MAX_PARAMETERS: Final = 1000
#: How long a client may take to send a body or to read what it watches, in seconds.
PATIENCE_S: Final = 10.0

_READING: Final = frozenset(["GET", "HEAD"])

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Server:
    def __init__(self, store: Store, guard: Guard) -> None:
        self.store = store
        self.guard = guard
        self.requests = 0
        self.watches = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request; nothing gets out of here but responses."""
        if self.requests >= MAX_REQUESTS:
            return _refusal(too_many("too many requests, please try again later", 1))
        self.requests += 1
        try:
            return await self._answer(request)
        except ApiError as error:
            return _refusal(error)
        except web.HTTPRequestEntityTooLarge:
            return _refusal(too_large(MAX_BODY))
        except TimeoutError:
            return _refusal(ApiError(408, "Timeout", "the request's body did not arrive in time"))
        except RecursionError:
            return _refusal(bad_request("the object is nested too deeply"))
        except (web.HTTPException, asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:  # a bug of ours must not take the connection's other requests with it
            request.app.logger.exception("%s %s", request.method, request.path)
            return _refusal(internal(type(error).__name__))
        finally:
            self.requests -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = self.guard.admit(request.path, request.headers)
        if len(request.query) > MAX_PARAMETERS:
            raise ApiError(414, "RequestURITooLong", f"more than {MAX_PARAMETERS} parameters")
        fixed = self._fixed(request)
        if fixed is not None:
            return fixed
        if user is None:
            raise not_found_path()
        target = find_target(request.rel_url.raw_path)
        if isinstance(target, Target) and not may(user.groups):
            who, what = quoted(user.name), quoted(target.kind.resource)
            verb = request.method.lower()
            why = f"User {who} cannot {verb} resource {what} in API group {quoted(target.kind.group)}"
            raise forbidden(target.kind.resource, target.kind.group, target.name, why)
        asked = await _read(request, user)
        if is_watch(asked, target):
            if self.watches >= MAX_WATCHES:
                raise too_many("too many watches, please try again later", 1)
            return await self._stream(request, open_stream(self.store, asked, target))
        if request.method in _READING:
            return _response(serve(self.store, self.guard, asked, target))
        return _response(await self._change(asked, target))

    async def _change(self, asked: Request, target: Target | ReviewTarget) -> Response:
        """Answer a request that may change something, once the change is kept."""
        if self.store.keeper is not None:
            await self.store.keeper.check()
        try:
            return serve(self.store, self.guard, asked, target)
        finally:
            await self.store.settle()

    def _fixed(self, request: web.Request) -> web.Response | None:
        """Answer what does not depend on the objects."""
        path = request.path.rstrip("/")
        if path not in OPEN_PATHS and not path.startswith(("/api", "/openapi")):
            raise not_found_path()
        if path not in OPEN_PATHS and len(path.split("/")) > _DEPTHS.get(path.split("/")[1], 0):
            return None
        if request.method not in {"GET", "HEAD"}:
            raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        if path in OPEN_PATHS and path != "/version":
            return web.Response(text="ok")
        document = _document(path, "as=APIGroupDiscoveryList" in request.headers.get("Accept", ""))
        if document is None:
            raise not_found_path()
        form = discovery.AGGREGATED if document.get("kind") == "APIGroupDiscoveryList" else "application/json"
        return web.Response(body=msgspec.json.encode(document), headers={"Content-Type": form})

    async def _stream(self, request: web.Request, stream: Stream) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        self.requests -= 1
        self.watches += 1
        try:
            async with asyncio.timeout(PATIENCE_S):
                await response.prepare(request)
            async for lines in stream:
                async with asyncio.timeout(PATIENCE_S):
                    await response.write(lines)
        except (TimeoutError, ConnectionError):
            pass  # a client that went away or stopped reading; it lists again when it is back
        finally:
            stream.close()
            self.watches -= 1
            self.requests += 1
        return response


#: How many parts a path has at most that is answered without the store; "/api/v1" has three.
_DEPTHS: Final = {"api": 3, "apis": 4, "openapi": 99}


def _document(path: str, wants_aggregated: bool) -> dict[str, Any] | None:
    root, *rest = path.split("/")[1:]
    if root == "version":
        return dict(discovery.VERSION)
    if root == "openapi":
        if rest[:1] != ["v3"]:
            return None
        return openapi.document_of("/".join(rest[1:])) if rest[1:] else openapi.index()
    if wants_aggregated and not rest:
        return discovery.aggregated(core=root == "api")
    if root == "api":
        return discovery.resource_list("", rest[0]) if rest else discovery.api_versions()
    return discovery.group_document(rest)


async def _read(request: web.Request, user: User) -> Request:
    media_type = request.headers.get("Content-Type", "application/json").partition(";")[0].strip().lower()
    body = b""
    if request.method != "GET" and request.body_exists:
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise ApiError(415, "UnsupportedMediaType", "bodies are not read compressed")
        async with asyncio.timeout(PATIENCE_S):
            body = await request.read()
    query = {name: request.query[name] for name in request.query}
    accept, agent = request.headers.get("Accept", ""), request.headers.get("User-Agent", "")
    return Request(request.method, request.rel_url.raw_path, query, accept, media_type, body, user, agent)


def _response(response: Response) -> web.Response:
    return web.Response(status=response.code, body=response.body, headers=_headers(response.warnings))


def _headers(warnings: tuple[str, ...] = ()) -> CIMultiDict[str]:
    headers = CIMultiDict({"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    for warning in warnings:
        headers.add("Warning", f"299 - {msgspec.json.encode(warning).decode()}")
    return headers


def _refusal(error: ApiError) -> web.Response:
    headers = _headers()
    if error.retry_after_s:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.code == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="moorage"'
    return web.Response(status=error.code, body=msgspec.json.encode(error.status()), headers=headers)


@web.middleware
async def _protect(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn what aiohttp itself refuses into a Status, and tell browsers to keep their hands off."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        response = _refusal(ApiError(error.status, "", error.reason))
    if not response.prepared:
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
    return response


def make_app(store: Store, guard: Guard) -> web.Application:
    """Return the application that serves a store. Run it with ``handler_args`` of ``LIMITS`` in a runner of its own."""
    app = web.Application(client_max_size=MAX_BODY, middlewares=[_protect])
    app.router.add_route("*", "/{path:.*}", _Server(store, guard).handle)
    return app
