"""What each extension point may do and receives, end to end: kube-scheduler's integration tests of the framework.

Refusals at each point, choosing by PreFilter and Score, and pods that wait for each other are in ``test_integration.py``;
plugins that raise, answer nonsense or wait too long in ``test_faults_inside.py``.
"""

import asyncio

import pytest

from moorage.framework.effects import BindPod, Call
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import PostFilterResult
from moorage.framework.verdicts import SKIP, Code, Hold, Wait
from tests.regressions import cluster_objects as on
from tools.simtest.oracle import Terms
from tools.simtest.stage import on_stage

NO = Hold.because("not now")


def profile(**points):
    """Return a profile where points have these plugins and, unless they begin with ``+``, no others."""
    lines = ["profiles:", "- plugins:"]
    for point, names in points.items():
        added = names.startswith("+")
        enabled = ", ".join(f"{{name: {name}}}" for name in names.removeprefix("+").split())
        disabled = "" if added else "disabled: [{name: '*'}], "
        lines.append(f"    {point}: {{{disabled}enabled: [{enabled}]}}")
    return "\n".join(lines) + "\n"


def plugin(name, **methods):
    return type(
        name, (), {"name": name, **{key: staticmethod(value) if callable(value) else value for key, value in methods.items()}}
    )


# -- Reserve and Unreserve ----------------------------------------------------------------------------------------------


async def fails():
    raise RuntimeError("no")


FAILURES = {  # what another plugin does at which point, the first time
    "Reserve": {"reserve": lambda state, pod, node: NO, "unreserve": lambda state, pod, node: None},
    "Permit": {"permit": lambda state, pod, node: NO},
    "Permit, later": {"permit": lambda state, pod, node: Wait(1.0)},
    "PreBind": {"pre_bind": lambda state, pod, node: NO},
    "PreBind, later": {"pre_bind": lambda state, pod, node: [Call(fails, lambda: None)]},
    "Bind": {"bind": lambda state, pod, node: NO},
    "Bind, later": {"bind": lambda state, pod, node: [Call(fails, lambda: None)]},
}


def once(method, otherwise):
    """Return a method that does this the first time it is called, and the other from then on."""
    calls = []

    def called(state, pod, node):
        calls.append(pod)
        return method(state, pod, node) if len(calls) == 1 else otherwise(state, pod, node)

    return called


AFTERWARDS = {"bind": lambda state, pod, node: [BindPod(pod, node)], "pre_bind": lambda state, pod, node: []}


@pytest.mark.parametrize("methods", FAILURES.values(), ids=FAILURES)
def test_reservations_are_undone_in_reverse_after_any_failure(methods):
    told = []

    def reserving(name):
        return plugin(
            name,
            reserve=lambda state, pod, node: told.append(f"+{name}"),
            unreserve=lambda state, pod, node: told.append(f"-{name}"),
            post_bind=lambda state, pod, node: told.append(f"={name}"),
        )

    made = {key: once(method, AFTERWARDS.get(key, lambda state, pod, node: None)) for key, method in methods.items()}
    binds = "Failing DefaultBinder" if "bind" in methods else "DefaultBinder"

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await asyncio.sleep(5)
        stage.world.touch_node("n1")
        await stage.placed("p")
        await asyncio.sleep(1)
        assert told == ["+One", "+Two", "-Two", "-One", "+One", "+Two", "=One", "=Two"]

    plugins = profile(multiPoint="+One Two Failing", bind=binds)
    on_stage(main, reserving("One"), reserving("Two"), plugin("Failing", **made), profiles=plugins)


# -- Permit -------------------------------------------------------------------------------------------------------------


def holding(name):
    return plugin(name, permit=lambda state, pod, node: Wait(600.0))


async def held(stage, pod="p"):
    """Make a pod, and wait until Permit holds it."""
    stage.world.node("n1")
    stage.world.pod(pod)
    await stage.until(lambda: list(stage.scheduler.waiting()))
    (waiting,) = stage.scheduler.waiting()
    return waiting


def test_every_permit_plugin_must_allow_a_waiting_pod():
    async def main(stage):
        waiting = await held(stage)
        assert sorted(waiting.pending) == ["One", "Two"]
        waiting.allow("One")
        await asyncio.sleep(2)
        assert (waiting.pending, stage.node_of("p")) == (("Two",), "")
        waiting.allow("Two")
        await stage.placed("p", within_s=2)

    on_stage(main, holding("One"), holding("Two"))


