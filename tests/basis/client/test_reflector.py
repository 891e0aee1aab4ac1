"""The reflector in virtual time, against servers that are correct, slow, lossy, outdated or unreachable."""

import asyncio
import json
import random
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Node
from moorage.api.custom_objects import CustomKind
from moorage.api.feature_gates import FeatureGates
from moorage.basis.client.reflector import Reflector
from moorage.basis.client.watched_resources import WATCHED, WatchedResource, custom_resource, resource_of, watched
from moorage.core.engine.facts import Gone
from moorage.errors import UNREACHABLE, ClusterError, InputError
from moorage.testing.virtual_time import run_virtually

NODES = WatchedResource(Node, "v1", "nodes", namespaced=False)


class Server:
    """Nodes with a history of ``window`` events; every list and watch can be made to fail."""

    def __init__(self, window=1000):
        self.rev = 100
        self.objects, self.events, self.window = {}, [], window
        self.lists, self.looks, self.watches, self.params = 0, 0, 0, []
        self.streams = []
        self.list_faults, self.watch_faults = [], []
        self.frozen = None
        self.offers_streams, self.ends_lists, self.streams_opened = True, True, 0

    def put(self, name, uid=None, **labels):
        self.rev += 1
        uid = uid or (self.objects.get(name) or {"metadata": {"uid": f"{name}-uid"}})["metadata"]["uid"]
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = {"metadata": {"name": name, "uid": uid, "resourceVersion": str(self.rev), "labels": labels}}
        self._emit(kind, self.objects[name])

    def remove(self, name):
        self.rev += 1
        last = self.objects.pop(name)
        self._emit("DELETED", {"metadata": {**last["metadata"], "resourceVersion": str(self.rev)}})

    def _emit(self, kind, obj):
        self.events.append((self.rev, {"type": kind, "object": obj}))
        for stream in self.streams:
            stream.put_nowait(json.dumps(self.events[-1][1]).encode())

    def send(self, line):
        for stream in self.streams:
            stream.put_nowait(line)

    def cut(self):
        self.send(None)

    async def get(self, path, params):
        assert path == "/api/v1/nodes"
        is_look = params.get("limit") == "1"
        self.lists += not is_look
        self.looks += is_look
        self.params.append(dict(params))
        await asyncio.sleep(0.01)
        if self.list_faults and not is_look:
            raise self.list_faults.pop(0)
        rev, objects = self.frozen or (self.rev, list(self.objects.values()))
        start = int(params.get("continue", "0"))
        limit = int(params.get("limit", "1000000"))
        more = str(start + limit) if start + limit < len(objects) else ""
        return json.dumps(
            {"metadata": {"resourceVersion": str(rev), "continue": more}, "items": objects[start : start + limit]}
        ).encode()

    @asynccontextmanager
    async def watch(self, path, params, idle_s):
        self.watches += 1
        self.params.append(dict(params))
        await asyncio.sleep(0.01)
        if self.watch_faults:
            raise self.watch_faults.pop(0)
        if params.get("sendInitialEvents"):
            if not self.offers_streams:
                raise ClusterError("sendInitialEvents is forbidden", 422, "Invalid")
            stream = asyncio.Queue()
            for obj in self.objects.values():
                stream.put_nowait(json.dumps({"type": "ADDED", "object": obj}).encode())
            annotations = {"k8s.io/initial-events-end": "true"}
            mark = {"metadata": {"resourceVersion": str(self.rev), "annotations": annotations}}
            if self.ends_lists:
                stream.put_nowait(json.dumps({"type": "BOOKMARK", "object": mark}).encode())
            else:
                stream.put_nowait(None)
                self.ends_lists = True
            self.streams_opened += 1
            async with self._hearing(stream):
                yield self._lines(stream, idle_s)
            return
        since = int(params["resourceVersion"])
        if self.events and since < self.rev - self.window:
            raise ClusterError("too old resource version", 410, "Expired")
        stream = asyncio.Queue()
        for rev, event in self.events:
            if rev > since:
                stream.put_nowait(json.dumps(event).encode())
        async with self._hearing(stream):
            yield self._lines(stream, idle_s)

    @asynccontextmanager
    async def _hearing(self, stream):
        self.streams.append(stream)
        try:
            yield
        finally:
            if stream in self.streams:
                self.streams.remove(stream)

    @staticmethod
    async def _lines(stream, idle_s):
        while True:
            try:
                lines = [await asyncio.wait_for(stream.get(), idle_s)]
            except TimeoutError:
                return
            while not stream.empty():
                lines.append(stream.get_nowait())
            ends = None in lines
            yield lines[: lines.index(None)] if ends else lines
            if ends:
                return


