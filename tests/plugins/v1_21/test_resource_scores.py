"""Test the resource scores of 1.21: least allocated, most allocated, balanced, and requested to capacity ratio."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.plugins.earlier.balanced_allocation import NodeResourcesBalancedAllocationV121
from moorage.plugins.resources.scoring_strategies import UtilizationPoint
from moorage.plugins.v1_21.node_resources_least_allocated import NodeResourcesLeastAllocated, NodeResourcesLeastAllocatedArgs
from moorage.plugins.v1_21.node_resources_most_allocated import NodeResourcesMostAllocated, NodeResourcesMostAllocatedArgs
from moorage.plugins.v1_21.requested_to_capacity_ratio import RequestedToCapacityRatio, RequestedToCapacityRatioArgs
from moorage.plugins.v1_21.shared.requested_shares import ResourceSpecV121
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores

GATES = FeatureGates(release="1.21")
GPU = "example.com/gpu"


def requesting(**requests):
    return [{"name": "c", "resources": {"requests": {name.replace("gpu", GPU): amount for name, amount in requests.items()}}}]


def one_node(held=None, **allocatable):
    pods = {"n": [a_pod("held", containers=requesting(**held))]} if held else {}
    return a_cluster([a_node("n", allocatable=allocatable)], pods).snapshot


def score(rule, pod, snapshot):
    return final_scores(rule, pod, snapshot)["n"]


POD = a_pod(containers=requesting(cpu="1", memory="2Gi"))
LEAST, MOST = NodeResourcesLeastAllocated, NodeResourcesMostAllocated
CASES = {  # plugin, requests of placed pods, allocatable, score of a pod that requests 1 CPU and 2 GiB
    "least": (LEAST(), {}, {"cpu": "4", "memory": "8Gi"}, 75),
    "least, partly used": (LEAST(), {"cpu": "2", "memory": "2Gi"}, {"cpu": "4", "memory": "8Gi"}, 37),
    "least, overcommitted": (LEAST(), {"cpu": "4", "memory": "1Gi"}, {"cpu": "4", "memory": "4Gi"}, 12),
    "least, none allocatable": (LEAST(), {}, {"cpu": "4"}, 37),
    "most": (MOST(), {}, {"cpu": "4", "memory": "8Gi"}, 25),
    "most, partly used": (MOST(), {"cpu": "2", "memory": "2Gi"}, {"cpu": "4", "memory": "8Gi"}, 62),
    "most, overcommitted resources score 0": (MOST(), {"cpu": "4", "memory": "2Gi"}, {"cpu": "4", "memory": "8Gi"}, 25),
    "balanced": (NodeResourcesBalancedAllocationV121(), {}, {"cpu": "4", "memory": "8Gi"}, 100),
    "unbalanced": (NodeResourcesBalancedAllocationV121(), {"cpu": "2", "memory": "0"}, {"cpu": "4", "memory": "8Gi"}, 50),
    "balanced, fully used": (NodeResourcesBalancedAllocationV121(), {}, {"cpu": "1", "memory": "8Gi"}, 0),
    "balanced, none allocatable": (NodeResourcesBalancedAllocationV121(), {}, {"cpu": "4"}, 0),
}


@pytest.mark.parametrize(("rule", "held", "offered", "expected"), CASES.values(), ids=CASES)
def test_scores(rule, held, offered, expected):
    assert score(rule, POD, one_node(held, **offered)) == expected


def test_a_resource_counts_even_if_it_is_not_requested():
    weights = (ResourceSpecV121(name="cpu", weight=1), ResourceSpecV121(name=GPU, weight=3))
    rule = LEAST(NodeResourcesLeastAllocatedArgs(resources=weights))
    assert score(rule, POD, one_node(**{"cpu": "4", GPU: "2"})) == (75 + 3 * 100) // 4
    assert score(rule, POD, one_node(cpu="4")) == 75 // 4, "what a node lacks scores 0, with its weight"


def test_missing_requests_count_with_defaults():
    silent = a_pod(containers=[{"name": "c"}])
    assert score(MOST(), silent, one_node(cpu="1", memory="1Gi")) == (10 + 19) // 2  # 100m and 200Mi (209715200 bytes)


FUNCTION = (UtilizationPoint(utilization=0, score=0), UtilizationPoint(utilization=100, score=10))
RATIO = {  # resources, allocatable, score
    "higher utilization scores higher": ((("cpu", 1),), {"cpu": "4"}, 25),
    "rounded up to a percent": ((("cpu", 1),), {"cpu": "3"}, 34),
    "the mean is rounded": ((("cpu", 1), ("memory", 2)), {"cpu": "4", "memory": "4Gi"}, 42),
    "a score of 0 has no weight": ((("cpu", 1), (GPU, 5)), {"cpu": "4", GPU: "4"}, 25),
    "fully used": ((("cpu", 1),), {"cpu": "500m"}, 100),
}


@pytest.mark.parametrize(("resources", "offered", "expected"), RATIO.values(), ids=RATIO)
def test_requested_to_capacity_ratio(resources, offered, expected):
    specs = tuple(ResourceSpecV121(name=name, weight=weight) for name, weight in resources)
    rule = RequestedToCapacityRatio(RequestedToCapacityRatioArgs(shape=FUNCTION, resources=specs))
    assert score(rule, POD, one_node(**offered)) == expected


AMOUNTS, WEIGHTS = st.integers(0, 10_000), st.integers(1, 100)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=4),
    st.integers(1, 5000),
    st.integers(1, 100),
    st.integers(1, 100),
)
def test_agrees_with_a_reference_implementation(nodes, asked, first, second):
    """Amounts are in millicores and bytes; (allocatable CPU, allocatable memory)."""
    cluster = a_cluster(
        [a_node(f"n{at}", allocatable={"cpu": f"{cpu}m", "memory": str(memory)}) for at, (cpu, memory) in enumerate(nodes)]
    )
    pod = a_pod(containers=requesting(cpu=f"{asked}m", memory=str(asked)))
    specs = (ResourceSpecV121(name="cpu", weight=first), ResourceSpecV121(name="memory", weight=second))

    def mean(of):
        return {f"n{at}": (first * of(cpu) + second * of(memory)) // (first + second) for at, (cpu, memory) in enumerate(nodes)}

    def left(capacity):
        return (capacity - asked) * 100 // capacity if asked <= capacity and capacity else 0

    def used(capacity):
        return asked * 100 // capacity if asked <= capacity and capacity else 0

    assert final_scores(LEAST(NodeResourcesLeastAllocatedArgs(resources=specs)), pod, cluster.snapshot) == mean(left)
    assert final_scores(MOST(NodeResourcesMostAllocatedArgs(resources=specs)), pod, cluster.snapshot) == mean(used)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS), min_size=1, max_size=4), st.integers(1, 5000))
def test_balanced_is_the_difference_of_the_fractions(nodes, asked):
    """Amounts are in millicores and bytes: allocatable CPU and memory, and a placed pod's requests."""
    cluster = a_cluster(
        [a_node(f"n{at}", allocatable={"cpu": f"{cpu}m", "memory": str(size)}) for at, (cpu, size, _, _) in enumerate(nodes)],
        {
            f"n{at}": [a_pod(f"p{at}", containers=requesting(cpu=f"{a}m", memory=str(b)))]
            for at, (_, _, a, b) in enumerate(nodes)
        },
    )

    def balanced(cpu, memory, cpu_held, memory_held):
        shares = [(held + asked) / there if there else 1.0 for held, there in ((cpu_held, cpu), (memory_held, memory))]
        return 0 if max(shares) >= 1 else int((1 - abs(shares[0] - shares[1])) * 100.0)

    pod = a_pod(containers=requesting(cpu=f"{asked}m", memory=str(asked)))
    found = final_scores(NodeResourcesBalancedAllocationV121(), pod, cluster.snapshot)
    assert list(found.values()) == [balanced(*node) for node in nodes]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=4), st.integers(1, 5000), WEIGHTS, WEIGHTS)
