"""Queueing, batches, binding and the scheduler as a whole, end to end: the rest of kube-scheduler's integration tests.

Which event wakes whom is in ``test_integration_wakes.py``; gates, backoff and order also in ``test_integration.py``.
"""

import asyncio

import pytest

from moorage.core.queue.queued_pod import QueuePlace
from moorage.errors import PluginError
from moorage.framework.effects import BindPod
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.reuse import Reuse
from moorage.framework.verdicts import Hold, Wait
from tests.regressions import cluster_objects as on
from tests.regressions.test_integration_plugins import plugin, profile
from tools.simtest.oracle import Terms
from tools.simtest.recording import AttemptRecord
from tools.simtest.stage import on_stage

NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)
NODE_RELABELLED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)


def queued(stage, name):
    return stage.scheduler.queue.get(stage.pod(name)["metadata"]["uid"])


# -- pods of one class in one go --------------------------------------------------------------------------------------------


def ranking(*nodes):
    """Spec of a pod that likes these nodes, the first the most."""
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": len(nodes) - number, "preference": {"matchFields": [on.within_term("metadata.name", name)]}}
        for number, name in enumerate(nodes)
    ]}}}  # fmt: skip


ONE_TO_THREE, LEFT, RIGHT = ranking("n1", "n2", "n3"), ranking("n1", "n2"), ranking("n4", "n3")
BATCHES = {  # how many pods a node takes, the pods' specs, where they go
    "one pod": (1, [LEFT], ["n1"]),
    "pods of their own nodes": (10, [{"nodeSelector": {"for": str(number)}} for number in (1, 2, 3)], ["n1", "n2", "n3"]),
    "three of a class": (1, [ONE_TO_THREE] * 3, ["n1", "n2", "n3"]),
    "two classes, one after the other": (1, [LEFT, LEFT, RIGHT, RIGHT], ["n1", "n2", "n4", "n3"]),
    "two classes in turn": (1, [LEFT, RIGHT, LEFT, RIGHT], ["n1", "n4", "n2", "n3"]),
    "two pods a node": (2, [LEFT, LEFT, RIGHT, RIGHT], ["n1", "n1", "n4", "n4"]),
    "two profiles": (1, [LEFT, {**LEFT, "schedulerName": "other"}], ["n1", "n2"]),
    "a plugin that does not sign": (1, [{**ONE_TO_THREE, "schedulerName": "unsigned"}] * 3, ["n1", "n2", "n3"]),
    "a plugin that signs no pod": (1, [{**ONE_TO_THREE, "schedulerName": "refusing"}] * 3, ["n1", "n2", "n3"]),
    "one that was nominated": (1, [ONE_TO_THREE, {**ONE_TO_THREE, "nominated": "n3"}], ["n1", "n3"]),
}
NO_SPREAD = """
  pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List}}]
"""
FOUR_PROFILES = "profiles:" + "".join(
    f"\n- schedulerName: {name}\n  plugins: {{filter: {{enabled: [{enabled}]}}}}{NO_SPREAD}"
    for name, enabled in (
        ("default-scheduler", ""), ("other", ""), ("unsigned", "{name: Unsigned}"), ("refusing", "{name: Refusing}"),
    )
)  # fmt: skip


