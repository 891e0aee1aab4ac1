"""``moorage run`` as processes that are killed, stopped, cut off and starved; how they are started is in ``processes.py``.

One test with kube-scheduler's own times runs where MOORAGE_LONG_TESTS is set.
"""

import asyncio
import os
import random
import resource
import signal

import pytest

from tests.regressions.processes import (
    FAST,
    LEASE_S,
    RELEASED_ONLY,
    RENEW_S,
    RETRY_S,
    SLACK_S,
    START_S,
    Proxy,
    in_place,
    two,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("number", "flags", "within_s"),
    [(signal.SIGKILL, FAST, LEASE_S + 2.2 * RETRY_S), (signal.SIGTERM, RELEASED_ONLY, 2.2 * RETRY_S + 0.5)],
    ids=["F32 kill", "F33 term"],
)
def test_a_standby_takes_over(number, flags, within_s, tmp_path):
    async def main(place):
        place.world.node("n1", cpu=4)
        leader, _ = await two(place, *flags)
        place.world.pod("first")
        await place.bound("first")
        await asyncio.sleep(2.0)  # the standby has listed everything by now
        leader.send_signal(number)
        place.world.pod("second")
        await place.bound("second", within_s=within_s + SLACK_S)
        if number == signal.SIGTERM:
            assert await asyncio.wait_for(leader.wait(), 10) == 0

    in_place(main, tmp_path)


@pytest.mark.skipif("MOORAGE_LONG_TESTS" not in os.environ, reason="takes a minute; set MOORAGE_LONG_TESTS to run it")
@pytest.mark.parametrize(("number", "within_s"), [(signal.SIGKILL, 20.0), (signal.SIGTERM, 5.0)], ids=["kill", "term"])
def test_a_standby_takes_over_within_the_documented_times(number, within_s, tmp_path):
    async def main(place):
        place.world.node("n1", cpu=4)
        leader, _ = await two(place)
        place.world.pod("first")
        await place.bound("first", within_s=30)
        await asyncio.sleep(5)
        leader.send_signal(number)
        place.world.pod("second")
        await place.bound("second", within_s=within_s)

    in_place(main, tmp_path)


def test_f32_killed_repeatedly(tmp_path):
    """MOORAGE_KILLS says how often; 500 by hand."""
    kills = int(os.environ.get("MOORAGE_KILLS", "2"))

    async def main(place):
        rng = random.Random(7)
        for name in ("n1", "n2", "n3"):
            place.world.node(name, cpu=40, pods=2000)
        names = []
        for _ in range(kills):
            for _ in range(8):
                names.append(f"p{len(names)}")
                place.world.pod(names[-1], cpu="50m")
            process = await place.scheduler("--leader-elect=false")
            await place.until(lambda log=process.log: '"Scheduling"' in log.read_text(), START_S)
            await asyncio.sleep(rng.uniform(0, 0.5))
            process.kill()
            await process.wait()
        await place.scheduler("--leader-elect=false")
        await place.bound(*names, within_s=30)

    in_place(main, tmp_path)


def test_f34_a_partitioned_leader_exits_and_another_takes_over(tmp_path):
    async def main(place):
        place.world.node("n1", cpu=4)
        async with Proxy(place.port) as proxy:
            leader = await place.scheduler(*FAST, port=proxy.port)
            await place.until(place.holder, START_S)
            first = place.holder()
            standby = await place.scheduler(*FAST)
            await place.until(lambda: "kube-scheduler" in standby.log.read_text(), START_S)
            await asyncio.sleep(2.0)  # the standby has listed everything by now
            proxy.cut()
            place.world.pod("p")
            assert await asyncio.wait_for(leader.wait(), RENEW_S + SLACK_S) == 1
            await place.bound("p", within_s=LEASE_S + SLACK_S)
            assert place.holder() not in {"", first}

    in_place(main, tmp_path)


def test_f35_a_leader_that_was_stopped_longer_than_its_lease_does_no_harm(tmp_path):
    async def main(place):
        place.world.node("n1", cpu=1)
        leader, _ = await two(place, *FAST)
        await asyncio.sleep(2.0)
        leader.send_signal(signal.SIGSTOP)
        place.world.pod("p")
        await place.bound("p", within_s=LEASE_S + SLACK_S)
        place.world.pod("q")
        first = place.holder()
        leader.send_signal(signal.SIGCONT)
        assert await asyncio.wait_for(leader.wait(), SLACK_S) == 1
        assert place.holder() == first
        assert place.node_of("q") == ""

    in_place(main, tmp_path)


def test_f02_f11_connections_that_break_and_a_server_that_is_not_there_yet(tmp_path):
    async def main(place):
        async with Proxy(place.port) as proxy:
            proxy.open = False
            process = await place.scheduler("--leader-elect=false", port=proxy.port)
            await asyncio.sleep(2)
            assert process.returncode is None
            place.world.node("n1", cpu=40, pods=110)
            proxy.open = True
            names = [f"p{number}" for number in range(30)]
            for name in names:
                place.world.pod(name)
                proxy.reset()
                await asyncio.sleep(0.05)
            await place.bound(*names, within_s=60)
            held = await settled(process)
            for _ in range(30):
                proxy.reset()
                await asyncio.sleep(0.05)
            place.world.pod("last")
            await place.bound("last", within_s=60)
            now = await settled(process)
            assert process.returncode is None
            assert "Traceback" not in process.log.read_text()
            assert [after <= before + 3 for after, before in zip(now, held, strict=True)] == [True, True]

    in_place(main, tmp_path)


async def settled(process):
    """Return what a process holds when that has not changed for 2 s: all watches are open again."""
    loop = asyncio.get_running_loop()
    held, since = holds(process), loop.time()
    async with asyncio.timeout(START_S):
        while loop.time() - since < 2:
            await asyncio.sleep(0.1)
            if (now := holds(process)) != held:
                held, since = now, loop.time()
    return held


def holds(process):
    """Return how many descriptors and threads a process has."""
    return [len(os.listdir(f"/proc/{process.pid}/{what}")) for what in ("fd", "task")]


def test_f33_work_in_progress_ends_before_the_process(tmp_path):
    async def main(place):
        place.world.node("n1", cpu=41, pods=110)
        process = await place.scheduler()  # a lease that a busy machine does not cost it meanwhile
        await place.until(place.holder, START_S)
        place.world.pod("first")
        await place.bound("first")
        names = [f"p{number}" for number in range(40)]
        for name in names:
            place.world.pod(name)
        await place.until(lambda: any(place.node_of(name) for name in names), 10)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert place.holder() == ""
        await place.scheduler()
        await place.bound(*names)

    in_place(main, tmp_path)


def test_f40_too_few_file_descriptors_do_not_end_the_process(tmp_path):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14))

    async def main(place):
        place.world.node("n1", cpu=4)
        process = await place.scheduler("--leader-elect=false", preexec_fn=few)
        await place.until(lambda: "Too many open files" in process.log.read_text(), START_S)
        await asyncio.sleep(1)
        assert process.returncode in {None, 1}
        assert "Traceback" not in process.log.read_text()
        await place.scheduler("--leader-elect=false")
        place.world.pod("p")
        await place.bound("p")

    in_place(main, tmp_path)