class Follower:
    """The state that a sink derives from the facts."""

    def __init__(self):
        self.facts, self.view = [], {}
        self.restored = False
        self.listing, self.lists = False, []

    def begin(self):
        assert not self.listing
        self.listing = True
        self.lists.append([])

    def end(self):
        assert self.listing
        self.listing = False

    async def put_all(self, facts):
        for fact in facts:
            await self.put(fact)

    async def put(self, fact):
        await asyncio.sleep(0)  # as where there is no room
        if self.listing:
            self.lists[-1].append(fact.obj.metadata.name)
        name = fact.obj.metadata.name
        self.facts.append((type(fact).__name__, name, fact.obj.metadata.uid))
        if isinstance(fact, Gone):
            assert name in self.view
            del self.view[name]
        else:
            old = self.view.get(name)
            assert old is None or old.metadata.uid == fact.obj.metadata.uid
            later = old is None or int(old.metadata.resource_version) < int(fact.obj.metadata.resource_version)
            assert later or self.restored
            self.view[name] = fact.obj


@asynccontextmanager
async def following(server, resource=NODES, **how):
    follower, reports = Follower(), []
    clock = asyncio.get_running_loop().time
    reflector = Reflector(resource, server, follower, clock=clock, rng=random.Random(7), report=reports.append, **how)
    follower.reports, follower.synced, follower.reflector = reports, reflector.synced, reflector
    task = asyncio.create_task(reflector.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def agrees(server, follower):
    held = {name: obj["metadata"]["resourceVersion"] for name, obj in server.objects.items()}
    return held == {name: obj.metadata.resource_version for name, obj in follower.view.items()}


@pytest.mark.parametrize("streams", [True, False])
def test_until_when_all_changes_are_delivered(streams):
    """A list tells all until it began; what a watch tells first after an interruption may be as old as its last news."""

    async def main():
        server, now = Server(), asyncio.get_running_loop().time
        began = now()
        async with following(server, streams=streams) as follower:
            reflector = follower.reflector
            await follower.synced.wait()
            assert began <= reflector.told_until < now()
            await asyncio.sleep(10)
            server.put("a")
            await asyncio.sleep(0.1)
            heard = reflector.told_until
            assert began + 10 <= heard <= now()
            server.watch_faults = [ClusterError("refused", 503)] * 3
            server.cut()
            await asyncio.sleep(1)
            server.put("b")
            while "b" not in follower.view:
                await asyncio.sleep(0.1)
            assert now() > heard + 2
            assert reflector.told_until < heard + 0.2
            await asyncio.sleep(3)
            server.put("c")
            await asyncio.sleep(0.1)
            assert reflector.told_until > now() - 1

    run_virtually(main())


def test_a_list_and_a_watch_from_its_version():
    async def main():
        server = Server()
        server.put("a")
        async with following(server) as follower:
            await follower.synced.wait()
            server.put("b")
            server.put("a", x="1")
            server.remove("b")
            await asyncio.sleep(1)
            return server, follower

    server, follower = run_virtually(main())
    assert [(kind, name) for kind, name, _ in follower.facts] == [
        ("Seen", "a"), ("Seen", "b"), ("Seen", "a"), ("Gone", "b"),
    ]  # fmt: skip
    assert (server.lists, server.watches) == (1, 1)
    assert server.params[1]["resourceVersion"] == "101"
    assert 300 <= int(server.params[1]["timeoutSeconds"]) <= 600


@pytest.mark.parametrize("ends", [True, False], ids=["whole", "broken off at first"])
def test_a_list_as_the_start_of_a_watch(ends):
    async def main():
        server = Server(window=0)
        server.ends_lists = ends
        server.put("a")
        server.put("b")
        async with following(server, streams=True) as follower:
            await asyncio.sleep(5)
            server.put("c")
            server.remove("a")
            await asyncio.sleep(1)
            before = set(follower.view), follower.synced.is_set()
            server.objects.pop("b")
            server.rev += 5
            server.send(b'{"type":"ERROR","object":{"code":410}}')
            await asyncio.sleep(10)
            return before, set(follower.view), server

    before, after, server = run_virtually(main())
    assert before == ({"b", "c"}, True)
    assert after == {"c"}
    assert (server.lists, server.streams_opened) == (0, 2 if ends else 3)


class Endless(Server):
    """Streams lists without their end, like behind a proxy that cuts streams."""

    ends_lists = property(lambda self: False, lambda self, value: None)


def test_a_server_that_never_ends_a_watch_list_gets_plain_lists():
    async def main():
        server = Endless()
        server.put("a")
        async with following(server, streams=True) as follower:
            await asyncio.sleep(60)
            return agrees(server, follower), follower.synced.is_set(), server.streams_opened, server.lists

    assert run_virtually(main()) == (True, True, 3, 1)


def test_a_server_without_watch_list_gets_plain_lists():
    async def main():
        server = Server()
        server.offers_streams = False
        server.put("a")
        async with following(server, streams=True) as follower:
            await follower.synced.wait()
            server.put("b")
            await asyncio.sleep(1)
            server.send(b'{"type":"ERROR","object":{"code":410}}')
            await asyncio.sleep(10)
            return agrees(server, follower), server.lists, server.watches, follower.reports

    right, lists, watches, reports = run_virtually(main())
    assert right
    assert (lists, watches) == (2, 3)
    assert not any("forbidden" in line for line in reports)


NO_PROGRESS = "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
#: What a kube-apiserver over etcd before 3.5.11 says, and what others say whose streams fail: in the stream, or before it.
NO_STREAM = {
    "in the stream": {"kind": "Status", "message": NO_PROGRESS, "reason": "InternalError", "code": 500},
    "in the stream, and no status": {"kind": "Status", "message": "something"},
    "an internal error": ClusterError("it is broken", 500, "InternalError"),
    "watching is not allowed, listing is": ClusterError("nodes is forbidden", 403, "Forbidden"),
}


@pytest.mark.parametrize("says", NO_STREAM.values(), ids=NO_STREAM)
def test_a_server_whose_watch_lists_fail_gets_a_plain_list_at_once(says):
    async def main():
        server = Refusing(says)
        server.put("a")
        began = asyncio.get_running_loop().time()
        async with following(server, streams=True) as follower, asyncio.timeout(60):
            await follower.synced.wait()
            took_s = asyncio.get_running_loop().time() - began
            server.put("b")
            await asyncio.sleep(1)
            server.send(b'{"type":"ERROR","object":{"code":410}}')
            await asyncio.sleep(10)
            return agrees(server, follower), took_s < 0.5, server.refused, server.lists

    # A stream may have failed by chance, so that the next list is asked for as one again.
    assert run_virtually(main()) == (True, True, 2, 2)


class Refusing(Server):
    """Fails each watch-list, before or within the stream."""

    def __init__(self, says):
        super().__init__()
        self.says, self.refused = says, 0

    @asynccontextmanager
    async def watch(self, path, params, idle_s):
        if not params.get("sendInitialEvents"):
            async with super().watch(path, params, idle_s) as lines:
                yield lines
            return
        self.refused += 1
        if isinstance(self.says, Exception):
            raise self.says

        async def lines():
            yield [json.dumps({"type": "ERROR", "object": self.says}).encode()]

        yield lines()


def test_events_before_an_error_in_the_same_piece_are_delivered():
    async def main():
        server = Server()
        server.put("a")
        async with following(server) as follower:
            await asyncio.sleep(1)
            server.put("b")
            server.send(b'{"type":"ERROR","object":{"code":500}}')
            await asyncio.sleep(0.005)
            return [fact[:2] for fact in follower.facts]

    assert run_virtually(main()) == [("Seen", "a"), ("Seen", "b")]


def test_a_server_that_returns_is_followed_within_seconds():
    """It was unreachable for minutes, and then, like a starting kube-apiserver, rejects users and knows no older version."""

    async def main():
        server = Server()
        server.put("a")
        async with following(server, streams=True) as follower:
            await follower.synced.wait()
            server.put("b")
            await asyncio.sleep(1)
            server.watch_faults = [ClusterError("connection refused", reason=UNREACHABLE)] * 1000
            server.cut()
            await asyncio.sleep(300)
            refused = 1000 - len(server.watch_faults)
            server.watch_faults = [ClusterError("nodes is forbidden", 403, "Forbidden")]
            server.put("c")
            server.window = 0
            begun = asyncio.get_running_loop().time()
            async with asyncio.timeout(100):
                while "c" not in follower.view:
                    await asyncio.sleep(0.1)
            return refused, asyncio.get_running_loop().time() - begun, follower.reports[-1]

    refused, took_s, said = run_virtually(main())
    assert 30 < refused < 70  # every five to ten seconds
    assert took_s < 15
    assert "too old resource version" in said


def test_repeatedly_expired_versions_are_requested_with_growing_pauses():
    async def main():
        server = Server()
        server.put("a")
        server.watch_faults = [ClusterError("too old resource version", 410, "Expired")] * 1000
        async with following(server):
            await asyncio.sleep(600)
            return server.lists

    assert 10 < run_virtually(main()) < 30


#: What is no answer to the question whether streams are offered: the same is asked again.
NOT_NOW = {
    "refused to connect": ClusterError("connection refused"),
    "too many requests": ClusterError("try later", 429, "TooManyRequests", 1.0),
    "starting": ClusterError("the server is starting", 503, "ServiceUnavailable", 1.0),
    "who are you": ClusterError("Unauthorized", 401, "Unauthorized"),
}


@pytest.mark.parametrize("error", NOT_NOW.values(), ids=NOT_NOW)
def test_a_watch_list_that_fails_temporarily_is_retried(error):
    async def main():
        server = Server()
        server.put("a")
        server.watch_faults = [error]
        async with following(server, streams=True) as follower:
            await asyncio.sleep(5)
            return agrees(server, follower), server.lists, server.streams_opened

    assert run_virtually(main()) == (True, 0, 1)


def test_lists_are_paged_and_restart_when_pages_expire():
    async def main():
        server = Server()
        for number in range(1200):
            server.put(f"n{number}")
        async with following(server) as follower:
            await follower.synced.wait()
            first = (server.lists, len(follower.view))
        server.lists = 0
        server.list_faults = []
        original, calls = server.get, 0

        async def get(path, params):
            nonlocal calls
            calls += 1
            if calls == 2:
                raise ClusterError("the continue token has expired", 410, "Expired")
            return await original(path, params)

        server.get = get
        async with following(server) as follower:
            await follower.synced.wait()
            return first, (calls, len(follower.view)), server.params[-2:]

    first, second, params = run_virtually(main())
    assert first == (3, 1200)
    assert second == (3, 1200)
    assert "limit" not in params[0]
    assert "continue" not in params[0]


def test_a_watch_resumes_after_its_stream_ends():
    async def main():
        server = Server()
        async with following(server) as follower:
            for number in range(5):
                await asyncio.sleep(3)
                server.put(f"n{number}")
                await asyncio.sleep(0.001)
                server.cut()
                server.put(f"m{number}")
            await asyncio.sleep(60)
            return server, follower

    server, follower = run_virtually(main())
    assert agrees(server, follower)
    assert server.lists == 1
    assert len(follower.facts) == 10


def test_bookmarks_advance_the_resume_version():
    async def main():
        server = Server(window=5)
        server.put("a")
        async with following(server) as follower:
            await asyncio.sleep(1)
            server.rev += 50
            server.send(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"151"}}}')
            await asyncio.sleep(1)
            server.cut()
            await asyncio.sleep(30)
            return server, follower

    server, _ = run_virtually(main())
    assert server.lists == 1
    assert server.params[-1]["resourceVersion"] == "151"


