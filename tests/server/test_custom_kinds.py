"""Plugins that name kinds of their own, live: ``examples/release-gate`` on a small server, and on a real one."""

import asyncio
import json
import os
import random
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

import moorage
from moorage.cli.building import build_scheduler
from moorage.client.endpoint import Endpoint
from moorage.client.rest import Rest
from moorage.framework.events import Action, ClusterEvent, Wake
from moorage.framework.registry import load
from moorage.server.live import Live
from moorage.simulator.simulate import load_options
from tests.server.whole_cluster import MERGE, NAMED, RBAC, a_cluster

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "examples.release-gate.release_gate:ReleaseGate"
RELEASES = "/apis/example.com/v1/releases"
WALL = "2026-01-01T00:00:00.000000Z"


@pytest.fixture
def gate(monkeypatch):
    """The example's class, found as ``--plugins`` finds it."""
    monkeypatch.syspath_prepend(str(ROOT))
    return load(REFERENCE)


class Careless:
    """Names no kind at all, and says no to nobody."""

    name = "Careless"

    def pre_filter(self, pod, snapshot):
        return None

    def wakes_on(self):
        yield Wake(ClusterEvent("foos.v1", Action.ALL))
        yield Wake(ClusterEvent("Foos.v1.example.com", Action.ALL))


# -- on a server that this test keeps ------------------------------------------------------------------------------------


class Api:
    """One node, the pods ``free`` and ``gated``, and Releases as far as ``refusal`` allows. Binds are written down."""

    def __init__(self, refusal=None):
        self.version, self.refusal, self.bound, self.asked, self.watchers = 10, refusal, [], [], []
        node = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}
        self.objects = {
            "/api/v1/nodes": [self._made("n1", node)],
            "/api/v1/pods": [self._pod("free", {}), self._pod("gated", {"release": "spring"})],
            RELEASES: [],
        }

    def _made(self, name, obj, **metadata):
        self.version += 1
        return {"metadata": {"name": name, "uid": name, "resourceVersion": str(self.version), **metadata}, **obj}

    def _pod(self, name, labels):
        spec = {"schedulerName": "default-scheduler", "containers": [{"name": "c"}]}
        return self._made(name, {"spec": spec, "status": {"phase": "Pending"}}, namespace="default", labels=labels)

    def release(self, kind, name="spring", *, is_open):
        obj = self._made(name, {"spec": {"open": is_open}}, namespace="default", managedFields=[{"manager": "m"}])
        for queue in self.watchers:
            queue.put_nowait({"type": kind, "object": obj})

    async def handle(self, request):
        self.asked.append(request.path)
        if request.path.endswith("/binding"):
            self.bound.append(request.path.split("/")[-2])
        if request.method != "GET":
            return web.json_response({}, status=201)
        if request.path == RELEASES and self.refusal is not None:
            return web.json_response({"code": self.refusal, "reason": "x", "message": "refused"}, status=self.refusal)
        if request.query.get("watch") != "true":
            items = self.objects.get(request.path, [])
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        if request.query.get("sendInitialEvents"):
            return web.json_response({"code": 422, "reason": "Invalid", "message": "no streams"}, status=422)
        response, queue = web.StreamResponse(), asyncio.Queue()
        await response.prepare(request)
        if request.path == RELEASES:
            self.watchers.append(queue)
        while True:
            await response.write(json.dumps(await queue.get()).encode() + b"\n")


class Log:
    def __init__(self):
        self.lines = []

    def shows(self, level):
        return False

    def info(self, level, message, **facts):
        pass

    def warning(self, message, **facts):
        self.lines.append((message, facts))

    def error(self, error, message, **facts):
        self.lines.append((message, facts))


