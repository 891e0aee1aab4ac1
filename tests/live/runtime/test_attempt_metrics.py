"""The loop logs and measures what it does with kube-scheduler's messages and metrics."""

import asyncio
from contextlib import asynccontextmanager

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import ObjectMeta
from moorage.api.pod_groups import GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec
from moorage.core.building.builder import build_profiles
from moorage.core.config.configuration_loader import load
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import ClusterError
from moorage.framework.verdicts import Wait
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.runtime.inbox import Inbox
from moorage.live.runtime.loop import Loop
from moorage.live.runtime.ports import Clocks
from moorage.live.server.scheduler_metrics import SchedulerMetrics, engine_gauges
from moorage.plugins import builtin_registry
from moorage.testing.builders import a_node, a_pod
from moorage.testing.memory_cluster import MemoryCluster, Trouble
from moorage.testing.virtual_time import run_virtually

CONFIG = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    permit: {enabled: [{name: Slow}]}
"""


class Slow:
    """Lets pods that request it wait two seconds, or indefinitely."""

    name = "Slow"

    def __init__(self, args=None):
        self.handle = None

    def attach(self, handle):
        self.handle = handle

    def permit(self, state, pod, node):
        wait = pod.labels.get("wait")
        if wait is None:
            return None
        if wait == "briefly":
            asyncio.get_running_loop().call_later(2, self._allow)
        return Wait(60.0)

    def _allow(self):
        for waiting in self.handle.waiting():
            if waiting.pod.labels["wait"] == "briefly":
                waiting.allow(self.name)


class Lines:
    """A log that keeps what is reported."""

    def __init__(self, level=10):
        self.level, self.lines, self.errors = level, [], []

    def shows(self, level):
        return level <= self.level

    def info(self, level, message, **facts):
        if level <= self.level:
            self.lines.append((level, message, {name: str(value) for name, value in facts.items()}))

    def warning(self, message, **facts):
        self.lines.append((0, message, facts))

    def error(self, error, message, **facts):
        self.errors.append((str(error), message, str(facts.get("pod", ""))))

    def said(self, message):
        return [facts for _, text, facts in self.lines if text == message]


@asynccontextmanager
async def running(cluster, log=None, opened=""):
    clock = asyncio.get_running_loop().time
    meter, inbox = SchedulerMetrics(clock, FeatureGates.parse("GenericWorkload=true" if opened else "")), Inbox()
    gates, registry = FeatureGates.parse(opened), builtin_registry()
    registry.add(Slow)
    configuration = load(CONFIG, "config", registry, gates)

    def build(handle):
        built = build_profiles(configuration, registry, gates, handle).profiles
        return {name: meter.probe.watched(profile) for name, profile in built.items()}

    scheduler = Scheduler(Cycle(seed=1), gates, build)
    scheduler.queue.time_hints(clock, meter.hinted)
    log = log or Lines()
    clocks = Clocks(clock, lambda: f"{clock():.3f}")
    loop = Loop(scheduler, inbox, cluster, clocks, observers=Observers(log=log, measures=meter))
    loop.meter, loop.log = meter, log
    cluster.watch(inbox)
    tasks = [asyncio.create_task(loop.act()), asyncio.create_task(loop.run())]
    try:
        yield loop
    finally:
        for task in tasks:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def node(name, cpu="2"):
    return a_node(name, allocatable={"cpu": cpu, "memory": "8Gi", "pods": "20"})


def pod(name, cpu="1", **more):
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return a_pod(name, containers=containers, schedulerName="default-scheduler", **more).pod


def values(loop):
    families = [*loop.meter.families, *engine_gauges(loop.scheduler, loop.follower)]
    found = {}
    for family in families:
        name = family.spec.name.removeprefix("scheduler_")
        if hasattr(family, "children"):
            found[name] = {labels: sum(child.counts) for labels, child in family.children.items()}
        else:
            found[name] = dict(family.values if hasattr(family, "values") else family.read())
    return found


def run(cluster, seconds, act=None, opened=""):
    async def main():
        async with running(cluster, opened=opened) as loop:
            if act is not None:
                await act(loop)
            await asyncio.sleep(seconds)
            return loop, values(loop)

    return run_virtually(main())


def test_scheduled_pods_are_logged_and_counted():
    loop, found = run(MemoryCluster([node("n1"), pod("a"), pod("b"), pod("c")]), 2)
    profile = "default-scheduler"
    assert found["schedule_attempts_total"] == {("scheduled", profile): 2, ("unschedulable", profile): 1}
    assert found["scheduling_attempt_duration_seconds"] == found["schedule_attempts_total"]
    assert found["scheduling_algorithm_duration_seconds"] == {(): 3}
    assert found["pod_scheduling_attempts"] == {(): 2}
    assert found["pod_scheduling_sli_duration_seconds"] == {("1",): 2}
    assert found["pending_pods"] == {("active",): 0, ("backoff",): 0, ("unschedulable",): 1, ("gated",): 0}
    assert found["unschedulable_pods"] == {("NodeResourcesFit", profile): 1}
    assert found["cache_size"] == {("nodes",): 1, ("pods",): 2, ("assumed_pods",): 0}
    assert found["queue_incoming_pods_total"][("active", "UnscheduledPodAdd")] == 3
    assert found["preemption_attempts_total"] == {(): 1}
    assert found["goroutines"] == {("binding",): 0, ("preemption",): 0}
    assert found["inflight_events"] == {("PodPopped",): 0}
    assert found["framework_extension_point_duration_seconds"][("Bind", "Success", profile)] == 2
    assert found["event_handling_duration_seconds"][("NodeAdd",)] == 1
    assert found["event_handling_duration_seconds"][("AssignedPodAdd",)] == 2
    bound = loop.log.said("Successfully bound pod to node")
    assert sorted(facts["pod"] for facts in bound) == ["default/a", "default/b"]
    assert bound[0]["node"] == "n1"
    assert (bound[0]["evaluatedNodes"], bound[0]["feasibleNodes"]) == ("1", "1")
    (waiting,) = loop.log.said("Unable to schedule pod; no fit; waiting")
    assert waiting["err"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert len(loop.log.said("Attempting to schedule pod")) == 3
    assert [facts["node"] for facts in loop.log.said("Add event for node")] == ["n1"]
    assert len(loop.log.said("Add event for unscheduled pod")) == 3
    assert loop.log.errors == []
    assert loop.follower._trips == {}


LEVELS = {
    "Attempting to schedule pod": 3, "Successfully bound pod to node": 2, "Unable to schedule pod; no fit; waiting": 2,
    "Add event for node": 3, "Add event for unscheduled pod": 3, "Add event for scheduled pod": 3,
}  # fmt: skip


def test_lines_have_kube_schedulers_levels():
    loop, _ = run(MemoryCluster([node("n1"), pod("a"), pod("b", cpu="3")]), 2)
    assert {text: level for level, text, _ in loop.log.lines if text in LEVELS} == LEVELS


def test_a_low_verbosity_log_gets_only_the_lines_it_shows():
    async def main():
        log = Lines(level=0)
        async with running(MemoryCluster([node("n1"), pod("a"), pod("b", cpu="3")]), log):
            await asyncio.sleep(2)
        return log

    assert run_virtually(main()).lines == []


def test_scores_are_logged_at_high_verbosity():
    cluster = MemoryCluster([node("n1"), node("n2", cpu="8")])

    async def act(loop):
        loop.scheduler.cycle.by_class = False
        cluster.put(pod("a"))

    loop, _ = run(cluster, 1, act)
    final = loop.log.said("Calculated node's final score for pod")
    assert [(facts["pod"], facts["node"]) for facts in final] == [("default/a", "n1"), ("default/a", "n2")]
    by_plugin = [facts for facts in loop.log.said("Plugin scored node for pod") if facts["node"] == "n1"]
    assert sum(int(facts["score"]) for facts in by_plugin) == int(final[0]["score"])


def test_the_result_of_preemption_is_logged():
    loop, _ = run(MemoryCluster([node("n1"), pod("a", cpu="9")]), 1)
    (facts,) = loop.log.said("Status after running PostFilter plugins for pod")
    assert "preemption: 0/1 nodes are available" in facts["status"]


def test_an_empty_cluster_is_logged():
    loop, _ = run(MemoryCluster([pod("a")]), 2)
    text = "Unable to schedule pod; no nodes are registered to the cluster; waiting"
    assert loop.log.said(text)[0] == {"pod": "default/a"}


def test_a_refused_bind_counts_as_an_error_of_its_attempt_and_of_no_plugin():
    cluster = MemoryCluster([node("n1"), pod("a")])
    cluster.faults.append(Trouble("bind", ClusterError("refused", 409, "Conflict"), times=4))
    loop, found = run(cluster, 5)
    profile = "default-scheduler"
    assert found["schedule_attempts_total"] == {("error", profile): 1, ("scheduled", profile): 1}
    assert found["moorage_attempt_errors_total"] == {}  # the API server refused it, no plugin
    assert found["pod_scheduling_sli_duration_seconds"] == {("2",): 1}
    ((error, message, name),) = loop.log.errors
    assert (message, name) == ("Error scheduling pod; retrying", "default/a")
    assert "refused" in error


def test_a_terminating_pod_is_skipped_with_an_event():
    cluster = MemoryCluster([node("n1")])

    async def act(loop):
        await asyncio.sleep(1)
        leaving = pod("a")
        metadata = replace(leaving.metadata, deletion_timestamp="2026-11-21T00:00:00Z")
        cluster.put(replace(leaving, metadata=metadata))

    loop, _ = run(cluster, 3, act)
    assert [(note.reason, note.text) for note in cluster.notes] == [
        ("FailedScheduling", "skip schedule deleting pod: default/a")
    ]
    assert loop.log.said("Skip schedule deleting pod") == [{"pod": "default/a"}]
    assert not loop.scheduler.state.outbox


def test_permit_wait_durations_are_measured():
    cluster = MemoryCluster([node("n1"), pod("a", labels={"wait": "briefly"}), pod("b", labels={"wait": "for-ever"})])
    loop, found = run(cluster, 61)
    assert found["permit_wait_duration_seconds"] == {("Success",): 1, ("Unschedulable",): 1}
    histogram = next(one for one in loop.meter.families if one.spec.name.endswith("permit_wait_duration_seconds"))
    assert histogram.children[("Success",)].total > 1.9
    assert histogram.children[("Unschedulable",)].total > 59


def test_preemption_metrics_are_recorded():
    cluster = MemoryCluster([node("n1"), pod("low", cpu="2", priority=0)])

    async def act(loop):
        await asyncio.sleep(1)
        cluster.put(pod("high", cpu="2", priority=10))

    _, found = run(cluster, 5, act)
    assert found["preemption_attempts_total"] == {(): 1}
    assert found["preemption_victims"] == {(): 1}
    assert found["preemption_goroutines_execution_total"] == {("success",): 1}
    assert found["preemption_goroutines_duration_seconds"] == {("success",): 1}


def test_measuring_queueing_hints_moves_the_same_pods():
    cluster = MemoryCluster([node("n1", cpu="1"), pod("large", cpu="4")])

    async def act(loop):
        await asyncio.sleep(1)
        cluster.put(node("n2", cpu="1"))
        await asyncio.sleep(1)
        cluster.put(node("n3", cpu="8"))

    _, found = run(cluster, 20, act)
    hints = found["queueing_hint_execution_duration_seconds"]
    assert hints[("NodeResourcesFit", "NodeAdd", "QueueSkip")] == 1
    assert hints[("NodeResourcesFit", "NodeAdd", "Queue")] == 1
    assert found["schedule_attempts_total"][("scheduled", "default-scheduler")] == 1


def test_a_pod_deleted_while_it_waits_leaves_no_state():
    cluster = MemoryCluster([node("n1"), pod("a", labels={"wait": "for-ever"})])

    async def act(loop):
        await asyncio.sleep(1)
        assert len(loop.follower._trips) == 1
        cluster.remove(cluster.pods()[0])

    loop, _ = run(cluster, 5, act)
    assert loop.follower._trips == {}


class SlowToAnswer(MemoryCluster):
    async def bind(self, pod, node, check):
        await super().bind(pod, node, check)
        await asyncio.sleep(1.0)


def test_a_pod_deleted_before_its_bind_reply_leaves_no_state():
    cluster = SlowToAnswer([node("n1"), pod("a"), pod("b")])

    async def act(loop):
        while not (held := cluster.get(Pod, "default/a")).spec.node_name:
            await asyncio.sleep(0.01)
        assert len(loop.follower._trips) == 2
        cluster.remove(held)

    loop, found = run(cluster, 5, act)
    assert not loop.follower._trips
    assert found["schedule_attempts_total"] == {("scheduled", "default-scheduler"): 2}


# -- pod groups -----------------------------------------------------------------------------------------------------------


def group(name, least):
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=least))
    return PodGroup(metadata=ObjectMeta(name=name, namespace="default", uid=name), spec=PodGroupSpec(scheduling_policy=policy))


def test_pod_group_attempts_are_counted_and_logged():
    groups = {"fits": 2, "waits": 3}
    pods = [
        pod(f"{name}-{number}", schedulingGroup={"podGroupName": name})
        for name, least in groups.items()
        for number in range(least)
    ]
    cluster = MemoryCluster([node("n1"), *(group(name, least) for name, least in groups.items()), *pods])
    loop, found = run(cluster, 3.0, opened="GenericWorkload=true")
    attempts = found["podgroup_schedule_attempts_total"]
    assert attempts["scheduled", "default-scheduler"] == 1
    assert attempts["unschedulable", "default-scheduler"] >= 1
    assert sum(found["podgroup_scheduling_algorithm_duration_seconds"].values()) == sum(attempts.values())
    (told,) = loop.log.said("Successfully scheduled a pod group")
    assert told == {"podGroup": "default/fits", "scheduledPods": "2", "unschedulablePods": "0"}
    told, *_ = loop.log.said("Unable to schedule a pod group")
    assert told == {"podGroup": "default/waits", "unschedulablePods": "3"}
    conditions = [cluster.get(PodGroup, f"default/{name}").status.conditions for name in ("fits", "waits")]
    assert [(one.type, one.status, one.reason) for (one,) in conditions] == [
        ("PodGroupInitiallyScheduled", "True", "Scheduled"), ("PodGroupInitiallyScheduled", "False", "Unschedulable"),
    ]  # fmt: skip


def test_pod_group_metrics_are_hidden_while_the_gate_is_disabled():
    names = {family.spec.name for family in SchedulerMetrics(lambda: 0.0).families}
    assert not any("podgroup" in name for name in names)
    assert (
        sum(
            "podgroup" in family.spec.name
            for family in SchedulerMetrics(lambda: 0.0, FeatureGates.parse("GenericWorkload=true")).families
        )
        == 3
    )
