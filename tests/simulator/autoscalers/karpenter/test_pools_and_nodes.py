"""NodePools, limits, DaemonSets, nodes that exist and volumes.

A key that is the title of an upstream test says which behaviour a case is about; the clusters and the expected results are
ours, from reading the rules.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.core import Pod
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.api.workloads import DaemonSet
from moorage.errors import InputError
from moorage.simulator.autoscalers.karpenter.scene import read_node_pools
from moorage.simulator.autoscalers.karpenter.solve import solve
from moorage.simulator.autoscalers.key_requirements import INSTANCE_TYPE, ZONE
from tests.simulator.autoscalers.karpenter.clusters import assorted, default_types, instance_type, needs, node, pod, pool, scene

_TAINT = {"key": "example.com/special", "value": "yes", "effect": "NoSchedule"}
_SOFT = {**_TAINT, "effect": "PreferNoSchedule"}
_TOLERATION = [{"key": "example.com/special", "operator": "Exists"}]
_DEFAULT = [default_types()[0]]

#: Pools; the pod; the pool that gets it, or what the error contains.
_CHOICES: dict[str, tuple[Any, ...]] = {
    "should schedule to the NodePool with the highest priority always": (
        [pool("a"), pool("b", weight=20), pool("c", weight=100)], pod(), "c"
    ),
    "should schedule to explicitly selected NodePool even if other NodePools are higher priority": (
        [pool("a"), pool("b", weight=20), pool("c", weight=100)], pod(nodeSelector={"karpenter.sh/nodepool": "a"}), "a"
    ),
    "equal weights: the last by name": ([pool("a"), pool("b")], pod(), "b"),
    "should not schedule pods with nodePool which is not ready": (
        read_node_pools([{
            "kind": "NodePool", "metadata": {"name": "a"}, "spec": {"template": {"spec": {}}},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        }]),
        pod(), "nodepool requirements filtered out all available instance types",
    ),
    "should ignore static NodePools": (
        [pool("a", replicas=3)], pod(), "nodepool requirements filtered out all available instance types"
    ),
    "should not schedule pods that do not tolerate taints": (
        [pool("a", taints=[_TAINT])], pod(), "did not tolerate taint (taint=example.com/special=yes:NoSchedule)"
    ),
    "should schedule pods that tolerate taints": ([pool("a", taints=[_TAINT])], pod(tolerations=_TOLERATION), "a"),
    "should provision for pods with startup taints": ([pool("a", startupTaints=[_TAINT])], pod(), "a"),
    "should tolerate PreferNoSchedule taint only after relaxing Node affinity terms": ([pool("a", taints=[_SOFT])], pod(), "a"),
    "should not schedule when limits are exceeded": (
        [pool("a", limits={"cpu": "1"})], pod(), "all available instance types exceed limits for nodepool (NodePool=a)"
    ),
    "should schedule if limits would be met": ([pool("a", limits={"cpu": "4"})], pod(), "a"),
    "should not schedule if limits would be exceeded (GPU)": (
        [pool("a", limits={"fake.com/vendor-a": "1"})], pod(requests={"fake.com/vendor-a": "2"}),
        "no instance type has enough resources",
    ),
    "should not schedule when node limits are exhausted": (
        [pool("a", limits={"nodes": "0"})], pod(), "node limits have been exhausted for nodepool (NodePool=a)"
    ),
    "should fall to the pool that has room": ([pool("a", weight=9, limits={"cpu": "1"}), pool("b")], pod(), "b"),
    "should not schedule if requesting more resources than any instance type has": (
        [pool("a")], pod(cpu="512"), 'no instance type has enough resources, requirements=karpenter.sh/initialized In [true]'
    ),
    "should not schedule pods that exceed every instance type's capacity": ([pool("a")], pod(memory="2Ti"), "enough resources"),
    "should fail to schedule a pod with resources requests that aren't on a single instance type": (
        [pool("a")], pod(requests={"fake.com/vendor-a": "1", "fake.com/vendor-b": "1"}), "no instance type has enough resources"
    ),
    "should not schedule a pod with Dynamic Resource Allocation requirements": (
        [pool("a")], pod(resourceClaims=[{"name": "x"}]), "Dynamic Resource Allocation requirements that are not yet supported"
    ),
    "should require minValues of instance types": (
        [pool("a", [(INSTANCE_TYPE, "Exists", 7)])], pod(), "nodepool requirements filtered out all available instance types"
    ),
    "should schedule with minValues that types meet": ([pool("a", [(INSTANCE_TYPE, "Exists", 3)])], pod(), "a"),
    "should not schedule with minValues that the pod leaves unmet": (
        [pool("a", [(INSTANCE_TYPE, "Exists", 2)])], pod(cpu="10"),
        f"minValues requirement is not met for label(s) (label(s)=[{INSTANCE_TYPE}])",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pools", "one", "expected"), _CHOICES.values(), ids=_CHOICES)
def test_the_pool(pools: Any, one: Pod, expected: str) -> None:
    found = solve(scene(pools=sorted(pools, key=lambda held: (held.weight, held.name), reverse=True), pods=[one]), [one])
    if found.claims:
        assert [claim.pool.name for claim in found.claims] == [expected]
    else:
        assert expected in found.errors[one.metadata.uid]


def test_limits_count_the_largest_type_first() -> None:
    """About upstream's "should partially schedule if limits would be exceeded"."""
    pods = [pod(cpu="1500m") for _ in range(3)]
    types = [instance_type("small", cpu="2"), instance_type("large", cpu="4")]
    found = solve(scene(types, [pool(limits={"cpu": "6"})], pods=pods), pods)
    # Each open claim counts with four CPUs, although it may become a small node: after one, two CPUs are left.
    assert [sorted(held.name for held in claim.types) for claim in found.claims] == [["large"], ["small"]]
    pods = [pod(cpu="3") for _ in range(3)]
    found = solve(scene(types, [pool(limits={"cpu": "8"})], pods=pods), pods)
    assert (len(found.claims), len(found.errors)) == (2, 1)