EXPIRED = {"as a status": None, "as an event": b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}'}


@pytest.mark.parametrize("line", EXPIRED.values(), ids=EXPIRED)
def test_an_expired_version_causes_a_new_list_that_finds_missed_deletions(line):
    async def main():
        server = Server(window=1)
        for name in "abc":
            server.put(name)
        async with following(server) as follower:
            await asyncio.sleep(5)
            streams, server.streams = server.streams, []
            server.remove("a")
            server.put("b", x="1")
            server.remove("c")
            server.put("c", uid="another")
            for stream in streams:
                stream.put_nowait(line)
            server.streams = streams
            await asyncio.sleep(60)
            return server, follower

    server, follower = run_virtually(main())
    assert agrees(server, follower)
    assert server.lists == 2
    assert follower.facts[3:] == [
        ("Gone", "a", "a-uid"), ("Gone", "c", "c-uid"), ("Seen", "b", "b-uid"), ("Seen", "c", "another"),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["cut", "silent"])
def test_a_server_reset_to_an_older_state_is_noticed(how):
    """A kube-apiserver accepts a watch from a future version, and stays silent until it is reached."""

    async def main():
        server = Server()
        server.put("a")
        server.put("lost")
        async with following(server) as follower:
            await asyncio.sleep(5)
            server.rev = 101
            del server.objects["lost"], server.events[1:]
            if how == "cut":
                server.watch_faults.append(ClusterError("connection reset"))
                server.cut()
            await asyncio.sleep(700)
            return server, follower

    server, follower = run_virtually(main())
    assert agrees(server, follower)
    assert any("the server is at 101, 102 was seen before" in line for line in follower.reports)


