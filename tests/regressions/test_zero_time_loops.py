"""Plugins that activate and reject each other's pods without end do not take the whole scheduler: the pods back off.

In virtual time such a loop ends with an error (tests/reports/plugins); on a cluster time goes on, and others want to be placed.
"""

import asyncio
import json
import time

import pytest

from tests.kubeconfigs import write_kubeconfig
from tests.ports import reserve_port
from tests.regressions.processes import START_S, in_place
from tests.regressions.test_hung_plugins import ask

pytestmark = pytest.mark.slow

EAGER = """
from moorage.framework.post_filter import PostFilterResult
from moorage.framework.verdicts import Code, Wait


class Eager:
    name = "Eager"

    def __init__(self):
        self.pods = {}

    def attach(self, handle):
        self.handle = handle

    def pre_enqueue(self, pod):
        if pod.name.startswith("group"):
            self.pods[pod.uid] = pod

    def permit(self, state, pod, node):
        if not pod.name.startswith("group"):
            return None
        waiting = {held.pod.uid for held in self.handle.waiting()} | {pod.uid}
        self.handle.activate([one for one in self.pods.values() if one.uid not in waiting])
        return Wait(10)

    def post_filter(self, pod, attempt):
        for held in self.handle.waiting():
            held.reject(self.name, "the group does not fit")
        return PostFilterResult(Code.UNSCHEDULABLE)
"""


def test_others_are_placed_while_a_group_goes_round(tmp_path):
    (tmp_path / "eager.py").write_text(EAGER)

    async def main(place):
        config, access, port = tmp_path / "eager.yaml", tmp_path / "access", reserve_port()
        write_kubeconfig(access, place.port, place.token)
        head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        enabled = {"plugins": {"multiPoint": {"enabled": [{"name": "Eager"}]}}}
        connection = {"kubeconfig": str(place.kubeconfig())}
        config.write_text(json.dumps({**head, "clientConnection": connection, "profiles": [enabled]}))
        process = await place.scheduler(
            "--plugins=eager:Eager", f"--config={config}", f"--secure-port={port}", "--bind-address=127.0.0.1",
            f"--authentication-kubeconfig={access}", f"--authorization-kubeconfig={access}", cwd=tmp_path,
        )  # fmt: skip
        await place.until(place.holder, START_S)
        place.world.node("n1", cpu=1, pods=110)
        for number in range(3):
            place.world.pod(f"group-{number}", cpu="1")
        place.world.pod("lone", cpu="100")

        async def attempts():
            _, body = await ask(place, port, "/metrics")
            lines = [line for line in body.decode().splitlines() if line.startswith("scheduler_schedule_attempts_total{")]
            return sum(float(line.rpartition(" ")[2]) for line in lines)

        await asyncio.sleep(3)
        before, began = await attempts(), time.monotonic()
        for number in range(4):
            place.world.pod(f"other-{number}", cpu="0")
        await place.bound(*(f"other-{number}" for number in range(4)), within_s=15)
        await asyncio.sleep(5)
        rate = (await attempts() - before) / (time.monotonic() - began)
        assert before > 0
        assert rate < 500  # four pods, each of which becomes active at most 100 times a second, and others
        assert "becomes active more than 100 times a second (ForceActivate); it backs off now" in process.log.read_text()
        assert process.returncode is None
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0

    in_place(main, tmp_path)
