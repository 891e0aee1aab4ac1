"""The routes of the web interface: pages under /ui/, data and questions under /lab/v1/.

The server around it checks Host and Origin, authenticates certificates and tokens, and sends every ApiError as a Status. This
module identifies sessions by their cookie.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import html
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from aiohttp import web

from moorage.api.documents import statuses
from moorage.basis.printable import one_line
from moorage.basis.serving.connections import Connection
from moorage.cluster.apiserver.http.lists import abort, limit_buffers, write
from moorage.errors import InputError
from moorage.interfaces.web.bundle_files import LIVE_POLICY, bundle_file, bundle_text
from moorage.interfaces.web.change_stream import Hub
from moorage.interfaces.web.history import Past
from moorage.interfaces.web.mirror import View

if TYPE_CHECKING:
    from moorage.cluster.apiserver.http.limits import Seats  # a page of answers needs no server

# Sessions of browsers: the token in a link opens one session, which a cookie then identifies.
#
# The token is in the fragment of the link, which browsers send to no server. The page sends it in a request and gets a cookie
# that scripts cannot read and that the browser sends to this site only. Only hashes are kept here.

T = TypeVar("T")
#: Seconds after which an unused link and a session end.
LINK_S: Final = 24 * 3600.0
SESSION_S: Final = 12 * 3600.0
#: Maximum number of unused links and of sessions; the oldest end first.
MOST_LINKS: Final = 64
MOST_SESSIONS: Final = 256
_MOST_SECRET: Final = 128


def _always() -> bool:
    return True


class _Held(NamedTuple, Generic[T]):
    """``holds``: whether the credential by which the user was known is still valid."""

    user: T
    until: float
    holds: Callable[[], bool] = _always
    used: bool = False


class Sessions(Generic[T]):
    """The unused links and the sessions, each with its user. Both end with the credential for which they were made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._links: OrderedDict[bytes, _Held[T]] = OrderedDict()
        self._sessions: OrderedDict[bytes, _Held[T]] = OrderedDict()

    def make_token(self, user: T, holds: Callable[[], bool] = _always) -> str:
        """Return a token that opens one session of a user. ``holds``: whether the user's credential is still valid."""
        return self._add(self._links, _Held(user, self._clock() + LINK_S, holds), MOST_LINKS)

    def open(self, token: str) -> str | None:
        """Return the cookie of a new session, and invalidate the token that opens it; None if the token is not valid."""
        held = self._valid(self._links, token)
        if held is None:
            return None
        del self._links[_hash(token)]
        return self.start(held.user, held.holds)

    def start(self, user: T, holds: Callable[[], bool] = _always) -> str:
        """Return the cookie of a new session."""
        return self._add(self._sessions, _Held(user, self._clock() + SESSION_S, holds), MOST_SESSIONS)

    def user_of(self, cookie: str) -> T | None:
        """Return the user of a session; None if it has ended or never existed."""
        held = self._valid(self._sessions, cookie)
        return None if held is None else held.user

    def end(self, cookie: str) -> None:
        self._sessions.pop(_hash(cookie), None)

    def use(self, cookie: str) -> None:
        """Remember that a session showed its user something."""
        held = self._sessions.get(_hash(cookie)) if cookie else None
        if held is not None and not held.used:
            self._sessions[_hash(cookie)] = held._replace(used=True)

    def was_used(self, cookie: str) -> bool:
        """Return whether a session showed its user something."""
        held = self._sessions.get(_hash(cookie)) if cookie else None
        return held is not None and held.used

    def _add(self, place: OrderedDict[bytes, _Held[T]], held: _Held[T], most: int) -> str:
        secret = secrets.token_urlsafe(32)
        place[_hash(secret)] = held
        while len(place) > most:
            place.popitem(last=False)
        return secret

    def _valid(self, place: OrderedDict[bytes, _Held[T]], secret: str) -> _Held[T] | None:
        """Return the entry of a secret, None if it is not valid. The lookup by hash keeps timing from revealing secrets."""
        if not secret or len(secret) > _MOST_SECRET:
            return None
        held = place.get(_hash(secret))
        if held is None or (held.until >= self._clock() and held.holds()):
            return held
        del place[_hash(secret)]
        return None


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


