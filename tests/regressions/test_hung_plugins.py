"""``moorage run`` with a plugin that does not return: it is named, the process answers and ends, and the pod is set aside."""

import asyncio
import gzip
import json
import signal

import aiohttp
import pytest

from tests.kubeconfigs import write_kubeconfig
from tests.ports import reserve_port
from tests.regressions.processes import FAST, START_S, in_place

pytestmark = pytest.mark.slow

PLUGIN = """
import re, time

class Bad:
    name = "Bad"

    def filter_node(self, pod, node):
        if pod.name.startswith("spins"):
            while True:
                pass
        if pod.name.startswith("sleeps"):
            time.sleep(3600)
        if pod.name.startswith("slow"):
            time.sleep(3)
"""


async def scheduler(place, folder, *flags, limit="1h"):
    """Start a scheduler with the plugin, and return it and its port."""
    (folder / "bad.py").write_text(PLUGIN)
    config = folder / "bad.yaml"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(place.kubeconfig())},
                "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "Bad"}]}}}],
            }
        )
    )  # fmt: skip
    access = folder / "access"
    write_kubeconfig(access, place.port, place.token)
    port = reserve_port()
    process = await place.scheduler(
        *FAST, "--plugins=bad:Bad", f"--config={config}", f"--secure-port={port}", "--bind-address=127.0.0.1",
        f"--authentication-kubeconfig={access}", f"--authorization-kubeconfig={access}", f"--hang-limit={limit}", *flags,
        cwd=folder,
    )  # fmt: skip
    await place.until(place.holder, START_S)
    return process, port


async def ask(place, port, path):
    headers = {"Authorization": f"Bearer {place.token}"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        answer = await session.get(f"https://127.0.0.1:{port}{path}", ssl=False, headers=headers)
        return answer.status, await answer.read()


def said(process, text):
    return lambda: text in process.log.read_text()


@pytest.mark.parametrize("name", ["spins", "sleeps"])
def test_a_hung_plugin_is_named_and_everything_else_answers(name, tmp_path):
    async def main(place):
        place.world.node("n1")
        process, port = await scheduler(place, tmp_path)
        assert (await ask(place, port, "/livez"))[0] == 200
        place.world.pod(name)
        await place.until(said(process, "A plugin does not return"), START_S)
        log = process.log.read_text()
        assert 'plugin="Bad" extensionPoint="filter"' in log
        assert f'pod="default/{name}"' in log
        assert "in filter_node" in log
        assert (await ask(place, port, "/livez"))[0] == 200
        status, metrics = await ask(place, port, "/metrics")
        counted = 'moorage_plugin_hangs_total{extension_point="filter",plugin="Bad",profile="default-scheduler"} 1.0'
        assert (status, counted in metrics.decode()) == (200, True)
        status, stacks = await ask(place, port, "/debug/pprof/goroutine")
        assert (status, b"filter_node" in stacks) == (200, True)
        status, profile = await ask(place, port, "/debug/pprof/profile?seconds=0.5")
        assert (status, b"Bad.filter_node" in gzip.decompress(profile)) == (200, True)
        status, heap = await ask(place, port, "/debug/pprof/heap")
        assert (status, b"moorage.live.server.live_scheduler.Live" in gzip.decompress(heap)) == (200, True)
        assert (await ask(place, port, f"/debug/explain?pod=default/{name}"))[0] == 503
        first = place.holder()
        await asyncio.sleep(7)  # longer than the lease
        assert (place.holder(), process.returncode) == (first, None)
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert process.returncode is None
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 1

    in_place(main, tmp_path)


def test_the_first_signal_ends_a_process_that_hangs_and_releases_its_lease(tmp_path):
    async def main(place):
        place.world.node("n1")
        process, _ = await scheduler(place, tmp_path)
        place.world.pod("sleeps")
        await place.until(said(process, "A plugin does not return"), START_S)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 29) == 1
        assert place.holder() == ""

    in_place(main, tmp_path)


def test_a_slow_plugin_ends_nothing(tmp_path):
    async def main(place):
        place.world.node("n1")
        process, _ = await scheduler(place, tmp_path)
        place.world.pod("slow")
        await place.until(said(process, "The scheduling loop goes on"), START_S)
        await place.bound("slow")
        assert 'plugin="Bad"' in process.log.read_text()
        assert process.returncode is None

    in_place(main, tmp_path)


def test_liveness_fails_and_no_later_leader_hangs_on_the_same_pod(tmp_path):
    async def main(place):
        place.world.node("n1")
        first, port = await scheduler(place, tmp_path, limit="4s")
        place.world.pod("sleeps")
        await place.until(said(first, "A plugin does not return"), START_S)
        async with asyncio.timeout(30):
            while (await ask(place, port, "/livez"))[0] == 200:
                await asyncio.sleep(0.2)
        assert await asyncio.wait_for(first.wait(), 30) == 1
        conditions = place.api.do("GET", "/api/v1/namespaces/default/pods/sleeps")["status"]["conditions"]
        (condition,) = (one for one in conditions if one["type"] == "PodScheduled")
        assert (condition["status"], condition["reason"]) == ("False", "PluginHung")
        assert condition["message"].startswith("plugin Bad (")
        events = place.api.do("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        assert [one["regarding"]["name"] for one in events if one["reason"] == "PluginHung"] == ["sleeps"]
        second, _ = await scheduler(place, tmp_path, limit="4s")
        await place.until(lambda: place.holder() != "", START_S)
        place.world.pod("goes")
        await place.bound("goes")
        await asyncio.sleep(6)
        assert second.returncode is None
        assert "A plugin does not return" not in second.log.read_text()
        second.terminate()
        await asyncio.wait_for(second.wait(), 29)
        # A plugin that has changed is tried.
        plugin = tmp_path / "bad.py"
        plugin.write_text(PLUGIN.replace('startswith("sleeps")', 'startswith("no")'))
        third = await place.scheduler(*FAST, "--plugins=bad:Bad", f"--config={tmp_path / 'bad.yaml'}", cwd=tmp_path)
        await place.bound("sleeps")
        assert third.returncode is None

    in_place(main, tmp_path)
