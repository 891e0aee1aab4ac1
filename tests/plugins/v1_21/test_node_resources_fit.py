"""Test NodeResourcesFit in 1.21: any request implies a check of CPU, memory and local storage; nodes are not scored."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Status
from moorage.plugins.earlier.node_resources_fit import NodeResourcesFitV121
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import refusals, wakes

GPU, FPGA = "example.com/gpu", "other.example.com/fpga"


def plugin(**args):
    return NodeResourcesFitV121(msgspec.convert(args, NodeResourcesFitV121.Args))


def container(requests):
    return {"name": "c", "resources": {"requests": requests}}


def wanting(requests, name="pod", **spec):
    return a_pod(name, containers=[container(requests)], **spec)


def snapshot_of(offers, held):
    node = a_node("n", allocatable={"pods": 10, **offers})
    return a_cluster([node], {"n": [wanting(requests, f"held{at}") for at, requests in enumerate(held)]}).snapshot


CPU, MEMORY, STORAGE = "Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage"
CASES = {  # the pod's requests, the node's allocatable, requests of its pods, reasons
    "an empty node": ({"cpu": 1, "memory": 10}, {"cpu": 1, "memory": 10}, [], ()),
    "nothing requested": ({}, {}, [{"cpu": 5}], ()),
    "exactly enough is free": ({"cpu": 1}, {"cpu": 3}, [{"cpu": 1}, {"cpu": 1}], ()),
    "cpu is in use": ({"cpu": "1001m"}, {"cpu": 3}, [{"cpu": 1}, {"cpu": 1}], (CPU,)),
    "cpu is not allocatable": ({"cpu": "3001m"}, {"cpu": 3}, [], (CPU,)),
    "a device is not allocatable": ({GPU: 1}, {}, [], (f"Insufficient {GPU}",)),
    "huge pages are not allocatable": ({"hugepages-2Mi": "2Mi"}, {}, [], ("Insufficient hugepages-2Mi",)),
    "all reasons": (
        {"cpu": 2, "memory": 6, GPU: 1, "ephemeral-storage": 2}, {"cpu": 2, "memory": 10}, [{"cpu": 1, "memory": 5}],
        (CPU, MEMORY, STORAGE, f"Insufficient {GPU}"),
    ),
    "overcommitted, and the pod requests none of it": ({"memory": 1}, {"cpu": 1, "memory": 1}, [{"cpu": 5}], (CPU,)),
    "overcommitted in a resource that is not checked": ({"memory": 1}, {"cpu": 9, "memory": 1, GPU: 1}, [{GPU: 5}], ()),
    "a device request of zero, overcommitted": ({GPU: 0}, {GPU: 1}, [{GPU: 5}], (f"Insufficient {GPU}",)),
    "a cpu request of zero, overcommitted": ({"cpu": 0}, {"cpu": 1}, [{"cpu": 5}], ()),
    "as many pods as allowed": ({}, {"pods": 1}, [{}], ("Too many pods",)),
    "too many pods and insufficient resources": ({"cpu": 1}, {"pods": 1, "cpu": 1}, [{"cpu": 1}], ("Too many pods", CPU)),
    "a resource that is not tracked": ({"gpu": 5}, {}, [], ()),
}  # fmt: skip


@pytest.mark.parametrize(("requests", "offers", "held", "reasons"), CASES.values(), ids=CASES)
def test_rejects(requests, offers, held, reasons):
    found = refusals(plugin(), wanting(requests), snapshot_of(offers, held))
    assert found == ({"n": Status(Code.UNSCHEDULABLE, "NodeResourcesFit", reasons)} if reasons else {})


SUMS = {  # init containers, overhead; the pod's requests beyond 1 CPU of its container
    "init containers request less": ([{"cpu": "500m"}], {}, 1000),
    "an init container requests more": ([{"cpu": "500m"}, {"cpu": "3"}], {}, 3000),
    "overhead": ([], {"cpu": "250m"}, 1250),
    "both": ([{"cpu": "2"}], {"cpu": "250m"}, 2250),
}


@pytest.mark.parametrize(("init", "overhead", "asked"), SUMS.values(), ids=SUMS)
def test_the_requests_of_a_pod(init, overhead, asked):
    pod = a_pod(containers=[container({"cpu": 1})], initContainers=[container(one) for one in init], overhead=overhead)
    assert not refusals(plugin(), pod, snapshot_of({"cpu": f"{asked}m"}, []))
    assert refusals(plugin(), pod, snapshot_of({"cpu": f"{asked - 1}m"}, []))


IGNORING = {  # args, resources that are still checked
    "by name": ({"ignoredResources": [GPU]}, [FPGA]),
    "a resource group": ({"ignoredResourceGroups": ["other.example.com"]}, [GPU]),
    "both": ({"ignoredResources": [GPU], "ignoredResourceGroups": ["other.example.com"]}, []),
    "a full name is not a group": ({"ignoredResources": ["example.com"]}, [GPU, FPGA]),
}


@pytest.mark.parametrize(("args", "asked"), IGNORING.values(), ids=IGNORING)
def test_resources_can_be_ignored(args, asked):
    found = refusals(plugin(**args), wanting({GPU: 1, FPGA: 1}), snapshot_of({}, []))
    assert [reason for status in found.values() for reason in status.reasons] == [f"Insufficient {name}" for name in asked]


def test_resources_that_cannot_be_ignored():
    args = msgspec.convert({"ignoredResources": ["a/b/c"], "ignoredResourceGroups": ["a/b"]}, NodeResourcesFitV121.Args)
    faults = args.faults("args", FeatureGates(release="1.21"))
    assert [fault.field for fault in faults] == ["args.ignoredResources[0]", "args.ignoredResourceGroups[0]"]


AMOUNTS = st.fixed_dictionaries({}, optional={name: st.integers(0, 4) for name in ("cpu", "memory", GPU)})


@settings(max_examples=40, deadline=None)
@given(AMOUNTS, st.lists(st.tuples(AMOUNTS, st.lists(AMOUNTS, max_size=2)), min_size=1, max_size=4))
def test_agrees_with_a_reference_implementation(asked, nodes):
    cluster = a_cluster(
        [a_node(f"n{at}", allocatable={"pods": 9, **offers}) for at, (offers, _) in enumerate(nodes)],
        {f"n{at}": [wanting(one, f"p{at}-{i}") for i, one in enumerate(held)] for at, (_, held) in enumerate(nodes)},
    )
    checked = {"cpu", "memory"} | set(asked) if GPU in asked or any(asked.values()) else set()
    expected = {}
    for at, (offers, held) in enumerate(nodes):
        left = {name: offers.get(name, 0) - sum(one.get(name, 0) for one in held) for name in checked}
        lacking = {f"Insufficient {name}" for name in checked if left[name] < asked.get(name, 0)}
        if lacking:
            expected[f"n{at}"] = lacking
    found = refusals(plugin(), wanting(asked), cluster.snapshot)
    assert {name: set(status.reasons) for name, status in found.items()} == expected


def test_events_that_wake():
    pod = wanting({"cpu": 1})
    assert wakes(plugin(), pod, Resource.POD, Action.DELETE, wanting({"cpu": 1}, "gone", nodeName="n"))
    assert wakes(plugin(), pod, Resource.NODE, Action.ADD, None, a_node(allocatable={"cpu": 1, "pods": 1}))
    assert not wakes(plugin(), pod, Resource.NODE, Action.UPDATE_NODE_LABEL, a_node(), a_node())


def test_satisfies_the_plugin_contract():
    check_plugin(plugin())
