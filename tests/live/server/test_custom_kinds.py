"""Plugins that name kinds of their own, live: ``examples/release-gate`` on a small server, on ``up``, and on a real one."""

import asyncio
import json
import os
import random
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web

import moorage
from moorage.basis.client.credentials import Endpoint
from moorage.basis.client.rest import Rest
from moorage.core.building.builder import complete_scheduler
from moorage.framework.events import Action, ClusterEvent, Wake
from moorage.framework.registry import load
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.server.live_scheduler import Live, LiveSettings
from moorage.simulator.simulate import load_options
from tests.live.server.whole_cluster import MERGE, NAMED, RBAC, Refused, a_cluster

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = "examples.release-gate.release_gate:ReleaseGate"
RELEASES = "/apis/example.com/v1/releases"
WALL = "2026-01-01T00:00:00.000000Z"


@pytest.fixture
def gate(monkeypatch):
    """The example's class, found as ``--plugins`` finds it."""
    monkeypatch.syspath_prepend(str(ROOT))
    return load(REFERENCE)


class Careless:
    """Names no kind, and rejects no pod."""

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
    scheduler = complete_scheduler(load_options(moorage.Options(config=config, plugins=plugins)), 0)
    log = Log()
    async with Rest(Endpoint(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"), qps=0) as rest:
        live = Live(
            scheduler, rest, LiveSettings(), identity="me", wall=lambda: WALL, chance=random.Random(1),
            observers=Observers(lambda line: log.lines.append((line, {})), log),
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


def test_an_event_of_a_custom_kind_retries_the_pod(gate):
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


def test_a_kind_that_is_not_served_does_not_block_the_start(gate):
    async def main():
        api = Api(refusal=404)
        async with scheduling(api, gate) as live:
            await until(lambda: api.bound == ["free"])
            assert not live.not_synced
            assert live.loop.scheduler.queue.get("gated").parked
            assert any(line.startswith("releases: ") and "until the kind is served" in line for line, _ in live.said)

    asyncio.run(main())


def test_a_forbidden_kind_is_retried(gate):
    async def main():
        api = Api(refusal=403)
        async with scheduling(api, gate) as live:
            await until(lambda: live.not_synced == ["releases"] and RELEASES in api.asked)
            assert not api.bound
            api.refusal = None
            await until(lambda: api.bound == ["free"])

    asyncio.run(main())


def test_an_invalid_kind_name_is_logged_and_ignored():
    async def main():
        api = Api()
        async with scheduling(api, Careless) as live:
            await until(lambda: sorted(api.bound) == ["free", "gated"])
            told = [facts["gvk"] for message, facts in live.said if message == "Incorrect event registration"]
            assert told == ["Foos.v1.example.com", "foos.v1"]
        assert not [path for path in api.asked if "oos" in path]

    asyncio.run(main())


# -- on the embedded server, and on a real cluster ------------------------------------------------------------------------

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module", params=["embedded", "real"])
def cluster(request, tmp_path_factory):
    is_real = request.param == "real"
    if is_real and NAMED not in os.environ:
        pytest.skip(f"{NAMED} names no cluster")
    with a_cluster(tmp_path_factory.mktemp("cluster"), is_real=is_real) as made:
        yield made


@pytest.fixture
def place(cluster):
    with cluster.place() as made:
        yield made


def group_of(place):
    """Let schedulers read and change Releases of a group of the place's own; return the group."""
    group = f"{place.name}.example.com"
    rules = [{"apiGroups": [group], "resources": ["releases"], "verbs": ["get", "list", "update", "watch"]}]
    name, at = place.named("reads-releases"), "rbac.authorization.k8s.io"
    place.make(f"{RBAC}/clusterroles", "ClusterRole", name, f"{at}/v1", namespaced=False, rules=rules)
    role = {"apiGroup": at, "kind": "ClusterRole", "name": name}
    users = [{"apiGroup": at, "kind": "User", "name": "system:kube-scheduler"}]
    place.make(
        f"{RBAC}/clusterrolebindings", "ClusterRoleBinding", name, f"{at}/v1", namespaced=False, roleRef=role, subjects=users
    )
    return group


def define_releases(place, group):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": group, "scope": "Namespaced", "names": {"plural": "releases", "kind": "Release"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }  # fmt: skip
    made = {"namespaced": False, "metadata": {"name": f"releases.{group}"}, "spec": spec}
    place.make(DEFINITIONS, "CustomResourceDefinition", f"releases.{group}", "apiextensions.k8s.io/v1", **made)


#: The example, for a kind of another group; it also writes down on a Release which pods were let in.
THEIRS = """
import release_gate
from moorage.framework.effects import Amend

release_gate.RELEASES = "releases.v1.GROUP"


class Counting(release_gate.ReleaseGate):
    name = "Counting"

    def attach(self, handle):
        self._handle = handle

    def pre_bind(self, state, pod, node):
        release = self._handle.snapshot.custom(release_gate.RELEASES).get(f"{pod.namespace}/{pod.labels.get('release')}")
        if release is not None:
            yield Amend(release, lambda now: now.having(status={"pods": [*now.get("status", "pods", default=[]), pod.name]}))
"""


def schedule(place, group, folder):
    """Start a scheduler with that plugin."""
    (folder / "their_gate.py").write_text(THEIRS.replace("GROUP", group))
    folders = place.environment["PYTHONPATH"], str(ROOT / "examples/release-gate"), str(folder)
    place.environment["PYTHONPATH"] = os.pathsep.join(folders)
    place.scheduler("--plugins=their_gate:Counting", plugins={"multiPoint": {"enabled": [{"name": "Counting"}]}})


def release(place, group, name, **spec):
    """Make a Release, as soon as they are served."""

    def made():
        with suppress(Refused):
            return place.make(f"/apis/{group}/v1/namespaces/{place.name}/releases", "Release", name, f"{group}/v1", spec=spec)

    return place.until(made)


def complaints(place):
    return [line for line in place.complaints() if "] releases: " not in line]  # they may be served a moment later


@pytest.mark.slow
def test_an_object_of_a_custom_resource_admits_a_pod(place, tmp_path):
    group = group_of(place)
    define_releases(place, group)
    place.node("n1")
    schedule(place, group, tmp_path)
    place.pod("cart", labels={"release": "spring"})
    place.pod("till")
    assert place.bound("till") == ["n1"]
    told = place.until(lambda: place.condition("cart").get("message"))
    assert told.startswith("0/")
    assert "spring is not open" in told
    release(place, group, "spring", open=False)
    spring = f"/apis/{group}/v1/namespaces/{place.name}/releases/spring"
    place.ask("PATCH", spring, {"spec": {"open": True}}, MERGE)
    assert place.bound("cart") == ["n1"]
    assert place.ask("GET", spring)["status"] == {"pods": ["cart"]}
    assert complaints(place) == []


@pytest.mark.slow
def test_a_crd_may_be_created_deleted_and_recreated_at_run_time(place, tmp_path):
    group = group_of(place)
    place.node("n1", cpu="8")
    schedule(place, group, tmp_path)
    place.pod("till")
    assert place.bound("till") == ["n1"]
    for name in ("spring", "autumn"):
        define_releases(place, group)
        place.pod(name, labels={"release": name})
        release(place, group, name, open=True)
        assert place.bound(name) == ["n1"]
        place.pod(f"{name}-late", labels={"release": name})
        assert place.bound(f"{name}-late") == ["n1"]
        definition = f"{DEFINITIONS}/releases.{group}"
        place.ask("DELETE", definition)
        place.until(lambda at=definition: is_gone(place, at))
        place.pod(f"{name}-too-late", labels={"release": name})
        place.until(lambda at=name: f"{at} is not open" in place.condition(f"{at}-too-late").get("message", ""))
    assert complaints(place) == []


def is_gone(place, path):
    try:
        place.ask("GET", path)
    except Refused as refused:
        return refused.status == 404
    return False
