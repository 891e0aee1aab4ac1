"""Requirements of pods and pools, as Karpenter's scheduler.go and nodeclaim.go narrow them.

A key that is the title of an upstream test says which behaviour a case is about; the clusters and the expected results are
ours, from reading the rules.

A case: the pool's requirements and labels, the pod's node selector and affinity, and the label values of its claim; None: no
claim.
"""

from __future__ import annotations

from typing import Any

import pytest

from moorage.simulator.autoscalers.karpenter.solve import solve
from moorage.simulator.autoscalers.key_requirements import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE, exists
from tests.simulator.autoscalers.karpenter.clusters import assorted, default_types, needs, node, pod, pool, scene

Z1, Z2, Z3 = "test-zone-1", "test-zone-2", "test-zone-3"
_KEY = "test-key"
_HAS = {_KEY: "test-value"}
_Z12 = [(ZONE, "In", Z1, Z2)]
_Z123 = [(ZONE, "In", Z1, Z2, Z3)]
_NUMBERS = [("integer", "Exists")]

#: Requirements, labels of the pool; selector, affinity of the pod; expected labels of the claim.
_CASES: dict[str, tuple[Any, ...]] = {
    "should schedule unconstrained pods that don't have matching node selectors": ([], _HAS, {}, None, {_KEY: "test-value"}),
    "should not schedule pods that have conflicting node selectors": ([], _HAS, {_KEY: "different-value"}, None, None),
    "should not schedule pods that have node selectors with undefined key": ([], {}, {_KEY: "test-value"}, None, None),
    "should schedule pods that have matching requirements": (
        [], _HAS, {}, needs([(_KEY, "In", "test-value", "another-value")]), {_KEY: "test-value"}
    ),
    "should not schedule pods that have conflicting requirements": ([], _HAS, {}, needs([(_KEY, "In", "another-value")]), None),
    "should use NodePool constraints": ([(ZONE, "In", Z2)], {}, {}, None, {ZONE: Z2}),
    "should use node selectors": (_Z12, {}, {ZONE: Z2}, None, {ZONE: Z2}),
    "should not schedule nodes with a hostname selector": ([], {}, {"kubernetes.io/hostname": "red-node"}, None, None),
    "should not schedule the pod if nodeselector unknown": ([(ZONE, "In", Z1)], {}, {ZONE: "unknown"}, None, None),
    "should not schedule if node selector outside of NodePool constraints": ([(ZONE, "In", Z1)], {}, {ZONE: Z2}, None, None),
    "should schedule compatible requirements with Operator=In": ([], {}, {}, needs([(ZONE, "In", Z3)]), {ZONE: Z3}),
    "should schedule compatible requirements with Operator=Gt": (
        [("integer", "Gt", "8")], {}, {}, None, {INSTANCE_TYPE: "arm-instance-type"}
    ),
    "should schedule compatible requirements with Operator=Lt": (
        [("integer", "Lt", "8"), ("integer", "Lt", "4")], {}, {}, None, {INSTANCE_TYPE: "small-instance-type"}
    ),
    "should schedule compatible requirements with Operator=Gte": (
        [("integer", "Gte", "16")], {}, {}, None, {INSTANCE_TYPE: "arm-instance-type"}
    ),
    "should schedule compatible requirements with Operator=Lte": (
        [("integer", "Lte", "2")], {}, {}, None, {INSTANCE_TYPE: "small-instance-type"}
    ),
    "should not schedule incompatible preferences and requirements with Operator=In": (
        [], {}, {}, needs([(ZONE, "In", "unknown")]), None
    ),
    "should schedule compatible requirements with Operator=NotIn": (
        _Z123, {}, {}, needs([(ZONE, "NotIn", Z1, Z2, "unknown")]), {ZONE: Z3}
    ),
    "should not schedule incompatible preferences and requirements with Operator=NotIn": (
        _Z123, {}, {}, needs([(ZONE, "NotIn", Z1, Z2, Z3, "unknown")]), None
    ),
    "should schedule compatible preferences and requirements with Operator=In": (
        _Z123, {}, {}, needs([(ZONE, "In", Z1, Z2, Z3, "unknown")], prefer=[(1, ZONE, "In", Z2, "unknown")]), {ZONE: Z2}
    ),
    "should schedule incompatible preferences and requirements with Operator=In": (
        _Z123, {}, {}, needs([(ZONE, "In", Z1, Z2, Z3, "unknown")], prefer=[(1, ZONE, "In", "unknown")]), {}
    ),
    "should schedule compatible preferences and requirements with Operator=NotIn": (
        _Z123, {}, {}, needs([(ZONE, "In", Z1, Z2, Z3, "unknown")], prefer=[(1, ZONE, "NotIn", Z1, Z3)]), {ZONE: Z2}
    ),
    "should schedule incompatible preferences and requirements with Operator=NotIn": (
        _Z123, {}, {}, needs([(ZONE, "In", Z1, Z2, Z3, "unknown")], prefer=[(1, ZONE, "NotIn", Z1, Z2, Z3)]), {}
    ),
    "should schedule compatible node selectors, preferences and requirements": (
        _Z123, {}, {ZONE: Z3}, needs([(ZONE, "In", Z1, Z2, Z3)], prefer=[(1, ZONE, "In", Z1, Z2, Z3)]), {ZONE: Z3}
    ),
    "should combine multidimensional node selectors, preferences and requirements": (
        [], {}, {ZONE: Z3, INSTANCE_TYPE: "arm-instance-type"},
        needs(
            [(ZONE, "In", Z1, Z3), (INSTANCE_TYPE, "In", "default-instance-type", "arm-instance-type")],
            prefer=[(1, ZONE, "NotIn", "unknown"), (1, INSTANCE_TYPE, "NotIn", "unknown")],
        ),
        {ZONE: Z3, INSTANCE_TYPE: "arm-instance-type"},
    ),
    "should schedule pods that have node selectors with label in wellknown label list": (
        [], {}, {"kubernetes.io/os": "linux", CAPACITY_TYPE: "spot", "kubernetes.io/arch": "amd64"}, None,
        {CAPACITY_TYPE: "spot", "kubernetes.io/arch": "amd64"},
    ),
    "should not schedule pods that have node selectors with In operator and undefined key": (
        [], {}, {}, needs([(_KEY, "In", "test-value")]), None
    ),
    "should schedule pods that have node selectors with NotIn operator and undefined key": (
        [], {}, {}, needs([(_KEY, "NotIn", "test-value")]), {}
    ),
    "should not schedule pods that have node selectors with Exists operator and undefined key": (
        [], {}, {}, needs([(_KEY, "Exists")]), None
    ),
    "should schedule pods that with DoesNotExists operator and undefined key": (
        [], {}, {}, needs([(_KEY, "DoesNotExist")]), {}
    ),
    "should schedule pods that have node selectors with matching value and In operator": (
        [], _HAS, {}, needs([(_KEY, "In", "test-value")]), {_KEY: "test-value"}
    ),
    "should not schedule pods that have node selectors with matching value and NotIn operator": (
        [], _HAS, {}, needs([(_KEY, "NotIn", "test-value")]), None
    ),
    "should schedule the pod with Exists operator and defined key": (
        [], _HAS, {}, needs([(_KEY, "Exists")]), {_KEY: "test-value"}
    ),
    "should not schedule the pod with DoesNotExists operator and defined key": (
        [], _HAS, {}, needs([(_KEY, "DoesNotExist")]), None
    ),
    "should not schedule pods that have node selectors with different value and In operator": (
        [], _HAS, {}, needs([(_KEY, "In", "another-value")]), None
    ),
    "should schedule pods that have node selectors with different value and NotIn operator": (
        [], _HAS, {}, needs([(_KEY, "NotIn", "another-value")]), {_KEY: "test-value"}
    ),
    "Exists operator should not overwrite the existing value": (
        [], {}, {}, needs([(ZONE, "In", "non-existent-zone"), (ZONE, "Exists")]), None
    ),
    "should not relax the final term": (
        [(ZONE, "In", Z1), (INSTANCE_TYPE, "In", "default-instance-type")], {}, {}, needs([(ZONE, "In", "invalid")]), None
    ),
    "should relax multiple terms": (
        [], {}, {},
        needs([(ZONE, "In", "invalid")], [(ZONE, "In", "invalid")], [(ZONE, "In", Z1)], [(ZONE, "In", Z2)]), {ZONE: Z1}
    ),
    "should relax all terms": ([], {}, {}, needs(prefer=[(1, ZONE, "In", "invalid"), (1, ZONE, "In", "invalid")]), {}),
    "should relax to use lighter weights": (
        _Z12, {}, {}, needs(prefer=[(100, ZONE, "In", Z3), (50, ZONE, "In", Z2), (1, ZONE, "In", Z1)]), {ZONE: Z2}
    ),
    "should schedule even if preference is conflicting with requirement": (
        [], {}, {}, needs([(ZONE, "In", Z3)], prefer=[(1, ZONE, "NotIn", Z3)]), {ZONE: Z3}
    ),
    "should schedule even if preference requirements are conflicting": (
        [], {}, {}, needs(prefer=[(1, ZONE, "In", "invalid"), (1, ZONE, "NotIn", "invalid")]), {}
    ),
    "should exclude instance types that are not supported by the pod constraints (node affinity/instance type)": (
        [], {}, {}, needs([(INSTANCE_TYPE, "In", "arm-instance-type"), ("kubernetes.io/arch", "In", "amd64")]), None
    ),
    "should exclude instance types that are not supported by the pod constraints (node affinity/operating system)": (
        [], {}, {}, needs([("kubernetes.io/os", "In", "ios"), ("kubernetes.io/arch", "In", "amd64")]), None
    ),
    "should exclude instance types that are not supported by the provider constraints (arch)": (
        [("kubernetes.io/arch", "In", "amd64")], {}, {}, needs([(INSTANCE_TYPE, "In", "arm-instance-type")]), None
    ),
    "should filter instance types that match labels": ([], {}, {"size": "large"}, None, {INSTANCE_TYPE: "arm-instance-type"}),
    "should not schedule with incompatible labels": (
        [], {}, {"size": "large", INSTANCE_TYPE: "default-instance-type"}, None, None
    ),
    "should use NodePool constraints: capacity type": ([(CAPACITY_TYPE, "In", "spot")], {}, {}, None, {CAPACITY_TYPE: "spot"}),
    "a zone where spot is not offered": ([(CAPACITY_TYPE, "In", "spot")], {}, {ZONE: Z3}, None, None),
    "a NodePool by name": ([], {}, {NODE_POOL: "default"}, None, {NODE_POOL: "default"}),
    "another NodePool by name": ([], {}, {NODE_POOL: "other"}, None, None),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "labels", "selector", "affinity", "expected"), _CASES.values(), ids=_CASES)
