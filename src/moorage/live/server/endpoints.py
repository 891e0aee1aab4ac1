"""The scheduler's HTTP endpoints: health checks, metrics, configuration and debug pages.

Every request is logged, authenticated and authorized before its path is looked up. The only change that a request can make is
to the log verbosity and to the metrics (reset).

Source  cmd/kube-scheduler/app/server.go, newEndpointsHandler and buildHandlerChain
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import yaml
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from moorage.basis.serving.connections import HEADERS, answering
from moorage.errors import ClusterError, InputError
from moorage.live.runtime.attempt_metrics import Log
from moorage.live.server.authentication import RequestAuthenticator, UnauthorizedError
from moorage.live.server.authorization import PathAccess, RequestAuthorizer
from moorage.live.server.health import Health
from moorage.live.server.plugin_metrics import MetricRegistry
from moorage.live.server.pprof import cpu_profile, heap_profile, heap_text

# Pages about the process: its flags (/flagz), its status (/statusz), and the stacks of its tasks.
#
# The text form follows Kubernetes' own; JSON and YAML are ``config.k8s.io`` objects, for clients that request one by name in
# ``Accept``.
#
# Source  apiserver/pkg/server/flagz and statusz

_NAME: Final = "kube-scheduler"
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for "
    "debugging purposes only."
)
_TEXT: Final = ("text/plain", "")
_OBJECTS: Final = frozenset(["application/json", "application/yaml"])
_VERSIONS: Final = frozenset(["v1beta1", "v1alpha1"])


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """Facts about this process: its version, the emulated release, its start time, and the paths that it serves."""

    version: str
    release: str
    python: str
    started: datetime
    paths: Sequence[str]


def accepted(accept: str, kind: str) -> tuple[str, str] | None:
    """Return the media type and object version to respond with, "" for text; None if nothing acceptable is available."""
    if not accept.strip():
        return _TEXT
    for part in accept.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        given = dict(piece.partition("=")[::2] for piece in parameters)
        if media in _OBJECTS and given.get("as") == kind and given.get("g") == "config.k8s.io":
            return (media, given["v"]) if given.get("v") in _VERSIONS else None
        if media in {"text/plain", "text/*", "*/*"}:
            return _TEXT
    return None


def _head(page: str) -> str:
    return f"\n{_NAME} {page}\n{_WARNING}\n"


def flags_text(flags: Mapping[str, str]) -> str:
    """Return the flags as text."""
    return _head("flagz") + "".join(f"{name}={flags[name]}\n" for name in sorted(flags))


def status_text(program: ProgramInfo, now: datetime) -> str:
    """Return the status of the program as text."""
    up = _uptime(program, now)
    lines = [
        f"Started:  {program.started.astimezone(UTC):%a %b %e %H:%M:%S UTC %Y}",
        f"Up:  {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec",
        f"Python version:  {program.python}",
        f"Binary version:  {program.version}",
        f"Emulation version:  {program.release}",
        f"Paths:  {' '.join(program.paths)}",
    ]
    return _head("statusz") + "\n" + "\n".join(lines) + "\n"


def status_fields(program: ProgramInfo, now: datetime) -> dict[str, Any]:
    """Return the fields of the program's status as an object."""
    return {
        "startTime": program.started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "uptimeSeconds": _uptime(program, now),
        "goVersion": f"python{program.python}",
        "binaryVersion": program.version,
        "emulationVersion": program.release,
        "paths": list(program.paths),
    }


def _uptime(program: ProgramInfo, now: datetime) -> int:
    return max(0, int((now - program.started).total_seconds()))


def stacks(loops: Iterable[asyncio.AbstractEventLoop] = ()) -> str:
    """Return the stacks of every task of the running loop and of others, and of every other thread."""
    out = io.StringIO()
    every = {*asyncio.all_tasks(), *(task for loop in loops for task in asyncio.all_tasks(loop))}
    tasks = sorted(every, key=lambda task: task.get_name())
    out.write(f"{len(tasks)} tasks\n")
    for task in tasks:
        out.write(f"\ntask {task.get_name()}\n")
        for frame in task.get_stack(limit=20):
            out.write(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}\n")
    frames = sys._current_frames()
    own = threading.get_ident()
    for thread in threading.enumerate():
        standing = frames.get(thread.ident or 0)
        if thread.ident != own and standing is not None:
            out.write(f"\nthread {thread.name}\n{''.join(traceback.format_stack(standing))}")
    return out.getvalue()


