"""The core faults of our matrix, one by one, each on a whole scheduler in virtual time; the numbers are the matrix's.

What must hold after each is the same: the oracle finds nothing in the history, the scheduler believes what the API says,
nothing is left over, and no pod was helped by the flush of old pods (``on_stage`` looks). A test says only what is its own.
Faults that only a process can have are in ``test_processes.py`` and ``test_process_faults.py``.
"""

import asyncio
import itertools

import pytest

from moorage.cycle.extenders import Extender
from moorage.errors import ClusterError
from moorage.framework.effects import Call
from moorage.framework.verdicts import Wait
from moorage.testing.memory_cluster import MemoryCluster
from moorage.testing.simtest.network import Rule
from moorage.testing.simtest.staging import LOST, on_stage
from moorage.testing.simtest.unruly import RAISED
from moorage.testing.virtual_time import run_virtually
from tests.runtime.test_asking import Scripted, everything
from tests.runtime.test_loop import node, placed, pod, running

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


async def churn(stage, seconds, *, every_s=0.3):
    """Pods come and go for a while, on three nodes."""
    for number in range(3):
        stage.world.node(f"n{number}", zone="ab"[number % 2])
    end, names = stage.now + seconds, itertools.count()
    while stage.now < end:
        stage.world.pod(f"churn-{next(names)}", cpu="500m")
        pods = stage.world.pods()
        if len(pods) > 15:
            stage.world.delete_pod(pods[0]["metadata"]["name"], grace=0)
        await asyncio.sleep(every_s)


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
def test_watches_that_end_again_and_again(how):
    async def main(stage):
        churning = asyncio.ensure_future(churn(stage, 20))
        for _ in range(30):
            await asyncio.sleep(0.6)
            for link in stage.links():
                link.cut(how)
        await churning

    on_stage(main)


def test_f03_a_watch_that_is_silent_is_noticed_within_45_seconds():
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


def test_f04_history_that_is_gone_at_the_start_of_a_watch():
    async def main(stage):
        stage.network.rules.append(
            Rule(lambda sent: sent.what == "WATCH pods", error=ClusterError("too old", 410, "Expired"), times=3)
        )
        for link in stage.links("pods"):
            link.cut("")
        await churn(stage, 10)

    on_stage(main)


def test_f06_events_that_come_twice():
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


def test_f08_events_that_are_lost_are_found_in_the_next_list():
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
def test_f09_a_namesake_seen_as_an_update(before, after):
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


def test_f10_a_list_that_goes_back_in_time_is_refused():
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


@pytest.mark.parametrize("what", ["POST binding", "PATCH status", "WATCH pods"])
def test_f12_retry_after_is_honoured(what):
    busy = ClusterError("429 Too Many Requests", 429, "TooManyRequests", 2.0)

    async def main(stage):
        stage.world.node("n1", cpu=2)
        stage.spoil(what, error=busy)
        begin, asked = stage.now, stage.recording.entries
        for number in range(3):
            stage.world.pod(f"p{number}")
        if what == "WATCH pods":
            for link in stage.links("pods"):
                link.cut("expired")
        seen = stage.network.spoiled
        await asyncio.sleep(30)
        tries = stage.network.spoiled - seen
        # Three pods at most, each asking again no sooner than it was told to.
        assert 3 <= tries <= 3 * (stage.now - begin) / 2.0 + 6
        assert asked

    on_stage(main)


@pytest.mark.parametrize("seconds", [4.0, 60.0, 300.0])
def test_f13_a_bind_that_is_held_holds_up_nobody_else(seconds):
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
def test_f14_a_bind_that_is_done_and_whose_reply_is_lost(error, watch):
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


def test_f15_a_pod_that_another_bound_first_is_let_go():
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
        assert len(stage.binds("p")) <= 2

    on_stage(main)


def test_f16_a_pod_replaced_while_it_was_being_bound():
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
def test_f19_events_that_nobody_takes_cost_no_bind_its_time(how):
    async def main(stage):
        stage.world.node("n1", cpu=60, pods=100)
        stage.spoil("POST events", "PATCH events", **how)
        for number in range(50):
            stage.world.pod(f"p{number}")
        await stage.placed(*(f"p{number}" for number in range(50)), within_s=3)

    on_stage(main)


# -- the cluster changes under one's hands -----------------------------------------------------------------------------


def at_phase(phase, act):
    """Return a plugin that calls ``act`` once, when the pod "p" comes to a phase."""

    class Acts:
        name = "Acts"
        done = False

        def _now(self, at, pod):
            if at == phase and pod.name == "p" and not self.done:
                self.done = True
                act()

        def pre_enqueue(self, pod):
            self._now("PreEnqueue", pod)

        def pre_filter(self, pod, snapshot):
            self._now("PreFilter", pod)

        def filter_node(self, state, node):
            return None

        def pre_score(self, pod, snapshot, feasible):
            self._now("PreScore", pod)

        def reserve(self, state, pod, node):
            self._now("Reserve", pod)

        def unreserve(self, state, pod, node):
            self._now("Unreserve", pod)

        def permit(self, state, pod, node):
            self._now("Permit", pod)
            self.waited = getattr(self, "waited", False) or pod.name != "p" or phase != "waiting"
            answer, self.waited = (None if self.waited else Wait(60.0)), True
            return answer

        def pre_bind(self, state, pod, node):
            self._now("PreBind", pod)
            return [Call(lambda: asyncio.sleep(1.0), lambda: None)]

        def post_bind(self, state, pod, node):
            self._now("PostBind", pod)

    return Acts