def test_an_object_recreated_under_its_name_is_delivered_as_deleted_and_new():
    async def main():
        server = Server()
        server.put("a")
        async with following(server) as follower:
            await asyncio.sleep(1)
            server.put("a", uid="second")
            await asyncio.sleep(1)
            return follower.facts

    assert run_virtually(main()) == [("Seen", "a", "a-uid"), ("Gone", "a", "a-uid"), ("Seen", "a", "second")]


def test_changes_since_the_last_call_come_with_new_objects_in_their_order():
    async def main():
        server = Server()
        for name in "abc":
            server.put(name)
        async with following(server) as follower:
            await asyncio.sleep(1)
            taken = []

            async def take():
                await asyncio.sleep(1)
                changed = follower.reflector.changes()
                taken.append([(name, obj and obj.metadata.uid) for name, obj in changed.items()])

            await take()
            await take()
            server.put("d")
            server.put("e")
            server.put("d", x="1")
            server.remove("a")
            server.put("b", uid="second")
            server.remove("c")
            server.put("c", uid="last")
            await take()
            server.put("f")
            server.remove("f")
            await take()
            follower.reflector.forget_changes()
            await take()
            return taken

    first, nothing, changed, gone, everything = run_virtually(main())
    assert first == [("a", "a-uid"), ("b", "b-uid"), ("c", "c-uid")]
    assert nothing == []
    assert changed == [("d", "d-uid"), ("e", "e-uid"), ("a", None), ("b", "second"), ("c", "last")]
    assert gone == [("f", None)]
    assert everything == [("d", "d-uid"), ("e", "e-uid"), ("b", "second"), ("c", "last")]