# -- visitors ----------------------------------------------------------------------------------------------------------


class Visitor(Protocol):
    """An authenticated user."""

    @property
    def name(self) -> str: ...

    @property
    def credential(self) -> Any | None:
        """The user to store in a new session; None for a visitor who is identified by a session."""

    @property
    def holds(self) -> Callable[[], bool]:
        """Whether the credential by which the user is known is still valid."""

    async def check(self, verb: str, resource: str, namespace: str = "", group: str = "", name: str = "") -> None:
        """Check that the user has a right, in one namespace or (with "") in all.

        Raises  ApiError 403
        """


async def may(visitor: Visitor, verb: str, resource: str, namespace: str = "") -> bool:
    """Return whether a visitor has a right."""
    try:
        await visitor.check(verb, resource, namespace)
    except statuses.ApiError as error:
        if error.code != 403:
            raise
        return False
    return True


async def view_of(visitor: Visitor, namespaces: Iterable[str]) -> View:
    """Return what a visitor may see: nodes, and the pods of all namespaces or of those in which they may list pods.

    Raises  ApiError 403 for a visitor who may not list nodes, or pods in any namespace
    """
    await visitor.check("list", "nodes")
    if await may(visitor, "list", "pods"):
        return View()
    seen = frozenset([name for name in namespaces if await may(visitor, "list", "pods", name)])
    if not seen:
        await visitor.check("list", "pods")
    return View(seen)


async def check_may_list(visitor: Visitor, kinds: Iterable[tuple[str, str]]) -> None:
    """Check that a visitor may list all objects of the kinds, given as (group, resource): answers may show any of them.

    Raises  ApiError 403
    """
    for group, resource in kinds:
        await visitor.check("list", resource, group=group)


# -- report file -------------------------------------------------------------------------------------------------------
# Write answers as one HTML file that needs no network: the built page with the documents in it.
#
# The documents are data in the page, never markup: the characters that could end their element are escaped, and the page's
# policy allows no script but its own.

#: Maximum size of a snapshot in a file, in bytes.
MOST_SNAPSHOT: Final = 5 << 20
_TITLE: Final = "<!--moorage-title-->"
_DOCUMENT: Final = "<!--moorage-document-->"
_MARKUP: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def report_page(
    documents: Sequence[Mapping[str, Any]], command: str = "", snapshot: Mapping[str, Any] | None = None
) -> str:  # fmt: skip
    """Return the page of some documents. ``command`` is shown as the way to repeat it; ``snapshot`` is the cluster of maps."""
    whole = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
    title = str(documents[0].get("summary", "Moorage")) if len(documents) == 1 else f"{len(documents)} answers"
    context: dict[str, Any] = {"command": command} if command else {}
    if snapshot is not None and len(json.dumps(snapshot)) <= MOST_SNAPSHOT:
        context["snapshot"] = snapshot
    before, _, rest = bundle_text("report.html").partition(_TITLE)
    middle, _, after = rest.partition(_DOCUMENT)
    data = _data("moorage-document", whole) + (_data("moorage-context", context) if context else "")
    return f"{before}{html.escape(one_line(title))}{middle}{data}{after}"


def framed_page(documents: Sequence[Mapping[str, Any]], snapshot: Mapping[str, Any] | None = None) -> str:
    """Return the page of some documents as a frame, for the output of a notebook's cell. It can reach nothing outside."""
    page = html.escape(report_page(documents, snapshot=snapshot))
    return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width:100%;height:36em;border:0"></iframe>'


