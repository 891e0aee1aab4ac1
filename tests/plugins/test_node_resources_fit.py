"""Test NodeResourcesFit: nodes with too few free resources are rejected, the others scored by utilization."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Pod
from moorage.api.devices import DeviceClass
from moorage.api.feature_gates import FeatureGates
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Status
from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.state.cluster import ClusterState
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import final_scores, refusals, wakes

GPU = "example.com/gpu"
FPGA = "other.example.com/fpga"


def plugin(**args):
    return NodeResourcesFit(msgspec.convert(args, NodeResourcesFit.Args))


def wanting(requests=None, name="pod", **spec):
    return a_pod(name, containers=[{"name": "c", "resources": {"requests": requests or {}}}], **spec)


def node(name="n", **offers):
    return a_node(name, allocatable={"pods": 10, **{key.replace("_", "-"): value for key, value in offers.items()}})


def no(*reasons, unresolvable=False):
    return Status(Code.UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE, "NodeResourcesFit", reasons)


def never(*reasons):
    return no(*reasons, unresolvable=True)


# the pod's requests, the node's allocatable, requests of its pods (a list), the reasons
CASES = {
    "an empty node": ({"cpu": 1, "memory": 10}, {"cpu": 1, "memory": 10}, [], None),
    "nothing requested": ({}, {}, [{"cpu": 5}], None),
    "zero requested": ({"cpu": 0, "memory": 0, GPU: 0}, {}, [{"cpu": 5}], None),
    "exactly enough is free": ({"cpu": 1}, {"cpu": 3}, [{"cpu": 1}, {"cpu": 1}], None),
    "cpu is in use": ({"cpu": "1001m"}, {"cpu": 3}, [{"cpu": 1}, {"cpu": 1}], no("Insufficient cpu")),
    "cpu is not allocatable": ({"cpu": "3001m"}, {"cpu": 3}, [], never("Insufficient cpu")),
    "memory is in use": ({"memory": 6}, {"memory": 10}, [{"memory": 5}], no("Insufficient memory")),
    "storage is in use": (
        {"ephemeral-storage": 6}, {"ephemeral_storage": 10}, [{"ephemeral-storage": 5}], no("Insufficient ephemeral-storage"),
    ),
    "a device is in use": ({GPU: 1}, {GPU: 1}, [{GPU: 1}], no(f"Insufficient {GPU}")),
    "a device is not allocatable": ({GPU: 1}, {}, [], never(f"Insufficient {GPU}")),
    "huge pages are not allocatable": (
        {"hugepages-2Mi": "2Mi"}, {"hugepages_1Gi": "1Gi"}, [], never("Insufficient hugepages-2Mi"),
    ),
    "all reasons": (
        {"cpu": 2, "memory": 6, GPU: 1, "ephemeral-storage": 2}, {"cpu": 2, "memory": 10}, [{"cpu": 1, "memory": 5}],
        never("Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage", f"Insufficient {GPU}"),
    ),
    "overcommitted, and the pod requests none of it": ({"memory": 1}, {"cpu": 1, "memory": 1}, [{"cpu": 5}], None),
    "overcommitted": ({"cpu": "1m"}, {"cpu": 1}, [{"cpu": 5}], no("Insufficient cpu")),
    "as many pods as allowed": ({}, {"pods": 1}, [{}], no("Too many pods")),
    "no pods allowed": ({}, {"pods": 0}, [], no("Too many pods")),
    "too many pods and insufficient resources": (
        {"cpu": 1}, {"pods": 1, "cpu": 1}, [{"cpu": 1}], no("Too many pods", "Insufficient cpu"),
    ),
    "too many pods and never enough resources": (
        {"cpu": 2}, {"pods": 1, "cpu": 1}, [{}], never("Too many pods", "Insufficient cpu"),
    ),
    "a resource that is not tracked": ({"gpu": 5}, {}, [], None),
}  # fmt: skip


def snapshot_of(offers, held):
    return a_cluster([node(**offers)], {"n": [wanting(requests, f"held{i}") for i, requests in enumerate(held)]}).snapshot


@pytest.mark.parametrize(("requests", "offers", "held", "verdict"), CASES.values(), ids=CASES)
def test_rejects(requests, offers, held, verdict):
    assert refusals(plugin(), wanting(requests), snapshot_of(offers, held)).get("n") == verdict


IGNORING = {  # args, rejected
    "by name": ({"ignoredResources": [GPU]}, [FPGA, "hugepages-2Mi"]),
    "a resource group": ({"ignoredResourceGroups": ["other.example.com"]}, [GPU, "hugepages-2Mi"]),
    "a full name is not a group": ({"ignoredResources": ["example.com"]}, [GPU, "hugepages-2Mi", FPGA]),
    "only extended resources": ({"ignoredResources": ["hugepages-2Mi", "cpu", GPU]}, [FPGA, "hugepages-2Mi"]),
}


@pytest.mark.parametrize(("args", "refused"), IGNORING.values(), ids=IGNORING)
def test_ignored_resources(args, refused):
    pod = wanting({GPU: 1, FPGA: 1, "hugepages-2Mi": "2Mi"})
    verdict = refusals(plugin(**args), pod, snapshot_of({}, []))["n"]
    assert sorted(verdict.reasons) == sorted(f"Insufficient {name}" for name in refused)


def test_pod_level_resources_are_checked_and_not_scored():
    pod = wanting({"cpu": 1, "memory": 0}, resources={"requests": {"cpu": 3}})
    cluster = a_cluster([node("small", cpu=2, memory=10), node("large", cpu=4, memory=10)]).snapshot
    assert refusals(plugin(), pod, cluster) == {"small": never("Insufficient cpu")}
    assert final_scores(plugin(), pod, cluster) == {"small": 75, "large": 87}


def test_containers_are_checked_without_the_pod_level_gate():
    fit = plugin()
    fit.attach(handle({"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}))
    assert refusals(fit, wanting({"cpu": 1}, resources={"requests": {"cpu": 3}}), a_cluster([node(cpu=2)]).snapshot) == {}


def test_resources_in_the_status_do_not_count_for_a_pending_pod():
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": 3}}}]}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]}
    pod = PodInfo(msgspec.convert({"spec": spec, "status": status}, Pod))
    assert refusals(plugin(), pod, a_cluster([node(cpu=2)]).snapshot) == {}


def test_the_default_strategy_is_least_allocated():
    cluster = a_cluster([node("a", cpu=4, memory=4000), node("b", cpu=2, memory=4000)]).snapshot
    pod = wanting({"cpu": 1, "memory": 1000})
    assert final_scores(plugin(), pod, cluster) == {"a": 75, "b": (50 + 75) // 2}
    most = plugin(scoringStrategy={"type": "MostAllocated", "resources": [{"name": "cpu"}]})
    assert final_scores(most, pod, cluster) == {"a": 25, "b": 50}


def test_containers_without_requests_are_scored_with_default_requests():
    offers = {"cpu": 1, "memory": "2000Mi"}
    cluster = a_cluster([node("idle", **offers), node("busy", **offers)], {"busy": [wanting({}, "held")]}).snapshot
    assert final_scores(plugin(), wanting(), cluster) == {"idle": 90, "busy": 80}


# -- arguments ------------------------------------------------------------------------------------------------------------

CPU = [{"name": "cpu"}]
POINTS = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
RATIO = "RequestedToCapacityRatio"
TYPES = '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)


def weight_of(name):
    return f"resource weight of {name} not in valid range (0, 100]"


FAULTS = {
    "nothing": ({}, []),
    "valid arguments": (
        {"ignoredResources": [GPU], "ignoredResourceGroups": ["example.com"],
         "scoringStrategy": {"type": RATIO, "resources": CPU, "requestedToCapacityRatio": {"shape": POINTS}}},
        [],
    ),
    "names": (
        {"ignoredResources": ["a b"], "ignoredResourceGroups": ["a/b", "a b"]},
        [f'args.ignoredResources[0]: Invalid value: "a b": {PART}',
         """args.ignoredResourceGroups[0]: Invalid value: "a/b": resource group name can't contain '/'""",
         f'args.ignoredResourceGroups[1]: Invalid value: "a b": {PART}'],
    ),
    "type": (
        {"scoringStrategy": {"type": "Random", "resources": CPU}},
        ['args.scoringStrategy.type: Unsupported value: "Random": supported values: ' + TYPES],
    ),
    "no type": (
        {"scoringStrategy": {}},
        ['args.scoringStrategy.type: Unsupported value: "": supported values: ' + TYPES],
    ),
    "weights": (
        {"scoringStrategy": {"type": "LeastAllocated", "resources": [
            {"name": "cpu", "weight": 0}, {"name": "memory", "weight": 101}, {"name": "x", "weight": -1}]}},
        [f"args.scoringStrategy.resources[1].weight: Invalid value: 101: {weight_of('memory')}",
         f"args.scoringStrategy.resources[2].weight: Invalid value: -1: {weight_of('x')}"],
    ),
    "no shape for RequestedToCapacityRatio": (
        {"scoringStrategy": {"type": RATIO, "resources": CPU}},
        [f"args.scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is {RATIO}"],
    ),
    "an empty shape": (
        {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {}}},
        ["args.scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified"],
    ),
    "a shape for another strategy": (
        {"scoringStrategy": {"type": "MostAllocated", "requestedToCapacityRatio": {"shape": []}}},
        [f"args.scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not {RATIO}"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("args", "faults"), FAULTS.values(), ids=FAULTS)
def test_faults_of_arguments(args, faults):
    found = [str(fault) for fault in msgspec.convert(args, NodeResourcesFit.Args).faults("args", FeatureGates())]
    assert [fault.split(" (e.g. ")[0] for fault in found] == faults


def test_faults_without_a_path():
    args = msgspec.convert({"scoringStrategy": {"type": "Random"}, "ignoredResources": [""]}, NodeResourcesFit.Args)
    assert {fault.field for fault in args.faults("", FeatureGates())} == {"ignoredResources[0]", "scoringStrategy.type"}


def test_unknown_arguments_are_rejected():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"scoringStrategy": {"kind": "LeastAllocated"}}, NodeResourcesFit.Args)