@pytest.mark.parametrize("together", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize(("most", "specs", "nodes"), BATCHES.values(), ids=BATCHES)
def test_pods_of_a_class_are_placed_as_if_scheduled_singly(most, specs, nodes, together):
    passing = {"filter_node": lambda state, node: None}
    signing = {**passing, "reuse": Reuse(signature=lambda pod: None)}

    async def main(stage):
        for number in range(4, 0, -1):
            on.node(stage.world, f"n{number}", {"for": str(number)}, cpu=100, pods=most)
        await asyncio.sleep(0.5)
        names = [f"p{number}" for number in range(len(specs))]
        for name, spec in zip(names, specs, strict=True):
            given = {**spec}
            wish = given.pop("nominated", "")
            gates = [{"name": "g"}] if wish else []
            on.pod(stage.world, name, cpu="10m", schedulingGates=gates, **given)
            if wish:
                on.patch(stage.world, f"{on.PODS}/{name}/status", status={"nominatedNodeName": wish})
                stage.world.ungate(name)
            if not together:
                await stage.placed(name)
        await stage.placed(*names)
        assert [stage.node_of(name) for name in names] == nodes

    schedulers = ("default-scheduler", "other", "unsigned", "refusing")
    on_stage(
        main, plugin("Unsigned", **passing), plugin("Refusing", **signing), profiles=FOUR_PROFILES,
        terms=Terms(schedulers=schedulers), settle_s=5.0,
    )  # fmt: skip


# -- back to the queue ------------------------------------------------------------------------------------------------------


def test_a_pod_with_a_failed_bind_is_retried_without_an_event():
    """RequeueByBindFailure."""
    calls = []

    def bind(state, pod, node):
        calls.append(node)
        if len(calls) == 1:
            raise PluginError("Binding", "fails the first time")
        return [BindPod(pod, node)]

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await stage.placed("p", within_s=5)
        assert calls == ["n1", "n1"]

    on_stage(main, plugin("Binding", bind=bind), profiles=profile(bind="Binding"))


def test_events_during_a_permit_wait_wake_the_rejected_pod():
    """RequeueByPermitRejection: the hint is asked once, about what happened meanwhile."""
    asked = []

    class Holding:
        name = "Holding"

        def permit(self, state, pod, node):
            return Wait(600.0)

        def wakes_on(self):
            yield Wake(NODE_RELABELLED, when=lambda pod, old, new: asked.append(pod.name) is None)

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p1")
        await stage.until(lambda: list(stage.scheduler.waiting()))
        on.label(stage.world, "n1", updated="yes")
        stage.world.pod("p2")
        await stage.until(lambda: len(list(stage.scheduler.waiting())) == 2)
        first = next(one for one in stage.scheduler.waiting() if one.pod.name == "p1")
        first.reject("Holding", "not now")
        await stage.until(lambda: [one for one in stage.scheduler.waiting() if one.pod.name == "p1" and one is not first], 5)
        for one in stage.scheduler.waiting():
            one.allow("Holding")
        await stage.placed("p1", "p2", within_s=2)
        assert asked == ["p1"]

    on_stage(main, Holding)


def refusing_once(point):
    """A plugin that turns each pod down once, and then waits for nodes."""
    seen = set()

    def judge(state, pod, node):
        if pod.name in seen or pod.name.startswith("other"):
            return None
        seen.add(pod.name)
        return Hold.because("not the first time")

    methods = {point: judge, "wakes_on": lambda: iter([Wake(NODE_ADDED)])}
    return plugin("Once", **methods, **({"unreserve": lambda state, pod, node: None} if point == "reserve" else {}))


@pytest.mark.parametrize("event", ["a node", "another pod"])
@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_a_late_rejected_pod_waits_for_events_of_the_rejecting_plugin(point, event):
    """ReScheduling."""

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await asyncio.sleep(12)
        assert queued(stage, "p").place is QueuePlace.UNSCHEDULABLE
        if event == "a node":
            stage.world.node("n2")
            await stage.placed("p", within_s=2)
        else:
            stage.world.pod("other")
            await stage.placed("other")
            await asyncio.sleep(5)
            assert stage.node_of("p") == ""
            stage.world.delete_pod("p", grace=0)

    on_stage(main, refusing_once(point))


@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_a_pod_with_a_plugin_error_is_always_retried(point):
    calls = []

    def fails(state, pod, node):
        calls.append(node)
        if len(calls) == 1:
            raise RuntimeError("once")

    methods = {point: fails, "wakes_on": lambda: iter([Wake(NODE_ADDED)])}
    if point == "reserve":
        methods["unreserve"] = lambda state, pod, node: None

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await stage.placed("p", within_s=5)
        assert len(calls) == 2

    on_stage(main, plugin("Fails", **methods))


@pytest.mark.parametrize("gate", [True, False])
def test_pods_leave_backoff_early_with_the_gate(gate):
    """PopFromBackoffQWhenActiveQEmpty, with a backoff far longer than the test."""

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p", nodeSelector={"foo": "bar"})
        await asyncio.sleep(1)
        on.node(stage.world, "n2", {"foo": "bar"})
        await asyncio.sleep(5)
        assert stage.node_of("p") == ("n2" if gate else "")
        assert gate or queued(stage, "p").place is QueuePlace.BACKOFF

    slow = "podInitialBackoffSeconds: 1000\npodMaxBackoffSeconds: 1000\nprofiles: [{schedulerName: default-scheduler}]\n"
    on_stage(main, profiles=slow, opened={"SchedulerPopFromBackoffQ": gate}, terms=Terms(settled=False), settle_s=1.0)


GATED = {  # whom others release, whom they delete before, who is placed then
    "no gates": ({"p1": [], "p2": []}, [], [], ["p1", "p2"]),
    "one with a gate": ({"p1": ["foo"], "p2": []}, [], [], ["p2"]),
    "one of two is released": ({"p1": ["foo"], "p2": ["bar"], "p3": []}, ["p2"], [], ["p2", "p3"]),
    "released after another went": ({"p1": ["foo"], "p2": []}, ["p1"], ["p2"], ["p1"]),
}


@pytest.mark.parametrize(("gates", "release", "delete", "there"), GATED.values(), ids=GATED)
def test_scheduling_gates(gates, release, delete, there):
    async def main(stage):
        stage.world.node("n1")
        for name, held in gates.items():
            stage.world.pod(name, schedulingGates=[{"name": gate} for gate in held])
        await asyncio.sleep(1)
        for name in delete:
            stage.world.delete_pod(name, grace=0)
        await asyncio.sleep(0.5)
        closed = [name for name, held in gates.items() if held]
        assert all(queued(stage, name).place is QueuePlace.GATED for name in closed)
        assert all(stage.pod(name)["status"]["conditions"][0]["reason"] == "SchedulingGated" for name in closed)
        for name in release:
            stage.world.ungate(name)
        await asyncio.sleep(2)
        placed = [name for name in gates if stage.node_of(name)]
        assert placed == there

    on_stage(main)


# -- binding ----------------------------------------------------------------------------------------------------------------


def test_a_bind_names_the_uid_of_its_pod():
    """DefaultBinder: a pod that was replaced by a namesake is not bound by what was meant for the first."""

    async def main(stage):
        stage.spoil("POST binding", hold_s=2.0, times=1)
        stage.world.node("n1")
        first = stage.world.pod("p")["metadata"]["uid"]
        await asyncio.sleep(1)
        stage.world.delete_pod("p", grace=0)
        second = stage.world.pod("p", nodeSelector={"no": "such"})["metadata"]["uid"]
        await asyncio.sleep(5)
        assert [(bind.uid, bind.code) for bind in stage.binds("p")] == [(first, 409)]
        assert second != first
        assert stage.node_of("p") == ""

    on_stage(main)


# -- the scheduler as a whole -----------------------------------------------------------------------------------------------


def test_a_node_update_with_two_changes_yields_both_events():
    """UpdateNodeEvent: a plugin that waits for taints is asked, though labels changed as well."""

    class Clean:
        name = "Clean"

        def filter_node(self, state, node):
            return Hold.because("tainted") if node.node.spec.taints else None

        def wakes_on(self):
            yield Wake(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT))

    async def main(stage):
        on.node(stage.world, "n1", taints=[{"key": "k", "effect": "PreferNoSchedule"}])
        stage.world.pod("p")
        await asyncio.sleep(12)
        assert stage.node_of("p") == ""
        on.patch(stage.world, f"{on.NODES}/n1", metadata={"labels": {"foo": "bar"}}, spec={"taints": None})
        await stage.placed("p", within_s=1)

    on_stage(main, Clean)