def test_one_pod(asked: Any, labels: Any, selector: Any, affinity: Any, expected: dict[str, str] | None) -> None:
    one = pod(nodeSelector=selector, affinity=affinity)
    found = solve(scene(pools=[pool(requirements=asked, labels=labels)], pods=[one]), [one])
    if expected is None:
        assert (found.claims, list(found.errors)) == ([], [one.metadata.uid])
        return
    assert found.errors == {}
    [claim] = found.claims
    for key, value in expected.items():
        if key == INSTANCE_TYPE:
            assert [held.name for held in claim.types] == [value]
        else:
            assert claim.requirements.get(key, exists(key)).only == value


#: Requirements of two pods; whether they share a claim.
_PAIRS: dict[str, tuple[Any, Any, bool]] = {
    "should schedule compatible pods to the same node": (
        needs([("test-key", "In", "test-value")]), needs([("test-key", "NotIn", "another-value")]), True
    ),
    "should schedule incompatible pods to the different node": (
        needs([("test-key", "In", "test-value")]), needs([("test-key", "In", "another-value")]), False
    ),
    "should launch pods with different archs on different instances": (
        needs([("kubernetes.io/arch", "In", "amd64")]), needs([("kubernetes.io/arch", "In", "arm64")]), False
    ),
    "should launch pods with different operating systems on different instances": (
        needs([("kubernetes.io/os", "In", "linux")]), needs([("kubernetes.io/os", "In", "windows")]), False
    ),
    "should launch pods with different instance type node selectors on different instances": (
        needs([(INSTANCE_TYPE, "In", "small-instance-type")]), needs([(INSTANCE_TYPE, "In", "default-instance-type")]), False
    ),
    "should launch pods with different zone selectors on different instances": (
        needs([(ZONE, "In", Z1)]), needs([(ZONE, "In", Z2)]), False
    ),
    "one zone of several": (needs([(ZONE, "In", Z1, Z2)]), needs([(ZONE, "In", Z2, Z3)]), True),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "share"), _PAIRS.values(), ids=_PAIRS)
