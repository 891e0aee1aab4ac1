"""Preemption and nominations, end to end: kube-scheduler's integration tests of both.

Budgets, politeness, starvation and newcomers are in ``test_integration.py``, evictions that fail and victims that go by
themselves in ``test_faults_inside.py``, and what once went wrong upstream in ``test_upstream_bugs_of_preemption.py``.
"""

import asyncio

import pytest

from moorage.framework.effects import Call
from moorage.framework.verdicts import Hold, Wait
from tests.regressions import cluster_objects as on
from tests.regressions.test_integration_plugins import plugin, profile
from tools.simtest.oracle import Terms
from tools.simtest.stage import on_stage

BOTH_WAYS = pytest.mark.parametrize("at_once", [True, False], ids=["asynchronous", "in the attempt"])
HOST = "kubernetes.io/hostname"


def asynchronous(yes):
    return {"SchedulerAsyncPreemption": yes}


# -- who is preempted ---------------------------------------------------------------------------------------------------


def only_for(key):
    """Spec of a pod that avoids pods with this label on its node."""
    return on.away(key, HOST)


DISK = {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "d"}}]}
VICTIMS = {  # pods on the node: priority, spec, labels; the preemptor's spec; who has to go
    "the one that is in the way": ([("low", {"cpu": "400m"}, {})], {"cpu": "300m"}, "x0"),
    "no victim, as the pod fits": ([("low", {"cpu": "100m"}, {})], {"cpu": "300m"}, ""),
    "the least important": ([("middle", {"cpu": "200m"}, {}), ("low", {"cpu": "200m"}, {})], {"cpu": "300m"}, "x1"),
    "no more than needed": ([("low", {"cpu": "200m"}, {}), ("middle", {"cpu": "300m"}, {})], {"cpu": "200m"}, "x0"),
    "whom it avoids, and who avoids it": (
        [("middle", {"cpu": "1m"}, {"a": ""}), ("low", {"cpu": "1m", **only_for("p")}, {})], {"cpu": "1m", **only_for("a")},
        "x0 x1",
    ),
    "no victim, as the pod with anti-affinity has the same priority": (
        [("middle", {"cpu": "1m"}, {"a": ""}), ("high", {"cpu": "1m", **only_for("p")}, {})],
        {"cpu": "1m", **only_for("a")}, None,
    ),
    "who holds the port": ([("low", on.port(80), {})], on.port(80), "x0"),
    "who holds the disk": ([("low", DISK, {}), ("low", {}, {})], DISK, "x0"),
}  # fmt: skip


@BOTH_WAYS
@pytest.mark.parametrize(("there", "spec", "gone"), VICTIMS.values(), ids=VICTIMS)
def test_the_victims_on_one_node(there, spec, gone, at_once):
    async def main(stage):
        on.node(stage.world, "n1", {HOST: "n1"}, cpu="500m")
        for number, (priority, what, labels) in enumerate(there):
            on.pod(stage.world, f"x{number}", labels, priorityClassName=priority, **what)
        names = [f"x{number}" for number in range(len(there))]
        await stage.placed(*names)
        on.pod(stage.world, "p", {"p": ""}, priorityClassName="high", **spec)
        if gone is None:
            await asyncio.sleep(15)
        else:
            await stage.placed("p")
        assert bool(stage.node_of("p")) == (gone is not None)
        left = [name for name in names if stage.pod(name) is None]
        assert left == (gone or "").split()
        assert all(marked(stage, name) for name in left)

    on_stage(main, opened=asynchronous(at_once))


def marked(stage, name):
    """True if the pod was marked as disrupted before it was deleted."""
    conditions = [one for write in stage.history(name) for one in write.document["status"].get("conditions", ())]
    return any(one["type"] == "DisruptionTarget" and one["reason"] == "PreemptionByScheduler" for one in conditions)


class Tokens:
    """A filter that a node passes while no pod on it has a token."""

    name = "Tokens"
    unresolvable = False

    def pre_filter(self, pod, snapshot):
        return sum("token" in other.labels for row in snapshot.table.pods for other in (row or {}).values())

    def add_pod(self, taken, pod, other, node):
        return taken + ("token" in other.labels)

    def remove_pod(self, taken, pod, other, node):
        return taken - ("token" in other.labels)

    def filter_node(self, taken, node):
        return Hold.because("no token", unresolvable=self.unresolvable) if taken else None