# -- devices behind extended resources --------------------------------------------------------------------------------------


def handle(gates=None, cluster=None):
    return SimpleNamespace(gates=FeatureGates(gates), snapshot=(cluster or ClusterState()).snapshot)


def device_class(name="class", resource=None, created=None):
    made = {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": resource}}
    return msgspec.convert(made, DeviceClass)


IMPLICIT = "deviceclass.resource.kubernetes.io/class"


@pytest.mark.parametrize("resource", [GPU, IMPLICIT])
def test_a_device_class_backs_the_resource_on_nodes_without_it(resource):
    full = node("full", cpu=1, **{resource: 1})
    cluster = a_cluster(
        [node("without", cpu=1), full, node("free", cpu=1, **{resource: 1})], {"full": [wanting({resource: 1}, "h")]}
    )
    fit, pod = plugin(), wanting({resource: 1})
    fit.attach(handle(None, cluster))
    text = f"Insufficient {resource}"
    assert refusals(fit, pod, cluster.snapshot) == {"without": never(text), "full": no(text)}
    assert fit.reuse.signature(pod) is not None
    cluster.set_object(device_class("class", GPU))
    assert refusals(fit, pod, cluster.snapshot) == {"full": no(text)}
    assert fit.reuse.signature(pod) is None
    assert fit.reuse.signature(wanting({"cpu": 1, resource: 0})) is not None
    fit.attach(handle({"DRAExtendedResource": False}, cluster))
    assert refusals(fit, pod, cluster.snapshot) == {"without": never(text), "full": no(text)}


# -- signature --------------------------------------------------------------------------------------------------------------

READ = {
    "requests": wanting({"cpu": 1}),
    "defaults": a_pod(containers=[{"name": "a"}, {"name": "b"}]),
    "pod-level resources": wanting({}, resources={"requests": {"cpu": 1}}),
    "overhead": wanting({}, overhead={"cpu": 1}),
}


@pytest.mark.parametrize("pod", READ.values(), ids=READ)
def test_the_signature_covers_what_the_plugin_reads(pod):
    assert plugin().reuse.signature(pod) != plugin().reuse.signature(wanting())
    assert plugin().reuse.signature(PodInfo(pod.pod)) == plugin().reuse.signature(pod)
    assert {hash(value) for value in plugin().reuse.signature(pod).values()}


# -- events -----------------------------------------------------------------------------------------------------------------


def on_node(requests, where="n", name="other", nominated="", actual=None):
    status = {"nominatedNodeName": nominated}
    if actual is not None:
        status["containerStatuses"] = [{"name": "c", "resources": {"requests": actual}, "allocatedResources": actual}]
    spec = {"nodeName": where, "containers": [{"name": "c", "resources": {"requests": requests}}]}
    return PodInfo(msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec, "status": status}, Pod))


