"""The faults of our matrix that befall who leads, as far as virtual time goes: kills, partitions, clocks, leases meddled with.

``test_fault_matrix.py`` says what must hold after each; what takes real processes is in ``test_processes.py``.
"""

import asyncio

import pytest

from tests.regressions.churning import churn
from tools.simtest.stage import LOST, on_stage

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_f32_killed_at_any_moment_and_restarted(seed):
    async def main(stage):
        churning = asyncio.ensure_future(churn(stage, 60))
        for number in range(12):
            await asyncio.sleep(1.0 + (seed * 37 + number * 101) % 97 / 40)
            await stage.members[number % 2].kill()
        await churning

    on_stage(main, members=2, seed=seed)


def test_f33_work_in_progress_ends_before_the_lease_is_released():
    async def main(stage):
        stage.world.node("n1")
        stage.spoil("POST binding", hold_s=3.0)
        stage.world.pod("p")
        await asyncio.sleep(1)
        await stage.members[0].terminate()
        released = [one.at_s for one in stage.requests("PUT", "/kube-scheduler") if not one.holder and one.code == 200]
        assert stage.node_of("p") == "n1"
        bound = next(one.at_s for one in stage.history("p") if one.document["spec"].get("nodeName"))
        assert bound <= released[0]

    on_stage(main)


@pytest.mark.parametrize("hold_s", [0.2, 30.0])
def test_f33_events_are_flushed_for_at_most_a_second_after_the_release(hold_s):
    async def main(stage):
        stage.world.node("n1")
        await asyncio.sleep(3)
        stage.spoil("POST events", hold_s=hold_s)
        names = [f"p{number}" for number in range(6)]
        for name in names:
            stage.world.pod(name, cpu="100m")
        await stage.placed(*names)
        begin = stage.now
        await stage.members[0].terminate()
        took = stage.now - begin
        (released,) = [one.at_s for one in stage.requests("PUT", "/kube-scheduler") if not one.holder]
        assert released - begin < 0.1
        told = [one for one in stage.api.items("/apis/events.k8s.io/v1/events") if one["reason"] == "Scheduled"]
        if hold_s < 1:
            assert (len(told), took < 1.0) == (6, True)
        else:
            assert (told, took) == ([], pytest.approx(1.0, abs=0.1))

    on_stage(main)


def test_f33_a_standby_takes_over_within_five_seconds_of_a_release():
    async def main(stage):
        stage.world.node("n1")
        await asyncio.sleep(20)
        leading = next(member for member in stage.members if member.live.leads)
        await leading.terminate()
        stage.world.pod("p")
        await stage.placed("p", within_s=5)

    on_stage(main, members=2)


def test_f32_a_standby_takes_over_within_twenty_seconds_of_a_kill():
    async def main(stage):
        stage.world.node("n1")
        await asyncio.sleep(20)
        leading = next(member for member in stage.members if member.live.leads)
        await leading.kill()
        stage.world.pod("p")
        took = stage.now
        await stage.placed("p", within_s=20)
        return stage.now - took

    assert on_stage(main, members=2) > 5


def test_f34_a_partitioned_leader_stops_before_another_starts():
    async def main(stage):
        stage.world.node("n1", cpu=60, pods=100)
        await asyncio.sleep(5)
        leading = next(member for member in stage.members if member.live.leads)
        actor = leading.actor
        stage.network.cut_off(actor)
        for number in range(20):
            stage.world.pod(f"p{number}")
            await asyncio.sleep(1)
        await stage.placed(*(f"p{number}" for number in range(20)), within_s=20)
        assert (actor, "lost its lease") in [(who, how) for _, who, how in stage.recording.exits]

    on_stage(main, members=2)


def test_f35_a_delayed_bind_is_rejected_after_another_leader_has_bound():
    async def main(stage):
        stage.world.node("n1", cpu=8)
        stage.world.node("n2", cpu=8)
        await asyncio.sleep(5)
        leading = next(member for member in stage.members if member.live.leads)
        actor = leading.actor
        stage.spoil("POST binding", error=LOST, late_s=30.0, times=1)
        stage.world.pod("p")
        await stage.until(lambda: stage.binds("p"))
        stage.network.cut_off(actor)
        await stage.placed("p", within_s=25)
        await asyncio.sleep(20)
        frozen, other = (one for one in stage.binds("p") if one.code)  # the rest never got there
        assert (frozen.actor, frozen.code, other.code) == (actor, 409, 201)
        assert other.actor != actor

    on_stage(main, members=2)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0, 86400.0 * 365])
def test_f36_the_time_of_day_may_jump(jump_s):
    async def main(stage):
        stage.world.node("n1", cpu=60, pods=100)
        for number in range(10):
            stage.world.pod(f"p{number}")
            await asyncio.sleep(3)
            stage.wall_offset_s = jump_s * (number % 2)
        await stage.placed(*(f"p{number}" for number in range(10)))
        assert [member.starts for member in stage.members] == [1, 1]

    on_stage(main, members=2)


def test_f37_a_scheduler_whose_loop_dies_does_not_keep_its_lease():
    async def main(stage):
        stage.world.node("n1")
        await asyncio.sleep(5)
        leading = next(member for member in stage.members if member.live.leads)

        def dies():
            raise SystemError("the loop is gone")

        leading.live.loop._turn = dies
        stage.world.pod("p")
        await stage.placed("p", within_s=10)
        died = [how for _, who, how in stage.recording.exits if how.startswith("crashed")]
        assert "SystemError" in died[0] or "unhandled errors" in died[0]
        stage.recording.exits.clear()  # this crash was asked for

    on_stage(main, members=2)


LEASES = {
    "deleted": ("DELETE", None),
    "stolen": ("PATCH", {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}}),
    "garbled": ("PATCH", {"spec": {"holderIdentity": "", "renewTime": None, "leaseTransitions": 9999}}),
}


@pytest.mark.parametrize(("method", "body"), LEASES.values(), ids=LEASES)
def test_f38_a_lease_that_another_client_modifies(method, body):
    async def main(stage):
        stage.world.node("n1")
        await asyncio.sleep(5)
        stage.api.do(method, LEASE, body, media_type="application/merge-patch+json")
        await asyncio.sleep(3)
        stage.world.pod("p")
        await stage.placed("p", within_s=25)

    on_stage(main, members=2)
