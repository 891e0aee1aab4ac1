"""Claims of devices on a live cluster: who else writes to them is not in the way, and a failed binding takes its pod back."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.errors import ClusterError
from moorage.testing.memory_cluster import MemoryCluster, Trouble
from moorage.testing.virtual_time import run_virtually
from tests.live.runtime.test_loop import node, placed, pod, running

DRIVER = "gpu.example.com"


def a_cluster(*pods, **options):
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n1", "devices": [{"name": "d"}]}
    objects = [
        msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass),
        msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice),
        msgspec.convert(
            {"metadata": {"name": "c", "namespace": "default", "uid": "u"}, "spec": {"devices": {"requests": [request]}}},
            ResourceClaim,
        ),
    ]
    using = [pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}]) for name in pods]
    return MemoryCluster([node("n1", "20"), *objects, *using], **options)


def the_claim(cluster):
    return cluster.get(ResourceClaim, "default/c")


def users(claim):
    return sorted(user.name for user in claim.status.reserved_for)


def versions(cluster):
    return [entry.obj for entry in cluster.history if isinstance(entry.obj, ResourceClaim)]


def test_a_failed_binding_removes_the_pod_from_its_claim_before_the_retry():
    async def main():
        cluster = a_cluster("p")
        cluster.faults.append(Trouble("bind", times=1))
        async with running(cluster) as loop:
            await asyncio.sleep(0.5)
            between = the_claim(cluster)
            await asyncio.sleep(5)
            return cluster, between, loop

    cluster, between, loop = run_virtually(main())
    assert users(between) == []
    assert between.status.allocation is not None
    assert placed(cluster) == {"p": "n1"}
    assert users(the_claim(cluster)) == ["p"]
    assert [users(claim) for claim in versions(cluster)] == [[], ["p"], [], ["p"]]
    assert loop.faults == 0


def test_pods_that_reserve_a_claim_concurrently_do_not_conflict():
    async def main():
        names = [f"p{n}" for n in range(8)]
        cluster = a_cluster(*names, lag_s=0.5)
        async with running(cluster) as loop:
            await asyncio.sleep(30)
            return cluster, loop

    cluster, loop = run_virtually(main())
    assert set(placed(cluster).values()) == {"n1"}
    assert users(the_claim(cluster)) == sorted(placed(cluster))
    assert not loop.reports
    allocated = [one for claim in versions(cluster) if (one := claim.status.allocation) is not None]
    assert len({tuple(result.device for result in one.devices.results) for one in allocated}) == 1


def test_concurrent_changes_to_a_claim_by_others_are_kept():
    async def main():
        cluster = a_cluster("p", lag_s=0.2)
        async with running(cluster):
            await asyncio.sleep(0.1)
            claim = the_claim(cluster)
            cluster.put(replace(claim, metadata=replace(claim.metadata, labels={"seen": "yes"})))
            await asyncio.sleep(5)
            return cluster

    cluster = run_virtually(main())
    claim = the_claim(cluster)
    assert (claim.metadata.labels, users(claim)) == ({"seen": "yes"}, ["p"])
    assert placed(cluster) == {"p": "n1"}


# -- what a write came to --------------------------------------------------------------------------------------------------


def two_claims(*, lag_s=0.01):
    """A node with one device, and claims c and d on it, each with a pod that uses it: p and q."""
    cluster = a_cluster("p", lag_s=lag_s)
    held = the_claim(cluster)
    cluster.put(replace(held, metadata=replace(held.metadata, name="d", uid="v")))
    cluster.put(pod("q", resourceClaims=[{"name": "gpu", "resourceClaimName": "d"}]))
    return cluster


def given(cluster):
    """Return the claims that have the device."""
    return [name for name in "cd" if cluster.get(ResourceClaim, f"default/{name}").status.allocation is not None]


@pytest.mark.parametrize("failures", [0, 5], ids=["read at once", "not to be read for a while"])
def test_devices_of_a_claim_with_a_lost_reply_stay_allocated(failures):
    """Nothing but the claim itself says whether it was allocated, and for minutes no watch tells of it."""

    async def main():
        cluster = two_claims(lag_s=600.0)
        cluster.faults += [Trouble("amend", after=True, hold_s=0.1), Trouble("read", times=failures)]
        async with running(cluster):
            await asyncio.sleep(60)
            return cluster

    cluster = run_virtually(main())
    assert given(cluster) == ["c"]
    assert placed(cluster) == {"p": "n1", "q": ""}


def test_devices_of_an_unwritten_claim_are_free_after_the_read_back():
    async def main():
        cluster = two_claims()
        cluster.faults.append(Trouble("amend", ClusterError("500", 500), times=2))
        async with running(cluster):
            await asyncio.sleep(5)
            return given(cluster)

    assert len(run_virtually(main())) == 1


def test_a_claim_whose_first_read_failed_is_not_read_back():
    unsent = ClusterError("connection refused")
    unsent.sent = False

    async def main():
        cluster = a_cluster("p")
        cluster.faults.append(Trouble("amend", unsent))
        async with running(cluster):
            await asyncio.sleep(5)
            return cluster

    cluster = run_virtually(main())
    assert cluster.requests.get("read", 0) == 0
    assert placed(cluster) == {"p": "n1"}


def test_a_pod_shares_devices_before_the_watch_delivers_the_allocation():
    async def main():
        cluster = a_cluster("p", lag_s=8.0)
        async with running(cluster):
            await asyncio.sleep(1)
            cluster.lag_s = 0.01
            cluster.put(pod("q", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}]))
            await asyncio.sleep(9)
            return placed(cluster)

    assert run_virtually(main()) == {"p": "n1", "q": "n1"}


def test_an_allocation_without_a_watch_event_is_read_at_growing_intervals():
    async def main():
        cluster = a_cluster("p")
        async with running(cluster) as loop:
            cluster.stalled = True
            await asyncio.sleep(600)
            return cluster, loop.scheduler

    cluster, scheduler = run_virtually(main())
    assert scheduler.is_unconfirmed(the_claim(cluster))
    assert cluster.requests["read"] == 3 + (600 - 70) // 60


def test_an_allocation_lost_before_its_watch_event_is_repeated():
    async def main():
        cluster = a_cluster("p")
        before = the_claim(cluster)
        async with running(cluster) as loop:
            cluster.stalled = True
            await asyncio.sleep(1)
            cluster._objects[ResourceClaim, "default/c"] = before
            await asyncio.sleep(15)
            return loop.scheduler.cluster.objects(ResourceClaim), loop.reports, before

    known, reports, before = run_virtually(main())
    assert known["default/c"] == before
    assert reports == ["ResourceClaim default/c: the API server acknowledged a write and then lost it"]