DOWN, GONE = Action.UPDATE_POD_SCALE_DOWN, Action.DELETE
POD_EVENTS = {  # action, before, after, whether it wakes a pod that requests cpu and a device
    "a placed pod is deleted": (GONE, on_node({}), None, True),
    "a nominated pod is deleted": (GONE, on_node({}, "", nominated="n"), None, True),
    "a pending pod is deleted": (GONE, on_node({}, ""), None, False),
    "less cpu": (DOWN, on_node({"cpu": 2}), on_node({"cpu": 1}), True),
    "no device any more": (DOWN, on_node({GPU: 2}), on_node({}), True),
    "less of another resource": (DOWN, on_node({"memory": 2, "cpu": 1}), on_node({"memory": 1, "cpu": 1}), False),
    "less requested, the same allocated": (DOWN, on_node({"cpu": 2}), on_node({"cpu": 1}, actual={"cpu": 2}), False),
    "less requested by a pending pod": (DOWN, on_node({"cpu": 2}, ""), on_node({"cpu": 1}, ""), False),
    "less requested by the pod itself": (DOWN, on_node({"cpu": 2}, "", "self"), on_node({"cpu": 1}, "", "self"), True),
}


@pytest.mark.parametrize(("action", "before", "after", "woken"), POD_EVENTS.values(), ids=POD_EVENTS)
def test_wakes_on_pods(action, before, after, woken):
    pod = wanting({"cpu": 1, GPU: 1, "memory": 0}, "pod", uid="self")
    assert wakes(plugin(), pod, Resource.ASSIGNED_POD, action, before, after) is woken