NODE_EVENTS = (("tainted", {"taints": [on.no_schedule("k")]}), ("closed", {"unschedulable": True}))


@pytest.mark.parametrize(("how", "spec"), NODE_EVENTS, ids=[how for how, _ in NODE_EVENTS])
def test_nodes_that_are_cordoned_and_uncordoned(how, spec):
    """UnschedulableNodes and NodeEvents: placed, closed, another node, opened."""

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p1")
        assert await stage.placed("p1") == "n1"
        on.patch(stage.world, f"{on.NODES}/n1", spec=spec)
        await asyncio.sleep(0.5)
        stage.world.pod("p2")
        await asyncio.sleep(3)
        assert stage.node_of("p2") == ""
        stage.world.node("n2")
        assert await stage.placed("p2", within_s=5) == "n2"
        stage.world.pod("p3", nodeSelector={"kubernetes.io/hostname": "n1"})
        await asyncio.sleep(3)
        assert stage.node_of("p3") == ""
        on.patch(stage.world, f"{on.NODES}/n1", spec=dict.fromkeys(spec))
        assert await stage.placed("p3", within_s=5) == "n1"

    on_stage(main)


def test_a_pod_with_a_node_name_bypasses_the_scheduler():
    """SchedulerInformers: a pod with a node is added to the cache as it is."""

    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("p", nodeName="n1")
        await asyncio.sleep(1)
        assert not stage.binds("p")
        assert not [one for one in stage.recording.entries if isinstance(one, AttemptRecord)]
        stage.world.pod("next")
        await asyncio.sleep(3)
        assert stage.node_of("next") == ""
        stage.world.finish("p")
        await stage.placed("next", within_s=3)

    on_stage(main)


def test_each_scheduler_places_its_own_pods():
    """MultipleSchedulers: a pod of an unknown scheduler waits; one scheduler may have two names."""

    async def main(stage):
        stage.world.node("n1", cpu=8)
        names = {"mine": "default-scheduler", "second": "second", "nobodys": "foo"}
        for name, scheduler in names.items():
            stage.world.pod(name, schedulerName=scheduler)
        await stage.placed("mine", "second")
        await asyncio.sleep(5)
        assert stage.node_of("nobodys") == ""
        stage.world.bind("nobodys", "n1")
        await asyncio.sleep(1)
        assert stage.scheduler.cluster.node_of(stage.pod("nobodys")["metadata"]["uid"]) == "n1"

    two = "profiles: [{schedulerName: default-scheduler}, {schedulerName: second}]\n"
    on_stage(main, profiles=two, terms=Terms(schedulers=("default-scheduler", "second")))


def test_a_host_port_is_free_after_its_pod_is_deleted():
    """HostPorts: the same port by the same address, one after the other."""

    async def main(stage):
        stage.world.node("n1")
        on.pod(stage.world, "p1", **on.port(80))
        await stage.placed("p1")
        on.pod(stage.world, "p2", **on.port(80, "10.0.0.1"))
        await asyncio.sleep(3)
        assert stage.node_of("p2") == ""
        stage.world.delete_pod("p1", grace=0)
        await stage.placed("p2", within_s=5)

    on_stage(main)
