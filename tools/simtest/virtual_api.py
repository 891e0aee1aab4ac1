"""An API server without sockets: the embedded server's code, a network with faults on demand, and the real client.

``VirtualApi`` executes requests on the store and records the results. ``VirtualRest`` is the real client down to the socket:
rate limiter, retries, lanes and timeouts are its own.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from moorage.api.documents.http_messages import HTTPRequest, Response, User
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.served_kinds import KINDS, ServedKind, served
from moorage.api.documents.statuses import ApiError, no_such_page
from moorage.api.feature_gates import FeatureGates
from moorage.basis.client.credentials import Endpoint
from moorage.basis.client.rest import BINDING, OTHER, Rest
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.requests import serve
from moorage.cluster.apiserver.http.watch_stream import Stream, open_stream
from moorage.cluster.apiserver.schema.discovery import resource_list
from moorage.errors import ClusterError, MoorageError
from moorage.rules.store.store import Store
from moorage.rules.store.watches import StoreChange
from tools.simtest.arriving import Arrivals
from tools.simtest.network import Link, Network, Sent
from tools.simtest.recording import HELD, Lost, Recording, RequestRecord, WriteRecord

__all__ = ["EPOCH", "Network", "VirtualApi", "VirtualRest", "wall_time"]

#: The time of day at the start of virtual time, in seconds since 1970.
EPOCH = 1_790_000_000.0
_ADMIN = User("admin", ("system:masters",))
_LIMITS_S = {BINDING: 5.0, OTHER: 30.0}
_UNRECORDED = frozenset(["Event"])
_PODS = served("pods")
_GROUP_VERSION = re.compile(r"/apis/(?P<group>[^/]+)/(?P<version>[^/]+)")
_POD_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/]+)")


def wall_time(at_s: float) -> str:
    """Return the time of day at a virtual time, in the API's format."""
    return datetime.fromtimestamp(EPOCH + at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class VirtualApi:
    """A store that serves requests by path, and the recording of the results. Construct it inside a running loop."""

    def __init__(self, seed: int = 0, *, capacity: int = 16_384, gates: FeatureGates | None = None) -> None:
        self.clock = asyncio.get_running_loop().time
        self.recording = Recording(self.clock)
        self.store = Store(lambda: EPOCH + self.clock(), random.Random(seed), b"simtest", capacity, gates)  # noqa: S311
        self.network = Network(random.Random(seed + 1), self.clock)  # noqa: S311
        self._guard, self._authorizer = Authenticator({}), Authorizer(self.store)
        self._who = ("server", "start")
        self.store.follow(self._write_down)

    def _write_down(self, kind: ServedKind, change: StoreChange) -> None:
        if kind.kind in _UNRECORDED:
            return
        actor, verb = self._who
        document = change.after.document()
        how = "DELETED" if change.gone else "MODIFIED" if change.before is not None else "ADDED"
        key = change.after.key.removeprefix("/")
        uid = str(document["metadata"]["uid"])
        self.recording.add(
            WriteRecord(self.clock(), actor, verb, how, kind.kind, key, uid, change.version, document)
        )  # fmt: skip

    def serve(
        self, actor: str, method: str, path: str, body: Any = None, query: Mapping[str, str] = {},
        media_type: str = "application/json",
    ) -> Response:  # fmt: skip
        """Execute a request without the network.

        Raises  ApiError
        """
        if found := _GROUP_VERSION.fullmatch(path):
            listed = resource_list(found["group"], found["version"], self.store.kinds)
            if listed is None:
                raise no_such_page()
            return Response(200, msgspec.json.encode(listed))
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        held, self._who = self._who, (actor, f"{method} {path.rpartition('/')[2]}" if "/binding" in path else method)
        try:
            request = HTTPRequest(method, path, query, "application/json", media_type, raw, _ADMIN)
            return serve(self.store, self._guard, self._authorizer, request, find_target(path, self.store.kinds))
        finally:
            self._who = held

    def do(
        self, method: str, path: str, body: Any = None, *, actor: str = "world", media_type: str = "application/json"
    ) -> Any:
        """Execute a request of the world and return the object of the response; None if the API rejects it."""
        try:
            response = self.serve(actor, method, path, body, media_type=media_type)
        except ApiError:
            return None
        return msgspec.json.decode(response.body)

    def items(self, path: str) -> list[dict[str, Any]]:
        """Return all objects in the list at a path."""
        items: list[dict[str, Any]] = self.do("GET", path)["items"]
        return items

    def go_back(self, then: int, version: int) -> None:
        """Drop every write after version ``then``, as a server with a lagging disk does, and continue from ``version``."""
        kept = [(kind, one) for kind in KINDS for one in self.store.page(kind, version=str(then), match="Exact").records]
        self.store.restore(kept, version)
        pods, nodes = ([one.document() for kind, one in kept if kind.kind == name] for name in ("Pod", "Node"))
        held = [{**one.document(), "kind": kind.kind} for kind, one in kept if kind.kind in HELD]
        self.recording.add(Lost(self.clock(), version, pods, nodes, held))

    # -- requests over the network --------------------------------------------------------------------------------------

    async def ask(self, sent: Sent) -> bytes:
        """Send a request over the network and return the response.

        Raises  ClusterError, as a client sees it
        """
        asked = _asked(self.clock(), sent)
        self.recording.add(asked)

        def carry_out() -> bytes:
            asked.uid = asked.uid or self._named(sent)
            try:
                response = self.serve(sent.actor, sent.method, sent.path, sent.body, sent.query, sent.media_type)
            except ApiError as error:
                asked.code = error.code
                text = f"{sent.method} {sent.path}: {error}"
                retry_s = float(error.retry_after_s) if error.retry_after_s else None
                raise ClusterError(text, error.code, error.reason, retry_s) from None
            asked.code = response.code
            return response.body

        return await self.network.carry(sent, carry_out, self.store.version)

    def _named(self, sent: Sent) -> str:
        """Return the UID of the pod that a request to delete one names; "" for other requests."""
        found = _POD_PATH.fullmatch(sent.path) if sent.method == "DELETE" else None
        held = None if found is None else self.store.find(_PODS, found["namespace"], found["name"])
        return "" if held is None else str(held.document()["metadata"]["uid"])

    @asynccontextmanager
    async def follow(self, sent: Sent, idle_s: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Open a watch over the network."""
        link = self.network.link(sent.actor, sent.plural)
        await self.network.open(sent)
        try:
            request = HTTPRequest("GET", sent.path, sent.query, "application/json", "application/json", b"", _ADMIN)
            stream = open_stream(self.store, request, find_target(sent.path, self.store.kinds))
        except ApiError as error:
            raise ClusterError(f"watch {sent.path}: {error}", error.code, error.reason) from None
        pump = asyncio.ensure_future(_pump(stream, link.begin()))
        try:
            yield link.lines(idle_s)
        finally:
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump
            stream.close()


async def _pump(stream: Stream, link: Link) -> None:
    async for parts in stream:
        for line in b"".join(parts).splitlines():
            link.put(line)
    link.put(None)


def _asked(at_s: float, sent: Sent) -> RequestRecord:
    body: Any = None
    with suppress(ValueError):
        body = json.loads(sent.body or b"null")
    body = body if isinstance(body, dict) else {}
    metadata = body.get("metadata") or {}
    head, events, _ = sent.path.partition("/events/")  # event names are not seeded
    return RequestRecord(
        at_s, sent.actor, sent.method, head + events,
        node=(body.get("target") or {}).get("name", ""),
        uid=metadata.get("uid") or (body.get("preconditions") or {}).get("uid", ""),
        holder=(body.get("spec") or {}).get("holderIdentity", "") if "/leases" in sent.path else "",
        grace_given="gracePeriodSeconds" in body,
    )  # fmt: skip


class VirtualRest(Rest):
    """The client of one actor on the virtual network."""

    def __init__(self, api: VirtualApi, actor: str, *, qps: float = 50.0, burst: int = 100) -> None:
        super().__init__(Endpoint("http://virtual"), qps=qps, burst=burst)
        self._api, self.actor = api, actor
        self._arrivals = Arrivals(api.recording, actor)
        self._posting: set[asyncio.Task[None]] = set()

    async def _authorize(self) -> dict[str, str]:
        return {}

    async def _send_once(
        self, lane: int, method: str, path: str, params: Mapping[str, str], body: bytes | None,
        headers: Mapping[str, str], max_bytes: int, check: Callable[[], None],
    ) -> bytes:  # fmt: skip
        check()
        return await self._carried(lane, method, path, params, body, headers)

    def post_soon(
        self, posts: Sequence[tuple[str, bytes]], done: Callable[[Sequence[int], MoorageError | None], None], *,
        lane: int = OTHER, check: Callable[[], None] = lambda: None, apart: bool = False,
    ) -> bool:  # fmt: skip
        if not self._throttle.take_now(len(posts)):
            return False
        for which in [range(at, at + 1) for at in range(len(posts))] if apart else [range(len(posts))]:
            try:
                check()
            except MoorageError as error:
                done(which, error)
                continue
            task = asyncio.get_running_loop().create_task(self._post_in_order(posts, which, done, lane))
            self._posting.add(task)
            task.add_done_callback(self._posting.discard)
        return True

    async def _post_in_order(
        self,
        posts: Sequence[tuple[str, bytes]],
        which: Sequence[int],
        done: Callable[[Sequence[int], MoorageError | None], None],
        lane: int,
    ) -> None:
        for at in which:
            path, body = posts[at]
            try:
                await self._carried(lane, "POST", path, {}, body, {"Content-Type": "application/json"})
            except ClusterError as error:
                done([at], error)
            else:
                done([at], None)

    async def _carried(
        self, lane: int, method: str, path: str, params: Mapping[str, str], body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        sent = Sent(self.actor, method, unquote(path), dict(params), body or b"", headers.get("Content-Type", ""))
        try:
            async with asyncio.timeout(_LIMITS_S[lane]):
                body = await self._api.ask(sent)
        except TimeoutError as error:
            raise ClusterError(f"{method} {path}: timed out") from error
        self._arrivals.page(sent, body)
        return body

    @asynccontextmanager
    async def watch(self, path: str, params: Mapping[str, str], idle_s: float) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        await self._throttle.take(OTHER)
        async with self._api.follow(Sent(self.actor, "WATCH", path, dict(params), b"", ""), idle_s) as lines:
            yield self._arrivals.lines(params, lines)
