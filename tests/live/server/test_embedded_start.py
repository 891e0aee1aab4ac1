"""How an embedded cluster starts: kinds that plugins name, and what it reports while it waits."""

import asyncio
import random
import threading
import time
from contextlib import asynccontextmanager

import pytest

from moorage.api.custom_objects import CustomKind
from moorage.api.documents.served_kinds import served
from moorage.basis.serving.certificate_authority import SCHEDULER, make_authority
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.access.rbac import Attributes, Authorizer
from moorage.core.building.builder import complete_scheduler
from moorage.framework.events import Action, ClusterEvent, Wake
from moorage.framework.verdicts import SKIP, Hold
from moorage.interfaces.cli.live.embedded_cluster import Embedded, grant_kinds
from moorage.interfaces.cli.live.up import report_if_slow
from moorage.live.server import health as patience
from moorage.rules.store.store import Store
from moorage.simulator.simulate import Options, load_options

NODES, PODS, CONFIG_MAPS = served("nodes"), served("pods"), served("configmaps")
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class MapGate:
    """Keeps every pod waiting until there is a config map called ``go``."""

    name = "MapGate"

    def pre_filter(self, pod, snapshot):
        maps = snapshot.custom("configmaps.v1.")
        return SKIP if "default/go" in maps else Hold.because("there is no go", unresolvable=True)

    def wakes_on(self):
        yield Wake(ClusterEvent("configmaps.v1.", Action.ADD))


class Confused:
    """Names a kind that is not served, and something that is no kind."""

    name = "Confused"

    def pre_filter(self, pod, snapshot):
        return SKIP

    def wakes_on(self):
        yield Wake(ClusterEvent("rockets.v1.example.com", Action.ADD))
        yield Wake(ClusterEvent("rockets", Action.ADD))


def a_scheduler(*plugins):
    names = ", ".join(f"{{name: {plugin.name}}}" for plugin in plugins)
    config = f"{HEAD}profiles: [{{plugins: {{multiPoint: {{enabled: [{names}]}}}}}}]\n".encode()
    return complete_scheduler(load_options(Options(config=config, plugins=plugins)), 0)


def a_store(*, founded=True):
    store = Store(time.time, random.Random(1), b"k")
    if founded:
        bootstrap_cluster(store)
    return store


@asynccontextmanager
async def starting(store, folder, scheduler, controllers=()):
    """Start a cluster; yield what it reports, and an event that says when it is ready."""
    said, ready = [], asyncio.Event()
    authority = make_authority(folder / "pki")
    cluster = Embedded(
        store, authority, folder / "kubeconfig", controllers, scheduler, 0, said.append, lambda told: ready.set()
    )
    task = asyncio.create_task(cluster.run())
    try:
        yield said, ready
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition, seconds=60.0):
    async with asyncio.timeout(seconds):
        while not (found := condition()):
            await asyncio.sleep(0.02)
    return found


def make_node(store):
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    status = {"allocatable": amounts, "capacity": amounts}
    store.create(NODES, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status})


@pytest.mark.slow
def test_a_served_kind_is_watched(tmp_path):
    async def main():
        store = a_store()
        make_node(store)
        spec = {"containers": [{"name": "c", "image": "i"}]}
        store.create(PODS, "default", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})

        def pod():
            return store.find(PODS, "default", "p").document()

        async with starting(store, tmp_path, a_scheduler(MapGate)):
            (why,) = await until(lambda: pod()["status"].get("conditions"))
            assert "there is no go" in why["message"]
            store.create(CONFIG_MAPS, "default", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "go"}})
            return await until(lambda: pod()["spec"].get("nodeName"))

    assert asyncio.run(main()) == "n1"


@pytest.mark.slow
def test_a_kind_that_is_not_served_is_logged_once_and_blocks_nothing(tmp_path):
    async def main():
        async with starting(a_store(), tmp_path, a_scheduler(Confused)) as (said, ready):
            await asyncio.wait_for(ready.wait(), 60)
            return [line for line in said if not line.startswith("Still waiting")]  # as a busy machine may say

    assert asyncio.run(main()) == [
        "a plugin names the invalid kind rockets; use the form plural.version.group",
        "rockets.v1.example.com is not served by this cluster; plugins see no objects of it",
    ]


def may(store, verb, resource, group=""):
    asked = Attributes(verb, group=group, resource=resource, namespace="default")
    return Authorizer(store).judge(SCHEDULER, asked).allowed


def test_rbac_covers_only_the_kinds_that_plugins_name_now():
    store = a_store()
    before = store.version
    grant_kinds(store, ())
    assert store.version == before
    grant_kinds(store, [CustomKind.parse("releases.v1.example.com"), CustomKind.parse("configmaps.v1.")])
    assert may(store, "watch", "releases", "example.com")
    assert may(store, "update", "configmaps")
    assert not may(store, "list", "secrets")
    grant_kinds(store, [CustomKind.parse("secrets.v1.")])
    assert [may(store, "list", resource) for resource in ("secrets", "configmaps")] == [True, False]
    grant_kinds(store, ())
    assert not may(store, "list", "secrets")


@pytest.mark.slow
def test_what_a_start_waits_for_is_reported(tmp_path, monkeypatch):
    """A scheduler without rights, as its cluster was not founded, and a node whose kubelet is switched off."""
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)

    async def main():
        store = a_store(founded=False)
        make_node(store)
        async with starting(store, tmp_path, a_scheduler()) as (said, ready):
            line = await until(lambda: next((one for one in said if "the list of nodes, which failed" in one), None))
            assert not ready.is_set()
            return line, said[0]

    line, first = asyncio.run(main())
    assert first.startswith("Still waiting for 1 of 1 nodes to be ready: n1")
    why = 'nodes is forbidden: User "system:kube-scheduler" cannot list resource "nodes" in API group "" at the cluster scope'
    assert f"the list of nodes, which failed (GET /api/v1/nodes: {why})" in line


def test_a_delay_is_reported_again_only_for_another_cause(monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE_S", 0.01)
    left, said = [["a", "b"], ["a", "b"], ["b"], [], ["b"]], []

    async def main():
        task = asyncio.create_task(patience.report_delays(lambda: left.pop(0) if left else [], said.append))
        await until(lambda: not left)
        task.cancel()

    asyncio.run(main())
    assert said == ["Still waiting for a; b", "Still waiting for b", "Still waiting for b"]


def test_a_long_step_is_reported_while_it_runs():
    lines, said = [], threading.Event()

    def report(line):
        lines.append(line)
        said.set()

    with report_if_slow("reading a file", report, patience_s=0.01):
        assert said.wait(60)
    with report_if_slow("reading another", report, patience_s=60):
        pass
    assert lines == ["Still reading a file"]