def test_a_pod_level_resize_counts_when_the_gate_is_on():
    def pod_level(requests, running):
        made = on_node({}).pod
        spec = msgspec.structs.replace(
            made.spec, resources=msgspec.convert({"requests": requests}, type(made.spec.containers[0].resources))
        )
        status = msgspec.structs.replace(made.status, resources=msgspec.convert({"requests": running}, type(spec.resources)))
        return PodInfo(msgspec.structs.replace(made, spec=spec, status=status))

    before, after = pod_level({"cpu": 2}, {"cpu": 2}), pod_level({"cpu": 1}, {"cpu": 2})
    fit = plugin()
    assert not wakes(fit, wanting({"cpu": 1}), Resource.ASSIGNED_POD, DOWN, before, after)
    fit.attach(handle({"InPlacePodLevelResourcesVerticalScaling": False}))
    assert wakes(fit, wanting({"cpu": 1}), Resource.ASSIGNED_POD, DOWN, before, after)


NODE_EVENTS = {  # before, after, whether it wakes a pod that requests one cpu and a device
    "a node that fits": (None, node(cpu=1, **{GPU: 1}), True),
    "a node without the device": (None, node(cpu=1), False),
    "a node that allows no pods": (None, node(pods=0, cpu=1, **{GPU: 1}), False),
    "more cpu": (node(cpu=1, **{GPU: 1}), node(cpu=2, **{GPU: 1}), True),
    "more devices": (node(cpu=1), node(cpu=1, **{GPU: 1}), True),
    "more pods": (node(cpu=1, **{GPU: 1}), node(pods=11, cpu=1, **{GPU: 1}), True),
    "more of another resource": (node(cpu=1, **{GPU: 1}), node(cpu=1, memory=1, **{GPU: 1}), False),
    "more, and still too little": (node(cpu=1), node(cpu=2), False),
    "less": (node(cpu=2, **{GPU: 2}), node(cpu=1, **{GPU: 1}), False),
}


