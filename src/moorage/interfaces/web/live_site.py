"""The read-only half of the web interface in ``moorage run``: the map, pods and time, from the scheduler's own state.

Callers authenticate as for the other endpoints. A browser begins a session with a token of the cluster, which is reviewed again
for each request. Rights are reviewed by the cluster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web
from multidict import CIMultiDict

from moorage.api.core import Node, Pod
from moorage.api.documents.http_messages import User
from moorage.api.documents.statuses import ApiError, internal, unauthorized
from moorage.basis.client.reflector import Reflector
from moorage.cluster.apiserver.access.authentication import check_page
from moorage.cluster.apiserver.http.limits import Seats, ServerLimits
from moorage.cluster.apiserver.http.responses import error_response
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import ClusterError
from moorage.framework.profile import Profile
from moorage.interfaces.web.atlas_route import AtlasRoute
from moorage.interfaces.web.change_stream import Hub, Make
from moorage.interfaces.web.pod_routes import PodRoutes, SchedulerTurns
from moorage.interfaces.web.rows import QueueState, WorkloadRow, queue_state
from moorage.interfaces.web.setup_route import Measured, SetupRoute
from moorage.interfaces.web.site import Sessions, Site, Visitor, is_own_path
from moorage.live.server.authentication import ANONYMOUS, RequestAuthenticator, UnauthorizedError
from moorage.live.server.authorization import RequestAuthorizer, ResourceAccess
from moorage.live.server.endpoints import Page
from moorage.live.server.live_scheduler import Live

#: How many namespaces are reviewed for a user who may not list pods in all namespaces.
_MOST_NAMESPACES: Final = 100
_LIMITS: Final = ServerLimits(reading=32, mutating=8, per_client=16, waiting=64, watches=64, watches_per_client=8)
_JSON: Final = "application/json"

Explain = Callable[[Mapping[str, str]], Awaitable[Page]]


class LiveSource:
    """What a live scheduler knows of nodes and pods."""

    live = True
    notes: tuple[str, ...] = ()

    def __init__(self, live: Live) -> None:
        self.scheduler: Scheduler = live.loop.scheduler
        self.release = self.scheduler.gates.release
        self._reflectors: dict[str, Reflector[Any]] = {
            kind: one
            for one in live.reflectors
            for kind, struct in (("node", Node), ("pod", Pod))
            if isinstance(one, Reflector) and one.resource.type is struct
        }

    def nodes(self) -> Iterator[Node]:
        return iter(list(self._reflectors["node"].known))

    def pods(self) -> Iterator[Pod]:
        return iter(list(self._reflectors["pod"].known))

    def workloads(self) -> Iterator[WorkloadRow]:
        """Return nothing: the controllers of these pods are not followed here."""
        return iter(())

    def pod(self, key: str) -> Pod | None:
        found: Pod | None = self._reflectors["pod"].get(key)
        return found

    def namespaces(self) -> list[str]:
        return sorted({pod.namespace for pod in self.pods()})[:_MOST_NAMESPACES]

    def follow(self, on_change: Callable[[str, str, Make | None], None]) -> None:
        for kind, reflector in self._reflectors.items():
            reflector.on_change = partial(_changed, on_change, kind)

    def unfollow(self) -> None:
        for reflector in self._reflectors.values():
            reflector.on_change = None

    def queue_state(self, uid: str) -> QueueState:
        return queue_state(self.scheduler, uid)


def _changed(on_change: Callable[[str, str, Make | None], None], kind: str, key: str, new: Any) -> None:
    on_change(kind, key, None if new is None else lambda: new)


class _ReviewedVisitor:
    """A caller whose rights the cluster reviews. ``valid`` raises ApiError once the caller's session is no longer valid."""

    def __init__(self, caller: User, authorizer: RequestAuthorizer, valid: Callable[[], Awaitable[None]]) -> None:
        self._valid = valid
        self.caller, self.name, self._authorizer = caller, caller.name, authorizer
        #: Sessions are opened with tokens of the cluster, so there are no links.
        self.credential = None

    def holds(self) -> bool:
        """Return True: each right is checked with the session's token, see ``check``."""
        return True

    async def check(self, verb: str, resource: str, namespace: str = "", group: str = "", name: str = "") -> None:
        await self._valid()
        try:
            access = ResourceAccess(verb, group, resource, namespace, name)
            found = await self._authorizer.authorize(self.caller, access)
        except ClusterError:
            raise internal("the access review failed") from None
        if not found.allowed:
            place = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
            message = f'{resource} is forbidden: User "{self.name}" cannot {verb} resource "{resource}"{place}'
            raise ApiError(403, "Forbidden", message, group=group, kind=resource, name=name)