def test_two_pods(first: Any, second: Any, share: bool) -> None:
    pods = [pod(affinity=first), pod(affinity=second)]
    asked = [("test-key", "In", "test-value", "another-value")]
    found = solve(scene(pools=[pool(requirements=asked)], pods=pods), pods)
    assert found.errors == {}
    assert len(found.claims) == (1 if share else 2)


#: Pods by (cpu, memory, how many); types; the pods of each claim, sorted; the cheapest type of each claim.
_PACKED: dict[str, tuple[Any, ...]] = {
    "should schedule a small pod on the smallest instance": ([("", "100M", 1)], None, [1], {"small-instance-type"}),
    "should schedule a small pod on the smallest possible instance type": (
        [("", "2000M", 1)], None, [1], {"small-instance-type"}
    ),
    "should schedule multiple small pods on the smallest possible instance type": (
        [("10m", "10M", 5)], None, [5], {"small-instance-type"}
    ),
    "should create new nodes when a node is at capacity": ([("1001m", "", 40)], assorted(5), [4] * 10, None),
    "should create new nodes when a node is at capacity due to pod limits per node": (
        [("1m", "1M", 25)], [default_types()[0]], [5] * 5, {"default-instance-type"}
    ),
    "should handle zero-quantity resource requests": ([("0", "", 1)], None, [1], {"small-instance-type"}),
    "should take pod runtime class into consideration: larger": ([("3", "", 1)], None, [1], {"default-instance-type"}),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "types", "sizes", "cheapest"), _PACKED.values(), ids=_PACKED)