def test_a_list_from_a_lagging_server_is_rejected():
    async def main():
        server = Server(window=0)
        server.put("a")
        old = (server.rev, list(server.objects.values()))
        async with following(server) as follower:
            await asyncio.sleep(1)
            server.put("b")
            await asyncio.sleep(1)
            server.frozen = old
            server.send(b'{"type":"ERROR","object":{"code":410}}')
            await asyncio.sleep(20)
            during = set(follower.view)
            server.frozen = None
            await asyncio.sleep(60)
            return during, server, follower

    during, server, follower = run_virtually(main())
    assert during == {"a", "b"}
    assert agrees(server, follower)
    assert any("older than" in line for line in follower.reports)


def test_a_restored_cluster_is_accepted_after_a_while():
    async def main():
        server = Server(window=0)
        server.put("a", x="1")
        server.put("b")
        async with following(server) as follower:
            await asyncio.sleep(1)
            for _ in range(50):
                server.put("a", x="2")
            await asyncio.sleep(1)
            server.send(b'{"type":"ERROR","object":{"code":504,"message":"Too large resource version: 152, current: 92"}}')
            server.rev = 90
            server.objects = {}
            server.events.clear()
            server.put("a", x="1")
            server.put("c")
            follower.restored = True
            await asyncio.sleep(60)
            before = set(follower.view)
            await asyncio.sleep(240)
            return before, set(follower.view), agrees(server, follower), follower.reports

    before, after, right, reports = run_virtually(main())
    assert before == {"a", "b"}
    assert after == {"a", "c"}
    assert right
    assert any("the cluster was restored" in line for line in reports)


def test_a_reported_change_that_the_server_lost_is_reverted():
    async def main():
        server = Server(window=0)
        server.put("a", x="1")
        before = server.objects["a"]
        async with following(server) as follower:
            await asyncio.sleep(1)
            server.put("a", x="2")
            await asyncio.sleep(1)
            server.objects["a"] = before
            server.put("b")
            server.rev += 1000
            server.send(b'{"type":"ERROR","object":{"code":410}}')
            await asyncio.sleep(20)
            return follower.facts, agrees(server, follower)

    facts, right = run_virtually(main())
    assert right
    assert facts[-2:] == [("Gone", "a", "a-uid"), ("Seen", "a", "a-uid")]