PHASES = ["PreEnqueue", "PreFilter", "PreScore", "Reserve", "Permit", "waiting", "PreBind", "PostBind"]
CHANGES = {
    "F20 deleted": lambda world: world.delete_pod("p", grace=0),
    "F16 made anew": lambda world: world.recreate_pod("p"),
    "F21 relabelled": lambda world: world.change_pod("p", labels={"app": "db"}),
    "F15 bound by another": lambda world: world.bind("p", "n2"),
    "F22 its node goes": lambda world: world.delete_node("n1"),
    "F22 its node comes back smaller": lambda world: (world.delete_node("n1"), world.node("n1", cpu=1)),
    "F23 its node is closed": lambda world: world.node("n1", cpu=4, unschedulable=True),
    "F24 a foreign pod takes the room": lambda world: world.pod("x", cpu="3", nodeName="n1", schedulerName="x"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("phase", PHASES)
def test_something_changes_in_the_middle(phase, change):
    stages = []
    plugin = at_phase(phase, lambda: change(stages[0].world))

    async def main(stage):
        stages.append(stage)
        stage.world.node("n1", cpu=4)
        await asyncio.sleep(0.1)
        stage.world.pod("p", cpu="2")
        await asyncio.sleep(1.5 if phase == "waiting" else 0.5)
        if phase == "waiting":
            change(stage.world)
            await asyncio.sleep(0.5)
            for waiting in list(stage.scheduler.waiting()):
                waiting.allow("Acts")
        stage.world.node("n2", cpu=4)
        stage.world.pod("next", cpu="4")
        await asyncio.sleep(30)

    on_stage(main, plugin)


# -- plugins -----------------------------------------------------------------------------------------------------------

POINTS = [
    "hint", "pre_enqueue", "pre_filter", "filter", "score", "reserve", "unreserve", "permit", "pre_bind", "post_bind",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_f25_a_plugin_raises_whatever_there_is(point):
    async def main(stage):
        stage.world.node("n1", cpu=20, pods=50)
        for number, kind in enumerate(RAISED):
            stage.mood.rng.choice = lambda kinds, kind=kind: kind if kinds is RAISED else kinds[0]
            stage.mood.raises = {point: 0.5}
            stage.world.pod(f"p{number}")
            await asyncio.sleep(2)
            stage.world.touch_node("n1")
        stage.mood.calm()
        stage.world.touch_node("n1")
        await stage.placed(*(f"p{number}" for number in range(len(RAISED))), within_s=15)
        assert stage.members[0].starts == 1

    on_stage(main)


@pytest.mark.parametrize("point", [point for point in POINTS if point not in {"hint", "unreserve", "post_bind", "pre_filter"}])
def test_f27_a_plugin_answers_nonsense(point):
    async def main(stage):
        stage.world.node("n1", cpu=20, pods=50)
        stage.mood.nonsense = {point: 0.7}
        for number in range(12):
            stage.world.pod(f"p{number}")
            await asyncio.sleep(1)
        stage.mood.calm()
        stage.world.touch_node("n1")
        await stage.placed(*(f"p{number}" for number in range(12)), within_s=15)

    on_stage(main)


class Permits:
    """Holds every pod for the time its name says, in seconds."""

    name = "Permits"

    def permit(self, state, pod, node):
        _, _, seconds = pod.name.partition("-")
        return Wait(float(seconds)) if seconds else None


@pytest.mark.parametrize("first", ["allow", "reject"])
def test_f28_allowing_and_rejecting_at_once_has_one_outcome(first):
    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p-60")
        await stage.until(lambda: list(stage.scheduler.waiting()))
        (waiting,) = stage.scheduler.waiting()
        acts = [lambda: waiting.allow("Permits"), lambda: waiting.reject("Permits", "no")]
        for act in acts if first == "allow" else reversed(acts):
            act()
        await asyncio.sleep(1)
        assert len(stage.binds("p-60")) <= 1
        stage.world.delete_pod("p-60", grace=0)

    on_stage(main, Permits)


def test_f28_waits_end_at_their_time_and_after_fifteen_minutes_at_most():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("p-5000")
        await stage.until(lambda: list(stage.scheduler.waiting()))

        def told():
            return "after waiting 15m0s at plugin Permits" in str(stage.pod("p-5000")["status"].get("conditions"))

        assert await stage.until(told, within_s=1000) == pytest.approx(900, abs=1)
        stage.world.delete_pod("p-5000", grace=0)
        stage.scheduler.queue.incoming.clear()

    on_stage(main, Permits)


def test_f28_a_pod_deleted_while_it_waits_frees_its_room_at_once():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("p-600")
        await stage.until(lambda: list(stage.scheduler.waiting()))
        stage.world.pod("next")
        await asyncio.sleep(3)
        stage.world.delete_pod("p-600", grace=0)
        await stage.placed("next", within_s=3)

    on_stage(main, Permits)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_f29_a_pre_bind_that_fails_is_undone_whole(failing):
    calls = []

    class Steps:
        name = "Steps"

        def pre_bind(self, state, pod, node):
            return [Call(lambda at=at: self._do(at), lambda: None) for at in range(3)]

        async def _do(self, at):
            calls.append(at)
            if at == failing and calls.count(at) == 1:
                raise RuntimeError("step failed")

    async def main(stage):
        stage.world.node("n1")
        stage.mood.raises = {"unreserve": 1.0}
        stage.world.pod("p")
        await stage.placed("p")
        assert calls == [*range(failing + 1), 0, 1, 2]

    on_stage(main, Steps)


@pytest.mark.parametrize("ignorable", [True, False])
def test_f30_an_extender_that_fails_or_answers_nonsense(ignorable):
    answers = iter([TimeoutError("slow"), {"NodeNames": ["nowhere"]}, "html", {"NodeNames": 5}, [1], {"Error": "no"}])

    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        asker = Scripted(lambda body: next(answers, None) or everything(body))
        asked = (Extender(0, "http://e/", filter_verb="f", node_cache_capable=True, ignorable=ignorable),)
        async with running(cluster, asked=asked, extenders=asker) as loop:
            await asyncio.sleep(90)
            return placed(cluster), len(asker.asked), loop.attempts

    after, asked, attempts = run_virtually(main())
    assert after == {"p1": "n1"}
    assert asked == attempts == (1 if ignorable else 7)


# -- processes, as far as virtual time goes ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_f32_killed_at_any_moment_and_started_anew(seed):
    async def main(stage):
        churning = asyncio.ensure_future(churn(stage, 60))
        for number in range(12):
            await asyncio.sleep(1.0 + (seed * 37 + number * 101) % 97 / 40)
            await stage.members[number % 2].kill()
        await churning

    on_stage(main, members=2, seed=seed)


def test_f33_work_under_way_ends_before_the_lease_is_given_up():
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


def test_f34_a_leader_that_reaches_nobody_stops_before_another_starts():
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
def test_f38_a_lease_that_somebody_meddles_with(method, body):
    async def main(stage):
        stage.world.node("n1")
        await asyncio.sleep(5)
        stage.api.do(method, LEASE, body, media_type="application/merge-patch+json")
        await asyncio.sleep(3)
        stage.world.pod("p")
        await stage.placed("p", within_s=25)

    on_stage(main, members=2)


def test_f41_a_storm_of_updates_while_pods_are_in_flight():
    async def main(stage):
        for number in range(10):
            stage.world.node(f"n{number}")
        stage.world.pod("p-30")
        await asyncio.sleep(1)
        for number in range(10_000):
            stage.world.api.store.change(*node_kind(stage, number % 10), beat(number))
            if number % 500 == 0:
                await asyncio.sleep(0.1)
        stage.world.pod("plain")
        await stage.placed("plain", within_s=10)
        stage.world.delete_pod("p-30", grace=0)
        await asyncio.sleep(1)
        assert stage.scheduler.queue.logged_events == 0

    on_stage(main, Permits)


def node_kind(stage, number):
    from moorage.apiserver.kinds import find_kind

    return find_kind("nodes"), "", f"n{number}"


def beat(number):
    def edit(document):
        document["metadata"].setdefault("annotations", {})["beat"] = str(number)

    return edit


@pytest.mark.parametrize("victims", [1, 3])
@pytest.mark.parametrize("gone", ["before", "during", "after"])
def test_f42_victims_that_go_by_themselves(victims, gone):
    async def main(stage):
        stage.world.node("n1", cpu=victims)
        for number in range(victims):
            stage.world.pod(f"v{number}", priorityClassName="low")
        await stage.placed(*(f"v{number}" for number in range(victims)))
        if gone == "before":
            for link in stage.links("pods"):
                link.delay_s = 0.5
            stage.world.delete_pod(f"v{victims - 1}", grace=0)
        if gone == "during":
            stage.spoil("DELETE pods", hold_s=1.0)
        stage.world.pod("important", cpu=str(victims), priorityClassName="high")
        await asyncio.sleep(0.5 if gone == "during" else 1.2)
        if gone != "before":
            stage.world.delete_pod(f"v{victims - 1}", grace=0)
        await stage.placed("important", within_s=20)

    on_stage(main)


def test_f42_evictions_that_fail_are_tried_again():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        stage.spoil("DELETE pods", error=ClusterError("500", 500), times=4)
        stage.world.pod("important", priorityClassName="high")
        await stage.placed("important", within_s=30)

    on_stage(main)
