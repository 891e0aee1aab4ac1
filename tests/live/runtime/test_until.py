import asyncio

from moorage.framework.effects import Until
from moorage.testing.memory_cluster import MemoryCluster
from tests.live.runtime.test_loop import node, placed, pod, preparing, run_virtually, running


def test_a_pod_is_bound_once_the_awaited_condition_holds():
    async def main():
        looks = []

        def is_met():
            looks.append(asyncio.get_running_loop().time())
            return len(looks) == 3

        cluster = MemoryCluster([node("n1"), pod("p1")], lag_s=0, latency_s=0)  # the node is written before the first look
        async with running(cluster, plugins=[preparing(Until(is_met, 60, "waiting for the volume"))]):
            await asyncio.sleep(10)
            return placed(cluster), [round(at, 3) for at in looks]

    assert run_virtually(main()) == ({"p1": "n1"}, [0, 1, 2])