def test_one_permit_plugin_may_reject_a_waiting_pod():
    async def main(stage):
        waiting = await held(stage)
        waiting.allow("One")
        waiting.reject("Two", "no more")
        await asyncio.sleep(0.5)
        assert "no more" in str(stage.pod("p")["status"]["conditions"])
        assert not stage.binds("p")
        stage.world.delete_pod("p", grace=0)

    on_stage(main, holding("One"), holding("Two"))


@pytest.mark.parametrize("how", ["deleted", "bound by another scheduler"])
def test_a_waiting_pod_of_another_scheduler_is_unreserved(how):
    told = []
    reserving = plugin("Reserving", reserve=lambda state, pod, node: None, unreserve=lambda state, pod, node: told.append(node))

    async def main(stage):
        await held(stage)
        if how == "deleted":
            stage.world.delete_pod("p", grace=0)
        else:
            stage.world.bind("p", "n1")
        await asyncio.sleep(1)
        assert (told, list(stage.scheduler.waiting()), stage.binds("p")) == (["n1"], [], [])

    on_stage(main, reserving, holding("One"))


def test_shutdown_unreserves_waiting_pods():
    """PermitCancelled: it ends in good order, and takes back what it said of the pod."""
    told = []
    reserving = plugin("Reserving", reserve=lambda state, pod, node: None, unreserve=lambda state, pod, node: told.append(node))

    async def main(stage):
        await held(stage)
        await stage.until(lambda: stage.pod("p")["status"].get("nominatedNodeName") == "n1")
        await stage.members[0].stop()
        await asyncio.sleep(1)
        assert (told, stage.binds("p")) == (["n1"], [])
        assert not stage.pod("p")["status"].keys() & {"nominatedNodeName", "conditions"}

    on_stage(main, reserving, holding("One"), terms=Terms(settled=False), settle_s=0.0)


def test_a_waiting_pod_is_preempted_by_a_higher_priority():
    """PreemptWithPermit: it is not deleted, and is tried again."""

    def permit(state, pod, node):
        return Wait(600.0) if pod.name == "low" else None

    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("low", priorityClassName="low")
        await stage.until(lambda: list(stage.scheduler.waiting()))
        stage.world.pod("high", priorityClassName="high")
        await stage.placed("high", within_s=5)
        assert list(stage.scheduler.waiting()) == []
        assert not stage.requests("DELETE", "/pods/low")
        assert "deletionTimestamp" not in stage.pod("low")["metadata"]

    on_stage(main, plugin("Holding", permit=permit))


def test_a_waiting_pod_is_not_preempted_by_a_never_preempting_one():
    def permit(state, pod, node):
        return Wait(600.0) if pod.name == "low" else None

    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("low", priorityClassName="low")
        await stage.until(lambda: list(stage.scheduler.waiting()))
        stage.world.pod("polite", priorityClassName="polite")
        await asyncio.sleep(20)
        (waiting,) = stage.scheduler.waiting()
        waiting.allow("Holding")
        await stage.placed("low", within_s=2)
        assert stage.node_of("polite") == ""

    on_stage(main, plugin("Holding", permit=permit))


# -- Bind and PostBind --------------------------------------------------------------------------------------------------


def binding(name, asked, answer):
    def bind(state, pod, node):
        asked.append(name)
        return answer(pod, node)

    return plugin(name, bind=bind, post_bind=lambda state, pod, node: asked.append(f"{name} after"))


def takes(pod, node):
    return [BindPod(pod, node)]


BINDERS = {  # the first's answer, the second's; who is asked in the end
    "the first takes it": (takes, takes, ["One", "One after", "Two after"]),
    "the first passes": (lambda pod, node: SKIP, takes, ["One", "Two", "One after", "Two after"]),
}


@pytest.mark.parametrize(("one", "two", "calls"), BINDERS.values(), ids=BINDERS)
def test_the_plugin_that_binds(one, two, calls):
    asked = []

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await stage.placed("p")
        await asyncio.sleep(1)
        assert asked == calls

    plugins = profile(bind="One Two", postBind="+One Two")
    on_stage(main, binding("One", asked, one), binding("Two", asked, two), profiles=plugins)


def test_no_bind_plugin_handles_the_pod():
    asked = []

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await asyncio.sleep(3)
        assert asked[:1] == ["One"]
        assert not any(call.endswith("after") for call in asked)
        assert stage.node_of("p") == ""
        stage.world.delete_pod("p", grace=0)

    on_stage(main, binding("One", asked, lambda pod, node: SKIP), profiles=profile(bind="One", postBind="+One"))


# -- QueueSort, PostFilter, Score ---------------------------------------------------------------------------------------


