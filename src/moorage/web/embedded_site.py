"""The web interface of an embedded cluster: reads its store, and asks its authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from aiohttp import web

from moorage.api.core import Node, Pod
from moorage.api.decode import decode
from moorage.apiserver.access.rbac_authorizer import Authorizer
from moorage.apiserver.access.rbac_rules import Attributes
from moorage.apiserver.http.limits import Seats
from moorage.apiserver.storage.store import Store
from moorage.apiserver.storage.watch_cache import StoreChange
from moorage.apiserver.vocabulary.records import Record
from moorage.apiserver.vocabulary.served_kinds import ServedKind, served
from moorage.apiserver.vocabulary.users import User
from moorage.engine.scheduler import Scheduler
from moorage.errors import InputError
from moorage.releases import CURRENT
from moorage.web.hub import Hub, Make
from moorage.web.queue_state import queue_state
from moorage.web.rows import QueueState
from moorage.web.sessions import Sessions
from moorage.web.site import Site, is_own_path

__all__ = ["EmbeddedSite", "StoreSource"]

_NODES: Final = served("nodes")
_PODS: Final = served("pods")
_NAMESPACES: Final = served("namespaces")


class StoreSource:
    """A store as the source of the map. ``scheduler`` is the one of the same process, if there is one."""

    live = True

    def __init__(self, store: Store, scheduler: Scheduler | None, notes: tuple[str, ...] = ()) -> None:
        self._store = store
        self._scheduler = scheduler
        self._on_change: Callable[[str, str, Make | None], None] | None = None
        self.notes = notes
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

    def unfollow(self) -> None:
        self._store.unfollow(self._follow)

    def _follow(self, kind: ServedKind, change: StoreChange) -> None:
        if self._on_change is None:
            return
        if kind is _PODS:
            self._on_change("pod", change.after.key, None if change.gone else partial(_pod, change.after))
        elif kind is _NODES:
            self._on_change("node", change.after.name, None if change.gone else partial(_node, change.after))

    def queue_state(self, uid: str) -> QueueState:
        return QueueState() if self._scheduler is None else queue_state(self._scheduler, uid)


def _node(record: Record) -> Node:
    return decode(record.body, Node, "store")


def _pod(record: Record) -> Pod:
    return decode(record.body, Pod, "store")


class _Visitor:
    """A user of the embedded cluster."""

    def __init__(self, user: User, authorizer: Authorizer) -> None:
        self.user = user
        self.name = user.name
        self._authorizer = authorizer

    async def check(self, verb: str, resource: str, namespace: str = "", group: str = "", name: str = "") -> None:
        self._authorizer.check(self.user, Attributes(verb, group, resource, name=name, namespace=namespace))


class EmbeddedSite:
    """The web interface as the embedded server calls it. ``user_of_token`` finds the user of a bearer token."""

    def __init__(self, store: Store, scheduler: Scheduler | None = None, notes: tuple[str, ...] = ()) -> None:
        self._store = store
        self._authorizer = Authorizer(store)
        self.sessions: Sessions[User] = Sessions()
        self.hub = Hub(StoreSource(store, scheduler, notes))
        self.site = Site(self.hub, self.sessions, namespaces=self._namespaces)

    def _namespaces(self) -> list[str]:
        return [record.name for record in self._store.all(_NAMESPACES)]

    def serves(self, path: str) -> bool:
        return is_own_path(path)

    def session_user(self, request: web.BaseRequest) -> User | None:
        user: User | None = self.site.session_user(request)
        return user

    async def answer(self, request: web.BaseRequest, user: User | None, seats: Seats) -> web.StreamResponse:
        visitor = None if user is None else _Visitor(user, self._authorizer)
        return await self.site.respond(request, visitor, seats)

    def end(self) -> None:
        self.site.end()