@pytest.mark.parametrize(("before", "after", "woken"), NODE_EVENTS.values(), ids=NODE_EVENTS)
def test_wakes_on_nodes(before, after, woken):
    action = Action.ADD if before is None else Action.UPDATE_NODE_ALLOCATABLE
    assert wakes(plugin(), wanting({"cpu": 1, GPU: 1, "memory": 0}), Resource.NODE, action, before, after) is woken


def test_ignored_resources_do_not_prevent_a_wake():
    pod = wanting({"cpu": 2, GPU: 1})
    assert wakes(plugin(ignoredResources=[GPU]), pod, Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE, node(cpu=1), node(cpu=2))


def test_a_node_may_leave_the_device_to_its_class():
    cluster = a_cluster([])
    cluster.set_object(device_class("class", GPU))
    fit = plugin()
    fit.attach(handle(None, cluster))
    pod = wanting({"cpu": 1, GPU: 1})
    assert wakes(fit, pod, Resource.NODE, Action.ADD, None, node(cpu=1))
    assert wakes(fit, pod, Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE, node(cpu=1), node(cpu=1))


CLASS_EVENTS = {  # before, after, whether it wakes a pod that requests the GPU and the implicit resource of "class"
    "a class of that resource": (None, device_class("any", GPU), True),
    "a class of that name": (None, device_class("class"), True),
    "another class": (None, device_class("any", FPGA), False),
    "a class starts to back the resource": (device_class("any", FPGA), device_class("any", GPU), True),
    "a class backs the resource as before": (device_class("any", GPU), device_class("any", GPU), False),
    "the implicitly named class changes": (device_class("class"), device_class("class", FPGA), False),
    "a class stops backing the resource": (device_class("any", GPU), device_class("any"), False),
}


@pytest.mark.parametrize(("before", "after", "woken"), CLASS_EVENTS.values(), ids=CLASS_EVENTS)
def test_wakes_on_device_classes(before, after, woken):
    action = Action.ADD if before is None else Action.UPDATE_OTHER
    pod = wanting({GPU: 1, IMPLICIT: 1})
    assert wakes(plugin(), pod, Resource.DEVICE_CLASS, action, before, after) is woken
    closed = plugin()
    closed.attach(handle({"DRAExtendedResource": False}))
    assert not wakes(closed, pod, Resource.DEVICE_CLASS, action, before, after)


# -- properties ---------------------------------------------------------------------------------------------------------------

NAMES = ("cpu", "memory", "ephemeral-storage", GPU, FPGA)
counts = st.integers(0, 4)
lists = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, counts))
nodes = st.lists(st.tuples(st.integers(0, 3), lists, st.lists(lists, max_size=3)), min_size=1, max_size=4)