def test_reused_versions_are_distinguished_after_the_server_catches_up():
    async def main():
        server = Server(window=0)
        server.put("a", x="1")
        server.put("b", x="1")
        async with following(server) as follower:
            for _ in range(3):
                await asyncio.sleep(1)
                server.put("a", x="told and lost")
            await asyncio.sleep(1)
            server.rev -= 1
            server.objects["a"]["metadata"]["labels"] = {"x": "another under the same version"}
            server.send(b'{"type":"ERROR","object":{"code":410}}')
            await asyncio.sleep(20)
            told = len(follower.facts)
            server.rev += 100
            await asyncio.sleep(40)
            return follower.facts[told:], agrees(server, follower)

    facts, right = run_virtually(main())
    assert right
    assert facts == [("Gone", "a", "a-uid"), ("Seen", "a", "a-uid")]


def test_an_undecodable_object_stays_until_it_is_deleted():
    async def main():
        server = Server(window=0)
        server.put("a")
        server.put("b")
        async with following(server) as follower:
            await asyncio.sleep(1)
            for name in "ab":
                server.objects[name]["spec"] = {"taints": 7}
            server.send(b'{"type":"ERROR","object":{"code":410}}')
            await asyncio.sleep(10)
            listed = set(follower.view)
            gone = server.objects.pop("a")
            server.rev += 1
            server._emit("DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(server.rev)}})
            await asyncio.sleep(10)
            watched = set(follower.view)
            server.objects["b"]["metadata"]["uid"] = "another"
            server.rev += 1
            server.send(b'{"type":"ERROR","object":{"code":410}}')
            await asyncio.sleep(10)
            return listed, watched, set(follower.view)

    assert run_virtually(main()) == ({"a", "b"}, {"b"}, set())


def test_repeated_and_late_events_change_nothing():
    async def main():
        server = Server()
        async with following(server) as follower:
            await asyncio.sleep(1)
            server.put("a")
            first = json.dumps(server.events[-1][1]).encode()
            server.put("a", x="1")
            server.send(first)
            server.send(json.dumps(server.events[-1][1]).encode())
            server.send(json.dumps({"type": "DELETED", "object": server.events[0][1]["object"]}).encode())
            await asyncio.sleep(1)
            return server, follower

    server, follower = run_virtually(main())
    assert len(follower.facts) == 2
    assert agrees(server, follower)


LINES = {
    "cut in the middle": b'{"type":"ADDED","object":{"metad',
    "not JSON": b"<html>",
    "no event": b"[]",
    "not UTF-8": b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}',
    "an object that makes no sense": b'{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"500"},"spec":7}}',
    "nulls": b'{"type":"MODIFIED","object":{"metadata":{"name":null,"resourceVersion":"101"},"spec":null}}',
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_an_invalid_line_does_not_end_the_reflector(line):
    async def main():
        server = Server()
        server.put("a")
        async with following(server) as follower:
            await asyncio.sleep(1)
            server.send(line)
            await asyncio.sleep(60)
            server.rev = 600
            server.put("b")
            await asyncio.sleep(60)
            follower.view.pop("", None)
            return agrees(server, follower)

    assert run_virtually(main())


def test_an_invalid_object_is_left_out_of_a_list():
    async def main():
        server = Server()
        server.put("a")
        server.objects["bad"] = {"metadata": {"name": "bad"}, "spec": {"taints": 7}}
        async with following(server) as follower:
            await follower.synced.wait()
            return set(follower.view), follower.reports

    view, reports = run_virtually(main())
    assert view == {"a"}
    assert "Node bad: spec.taints" in reports[0]


def test_a_quiet_watch_lasts_minutes_and_is_continued_without_a_list():
    """As in client-go: the client asks for 5 to 10 minutes, and bookmarks say from where to go on."""

    async def main():
        server, asked = Server(), []
        async with following(server) as follower:
            await follower.synced.wait()
            for version in range(4000, 4010):
                await asyncio.sleep(60)
                asked.append(server.params[-1])
                server.send(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}' % version)
                await asyncio.sleep(float(asked[-1]["timeoutSeconds"]) - 60)
                server.cut()
                await asyncio.sleep(1)
            return asked, server.lists + server.looks

    asked, lists = run_virtually(main())
    assert all(300 <= int(one["timeoutSeconds"]) < 600 for one in asked)
    assert len({one["timeoutSeconds"] for one in asked}) > 5
    assert [one["resourceVersion"] for one in asked[1:]] == [str(version) for version in range(4000, 4009)]
    assert lists == 1


def test_a_watch_that_its_server_does_not_end_is_opened_anew():
    async def main():
        server = Server()
        async with following(server) as follower:
            await follower.synced.wait()
            await asyncio.sleep(3600)
            return server

    server = run_virtually(main())
    assert 6 <= server.watches <= 12
    assert server.lists == 1
    assert server.looks == server.watches - 1, "not even a bookmark: it may be behind what was seen"


def test_a_failing_server_is_retried_with_growing_pauses_and_its_retry_after():
    async def main():
        server = Server()
        server.list_faults = [ClusterError("refused") for _ in range(20)]
        async with following(server):
            await asyncio.sleep(120)
            asked = server.lists
        server = Server()
        server.list_faults = [ClusterError("busy", 429, retry_after_s=50.0) for _ in range(20)]
        async with following(server):
            await asyncio.sleep(120)
            return asked, server.lists

    refused, busy = run_virtually(main())
    assert 5 <= refused <= 10
    assert busy == 3


def test_a_kind_that_is_not_served_delays_nothing():
    async def main():
        server = Server()
        server.list_faults = [ClusterError("not found", 404, "NotFound")]
        async with following(server) as follower:
            await asyncio.sleep(1)
            synced = follower.synced.is_set()
            server.put("a")
            await asyncio.sleep(120)
            return synced, agrees(server, follower)

    assert run_virtually(main()) == (True, True)


@pytest.mark.parametrize(("resource", "pause_s"), [(NODES, 60), (custom_resource(CustomKind("nodes", "v1", "")), 10)])
def test_a_kind_that_is_not_served_is_retried(resource, pause_s):
    """A kind that a plugin names is retried more often, as it may be defined at any time."""

    async def main():
        server = Server()
        server.list_faults = [ClusterError("not found", 404, "NotFound") for _ in range(100)]
        async with following(server, resource=resource) as follower:
            await asyncio.sleep(600)
            return server.lists, follower.reports

    lists, reports = run_virtually(main())
    assert lists == pytest.approx(600 / pause_s, abs=2)
    text = f"nodes: not served (not found), so there are none; asking again every {pause_s}s until the kind is served"
    assert reports == [text], "once"


@pytest.mark.parametrize("streams", [True, False])
def test_a_list_is_delivered_between_begin_and_end(streams):
    """Facts of the watch come outside of them; the reflector is synced only after the end."""

    async def main():
        server = Server(window=2)
        for name in "abc":
            server.put(name)
        async with following(server, streams=streams) as follower:
            await follower.synced.wait()
            assert (follower.lists, follower.listing) == ([["a", "b", "c"]], False)
            server.put("d")
            await asyncio.sleep(1)
            server.streams.clear()  # the watch is cut off, and history goes on
            server.remove("a")
            for name in "efg":
                server.put(name)
            await asyncio.sleep(700)
            return follower.lists, follower.listing, agrees(server, follower)

    assert run_virtually(main()) == ([["a", "b", "c"], ["a", "e", "f", "g"]], False, True)


def test_a_kind_that_is_not_served_is_an_empty_list():
    async def main():
        server = Server()
        server.list_faults = [ClusterError("not found", 404, "NotFound") for _ in range(3)]
        async with following(server) as follower:
            await asyncio.sleep(100)
            empty = list(follower.lists)
            server.put("a")
            await asyncio.sleep(120)
            return empty, follower.lists

    assert run_virtually(main()) == ([[]], [[], ["a"]])


class Versions(Server):
    """Serves nodes at the paths of some API versions only."""

    def __init__(self, *served):
        super().__init__()
        self.served, self.asked = set(served), []

    def _find(self, path):
        self.asked.append(path)
        if path not in self.served:
            raise ClusterError("the server could not find the requested resource", 404, "NotFound")

    async def get(self, path, params):
        self._find(path)
        return await super().get("/api/v1/nodes", params)

    @asynccontextmanager
    async def watch(self, path, params, idle_s):
        self._find(path)
        async with super().watch(path, params, idle_s) as lines:
            yield lines


AGED = WatchedResource(
    Node, "g/v3", "nodes", older=(WatchedResource(Node, "g/v2", "nodes"), WatchedResource(Node, "g/v1", "nodes"))
)


@pytest.mark.parametrize("streams", [True, False])
def test_a_kind_is_read_in_the_served_version_and_in_a_newer_one_after_an_upgrade(streams):
    async def main():
        server = Versions("/apis/g/v1/nodes")
        server.put("a")
        async with following(server, AGED, streams=streams) as follower:
            await asyncio.sleep(10)
            first = agrees(server, follower), list(server.asked[:3])
            server.served = {"/apis/g/v3/nodes"}
            server.put("b")
            server.send(b'{"type":"ERROR","object":{"code":410,"reason":"Gone"}}')
            server.asked.clear()
            await asyncio.sleep(30)
            again = agrees(server, follower), list(server.asked[:2])
            server.served = set()
            server.send(b'{"type":"ERROR","object":{"code":410,"reason":"Gone"}}')
            await asyncio.sleep(90)
            return first, again, follower.reports

    first, again, reports = run_virtually(main())
    assert first == (True, [f"/apis/g/v{number}/nodes" for number in (3, 2, 1)])
    assert again[0]
    assert "/apis/g/v3/nodes" in again[1]
    told = [line for line in reports if "served" in line]
    assert told[0] == "nodes: g/v3 is not served; reading g/v1"
    assert len(told) == 2, told
    assert told[1].startswith("nodes: not served (the server could not find")


def test_a_v1beta1_budget_with_an_empty_selector_selects_nothing():
    (old,) = next(one for one in WATCHED if one.plural == "poddisruptionbudgets").older
    assert old.path == "/apis/policy/v1beta1/poddisruptionbudgets"
    assert old.read(b'{"spec": {"selector": {}, "minAvailable": 1}}').spec.selector is None
    assert old.read(b'{"spec": {"selector": {"matchLabels": {"a": "b"}}}}').spec.selector.match_labels == {"a": "b"}
    assert old.read(b"{}").spec.selector is None
    with pytest.raises(InputError):
        old.read(b"[]")


OLD = {  # gates of 1.21 → what is watched beside what always is
    "": {"csidrivers", "csistoragecapacities"},
    "CSIStorageCapacity=false": set(),
    "CSIStorageCapacity=false,PodAffinityNamespaceSelector=true": {"namespaces"},
}


@pytest.mark.parametrize(("gates", "more"), OLD.items(), ids=[*OLD])
def test_earlier_releases_watch_what_their_role_permits(gates, more):
    always = {
        "nodes", "pods", "services", "replicationcontrollers", "replicasets", "statefulsets", "poddisruptionbudgets",
        "persistentvolumes", "persistentvolumeclaims", "storageclasses", "csinodes",
    }  # fmt: skip
    assert {one.plural for one in watched(FeatureGates.parse(gates, "1.21"))} == always | more
    assert len(watched(FeatureGates())) == len(WATCHED) - 2, "all but pod groups and their trees"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcd")),
        st.tuples(st.just("remove"), st.sampled_from("abcd")),
        st.tuples(st.just("replace"), st.sampled_from("abcd")),
        st.tuples(st.sampled_from(["cut", "expire", "garbage", "deaf", "wait", "refuse"]), st.just("")),
    ),
    max_size=25,
)