def write_page(path: str | PathLike[str], documents: Sequence[Mapping[str, Any]]) -> None:
    """Write the page of some documents to a file."""
    Path(path).write_text(report_page(documents), encoding="utf-8")


def _data(name: str, document: Mapping[str, Any]) -> str:
    """Return an element with a document as JSON in ASCII."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).translate(_MARKUP)
    return f'<script type="application/json" id="{name}">{text}</script>\n'


_MOST_BODY: Final = 1 << 20
#: Seconds within which a client must read a piece of a stream, or send the body of a request.
_PATIENCE_S: Final = 10.0
#: The end of the year 9999.
_MOST_SECONDS: Final = 253_402_300_800.0
_JSON: Final = "application/json"
_NAME: Final = "[^/]{1,253}"

Handler = Callable[[web.BaseRequest, Visitor], Awaitable[web.StreamResponse]]


class TokenBody(msgspec.Struct):
    token: str


def is_own_path(path: str) -> bool:
    """Return True for a path of the web interface."""
    return path == "/ui" or path.startswith(("/ui/", "/lab/v1/"))


class Site:
    """Answers requests. ``admit`` returns the user of a token that does not come from a link; None if it is not valid."""

    def __init__(
        self, hub: Hub, sessions: Sessions[Any], admit: Callable[[str], Awaitable[Any | None]] | None = None,
        namespaces: Callable[[], list[str]] = list,
    ) -> None:  # fmt: skip
        self.hub = hub
        self.sessions = sessions
        self._admit = admit
        self._namespaces = namespaces
        #: True if pages may change the cluster.
        self.writable = False
        #: True if questions are answered.
        self.asks = False
        self.streams: set[asyncio.Task[Any] | None] = set()
        #: Callbacks for the start of a session, and for the end of the server.
        self.on_enter: list[Callable[[], None]] = []
        self.on_end: list[Callable[[], None]] = [hub.end]
        #: Returns, for a user's name, a function that returns the user's events since its last call. Each stream calls this
        #: once.
        self.notices: Callable[[str], Callable[[], list[bytes]]] = lambda name: list
        #: Returns what a user's question with this id recorded, if it did.
        self.run_of: Callable[[str, str], Past | None] = lambda name, id_: None
        self._routes: list[tuple[str, re.Pattern[str], Any]] = []
        self.route("GET", "/lab/v1/snapshot", self._snapshot)
        self.route("GET", "/lab/v1/events", self._events)
        self.route("GET", "/lab/v1/history", self._history)
        self.route("POST", "/lab/v1/links", self._link)
        self.route("DELETE", "/lab/v1/session", self._leave)

    def route(self, method: str, path: str, handler: Any) -> None:
        """Add a route. ``{name}`` in its path matches one segment, which the handler gets as keyword argument."""
        pattern = re.compile(re.sub(r"\\{(\w+)\\}", rf"(?P<\1>{_NAME})", re.escape(path)))
        self._routes.append((method, pattern, handler))

    def end(self) -> None:
        """End all streams, so that a stopping server does not wait for them."""
        for task in self.streams:
            _cancel(task)
        for end in self.on_end:
            end()

    # -- who asks ------------------------------------------------------------------------------------------------------

    def session_user(self, request: web.BaseRequest) -> Any | None:
        """Return the user of the request's session; None without one."""
        return self.sessions.user_of(request.cookies.get(cookie_name(request), ""))

    async def respond(self, request: web.BaseRequest, visitor: Visitor | None, limits: Seats) -> web.StreamResponse:
        """Return the response to a request for a path of the web interface.

        Raises  ApiError
        """
        path = request.path
        if not path.startswith("/lab/v1/"):
            return _page(request)
        if path == "/lab/v1/session" and request.method == "POST":
            return await self._enter(request, limits)
        if visitor is None:
            raise statuses.unauthorized()
        handler = self._handler(request.method, path)
        if request.method == "GET" and path == "/lab/v1/events":
            with limits.watching(visitor.name):
                return await self._stream(request, handler(request, visitor))
        async with limits.taken(visitor.name, mutating=request.method != "GET"):
            response: web.StreamResponse = await handler(request, visitor)
            return response

    def _handler(self, method: str, path: str) -> Handler:
        others = False
        for wanted, pattern, handler in self._routes:
            found = pattern.fullmatch(path)
            if found is not None:
                if wanted == method:
                    return partial(handler, **found.groupdict())
                others = True
        raise statuses.not_allowed() if others else statuses.no_such_page()

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def _enter(self, request: web.BaseRequest, limits: Seats) -> web.StreamResponse:
        """Begin a session with the token of a link, or with another token that ``admit`` accepts."""
        async with limits.taken("system:anonymous", mutating=True):
            token = (await read_body(request, TokenBody)).token
        cookie = self.sessions.open(token)
        if cookie is None and self._admit is not None:
            user = await self._admit(token)
            cookie = None if user is None else self.sessions.start(user)
        if cookie is None:
            raise statuses.unauthorized()
        for enter in self.on_enter:
            enter()
        response = web.Response(status=204)
        response.set_cookie(
            cookie_name(request), cookie, max_age=int(SESSION_S), path="/lab/v1", httponly=True, samesite="Strict",
            secure=request.get_extra_info("ssl_object") is not None,
        )  # fmt: skip
        return response

    async def _link(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        """Return the token of a new link for the user. Sessions get none, as a session could then be renewed forever."""
        if visitor.credential is None:
            raise statuses.ApiError(403, "Forbidden", "links are made for a certificate or a token of the cluster")
        return json_response({"token": self.sessions.make_token(visitor.credential, visitor.holds)}, status=201)

    async def _leave(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        """End the session."""
        self.sessions.end(request.cookies.get(cookie_name(request), ""))
        self.hub.wake()  # ends the streams of the session
        response = web.Response(status=204)
        response.del_cookie(cookie_name(request), path="/lab/v1")
        return response

    # -- the cluster ---------------------------------------------------------------------------------------------------

    async def view(self, request: web.BaseRequest, visitor: Visitor) -> View:
        """Return what the visitor of a request may see. A session in which it may see nothing any more ends.

        Raises  ApiError 403, 401
        """
        cookie = request.cookies.get(cookie_name(request), "")
        try:
            found = await view_of(visitor, self._namespaces())
        except statuses.ApiError as error:
            if error.code == 403 and self.sessions.was_used(cookie):
                self.sessions.end(cookie)
                raise statuses.unauthorized() from None
            raise
        self.sessions.use(cookie)
        return found

    async def _snapshot(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        view, at = await self.view(request, visitor), request.query.get("at")
        if at is None:
            return compressed(request, await self.hub.snapshot(view, visitor.name, writable=self.writable, asks=self.asks))
        return compressed(request, await _known(self.hub.past(view, visitor.name, _moment(at), self._run(request, visitor))))

    async def _history(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        ends = [request.query.get(name) for name in ("from", "to")]
        span = None if None in ends else (_moment(ends[0]), _moment(ends[1]))
        return compressed(
            request, await _known(self.hub.history(await self.view(request, visitor), span, self._run(request, visitor)))
        )

    def _run(self, request: web.BaseRequest, visitor: Visitor) -> Past | None:
        """Return the run of a question that the address names; None if it names none."""
        id_ = request.query.get("run")
        found = None if id_ is None else self.run_of(visitor.name, id_)
        if id_ is not None and found is None:
            raise statuses.ApiError(404, "NotFound", "this run is no longer kept; ask again", kind="questions", name=id_)
        return found

    async def _events(self, request: web.BaseRequest, visitor: Visitor) -> Any:
        await self.view(request, visitor)
        last = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        cookie = request.cookies.get(cookie_name(request), "")
        by_session = self.sessions.user_of(cookie) is not None

        async def view() -> View:
            if by_session and self.sessions.user_of(cookie) is None:
                raise statuses.unauthorized()
            return await self.view(request, visitor)

        return self.hub.events(view, last, self.notices(visitor.name))

    async def _stream(self, request: web.BaseRequest, opening: Awaitable[Any]) -> web.StreamResponse:
        """Send a stream of events until either side ends it. A client that stops reading is disconnected."""
        frames = await opening
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        if isinstance(request.protocol, Connection):
            task = asyncio.current_task()
            self.streams.add(task)
            request.protocol.when_lost = partial(_cancel, task)
        limit_buffers(request)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                writer = await response.prepare(request)
            async for frame in frames:
                async with asyncio.timeout(_PATIENCE_S):
                    await write(response, writer, frame)
        except (TimeoutError, statuses.ApiError):
            abort(request)
        except ConnectionError:
            pass
        finally:
            await frames.aclose()
            self.streams.discard(asyncio.current_task())
            if isinstance(request.protocol, Connection):
                request.protocol.when_lost = None
        return response


# -- requests and responses ---------------------------------------------------------------------------------------------


async def _known(past: Awaitable[bytes]) -> bytes:
    """Return what is known of the past.

    Raises  ApiError if a log of it is damaged, or its files are gone
    """
    try:
        return await past
    except (InputError, OSError) as error:
        raise statuses.ApiError(422, "Invalid", str(error)) from None


def cookie_name(request: web.BaseRequest) -> str:
    """Return the name of the session's cookie. It contains the port, because browsers share cookies among ports of a host."""
    socket = request.get_extra_info("sockname")
    return f"moorage-{socket[1]}" if socket else "moorage"


def json_response(body: Any, status: int = 200) -> web.Response:
    """Return a response with a document."""
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=_JSON)


def compressed(request: web.BaseRequest, body: bytes) -> web.Response:
    """Return a response with a body that is already compressed with gzip; decompress it for clients without gzip."""
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=body, headers={"Content-Type": _JSON, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
    return web.Response(body=gzip.decompress(body), headers={"Content-Type": _JSON, "Vary": "Accept-Encoding"})


async def read_body(request: web.BaseRequest, form: type[Any], most: int = _MOST_BODY) -> Any:
    """Return the decoded body of a request. It must be JSON, a media type that pages of other sites cannot send.

    Raises  ApiError
    """
    if request.content_type != _JSON:
        raise statuses.ApiError(415, "UnsupportedMediaType", f"send {_JSON}")
    if (request.content_length or 0) > most:
        raise statuses.too_large(most)
    body = bytearray()
    async with asyncio.timeout(_PATIENCE_S):
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > most:
                raise statuses.too_large(most)
    try:
        return msgspec.json.decode(bytes(body), type=form)
    except (msgspec.DecodeError, RecursionError) as error:
        raise statuses.bad_request(str(error)) from None


def _moment(text: str | None) -> float:
    """Return a time in seconds since 1970.

    Raises  ApiError 400
    """
    try:
        at = float(text or "")
    except ValueError:
        at = -1.0
    if not 0 <= at < _MOST_SECONDS:
        raise statuses.bad_request(f"no time in seconds since 1970: {text}")
    return at


def _cancel(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()


def _page(request: web.BaseRequest) -> web.Response:
    if request.method not in {"GET", "HEAD"}:
        raise statuses.not_allowed()
    if request.path == "/ui":
        return web.Response(status=308, headers={"Location": "/ui/"})
    found = bundle_file(request.path.removeprefix("/ui/"))
    if found is None:
        raise statuses.no_such_page()
    media, body = found
    headers = {"Content-Type": media, "Content-Security-Policy": LIVE_POLICY, "Cross-Origin-Opener-Policy": "same-origin"}
    return web.Response(body=body, headers=headers)
