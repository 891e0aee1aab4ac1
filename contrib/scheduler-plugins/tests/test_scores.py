"""Scores by what nodes offer and by measured load. The figures are those of the tests of scheduler-plugins 903da7df82cb."""

from __future__ import annotations

import json

import pytest

from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_checks import check_plugin, sample_cluster
from moorage.testing.plugin_queries import final_scores
from moorage_scheduler_plugins.allocatable import AllocatableArgs, NodeResourcesAllocatable, ResourceWeight
from moorage_scheduler_plugins.beta import Beta, probability_below, regularized_incomplete
from moorage_scheduler_plugins.load_variation import LoadVariationArgs, LoadVariationRiskBalancing
from moorage_scheduler_plugins.low_risk import LowRiskArgs, LowRiskOverCommitment
from moorage_scheduler_plugins.target_load_packing import TargetLoadPacking, TargetLoadPackingArgs
from moorage_scheduler_plugins.trimaran import CPU, MEMORY, Load

MI = 1 << 20
PAIR = [(4000, 10000), (6000, 10000)]
BY_CPU = (ResourceWeight(name="cpu", weight=1 << 30), ResourceWeight(name="memory", weight=1))
ALLOCATABLE = {
    "equal nodes": ("Least", None, [(4000, 10000), (4000, 10000)], [0, 0]),
    "the smaller node": ("Least", None, PAIR, [100, 0]),
    "the larger node": ("Most", None, PAIR, [0, 100]),
    "by CPU, the smaller": ("Least", BY_CPU, [(1000, 2000), (1005, 1000)], [100, 0]),
    "by CPU, the larger": ("Most", BY_CPU, [(1000, 2000), (1005, 1000)], [0, 100]),
    "one between": ("Least", None, [(1000, 1000 * MI), (2000, 2000 * MI), (3000, 3000 * MI)], [100, 50, 0]),
    "one between, the larger": ("Most", None, [(1000, 1000 * MI), (2000, 2000 * MI), (3000, 3000 * MI)], [0, 50, 100]),
}


@pytest.mark.parametrize(("mode", "resources", "sizes", "scores"), ALLOCATABLE.values(), ids=ALLOCATABLE)
def test_what_nodes_offer(mode, resources, sizes, scores):
    args = AllocatableArgs(mode=mode) if resources is None else AllocatableArgs(mode=mode, resources=resources)
    nodes = [a_node(f"n{at}", allocatable={"cpu": f"{cpu}m", "memory": memory}) for at, (cpu, memory) in enumerate(sizes)]
    pod = a_pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "8", "memory": "1Gi"}}}])
    found = final_scores(NodeResourcesAllocatable(args), pod, a_cluster(nodes).snapshot)
    assert list(found.values()) == scores


def measured(plugin, *metrics, node="n1", end=0):
    """Give a plugin metrics of one node, each as kind, operator and value."""
    of_node = [{"type": kind, "operator": operator, "value": value} for kind, operator, value in metrics]
    plugin.collector.take({"window": {"end": end}, "data": {"NodeMetricsMap": {node: {"metrics": of_node}}}})
    return plugin


def score(plugin, pod, **of_node):
    node = a_node("n1", **of_node)
    node = type(node)(metadata=node.metadata, spec=node.spec, status=type(node.status)(
        allocatable=node.status.allocatable, capacity=node.status.allocatable,
    ))  # fmt: skip
    snapshot = a_cluster([node]).snapshot
    return plugin.score_node(pod, next(iter(snapshot.nodes)))


def with_requests(*millis, overhead=None):
    containers = [{"name": f"c{at}", "resources": {"requests": {"cpu": f"{one}m"}}} for at, one in enumerate(millis)]
    return a_pod(containers=containers, **({"overhead": {"cpu": f"{overhead}m"}} if overhead else {}))


BARE = a_pod(containers=[])
PACKING = {
    "a new node": (BARE, [(CPU, "Latest", 0)], 40),
    "a hot node": (BARE, [(CPU, "Latest", 50)], 33),
    "too much": (with_requests(1000), [(CPU, "Latest", 30)], 0),
    "without metrics of CPU": (BARE, [(MEMORY, "Latest", 30)], 0),
    "the average counts": (BARE, [(CPU, "AVG", 20)], 70),
    "a request counts one and a half times": (with_requests(100), [(CPU, "AVG", 0)], 63),
    "overhead counts": (with_requests(0, overhead=200), [(CPU, "AVG", 0)], 70),
}