def _daemon(name: str = "d", **spec: Any) -> DaemonSet:
    made = pod(**spec)
    template = {"metadata": {"labels": {}}, "spec": msgspec.to_builtins(made.spec)}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": {"template": template}}, DaemonSet)


#: DaemonSets; what the pod requests; the cheapest type left; None: no claim.
_DAEMONS: dict[str, tuple[Any, ...]] = {
    "should account for daemonsets": ([_daemon(cpu="1", memory="1Gi")], "1", "default-instance-type"),
    "without daemonsets": ([], "1", "small-instance-type"),
    "should not schedule if daemonset overhead is too large": ([_daemon(cpu="10000")], "1", None),
    "should ignore daemonsets without matching tolerations": ([_daemon(cpu="1")], "1", "default-instance-type"),
    "should ignore daemonsets with an invalid selector": (
        [_daemon(cpu="1", nodeSelector={"node": "invalid"})], "1", "small-instance-type"
    ),
    "should ignore daemonsets that notIn use an unspecified key's values": (
        [_daemon(cpu="1", affinity=needs([("foo", "NotIn", "bar")]))], "1", "default-instance-type"
    ),
    "should account for daemonset spec affinity": (
        [_daemon(cpu="1", affinity=needs([("foo", "In", "bar")]))], "1", "small-instance-type"
    ),
    "should take the second term of a daemonset": (
        [_daemon(cpu="1", affinity=needs([("foo", "In", "bar")], [(ZONE, "Exists")]))], "1", "default-instance-type"
    ),
    "should consider daemonsets that select labels of every node": (
        [_daemon(cpu="1", nodeSelector={"karpenter.sh/initialized": "true"})], "1", "default-instance-type"
    ),
    "should count only daemonsets of the type": (
        [_daemon(cpu="1", nodeSelector={INSTANCE_TYPE: "default-instance-type"})], "1", "small-instance-type"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("daemons", "cpu", "expected"), _DAEMONS.values(), ids=_DAEMONS)
def test_daemons(daemons: Any, cpu: str, expected: str | None) -> None:
    one = pod(cpu=cpu)
    found = solve(scene(pods=[one], daemons=daemons), [one])
    assert [claim.types[0].name for claim in found.claims] == ([] if expected is None else [expected])
    if expected is None:
        assert 'resources={"cpu":"10001","pods":"2"}' in found.errors[one.metadata.uid]


#: Words of the node; pods on it; the pod; whether the node takes it.
_NODES: dict[str, tuple[Any, ...]] = {
    "should not launch a second node if there is an in-flight node that can support the pod": ({}, [], {}, True),
    "should launch a second node if a pod won't fit on the existingNodes node": ({}, [], {"cpu": "3901m"}, False),
    "should launch a second node if a pod isn't compatible with the existingNodes node (node selector)": (
        {}, [], {"nodeSelector": {"kubernetes.io/arch": "arm64"}}, False
    ),
    "should consider what runs on the node": ({}, [{"cpu": "3"}], {"cpu": "1"}, False),
    "should ignore pods that have ended": ({}, [{"cpu": "3", "status": {"phase": "Succeeded"}}], {"cpu": "1"}, True),
    "should consider the node's pod limit": ({}, [{}, {}, {}, {}, {}], {}, False),
    "should not assume pod will schedule to a tainted node": ({"taints": [_TAINT]}, [], {}, False),
    "should assume pod will schedule to a tainted node with tolerations": (
        {"taints": [_TAINT]}, [], {"tolerations": _TOLERATION}, True
    ),
    "should not use a cordoned node": ({"unschedulable": True}, [], {}, False),
    "should assume pod will schedule to a node that is starting": (
        {
            "taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}],
            "labels": {"karpenter.sh/initialized": None},
        },
        [], {}, True,
    ),
    "should not schedule to a node that is not ready": (
        {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}, [], {}, False
    ),
    "should use nodes that Karpenter does not manage": ({"labels": {"karpenter.sh/nodepool": None}}, [], {}, True),
    "should respect a label that the node lacks": ({}, [], {"affinity": needs([("x", "Exists")])}, False),
    "should use a label that the node has": ({"labels": {"x": "y"}}, [], {"nodeSelector": {"x": "y"}}, True),
    "should consider host ports": (
        {}, [{"ports": [{"containerPort": 80, "hostPort": 80}]}], {"ports": [{"containerPort": 80, "hostPort": 80}]}, False
    ),
    "should tell host ports of protocols apart": (
        {}, [{"ports": [{"containerPort": 80, "hostPort": 80}]}],
        {"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "UDP"}]}, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("words", "bound", "asked", "takes"), _NODES.values(), ids=_NODES)
def test_nodes_that_exist(words: Any, bound: Any, asked: Any, takes: bool) -> None:
    one = pod(**dict(asked))
    pods = [pod(node="n", **dict(held)) for held in bound]
    found = solve(scene(nodes=[node("n", _DEFAULT[0], **dict(words))], pods=[*pods, one]), [one])
    assert found.placed == ({"n": [one]} if takes else {})


def test_nodes_are_tried_by_name_and_initialized_first() -> None:
    """About upstream's "should order initialized nodes for scheduling before uninitialized nodes"."""
    starting = {"labels": {"karpenter.sh/initialized": None}}
    nodes = [node("a", _DEFAULT[0], **starting), node("c", _DEFAULT[0]), node("b", _DEFAULT[0])]
    pods = [pod(cpu="3") for _ in range(4)]
    found = solve(scene(nodes=nodes, pods=pods), pods)
    assert (list(found.placed), len(found.claims)) == (["b", "c", "a"], 1)


def test_daemons_that_do_not_run_yet_take_room_on_a_node() -> None:
    """About upstream's "should track daemonset usage separately so we know how many DS resources are remaining …"."""
    one = pod(cpu="3")
    daemon = _daemon(cpu="1")
    assert solve(scene(nodes=[node("n", _DEFAULT[0])], pods=[one], daemons=[daemon]), [one]).placed == {}
    owner = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]}
    runs = pod(cpu="900m", node="n", meta=owner)
    found = solve(scene(nodes=[node("n", _DEFAULT[0])], pods=[runs, one], daemons=[_daemon(cpu="900m")]), [one])
    assert list(found.placed) == ["n"]


def test_limits_count_nodes_that_exist() -> None:
    """About upstream's "should schedule based on the max resource usage / existing nodes count against limits"."""
    one = pod(cpu="3")
    held = node("n", _DEFAULT[0], unschedulable=True)
    found = solve(scene(_DEFAULT, [pool(limits={"cpu": "7"})], nodes=[held], pods=[one]), [one])
    assert "exceed limits" in found.errors[one.metadata.uid]
    found = solve(scene(_DEFAULT, [pool(limits={"cpu": "8"})], nodes=[held], pods=[one]), [one])
    assert len(found.claims) == 1


def _claim(volume: str = "", class_: str | None = None) -> dict[tuple[str, str], PersistentVolumeClaim]:
    spec = {"volumeName": volume, "storageClassName": class_}
    made = msgspec.convert({"metadata": {"name": "c", "namespace": "default"}, "spec": spec}, PersistentVolumeClaim)
    return {("default", "c"): made}


def _volume(*terms: list[tuple[Any, ...]], **spec: Any) -> dict[str, PersistentVolume]:
    asked = [{"matchExpressions": [{"key": k, "operator": o, "values": list(v)} for k, o, *v in term]} for term in terms]
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": asked}}
    return {"v": msgspec.convert({"metadata": {"name": "v"}, "spec": spec}, PersistentVolume)}


def _class(*zones: str) -> dict[str, StorageClass]:
    asked = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]} for zone in zones]
    return {"s": msgspec.convert({"metadata": {"name": "s"}, "allowedTopologies": asked}, StorageClass)}


