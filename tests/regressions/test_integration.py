"""What kube-scheduler's integration tests look at, category by category, end to end: scheduler and API server, in virtual time.

Categories that have tests of their own elsewhere are not repeated: filters and hints in ``test_upstream_bugs.py`` (b25),
plugins that fail in ``test_fault_matrix.py`` (F25 to F29), events and serving in ``tests/live/server``, and devices there, too.
"""

import asyncio
import itertools

import pytest

from moorage.framework.effects import BindPod
from moorage.framework.verdicts import SKIP, Hold, Narrow, Wait
from tools.simtest.oracle import Terms
from tools.simtest.stage import on_stage
from tools.simtest.world import NODES, PODS

MERGE = "application/merge-patch+json"


def relabel(world, name, **labels):
    held = world.api.do("GET", f"{NODES}/{name}")
    held["metadata"]["labels"].update(labels)
    world.write_node(held)


# -- scoring: which of two nodes is taken ----------------------------------------------------------------------------


def preferring(kind, weight, term):
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, **term}]}}}


def near(app):
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAffinityTerm": term}


LABELLED = {"preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
SOFT = [{"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway",
         "labelSelector": {"matchLabels": {"app": "db"}}}]  # fmt: skip
SCORING = {  # what the pod prefers, what the world is like, where it goes
    "node affinity": (preferring("nodeAffinity", 80, LABELLED), lambda w: relabel(w, "n1", disk="ssd"), "n1"),
    "pod affinity": (preferring("podAffinity", 80, near("db")), lambda w: w.pod("x", app="db", cpu="1m", nodeName="n1"), "n1"),
    "pod anti-affinity": (
        preferring("podAntiAffinity", 80, near("db")), lambda w: w.pod("x", app="db", cpu="1m", nodeName="n0"), "n1",
    ),
    "tolerations": ({}, lambda w: w.node("n0", taints=[{"key": "k", "effect": "PreferNoSchedule"}]), "n1"),
    "spread": (
        {"topologySpreadConstraints": SOFT, "app": "db"}, lambda w: w.pod("x", app="db", cpu="1m", nodeName="n0"), "n1",
    ),
    "free resources": ({}, lambda w: w.pod("x", cpu="3", memory="6Gi", nodeName="n0"), "n1"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "world", "node"), SCORING.values(), ids=SCORING)
def test_scoring(spec, world, node):
    async def main(stage):
        for name in ("n0", "n1"):
            stage.world.node(name)
        world(stage.world)
        await asyncio.sleep(1)
        stage.world.pod("p", **spec)
        assert await stage.placed("p") == node

    on_stage(main)


# -- plugins: each point has its say ---------------------------------------------------------------------------------


class Says:
    """Does at one point what the test wants."""

    name = "Says"


def says(**methods):
    return type("Says", (Says,), {name: staticmethod(method) for name, method in methods.items()})


REFUSALS = {
    "PreEnqueue": {"pre_enqueue": lambda pod: Hold.because("not now")},
    "PreFilter": {"pre_filter": lambda pod, snapshot: Hold.because("not now")},
    "Filter": {"filter_node": lambda state, node: Hold.because("not now")},
    "Reserve": {"reserve": lambda state, pod, node: Hold.because("not now"), "unreserve": lambda state, pod, node: None},
    "Permit": {"permit": lambda state, pod, node: Hold.because("not now")},
    "PreBind": {"pre_bind": lambda state, pod, node: Hold.because("not now")},
}


@pytest.mark.parametrize("methods", REFUSALS.values(), ids=REFUSALS)
def test_a_filter_plugin_rejects_the_pod(methods):
    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await asyncio.sleep(20)
        assert stage.node_of("p") == ""
        assert stage.scheduler.queue.get(stage.pod("p")["metadata"]["uid"]) is not None
        stage.world.delete_pod("p", grace=0)

    on_stage(main, says(**methods))


def test_pre_filter_narrows_and_score_chooses():
    chooses = {
        "pre_filter": lambda pod, snapshot: Narrow(frozenset(["n1", "n2"]), pod),
        "score_node": lambda state, node: 100 if node.name in {"n0", "n2"} else 0,
    }

    async def main(stage):
        for number in range(3):
            stage.world.node(f"n{number}")
        stage.world.pod("p")
        assert await stage.placed("p") == "n2"

    on_stage(main, says(**chooses))


def test_the_first_bind_plugin_that_handles_a_pod_binds_it():
    asked = []

    def bind(state, pod, node):
        asked.append(pod.name)
        return SKIP if pod.name == "skipped" else [BindPod(pod, node)]

    async def main(stage):
        stage.world.node("n1")
        for name in ("skipped", "taken"):
            stage.world.pod(name)
        await stage.placed("skipped", "taken")
        assert asked == []  # DefaultBinder is asked first, and takes every pod

    on_stage(main, says(bind=bind))


def test_coscheduled_pods_are_allowed_together():
    """CoScheduling: each waits until three are there."""

    class Gang:
        name = "Gang"

        def attach(self, handle):
            self.handle = handle

        def permit(self, state, pod, node):
            waiting = [one for one in self.handle.waiting() if "Gang" in one.pending]
            if len(waiting) < 2:
                return Wait(60.0)
            for one in waiting:
                one.allow("Gang")
            return None

    async def main(stage):
        stage.world.node("n1", cpu=8)
        for number in range(2):
            stage.world.pod(f"p{number}")
        await asyncio.sleep(10)
        assert [stage.node_of(f"p{number}") for number in range(2)] == ["", ""]
        stage.world.pod("p2")
        await stage.placed("p0", "p1", "p2", within_s=3)

    on_stage(main, Gang)


# -- preemption ------------------------------------------------------------------------------------------------------


async def a_full_node(stage, **victim):
    stage.world.node("n1", cpu=2)
    stage.world.pod("victim", cpu="2", priorityClassName="low", **victim)
    await stage.placed("victim")


def test_a_never_preempting_pod_preempts_no_pod():
    async def main(stage):
        await a_full_node(stage)
        stage.world.pod("polite", priorityClassName="polite")
        await asyncio.sleep(20)
        assert stage.node_of("polite") == ""
        assert not stage.requests("DELETE", "/pods/victim")

    on_stage(main)


def test_pods_of_equal_priority_do_not_preempt_each_other():
    async def main(stage):
        await a_full_node(stage)
        stage.world.pod("equal", priorityClassName="low")
        await asyncio.sleep(20)
        assert not stage.requests("DELETE", "/pods/victim")

    on_stage(main)


def test_victims_without_a_budget_are_preferred():
    async def main(stage):
        for name in ("n1", "n2"):
            stage.world.node(name, cpu=1)
            only = {"kubernetes.io/hostname": name}
            stage.world.pod(f"on-{name}", app=name, priorityClassName="low", nodeSelector=only)
        await stage.placed("on-n1", "on-n2")
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "n1"}}}
        made = stage.api.do("POST", path, {**budget, "spec": spec})
        stage.api.do("PUT", f"{path}/b/status", {**made, "status": {"disruptionsAllowed": 0, "observedGeneration": 1,
                     "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}})  # fmt: skip
        await asyncio.sleep(1)
        stage.world.pod("important", priorityClassName="high")
        assert await stage.placed("important") == "n2"
        assert stage.node_of("on-n1") == "n1"

    on_stage(main)


def test_a_nomination_reserves_resources_against_new_pods():
    async def main(stage):
        stage.world.end_after_s = 10.0
        await a_full_node(stage)
        stage.world.pod("important", cpu="2", priorityClassName="high")
        await stage.until(lambda: stage.pod("important")["status"].get("nominatedNodeName") == "n1")
        stage.world.pod("newcomer", cpu="2", priorityClassName="middle")
        await stage.placed("important", within_s=20)
        assert stage.node_of("newcomer") == ""

    on_stage(main)


def test_preemption_progresses_under_a_stream_of_small_pods():
    """PreemptionStarvation: pods of low priority keep coming, as controllers recreate victims."""

    async def main(stage):
        for number in range(2):
            stage.world.node(f"n{number}", cpu=2)
        serial = itertools.count()

        async def stream():
            while True:
                if len(stage.world.pods()) < 30:
                    stage.world.pod(f"small-{next(serial)}", cpu="500m", priorityClassName="low")
                await asyncio.sleep(0.05)

        streaming = asyncio.ensure_future(stream())
        await asyncio.sleep(3)
        stage.world.pod("important", cpu="2", priorityClassName="high")
        await stage.placed("important", within_s=20)
        streaming.cancel()

    on_stage(main)


# -- queueing --------------------------------------------------------------------------------------------------------


def test_gated_pods_wait_for_all_their_gates():
    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p", schedulingGates=[{"name": "a"}, {"name": "b"}])
        for left in (["b"], []):
            await asyncio.sleep(3)
            assert stage.node_of("p") == ""
            held = stage.api.do("GET", f"{PODS}/p")
            held["spec"]["schedulingGates"] = [{"name": name} for name in left]
            assert stage.api.do("PUT", f"{PODS}/p", held) is not None
        await stage.placed("p", within_s=2)

    on_stage(main)


def test_a_pod_leaves_backoff_early_if_the_active_queue_is_empty():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("large", cpu="2")
        await asyncio.sleep(1)
        stage.world.node("n1", cpu=4)
        took = await stage.until(lambda: stage.node_of("large"), 5)
        assert took < 0.5

    on_stage(main)


def test_higher_priority_pods_are_placed_first():
    async def main(stage):
        for priority in ("low", "middle", "high"):
            for number in range(2):
                stage.world.pod(f"{priority}-{number}", priorityClassName=priority, schedulingGates=[{"name": "g"}])
        await asyncio.sleep(1)
        stage.world.node("n1", cpu=2, unschedulable=True)
        for pod in stage.world.pods():
            stage.world.ungate(pod["metadata"]["name"])
        await asyncio.sleep(1)
        stage.world.node("n1", cpu=2, unschedulable=False)
        await stage.placed("high-0", "high-1", within_s=11)
        assert not any(stage.node_of(f"{other}-0") for other in ("low", "middle"))

    on_stage(main)


# -- the scheduler as a whole ----------------------------------------------------------------------------------------

TWO = """
profiles:
- schedulerName: default-scheduler
- schedulerName: packer
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}]}}
"""


def test_each_profile_schedules_only_its_pods():
    async def main(stage):
        for name in ("n1", "n2"):
            stage.world.node(name, cpu=8, pods=50)
        for number in range(4):
            stage.world.pod(f"packed-{number}", schedulerName="packer")
            stage.world.pod(f"foreign-{number}", schedulerName="another-scheduler")
            await asyncio.sleep(0.5)
        await stage.placed(*(f"packed-{number}" for number in range(4)))
        assert len({stage.node_of(f"packed-{number}") for number in range(4)}) == 1
        assert not any(stage.node_of(f"foreign-{number}") for number in range(4))

    on_stage(main, profiles=TWO, terms=Terms(schedulers=("default-scheduler", "packer")))


def test_reserved_node_resources_are_not_allocated():
    """Allocatable, not capacity, is what pods share."""

    async def main(stage):
        stage.world.node("n1", cpu=4)
        held = stage.api.do("GET", f"{NODES}/n1")
        amounts = held["status"]["capacity"]
        stage.world.write_node(held, {"capacity": amounts, "allocatable": {**amounts, "cpu": "1"}})
        await asyncio.sleep(1)
        stage.world.pod("large", cpu="2")
        stage.world.pod("small", cpu="1")
        await stage.placed("small")
        assert stage.node_of("large") == ""

    on_stage(main)


def test_failures_and_successes_write_events():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        for name in ("p", "q"):
            stage.world.pod(name)
            await asyncio.sleep(0.5)
        await asyncio.sleep(5)
        events = stage.api.items("/apis/events.k8s.io/v1/namespaces/default/events")
        told = {(event["regarding"]["name"], event["reason"]) for event in events}
        assert {("p", "Scheduled"), ("q", "FailedScheduling")} <= told
        (note,) = {event["note"] for event in events if event["regarding"]["name"] == "p"}
        assert note == "Successfully assigned default/p to n1"

    on_stage(main)