T = TypeVar("T")
_MOST_BODY: Final = 4096
#: Seconds that the loop that schedules has for its part of a response.
_BUSY_S: Final = 2.0
#: Seconds of a profile of the CPU.
_PROFILE_S, _MOST_PROFILE_S = 30.0, 300.0
#: Seconds for a request; longer than an access review may take.
_PATIENCE_S: Final = 30.0
_PROBES: Final = ("healthz", "livez", "readyz")
_ENDPOINTS_TEXT: Final = "text/plain"
_EXPLAIN: Final = "/debug/explain"
#: Path → the path that access reviews check in its place.
_REVIEWED_AS: Final = {_EXPLAIN: "/metrics"}
#: Paths with subpaths.
_WITH_MORE: Final = ("/debug/pprof", "/healthz")

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Page(NamedTuple):
    """The response of a page that is computed for each request."""

    body: str
    media: str = _ENDPOINTS_TEXT
    status: int = 200


class AuthenticatingSite(Protocol):
    """Pages that authenticate and authorize requests themselves, such as a web interface."""

    def serves(self, path: str) -> bool: ...

    def streams(self, path: str) -> bool:
        """Return True for a path whose response is a stream without end."""

    async def answer(
        self, request: web.Request, authenticator: RequestAuthenticator, authorizer: RequestAuthorizer
    ) -> web.StreamResponse: ...

    def end(self) -> None:
        """End all streams: the server stops."""


@dataclass(frozen=True, slots=True)
class Served:
    """The content of the endpoints. ``pod_metrics`` returns None while this replica does not lead.

    ``profiling``: whether /debug is served; ``hidden``: paths that are not served.
    ``set_verbosity`` raises InputError. ``explain`` answers the parameters of /debug/explain; None: it is not served.
    ``site`` has further pages, over HTTPS only. ``scheduling``: the loop that schedules, if another one serves.
    """

    health: Health
    metrics: CollectorRegistry
    counted: MetricRegistry
    slis: CollectorRegistry
    pod_metrics: Callable[[], CollectorRegistry | None]
    configuration: Callable[[], Mapping[str, Any]]
    flags: Mapping[str, str]
    program: ProgramInfo
    set_verbosity: Callable[[int], None]
    profiling: bool = True
    hidden: frozenset[str] = frozenset()
    explain: Callable[[Mapping[str, str]], Awaitable[Page]] | None = None
    site: AuthenticatingSite | None = None
    scheduling: asyncio.AbstractEventLoop | None = None

    async def on_loop(self, make: Callable[[], Awaitable[T]]) -> T:
        """Await what ``make`` returns on the loop that schedules, so that nothing changes meanwhile.

        Raises  TimeoutError if that loop does not answer
        """
        loop = self.scheduling
        if loop is None or loop is asyncio.get_running_loop():
            return await make()

        async def made() -> T:
            return await make()

        begun = asyncio.run_coroutine_threadsafe(made(), loop)
        return await asyncio.wait_for(asyncio.wrap_future(begun), _BUSY_S)


def make_app(served: Served, authenticator: RequestAuthenticator, authorizer: RequestAuthorizer, log: Log) -> web.Application:
    """Return the HTTPS application; the TLS context must request client certificates where they are to authenticate."""
    pages, site = _Pages(served), served.site

    async def answer(request: web.Request) -> web.StreamResponse:
        if site is not None and site.serves(request.path):
            return await site.answer(request, authenticator, authorizer)
        refused = await _admit(request, authenticator, authorizer, log)
        return refused if refused is not None else await pages.answer(request)

    return _app(answer, log, site)


def make_plain_app(served: Served, log: Log, paths: Collection[str]) -> web.Application:
    """Return an application for plain HTTP, which serves ``paths`` without authentication.

    It accepts only reads. Subpaths of /debug/pprof and /healthz are included with their parent.
    """
    pages = _Pages(served)

    async def answer(request: web.Request) -> web.StreamResponse:
        path = request.path
        if path not in paths and not path.startswith(tuple(f"{one}/" for one in _WITH_MORE if one in paths)):
            return _plain("404 page not found\n", 404)
        if request.method not in {"GET", "HEAD"}:
            return _plain("405 method not allowed\n", 405)
        return await pages.answer(request)

    return _app(answer, log)


def _app(answer: _Handler, log: Log, site: AuthenticatingSite | None = None) -> web.Application:
    app = web.Application(client_max_size=_MOST_BODY, middlewares=[_chain(log, site)])
    app.router.add_route("*", "/{path:.*}", answer)
    return app


