"""Test that nodes whose resource usage the pod balances score higher."""

from __future__ import annotations

import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Pod
from moorage.api.feature_gates import FeatureGates
from moorage.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import final_scores

GPU = "example.com/gpu"


def plugin(*resources):
    args = {"resources": [{"name": name, "weight": 1} for name in resources]} if resources else {}
    return NodeResourcesBalancedAllocation(msgspec.convert(args, NodeResourcesBalancedAllocation.Args))


def wanting(requests, name="pod", **spec):
    return a_pod(name, containers=[{"name": "c", "resources": {"requests": requests}}], **spec)


def scores(balanced, pod, *nodes):
    """Score nodes given as (allocatable, requests of their pods)."""
    made = [a_node(f"n{i}", allocatable=offers) for i, (offers, _) in enumerate(nodes)]
    placed = {f"n{i}": [wanting(held, f"held{i}")] for i, (_, held) in enumerate(nodes)}
    found = final_scores(balanced, pod, a_cluster(made, placed).snapshot)
    return None if found is None else list(found.values())


BOTH = {"cpu": 10, "memory": 1000}

# pod's requests, node's allocatable, requests of its pods, score
CASES = {
    "empty, balanced by the pod": ({"cpu": 5, "memory": 500}, BOTH, {}, 75),
    "empty, unbalanced by the pod": ({"cpu": 5}, BOTH, {}, 62),  # before 100, after 75
    "empty, completely unbalanced by the pod": ({"cpu": 10}, BOTH, {}, 50),  # before 100, after 50
    "unbalanced, balanced by the pod": ({"cpu": 5}, BOTH, {"memory": 500}, 87),  # before 75, after 100
    "completely unbalanced, balanced by the pod": ({"cpu": 10}, BOTH, {"memory": 1000}, 100),
    "fuller, as unbalanced as before": ({"cpu": 1, "memory": 100}, BOTH, {"cpu": 3}, 75),
    "fractions above one count as one": ({"cpu": 90, "memory": 1000}, BOTH, {}, 75),
    "no memory allocatable": ({"cpu": 5, "memory": 500}, {"cpu": 10}, {}, 75),
    "nothing allocatable": ({"cpu": 5}, {}, {}, 75),
}


@pytest.mark.parametrize(("wants", "offers", "held", "score"), CASES.values(), ids=CASES)
def test_scores(wants, offers, held, score):
    assert scores(plugin(), wanting(wants), (offers, held)) == [score]


THREE = {"cpu": 10, "memory": 1000, GPU: 10}
# resources, pod's requests, node's allocatable, requests of its pods, score
LISTED = {
    "a single resource is always balanced": (["cpu"], {"cpu": 5}, THREE, {}, 75),
    "three: the standard deviation": (["cpu", "memory", GPU], {"cpu": 5, GPU: 10}, THREE, {}, 54),  # 100 - 40.8; (50 - 41) // 2
    "three: balanced by the pod": (
        ["cpu", "memory", GPU],
        {"cpu": 10, "memory": 0, GPU: 10},
        THREE,
        {"memory": 1000},
        99,
    ),  # 52 before, 100 after
    "a device that is not requested": (["cpu", "memory", GPU], {"cpu": 5, "memory": 500}, THREE, {GPU: 10}, 75),
    "a device that is not allocatable": (["cpu", "memory", GPU], {"cpu": 10, GPU: 1}, BOTH, {}, 50),
    "two of three allocatable, the first missing": ([GPU, "cpu", "memory"], {"cpu": 10, GPU: 1}, BOTH, {}, 50),
    "one of three allocatable": (["cpu", "memory", GPU], {"cpu": 10, GPU: 1}, {"cpu": 10}, {}, 75),
    "equal fractions": (["cpu", GPU], {"cpu": 5, GPU: 5}, THREE, {"memory": 900}, 75),
}


@pytest.mark.parametrize(("resources", "wants", "offers", "held", "score"), LISTED.values(), ids=LISTED)
def test_listed_resources(resources, wants, offers, held, score):
    assert scores(plugin(*resources), wanting(wants), (offers, held)) == [score]


UNHEARD = {
    "nothing requested": ([], {}),
    "zero requested": ([], {"cpu": 0, "memory": 0}),
    "only resources that are not listed": (["cpu", "memory"], {GPU: 1, "ephemeral-storage": 1}),
}


@pytest.mark.parametrize(("resources", "wants"), UNHEARD.values(), ids=UNHEARD)
def test_skips_pods_that_request_none_of_the_resources(resources, wants):
    assert scores(plugin(*resources), wanting(wants), (THREE, {})) is None


