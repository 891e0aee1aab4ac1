"""The core faults of our matrix, one by one, each on a whole scheduler in virtual time; the numbers are the matrix's.

After each fault, ``on_stage`` checks that the oracle finds nothing in the history, that the scheduler's state is the API's,
that nothing is left over, and that no pod needed the periodic flush of pending pods. A test adds only what is its own.
Here are F1 to F19, the API server and the way to it. Other files: ``test_faults_inside.py`` (F20 to F31, F41, F42),
``test_faults_of_leaders.py`` (F32 to F38), ``test_further_faults.py`` (what is not core), and what takes real processes:
``test_processes.py``, ``test_process_faults.py``, ``test_server_faults.py``.
"""

import asyncio

import pytest

from moorage.errors import ClusterError
from tests.regressions.churning import churn
from tools.simtest.network import Rule
from tools.simtest.stage import LOST, on_stage

# -- watches and lists -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("", id="F1 closed cleanly"),
        pytest.param("garbled", id="F2 cut in the middle of a line"),
        pytest.param("connection reset", id="F2 reset"),
        pytest.param("expired", id="F4 410 as an event"),
    ],
)
def test_watches_that_end_repeatedly(how):
    async def main(stage):
        churning = asyncio.ensure_future(churn(stage, 20))
        for _ in range(30):
            await asyncio.sleep(0.6)
            for link in stage.links():
                link.cut(how)
        await churning

    on_stage(main)


def test_f03_a_silent_watch_is_detected_within_45_seconds():
    async def main(stage):
        stage.world.node("n1")
        await asyncio.sleep(1)
        for link in stage.links():
            link.stalled = True
        stage.world.pod("p")
        await asyncio.sleep(30)
        for link in stage.links():
            link.stalled = False  # a new connection would hear; the old one stays as dead as it is
            link.begin()
        await stage.placed("p", within_s=15.5)

    on_stage(main)


def test_f04_an_expired_resource_version_at_the_start_of_a_watch():
    async def main(stage):
        stage.network.rules.append(
            Rule(lambda sent: sent.what == "WATCH pods", error=ClusterError("too old", 410, "Expired"), times=3)
        )
        for link in stage.links("pods"):
            link.cut("")
        await churn(stage, 10)

    on_stage(main)


def test_f06_duplicate_events():
    async def main(stage):
        for link in stage.links():
            link.twice = 1.0
        await churn(stage, 20)

    on_stage(main)


@pytest.mark.parametrize("late", ["pods", "nodes", "namespaces"])
def test_f07_kinds_arrive_in_any_order(late):
    async def main(stage):
        for link in stage.links(late):
            link.delay_s = 3.0
        churning = asyncio.ensure_future(churn(stage, 20))
        for _ in range(5):
            await asyncio.sleep(3)
            stage.world.delete_node("n1")
            await asyncio.sleep(0.5)
            stage.world.node("n1")
        await churning

    on_stage(main)


def test_f08_lost_events_are_recovered_by_the_next_list():
    async def main(stage):
        churning = asyncio.ensure_future(churn(stage, 25))
        for _ in range(4):
            for link in stage.links():
                link.stalled = True
            await asyncio.sleep(3)
            for link in stage.links():
                link.stalled = False
                link.cut("expired")
            await asyncio.sleep(3)
        await churning

    on_stage(main)


COLLAPSES = {
    "bound to bound": ("n1", "n2"),
    "bound to pending": ("n1", ""),
    "pending to bound": ("", "n2"),
    "pending to pending": ("", ""),
}


@pytest.mark.parametrize(("before", "after"), COLLAPSES.values(), ids=COLLAPSES)
def test_f09_a_recreated_pod_seen_as_an_update(before, after):
    async def main(stage):
        for name in ("n1", "n2"):
            stage.world.node(name, unschedulable=True)
        stage.world.pod("p")
        if before:
            stage.world.bind("p", before)
        await asyncio.sleep(3)
        for link in stage.links("pods"):
            link.delay_s, link.collapses = 1.0, True
        stage.world.recreate_pod("p")
        if after:
            stage.world.bind("p", after)
        await asyncio.sleep(3)
        uid = stage.pod("p")["metadata"]["uid"]
        assert (stage.scheduler.cluster.node_of(uid) or "") == after
        stage.world.node("n1", unschedulable=False)
        await stage.placed("p", within_s=11)

    on_stage(main)


def test_f10_a_list_of_an_older_version_is_rejected():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        for name in "abcdef":
            stage.world.pod(name)
        await stage.until(lambda: any(stage.node_of(name) for name in "abcdef"))
        stage.network.lagging.update(pods=8, nodes=3)
        for link in stage.links():
            link.cut("expired")
        await asyncio.sleep(30)
        assert sum(bool(stage.node_of(name)) for name in "abcdef") == 1
        assert any("older than" in line for line in stage.recording.reports)

    on_stage(main)


# -- the API server in trouble -----------------------------------------------------------------------------------------


