"""What becomes of volumes that were taken by a write which an API server then lost with its life."""

import asyncio
import random

import pytest

from moorage.testing.simtest.disks import Disks, using
from moorage.testing.simtest.staging import on_stage
from tests.regressions.test_lost_writes import dies


def with_disks(stage):
    disks = Disks(stage.api, random.Random(1))
    stage.world.furnish(disks)
    return disks


def writes(stage, plural):
    return [one for one in stage.requests("PUT", "") if f"/{plural}/" in one.path and one.code == 200]


def owner(stage, volume):
    return (stage.api.do("GET", f"/api/v1/persistentvolumes/{volume}")["spec"].get("claimRef") or {}).get("name")


@pytest.mark.parametrize("told", [True, False], ids=["a watch told of it", "only the reply did"])
def test_a_volume_is_taken_again_when_that_was_lost(told):
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


def test_a_volume_whose_owner_was_lost_is_free_for_others():
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
