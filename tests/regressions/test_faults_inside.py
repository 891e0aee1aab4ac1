"""The faults of our matrix inside a cluster and a scheduler; ``test_fault_matrix.py`` says what must hold after each.

Objects change in the middle of an attempt, plugins and extenders misbehave, updates come in storms, and preemptions race.
"""

import asyncio
import itertools
import os

import pytest

from moorage.core.extenders.consultation import HTTPExtender
from moorage.errors import ClusterError
from moorage.framework.effects import Call
from moorage.framework.points import PostFilterResult
from moorage.framework.verdicts import Code, Hold, Wait
from moorage.testing.memory_cluster import MemoryCluster
from moorage.testing.virtual_time import run_virtually
from tests.live.runtime.test_asking import Scripted, everything
from tests.live.runtime.test_loop import node, placed, pod, running
from tools.simtest.recording import AttemptRecord
from tools.simtest.stage import on_stage
from tools.simtest.unruly_plugin import RAISED

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
    "F16 recreated": lambda world: world.recreate_pod("p"),
    "F21 relabelled": lambda world: world.change_pod("p", labels={"app": "db"}),
    "F15 bound by another": lambda world: world.bind("p", "n2"),
    "F22 its node goes": lambda world: world.delete_node("n1"),
    "F22 its node comes back smaller": lambda world: (world.delete_node("n1"), world.node("n1", cpu=1)),
    "F23 its node is closed": lambda world: world.node("n1", cpu=4, unschedulable=True),
    "F24 a foreign pod takes the room": lambda world: world.pod("x", cpu="3", nodeName="n1", schedulerName="x"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("phase", PHASES)
def test_objects_change_during_an_attempt(phase, change):
    stages, changed = [], []

    def act():
        changed.append(phase)
        change(stages[0].world)

    plugin = at_phase(phase, act)

    async def main(stage):
        stages.append(stage)
        stage.world.node("n1", cpu=4)
        if phase == "PreScore":  # which is asked only where there is a choice
            stage.world.node("n0", cpu=4)
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
        assert changed or phase == "waiting"

    on_stage(main, plugin)


@pytest.mark.parametrize("phase", PHASES)
def test_f20_resources_of_a_deleted_pod_are_free_within_a_second(phase):
    stages, begun = [], []

    def delete():
        stages[0].world.delete_pod("p", grace=0)
        begun.append(stages[0].now)

    async def main(stage):
        stages.append(stage)
        for name in ("n1", "n2"):  # where there is a choice, PreScore is asked
            stage.world.node(name, cpu=4)
        await asyncio.sleep(0.1)
        stage.world.pod("p", cpu="4")
        await asyncio.sleep(0.5 if phase == "waiting" else 0)
        if phase == "waiting":
            delete()
        await stage.until(lambda: begun)
        free_after_s = 0.1  # news takes a moment; what is being bound is taken note of by then
        await asyncio.sleep(free_after_s)
        assert not any(stage.scheduler.snapshot.node(name).pods for name in ("n1", "n2"))
        for name in ("one", "other"):
            stage.world.pod(name, cpu="4")
        await stage.placed("one", "other", within_s=1)

    on_stage(main, at_phase(phase, delete))


# -- plugins -----------------------------------------------------------------------------------------------------------

POINTS = [
    "hint", "pre_enqueue", "pre_filter", "filter", "score", "reserve", "unreserve", "permit", "pre_bind", "post_bind",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_f25_a_plugin_raises_any_exception(point):
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


def raising(point, kind):
    """Return a plugin that raises at a point for the pod "bad", and keeps out of the way of others."""

    def method(self, *given):
        about = [getattr(one, "name", one) for one in given]
        if "bad" in about:
            raise kind(f"bad in {point}")
        return {"filter": (), "normalize": None, "pre_filter": "good", "pre_score": "good"}.get(point)

    methods = {point: method}
    if point in {"filter", "score", "normalize"}:
        before = "pre_filter" if point == "filter" else "pre_score"
        methods[before] = lambda self, pod, *given: pod.name
    if point == "score":
        methods[point] = lambda self, state, nodes: nodes.zeros() if state != "bad" else method(self, state)
    if point == "normalize":
        methods["score"] = lambda self, state, nodes: nodes.zeros()
        methods[point] = lambda self, state, scores: scores if state != "bad" else method(self, state)
    if point == "post_filter":
        methods["filter_node"] = lambda self, state, node: Hold.because("no") if state == "bad" else None
        methods["pre_filter"] = lambda self, pod, snapshot: pod.name
        methods[point] = lambda self, pod, attempt: method(self, pod) or PostFilterResult(Code.UNSCHEDULABLE)
    if point == "pre_bind":
        methods[point] = lambda self, state, pod, node: method(self, pod) or ()
    if point in {"reserve", "unreserve"}:
        quiet = {"reserve": lambda self, *given: None, "unreserve": lambda self, *given: None}
        methods = {**quiet, **methods}
    if point == "unreserve":
        methods["permit"] = lambda self, state, pod, node: Hold.because("no") if pod.name == "bad" else None
    return type("Raising", (), {"name": "Raising", **methods})


EVERYWHERE = [
    "pre_enqueue", "pre_filter", "filter", "post_filter", "pre_score", "score", "normalize", "reserve", "unreserve", "permit",
    "pre_bind", "post_bind",
]  # fmt: skip


def each_with_two_kinds():
    """Return each point with two kinds of exceptions in rotation; with MOORAGE_LONG_TESTS with all of them."""
    if os.environ.get("MOORAGE_LONG_TESTS"):
        return list(itertools.product(EVERYWHERE, RAISED))
    return [(point, RAISED[(2 * at + more) % len(RAISED)]) for at, point in enumerate(EVERYWHERE) for more in (0, 1)]


@pytest.mark.parametrize(("point", "kind"), each_with_two_kinds())
def test_f25_a_plugin_that_always_raises_for_one_pod_blocks_no_other(point, kind):
    async def main(stage):
        for name in ("n1", "n2"):
            stage.world.node(name, cpu=20, pods=50)
        stage.world.pod("bad", priorityClassName="high")
        await asyncio.sleep(0.1)
        for number in range(10):
            stage.world.pod(f"p{number}")
        await stage.placed(*(f"p{number}" for number in range(10)), within_s=1)
        await asyncio.sleep(30)
        assert bool(stage.node_of("bad")) == (point == "post_bind")
        assert stage.members[0].starts == 1
        assert len([one for one in stage.recording.entries if isinstance(one, AttemptRecord)]) < 40  # it backs off
        stage.world.delete_pod("bad", grace=0)

    on_stage(main, raising(point, kind))


@pytest.mark.parametrize("point", [point for point in POINTS if point not in {"hint", "unreserve", "post_bind", "pre_filter"}])
def test_f27_a_plugin_returns_an_invalid_value(point):
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


@pytest.mark.slow
def test_f28_permit_waits_end_at_their_timeout_of_at_most_fifteen_minutes():
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


def test_f28_a_pod_deleted_in_permit_frees_its_resources_at_once():
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
def test_f29_a_failed_pre_bind_is_rolled_back_completely(failing):
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
def test_f30_an_extender_that_fails_or_replies_invalidly(ignorable):
    answers = iter([TimeoutError("slow"), {"NodeNames": ["nowhere"]}, "html", {"NodeNames": 5}, [1], {"Error": "no"}])

    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        asker = Scripted(lambda body: next(answers, None) or everything(body))
        asked = (HTTPExtender(0, "http://e/", filter_verb="f", node_cache_capable=True, ignorable=ignorable),)
        async with running(cluster, asked=asked, extenders=asker) as loop:
            await asyncio.sleep(90)
            return placed(cluster), len(asker.asked), loop.attempts

    after, asked, attempts = run_virtually(main())
    assert after == {"p1": "n1"}
    assert asked == attempts == (1 if ignorable else 7)


# -- storms and races --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_f41_a_storm_of_updates_while_pods_are_in_flight():
    async def main(stage):
        for number in range(10):
            stage.world.node(f"n{number}")
        stage.world.pod("p-30")
        await asyncio.sleep(1)
        for number in range(5_000):
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
    from moorage.api.documents.served_kinds import find_kind

    return find_kind("nodes"), "", f"n{number}"


def beat(number):
    def edit(document):
        document["metadata"].setdefault("annotations", {})["beat"] = str(number)

    return edit


@pytest.mark.parametrize("victims", [1, 3])
@pytest.mark.parametrize("gone", ["before", "during", "after"])
def test_f42_victims_that_terminate_by_themselves(victims, gone):
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


def test_f42_failed_evictions_are_retried():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        stage.spoil("DELETE pods", error=ClusterError("500", 500), times=4)
        stage.world.pod("important", priorityClassName="high")
        await stage.placed("important", within_s=30)

    on_stage(main)
