"""Groups of pods that are bound together."""

from __future__ import annotations

import pytest

from moorage import Simulation
from moorage.api.custom_objects import read_custom
from moorage.framework.verdicts import SKIP, Code, Hold, Wait
from moorage.testing.builders import a_cluster, a_node, a_pod, failed_attempt
from moorage.testing.fake_handle import FakeHandle, FakeWaitingPod
from moorage.testing.plugin_checks import check_plugin
from moorage_scheduler_plugins.coscheduling import LABEL, POD_GROUPS, Coscheduling, CoschedulingArgs

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: "*"}]}
      multiPoint: {enabled: [{name: Coscheduling}]}
    pluginConfig: [{name: Coscheduling, args: {permitWaitingTimeSeconds: 10}}]
"""


def a_group(name="pg", least=3, created="2026-01-01T00:00:00Z", **spec):
    document = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": created},
        "spec": {"minMember": least, **spec},
    }
    return read_custom(document, POD_GROUPS, "the test")


def a_member(name, group="pg", cpu="1", **spec):
    asks = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return a_pod(name, {LABEL: group} if group else {}, containers=[asks], **spec)


class Bench:
    """A plugin with a handle, groups, and pods that it has heard of."""

    def __init__(self, *groups, pods=(), nodes=(("n1", "8"),), placed=(), **args):
        objects = [a_node(name, allocatable={"cpu": cpu, "memory": "8Gi", "pods": 10}) for name, cpu in nodes]
        self.cluster = a_cluster(objects, {"n1": placed} if placed else None)
        self.cluster.custom_kinds = frozenset({POD_GROUPS})
        for group in groups:
            self.cluster.set_object(group)
        self.handle = FakeHandle(self.cluster.snapshot, now=100.0)
        self.plugin = Coscheduling(CoschedulingArgs(**args))
        self.plugin.attach(self.handle)
        for pod in (*pods, *placed):
            self.plugin.pod_changed(None, pod)

    def permit(self, pod):
        return self.plugin.permit(None, pod, "n1")


MEMBERS = [a_member(name) for name in ("a", "b", "c")]
GATED = a_member("c", schedulingGates=[{"name": "hold"}])
#: What there is → why the pod "a" is refused in PreFilter; "" if it is not.
CASES = {
    "enough pods": ({"pods": MEMBERS}, ""),
    "a pod too few": (
        {"pods": MEMBERS[:2]},
        "pre-filter pod a cannot find enough sibling pods, current pods number: 2, minMember of group: 3",
    ),
    "a gated pod": ({"pods": [*MEMBERS[:2], GATED]}, "pre-filter pod a cannot proceed due to gated pods in the same PodGroup"),
    "a gated pod too many": ({"pods": [*MEMBERS, a_member("d", schedulingGates=[{"name": "hold"}])]}, ""),
    "the resources are there": ({"pods": MEMBERS, "minResources": {"cpu": "3"}}, ""),
    "CPU is lacking": ({"pods": MEMBERS, "minResources": {"cpu": "9", "memory": "1Gi"}}, "resource gap: cpu 1000"),
    "places for pods are lacking": (
        {"pods": [a_member(f"p{at}") for at in range(11)], "minResources": {"cpu": "1"}, "least": 11},
        "resource gap: pods 1",
    ),
    "its own pods make room": (
        {"pods": MEMBERS, "placed": [a_member("d", cpu="6", nodeName="n1")], "minResources": {"cpu": "8"}},
        "",
    ),
    "pods of others do not": (
        {"pods": MEMBERS, "placed": [a_member("d", "", cpu="6", nodeName="n1")], "minResources": {"cpu": "8"}},
        "resource gap: cpu 6000",
    ),
}


@pytest.mark.parametrize(("given", "why"), CASES.values(), ids=CASES)
def test_groups_that_cannot_be_complete_are_refused(given, why):
    given = dict(given)
    spec = {name: given.pop(name) for name in ("minResources",) if name in given}
    bench = Bench(a_group(least=given.pop("least", 3), **spec), **given)
    answer = bench.plugin.pre_filter(given["pods"][0] if why.startswith("resource") else a_member("a"), bench.cluster.snapshot)
    assert answer == (Hold.because(why, unresolvable=True) if why else SKIP)


def test_pods_without_a_group_are_no_concern_of_it():
    bench = Bench(a_group())
    assert bench.plugin.pre_filter(a_member("a", ""), bench.cluster.snapshot) is SKIP
    assert bench.plugin.pre_filter(a_member("a", "other"), bench.cluster.snapshot) is SKIP
    assert bench.permit(a_member("a", "")) is None
    assert bench.permit(a_member("a", "other")) == Hold.because("PodGroup not found")


def test_the_last_pod_allows_all():
    bench = Bench(a_group(), pods=MEMBERS)
    assert bench.permit(MEMBERS[0]) == Wait(60.0)
    assert [pod.name for pod in bench.handle.activated] == ["b", "c"], "the first wakes its siblings"
    bench.handle.held.append(FakeWaitingPod(MEMBERS[0], "n1", ["Coscheduling"]))
    assert bench.permit(MEMBERS[1]) == Wait(60.0)
    assert len(bench.handle.activated) == 2, "the second does not"
    bench.handle.held += [
        FakeWaitingPod(MEMBERS[1], "n1", ["Coscheduling"]),
        FakeWaitingPod(a_member("x", "other"), "n1", ["Coscheduling"]),
    ]
    assert bench.permit(MEMBERS[2]) is None
    assert [bool(held.allowed) for held in bench.handle.held] == [True, True, False]


def test_pods_on_nodes_count_after_a_restart():
    bench = Bench(a_group(), pods=[MEMBERS[0]], placed=[a_member("b", nodeName="n1"), a_member("c", nodeName="n1")])
    assert bench.permit(MEMBERS[0]) is None
    bench.plugin.pod_changed(a_member("b", nodeName="n1"), None)
    bench.plugin.unreserve(None, MEMBERS[0], "n1")
    assert bench.permit(MEMBERS[0]) == Wait(60.0), "a deleted pod does not count"


@pytest.mark.parametrize(("own", "usual", "waits"), [(25, 10, 25.0), (None, 10, 10.0), (None, 0, 60.0)])
def test_how_long_a_pod_waits(own, usual, waits):
    spec = {} if own is None else {"scheduleTimeoutSeconds": own}
    assert Bench(a_group(**spec), pods=MEMBERS, permit_waiting_time_seconds=usual).permit(MEMBERS[0]) == Wait(waits)


def failed(bench, pod=MEMBERS[2]):
    return bench.plugin.post_filter(pod, failed_attempt([], pod, bench.cluster.snapshot))


def test_a_pod_that_fits_nowhere_sends_its_group_back():
    bench = Bench(a_group(), pods=MEMBERS, pod_group_backoff_seconds=5)
    for pod in MEMBERS[:2]:
        bench.permit(pod)
        bench.handle.held.append(FakeWaitingPod(pod, "n1", ["Coscheduling"]))
    answer = failed(bench)
    assert answer.code is Code.UNSCHEDULABLE
    assert answer.reasons == ("PodGroup default/pg gets rejected due to Pod c is unschedulable even after PostFilter",)
    assert [held.rejected for held in bench.handle.held] == [[("Coscheduling", "optimistic rejection in PostFilter")]] * 2
    again = bench.plugin.pre_filter(MEMBERS[0], bench.cluster.snapshot)
    assert again == Hold.because("podGroup default/pg failed recently", unresolvable=True)
    bench.handle.now = 105.0
    assert bench.plugin.pre_filter(MEMBERS[0], bench.cluster.snapshot) is SKIP


@pytest.mark.parametrize(
    ("percentage", "assigned", "rejects"), [(10, 9, False), (10, 8, True), (0, 9, True), (100, 1, False), (0, 10, False)]
)
def test_a_small_gap_is_worth_more_attempts(percentage, assigned, rejects):
    pods = [a_member(f"p{at}") for at in range(10)]
    bench = Bench(a_group(least=10), pods=pods, pod_group_reject_percentage=percentage)
    for pod in pods[:assigned]:
        bench.permit(pod)
    bench.handle.held.append(FakeWaitingPod(pods[0], "n1", ["Coscheduling"]))
    failed(bench, pods[9])
    assert bool(bench.handle.held[0].rejected) == rejects


def test_without_a_group_post_filter_finds_nothing():
    bench = Bench()
    assert failed(bench, a_member("x", "")).reasons == ("can not find pod group",)


class Queued:
    def __init__(self, pod, timestamp):
        self.pod, self.timestamp = pod, timestamp


def order(bench, *queued):
    return [one.pod.name for one in sorted(queued, key=bench.plugin.sort_key)]


def test_the_queue_has_groups_together():
    bench = Bench(a_group("old", created="1970-01-01T00:01:00Z"), a_group("young", created="1970-01-01T00:02:00Z"))
    first, second = Queued(a_member("z", "old"), 300.0), Queued(a_member("a", "young"), 200.0)
    alone = Queued(a_member("lone", ""), 90.0)
    assert order(bench, first, second, alone) == ["z", "lone", "a"]
    assert order(bench, Queued(a_member("b", "old"), 1.0), Queued(a_member("a", "old"), 2.0)) == ["a", "b"]
    urgent = Queued(a_member("urgent", "young", priority=10), 500.0)
    assert order(bench, first, urgent)[0] == "urgent"
    failed(bench, first.pod)
    assert order(bench, first, second, alone) == ["lone", "z", "a"], "a group that failed comes later"


def test_a_group_is_placed_together_or_not_at_all():
    def run(cpu):
        node = a_node("n1", allocatable={"cpu": cpu, "memory": "8Gi", "pods": 10})
        sim = Simulation.from_objects(
            node, a_group(), *[a_member(name).pod for name in "abc"], config=CONFIG, plugins=(Coscheduling,), keep_records=True
        )
        return sim.run(until=300)

    assert run("3").placed == 3
    found = run("2")
    assert (found.placed, found.pending) == (0, 3)


def test_pods_wait_for_a_sibling_that_comes_later():
    node = a_node("n1", allocatable={"cpu": "9", "memory": "8Gi", "pods": 10})
    pods = [a_member(name).pod for name in "ab"]
    sim = Simulation.from_objects(node, a_group(), *pods, config=CONFIG, plugins=(Coscheduling,), keep_records=True)
    assert sim.run(until=20).placed == 0
    assert "cannot find enough sibling pods" in sim.outcome().pods[0].message
    sim.add(a_member("c").pod)
    assert sim.run(until=60).placed == 3


def test_arguments_out_of_bounds_are_faults():
    args = CoschedulingArgs(permit_waiting_time_seconds=-1, pod_group_backoff_seconds=-1, pod_group_reject_percentage=101)
    assert [fault.field for fault in args.faults("args", None)] == [
        "args.permitWaitingTimeSeconds", "args.podGroupBackoffSeconds", "args.podGroupRejectPercentage",
    ]  # fmt: skip


def test_the_contract_is_kept():
    bench = Bench(a_group(), pods=MEMBERS)
    check_plugin(bench.plugin, pods=[*MEMBERS, a_member("lone", "")], cluster=bench.cluster, handle=bench.handle)