def _chain(log: Log, site: AuthenticatingSite | None) -> Any:
    @web.middleware
    async def chain(request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Log the request, and turn an exception into a response."""
        try:
            with answering(request):
                if request.path == "/debug/pprof/profile" or (site is not None and site.streams(request.path)):
                    response = await handler(request)
                else:
                    response = await _in_time(request, handler)
        except web.HTTPException as refusal:
            response = _plain(refusal.text or refusal.reason, refusal.status)
        except Exception as error:  # keep serving the other requests of the connection
            log.error(f"{type(error).__name__}: {error}", "Observed a panic", verb=request.method, path=request.path)
            response = _status(500, "InternalError", "This request caused apiserver to panic. Look in the logs for details.")
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
        if log.shows(3):
            agent = request.headers.get("User-Agent", "")
            log.info(
                3, "HTTP", verb=request.method, URI=request.path, userAgent=agent, srcIP=request.remote, resp=response.status
            )
        return response

    return chain


async def _in_time(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Handle a request, including reading its body, within the time limit."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await handler(request)
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


async def _admit(
    request: web.Request, authenticator: RequestAuthenticator, authorizer: RequestAuthorizer, log: Log
) -> web.Response | None:
    """Return the rejection, or None for a request that is allowed."""
    transport = request.transport
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    try:
        caller = await authenticator.authenticate(request.headers, None if tls is None else tls.getpeercert(binary_form=True))
    except (UnauthorizedError, ClusterError, ValueError) as error:
        # Credentials may be secret, so only the error is logged.
        log.error(error, "Unable to authenticate the request")
        return _status(401, "Unauthorized", "Unauthorized")
    verb, path = request.method.lower(), _REVIEWED_AS.get(request.path, request.path)
    try:
        answer = await authorizer.authorize(caller, PathAccess(path, verb))
    except ClusterError as error:
        log.error(error, "Authorization error", user=caller.name, path=request.path)
        return _plain(f'Internal Server Error: "{request.path}": the access review failed\n', 500)
    if answer.allowed:
        return None
    shown, why = json.dumps(request.path), f": {answer.reason}" if answer.reason else ""
    return _status(403, "Forbidden", f"forbidden: User {json.dumps(caller.name)} cannot {verb} path {shown}{why}")


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason}
    # As in apiserver's library, only responses to forbidden requests have details.
    details: dict[str, Any] = {"details": {}} if code == 403 else {}
    return _json({**body, **details, "code": code}, status=code)


def _json(body: Mapping[str, Any], kind: str = "application/json", status: int = 200) -> web.Response:
    return web.Response(body=json.dumps(body).encode(), status=status, headers={"Content-Type": kind})


def _zpage(request: web.Request, kind: str, text: str, fields: Mapping[str, Any]) -> web.Response:
    """Return a page about the process as text or, to clients that request that, as an object of ``config.k8s.io``."""
    form = accepted(request.headers.get("Accept", ""), kind)
    if form is None:
        known = "application/json, application/yaml, text/plain"
        return _status(406, "NotAcceptable", f"only the following media types are accepted: {known}")
    media, version = form
    if not version:
        return _plain(text)
    body = {"kind": kind, "apiVersion": f"config.k8s.io/{version}", "metadata": {"name": _NAME}, **fields}
    full = f"{media};g=config.k8s.io;v={version};as={kind}"
    if media == "application/yaml":
        return web.Response(body=yaml.safe_dump(body).encode(), headers={"Content-Type": full})
    return _json(body, full)


def _plain(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type=_ENDPOINTS_TEXT)


class _Pages:
    def __init__(self, served: Served) -> None:
        self._served = served
        #: Pages that read what the scheduler changes.
        self._moving: dict[str, Callable[[web.Request], web.Response]] = {
            "/metrics": lambda request: _printed(request, served.metrics),
            "/metrics/resources": self._resources,
        }
        self._at: dict[str, Callable[[web.Request], web.Response]] = {
            "/metrics/slis": lambda request: _printed(request, served.slis),
            "/configz": lambda request: _json({"componentconfig": served.configuration()}),
            "/flagz": lambda request: _zpage(
                request, "Flagz", flags_text(served.flags), {"flags": dict(sorted(served.flags.items()))}
            ),
            "/statusz": self._statusz,
        }
        for path in served.hidden:
            self._at.pop(path, None)
            self._moving.pop(path, None)
        loops = [] if served.scheduling is None else [served.scheduling]
        if served.profiling:
            self._at |= {
                "/debug/pprof": lambda request: web.Response(status=302, headers={"Location": "/debug/pprof/"}),
                "/debug/pprof/": lambda request: _plain(_PROFILES),
                "/debug/pprof/cmdline": lambda request: _plain("\0".join(sys.argv)),
                "/debug/pprof/goroutine": lambda request: _plain(stacks(loops)),
                "/debug/pprof/heap": _heap,
                "/debug/flags": lambda request: _plain("/debug/flags/\n\nflags:\nv\n"),
            }

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/debug/flags/v" and self._served.profiling:
            return await self._verbosity(request)
        if request.path == "/metrics" and request.method == "DELETE":
            return await self._reset()
        return await self._read(request)

    async def _read(self, request: web.Request) -> web.Response:
        path = request.path
        if request.method not in {"GET", "HEAD"}:
            return _plain("405 method not allowed\n", 405)
        probe, _, check = path.removeprefix("/").partition("/")
        if probe in _PROBES and path.startswith("/"):
            return self._probe(request, probe, check)
        if path == _EXPLAIN and self._served.explain is not None:
            return await self._explained(self._served.explain, request.query)
        if path in self._moving:
            return await self._moved(path, request)
        if self._served.profiling and path == "/debug/pprof/profile":
            return await _profile(request)
        page = self._at.get(path)
        if page is not None:
            return page(request)
        is_profile = self._served.profiling and path.startswith("/debug/pprof/")
        return _plain("this profile is not available for a Python program\n" if is_profile else "404 page not found\n", 404)

    async def _explained(
        self, explain: Callable[[Mapping[str, str]], Awaitable[Page]], query: Mapping[str, str]
    ) -> web.Response:
        try:
            found = await self._served.on_loop(lambda: explain(query))
        except TimeoutError:
            found = Page("the scheduling loop does not answer\n", status=503)
        headers = {"Retry-After": "1"} if found.status in {429, 503} else {}
        return web.Response(text=found.body, status=found.status, content_type=found.media, headers=headers)

    async def _moved(self, path: str, request: web.Request) -> web.Response:
        """Return a page that reads what the scheduler changes. While the scheduler hangs nothing changes."""
        page = self._moving[path]

        async def made() -> web.Response:
            return page(request)

        try:
            return await self._served.on_loop(made)
        except TimeoutError:
            try:
                return page(request)
            except RuntimeError:  # it goes on, and changed what was read
                return _plain("the scheduling loop is busy\n", 503)

    async def _reset(self) -> web.Response:
        async def reset() -> web.Response:
            self._served.counted.reset()
            return _plain("metrics reset\n")

        try:
            return await self._served.on_loop(reset)
        except TimeoutError:
            return _plain("the scheduling loop does not answer\n", 503)

    def _probe(self, request: web.Request, probe: str, check: str) -> web.Response:
        health = self._served.health
        if request.path == f"/{probe}":
            verbose = "verbose" in request.query
            report = health.report(probe, verbose=verbose, exclude=frozenset(request.query.getall("exclude", [])))
        else:
            single = health.single(probe, check)
            if single is None:
                return _plain("404 page not found\n", 404)
            report = single
        return _plain(report.text, 200 if report.healthy else 500)

    def _resources(self, request: web.Request) -> web.Response:
        found = self._served.pod_metrics()
        return _plain("") if found is None else _printed(request, found)

    def _statusz(self, request: web.Request) -> web.Response:
        program, now = self._served.program, datetime.now(UTC)
        return _zpage(request, "Statusz", status_text(program, now), status_fields(program, now))

    async def _verbosity(self, request: web.Request) -> web.Response:
        if request.method != "PUT":
            return _plain("unsupported http method\n", 406)
        text = (await request.read()).decode("utf-8", "replace").strip()
        try:
            if not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 10:
                raise InputError(f'strconv.ParseInt: parsing "{text[:32]}": invalid syntax')
            self._served.set_verbosity(int(text))
        except InputError as error:
            return _plain(f"failed set klog.logging.verbosity {text[:32]}: {error}\n", 400)
        return _plain(f"successfully set klog.logging.verbosity to {text}\n")


_PROFILES: Final = (
    "/debug/pprof/\n\n"
    "cmdline    the command line, separated by zero bytes\n"
    "goroutine  the stacks of all tasks and threads\n"
    "heap       the objects that are alive, by type, for `go tool pprof`; ?debug=1 as text\n"
    "profile    where threads spend ?seconds=30, for `go tool pprof`\n"
)


def _heap(request: web.Request) -> web.Response:
    if request.query.get("debug", "0") not in {"", "0"}:
        return _plain(heap_text())
    return _binary("heap", heap_profile())


async def _profile(request: web.Request) -> web.Response:
    text = request.query.get("seconds", "") or f"{_PROFILE_S:g}"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MOST_PROFILE_S:
        return _plain(f"seconds must be a number above 0 and at most {_MOST_PROFILE_S:g}\n", 400)
    return _binary("profile", await cpu_profile(seconds))


def _binary(name: str, body: bytes) -> web.Response:
    headers = {"Content-Type": "application/octet-stream", "Content-Disposition": f'attachment; filename="{name}"'}
    return web.Response(body=body, headers=headers)


def _printed(request: web.Request, registry: CollectorRegistry) -> web.Response:
    encode, kind = choose_encoder(request.headers.get("Accept", ""))
    return web.Response(body=encode(registry), headers={"Content-Type": kind})
