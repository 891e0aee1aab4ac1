"""Test how nodes are scored for pods that request devices through an extended resource."""

from __future__ import annotations

import numpy as np
import pytest

from moorage.api.cel.list_attributes import Lists
from moorage.api.core import Node
from moorage.api.decode import decode
from moorage.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from moorage.api.feature_gates import FeatureGates
from moorage.plugins.devices.device_counts import count_devices
from moorage.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.plugins.resources.device_backed_scores import DeviceBackedDemands, with_devices
from moorage.plugins.resources.scoring_strategies import Demand
from moorage.state.cluster import ClusterState
from moorage.testing.builders import a_node, a_pod

DRIVER, NAME = "gpu.example.com", "example.com/gpu"
BIG = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


def a_device(name, memory="40Gi", **chosen):
    return {"name": name, "capacity": {"memory": {"value": memory}} if memory else {}, **chosen}


def a_slice(name, devices, **spec):
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    body = {"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": pool, "devices": devices, **spec}}
    return decode(body, ResourceSlice, name)


def held(pool, *devices, **more):
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": name, **more} for name in devices]
    body = {"metadata": {"name": f"of-{pool}", "namespace": "ns"}, "status": {"allocation": {"devices": {"results": results}}}}
    return decode(body, ResourceClaim, pool)


def the_class(*selectors):
    spec = {"extendedResourceName": NAME, "selectors": [{"cel": {"expression": text}} for text in selectors]}
    return decode({"metadata": {"name": "gpu"}, "spec": spec}, DeviceClass, "gpu")


def a_cluster_of(nodes, *objects):
    cluster = ClusterState()
    for node in nodes:
        cluster.set_node(node if isinstance(node, Node) else a_node(node, allocatable={"cpu": 4, "pods": 9}))
    for obj in objects:
        cluster.set_object(obj)
    return cluster


IN_ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}
BROKEN = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["x"]}]}]}
CASES = {  # selectors of the class, slices, claims → devices that node n sees, and how many of them are allocated
    "none": ((), [], [], (0, 0)),
    "all free": ((), [a_slice("n", [a_device("d0"), a_device("d1")], nodeName="n")], [], (2, 0)),
    "one allocated": ((), [a_slice("n", [a_device("d0"), a_device("d1")], nodeName="n")], [held("n", "d1")], (2, 1)),
    "allocated with admin access": (
        (),
        [a_slice("n", [a_device("d0")], nodeName="n")],
        [held("n", "d0", adminAccess=True)],
        (1, 0),
    ),
    "a share is allocated": (
        (),
        [a_slice("n", [a_device("d0", allowMultipleAllocations=True)], nodeName="n")],
        [held("n", "d0", shareID="s", consumedCapacity={"memory": "1Gi"})],
        (1, 1),
    ),
    "of another node": ((), [a_slice("m", [a_device("d0")], nodeName="m")], [], (0, 0)),
    "of all nodes": ((), [a_slice("net", [a_device("d0")], allNodes=True)], [], (1, 0)),
    "of nodes selected": ((), [a_slice("net", [a_device("d0")], nodeSelector=IN_ZONE)], [], (1, 0)),
    "each slice by itself": (
        (),
        [
            a_slice(
                "net",
                [a_device("d0", nodeName="n"), a_device("d1", nodeName="m"), a_device("d2", nodeSelector=IN_ZONE)],
                perDeviceNodeSelection=True,
            )
        ],
        [],
        (2, 0),
    ),
    "a selector that does not compile": ((), [a_slice("net", [a_device("d0")], nodeSelector=BROKEN)], [], (0, 0)),
    "too little capacity": (
        (BIG,),
        [a_slice("n", [a_device("d0", "8Gi"), a_device("d1")], nodeName="n")],
        [held("n", "d0")],
        (1, 0),
    ),
    "a selector that fails for one device": (
        (BIG,),
        [a_slice("n", [a_device("d0", None), a_device("d1")], nodeName="n")],
        [],
        (0, 0),
    ),
}