@pytest.mark.parametrize("unresolvable", [False, True])
def test_custom_filters_take_part_in_preemption(unresolvable):
    filters = type("Tokens", (Tokens,), {"unresolvable": unresolvable})

    async def main(stage):
        stage.world.node("n1")
        on.pod(stage.world, "victim", {"token": ""}, priorityClassName="low")
        await stage.placed("victim")
        on.pod(stage.world, "p", priorityClassName="high")
        await asyncio.sleep(10)
        assert (stage.pod("victim") is None) == (not unresolvable)
        assert bool(stage.node_of("p")) == (not unresolvable)

    on_stage(main, filters, terms=Terms(settled=False))


def test_no_pod_is_preempted_without_the_plugin():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        stage.world.pod("p", priorityClassName="high")
        await asyncio.sleep(15)
        assert stage.node_of("victim") == "n1"
        assert "nominatedNodeName" not in stage.pod("p")["status"]
        assert not stage.requests("DELETE", "/pods/victim")

    no_preemption = "profiles:\n- plugins: {postFilter: {disabled: [{name: DefaultPreemption}]}}\n"
    on_stage(main, profiles=no_preemption, terms=Terms(settled=False))


def test_priorities_come_from_their_classes():
    async def main(stage):
        stage.world.node("n1")
        for name, value in (("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)):
            made = on.pod(stage.world, f"of-{name}", namespace="kube-system", priorityClassName=name)
            assert made["spec"]["priority"] == value
        assert stage.world.pod("unknown", priorityClassName="foo") is None
        assert on.pod(stage.world, "plain")["spec"]["priority"] == 0
        await stage.placed("plain", "of-system-node-critical")

    on_stage(main)


@BOTH_WAYS
def test_other_pods_do_not_take_the_resources_of_victims(at_once):
    """PreemptionStarvation and PreemptionRaces: five that run, five that wait, and twenty that come meanwhile."""

    async def main(stage):
        stage.world.node("n1", cpu=5, pods=100)
        for number in range(10):
            stage.world.pod(f"first{number}", priorityClassName="middle")
        await asyncio.sleep(3)
        stage.world.pod("important", cpu="4", priorityClassName="high")
        for number in range(20):
            stage.world.pod(f"later{number:02d}", priorityClassName="middle")
            await asyncio.sleep(0.05)
        await stage.placed("important", within_s=20)
        assert sum(bool(stage.node_of(pod["metadata"]["name"])) for pod in stage.world.pods()) == 2

    on_stage(main, opened=asynchronous(at_once))


# -- volumes that one pod may use -----------------------------------------------------------------------------------------

ALONE = ("ReadWriteOncePod",)
CLAIMS = {  # claims of the pod that runs and its priority, claims of the one that comes; does the first have to go?
    "the claim of a lesser": (["c0"], "low", ["c0"], True),
    "one claim of two of a lesser": (["c0", "c1"], "low", ["c1"], True),
    "another claim than the one of a lesser": (["c0"], "low", ["c1"], False),
    "the claim of one as important": (["c0"], "high", ["c0"], None),
}


@BOTH_WAYS
@pytest.mark.parametrize(("held", "priority", "wanted", "goes"), CLAIMS.values(), ids=CLAIMS)
def test_a_volume_for_one_pod_alone(held, priority, wanted, goes, at_once):
    async def main(stage):
        world = stage.world
        stage.world.node("n1")
        for name in ("c0", "c1"):
            on.volume(world, f"v-{name}", modes=ALONE)
            on.claim(world, name, f"v-{name}", modes=ALONE)
            on.patch(world, f"{on.VOLUMES}/v-{name}", spec={"claimRef": {"namespace": "default", "name": name}})
        on.pod(world, "x", priorityClassName=priority, **on.using(*held))
        await stage.placed("x")
        on.pod(world, "p", priorityClassName="high", **on.using(*wanted))
        await asyncio.sleep(10)
        assert bool(stage.node_of("p")) == (goes is not None)
        assert (stage.pod("x") is None) == bool(goes)

    on_stage(main, opened=asynchronous(at_once), terms=Terms(settled=False))


def test_a_node_at_its_volume_limit():
    """Only pods with a volume of the same driver are evicted."""

    async def main(stage):
        world = stage.world
        stage.world.node("n1")
        on.csi_driver(world, "csi", False)
        on.csi_node(world, "n1", csi=1)
        for name in ("c0", "c1"):
            on.volume(world, f"v-{name}", driver="csi")
            on.claim(world, name, f"v-{name}")
            on.patch(world, f"{on.VOLUMES}/v-{name}", spec={"claimRef": {"namespace": "default", "name": name}})
        on.pod(world, "x", priorityClassName="low", **on.using("c0"))
        on.pod(world, "y", priorityClassName="low")
        await stage.placed("x", "y")
        on.pod(world, "p", priorityClassName="high", **on.using("c1"))
        await stage.placed("p")
        assert (stage.pod("x"), stage.node_of("y")) == (None, "n1")

    on_stage(main)


# -- while evictions are under way ----------------------------------------------------------------------------------------


async def preempting(stage):
    """A node whose pod is being evicted for another, the request for which is still in flight."""
    stage.world.node("n1", cpu=1)
    stage.world.pod("victim", priorityClassName="low")
    await stage.placed("victim")
    stage.spoil("DELETE pods", hold_s=5.0)
    stage.world.pod("p", priorityClassName="high")
    await stage.until(lambda: stage.scheduler.queue.nominated)


def test_scheduling_continues_during_an_eviction():
    async def main(stage):
        await preempting(stage)
        stage.world.node("n2", cpu=1)
        stage.world.pod("other", priorityClassName="low", nodeSelector={HOST: "n2"})
        await stage.placed("other", within_s=1)
        assert stage.pod("victim")["metadata"].get("deletionTimestamp") is None
        stage.world.delete_pod("other", grace=0)
        await stage.until(lambda: stage.node_of("p"), 10)

    on_stage(main)


def test_a_preemptor_is_not_retried_before_its_evictions_finish():
    async def main(stage):
        await preempting(stage)
        tried = attempts(stage, "p")
        for _ in range(4):
            stage.world.touch_node("n1")
            on.label(stage.world, "n1", beat=str(stage.now))
            await asyncio.sleep(1)
        assert attempts(stage, "p") == tried
        await stage.placed("p", within_s=10)

    on_stage(main)


def attempts(stage, name):
    return stage.scheduler.queue.get(stage.pod(name)["metadata"]["uid"]).attempts


def test_a_deleted_preemptor_frees_its_reservation():
    async def main(stage):
        await preempting(stage)
        stage.world.delete_pod("p", grace=0)
        stage.world.pod("next", priorityClassName="low")
        await stage.placed("next", within_s=20)
        assert stage.pod("victim") is None  # the request in flight is executed

    on_stage(main)


def test_a_higher_priority_pod_takes_freed_resources():
    async def main(stage):
        await preempting(stage)
        stage.world.pod("more", priorityClassName="system-cluster-critical")
        await stage.placed("more", within_s=20)
        assert stage.node_of("p") == ""

    on_stage(main)


HOLDS = {"permit": {"permit": lambda state, pod, node: Wait(300.0) if on_large(pod, node) else None},
         "prebind": {"pre_bind": lambda state, pod, node: [
             Call(lambda: asyncio.sleep(40.0), lambda: None)] if on_large(pod, node) else []}}  # fmt: skip


def on_large(pod, node):
    return pod.name == "victim" and node == "large"


@pytest.mark.parametrize("methods", HOLDS.values(), ids=HOLDS)
def test_a_waiting_or_binding_victim_moves_to_another_node(methods):
    """PreemptionRespectsWaitingPod and RespectsBindingPod."""

    async def main(stage):
        stage.world.node("large", cpu=2)
        stage.world.pod("victim", priorityClassName="low")
        await asyncio.sleep(1)
        stage.world.node("small", cpu=1)
        await asyncio.sleep(1)
        stage.world.pod("p", cpu="2", priorityClassName="high")
        assert await stage.placed("p", within_s=5) == "large"
        assert await stage.placed("victim", within_s=5) == "small"
        assert not stage.requests("DELETE", "/pods/victim")

    on_stage(main, plugin("Holding", **methods))


# -- nominations ----------------------------------------------------------------------------------------------------------


def nominated(stage, name):
    return stage.pod(name)["status"].get("nominatedNodeName", "")


NEVER_ENDS_S = 1000.0


async def nominating(stage, cpu=1):
    """A node, a pod on it that takes its time to end, and another that waits for its place."""
    stage.world.end_after_s = NEVER_ENDS_S
    stage.world.node("n1", cpu=cpu)
    stage.world.pod("low", priorityClassName="low")
    await stage.placed("low")
    stage.world.pod("medium", cpu=str(cpu), priorityClassName="middle")
    await stage.until(lambda: nominated(stage, "medium") == "n1")


@BOTH_WAYS
def test_a_nomination_ends_when_a_higher_priority_pod_needs_more_victims(at_once):
    async def main(stage):
        stage.world.end_after_s = NEVER_ENDS_S
        stage.world.node("n1", cpu=5)
        for number in range(4):
            stage.world.pod(f"low{number}", priorityClassName="low")
        await stage.placed(*(f"low{number}" for number in range(4)))
        stage.world.pod("medium", cpu="4", priorityClassName="middle")
        await stage.until(lambda: nominated(stage, "medium"))
        stage.world.pod("high", cpu="5", priorityClassName="high")
        await stage.until(lambda: nominated(stage, "high") and not nominated(stage, "medium"))

    on_stage(main, opened=asynchronous(at_once), terms=Terms(settled=False), settle_s=2.0)


@BOTH_WAYS
def test_a_nomination_ends_when_a_higher_priority_pod_needs_no_victims(at_once):
    async def main(stage):
        await nominating(stage, cpu=2)
        stage.world.pod("high", priorityClassName="high")
        await stage.placed("high")
        stage.world.delete_pod("low", grace=0)
        await stage.until(lambda: not nominated(stage, "medium"), within_s=20)
        assert stage.node_of("medium") == ""

    on_stage(main, opened=asynchronous(at_once), terms=Terms(settled=False), settle_s=2.0)


@pytest.mark.parametrize("another", ["no other node", "a node that is tainted"])
def test_a_nomination_ends_with_its_node(another):
    async def main(stage):
        if another == "a node that is tainted":
            on.node(stage.world, "n2", taints=[on.no_schedule("k")])
        await nominating(stage)
        stage.world.delete_node("n1")
        stage.world.delete_pod("low", grace=0)
        await stage.until(lambda: not nominated(stage, "medium"), within_s=20)

    on_stage(main, opened={"NominatedNodeNameForExpectation": False}, terms=Terms(settled=False), settle_s=2.0)


def test_a_nomination_ends_with_an_attempt_that_fails_later():
    async def main(stage):
        await nominating(stage)
        stage.world.delete_pod("low", grace=0)
        await stage.until(lambda: not nominated(stage, "medium"), within_s=20)
        assert stage.node_of("medium") == ""

    def pre_bind(state, pod, node):
        return [] if pod.name == "low" else Hold.because("no")

    on_stage(main, plugin("Fails", pre_bind=pre_bind), terms=Terms(settled=False), settle_s=2.0)


def test_a_nominated_node_is_used_only_if_it_fits():
    """PreferNominatedNode: the other node would score higher."""

    async def main(stage):
        stage.world.node("n1", cpu=4)
        stage.world.node("n2", cpu=4)
        on.pod(stage.world, "x", nodeName="n1", cpu="2")
        for name, cpu, node in (("fits", "1", "n1"), ("large", "3", "n2")):
            stage.world.pod(name, cpu=cpu, schedulingGates=[{"name": "g"}])
            on.patch(stage.world, f"{on.PODS}/{name}/status", status={"nominatedNodeName": "n1"})
            stage.world.ungate(name)
            assert await stage.placed(name) == node
            assert nominated(stage, name) == ""

    on_stage(main)


EXPECTED = {  # what holds the pod up; is it told where it goes to be?
    "PreBind": ({"pre_bind": lambda state, pod, node: [Call(lambda: asyncio.sleep(30.0), lambda: None)]}, True),
    "Permit": ({"permit": lambda state, pod, node: Wait(30.0)}, True),
    "Permit that does not wait": ({"permit": lambda state, pod, node: None}, False),
    "nothing": ({"post_bind": lambda state, pod, node: None}, False),
}


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize(("methods", "waits"), EXPECTED.values(), ids=EXPECTED)
def test_the_expected_node_of_a_pod_is_reported(methods, waits, gate):
    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await asyncio.sleep(1)
        assert bool(stage.node_of("p")) == (not waits)
        assert nominated(stage, "p") == ("n1" if waits and gate else "")
        ever = {write.document["status"].get("nominatedNodeName", "") for write in stage.history("p")}
        assert ever == ({"", "n1"} if waits and gate else {""})
        for waiting in stage.scheduler.waiting():
            waiting.allow("Holding")
        await stage.placed("p", within_s=40)
        assert nominated(stage, "p") == ""  # the API server clears it with the binding

    on_stage(main, plugin("Holding", **methods), opened={"NominatedNodeNameForExpectation": gate})


@pytest.mark.parametrize("gate", [True, False])
def test_nominations_by_other_clients_can_be_overridden(gate):
    """PreemptionAndNominatedNodeNameScenarios: nominations that other clients write are preferences."""

    async def wished(stage, name, node, **spec):
        stage.world.pod(name, schedulingGates=[{"name": "g"}], **spec)
        on.patch(stage.world, f"{on.PODS}/{name}/status", status={"nominatedNodeName": node})

    async def main(stage):
        stage.world.node("n1", cpu=4)
        await wished(stage, "too-large", "n1", cpu="5")
        stage.world.ungate("too-large")
        await asyncio.sleep(1)
        assert nominated(stage, "too-large") == ""
        await wished(stage, "low", "n1", cpu="4", priorityClassName="low")
        stage.world.pod("high", cpu="4", priorityClassName="high")
        stage.world.ungate("low")
        assert await stage.placed("high") == "n1"
        await asyncio.sleep(2)
        assert (stage.node_of("low"), nominated(stage, "low")) == ("", "")
        stage.world.delete_pod("too-large", grace=0)

    on_stage(main, opened={"NominatedNodeNameForExpectation": gate})


def test_preemption_nominates_the_node_with_fewer_victims():
    async def main(stage):
        stage.world.end_after_s = 3.0
        for name, sizes in (("n1", ("2", "2")), ("n2", ("3",))):
            stage.world.node(name, cpu=4)
            for number, cpu in enumerate(sizes):
                on.pod(stage.world, f"{name}-{number}", cpu=cpu, nodeName=name, priorityClassName="low")
        stage.world.pod("p", cpu="4", priorityClassName="high", schedulingGates=[{"name": "g"}])
        on.patch(stage.world, f"{on.PODS}/p/status", status={"nominatedNodeName": "n1"})
        stage.world.ungate("p")
        await stage.until(lambda: nominated(stage, "p") == "n2", within_s=2)
        assert await stage.placed("p") == "n2"

    on_stage(main)


UPDATES = {"another takes its place": lambda w: w.pod("high", priorityClassName="high"),
           "it is deleted": lambda w: w.delete_pod("medium", grace=0)}  # fmt: skip


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_a_cleared_nomination_wakes_pods_that_fit(update):
    """UpdateNominatedNodeName: low fits beside high, but not beside medium."""

    async def main(stage):
        stage.world.end_after_s = 20.0
        stage.world.node("n1", cpu=3)
        stage.world.pod("old", cpu="2", priorityClassName="low")
        await stage.placed("old")
        stage.world.pod("medium", cpu="3", priorityClassName="middle", schedulingGates=[{"name": "g"}])
        stage.world.ungate("medium")
        await stage.until(lambda: nominated(stage, "medium"))
        stage.world.pod("low", cpu="2", priorityClassName="low")
        await asyncio.sleep(2)
        update(stage.world)
        await stage.placed("low", within_s=40)

    on_stage(main)


def test_a_profile_of_the_plugin_alone_is_enough():
    """The order of the extension points does not depend on the plugins."""
    on_stage(lambda stage: asyncio.sleep(1), profiles=profile(postFilter="DefaultPreemption"))
