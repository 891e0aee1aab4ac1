"""An API server that dies and comes back without its last writes, as from a disk that had no more or from a backup.

Clients that watched or wrote still believe in what was lost. Where versions leap ahead, all of them have to list again; where
they go back, only a client that sends a request while the server is behind can notice it.
"""

import asyncio

import pytest

from tools.simtest.stage import LOST, on_stage


async def dies(stage, then, version, down_s=1.0):
    stage.network.die()
    await asyncio.sleep(down_s)
    stage.api.go_back(then, version)
    stage.world.look_again()
    stage.mend()


@pytest.mark.parametrize("told", [True, False], ids=["a watch told of it", "only the reply did"])
@pytest.mark.parametrize("streams", [True, False])
def test_a_bind_lost_by_the_server_is_sent_again(told, streams):
    async def main(stage):
        stage.network.streams = streams
        stage.world.node("n1")
        await asyncio.sleep(1)
        for link in stage.links("pods"):
            link.delay_s = 0 if told else 2.0
        stage.world.pod("p")
        then = stage.api.store.version
        await stage.placed("p")
        await asyncio.sleep(0.5)
        await dies(stage, then, stage.api.store.version + 10)
        assert stage.node_of("p") == ""
        await stage.placed("p", within_s=25)
        assert len(stage.binds("p")) == 2

    on_stage(main)


def test_a_lost_bind_is_sent_again_although_the_pod_has_changed():
    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p", schedulingGates=[{"name": "wait"}])
        await asyncio.sleep(1)
        stage.world.ungate("p")
        then = stage.api.store.version
        await stage.placed("p")
        await asyncio.sleep(0.5)
        stage.network.die()
        stage.api.go_back(then, stage.api.store.version + 10)
        stage.world.change_pod("p", labels={"app": "db"})
        stage.mend()
        await stage.placed("p", within_s=25)

    on_stage(main)


def test_a_foreign_bind_read_and_then_lost_is_made_again():
    """Only the answer to a read told of it, as the watch of pods was silent; to the next list nothing about the pod is new."""

    async def main(stage):
        stage.world.pod("p")
        await asyncio.sleep(1)
        for link in stage.links("pods"):
            link.stalled = True
        then = stage.api.store.version
        stage.world.bind("p", "n2")
        stage.world.node("n1")
        await stage.until(lambda: stage.scheduler.queue.get(stage.pod("p")["metadata"]["uid"]) is None)
        assert [one.code for one in stage.binds("p")] == [409]
        await dies(stage, then, stage.api.store.version + 10)
        stage.world.node("n1")
        assert await stage.placed("p", within_s=25) == "n1"

    on_stage(main)


def test_a_pod_read_as_deleted_that_reappears_is_bound():
    async def main(stage):
        stage.world.node("n1")
        await asyncio.sleep(1)
        for link in stage.links("pods"):
            link.delay_s = 1.0
        stage.world.pod("p")
        then = stage.api.store.version
        await stage.placed("p")
        await dies(stage, then, stage.api.store.version + 10, down_s=0.0)
        stage.spoil("WATCH pods", error=LOST)
        then = stage.api.store.version
        stage.world.delete_pod("p", grace=0)
        await stage.until(lambda: any("acknowledged it and then lost it" in line for line in stage.recording.reports), 20)
        await dies(stage, then, stage.api.store.version + 10)
        await stage.placed("p", within_s=60)

    on_stage(main)


def test_an_eviction_lost_by_the_server_is_sent_again():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        await asyncio.sleep(1)
        for link in stage.links("pods"):
            link.delay_s = 1.0
        stage.world.pod("important", priorityClassName="high")
        await stage.until(lambda: stage.pod("victim")["metadata"].get("deletionTimestamp"))
        (marked,) = [one.version for one in stage.history("victim") if one.document["metadata"].get("deletionTimestamp")]
        await dies(stage, marked - 1, stage.api.store.version + 10, down_s=0.0)
        await stage.placed("important", within_s=40)

    on_stage(main)


def test_freed_resources_are_counted_again_after_a_rollback():
    async def main(stage):
        stage.world.node("n1", 2)
        stage.world.pod("p", cpu="2")
        await stage.placed("p")
        stage.world.pod("q", cpu="2")
        then = stage.api.store.version
        stage.world.delete_pod("p", grace=0)
        await stage.placed("q")
        await dies(stage, then, stage.api.store.version + 10)
        await asyncio.sleep(30)
        assert (stage.node_of("p"), stage.node_of("q")) == ("n1", "")

    on_stage(main)


@pytest.mark.parametrize("behind", [True, False], ids=["the server stays behind", "it catches up meanwhile"])
def test_reused_resource_versions_are_accepted_eventually(behind):
    async def main(stage):
        stage.network.streams = False
        stage.world.node("n1")
        stage.world.pod("p")
        then = stage.api.store.version
        await stage.placed("p")
        for number in range(30):
            stage.world.touch_node("n1")
            stage.world.change_pod("p", labels={"app": f"a{number}"})
        await asyncio.sleep(1)
        await dies(stage, then, then, down_s=0.0)
        await asyncio.sleep(20)
        while not behind and stage.api.store.version < then + 80:
            stage.world.touch_node("n1")
        await stage.placed("p", within_s=200)

    on_stage(main, leader=False, settle_s=60.0)


def test_a_lost_lease_never_gives_two_leaders():
    async def main(stage):
        stage.world.node("n1", 8)
        then = stage.api.store.version
        await stage.until(lambda: stage.members[0].live.leads)
        await dies(stage, then - 1, stage.api.store.version + 10, down_s=0.1)
        for number in range(40):
            stage.world.pod(f"p{number}", cpu="100m")
            await asyncio.sleep(0.5)
            assert sum(member.live is not None and member.live.leads for member in stage.members) <= 1

    on_stage(main, members=2)