#: The claim, volumes and classes; the zone of the claim; None: it does not fit.
_VOLUMES: dict[str, tuple[Any, ...]] = {
    "should schedule to storage class zones if volume does not exist": (
        {"claims": _claim(class_="s"), "classes": _class("test-zone-1")}, {}, "test-zone-1"
    ),
    "should schedule to any of the storage class topologies": (
        {"claims": _claim(class_="s"), "classes": _class("test-zone-1", "test-zone-2")}, {ZONE: "test-zone-2"}, "test-zone-2"
    ),
    "should not schedule if storage class zones are incompatible": (
        {"claims": _claim(class_="s"), "classes": _class("test-zone-1")}, {ZONE: "test-zone-2"}, None
    ),
    "should schedule to volume zones if volume already bound": (
        {"claims": _claim("v"), "volumes": _volume([(ZONE, "In", "test-zone-3")])}, {}, "test-zone-3"
    ),
    "should not schedule if volume zones are incompatible": (
        {"claims": _claim("v"), "volumes": _volume([(ZONE, "In", "test-zone-3")])}, {ZONE: "test-zone-1"}, None
    ),
    "should ignore hostname affinity of local volumes": (
        {"claims": _claim("v"), "volumes": _volume([("kubernetes.io/hostname", "In", "n")], local={"path": "/x"})},
        {ZONE: "test-zone-1"}, "test-zone-1",
    ),
    "should not ignore hostname affinity of other volumes": (
        {"claims": _claim("v"), "volumes": _volume([("kubernetes.io/hostname", "In", "n")])}, {}, None
    ),
}  # fmt: skip