@pytest.mark.parametrize(("pod", "metrics", "expected"), PACKING.values(), ids=PACKING)
def test_nodes_are_packed_up_to_the_target(pod, metrics, expected):
    assert score(measured(TargetLoadPacking(), *metrics), pod, allocatable={"cpu": "1", "memory": "1Gi"}) == expected


def test_a_node_without_metrics_has_the_least_score():
    assert score(measured(TargetLoadPacking(), node="other"), BARE, allocatable={"cpu": "1"}) == 0
    assert score(TargetLoadPacking(), BARE, allocatable={"cpu": "1"}) == 0


def test_pods_that_the_measurement_does_not_show_count():
    handle = FakeHandle(a_cluster([]).snapshot, now=1000.0)
    plugin = measured(TargetLoadPacking(), (CPU, "AVG", 0), end=1000)
    plugin.attach(handle)
    placed = a_pod("new", nodeName="n1", containers=[{"name": "c", "resources": {"limits": {"cpu": "200m"}}}])
    pending = a_pod("new")
    plugin.pod_changed(None, pending)
    assert score(plugin, BARE, allocatable={"cpu": "1"}) == 40
    plugin.pod_changed(pending, placed)
    assert score(plugin, BARE, allocatable={"cpu": "1"}) == 70
    plugin.collector.window_end = 1060
    assert score(plugin, BARE, allocatable={"cpu": "1"}) == 40, "a minute later the measurement shows it"
    plugin.collector.window_end = 1000
    plugin.pod_changed(None, placed)
    plugin.pod_changed(placed, None)
    assert score(plugin, BARE, allocatable={"cpu": "1"}) == 40


VARIATION = {
    "usual": (1, 1, 40, 36, 57),
    "a root": (1, 2, 0, 36, 65),
    "a mean above the capacity": (1, 2, 200, 36, 20),
    "steady": (1, 2, 40, 0, 75),
    "a deviation above the capacity": (1, 2, 40, 120, 25),
    "an endless root": (1, 0, 40, 36, 75),
}


@pytest.mark.parametrize(("margin", "root", "mean", "deviation", "expected"), VARIATION.values(), ids=VARIATION)
def test_steady_nodes_are_preferred(margin, root, mean, deviation, expected):
    args = LoadVariationArgs(safe_variance_margin=margin, safe_variance_sensitivity=root)
    plugin = measured(LoadVariationRiskBalancing(args), (CPU, "AVG", mean), (CPU, "STD", deviation))
    pod = a_pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "100m"}}}])
    assert score(plugin, pod, allocatable={"cpu": "1"}) == expected


def test_the_worse_of_two_resources_counts():
    plugin = measured(LoadVariationRiskBalancing(), (CPU, "AVG", 40), (MEMORY, "AVG", 80))
    assert score(plugin, BARE, allocatable={"cpu": "1", "memory": "1Gi"}) == 60
    assert plugin._score(Load(0, 0, 0)) == 0


A_PLACE = {"cpu": "4", "memory": "4096"}
LOADS = [(CPU, "AVG", 80), (CPU, "STD", 0), (MEMORY, "AVG", 25), (MEMORY, "STD", 0)]
#: What is on the node, then the pod: CPU request and limit, memory request and limit; and the risks of both resources.
RISKS = {
    "a load beyond the requests": ((1000, 2000, 0, 0), (1000, 1000, 2048, 6144), 0.5, 0.25),
    "limits beyond the capacity": ((3000, 4000, 512, 6144), (1000, 1000, 512, 1024), 1.0, 0.75),
}


def a_user(name, cpu, most_cpu, memory, most_memory, **spec):
    resources = {"requests": {"cpu": f"{cpu}m", "memory": memory}, "limits": {"cpu": f"{most_cpu}m", "memory": most_memory}}
    return a_pod(name, containers=[{"name": "c", "resources": resources}], **spec)