def test_a_custom_queue_sort_plugin():
    class ByName:
        name = "ByName"

        def sort_key(self, queued):
            return queued.pod.name

    async def main(stage):
        for name in ("c", "a", "b"):
            stage.world.pod(name)
        await asyncio.sleep(12)
        stage.world.node("n1")
        await stage.placed("a", "b", "c")
        bound = [one.path.split("/")[-2] for one in stage.requests("POST", "/binding")]
        assert bound == ["a", "b", "c"]

    on_stage(main, ByName, profiles=profile(queueSort="ByName"))


@pytest.mark.parametrize("nominates", [True, False])
def test_post_filter_runs_without_feasible_nodes_until_the_first_success(nominates):
    asked = []

    def post_filter(name, result):
        def asking(pod, attempt):
            asked.append((name, pod.name))
            return result

        return plugin(name, post_filter=asking)

    found = PostFilterResult(Code.SUCCESS, nominated="n1") if nominates else PostFilterResult(Code.UNSCHEDULABLE)

    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("small")
        await stage.placed("small")
        stage.world.pod("large", cpu="2")
        await asyncio.sleep(1)
        assert asked == [("One", "large"), *([] if nominates else [("Two", "large")])]
        assert stage.pod("large")["status"].get("nominatedNodeName", "") == ("n1" if nominates else "")
        stage.world.delete_pod("large", grace=0)

    on_stage(main, post_filter("One", found), post_filter("Two", found), profiles=profile(postFilter="One Two"))


def test_normalize_score_determines_the_final_scores():
    turned = plugin(
        "Turned",
        score_node=lambda state, node: {"n0": 100, "n1": 50, "n2": 0}[node.name],
        normalize=lambda state, scores: 100 - scores,
    )

    async def main(stage):
        for number in range(3):
            stage.world.node(f"n{number}")
        stage.world.pod("p")
        assert await stage.placed("p") == "n2"

    on_stage(main, turned, profiles=profile(score="Turned"))


# -- activation, and events of PreEnqueue ---------------------------------------------------------------------------------


class Convoy:
    """Pods that only their driver wakes, after it is placed."""

    name = "Convoy"

    def attach(self, handle):
        self.handle, self.parked, self.driven = handle, [], False

    def wakes_on(self):
        return iter(())

    def pre_filter(self, pod, snapshot):
        if pod.name == "driver" or self.driven:
            return None
        self.parked.append(pod)
        return NO

    def permit(self, state, pod, node):
        if pod.name == "driver":
            self.driven = True
            self.handle.activate(self.parked)


def test_a_plugin_activates_pods_that_no_event_wakes():
    async def main(stage):
        stage.world.node("n1", cpu=8)
        for number in range(3):
            stage.world.pod(f"p{number}")
        await asyncio.sleep(12)
        stage.world.touch_node("n1")
        await asyncio.sleep(12)
        assert not any(stage.node_of(f"p{number}") for number in range(3))
        stage.world.pod("driver")
        await stage.placed("p0", "p1", "p2", within_s=2)

    on_stage(main, Convoy)


@pytest.mark.parametrize("change", ["a node's labels", "a node's amounts"])
def test_pre_enqueue_runs_again_after_its_registered_events(change):
    asked = []

    class Gate:
        name = "Gate"

        def pre_enqueue(self, pod):
            asked.append(pod.name)
            return None if "open" in pod.labels else NO

        def wakes_on(self):
            yield Wake(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL))

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await asyncio.sleep(2)
        stage.world.change_pod("p", labels={"open": "yes"})
        await asyncio.sleep(2)
        assert asked == ["p"]
        if change == "a node's labels":
            on.label(stage.world, "n1", any="thing")
            await stage.placed("p", within_s=1)
        else:
            on.grow(stage.world, "n1", cpu=8)
            await asyncio.sleep(2)
            assert asked == ["p"]
            stage.world.delete_pod("p", grace=0)

    on_stage(main, Gate)


def test_a_plugin_may_activate_pods_at_any_time():
    """From a task of its own, say, while nothing else happens."""

    async def main(stage):
        stage.world.node("n1", cpu=8)
        stage.world.pod("p")
        await asyncio.sleep(12)
        convoy = stage.scheduler.profiles["default-scheduler"]
        (plugin,) = {step.plugin for step in convoy.at("permit") if step.name == "Convoy"}
        plugin.driven = True
        plugin.handle.activate(plugin.parked)
        await stage.placed("p", within_s=1)

    on_stage(main, Convoy)