def test_the_mean_of_the_ratio_omits_scores_of_0(nodes, asked, first, second):
    cluster = a_cluster(
        [a_node(f"n{at}", allocatable={"cpu": f"{cpu}m", "memory": str(memory)}) for at, (cpu, memory) in enumerate(nodes)]
    )
    specs = (ResourceSpecV121(name="cpu", weight=first), ResourceSpecV121(name="memory", weight=second))
    rule = RequestedToCapacityRatio(RequestedToCapacityRatioArgs(shape=FUNCTION, resources=specs))

    def used(capacity):
        return 100 if asked > capacity or not capacity else 100 - (capacity - asked) * 100 // capacity

    def mean(cpu, memory):
        scored = [(used(there), weight) for there, weight in ((cpu, first), (memory, second)) if used(there) > 0]
        weights = sum(weight for _, weight in scored)
        return int(Fraction(sum(score * weight for score, weight in scored), weights) + Fraction(1, 2)) if weights else 0

    found = final_scores(rule, a_pod(containers=requesting(cpu=f"{asked}m", memory=str(asked))), cluster.snapshot)
    assert list(found.values()) == [mean(*node) for node in nodes]


@pytest.mark.parametrize("args", [NodeResourcesLeastAllocatedArgs, NodeResourcesMostAllocatedArgs])
@pytest.mark.parametrize(("weight", "good"), [(0, False), (-1, False), (1, True), (100, True), (101, False)])
def test_weights_have_a_range(args, weight, good):
    faults = args(resources=(ResourceSpecV121(name="cpu", weight=weight),)).faults("args", GATES)
    assert [fault.field for fault in faults] == ([] if good else ["args.resources[0].weight"])
    assert args(resources=()).completed(GATES).resources == args().resources


@pytest.mark.parametrize("weight", [100, 101, 10**6])
def test_weights_of_the_ratio_have_no_maximum(weight):
    args = RequestedToCapacityRatioArgs(shape=FUNCTION, resources=(ResourceSpecV121(name="cpu", weight=weight),))
    assert args.faults("args", GATES) == []


def test_satisfy_the_plugin_contract():
    ratio = RequestedToCapacityRatio(RequestedToCapacityRatioArgs(shape=FUNCTION))
    for rule in (LEAST(), MOST(), ratio, NodeResourcesBalancedAllocationV121()):
        check_plugin(rule)