@asynccontextmanager
async def scheduling(api, *plugins):
    """A live scheduler with these plugins enabled."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    names = ", ".join(f"{{name: {plugin.name}}}" for plugin in plugins)
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    config = f"{head}profiles: [{{plugins: {{multiPoint: {{enabled: [{names}]}}}}}}]\n".encode()
    scheduler = build_scheduler(load_options(moorage.Options(config=config, plugins=plugins)), 0, 300.0)
    log = Log()
    async with Rest(Endpoint(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"), qps=0) as rest:
        live = Live(
            scheduler, rest, identity="me", wall=lambda: WALL, leader=None, chance=random.Random(1),
            report=lambda line: log.lines.append((line, {})), log=log,
        )  # fmt: skip
        live.said = log.lines
        running = asyncio.create_task(live.run())
        try:
            yield live
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await runner.cleanup()


async def until(condition):
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_pod_is_tried_again_when_an_object_of_the_plugins_kind_comes_or_changes(gate):
    async def main():
        api = Api()
        async with scheduling(api, gate) as live:
            await until(lambda: api.bound == ["free"] and api.watchers)
            api.release("ADDED", "autumn", is_open=True)
            api.release("ADDED", is_open=False)
            held = live.loop.scheduler.snapshot.custom("releases.v1.example.com")
            await until(lambda: len(held) == 2)
            queued = live.loop.scheduler.queue.get("gated")
            assert (queued.attempts, queued.parked) == (1, True), "neither of them opens its release"
            assert "managedFields" not in held["default/spring"].document["metadata"]
            api.release("MODIFIED", is_open=True)
            await until(lambda: api.bound == ["free", "gated"])
            api.release("DELETED", is_open=True)
            await until(lambda: list(held) == ["default/autumn"])

    asyncio.run(main())


def test_a_kind_that_is_not_served_holds_nobody_up(gate):
    async def main():
        api = Api(refusal=404)
        async with scheduling(api, gate) as live:
            await until(lambda: api.bound == ["free"])
            assert not live.not_synced
            assert live.loop.scheduler.queue.get("gated").parked
            assert any(line.startswith("releases: ") and "again in " in line for line, _ in live.said)

    asyncio.run(main())


def test_a_kind_that_may_not_be_read_is_waited_for(gate):
    async def main():
        api = Api(refusal=403)
        async with scheduling(api, gate) as live:
            await until(lambda: live.not_synced == ["releases"] and RELEASES in api.asked)
            assert not api.bound
            api.refusal = None
            await until(lambda: api.bound == ["free"])

    asyncio.run(main())


def test_a_name_that_is_no_kind_is_told_and_ignored():
    async def main():
        api = Api()
        async with scheduling(api, Careless) as live:
            await until(lambda: sorted(api.bound) == ["free", "gated"])
            told = [facts["gvk"] for message, facts in live.said if message == "Incorrect event registration"]
            assert told == ["Foos.v1.example.com", "foos.v1"]
        assert not [path for path in api.asked if "oos" in path]

    asyncio.run(main())


# -- on whole clusters ---------------------------------------------------------------------------------------------------

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(params=["real"])
def place(request, tmp_path):
    is_real = request.param == "real"
    if is_real and NAMED not in os.environ:
        pytest.skip(f"{NAMED} names no cluster")
    with a_cluster(tmp_path, is_real=is_real) as cluster, cluster.place() as made:
        yield made


def define_releases(place):
    """Define the kind under a group of the place's own, and let schedulers read it; return the group."""
    group = f"{place.name}.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": group, "scope": "Namespaced", "names": {"plural": "releases", "kind": "Release"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }  # fmt: skip
    made = {"namespaced": False, "metadata": {"name": f"releases.{group}"}, "spec": spec}
    place.make(DEFINITIONS, "CustomResourceDefinition", f"releases.{group}", "apiextensions.k8s.io/v1", **made)
    rules = [{"apiGroups": [group], "resources": ["releases"], "verbs": ["list", "watch"]}]
    name, at = place.named("reads-releases"), "rbac.authorization.k8s.io"
    place.make(f"{RBAC}/clusterroles", "ClusterRole", name, f"{at}/v1", namespaced=False, rules=rules)
    role = {"apiGroup": at, "kind": "ClusterRole", "name": name}
    users = [{"apiGroup": at, "kind": "User", "name": "system:kube-scheduler"}]
    place.make(
        f"{RBAC}/clusterrolebindings", "ClusterRoleBinding", name, f"{at}/v1", namespaced=False, roleRef=role, subjects=users
    )
    return group


@pytest.mark.slow
def test_an_object_of_a_defined_kind_lets_a_pod_in(place, tmp_path):
    group = define_releases(place)
    text = (ROOT / "examples/release-gate/release_gate.py").read_text()
    (tmp_path / "their_gate.py").write_text(text.replace("releases.v1.example.com", f"releases.v1.{group}"))
    place.node("n1")
    place.environment["PYTHONPATH"] = f"{place.environment['PYTHONPATH']}{os.pathsep}{tmp_path}"
    place.scheduler("--plugins=their_gate:ReleaseGate", plugins={"multiPoint": {"enabled": [{"name": "ReleaseGate"}]}})
    place.pod("cart", labels={"release": "spring"})
    place.pod("till")
    assert place.bound("till") == ["n1"]
    told = place.until(lambda: place.condition("cart").get("message"))
    assert told.startswith("0/")
    assert "spring is not open" in told
    releases = f"/apis/{group}/v1/namespaces/{place.name}/releases"
    place.until(lambda: place.make(releases, "Release", "spring", f"{group}/v1", spec={"open": False}))
    place.ask("PATCH", f"{releases}/spring", {"spec": {"open": True}}, MERGE)
    assert place.bound("cart") == ["n1"]
    assert [line for line in place.complaints() if "] releases: " not in line] == [], "the kind may be served a moment later"
