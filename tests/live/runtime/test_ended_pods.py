import asyncio

import pytest

from moorage.api.core import ENDED_PHASES
from moorage.testing.memory_cluster import MemoryCluster
from tests.live.runtime.test_loop import binds, node, placed, pod, run_virtually, running


@pytest.mark.parametrize("phase", sorted(ENDED_PHASES))
def test_ended_pods_that_come_together_are_not_bound(phase):
    async def main():
        ended = [pod(f"p{at}", "100m", status={"phase": phase}) for at in range(3)]
        cluster = MemoryCluster([node("n1"), *ended])
        async with running(cluster) as loop:
            await asyncio.sleep(1)
            return set(placed(cluster).values()), binds(cluster), loop.attempts

    assert run_virtually(main()) == ({""}, [], 0)
