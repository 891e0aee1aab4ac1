"""The stage on a real API server: the one of MOORAGE_TEST_SPARE_KUBECONFIG, where nothing runs and nothing is of value.

Time is as on the virtual stage: it stands still while anything happens, and jumps when nothing does. So requests are sent one
at a time, and waited for; watches are real streams, and before time jumps the server is given a moment to say something, and
a long one while it has not told of the last write yet. Schedulers are ``system:kube-scheduler`` to it, with that role's rights.
What a test made is deleted after it.
"""

import asyncio
import http.client
import json
import os
import selectors
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from moorage.api.documents.http_messages import Response
from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import KINDS
from moorage.api.documents.statuses import ApiError
from moorage.basis.client.credentials import tls_context
from moorage.basis.client.kubeconfig import ClientEnvironment, read_kubeconfig
from moorage.basis.client.rest import Rest
from moorage.errors import ClusterError
from moorage.rules.store.watches import StoreChange
from tools.simtest.network import Sent
from tools.simtest.virtual_api import VirtualApi

#: Not the variable that other tests look at: here all nodes and pods are deleted, also those of others.
NAMED = "MOORAGE_TEST_SPARE_KUBECONFIG"
#: How long nothing must be heard before time jumps, and how long a server may take to tell of a write, in real seconds.
QUIET_S, LATE_S = 0.008, 3.0
_FOREVER_S = 1e6
_OUTSIDE = frozenset({"other", "server", "world"})
_KINDS = {kind.resource: kind for kind in KINDS if kind.kind in {"Node", "Pod"}}


async def _events(stream):
    async for lines in stream:
        for line in lines:
            yield json.loads(line)


class _Jumps(selectors.DefaultSelector):
    """A selector that waits a moment, and then moves the loop's clock on."""

    def __init__(self):
        super().__init__()
        self.now, self.is_behind = 0.0, lambda: False

    def select(self, timeout=None):
        if timeout is not None and timeout <= 0:
            return super().select(0)
        begin = time.monotonic()
        while True:
            if ready := super().select(QUIET_S):
                return ready
            waited_s = time.monotonic() - begin
            if timeout is None:
                assert waited_s < 60, "every task waits, and no timer is set"
            elif not (self.is_behind() and waited_s < LATE_S):
                self.now += timeout
                return []


class HurriedLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._jumps, self.guest = _Jumps(), None
        super().__init__(self._jumps)

    def welcome(self, guest):
        """Let time wait for the cluster that is played with."""
        self.guest, self._jumps.is_behind = guest, guest.is_behind

    def time(self):
        return self._jumps.now


class _Followers:
    """Stands where the store is, for those who want to hear of changes."""

    version = 0

    def __init__(self):
        self.told = []

    def follow(self, follower):
        self.told.append(follower)


