"""Binds and evictions that the API server took and then forgot, without a watch ever telling of them; in virtual time."""

import asyncio

import pytest
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.errors import ClusterError
from moorage.testing.memory_cluster import MemoryCluster, Trouble
from moorage.testing.virtual_time import run_virtually
from tests.live.runtime.test_loop import binds, node, placed, pod, running

TOOK = "the API server acknowledged it and then lost it; retrying"


def after_a_deaf_bind(meanwhile, seconds=60.0, faults=()):
    """Bind a pod of which no watch tells, let something happen, wait; return the cluster, the reports and who is queued."""

    async def main():
        cluster = MemoryCluster([node("n1")])
        async with running(cluster) as loop:
            cluster.put(pod("p"))
            await asyncio.sleep(0.012)  # the pod was reported, and its bind was not
            cluster.stalled = True
            await asyncio.sleep(1)
            assert placed(cluster) == {"p": "n1"}
            cluster.faults += faults
            meanwhile(cluster)
            await asyncio.sleep(seconds)
            return cluster, loop.reports, [queued.pod.name for queued in loop.scheduler.queue.pending()]

    return run_virtually(main())


def forget(cluster):
    held = cluster.get(Pod, "default/p")
    cluster.put(replace(held, spec=replace(held.spec, node_name="")))


def test_a_lost_bind_is_sent_again():
    cluster, reports, _ = after_a_deaf_bind(forget)
    assert binds(cluster) == ["default/p", "default/p"]
    assert reports == [f"bind default/p to n1: {TOOK}"]


def test_a_bind_that_stands_is_read_at_growing_intervals():
    cluster, reports, queued = after_a_deaf_bind(lambda cluster: None, 600)
    assert (binds(cluster), reports, queued) == (["default/p"], [], [])
    assert cluster.requests["read_pod"] == 3 + (600 - 70) // 60


@pytest.mark.parametrize("namesake", [False, True])
def test_a_deleted_pod_found_by_a_read_frees_its_resources(namesake):
    def goes(cluster):
        cluster.remove(cluster.get(Pod, "default/p"))
        if namesake:
            cluster.put(pod("p", uid="another"))

    cluster, _, queued = after_a_deaf_bind(goes)
    assert (len(binds(cluster)), queued) == (1, [])  # the namesake is for a watch to tell of


def test_a_failed_read_changes_nothing():
    cluster, reports, queued = after_a_deaf_bind(
        lambda cluster: None, 45, [Trouble("read_pod", ClusterError("500", 500), times=9)]
    )
    assert (binds(cluster), reports, queued) == (["default/p"], [], [])


def test_a_bind_that_the_watch_confirmed_is_not_read():
    async def main():
        cluster = MemoryCluster([node("n1", cpu="100"), *(pod(f"p{number}", cpu="1m") for number in range(20))])
        async with running(cluster) as loop:
            await asyncio.sleep(60)
            return cluster, loop

    cluster, loop = run_virtually(main())
    assert (len(binds(cluster)), cluster.requests.get("read_pod", 0), loop.reports) == (20, 0, [])
    assert not loop._confirmer._taken
    assert not loop._confirmer._due


def test_a_lost_eviction_is_sent_again():
    async def main():
        cluster = MemoryCluster([node("n1")])
        async with running(cluster) as loop:
            cluster.put(pod("victim", cpu="2", priority=1))
            await asyncio.sleep(1)
            cluster.put(pod("important", cpu="2", priority=9))
            await asyncio.sleep(0.012)
            cluster.stalled = True
            await asyncio.sleep(0.5)
            held = cluster.get(Pod, "default/victim")
            assert held.metadata.deletion_timestamp
            cluster.put(replace(held, metadata=replace(held.metadata, deletion_timestamp=None)))
            await asyncio.sleep(15)
            return cluster, loop.reports

    cluster, reports = run_virtually(main())
    assert reports == [f"evict default/victim for default/important: {TOOK}"]
    assert cluster.requests["delete_pod"] == 2
