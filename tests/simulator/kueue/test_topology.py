"""Placement in topologies: recorded answers of Kueue's own search and scheduler, and properties."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.core import Pod, PodSpec, Taint, Toleration
from moorage.api.decode import decode
from moorage.simulator.kueue.topology import TopologyTree
from moorage.simulator.kueue.topology_requests import (
    Layer,
    PlacementRequest,
    TopologyPlacement,
    TopologyRequest,
    read_placed,
    read_request,
)
from tests.simulator.kueue.replaying import differences
from tests.simulator.kueue.test_recorded import cases
from tests.simulator.kueue.timing import API, FLAVOR, job, node, queue, run

HOST = "kubernetes.io/hostname"


def tree_of(case):
    tree = TopologyTree(
        case["topology"], case["levels"], msgspec.convert(case.get("tolerations") or (), tuple[Toleration, ...])
    )
    for leaf in case["leaves"] or ():
        labels = {**(leaf.get("labels") or {}), **dict(zip(case["levels"], leaf["values"], strict=True))}
        taints = msgspec.convert(leaf.get("taints") or (), tuple[Taint, ...])
        tree.add_node(leaf.get("name", ""), labels, taints, leaf["free"])
        tree.leaves[leaf["id"]].used = dict(leaf.get("usage") or {})
    return tree


def request_of(data):
    pod_set = data["podSet"]
    asked = pod_set.get("topologyRequest")
    topology = None if asked is None else replace(read_request(asked), group=None)
    if data.get("group"):
        topology = replace(topology or TopologyRequest(), group=data["group"])
    spec = dict(pod_set["template"]["spec"])
    for update in data.get("updates") or ():
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **(update.get("nodeSelector") or {})}
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *(update.get("tolerations") or ())]
    pod = decode({"metadata": {"name": "p"}, "spec": spec}, Pod, "a recording")
    return PlacementRequest(
        pod_set.get("name", ""), data["count"], data["requests"], pod.spec, topology, bool(data.get("implied"))
    )


def answer_of(data):
    if data.get("reason"):
        return data["reason"]
    return TopologyPlacement(
        tuple(data.get("levels") or ()), tuple((tuple(values), n) for values, n in data.get("domains") or ())
    )


@pytest.mark.slow
def test_pods_are_placed_as_kueue_places_them():
    recorded = cases("placements.jsonl.gz")
    for case in recorded:
        assumed = {leaf: dict(usage) for leaf, usage in (case.get("assumed") or {}).items()}
        found = tree_of(case).place(list(map(request_of, case["requests"])), empty=bool(case.get("empty")), assumed=assumed)
        assert found == {name: answer_of(one) for name, one in case["result"].items()}, case["name"]
    assert len(recorded) > 650
    assert sum(any("reason" in one for one in case["result"].values()) for case in recorded) > 200


@pytest.mark.slow
def test_queues_with_topologies_decide_as_kueue_does():
    recorded = cases("topologies.jsonl.gz")
    found = [difference for case in recorded for difference in differences(case)]
    assert not found, "\n".join(found[:5])
    states = [state for case in recorded for cycle in case["cycles"] for state in (cycle.get("changed") or {}).values()]
    assert sum(any("placed" in one for one in state.get("admission", ())) for state in states) > 800
    assert sum("topology" in state.get("quota", ["", "", ""])[2] for state in states) > 300
    assert len(recorded) >= 500


PACKED = {
    "levels": ["block", "rack"],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"universal": "b1"}, {"individual": {"prefix": "r-", "suffix": ".x", "roots": ["1", "2"]}}],
            "podCounts": {"individual": [3, 1]},
        },
        {
            "domainCount": 1,
            "valuesPerLevel": [{"universal": "b2"}, {"individual": {"roots": ["r9"]}}],
            "podCounts": {"universal": 2},
        },
    ],
}


def test_reads_packed_and_plain_assignments():
    domains = ((("b1", "r-1.x"), 3), (("b1", "r-2.x"), 1), (("b2", "r9"), 2))
    assert read_placed(PACKED) == TopologyPlacement(("block", "rack"), domains)
    plain = {"levels": ["block", "rack"], "domains": [{"values": list(values), "count": n} for values, n in domains]}
    assert read_placed(plain) == read_placed(PACKED)


def test_reads_requests_of_annotations():
    asked = {"required": "rack", "podSetSliceRequiredTopology": HOST, "podSetSliceSize": "2"}
    assert read_request(asked) == TopologyRequest(required="rack", layers=(Layer(HOST, 2),))
    assert read_request({"unconstrained": "true"}) == TopologyRequest(unconstrained=True)
    assert not read_request({"podSetGroupName": "g"}).is_explicit


sizes = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 6)), min_size=1, max_size=8)


@given(
    nodes=sizes, count=st.integers(1, 12), cpu=st.integers(1, 3),
    asked=st.sampled_from([
        TopologyRequest(required="block"), TopologyRequest(required="rack"), TopologyRequest(preferred="rack"),
        TopologyRequest(unconstrained=True), TopologyRequest(preferred="block", layers=(Layer(HOST, 2),)),
    ]),
)  # fmt: skip
def test_a_placement_has_all_pods_and_no_domain_is_overfull(nodes, count, cpu, asked):
    tree = TopologyTree("t", ("block", "rack", HOST))
    labels = {}
    for number, (block, rack, free) in enumerate(nodes):
        labels[f"n{number}"] = {"block": f"b{block}", "rack": f"r{rack}", HOST: f"n{number}"}
        tree.add_node(f"n{number}", labels[f"n{number}"], (), {"cpu": free, "pods": 10})
    count = count // 2 * 2 if asked.layers else count
    placed = tree.place([PlacementRequest("main", count, {"cpu": cpu}, PodSpec(), asked)])["main"]
    if isinstance(placed, str):
        return
    hosts = {values[0]: pods for values, pods in placed.domains}
    assert sum(hosts.values()) == count
    assert all(pods * cpu <= nodes[int(name[1:])][2] for name, pods in hosts.items())
    if asked.required is not None:
        levels = ("block",) if asked.required == "block" else ("block", "rack")
        assert len({tuple(labels[name][level] for level in levels) for name in hosts}) <= 1
    if asked.layers:
        assert all(pods % 2 == 0 for pods in hosts.values())
    assert tree.fits(placed, {"cpu": cpu}, {})
    tree.use(placed, {"cpu": cpu})
    tree.use(placed, {"cpu": cpu}, -1)
    assert tree.fits(placed, {"cpu": cpu}, {})


# -- in a simulation


def topology(*levels):
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    return {"apiVersion": API, "kind": "Topology", "metadata": {"name": "racks"}, "spec": spec}


def labelled(name, rack, cpu=4, **more):
    one = node(name, cpu)
    return {**one, "metadata": {"name": name, "labels": {"rack": rack, HOST: name, "pool": "p"}}, **more}


def gang(name, pods, minutes=30, level="rack", **more):
    made = job(name, "a", pods, minutes, **more)
    made["spec"]["template"]["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-required-topology": level}}
    return made


NODES = [labelled("n1", "r1"), labelled("n2", "r1"), labelled("n3", "r2")]
RACKS = {**FLAVOR, "spec": {"topologyName": "racks", "nodeLabels": {"pool": "p"}}}


def test_a_gang_stands_in_one_rack_and_the_next_waits_for_room():
    report, whole = run(topology("rack", HOST), RACKS, *NODES, queue("a", 16), gang("one", 6), gang("two", 5))
    racks = {"n1": "r1", "n2": "r1", "n3": "r2"}
    for name in ("one", "two"):
        assert {racks[pod.node] for pod in whole.pods if pod.workload == f"Job/{name}"} == {"r1"}
    assert [round(one.reserved) for one in report.workloads] == [0, 1801]


def test_pods_of_others_leave_less_room():
    held = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 3}}}]},
        "status": {"phase": "Running"},
    }  # fmt: skip
    report, _ = run(topology("rack", HOST), RACKS, *NODES, held, queue("a", 16), gang("one", 6))
    assert 'topology "racks" allows to fit only 5 out of 6 pod(s)' in report.workloads[0].reason


def test_nodes_that_take_no_pods_have_no_place():
    condition = {"type": "Ready", "status": "False"}
    down = labelled("n2", "r1")
    down["status"]["conditions"] = [condition]
    cordoned = labelled("n3", "r2", spec={"unschedulable": True})
    report, _ = run(topology("rack", HOST), RACKS, NODES[0], down, cordoned, queue("a", 16), gang("one", 6))
    assert "only 4 out of 6" in report.workloads[0].reason


def test_a_level_that_no_flavor_has_is_named():
    report, _ = run(topology(HOST), RACKS, *NODES, queue("a", 16), gang("one", 2))
    assert 'Flavor "default" does not contain the requested level' in report.workloads[0].reason
    report, _ = run(*NODES, queue("a", 16), gang("one", 2))
    assert 'Flavor "default" does not support TopologyAwareScheduling' in report.workloads[0].reason
    report, _ = run(RACKS, *NODES, queue("a", 16), gang("one", 2))
    assert 'there is no Topology "racks" for TAS flavor "default"' in report.workloads[0].reason