class RealApi(VirtualApi):
    """Requests are sent to the server, and what it tells of pods and nodes is written down."""

    def __init__(self, seed=0, **_):
        super().__init__(seed)
        self.store = _Followers()
        self.store.follow(self._write_down)
        around = ClientEnvironment(os.environ, time.monotonic, lambda: datetime.now(UTC), warn=lambda line: None)
        self.endpoint = read_kubeconfig([Path(os.environ[NAMED])], must_exist=True, warn=lambda line: None).endpoint(around)
        self.made, self._connection, self._opening = [], None, 0
        self._written, self._heard, self._known = {}, {}, {}
        self._identity = None
        self._wires, self.tasks = {}, []
        asyncio.get_running_loop().welcome(self)
        self._account("default")
        for plural in ("nodes", "pods"):
            version = int(self.do("GET", f"/api/v1/{plural}")["metadata"]["resourceVersion"])
            self.tasks.append(asyncio.ensure_future(self._hear(plural, version)))

    def _account(self, namespace):
        """Make what pods of a namespace must have, where no controller does."""
        account = json.dumps({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}).encode()
        with suppress(ApiError):
            self._sent("world", "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account, {}, "application/json")

    # -- requests --------------------------------------------------------------------------------------------------------------

    def serve(self, actor, method, path, body=None, query={}, media_type="application/json"):  # noqa: B006
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        answer = self._sent(actor, method, path, raw, query, media_type or "application/json")
        if method == "POST" and path.count("/") - path.startswith("/apis") in {3, 5}:
            self._note(path, answer)
        if (method, path) == ("POST", "/api/v1/namespaces"):
            self._account(json.loads(answer)["metadata"]["name"])
        self._note_write(actor, method, path, answer)
        return Response(200, answer)

    def _sent(self, actor, method, path, raw, query, media_type):
        where = urlsplit(self.endpoint.server)
        if self._identity is None:
            self._identity = _now(self.endpoint.credentials.identity())
        headers = {"Accept": "application/json", "Content-Type": media_type}
        if self._identity.token:
            headers["Authorization"] = f"Bearer {self._identity.token}"
        if actor not in _OUTSIDE:
            headers["Impersonate-User"] = "system:kube-scheduler"
        target = quote(where.path + path) + (f"?{urlencode(query)}" if query else "")
        for again in (True, False):
            self._connection = self._connection or self._connect(where)
            try:
                self._connection.request(method, target, raw or None, headers)
                answer = self._connection.getresponse()
                said = answer.read()
                break
            except (OSError, http.client.HTTPException):
                self._connection = None
                if not again:
                    raise
        if answer.status >= 300:
            status = json.loads(said) if said[:1] == b"{" else {"message": said.decode()}
            retry_s = int(answer.headers.get("Retry-After") or 0)
            self.recording.report(actor, f"{method} {path}: {answer.status} {status.get('message', '')}")
            raise ApiError(answer.status, status.get("reason", ""), status.get("message", ""), retry_after_s=retry_s)
        return said

    def _connect(self, where):
        tls = tls_context(self.endpoint, self._identity)
        if tls is None:
            return http.client.HTTPConnection(where.hostname, where.port, timeout=30)
        return http.client.HTTPSConnection(where.hostname, where.port, timeout=30, context=tls)

    def _note(self, path, answer):
        made = json.loads(answer)
        if made.get("kind") not in {"Event", "Lease", "Status", "SubjectAccessReview"}:
            self.made.append(f"{path}/{made['metadata']['name']}")

    def _note_write(self, actor, method, path, answer):
        """Write down at once what a request changed; the watch tells of what is left."""
        if method == "GET":
            return
        if path.endswith("/binding"):
            answer = self._sent("server", "GET", path.removesuffix("/binding"), b"", {}, "")
        held, plural = json.loads(answer), Sent("", "", path, {}, b"", "").plural
        version = int(held["metadata"].get("resourceVersion") or 0)
        self._written[plural] = max(self._written.get(plural, 0), version)
        if plural not in _KINDS or held["kind"] != _KINDS[plural].kind:
            return
        if method != "DELETE" or (held["metadata"].get("deletionTimestamp") and _is_ending(held)):
            before, self._who = self._who, (actor, f"POST {path.split('/')[-1]}" if "/binding" in path else method)
            self._tell(plural, held, gone=False)
            self._who = before

    def _tell(self, plural, held, *, gone):
        kind, uid, version = _KINDS[plural], held["metadata"]["uid"], int(held["metadata"]["resourceVersion"])
        known = self._known.get(uid)
        if known is not None and not gone and known.version >= version:
            return
        after = Record.of(kind, held, version)
        self._known[uid] = after
        for follower in self.store.told:
            follower(kind, StoreChange(version, known, after, gone))

    def is_behind(self):
        for task in self.tasks:
            if task.done():
                task.result()
        return self._opening > 0 or any(at < self._written.get(plural, 0) for (_, plural), at in self._heard.items())

    # -- watches ---------------------------------------------------------------------------------------------------------------

    async def _hear(self, plural, version):
        query = {"watch": "true", "resourceVersion": str(version), "allowWatchBookmarks": "true"}
        self._heard["world", plural] = version
        async with self._watching("world", f"/api/v1/{plural}", query) as lines:
            async for event in _events(lines):
                if event["type"] != "BOOKMARK":
                    self._tell(plural, event["object"], gone=event["type"] == "DELETED")
                self._hears("world", plural, event)

    def _hears(self, actor, plural, event):
        version = int(event["object"].get("metadata", {}).get("resourceVersion") or 0)
        self._heard[actor, plural] = max(self._heard[actor, plural], version)

    @asynccontextmanager
    async def _watching(self, actor, path, query):
        rest = self._wires.get(actor)
        self._opening += 1
        try:
            if rest is None:
                rest = self._wires[actor] = await Rest(self._for(actor), qps=0).__aenter__()
            watch = rest.watch(path, query, _FOREVER_S)
            lines = await watch.__aenter__()
        finally:
            self._opening -= 1
        try:
            yield lines
        finally:
            with suppress(ClusterError):
                await watch.__aexit__(None, None, None)

    def _for(self, actor):
        if actor in _OUTSIDE:
            return self.endpoint
        return replace(self.endpoint, headers=(*self.endpoint.headers, ("Impersonate-User", "system:kube-scheduler")))

    @asynccontextmanager
    async def follow(self, sent, idle_s):
        link = self.network.link(sent.actor, sent.plural)
        await self.network.open(sent)
        async with self._watching(sent.actor, sent.path, sent.query) as lines:
            pump = asyncio.ensure_future(self._pump(sent, lines, link.begin()))
            try:
                yield link.lines(idle_s)
            finally:
                self._heard.pop((sent.actor, sent.plural), None)
                pump.cancel()
                await asyncio.gather(pump, return_exceptions=True)

    async def _pump(self, sent, lines, link):
        self._heard[sent.actor, sent.plural] = 0
        with suppress(ClusterError):
            async for arrived in lines:
                for line in arrived:
                    self._hears(sent.actor, sent.plural, json.loads(line))
                    link.put(line)
        self._heard.pop((sent.actor, sent.plural), None)
        link.put(None)

    # -- the end ---------------------------------------------------------------------------------------------------------------

    async def close(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for rest in self._wires.values():
            await rest.__aexit__(None, None, None)
        self.clear()
        if self._connection is not None:
            self._connection.close()

    def clear(self):
        """Delete all that was created, with its finalizers."""
        now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        pods = [
            f"/api/v1/namespaces/{one['metadata']['namespace']}/pods/{one['metadata']['name']}"
            for one in self.items("/api/v1/pods")
        ]
        nodes = [f"/api/v1/nodes/{one['metadata']['name']}" for one in self.items("/api/v1/nodes")]
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
        for path in dict.fromkeys([*pods, *reversed(self.made), *nodes, lease]):
            held = self.do("GET", path)
            if held is None:
                continue
            if held["metadata"].get("finalizers"):
                self.do("PATCH", path, {"metadata": {"finalizers": None}}, media_type="application/merge-patch+json")
            self.do("DELETE", path, now)
            if held["kind"] == "Namespace" and (ending := self.do("GET", path)) is not None:  # where no controller does it
                self.do("PUT", f"{path}/finalize", {**ending, "spec": {"finalizers": []}})
        self.do("DELETE", "/apis/events.k8s.io/v1/namespaces/default/events")


def _is_ending(pod):
    """Return True for a pod that is given time to end, so that it is still there."""
    return pod["metadata"].get("deletionGracePeriodSeconds", 0) > 0 and bool(pod["spec"].get("nodeName"))


def _now(coroutine):
    """Return what a coroutine returns that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("credentials that must be fetched are no use here")


def run_hurriedly(main):
    """Run a test to its end, and clear away what it made."""

    async def play():
        try:
            return await main
        finally:
            guest = asyncio.get_running_loop().guest
            if guest is not None:
                for one in asyncio.all_tasks() - {asyncio.current_task(), *guest.tasks}:
                    one.cancel()
                await asyncio.sleep(0)
                await guest.close()

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        return runner.run(play())