def verdict(requests, pods, offers, held):
    """Check one node that allows ``pods`` pods, has these allocatable amounts and these requests."""
    reasons = ["Too many pods"] if len(held) + 1 > pods else []
    wanted = {name: count for name, count in requests.items() if count}
    taken = {name: sum(h.get(name, 0) for h in held) for name in wanted}
    lacking = [name for name, count in wanted.items() if taken[name] + count > offers.get(name, 0)]
    reasons += [f"Insufficient {name}" for name in NAMES if name in lacking]
    impossible = any(wanted[name] > offers.get(name, 0) for name in lacking)
    return no(*reasons, unresolvable=impossible) if reasons else None


def with_pods(given_nodes):
    made = [a_node(f"n{i}", allocatable={**offers, "pods": pods}) for i, (pods, offers, _) in enumerate(given_nodes)]
    placed = {f"n{i}": [wanting(h, f"held{i}-{j}") for j, h in enumerate(held)] for i, (_, _, held) in enumerate(given_nodes)}
    return a_cluster(made, placed)


@settings(max_examples=50)
@given(lists, nodes, st.data())
def test_agrees_with_a_reference_implementation(requests, given_nodes, data):
    snapshot = with_pods(given_nodes).snapshot
    expected = {f"n{i}": verdict(requests, *given) for i, given in enumerate(given_nodes)}
    expected = {name: status for name, status in expected.items() if status}
    assert refusals(plugin(), wanting(requests), snapshot) == expected
    rows = data.draw(st.lists(st.integers(0, len(given_nodes) - 1), unique=True))
    part = refusals(plugin(), wanting(requests), NodeView(snapshot, np.array(rows, dtype=np.intp)))
    assert part == {f"n{row}": expected[f"n{row}"] for row in rows if f"n{row}" in expected}


@settings(max_examples=30)
@given(lists, nodes, lists)
def test_a_fuller_node_never_fits_better(requests, given_nodes, more):
    cluster = with_pods(given_nodes)
    names = {f"n{i}" for i in range(len(given_nodes))}
    pod = wanting(requests)
    before, scores = refusals(plugin(), pod, cluster.snapshot), final_scores(plugin(), pod, cluster.snapshot)
    for name in names:
        cluster.place(wanting(more, f"more-{name}"), name)
    after, lower = refusals(plugin(), pod, cluster.snapshot), final_scores(plugin(), pod, cluster.snapshot)
    assert set(before) <= set(after)
    assert all(set(before[name].reasons) <= set(after[name].reasons) for name in before)
    assert all(lower[name] <= scores[name] for name in names)
    for name in names:
        cluster.remove_pod(f"default/more-{name}")
    assert refusals(plugin(), pod, cluster.snapshot) == before


@settings(max_examples=50)
@given(lists, st.integers(0, 2), lists, st.integers(0, 2), lists, lists, st.booleans())
def test_every_change_that_frees_resources_wakes(requests, pods, offers, more_pods, more_offers, held, ignore):
    """If a change to a node or the deletion of a pod makes the node fit, the hint says so."""
    fit, pod = plugin(ignoredResources=[GPU] if ignore else []), wanting(requests)
    cluster = a_cluster([old := a_node("n", allocatable={**offers, "pods": pods})])
    placed = on_node(held)
    cluster.place(placed, "n")

    def refused():
        return bool(refusals(fit, pod, cluster.snapshot))

    was = refused()
    cluster.set_node(new := a_node("n", allocatable={**more_offers, "pods": more_pods}))
    if was and not refused():
        assert wakes(fit, pod, Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE, old, new)
    was = refused()
    cluster.place(smaller := on_node({name: count - 1 for name, count in held.items() if count}), "n")
    if was and not refused():
        assert wakes(fit, pod, Resource.ASSIGNED_POD, DOWN, placed, smaller)
    was = refused()
    cluster.remove_pod(smaller.uid)
    if not refused():
        assert wakes(fit, pod, Resource.NODE, Action.ADD, None, new)
        assert not was or wakes(fit, pod, Resource.ASSIGNED_POD, GONE, smaller)