class LiveSite:
    """The pages as the endpoints call them. ``profiles`` are the scheduler's without measurements."""

    def __init__(
        self, live: Live, profiles: Mapping[str, Profile], explain: Explain, measured: Measured = list
    ) -> None:  # fmt: skip
        source = LiveSource(live)
        self._explain = explain
        self._authenticator: RequestAuthenticator | None = None
        self._seats = Seats(_LIMITS)
        self._site = Site(Hub(source), Sessions[str](), self._admit, source.namespaces)
        PodRoutes(self._site, source.pod, SchedulerTurns(source.scheduler, profiles))
        AtlasRoute(self._site)
        SetupRoute(self._site, source.scheduler, (), measured)
        self._site.route("GET", "/lab/v1/pods/{namespace}/{name}/explanation", self._explanation)

    def serves(self, path: str) -> bool:
        return is_own_path(path)

    def streams(self, path: str) -> bool:
        return path == "/lab/v1/events"

    def end(self) -> None:
        self._site.end()

    async def answer(
        self, request: web.Request, authenticator: RequestAuthenticator, authorizer: RequestAuthorizer
    ) -> web.StreamResponse:  # fmt: skip
        self._authenticator = authenticator
        try:
            _check_origin(request)
            caller = await self._caller(request, authenticator) if request.path.startswith("/lab/") else None
            valid = partial(self._check_session, request, authenticator)
            visitor = None if caller is None else _ReviewedVisitor(caller, authorizer, valid)
            return await self._site.respond(request, visitor, self._seats)
        except ApiError as error:
            return error_response(error, _JSON)
        except TimeoutError:
            return error_response(ApiError(408, "Timeout", "the request's body did not arrive in time"), _JSON)

    async def _caller(self, request: web.Request, authenticator: RequestAuthenticator) -> User | None:
        """Return the user of the request's credentials or, without those, of its session; None without either."""
        tls = request.get_extra_info("ssl_object")
        shown = None if tls is None else tls.getpeercert(binary_form=True)
        try:
            caller = await authenticator.authenticate(request.headers, shown)
            if caller == ANONYMOUS:
                token = self._site.session_user(request)
                return None if token is None else await _of_token(authenticator, token)
        except (UnauthorizedError, ClusterError, ValueError):
            raise unauthorized() from None
        return caller

    async def _check_session(self, request: web.Request, authenticator: RequestAuthenticator) -> None:
        """Check that the token of the request's session is still valid, as a stream can outlive it.

        Raises  ApiError 401
        """
        token = self._site.session_user(request)
        try:
            if token is not None:
                await _of_token(authenticator, token)
        except (UnauthorizedError, ClusterError, ValueError):
            raise unauthorized() from None

    async def _admit(self, token: str) -> str | None:
        """Return the user of a session for a token of the cluster; None if the token is not valid."""
        try:
            if self._authenticator is not None and await _of_token(self._authenticator, token) is not None:
                return token
        except (UnauthorizedError, ClusterError, ValueError):
            pass
        return None

    async def _explanation(self, request: web.BaseRequest, visitor: Visitor, namespace: str, name: str) -> web.StreamResponse:
        """Return what /debug/explain says; it may name nodes and any pod."""
        await visitor.check("list", "nodes")
        await visitor.check("list", "pods")
        page = await self._explain({"pod": f"{namespace}/{name}", "changes": "0"})
        if page.status != 200:
            raise ApiError(page.status, "", page.body.strip(), retry_after_s=1 if page.status in {429, 503} else 0)
        return web.Response(text=page.body, content_type=page.media)


async def _of_token(authenticator: RequestAuthenticator, token: str) -> User | None:
    if not token.isascii() or not token.isprintable():
        return None
    caller = await authenticator.authenticate(CIMultiDict({"Authorization": f"Bearer {token}"}), None)
    return None if caller == ANONYMOUS else caller


def _check_origin(request: web.Request) -> None:
    """Refuse requests that pages of other sites send.

    Raises  ApiError 403
    """
    check_page(request.headers, request.headers.get("Host", ""))
