"""Pods that must fit one NUMA zone."""

from __future__ import annotations

import pytest

from moorage.api.custom_objects import read_custom
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_checks import check_plugin
from moorage_scheduler_plugins.node_resource_topology import (
    TOPOLOGIES,
    NodeResourceTopologyMatch,
    ResourceWeight,
    ScoringStrategy,
    TopologyMatchArgs,
    manager_of,
)
from moorage_scheduler_plugins.quality import qos_of

NIC = "vendor/nic1"
NOT_NUMA = "vendor.com/old-nic"


def a_report(scope="container", policy="single-numa-node", zones=None, attributes=None, version="1", **fields):
    zones = zones if zones is not None else [{"cpu": "4", "memory": "8Gi", NIC: "10"}, {"cpu": "8", "memory": "8Gi", NIC: "5"}]
    given = [
        {"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope},
    ] if attributes is None else attributes  # fmt: skip
    document = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1", "resourceVersion": version},
        "attributes": given,
        "zones": [
            {
                "name": f"node-{at}",
                "type": "Node",
                "costs": [{"name": f"node-{to}", "value": 10 if to == at else 20} for to in range(len(zones))],
                "resources": [
                    {"name": name, "available": amount, "allocatable": amount, "capacity": amount}
                    for name, amount in zone.items()
                ],
            }
            for at, zone in enumerate(zones)
        ],
        **fields,
    }
    return read_custom(document, TOPOLOGIES, "the test")


def a_cluster_of(report, **more):
    offered = {
        "cpu": "12",
        "memory": "16Gi",
        "pods": 20,
        NIC: "15",
        NOT_NUMA: "3",
        "ephemeral-storage": "10Gi",
        "hugepages-2Mi": "1Gi",
        **more,
    }
    cluster = a_cluster([a_node("n1", allocatable=offered)])
    cluster.custom_kinds = frozenset({TOPOLOGIES})
    if report is not None:
        cluster.set_object(report)
    return cluster


class Bench:
    def __init__(self, report, **args):
        self.cluster = a_cluster_of(report)
        self.handle = FakeHandle(self.cluster.snapshot)
        self.plugin = NodeResourceTopologyMatch(TopologyMatchArgs(**args))
        self.plugin.attach(self.handle)

    @property
    def node(self):
        return next(iter(self.cluster.snapshot.nodes))

    def refuses(self, pod):
        hold = self.plugin.filter_node(pod, self.node)
        return "" if hold is None else hold.reasons[0]

    def score(self, pod):
        return self.plugin.score_node(pod, self.node)


def guaranteed(*asks, init=()):
    def containers(amounts):
        return [{"name": f"c{at}", "resources": {"requests": one, "limits": one}} for at, one in enumerate(amounts)]

    return a_pod("p", containers=containers(asks), initContainers=containers(init))


def burstable(*asks):
    return a_pod("p", containers=[{"name": f"c{at}", "resources": {"requests": one}} for at, one in enumerate(asks)])


ALONE = {"cpu": "2", "memory": "2Gi"}
CONTAINER, POD = "cannot align container", "cannot align pod"
FILTER = {
    "a guaranteed pod": ("container", guaranteed(ALONE), ""),
    "one that fills a zone": ("container", guaranteed({"cpu": "8", "memory": "8Gi"}), ""),
    "more than a zone has": ("container", guaranteed({"cpu": "9", "memory": "1Gi"}), CONTAINER),
    "more than a zone has, as a pod": ("pod", guaranteed({"cpu": "5", "memory": "1Gi"}, {"cpu": "4", "memory": "1Gi"}), POD),
    "containers in zones of their own": (
        "container",
        guaranteed({"cpu": "5", "memory": "1Gi"}, {"cpu": "4", "memory": "1Gi"}),
        "",
    ),
    "the third container finds none": ("container", guaranteed(*[{"cpu": "5", "memory": "1Gi"}] * 2), CONTAINER),
    "CPU in one zone, devices in the other": ("container", guaranteed({"cpu": "5", "memory": "1Gi", NIC: "6"}), CONTAINER),
    "best effort": ("container", a_pod("p", containers=[{"name": "c"}]), ""),
    "best effort with devices": ("container", burstable({NIC: "10"}), ""),
    "best effort with too many devices": ("container", burstable({NIC: "11"}), CONTAINER),
    "best effort with too many devices, as a pod": ("pod", burstable({NIC: "11"}), POD),
    "burstable, CPU is not bound to a zone": ("container", burstable({"cpu": "9", "memory": "9Gi"}), ""),
    "burstable with devices": ("pod", burstable({"cpu": "9", NIC: "10"}), ""),
    "burstable with too many devices": ("pod", burstable({"cpu": "1", NIC: "20"}), POD),
    "nothing of what no zone has": ("container", guaranteed({**ALONE, "hugepages-2Mi": "0"}), ""),
    "hugepages, which no zone has": ("container", guaranteed({**ALONE, "hugepages-2Mi": "2Mi"}), CONTAINER),
    "a device without a zone": ("container", guaranteed({**ALONE, NOT_NUMA: "3"}), ""),
    "storage without a zone": ("container", guaranteed({**ALONE, "ephemeral-storage": "1Gi"}), ""),
    "a device that the node lacks": ("container", guaranteed({**ALONE, "vendor/none": "1"}), CONTAINER),
    "an init container too large": (
        "container",
        guaranteed(ALONE, init=[{"cpu": "9", "memory": "1Gi"}]),
        "cannot align init container",
    ),
    "init containers one after another": ("container", guaranteed(ALONE, init=[{"cpu": "8", "memory": "1Gi"}] * 2), ""),
}