@settings(max_examples=30, deadline=None)
@given(STEPS, st.sampled_from([1, 3, 1000]))
def test_the_view_converges_after_any_faults(steps, window):
    async def main():
        server = Server(window=window)
        async with following(server) as follower:
            for step, name in steps:
                play(server, step, name)
                await asyncio.sleep(2 if step == "wait" else 0.02)
            server.cut()
            await asyncio.sleep(700)
            assert agrees(server, follower)

    run_virtually(main())


def play(server, step, name):
    if step == "put":
        server.put(name, x=str(server.rev))
    elif step == "remove" and name in server.objects:
        server.remove(name)
    elif step == "replace" and name in server.objects:
        server.put(name, uid=f"{name}-{server.rev}")
    elif step == "cut":
        server.cut()
    elif step == "expire":
        server.send(b'{"type":"ERROR","object":{"code":410,"reason":"Gone"}}')
    elif step == "garbage":
        server.send(b'{"ty')
    elif step == "deaf":
        server.streams.clear()
    elif step == "refuse":
        server.watch_faults.append(ClusterError("refused"))
        server.list_faults.append(ClusterError("refused"))


def test_every_watched_kind_has_a_path():
    paths = [resource.path for resource in WATCHED]
    assert len(set(paths)) == len(paths)
    assert resource_of(Node).path == "/api/v1/nodes"
    by_plural = {resource.plural: resource for resource in WATCHED}
    assert (
        by_plural["resourceclaims"].path_of("ns", "x", "status")
        == "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/x/status"
    )
    assert by_plural["nodes"].path_of("", "n1") == "/api/v1/nodes/n1"
