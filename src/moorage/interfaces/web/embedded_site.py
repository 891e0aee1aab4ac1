"""The web interface of an embedded cluster: reads its store, and asks its authorizer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from moorage.api.core import Node, Pod
from moorage.api.decode import decode
from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import KINDS as SERVED_KINDS
from moorage.api.documents.served_kinds import ServedKind, served
from moorage.api.documents.statuses import no_such_page
from moorage.api.releases import CURRENT
from moorage.basis.files import replacing
from moorage.basis.inputs.simulated_kinds import KINDS, list_parts
from moorage.cluster.apiserver.access.authentication import ProvenUser
from moorage.cluster.apiserver.access.rbac import Attributes, Authorizer
from moorage.cluster.apiserver.http.limits import Seats
from moorage.cluster.apiserver.http.server import Perform
from moorage.cluster.apiserver.schema.representations import JSON
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import InputError
from moorage.framework.profile import Profile
from moorage.interfaces.web.atlas_route import AtlasRoute
from moorage.interfaces.web.change_stream import Hub, Make
from moorage.interfaces.web.history import Past
from moorage.interfaces.web.kubectl_commands import CommandRoute
from moorage.interfaces.web.pod_routes import PodRoutes, SchedulerTurns
from moorage.interfaces.web.question_folders import question_folder
from moorage.interfaces.web.question_processes import Answering
from moorage.interfaces.web.questions import Board, QuestionRoutes
from moorage.interfaces.web.rows import QueueState, WorkloadRow, queue_state, workload_row
from moorage.interfaces.web.setup_route import Measured, SetupRoute
from moorage.interfaces.web.site import Sessions, Site, cookie_name, is_own_path
from moorage.rules.store.store import Store
from moorage.rules.store.watches import StoreChange

#: Seconds after which a process must have opened its input.
_STARTS_S: Final = 60.0
#: The user agent, and so the field manager, of changes by pages.
_AGENT: Final = "moorage-ui"
_NODES: Final = served("nodes")
_PODS: Final = served("pods")
_NAMESPACES: Final = served("namespaces")
#: The kinds that want a number of pods.
_WORKLOADS: Final = tuple(served(name, "apps") for name in ("deployments", "replicasets", "statefulsets"))
#: The built-in kinds that questions read.
_READ: Final = tuple(
    kind for kind in SERVED_KINDS if any((kind.group, kind.kind) == (one.group, one.name) for one in KINDS)
)  # fmt: skip
#: Admission policies and their bindings.
_POLICIES: Final = tuple(
    served(f"{form}admission{what}", "admissionregistration.k8s.io")
    for form in ("validating", "mutating") for what in ("policies", "policybindings")
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

    def workloads(self) -> Iterator[WorkloadRow]:
        for record in [one for kind in _WORKLOADS for one in self._store.all(kind)]:
            if (row := _workload(record)) is not None:
                yield row

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
        elif kind in _WORKLOADS:
            key = f"{change.after.namespace}/{kind.kind}/{change.after.name}"
            self._on_change("workload", key, None if change.gone else partial(_workload, change.after))

    def pod(self, key: str) -> Pod | None:
        namespace, _, name = key.partition("/")
        record = self._store.find(_PODS, namespace, name)
        return None if record is None else _pod(record)

    def records(self) -> list[Record]:
        """Return all objects that questions read, and the admission policies, which judge what answers offer."""
        read = self.kinds()
        policies = [record for kind in _POLICIES for record in self._store.all(kind)]
        parameters = dict.fromkeys(kind for one in policies if (kind := self._parameters_of(one)) is not None)
        return [
            *(record for kind in read for record in self._store.all(kind)), *policies,
            *(record for kind in parameters if kind not in read for record in self._store.all(kind)),
        ]  # fmt: skip

    def _parameters_of(self, policy: Record) -> ServedKind | None:
        """Return the kind of a policy's parameters, if it has some."""
        named = policy.document()["spec"].get("paramKind") or {}
        return self._store.kinds.find_type(str(named.get("apiVersion")), str(named.get("kind")))

    def kinds(self) -> list[ServedKind]:
        """Return the kinds that questions read: built-in ones, and those of Kueue and its jobs that the cluster has."""
        custom = [kind for kind in self._store.kinds.stored if kind.custom is not None]
        if custom:
            from moorage.simulator.job_kinds import KINDS as QUEUED  # loaded only for clusters with custom kinds

            custom = [kind for kind in custom if f"{kind.resource}.{kind.version}.{kind.group}" in QUEUED]
        return [*_READ, *custom]

    def queue_state(self, uid: str) -> QueueState:
        return QueueState() if self.scheduler is None else queue_state(self.scheduler, uid)


def _node(record: Record) -> Node:
    return decode(record.body, Node, "store")


def _workload(record: Record) -> WorkloadRow | None:
    return workload_row(msgspec.json.decode(record.body))


def _pod(record: Record) -> Pod:
    return decode(record.body, Pod, "store")


class _Visitor:
    """A user of the embedded cluster."""

    def __init__(self, user: User, authorizer: Authorizer, holds: Callable[[], bool], *, by_session: bool) -> None:
        self.user, self.holds = user, holds
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
        PodRoutes(self.site, source.pod, turns, lambda uid: source.queue_state(uid).cause)
        AtlasRoute(self.site)
        setup = SetupRoute(self.site, scheduler, notes, measured)
        self._request: Perform | None = None
        CommandRoute(self.site, None if on_change is None else self._perform, on_change)
        self._shown = source, turns, setup
        self._block = ExitStack()
        #: The temporary folder of questions, which ends with the site.
        self.folder: Path | None = None
        if answer is not None:
            folder, inputs = self._block.enter_context(question_folder()), StoreInputs(source, options)
            self.folder = folder
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

    async def answer(self, request: web.BaseRequest, proof: ProvenUser | None, seats: Seats) -> web.StreamResponse:
        by_session = proof is not None and proof.user == self.session_user(request)
        visitor = None if proof is None else _Visitor(proof.user, self._authorizer, proof.holds, by_session=by_session)
        return await self.site.respond(request, visitor, seats)

    def end(self) -> None:
        self.site.end()
        self._block.close()
