"""What becomes of volumes that were taken by a write which an API server then lost with its life."""

import asyncio
import random

import pytest

from tests.regressions.test_lost_writes import dies
from tools.simtest.device_world import DEVICE_CLAIMS, Gadgets
from tools.simtest.device_world import using as holding
from tools.simtest.stage import LOST, on_stage
from tools.simtest.storage_world import Disks, using


def with_disks(stage):
    disks = Disks(stage.api, random.Random(1))
    stage.world.furnish(disks)
    return disks


def writes(stage, plural):
    return [one for one in stage.requests("PUT", "") if f"/{plural}/" in one.path and one.code == 200]


def owner(stage, volume):
    return (stage.api.do("GET", f"/api/v1/persistentvolumes/{volume}")["spec"].get("claimRef") or {}).get("name")


@pytest.mark.parametrize("told", [True, False], ids=["a watch told of it", "only the reply did"])
def test_a_volume_is_bound_again_after_a_lost_write(told):
    async def main(stage):
        disks = with_disks(stage)
        stage.world.node("n1")
        disks.offer("d", "local", "n1")
        await asyncio.sleep(10)
        for link in stage.links("persistentvolumes"):
            link.delay_s = 0 if told else 2.0
        disks.claim(name="c")
        disks.rng.choice = lambda delays: 5.0  # so that the controller has not bound it yet
        stage.world.pod("p", **using("c"))
        then = stage.api.store.version
        await stage.until(lambda: writes(stage, "persistentvolumes"))
        await dies(stage, then, stage.api.store.version + 10, down_s=0.0)
        assert owner(stage, "d") is None
        await stage.placed("p", within_s=60)
        assert owner(stage, "d") == "c"

    on_stage(main)


def test_a_volume_with_a_lost_claim_is_free_for_others():
    async def main(stage):
        disks = with_disks(stage)
        stage.world.node("n1")
        disks.offer("d", "local", "n1")
        await asyncio.sleep(10)
        then = stage.api.store.version
        disks.claim(name="lost")
        stage.world.pod("p", **using("lost"))
        await stage.placed("p")
        await asyncio.sleep(1)
        await dies(stage, then, stage.api.store.version + 10)
        await asyncio.sleep(10)
        disks.claim(name="c")
        stage.world.pod("q", **using("c"))
        await stage.placed("q", within_s=30)
        assert owner(stage, "d") == "c"

    on_stage(main)


def with_gadgets(stage, devices=1):
    gadgets = Gadgets(stage.api, random.Random(1))
    stage.world.furnish(gadgets)
    stage.world.node("n1")
    gadgets.offer("n1", devices)
    return gadgets


def claim_of(stage, name):
    return stage.api.do("GET", f"{DEVICE_CLAIMS}/{name}")


def has_devices(stage, name):
    return bool((claim_of(stage, name).get("status") or {}).get("allocation"))


@pytest.mark.parametrize("again", [True, False], ids=["for the same claim", "for another"])
def test_devices_released_before_another_request_are_free(again):
    """The claim keeps our finalizer, so that it looks like one that is about to be allocated."""

    async def main(stage):
        gadgets = with_gadgets(stage)
        gadgets.claim(name="c")
        await asyncio.sleep(5)
        stage.world.pod("p", **holding("c"))
        await stage.placed("p")
        stage.world.delete_pod("p", grace=0)
        await stage.until(lambda: not has_devices(stage, "c"))
        assert claim_of(stage, "c")["metadata"]["finalizers"]
        await asyncio.sleep(5)
        stage.world.pod("q", **holding("c" if again else gadgets.claim()))
        await stage.placed("q")

    on_stage(main)


@pytest.mark.parametrize("users", ["the pod", "others"])
def test_devices_with_an_allocation_lost_before_its_event_are_free(users):
    async def main(stage):
        gadgets = with_gadgets(stage)
        gadgets.claim(name="c")
        gadgets.claim(name="d")
        await asyncio.sleep(10)
        for link in stage.links("resourceclaims"):
            link.delay_s = 2.0
        stage.spoil("POST binding", error=LOST)
        then = stage.api.store.version
        stage.world.pod("p", **holding("c"))
        await stage.until(lambda: has_devices(stage, "c"))
        stage.world.delete_pod("p", grace=0)
        await dies(stage, then, stage.api.store.version + 10, down_s=0.0)
        assert not has_devices(stage, "c")
        stage.world.pod("q", **holding("c" if users == "the pod" else "d"))
        await stage.placed("q", within_s=40)

    on_stage(main)


def test_devices_of_a_claim_deleted_unseen_wake_waiting_pods():
    """It gave its devices back and was deleted while nothing was heard: a list only shows that it is gone."""

    async def main(stage):
        gadgets = with_gadgets(stage)
        gadgets.claim(name="c")
        gadgets.claim(name="d")
        await asyncio.sleep(5)
        stage.world.pod("p", **holding("c"))
        await stage.placed("p")
        stage.world.pod("q", **holding("d"))
        await asyncio.sleep(5)
        for link in stage.links("resourceclaims"):
            link.stalled = True
        stage.world.delete_pod("p", grace=0)
        stage.api.do("DELETE", f"{DEVICE_CLAIMS}/c")
        await stage.until(lambda: claim_of(stage, "c") is None)
        for link in stage.links("resourceclaims"):
            link.stalled = False
            link.cut("expired")
        await stage.placed("q", within_s=30)

    on_stage(main)