def test_f11_no_api_server_at_the_start_and_then_for_ten_minutes():
    async def main(stage):
        member = stage.members[0]
        stage.network.down.update(f"a-{number}" for number in range(1, 1000))
        stage.start()
        await asyncio.sleep(30)
        stage.network.down.clear()
        stage.world.node("n1")
        stage.world.pod("first")
        await stage.placed("first", within_s=60)
        stage.network.down.update(f"a-{number}" for number in range(1, 1000))
        stage.network.cut_off(member.actor)
        stage.world.pod("second")
        await asyncio.sleep(600)
        stage.network.down.clear()
        await stage.placed("second", within_s=75)
        assert {how for _, _, how in stage.recording.exits} == {"lost its lease"}

    on_stage(main, begun=False)


@pytest.mark.parametrize(
    ("what", "askers"), [("POST binding", 2), ("PATCH status", 3), ("WATCH pods", 1), ("GET pods", 1)]
)  # fmt: skip
def test_f12_retry_after_is_honoured(what, askers):
    busy = ClusterError("429 Too Many Requests", 429, "TooManyRequests", 2.0)

    async def main(stage):
        stage.world.node("n1", cpu=2)
        stage.network.streams = what != "GET pods"
        rule = Rule(lambda sent: sent.what == what and not sent.path.rpartition("/")[2].startswith("p"), error=busy)
        stage.network.rules.append(rule)
        for number in range(3):
            stage.world.pod(f"p{number}")
        if what.endswith(" pods"):
            rule.takes = lambda sent: sent.what == what and sent.path.endswith("/pods")
            for link in stage.links("pods"):
                link.cut("expired")
        begin, seen = stage.now, stage.network.spoiled
        await asyncio.sleep(30)
        tries = stage.network.spoiled - seen
        # Each waits as long as the server said before it repeats a request; new attempts at most double the requests.
        assert askers <= tries <= 2 * askers * (stage.now - begin) / 2.0

    on_stage(main)


@pytest.mark.parametrize("seconds", [4.0, 60.0, 300.0])
def test_f13_a_delayed_bind_does_not_delay_others(seconds):
    async def main(stage):
        stage.world.node("n1", cpu=50, pods=100)
        stage.network.rules.append(Rule(lambda sent: sent.path.endswith("/slow/binding"), hold_s=seconds))
        stage.world.pod("slow")
        await asyncio.sleep(0.5)
        for number in range(40):
            stage.world.pod(f"p{number}")
        await stage.placed(*(f"p{number}" for number in range(40)), within_s=2)

    on_stage(main)


@pytest.mark.parametrize("error", [LOST, ClusterError("504", 504, "Timeout")], ids=["reset", "504"])
@pytest.mark.parametrize("watch", ["prompt", "silent"])
def test_f14_an_applied_bind_with_a_lost_reply(error, watch):
    async def main(stage):
        for name in ("n1", "n2"):
            stage.world.node(name, cpu=1)
        stage.spoil("POST binding", error=error, after=True)
        stage.world.pod("first")
        stage.world.pod("second")
        if watch == "silent":
            await asyncio.sleep(0.001)
            for link in stage.links("pods"):
                link.stalled = True
        await stage.placed("first", "second", within_s=10)
        await asyncio.sleep(10)
        assert [len(stage.binds(name)) for name in ("first", "second")] == [1, 1]

    on_stage(main)


# 1.37 sends a bind again after a conflict, three times.
@pytest.mark.parametrize(("release", "most"), [("1.36", 2), ("1.37", 4)])
def test_f15_a_pod_bound_first_by_another_is_released(release, most):
    async def main(stage):
        for name in ("n1", "n2"):
            stage.world.node(name)
        await asyncio.sleep(1)
        for link in stage.links("pods"):
            link.delay_s = 1.0
        stage.spoil("POST binding", hold_s=1.0)
        stage.world.pod("p")
        await asyncio.sleep(1.5)
        stage.world.bind("p", "n2")
        await asyncio.sleep(60)
        assert stage.node_of("p") == "n2"
        assert len(stage.binds("p")) <= most

    on_stage(main, release=release)


def test_f16_a_pod_recreated_during_its_bind():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.spoil("POST binding", hold_s=1.0, times=1)
        stage.world.pod("p")
        await asyncio.sleep(0.5)
        old = stage.pod("p")["metadata"]["uid"]
        stage.world.recreate_pod("p")
        await stage.placed("p")
        assert stage.pod("p")["metadata"]["uid"] != old
        assert {one.code for one in stage.binds("p") if one.uid == old} <= {409, 404, 0}

    on_stage(main)


@pytest.mark.parametrize("how", [{"error": ClusterError("500", 500)}, {"hold_s": 10.0}], ids=["failing", "slow"])
def test_f19_unaccepted_events_do_not_delay_binds(how):
    async def main(stage):
        stage.world.node("n1", cpu=60, pods=100)
        stage.spoil("POST events", "PATCH events", **how)
        for number in range(50):
            stage.world.pod(f"p{number}")
        await stage.placed(*(f"p{number}" for number in range(50)), within_s=3)

    on_stage(main)