@pytest.mark.parametrize(("selectors", "slices", "claims", "counted"), CASES.values(), ids=CASES)
def test_devices_are_counted(selectors, slices, claims, counted):
    nodes = [a_node("n", {"zone": "a"}, allocatable={"cpu": 4}), "m"]
    cluster = a_cluster_of(nodes, the_class(*selectors), *slices, *claims)
    stock = count_devices(the_class(*selectors), cluster.snapshot.nodes, lists=Lists.UNKNOWN)
    assert (int(stock.seen[0]), int(stock.held[0])) == counted


def four_of_which_two_are_held():
    own = a_node("own", allocatable={"cpu": 4, NAME: 4})
    devices = [a_device(f"d{i}") for i in range(4)]
    return a_cluster_of(["four", own, "bare"], the_class(), a_slice("four", devices, nodeName="four"), held("four", "d0", "d3"))


def wants(devices, cpu="1"):
    asked = {"cpu": cpu, NAME: str(devices)}
    return a_pod(containers=[{"name": "c", "resources": {"requests": asked, "limits": asked}}])


def test_a_node_offers_devices_unless_it_offers_the_resource_itself():
    snapshot = four_of_which_two_are_held().snapshot
    counted = with_devices((Demand(NAME, 1, 1),), snapshot, FeatureGates())
    assert isinstance(counted, DeviceBackedDemands)
    nodes = counted.among(snapshot.nodes)
    assert nodes.allocatable(NAME).tolist() == [4, 4, 0]
    assert nodes.requested(NAME).tolist() == [2, 0, 0]
    assert nodes.divisors(NAME).tolist() == [4.0, 4.0, 1.0]
    assert nodes.allocatable("cpu").tolist() == [4000, 4000, 4000]
    assert not nodes.is_offered_everywhere(NAME)


STRATEGIES = {  # scores by kube-scheduler 1.36.2 for nodes with 3 of 4 allocated, 1 of 4 allocated, and no device
    "LeastAllocated": [25, 75, 0],
    "MostAllocated": [75, 25, 0],
}


@pytest.mark.parametrize(("strategy", "scores"), STRATEGIES.items(), ids=STRATEGIES)
def test_strategies_score_devices_like_other_resources(strategy, scores):
    args = decode({"scoringStrategy": {"type": strategy, "resources": [{"name": NAME}]}}, NodeResourcesFit.Args, "args")
    plugin, snapshot = NodeResourcesFit(args), four_of_which_two_are_held().snapshot
    counted = plugin.pre_score(wants(1), snapshot, snapshot.nodes)
    assert plugin.score(counted, snapshot.nodes).tolist() == scores
    assert [plugin.score_node(counted, node) for node in snapshot.nodes] == scores


def test_balanced_allocation_includes_devices():
    args = decode({"resources": [{"name": "cpu"}, {"name": NAME}]}, NodeResourcesBalancedAllocation.Args, "args")
    plugin, snapshot = NodeResourcesBalancedAllocation(args), four_of_which_two_are_held().snapshot
    counted = plugin.pre_score(wants(1), snapshot, snapshot.nodes)
    scores = plugin.score(counted, snapshot.nodes)
    assert scores.tolist() == [75, 75, 75]
    tipped = plugin.pre_score(wants(2, "0"), snapshot, snapshot.nodes)
    assert plugin.score(tipped, snapshot.nodes)[0] < 75 < 1 + plugin.score(tipped, snapshot.nodes)[2]
    assert [plugin.score_node(tipped, node) for node in snapshot.nodes] == plugin.score(tipped, snapshot.nodes).tolist()


def test_scores_stay_the_same_without_a_device_class():
    demands = (Demand("cpu", 1, 1), Demand("example.com/other", 1, 1))
    snapshot = four_of_which_two_are_held().snapshot
    assert with_devices(demands, snapshot, FeatureGates()) is demands
    assert with_devices((Demand(NAME, 1, 1),), snapshot, FeatureGates({"DRAExtendedResource": False})) == (Demand(NAME, 1, 1),)


def test_counts_for_a_subset_of_rows():
    snapshot = four_of_which_two_are_held().snapshot
    counted = with_devices((Demand(NAME, 1, 1),), snapshot, FeatureGates())
    rows = snapshot.nodes.only(np.array([False, True, True]))
    assert counted.among(rows).allocatable(NAME).tolist() == [4, 0]
