"""Quotas that borrow, and take back. The first tables are those of the tests of scheduler-plugins 903da7df82cb."""

from __future__ import annotations

import pytest

from moorage import Simulation
from moorage.api.custom_objects import read_custom
from moorage.framework.verdicts import SKIP, Code
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.testing.builders import a_cluster, a_node, a_pod, failed_attempt
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_checks import check_plugin
from moorage_scheduler_plugins.capacity_scheduling import ELASTIC_QUOTAS, CapacityScheduling, exceeds

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint: {enabled: [{name: CapacityScheduling}]}
      postFilter: {enabled: [{name: CapacityScheduling}], disabled: [{name: "*"}]}
"""
LOW, MID, HIGH = 0, 100, 1000


def a_quota(namespace, least=None, most=None):
    spec = {name: {"memory": str(amount)} for name, amount in (("min", least), ("max", most)) if amount is not None}
    metadata = {"name": "quota", "namespace": namespace}
    document = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": metadata, "spec": spec}
    return read_custom(document, ELASTIC_QUOTAS, "the test")


def a_user(name, namespace, memory, priority=MID, **spec):
    asks = {"name": "c", "resources": {"requests": {"memory": str(memory)}}}
    return a_pod(name, namespace=namespace, containers=[asks], priority=priority, **spec)


class Bench:
    def __init__(self, *quotas, placed=(), queue=()):
        self.cluster = a_cluster([a_node("node-a", allocatable={"memory": "150", "pods": 10})], {"node-a": placed})
        self.cluster.custom_kinds = frozenset({ELASTIC_QUOTAS})
        for quota in quotas:
            self.cluster.set_object(quota)
        self.handle = FakeHandle(self.cluster.snapshot)
        self.handle.queue += queue
        self.plugin = CapacityScheduling()
        self.plugin.attach(self.handle)
        for pod in placed:
            self.plugin.pod_changed(None, pod.on("node-a"))

    def refuses(self, pod):
        answer = self.plugin.pre_filter(pod, self.cluster.snapshot)
        return "" if answer is SKIP else answer.reasons[0]

    def preempts(self, pod):
        return self.plugin.post_filter(pod, failed_attempt([NodeResourcesFit()], pod, self.cluster.snapshot))


USED = a_user("used", "ns1", 300)
MOST = "Pod ns1/p is rejected in PreFilter because ElasticQuota ns1 is more than Max"
TOTAL = "is rejected in PreFilter because total ElasticQuota used is more than min"
PRE_FILTER = {
    "within the guarantee": ([a_quota("ns1", 1000, 2000)], [USED], a_user("p", "ns1", 500), ""),
    "beyond the limit": ([a_quota("ns1", 1000, 2000)], [USED], a_user("p", "ns1", 1800), MOST),
    "beyond what all are guaranteed": (
        [a_quota("ns1", 1000, 2000), a_quota("ns2", 1000, 2000)],
        [a_user("a", "ns1", 1800), a_user("b", "ns2", 200)],
        a_user("p", "ns2", 500),
        f"Pod ns2/p {TOTAL}",
    ),
    "borrowing": (
        [a_quota("ns1", 1000, 2000), a_quota("ns2", 1000, 2000)],
        [a_user("a", "ns1", 1000)],
        a_user("p", "ns1", 500),
        "",
    ),
    "no quota": ([], [], a_user("p", "ns2", 500), ""),
    "another namespace's quota": ([a_quota("ns1", 10, 10)], [], a_user("p", "ns2", 500), ""),
    "without a limit": ([a_quota("ns1", 5000)], [USED], a_user("p", "ns1", 4000), ""),
    "without a guarantee": ([a_quota("ns1", None, 5000)], [], a_user("p", "ns1", 1), f"Pod ns1/p {TOTAL}"),
}


@pytest.mark.parametrize(("quotas", "placed", "pod", "why"), PRE_FILTER.values(), ids=PRE_FILTER)
def test_quotas_are_held(quotas, placed, pod, why):
    assert Bench(*quotas, placed=placed).refuses(pod) == why


def test_nominated_pods_that_come_before_count():
    waiting = a_user("first", "ns1", 600, HIGH, uid="first")
    nominated = a_pod(
        "first", namespace="ns1", uid="first", priority=HIGH, status={"nominatedNodeName": "node-a"},
        containers=[{"name": "c", "resources": {"requests": {"memory": "600"}}}],
    )  # fmt: skip
    pod = a_user("p", "ns1", 500)
    assert Bench(a_quota("ns1", 5000, 1000), queue=[waiting]).refuses(pod) == ""
    assert Bench(a_quota("ns1", 5000, 1000), queue=[nominated]).refuses(pod) == MOST
    assert Bench(a_quota("ns1", 5000, 1000), queue=[nominated]).refuses(a_user("p", "ns1", 500, HIGH + 1)) == ""


def three(*namespaces, priorities=(MID, MID, MID)):
    return [a_user(f"p{at}", ns, 50, priority) for at, (ns, priority) in enumerate(zip(namespaces, priorities, strict=True), 1)]


PREEMPTS = {
    "from its own namespace": (
        [a_quota("ns1", 50, 200), a_quota("ns2", 200, 200)],
        three("ns1", "ns2", "ns2"),
        a_user("p", "ns1", 50, HIGH),
        ["p1"],
    ),
    "from a namespace that borrows": (
        [a_quota("ns1", 150, 200), a_quota("ns2", 50, 200)],
        three("ns1", "ns2", "ns2", priorities=(MID, HIGH, MID)),
        a_user("p", "ns1", 50, HIGH),
        ["p3"],
    ),
    "from a namespace that borrows, whatever its priority": (
        [a_quota("ns1", 150, 200), a_quota("ns2", 50, 200)],
        three("ns1", "ns2", "ns2", priorities=(MID, HIGH, HIGH)),
        a_user("p", "ns1", 50, LOW),
        ["p2"],
    ),
    "without quotas, from lesser pods": (
        [],
        three("a", "b", "c", priorities=(MID, LOW, HIGH)),
        a_user("p", "d", 50, HIGH),
        ["p2"],
    ),
    "without a quota, from no pod that has one": (
        [a_quota("ns1", 150, 200)],
        three("ns1", "ns1", "ns1"),
        a_user("p", "d", 50, HIGH),
        None,
    ),
    "from no namespace within its guarantee": (
        [a_quota("ns1", 150, 200), a_quota("ns2", 150, 200)],
        three("ns2", "ns2", "ns2"),
        a_user("p", "ns1", 50, HIGH),
        None,
    ),
    "beyond its limit, from its own": (
        [a_quota("ns1", 150, 100)],
        three("ns1", "ns1", "other"),
        a_user("p", "ns1", 50, HIGH),
        None,
    ),
}


@pytest.mark.parametrize(("quotas", "placed", "pod", "victims"), PREEMPTS.values(), ids=PREEMPTS)
def test_what_is_borrowed_is_taken_back(quotas, placed, pod, victims):
    found = Bench(*quotas, placed=placed).preempts(pod)
    if victims is None:
        assert (found.code, found.victims) == (Code.UNSCHEDULABLE, ())
        assert found.reasons[0].startswith(
            "preemption: 0/1 nodes are available: 1 No victims found on node node-a for preemptor"
        )
    else:
        assert (found.code, found.nominated) == (Code.SUCCESS, "node-a")
        assert [victim.name for victim in found.victims] == victims


def test_pods_that_must_not_preempt_do_not():
    found = Bench(placed=three("a", "b", "c")).preempts(a_user("p", "d", 50, HIGH, preemptionPolicy="Never"))
    assert found.reasons == ("preemption: not eligible due to preemptionPolicy=Never.",)


def test_reservations_count_until_they_are_undone():
    bench = Bench(a_quota("ns1", 1000, 1000))
    first, second = a_user("a", "ns1", 600), a_user("p", "ns1", 600)
    bench.plugin.reserve(None, first, "node-a")
    assert bench.refuses(second) == MOST
    bench.plugin.unreserve(None, first, "node-a")
    assert bench.refuses(second) == ""
    bench.plugin.pod_changed(None, first.on("node-a"))
    assert bench.refuses(second) == MOST
    bench.plugin.pod_changed(first, None)
    assert bench.refuses(second) == ""


def test_bounds():
    assert not exceeds({"cpu": 5}, {"cpu": 5}, {"cpu": 10}, 0)
    assert exceeds({"cpu": 6}, {"cpu": 5}, {"cpu": 10}, 0)
    assert exceeds({"gpu": 1}, {}, {}, 0)
    assert not exceeds({"gpu": 1}, {}, {}, 2**63 - 1)
    assert not exceeds({}, {"gpu": 1}, {}, 0), "what the pod does not ask for is not compared"
    assert exceeds({}, {"memory": 1}, {"cpu": 1}, 2**63 - 1), "a given bound has 0 of the native resources that it leaves out"


def test_a_quota_takes_back_what_another_borrowed():
    node = a_node("n1", allocatable={"memory": "400", "cpu": "8", "pods": 10})
    borrowers = [a_user(f"b{at}", "ns2", 100).pod for at in range(4)]
    sim = Simulation.from_objects(
        node, a_quota("ns1", 200, 400), a_quota("ns2", 200, 400), *borrowers, config=CONFIG, plugins=(CapacityScheduling,),
        keep_records=True,
    )  # fmt: skip
    assert sim.run(until=10).placed == 4
    sim.add(a_user("owner", "ns1", 100).pod)
    sim.run(until=120)
    by_name = {pod.name: pod for pod in sim.outcome().pods}
    assert by_name["owner"].node == "n1"


def test_the_contract_is_kept():
    bench = Bench(a_quota("default", 1000, 1000))
    check_plugin(bench.plugin, cluster=bench.cluster, handle=bench.handle)