@pytest.mark.parametrize(("held", "selector", "zone"), _VOLUMES.values(), ids=_VOLUMES)
def test_volumes(held: Any, selector: Any, zone: str | None) -> None:
    one = pod(nodeSelector=selector, volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}])
    found = solve(scene(pods=[one], **held), [one])
    assert [claim.requirements[ZONE].only for claim in found.claims] == ([] if zone is None else [zone])


def test_a_claim_goes_to_the_provider_with_its_cheapest_types_first() -> None:
    """About instance_selection_test.go of upstream, "should schedule on one of the cheapest instances"."""
    one = pod()
    [claim] = solve(scene(assorted(7), pods=[one]), [one]).claims
    assert [held.name for held in claim.types] == [f"fake-it-{at}" for at in range(7)]
    assert claim.cheapest(frozenset({"topology.kubernetes.io/zone", "karpenter.sh/capacity-type"})) == pytest.approx(
        0.1 + 0.2147, abs=1e-3
    )


_FAULTS: dict[str, tuple[Any, str]] = {
    "an unknown policy": (
        {"disruption": {"consolidationPolicy": "Always"}}, "nodepool/a: spec.disruption.consolidationPolicy: 'Always'"
    ),
    "no duration": ({"disruption": {"consolidateAfter": "soon"}}, "nodepool/a: no valid NodePool"),
    "no number of nodes": ({"disruption": {"budgets": [{"nodes": "some"}]}}, "nodepool/a: no valid NodePool"),
    "an unknown reason": ({"disruption": {"budgets": [{"nodes": "1", "reasons": ["Fun"]}]}}, "a reason is none of"),
    "no key": ({"template": {"spec": {"requirements": [{"operator": "In"}]}}}, "nodepool/a: no valid NodePool"),
    "no quantity": ({"limits": {"cpu": "many"}}, "nodepool/a: spec.limits.cpu"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "told"), _FAULTS.values(), ids=_FAULTS)
def test_a_fault_of_a_pool_names_its_place(spec: Any, told: str) -> None:
    with pytest.raises(InputError, match=told.replace("(", r"\(")):
        read_node_pools([{"kind": "NodePool", "metadata": {"name": "a"}, "spec": spec}])


@pytest.mark.parametrize(("spec", "told"), _FAULTS.values(), ids=_FAULTS)
def test_a_pool_of_a_cluster_that_is_not_valid_is_not_ready(spec: Any, told: str) -> None:
    printed = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    sound = {"kind": "NodePool", "metadata": {"name": "b"}, "spec": {}}
    pools = {
        pool.name: pool
        for pool in read_node_pools([{"kind": "NodePool", "metadata": {"name": "a", **printed}, "spec": spec}, sound])
    }
    assert [pools["a"].ready, pools["b"].ready] == [False, True]
    assert told in pools["a"].notes[0]