@pytest.mark.parametrize(("scope", "pod", "why"), FILTER.values(), ids=FILTER)
def test_pods_fit_a_zone(scope, pod, why):
    assert Bench(a_report(scope)).refuses(pod) == why


def test_other_policies_and_nodes_without_a_report_are_no_concern_of_it():
    large = guaranteed({"cpu": "9", "memory": "1Gi"})
    assert Bench(a_report(policy="restricted")).refuses(large) == ""
    assert Bench(a_report(attributes=[])).refuses(large) == ""
    assert Bench(None).refuses(large) == ""
    old = a_report(attributes=[], topologyPolicies=["SingleNUMANodePodLevel"])
    assert Bench(old).refuses(large) == POD


def test_attributes_go_before_policies_of_earlier_agents():
    new = [{"name": "topologyManagerScope", "value": "pod"}, {"name": "topologyManagerMaxNUMANodes", "value": "4"}]
    report = a_report(attributes=new, topologyPolicies=["RestrictedContainerLevel", "BestEffortPodLevel"])
    assert manager_of(report) == manager_of(report).__class__("restricted", "pod", 4)
    for wrong in ("1", "x", "-4", ""):
        assert manager_of(a_report(attributes=[{"name": "topologyManagerMaxNUMANodes", "value": wrong}])).most_zones == 8
    assert manager_of(a_report(attributes=[{"name": "topologyManagerMaxNUMANodes", "value": "9999"}])).most_zones == 1024


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (a_pod(containers=[{"name": "c"}]), "BestEffort"),
        (guaranteed(ALONE), "Guaranteed"),
        (burstable(ALONE), "Burstable"),
        (a_pod(containers=[{"name": "c", "resources": {"limits": ALONE}}]), "Guaranteed"),
        (a_pod(containers=[{"name": "c", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}]), "Burstable"),
        (burstable({NIC: "1"}), "BestEffort"),
    ],
)
def test_classes_of_service(pod, expected):
    assert qos_of(pod) == expected


TWO = [{"cpu": "8", "memory": "8Gi"}, {"cpu": "4", "memory": "4Gi"}]
HALF = {"cpu": "2", "memory": "2Gi"}
SCORES = {
    "least allocated, the worse zone": ("LeastAllocated", "pod", [HALF], 50),
    "most allocated, the worse zone": ("MostAllocated", "pod", [HALF], 25),
    "balanced": ("BalancedAllocation", "pod", [{"cpu": "4", "memory": "2Gi"}], 87),
    "containers on average": ("LeastAllocated", "container", [HALF, {"cpu": "4", "memory": "4Gi"}], 50),
    "one zone of at most eight": ("LeastNUMANodes", "pod", [HALF], 94),
    "two zones of at most eight": ("LeastNUMANodes", "pod", [{"cpu": "10", "memory": "1Gi"}], 82),
    "nothing of the zones": ("LeastNUMANodes", "pod", [{"cpu": "0"}], 100),
}


@pytest.mark.parametrize(("strategy", "scope", "asks", "expected"), SCORES.values(), ids=SCORES)
def test_nodes_are_scored_by_their_zones(strategy, scope, asks, expected):
    bench = Bench(a_report(scope, zones=TWO), scoring_strategy=ScoringStrategy(type=strategy))
    assert bench.score(guaranteed(*asks) if asks[0].get("cpu") != "0" else burstable(*asks)) == expected


def test_weights_of_resources():
    strategy = ScoringStrategy(resources=(ResourceWeight(name="cpu", weight=3), ResourceWeight(name="memory", weight=1)))
    bench = Bench(a_report("pod", zones=[{"cpu": "4", "memory": "8Gi"}]), scoring_strategy=strategy)
    assert bench.score(guaranteed({"cpu": "1", "memory": "4Gi"})) == (75 * 3 + 50) // 4


def test_other_pods_fit_everywhere_alike():
    assert Bench(a_report()).score(burstable(HALF)) == 100
    assert Bench(None).score(guaranteed(HALF)) == 0
    assert Bench(a_report(policy="none")).score(guaranteed(HALF)) == 0


def test_a_placed_pod_counts_until_the_next_report():
    bench = Bench(a_report(zones=[ALONE]), cache_resync_period_seconds=5)
    pod = guaranteed(ALONE)
    bench.plugin.reserve(None, pod, "n1")
    assert bench.refuses(guaranteed({"cpu": "1", "memory": "1Gi"})) == CONTAINER
    bench.cluster.set_object(a_report(zones=[ALONE], version="2"))
    assert bench.refuses(guaranteed({"cpu": "1", "memory": "1Gi"})) == ""
    without = Bench(a_report(zones=[ALONE]))
    without.plugin.reserve(None, pod, "n1")
    assert without.refuses(guaranteed(ALONE)) == ""


def test_a_node_with_a_reservation_is_left_out():
    bench = Bench(a_report(), discard_reserved_nodes=True)
    pod = guaranteed(ALONE)
    bench.plugin.reserve(None, pod, "n1")
    assert bench.refuses(guaranteed(ALONE)) == "invalid node topology data"
    bench.plugin.post_bind(None, pod, "n1")
    assert bench.refuses(guaranteed(ALONE)) == ""


def test_the_contract_is_kept():
    bench = Bench(a_report())
    check_plugin(bench.plugin, pods=[guaranteed(ALONE), burstable({NIC: "20"})], cluster=bench.cluster, handle=bench.handle)