def test_default_requests_do_not_count():
    assert scores(plugin(), wanting({"cpu": 5, "memory": 500}), (BOTH, {"cpu": 0})) == [75]
    assert scores(plugin(), wanting({"cpu": "1m"}), ({"cpu": 1, "memory": "1000Mi"}, {"cpu": 0, "memory": 0})) == [74]


def test_pod_level_resources_and_status_count_unless_their_gates_are_off():
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]}
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": 5}}}]}
    resized = PodInfo(msgspec.convert({"spec": spec, "status": status}, Pod))
    assert scores(plugin(), resized, (BOTH, {})) == [62]
    whole = wanting({"cpu": 1}, resources={"requests": {"cpu": 5}})
    assert scores(plugin(), whole, (BOTH, {})) == [62]
    closed = plugin()
    closed.attach(
        SimpleNamespace(gates=FeatureGates({"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}))
    )
    assert scores(closed, whole, (BOTH, {})) == [72]  # before 100, after 95
    assert plugin().reuse.signature(whole) == plugin().reuse.signature(resized) != closed.reuse.signature(whole)


FAULTS = {
    "nothing": ({}, []),
    "no resources": ({"resources": []}, []),
    "a weight of zero counts as one": ({"resources": [{"name": "cpu", "weight": 0}]}, []),
    "weights and repeated resources": (
        {"resources": [{"name": "cpu", "weight": 5}, {"name": "cpu"}, {"name": "memory", "weight": -1}]},
        [
            "args.resources[0].weight: Invalid value: 5: must be 1",
            'args.resources[1].name: Duplicate value: "cpu"',
            "args.resources[2].weight: Invalid value: -1: must be 1",
        ],
    ),
}


@pytest.mark.parametrize(("args", "faults"), FAULTS.values(), ids=FAULTS)
def test_faults_of_arguments(args, faults):
    found = msgspec.convert(args, NodeResourcesBalancedAllocation.Args).faults("args", FeatureGates())
    assert [str(fault) for fault in found] == faults


def test_the_default_resources_are_cpu_and_memory():
    args = msgspec.convert({"resources": []}, NodeResourcesBalancedAllocation.Args)
    assert [(resource.name, resource.weight) for resource in args.resources] == [("cpu", 1), ("memory", 1)]
    assert {fault.field for fault in msgspec.convert(
        {"resources": [{"name": "cpu", "weight": 2}]}, NodeResourcesBalancedAllocation.Args
    ).faults("", FeatureGates())} == {"resources[0].weight"}  # fmt: skip


NAMES = ("cpu", "memory", "ephemeral-storage", GPU)
amounts = st.one_of(st.integers(0, 10), st.integers(0, 2**50))
lists = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, amounts))


def reference_balance(requested, offers):
    shares = [min(1.0, requested[name] / offers[name]) for name in requested]
    if len(shares) == 2:
        deviation = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > 2:
        total = 0.0
        for share in shares:
            total += share
        mean, squares = total / len(shares), 0.0
        for share in shares:
            squares += (share - mean) * (share - mean)
        deviation = math.sqrt(squares / len(shares))
    else:
        deviation = 0.0
    return int((1 - deviation) * 100)


def reference_score(resources, wants, offers, held):
    counted = [name for name in resources if offers.get(name) and (name != GPU or wants.get(name))]
    before = {name: held.get(name, 0) for name in counted}
    after = {name: held.get(name, 0) + wants.get(name, 0) for name in counted}
    return 50 + (50 + reference_balance(after, offers) - reference_balance(before, offers)) // 2


def with_units(requests):
    return {name: f"{count}m" if name == "cpu" else count for name, count in requests.items()}


@settings(max_examples=75)
@given(
    st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    lists,
    st.lists(st.tuples(lists, lists), min_size=1, max_size=4),
    st.data(),
)
def test_agrees_with_a_reference_implementation(resources, wants, nodes, data):
    snapshot = a_cluster(
        [a_node(f"n{i}", allocatable=with_units(offers)) for i, (offers, _) in enumerate(nodes)],
        {f"n{i}": [wanting(with_units(held), f"held{i}")] for i, (_, held) in enumerate(nodes)},
    ).snapshot
    rows = data.draw(st.lists(st.integers(0, len(nodes) - 1), unique=True, min_size=1))
    found = final_scores(plugin(*resources), wanting(with_units(wants)), snapshot)
    part = final_scores(plugin(*resources), wanting(with_units(wants)), NodeView(snapshot, np.array(rows, dtype=np.intp)))
    if not any(wants.get(name) for name in resources):
        assert found is None
        assert part is None
        return
    expected = [reference_score(resources, wants, offers, held) for offers, held in nodes]
    assert list(found.values()) == expected
    assert list(part.values()) == [expected[row] for row in rows]
    assert all(50 <= score <= 100 for score in expected)