@pytest.mark.parametrize(("before", "more", "cpu", "memory"), RISKS.values(), ids=RISKS)
def test_risk_of_limits_and_of_load(before, more, cpu, memory):
    plugin = measured(LowRiskOverCommitment(), *LOADS)
    snapshot = a_cluster([a_node("n1", allocatable=A_PLACE)], {"n1": [a_user("there", *before)]}).snapshot
    assert plugin.score_node(a_user("p", *more), next(iter(snapshot.nodes))) == 100 - 100 * max(cpu, memory)
    memory_alone = measured(LowRiskOverCommitment(), *LOADS[2:])
    only = a_user("p", 0, 0, *more[2:])
    alone = a_cluster([a_node("n1", allocatable=A_PLACE)], {"n1": [a_user("there", 0, 0, *before[2:])]}).snapshot
    assert memory_alone.score_node(only, next(iter(alone.nodes))) == 100 - 100 * memory


def test_best_effort_pods_have_the_least_score():
    plugin = measured(LowRiskOverCommitment(), (CPU, "AVG", 20))
    assert score(plugin, a_pod(containers=[{"name": "c"}]), allocatable={"cpu": "1", "memory": "1Gi"}) == 0


def test_weights_out_of_bounds_are_the_usual_ones():
    plugin = LowRiskOverCommitment(LowRiskArgs(risk_limit_weights={"cpu": 7, "memory": 0.2}, smoothing_window_size=-5))
    assert (plugin._weights, plugin._window) == ({"cpu": 0.5, "memory": 0.2}, 5)


def test_the_beta_distribution():
    assert Beta.of_moments(0.5, 1 / 3) == pytest.approx((1, 1))
    assert Beta.of_moments(0, 0) is None
    assert regularized_incomplete(0.3, 1, 1) == pytest.approx(0.3)
    assert regularized_incomplete(0.5, 2, 2) == pytest.approx(0.5)
    assert regularized_incomplete(0.25, 2, 3) == pytest.approx(0.26171875)
    assert regularized_incomplete(0.9, 0.5, 0.5) == pytest.approx(0.7951672353)
    assert [regularized_incomplete(x, 2, 3) for x in (0, 1, 2, -1)] == [0, 1, None, None]
    assert probability_below(0.4, 0, 0.5) == (1.0, None)
    assert probability_below(0.6, 0, 0.5) == (0.0, None)
    assert probability_below(0.5, 1 / 12**0.5, 0.7)[0] == pytest.approx(0.7)


# -- metrics ------------------------------------------------------------------------------------------------------------------


def test_metrics_come_from_a_file_and_are_refreshed(tmp_path):
    file = tmp_path / "metrics.json"
    plugin = LoadVariationRiskBalancing(LoadVariationArgs(watcher_address=f"file://{file}"))
    handle = FakeHandle(a_cluster([]).snapshot)
    plugin.attach(handle)
    (refresh,) = handle.refreshes
    assert (refresh.plugin, refresh.every_s) == ("LoadVariationRiskBalancing", 30.0)
    with pytest.raises(OSError, match=r"metrics\.json"):
        refresh.run()
    before = plugin.reuse.outside()
    file.write_text(
        json.dumps({"data": {"NodeMetricsMap": {"n1": {"metrics": [{"type": "CPU", "operator": "AVG", "value": 10}]}}}})
    )
    refresh.stand_in()
    assert score(plugin, BARE, allocatable={"cpu": "1"}) == 95
    assert plugin.reuse.outside() != before
    before = plugin.reuse.outside()
    refresh.run()
    assert plugin.reuse.outside() == before, "the same metrics are the same version"


def test_a_wrong_address_is_a_fault():
    faults = LoadVariationArgs(watcher_address="metrics.json").faults("args", None)
    assert [fault.field for fault in faults] == ["args.watcherAddress"]
    assert [fault.field for fault in TargetLoadPackingArgs(default_requests_multiplier="x").faults("args", None)] == [
        "args.defaultRequestsMultiplier"
    ]


@pytest.mark.parametrize("cls", [LoadVariationRiskBalancing, LowRiskOverCommitment, TargetLoadPacking])
def test_the_plugins_keep_the_contract_while_metrics_change(cls):
    plugin = measured(cls(), (CPU, "AVG", 30), (MEMORY, "AVG", 30), node="n0")
    check_plugin(plugin, cluster=sample_cluster(), change_outside=lambda: measured(plugin, (CPU, "AVG", 70), node="n0", end=5))


def test_allocatable_keeps_the_contract():
    check_plugin(NodeResourcesAllocatable())
