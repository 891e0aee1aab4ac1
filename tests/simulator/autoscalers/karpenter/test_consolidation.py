"""Consolidation, emptiness and Balanced NodePools.

A key that is the title of an upstream test says which behaviour a case is about; the clusters and the expected results are
ours, from reading the rules.
"""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.core import Node, Pod
from moorage.simulator.autoscalers.instance_types import InstanceType
from moorage.simulator.autoscalers.karpenter.consolidation import (
    DisruptionCandidate,
    DisruptionCommand,
    Disruptor,
    candidate_of,
    savings_pass,
)
from moorage.simulator.autoscalers.karpenter.scene import DisruptionLimit, ProvisioningPool, eviction_cost
from moorage.simulator.autoscalers.key_requirements import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from tests.simulator.autoscalers.karpenter.clusters import instance_type, node, pod, pool, scene

_OD = (("on-demand", "test-zone-1"),)
_ON_DEMAND = [(CAPACITY_TYPE, "In", "on-demand")]
_BOTH = (("on-demand", "test-zone-1"), ("spot", "test-zone-1"))


def _types(*prices: float, offered: Any = _OD) -> list[InstanceType]:
    """Return types t0, t1, … of equal size with these prices."""
    return [
        instance_type(f"t{at}", cpu="8", memory="32Gi", pods="50", price=price, offered=offered)
        for at, price in enumerate(prices)
    ]


def _judged(
    types: list[InstanceType],
    nodes: list[Node],
    pods: list[Pod],
    held: ProvisioningPool | None = None,
    remove: int = 1,
    **more: Any,
) -> DisruptionCommand:
    """Return what Karpenter would do with the first nodes."""
    one = held or pool()
    cluster = scene(types, [one], nodes=nodes, pods=pods)
    disruptor = Disruptor(cluster, **more)
    return disruptor.compute([candidate_of(cluster, cluster.nodes[cluster.row_of[n.name]], one) for n in nodes[:remove]])


def _run(node_name: str, *cpus: str, **spec: Any) -> list[Pod]:
    return [pod(cpu=cpu, node=node_name, **spec) for cpu in cpus]


_CHEAP = _types(1.0, 2.0, 3.0)
_SPOT = _types(1.0, 2.0, 3.0, offered=_BOTH)

#: Types; nodes as (name, row of the type, words); pods; the decision, what the event says, and the types of the replacement.
_SINGLE: dict[str, tuple[Any, ...]] = {
    "can delete nodes": (
        _CHEAP, [("a", 1, {}), ("b", 1, {})], [*_run("a", "1"), *_run("b", "1")], "delete", "", []
    ),
    "can replace node": (_CHEAP, [("a", 2, {})], _run("a", "1"), "replace", "", ["t0", "t1"]),
    "cannot replace a node if any node filter fails: no cheaper type": (
        _CHEAP, [("a", 0, {})], _run("a", "1"), "no-op", "Can't replace with a cheaper node", []
    ),
    "won't replace node if any spot replacement is more expensive": (
        _types(3.0, 5.0, offered=_BOTH), [("a", 0, {})], _run("a", "1"), "no-op", "Can't replace with a cheaper node", []
    ),
    "won't replace on-demand node if on-demand replacement is more expensive": (
        _types(3.0, 5.0), [("a", 0, {})], _run("a", "1"), "no-op", "Can't replace with a cheaper node", []
    ),
    "can delete nodes, considers PDB-free pods that fit elsewhere": (
        _CHEAP, [("a", 2, {}), ("b", 0, {})], [*_run("a", "3"), *_run("b", "4")], "delete", "", []
    ),
    "can replace nodes, when the other node has no room": (
        _CHEAP, [("a", 2, {}), ("b", 0, {})], [*_run("a", "3"), *_run("b", "5")], "replace", "", ["t0", "t1"]
    ),
    "does not consolidate when pods would not schedule": (
        _CHEAP, [("a", 2, {"labels": {"x": "y"}})], _run("a", "1", nodeSelector={"x": "y"}), "no-op",
        'Not all pods would schedule, default/p => incompatible requirements, label "x" does not have known values', [],
    ),
    "won't delete node if it would require pods to schedule on an uninitialized node": (
        _CHEAP, [("a", 2, {}), ("b", 0, {"labels": {"karpenter.sh/initialized": None}})], _run("a", "1"), "no-op",
        "Not all pods would schedule, default/p => would schedule against uninitialized node/b", [],
    ),
    "can delete nodes with a permanently pending pod": (
        _CHEAP, [("a", 1, {}), ("b", 1, {})], [*_run("a", "1"), pod(nodeSelector={"no": "way"})], "delete", "", []
    ),
    "can merge a spot node into another": (
        _SPOT, [("a", 2, {"kind": "spot"}), ("b", 0, {})], _run("a", "1"), "delete", "", []
    ),
    "cannot replace spot with spot if spotToSpotConsolidation is disabled": (
        _SPOT, [("a", 2, {"kind": "spot"})], _run("a", "1"), "no-op",
        "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node", [],
    ),
    "can replace on-demand with spot": (
        _SPOT, [("a", 2, {})], _run("a", "1"), "replace", "", ["t0", "t1"]
    ),
    "a node whose offering is unknown costs nothing": (
        _CHEAP, [("a", 2, {"zone": "elsewhere"})], _run("a", "1"), "no-op", "Can't replace with a cheaper node", []
    ),
    "an empty node is deleted": (_CHEAP, [("a", 2, {})], [], "delete", "", []),
}  # fmt: skip


