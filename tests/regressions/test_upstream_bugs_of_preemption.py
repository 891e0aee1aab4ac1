"""Bugs that kube-scheduler has had in preemption, re-created as in ``test_upstream_bugs.py``; so are their numbers."""

import asyncio

import pytest

from moorage.errors import ClusterError
from tests.regressions.holding import Holds
from tools.simtest.stage import LOST, on_stage


@pytest.mark.parametrize("phase", ["permit", "prebind"])
@pytest.mark.parametrize("delay_s", [0.0, 1.0])
def test_b11_a_waiting_victim_is_released_in_memory(phase, delay_s):
    """140082, 140054: the victim gave up its node before the preemptor waited for that, and the preemptor slept on."""

    async def main(stage):
        stage.world.node("n1", cpu=1)
        await asyncio.sleep(0.1)
        for link in stage.links("pods"):
            link.delay_s = delay_s
        stage.world.pod(phase, priorityClassName="low")
        await asyncio.sleep(2 + delay_s)
        stage.world.pod("important", priorityClassName="high")
        await stage.placed("important", within_s=5 + delay_s)
        assert not stage.requests("DELETE", f"/pods/{phase}")
        stage.world.delete_pod(phase, grace=0)

    on_stage(main, Holds, settle_s=60.0)


def test_b12_an_already_deleted_victim_does_not_block_its_preemptor():
    """141694, 142294: the eviction got 404, and the event that the preemptor waited for had been before."""

    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        for link in stage.links("pods"):
            link.delay_s = 1.0
        stage.world.delete_pod("victim", grace=0)
        stage.world.pod("important", priorityClassName="high")
        await stage.placed("important", within_s=8)

    on_stage(main)


@pytest.mark.parametrize("trouble", ["none", "the first delete fails", "marking fails", "the delete's reply is lost"])
def test_b13_a_victim_is_deleted_once(trouble):
    """133167, 134730, 135495: a victim that is ending, asked for again, or whose deletion failed at first."""
    spoiled = {
        "the first delete fails": ("DELETE pods", {"error": ClusterError("500", 500), "times": 1}),
        "marking fails": ("PATCH status", {"error": ClusterError("500", 500), "times": 2}),
        "the delete's reply is lost": ("DELETE pods", {"error": LOST, "after": True, "times": 1}),
    }

    async def main(stage):
        stage.world.end_after_s = 20.0
        stage.world.node("n1", cpu=1)
        stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        if trouble in spoiled:
            what, how = spoiled[trouble]
            stage.spoil(what, **how)
        stage.world.pod("important", priorityClassName="high")
        stage.world.pod("also", priorityClassName="middle")
        await stage.placed("important", within_s=45)
        done = [one for one in stage.requests("DELETE", "/pods/victim") if one.code == 200]
        assert len(done) <= (2 if trouble == "the delete's reply is lost" else 1)
        # Its end, without any more grace, is the node's doing.
        marks = [one for one in stage.history("victim") if one.document["metadata"].get("deletionGracePeriodSeconds")]
        assert len({one.document["metadata"]["deletionTimestamp"] for one in marks}) == 1

    on_stage(main)


def test_b16_a_nomination_reserves_resources_before_the_api_write():
    """72124, 93505: between the preemption and the status patch another pod took the room."""

    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        stage.spoil("PATCH status", hold_s=5.0)
        stage.world.pod("important", priorityClassName="high")
        for number in range(20):
            stage.world.pod(f"thief{number}", priorityClassName="low")
            await asyncio.sleep(0.5)
        assert stage.node_of("important") == "n1"

    on_stage(main)


def test_b17_a_nomination_ends_with_its_pod():
    """85447, 102339, 109245: the room of a nominated pod that was deleted, or bound already, was kept indefinitely."""

    async def main(stage):
        stage.world.end_after_s = 40.0
        stage.world.node("n1", cpu=1)
        stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        stage.world.pod("important", priorityClassName="high")
        await stage.until(lambda: stage.scheduler.queue.nominated)
        stage.world.pod("modest", priorityClassName="low")
        await asyncio.sleep(5)
        stage.world.delete_pod("important", grace=0)
        await asyncio.sleep(1)
        assert not stage.scheduler.queue.nominated
        await stage.placed("modest", within_s=60)
        patch = {"status": {"nominatedNodeName": "n1"}}
        stage.api.do("PATCH", "/api/v1/namespaces/default/pods/modest/status", patch, media_type="application/merge-patch+json")
        await asyncio.sleep(1)
        assert not stage.scheduler.queue.nominated

    on_stage(main)


def test_b18_a_stuck_victim_delays_only_its_preemptor():
    """95752: kept as it is upstream: while a victim is ending on the nominated node, no other pod is evicted."""

    async def main(stage):
        stage.world.end_after_s = 200.0
        for name in ("n1", "n2"):
            stage.world.node(name, cpu=1)
            stage.world.pod(f"on-{name}", priorityClassName="low")
        await stage.placed("on-n1", "on-n2")
        stage.world.pod("important", priorityClassName="high")
        await asyncio.sleep(120)
        ending = [pod for pod in stage.world.pods() if pod["metadata"].get("deletionTimestamp")]
        assert len(ending) == 1
        await stage.placed("important", within_s=100)

    on_stage(main)


def test_b19_a_pod_bound_by_another_scheduler_frees_its_reservation():
    """134859: a waiting pod was bound elsewhere by another, and those who could have had its room were not told."""

    async def main(stage):
        stage.world.end_after_s = 5.0
        stage.world.node("n1", cpu=1)
        stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        stage.world.pod("important", priorityClassName="high")
        await stage.until(lambda: stage.scheduler.queue.nominated)
        stage.world.pod("modest", priorityClassName="low")
        stage.world.node("n2", cpu=1, unschedulable=True)
        stage.world.bind("important", "n2")
        await stage.placed("modest", within_s=20)

    on_stage(main)
