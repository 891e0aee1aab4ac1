"""Claims of devices on a live cluster: who else writes to them is not in the way, and a failed binding takes its pod back."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec.structs import replace

from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.testing.memory_cluster import MemoryCluster, Trouble
from moorage.testing.virtual_time import run_virtually
from tests.runtime.test_loop import node, placed, pod, running

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


def test_a_pod_whose_binding_fails_is_taken_off_its_claim_before_it_is_tried_again():
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


def test_pods_that_join_a_claim_at_the_same_time_are_not_in_each_others_way():
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


def test_a_claim_that_others_change_meanwhile_keeps_what_they_wrote():
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