@pytest.mark.parametrize(("types", "nodes", "pods", "decision", "told", "left"), _SINGLE.values(), ids=_SINGLE)
def test_a_single_node(types: Any, nodes: Any, pods: list[Pod], decision: str, told: str, left: list[str]) -> None:
    made = [node(name, types[row], **dict(words)) for name, row, words in nodes]
    found = _judged(types, made, pods)
    names = {f"{one.namespace}/{one.name}" for one in pods}
    for name in names:
        told = told.replace("default/p ", f"{name} ") if f"{name} " in found.why else told
    assert (found.decision, found.why) == (decision, told)
    assert list(found.types) == left


def test_on_demand_to_spot_keeps_to_spot() -> None:
    """About upstream's "can replace node": a launch that fell back to on-demand could cost more than the node."""
    found = _judged(
        _SPOT, [node("a", _SPOT[2])], _run("a", "1"), pool(requirements=[(CAPACITY_TYPE, "In", "spot", "on-demand")])
    )
    assert found.claims[0].requirements[CAPACITY_TYPE].only == "spot"


def test_a_node_is_not_turned_into_two() -> None:
    """About upstream's "won't make a single node into two: Can't remove without creating 2 candidates"."""
    types = _types(1.0, 9.0)
    pods = _run("a", "1", "1", labels={"a": "b"}, topologySpreadConstraints=[{
        "topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }])  # fmt: skip
    assert _judged(types, [node("a", types[1])], pods).why == "Can't remove without creating 2 candidates"


_FEW_TYPES = (
    "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got 14"
)
#: How many types are cheaper than the spot node; minValues; the event, and how many types are launched.
_SPOT_CASES: dict[str, tuple[int, int, str, int]] = {
    "spot to spot consolidation should consider the default for 15 types": (20, 0, "", 15),
    "cannot replace spot with spot if less than minimum InstanceTypes flexibility": (
        14, 0, _FEW_TYPES, 0
    ),
    "exactly the minimum": (15, 0, "", 15),
    "spot to spot consolidation should consider the max of default and minimum number of instance types from minValues": (
        20, 17, "", 17
    ),
    "no cheaper type": (0, 0, "Can't replace with a cheaper node", 0),
    "fewer cheaper types than minValues": (
        16, 17, f"Filtering by price: minValues requirement is not met for label(s) (label(s)=[{INSTANCE_TYPE}])", 0
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cheaper", "least", "told", "number"), _SPOT_CASES.values(), ids=_SPOT_CASES)
def test_spot_to_spot(cheaper: int, least: int, told: str, number: int) -> None:
    types = _types(*(0.1 + at / 100 for at in range(cheaper)), 5.0, *(6.0,) * 5, offered=(("spot", "test-zone-1"),))
    asked = [(INSTANCE_TYPE, "Exists", least)] if least else []
    found = _judged(
        types, [node("a", types[cheaper], kind="spot")], _run("a", "1"), pool(requirements=asked), spot_to_spot=True
    )
    assert found.why == told
    assert number == len(found.types)


def test_several_spot_nodes_need_no_fifteen_types() -> None:
    """About upstream's "can merge 3 nodes into 1" for spot: the number of types matters for a single candidate only."""
    types = _types(1.0, 2.0, 3.0, offered=(("spot", "test-zone-1"),))
    nodes = [node(name, types[2], kind="spot") for name in "ab"]
    found = _judged(types, nodes, [*_run("a", "1"), *_run("b", "1")], remove=2, spot_to_spot=True)
    assert (found.decision, list(found.types)) == ("replace", ["t0", "t1", "t2"])


#: Words of the pool, the node's type or None, labels that the node lacks, pods; the event that keeps the node.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "should not disrupt NodePools with consolidation disabled": (
        {"disruption": {"consolidateAfter": "Never"}}, True, {}, 'NodePool "default" has consolidation disabled'
    ),
    "should not disrupt nodes of WhenEmpty pools that are not empty": (
        {"disruption": {"consolidationPolicy": "WhenEmpty"}}, True, {},
        'NodePool "default" has consolidation policy WhenEmpty, but node is not empty',
    ),
    "should not disrupt nodes without an instance type that is offered": ({}, False, {}, 'Instance Type "gone" not found'),
    "should not disrupt nodes without a capacity type": (
        {}, True, {CAPACITY_TYPE: None}, f'Node does not have label "{CAPACITY_TYPE}"'
    ),
    "should not disrupt nodes without a zone": ({}, True, {ZONE: None}, f'Node does not have label "{ZONE}"'),
    "should not disrupt static NodePools": ({"replicas": 1}, True, {}, 'NodePool "default" is static'),
    "should disrupt others": ({}, True, {}, ""),
}  # fmt: skip


@pytest.mark.parametrize(("words", "known", "labels", "told"), _REFUSED.values(), ids=_REFUSED)
def test_nodes_that_are_no_candidates(words: Any, known: bool, labels: Any, told: str) -> None:
    held = pool(**dict(words))
    made = node("a", _CHEAP[2] if known else instance_type("gone"), labels=labels)
    cluster = scene(_CHEAP, [held], nodes=[made], pods=_run("a", "1"))
    assert Disruptor(cluster).refusal(candidate_of(cluster, cluster.nodes[0], held)) == told


#: Annotation, priority → what an eviction costs .
_COSTS: dict[str, tuple[str, int | None, float]] = {
    "should have a standard disruptionCost for a pod with no priority or disruptionCost specified": ("", None, 1.0),
    "should have a higher disruptionCost for a pod with a positive deletion disruptionCost": ("100", None, 1.0 + 100 / 2**27),
    "should have a lower disruptionCost for a pod with a negative deletion disruptionCost": ("-100", None, 1.0 - 100 / 2**27),
    "should have higher costs for higher deletion costs": ("101", None, 1.0 + 101 / 2**27),
    "should have a higher disruptionCost for a pod with a higher priority": ("", 1, 1.0 + 1 / 2**25),
    "should have a lower disruptionCost for a pod with a lower priority": ("", -1, 1.0 - 1 / 2**25),
    "a cost that is no number": ("much", None, 1.0),
    "the largest cost": ("2147483647", 1_000_000_000, 10.0),
    "the smallest cost": ("-2147483647", -2_147_483_648, -10.0),
}


@pytest.mark.parametrize(("annotation", "priority", "cost"), _COSTS.values(), ids=_COSTS)
def test_eviction_cost(annotation: str, priority: int | None, cost: float) -> None:
    meta = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": annotation}} if annotation else {}
    assert eviction_cost(pod(meta=meta, priority=priority)) == cost


#: Saved, disruption, cost of the pool, disruption of the pool → whether the move passes.
_SCORES: dict[str, tuple[float, float, float, float, bool]] = {
    "even share of savings and disruption": (1.0, 1.0, 10.0, 10.0, True),
    "half of the share": (0.5, 1.0, 10.0, 10.0, True),
    "just below half": (0.49, 1.0, 10.0, 10.0, False),
    "no savings": (0.0, 1.0, 10.0, 10.0, False),
    "negative savings": (-1.0, 1.0, 10.0, 10.0, False),
    "no disruption": (1.0, 0.0, 10.0, 10.0, True),
    "no cost of the pool": (1.0, 1.0, 0.0, 10.0, False),
    "no disruption of the pool": (1.0, 1.0, 10.0, 0.0, False),
}


@pytest.mark.parametrize(("saved", "cost", "price", "total", "passes"), _SCORES.values(), ids=_SCORES)
def test_balanced_scores(saved: float, cost: float, price: float, total: float, passes: bool) -> None:
    assert savings_pass(saved, cost, price, total) == passes


def _fleet(
    number: int, held: ProvisioningPool, row: int = 2, pods: int = 1, types: list[InstanceType] | None = None
) -> tuple[Disruptor, list[DisruptionCandidate]]:
    types = types or _CHEAP
    assert held.requirements[CAPACITY_TYPE].only == "on-demand"  # else the replacement must be spot, which is not offered
    nodes = [node(f"n{at}", types[row]) for at in range(number)]
    there = [one for at in range(number) for one in _run(f"n{at}", *["1"] * pods)]
    cluster = scene(types, [held], nodes=nodes, pods=there)
    candidates = [candidate_of(cluster, one, held) for one in cluster.nodes]
    totals = {held.name: (sum(one.price for one in candidates), sum(one.cost for one in candidates))}
    return Disruptor(cluster, totals), candidates


def _budgets(number: int) -> dict[str, dict[str, int]]:
    return {reason: {"default": number} for reason in ("Empty", "Underutilized")}


#: Nodes, pods on each, the budget; what happens, to how many nodes.
_COMMANDS: dict[str, tuple[int, int, int, str, str, int]] = {
    "should allow all empty nodes to be disrupted": (10, 0, 10, "delete", "Empty", 10),
    "should allow no empty nodes to be disrupted": (10, 0, 0, "", "", 0),
    "should only allow 3 empty nodes to be disrupted": (10, 0, 3, "delete", "Empty", 3),
    "can merge 3 nodes into 1": (3, 1, 10, "replace", "Underutilized", 3),
    "should only consider as many nodes as the budget": (5, 1, 3, "delete", "Underutilized", 3),
    "won't merge nodes without budget": (3, 1, 0, "", "", 0),
    "can replace one node": (1, 1, 10, "replace", "Underutilized", 1),
}


@pytest.mark.parametrize(("nodes", "pods", "budget", "decision", "reason", "number"), _COMMANDS.values(), ids=_COMMANDS)
def test_the_next_command(nodes: int, pods: int, budget: int, decision: str, reason: str, number: int) -> None:
    disruptor, candidates = _fleet(nodes, pool(requirements=_ON_DEMAND), pods=pods)
    found = disruptor.next_command(candidates, _budgets(budget))
    if found is None:
        assert decision == ""
    else:
        assert (found.decision, found.reason, len(found.candidates)) == (decision, reason, number)


def test_several_nodes_are_not_replaced_by_one_of_their_type() -> None:
    """About upstream's "won't merge 2 nodes into 1 of the same type"."""
    disruptor, candidates = _fleet(2, pool(requirements=_ON_DEMAND), row=0, pods=5)
    assert disruptor.next_command(candidates, _budgets(10)) is None


def test_a_balanced_pool_refuses_moves_that_save_too_little() -> None:
    """About balanced_integration_test.go: a replacement that saves a sixth of the cost for the whole disruption."""
    types = _types(2.5, 3.0)
    for policy, does in (("WhenEmptyOrUnderutilized", True), ("Balanced", False)):
        disruptor, candidates = _fleet(
            1, pool(requirements=_ON_DEMAND, disruption={"consolidationPolicy": policy}), row=1, types=types
        )
        assert (disruptor.next_command(candidates, _budgets(10)) is not None) == does


def test_closed_nodes_take_no_pods_of_candidates() -> None:
    """About upstream's "should not consider a node under consolidateAfter as a destination"."""
    nodes = [node("a", _CHEAP[0]), node("b", _CHEAP[0])]
    pods = [*_run("a", "1"), *_run("b", "1")]
    assert _judged(_CHEAP, nodes, pods).decision == "delete"
    assert _judged(_CHEAP, nodes, pods, closed=frozenset({"b"})).why == "Can't replace with a cheaper node"


@pytest.mark.parametrize(
    ("limit", "nodes", "allowed"), [("10%", 10, 1), ("10%", 11, 2), ("5%", 10, 1), ("0", 9, 0), ("7", 3, 7), ("100%", 4, 4)]
)
def test_a_percentage_of_a_budget_rounds_up(limit: str, nodes: int, allowed: int) -> None:
    assert DisruptionLimit(limit).allowed(nodes) == allowed


def test_new_nodes_for_pods_that_are_pending_anyway_are_told_apart() -> None:
    held = instance_type("small", cpu="4", memory="8Gi", pods="1")
    own, pods = node("n1", held), [pod("on-it", cpu="1", node="n1"), pod("a", cpu="1"), pod("b", cpu="1")]
    cluster = scene([held], [pool()], [own], pods)
    candidate = candidate_of(cluster, cluster.nodes[0], cluster.pools[0])
    found = Disruptor(cluster).compute([candidate])
    assert found.why == "Can't remove without creating 3 candidates, 2 of them for pods that are pending anyway"
    assert Disruptor(cluster).compute([candidate], briefly=True).decision == "no-op"
