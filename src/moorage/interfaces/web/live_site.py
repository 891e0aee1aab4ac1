"""The read-only half of the web interface in ``moorage run``: the map, pods and time, from the scheduler's own state.

Callers authenticate as for the other endpoints. A browser begins a session with a token of the cluster, which is reviewed again
for each request. Rights are reviewed by the cluster.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web
from multidict import CIMultiDict

from moorage.api.core import Node, Pod
from moorage.api.decode import decode
from moorage.api.releases import CURRENT
from moorage.basis.files import replacing
from moorage.basis.inputs.cleaned_objects import KINDS, list_parts
from moorage.cluster.apiserver.access.rbac import Attributes, Authorizer
from moorage.cluster.apiserver.http.limits import Seats, ServerLimits
from moorage.cluster.apiserver.http.responses import error_response
from moorage.cluster.apiserver.http.server import Perform
from moorage.cluster.apiserver.schema.representations import JSON
from moorage.cluster.apiserver.storage.store import Store
from moorage.cluster.apiserver.storage.watches import StoreChange
from moorage.cluster.apiserver.vocabulary.http_messages import HTTPRequest, User
from moorage.cluster.apiserver.vocabulary.records import Record
from moorage.cluster.apiserver.vocabulary.served_kinds import KINDS as SERVED_KINDS
from moorage.cluster.apiserver.vocabulary.served_kinds import ServedKind, served
from moorage.cluster.apiserver.vocabulary.statuses import ApiError, internal, no_such_page, unauthorized
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import ClusterError, InputError
from moorage.framework.profile import Profile
from moorage.interfaces.web.change_stream import Hub, Make
from moorage.interfaces.web.history import Past
from moorage.interfaces.web.kubectl_commands import CommandRoute
from moorage.interfaces.web.pod_routes import PodRoutes, SchedulerTurns
from moorage.interfaces.web.question_arguments import Answering
from moorage.interfaces.web.questions import Board, QuestionRoutes
from moorage.interfaces.web.rows import QueueState, queue_state
from moorage.interfaces.web.site import Sessions, Site, Visitor, cookie_name, is_own_path, json_response
from moorage.live.client.reflector import Reflector
from moorage.live.server.authentication import ANONYMOUS, RequestAuthenticator, UnauthorizedError
from moorage.live.server.authorization import RequestAuthorizer, ResourceAccess
from moorage.live.server.endpoints import Page
from moorage.live.server.live_scheduler import Live

# -- setup -------------------------------------------------------------------------------------------------------------
# The setup of the scheduler: profiles with their plugins and weights, feature gates, and how long plugins took.

#: Returns how long plugins took, as documents with ``plugin``, ``extensionPoint``, ``calls`` and ``seconds``.
Measured = Callable[[], Sequence[Mapping[str, Any]]]


def setup_document(scheduler: Scheduler | None, notes: Sequence[str], measured: Measured = list) -> dict[str, Any]:
    """Return the document of a scheduler's setup; with None, only the notes."""
    head: dict[str, Any] = {"apiVersion": "moorage.dev/v1", "kind": "Setup", "notes": list(notes)}
    if scheduler is None:
        return {**head, "scheduler": False, "profiles": [], "featureGates": [], "metrics": []}
    gates = scheduler.gates
    return {
        **head,
        "scheduler": True,
        "release": gates.release,
        "seed": scheduler.cycle.seed,
        "percentageOfNodesToScore": scheduler.cycle.percentage_of_nodes_to_score,
        "profiles": [_profile(profile) for profile in scheduler.profiles.values()],
        "featureGates": [{"name": name, "enabled": gates[name]} for name in gates.names],
        "metrics": list(measured()),
    }


def _profile(profile: Profile) -> dict[str, Any]:
    points = {point: [step.name for step in steps] for point, steps in profile.steps.items() if steps}
    return {
        "schedulerName": profile.scheduler_name,
        "percentageOfNodesToScore": profile.percentage_of_nodes_to_score,
        "points": points,
        "weights": {name: profile.weights.get(name, 1) for name in points.get("score", [])},
    }