def test_packing(asked: Any, types: Any, sizes: list[int], cheapest: set[str] | None) -> None:
    pods = [pod(cpu=cpu, memory=memory) for cpu, memory, number in asked for _ in range(number)]
    asked_of_pool = [("kubernetes.io/arch", "In", "amd64")]
    found = solve(scene(types, pools=[pool(requirements=asked_of_pool)], pods=pods), pods)
    assert (found.errors, sorted(len(claim.pods) for claim in found.claims)) == ({}, sizes)
    if cheapest is not None:
        assert {claim.types[0].name for claim in found.claims} == cheapest


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ([("team", "NotIn", "red")], [("team", "Exists")], True),
        ([("team", "NotIn", "red")], [("team", "In", "blue")], True),
        ([("team", "NotIn", "red")], [("team", "In", "red")], False),
        ([("team", "DoesNotExist")], [("team", "Exists")], False),
        ([], [("team", "Exists")], False),
    ],
)
def test_a_node_has_the_label_of_which_its_first_pod_says_something(first: Any, second: Any, together: bool) -> None:
    """Karpenter's own decision in a random cluster: the node's requirements are narrowed by each pod that it gets."""
    held = node("bow", assorted(8)[7])
    waiting = [
        pod(name, cpu=cpu, affinity=needs(asked) if asked else {})
        for name, cpu, asked in (("a", "2", first), ("b", "1", second))
    ]
    plan = solve(scene(assorted(8), nodes=[held]), waiting)
    assert sorted(one.name for one in plan.placed["bow"]) == (["a", "b"] if together else ["a"])
