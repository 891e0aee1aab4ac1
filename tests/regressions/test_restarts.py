"""F32, D2: a scheduler that is killed at any step and restarted places the rest where it would have placed them anyway."""

import asyncio

import pytest

from tools.simtest.stage import on_stage

PODS = 12


def placements(kill_after=None):
    """Return where pods end up that come one by one; the scheduler is killed once so many of them have a node."""

    async def main(stage):
        for number in range(4):
            stage.world.node(f"n{number}", cpu=4, zone="ab"[number % 2])
        for number in range(PODS):  # at first, as ties are broken by UIDs, which are drawn in the order of creation
            stage.world.pod(f"p{number}", cpu="250m", schedulingGates=[{"name": "wait"}])
        stage.start()
        await asyncio.sleep(20)
        for number in range(PODS):
            stage.world.ungate(f"p{number}")
            if number == kill_after:
                await stage.members[0].kill()
            await stage.placed(f"p{number}", within_s=60)
        return [(one["metadata"]["name"], one["spec"]["nodeName"]) for one in stage.world.pods()]

    return on_stage(main, begun=False)


@pytest.mark.parametrize("kill_after", range(0, PODS, 3))
def test_f32_a_kill_changes_no_placement(kill_after):
    expected = placements()
    assert len({node for _, node in expected}) > 1
    assert placements(kill_after) == expected