class SetupRoute:
    """Adds the route to a site."""

    def __init__(
        self, site: Site, scheduler: Scheduler | None, notes: Sequence[str], measured: Measured = list,
        recorded: Measured = list,
    ) -> None:  # fmt: skip
        self.scheduler, self._notes, self._measured, self._recorded = scheduler, notes, measured, recorded
        site.route("GET", "/lab/v1/setup", self._setup)

    async def _setup(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        await visitor.check("list", "nodes")
        document = setup_document(self.scheduler, self._notes, self._measured)
        return json_response({**document, "recordings": list(self._recorded())})


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
    origin = request.headers.get("Origin")
    foreign = origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("Host", "").lower()
    if foreign or request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
        raise ApiError(403, "Forbidden", "requests from pages of other sites are refused")


# -- embedded site -----------------------------------------------------------------------------------------------------
# The web interface of an embedded cluster: reads its store, and asks its authorizer.

#: Seconds after which a process must have opened its input.
_STARTS_S: Final = 60.0
#: The user agent, and so the field manager, of changes by pages.
_AGENT: Final = "moorage-ui"
_NODES: Final = served("nodes")
_PODS: Final = served("pods")
_NAMESPACES: Final = served("namespaces")
#: The built-in kinds that questions read.
_READ: Final = tuple(
    kind for kind in SERVED_KINDS if any((kind.group, kind.kind) == (one.group, one.name) for one in KINDS)
)  # fmt: skip


class StoreSource:
    """A store as the source of the map. ``scheduler`` is the one of the same process, if there is one."""

    live = True

    def __init__(self, store: Store, scheduler: Scheduler | None, notes: tuple[str, ...] = ()) -> None:
        self._store = store
        self.scheduler = scheduler
        self._on_change: Callable[[str, str, Make | None], None] | None = None
        self.notes = notes
        #: Number of changes to objects that questions read. It counts only while the store is followed.
        self.changes = 0
        self.is_followed = False
        self.release = CURRENT.name if scheduler is None else scheduler.gates.release

    def nodes(self) -> Iterator[Node]:
        for record in list(self._store.all(_NODES)):
            try:
                yield _node(record)
            except InputError:
                continue

    def pods(self) -> Iterator[Pod]:
        for record in list(self._store.all(_PODS)):
            try:
                yield _pod(record)
            except InputError:
                continue

    def follow(self, on_change: Callable[[str, str, Make | None], None]) -> None:
        self.unfollow()
        self._on_change = on_change
        self._store.follow(self._follow)
        self.is_followed = True

    def unfollow(self) -> None:
        self.is_followed = False
        self.changes += 1
        self._store.unfollow(self._follow)

    def _follow(self, kind: ServedKind, change: StoreChange) -> None:
        if self._on_change is None:
            return
        self.changes += kind in _READ or kind.custom is not None
        if kind is _PODS:
            self._on_change("pod", change.after.key, None if change.gone else partial(_pod, change.after))
        elif kind is _NODES:
            self._on_change("node", change.after.name, None if change.gone else partial(_node, change.after))

    def pod(self, key: str) -> Pod | None:
        namespace, _, name = key.partition("/")
        record = self._store.find(_PODS, namespace, name)
        return None if record is None else _pod(record)

    def records(self) -> list[Record]:
        """Return all objects that questions read."""
        return [record for kind in self.kinds() for record in self._store.all(kind)]

    def kinds(self) -> list[ServedKind]:
        """Return the kinds that questions read: built-in ones, and those of Kueue and its jobs that the cluster has."""
        custom = [kind for kind in self._store.kinds.stored if kind.custom is not None]
        if custom:
            from moorage.simulator.kueue.batch_jobs import KINDS as QUEUED  # loaded only for clusters with custom kinds

            custom = [kind for kind in custom if f"{kind.resource}.{kind.version}.{kind.group}" in QUEUED]
        return [*_READ, *custom]

    def queue_state(self, uid: str) -> QueueState:
        return QueueState() if self.scheduler is None else queue_state(self.scheduler, uid)


def _node(record: Record) -> Node:
    return decode(record.body, Node, "store")


def _pod(record: Record) -> Pod:
    return decode(record.body, Pod, "store")


class _Visitor:
    """A user of the embedded cluster."""

    def __init__(self, user: User, authorizer: Authorizer, *, by_session: bool) -> None:
        self.user = user
        self.credential = None if by_session else user
        self.name = user.name
        self._authorizer = authorizer

    async def check(self, verb: str, resource: str, namespace: str = "", group: str = "", name: str = "") -> None:
        self._authorizer.check(self.user, Attributes(verb, group, resource, name=name, namespace=namespace))


class StoreInputs:
    """A store as the input of questions: a List of all objects that they read, as ``moorage dump`` would write it."""

    def __init__(self, source: StoreSource, options: Sequence[str]) -> None:
        self._source, self._options = source, tuple(options)
        self._written = -1
        self._path: Path | None = None

    async def current(self, folder: Path) -> tuple[Sequence[str], Path]:
        changes = self._source.changes
        if self._path is None or self._written != changes or not self._source.is_followed:
            records = self._source.records()
            path = folder / f"cluster-{changes}-{secrets.token_hex(4)}"
            await asyncio.to_thread(_write_list, path, records)
            old, self._path, self._written = self._path, path, changes
            if old is not None:
                # A process that is being started with the old file opens it within this time.
                asyncio.get_running_loop().call_later(_STARTS_S, partial(old.unlink, missing_ok=True))
        return ("-f", "-", *self._options), self._path


def _write_list(path: Path, records: Sequence[Record]) -> None:
    with replacing(path, lasting=False) as file:
        file.writelines(list_parts(record.body for record in records))


class EmbeddedSite:
    """The web interface of the embedded server; implements ``WebSite``.

    ``answer`` runs the command that answers a question, with ``options`` for the scheduler; None disables questions.
    ``on_change`` allows pages to change the cluster, and gets a line for each command; None forbids it. ``profiles`` are the
    scheduler's profiles without measurements; ``measured`` returns how long plugins took. ``past_of`` reads the
    run that a question recorded in its folder.
    """

    def __init__(
        self, store: Store, scheduler: Scheduler | None = None, notes: tuple[str, ...] = (), *,
        answer: Answering | None = None, options: Sequence[str] = (),
        on_change: Callable[[str], None] | None = None, profiles: Mapping[str, Profile] | None = None,
        measured: Measured = list, past_of: Callable[[Path], Past | None] = lambda folder: None,
    ) -> None:  # fmt: skip
        self._store = store
        self._authorizer = Authorizer(store)
        self.sessions: Sessions[User] = Sessions()
        source = StoreSource(store, scheduler, notes)
        self.hub = Hub(source)
        self.site = Site(self.hub, self.sessions, namespaces=self._namespaces)
        self._profiles = profiles
        turns = None if scheduler is None else SchedulerTurns(scheduler, profiles or scheduler.profiles)
        PodRoutes(self.site, source.pod, turns)
        setup = SetupRoute(self.site, scheduler, notes, measured)
        self._request: Perform | None = None
        CommandRoute(self.site, None if on_change is None else self._perform, on_change)
        self._shown = source, turns, setup
        self.folder: TemporaryDirectory[str] | None = None
        if answer is not None:
            self.folder = TemporaryDirectory(prefix="moorage-questions-", ignore_cleanup_errors=True)
            folder, inputs = Path(self.folder.name), StoreInputs(source, options)
            board = Board(folder, inputs.current, answer, on_change=self.hub.wake, past_of=past_of)
            QuestionRoutes(self.site, board, lambda: [(one.group, one.resource) for one in source.kinds()], answer.prepare)

    def connect(self, perform: Perform) -> None:
        self._request = perform

    async def _perform(
        self, visitor: Any, method: str, path: str, query: Mapping[str, str], body: bytes, media: str
    ) -> bytes:  # fmt: skip
        if self._request is None:
            raise no_such_page()
        return await self._request(HTTPRequest(method, path, query, JSON, media, body, visitor.user, _AGENT))

    def show(self, scheduler: Scheduler) -> None:
        """Show another scheduler, which replaces the first one."""
        source, turns, setup = self._shown
        source.scheduler = setup.scheduler = scheduler
        if turns is not None:
            turns.replace(scheduler, self._profiles or scheduler.profiles)

    def _namespaces(self) -> list[str]:
        return [record.name for record in self._store.all(_NAMESPACES)]

    def serves(self, path: str) -> bool:
        return is_own_path(path)

    def session_user(self, request: web.BaseRequest) -> User | None:
        return self.sessions.user_of(request.cookies.get(cookie_name(request), ""))

    async def answer(self, request: web.BaseRequest, user: User | None, seats: Seats) -> web.StreamResponse:
        by_session = user is not None and user == self.session_user(request)
        visitor = None if user is None else _Visitor(user, self._authorizer, by_session=by_session)
        return await self.site.respond(request, visitor, seats)

    def end(self) -> None:
        self.site.end()
        if self.folder is not None:
            self.folder.cleanup()
