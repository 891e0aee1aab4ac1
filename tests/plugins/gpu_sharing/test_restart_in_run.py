"""The devices of pods survive a restart of the live scheduler: the next one reads them back from the annotations."""

import asyncio
import json
import random
import time
from contextlib import asynccontextmanager

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.rest import Rest
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.http.serve import serving
from moorage.core.building.builder import build_resolved
from moorage.core.config.scheduler_document import load_any
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.scheduler import Scheduler
from moorage.interfaces.cli.live.embedded_cluster import grant_kinds
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.server.live_scheduler import LeaderSettings, Live, LiveSettings
from moorage.plugins import builtin_registry
from moorage.rules.store.store import Store
from tests.live.server.test_on_embedded_server import create, get, until, wall
from tests.plugins.gpu_sharing.test_plugins import COUNT, INDEX, MILLI, PLUGINS, config

PODS = "/api/v1/namespaces/default/pods"


class Rules:
    def registry(self, release):
        found = builtin_registry(release)
        for plugin in PLUGINS:
            found.add(plugin)
        return found

    def gates(self, release):
        return FeatureGates()


def a_scheduler():
    loaded = load_any(config("BestFitScore"), "scheduler.yaml", Rules())
    return Scheduler(
        Cycle(seed=1), loaded.gates, lambda handle: build_resolved(loaded.profiles, loaded.registry, handle).profiles
    )


@asynccontextmanager
async def live(port):
    """One life of the scheduler: nothing but the API server outlasts it."""
    reports = []
    async with Rest(Endpoint(f"http://127.0.0.1:{port}", FixedCredentials(Identity("scheduler"))), qps=0) as own:
        running = Live(
            a_scheduler(), own, LiveSettings(LeaderSettings()), identity="me", wall=wall, chance=random.Random(1),
            observers=Observers(reports.append),
        )  # fmt: skip
        task = asyncio.create_task(running.run())
        try:
            yield reports
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def make_pod(rest, name, milli, count=1):
    body = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {MILLI: str(milli), COUNT: str(count)}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    }  # fmt: skip
    await rest.send("POST", PODS, json.dumps(body).encode())


async def devices_of(rest, name, reports):
    async def bound():
        found = await get(rest, name)
        return found if found["spec"].get("nodeName") else None

    return (await until(bound, reports))["metadata"]["annotations"].get(INDEX)


@pytest.mark.slow
def test_the_next_scheduler_reads_the_devices_back():
    async def main():
        store = Store(time.time, random.Random(5), b"k")
        bootstrap_cluster(store)
        grant_kinds(store, (), pods=a_scheduler().writes_pods)
        users = {"admin": User("admin", ("system:masters",)), "scheduler": User("system:kube-scheduler")}
        async with (
            serving(store, Authenticator(users)) as port,
            Rest(Endpoint(f"http://127.0.0.1:{port}", FixedCredentials(Identity("admin"))), qps=0) as rest,
        ):
            amounts = {"cpu": "64", "memory": "256Gi", "pods": "100", COUNT: "3", MILLI: "3000"}
            await create(rest, "/api/v1/nodes", "Node", "0000-n", status={"allocatable": amounts, "capacity": amounts})
            async with live(port) as reports:
                await make_pod(rest, "share", 700)
                assert await devices_of(rest, "share", reports) == "0"
                await make_pod(rest, "whole", 1000)
                assert await devices_of(rest, "whole", reports) == "1"
            async with live(port) as reports:
                await make_pod(rest, "again", 300)
                assert await devices_of(rest, "again", reports) == "0"
                await make_pod(rest, "two", 1000, 2)
                await make_pod(rest, "last", 1000)
                assert await devices_of(rest, "last", reports) == "2"
                assert "nodeName" not in (await get(rest, "two"))["spec"]

    asyncio.run(main())
