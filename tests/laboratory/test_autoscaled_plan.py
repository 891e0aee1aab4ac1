"""``plan`` and ``consolidate`` with what the cluster's own autoscaler may add, and with the nodes that it keeps."""

from __future__ import annotations

from typing import Any

import pytest

import moorage
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.drain.kubectl_filters import DrainFlags
from moorage.laboratory.plan.autoscaled_types import AutoscaledTypes, of_cluster_autoscaler, of_karpenter
from moorage.laboratory.plan.consolidation import ConsolidationQuestion, consolidation_of, types_of_nodes
from moorage.laboratory.plan.node_types import NodeType, TypeLimit, limits_of, offers_of_types, types_of_offerings
from moorage.laboratory.plan.plan import PlanQuestion, plan_of
from moorage.report.answer import AnswerRequest
from moorage.report.plan import NodePlan
from moorage.simulator.autoscalers import KINDS
from moorage.simulator.autoscalers.instance_types import InstanceType, Offering, PriceList
from moorage.simulator.autoscalers.key_requirements import CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN, ZONE, of_labels
from moorage.simulator.simulate import Options

GI = 1 << 30
REQUEST = AnswerRequest(release="1.36", seeds=("0",), digest="", question={})


def a_type(name: str, cpu: int, price: float) -> InstanceType:
    offered = [(kind, zone) for kind in ("on-demand", "spot") for zone in ("a", "b")]
    offerings = tuple(
        Offering(of_labels({CAPACITY_TYPE: kind, ZONE: zone}), price * (0.4 if kind == "spot" else 1)) for kind, zone in offered
    )
    return InstanceType(
        name, of_labels({INSTANCE_TYPE: name}), {"cpu": cpu * 1000, "memory": cpu * 4 * GI, "pods": 50}, {}, offerings
    )


PRICES = PriceList((a_type("small", 4, 1.0), a_type("large", 16, 3.0)), "EUR", "2026-11-01", WELL_KNOWN)


def pool(name: str = "general", limits: dict[str, Any] | None = None, **template: Any) -> dict[str, Any]:
    asked = [{"key": CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}]
    spec = {"template": {"spec": {"requirements": asked, **template}}, **({"limits": limits} if limits else {})}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def pods(count: int, cpu: str = "3", node: str = "", notes: dict[str, str] | None = None) -> list[dict[str, Any]]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"web-{node}{at}", "uid": f"{node}{at}",
                                                          "ownerReferences": [owner], "annotations": notes or {}},
         "spec": {"containers": [container], **({"nodeName": node} if node else {})}} for at in range(count)
    ]  # fmt: skip


def a_node(name: str, **labels: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "50"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def karpenter_node(name: str, kind: str = "on-demand", **more: str) -> dict[str, Any]:
    return a_node(name, **{
        "karpenter.sh/nodepool": "general", INSTANCE_TYPE: "small", CAPACITY_TYPE: kind, ZONE: "a", **more,
        "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true", "kubernetes.io/hostname": name,
    })  # fmt: skip


def planned(objects: list[dict[str, Any]], known: AutoscaledTypes | None = None) -> NodePlan:
    given = read_given(objects, custom=KINDS)
    known = of_karpenter(given, PRICES) if known is None else known
    cluster = moorage.Cluster(given, Options())
    queue = tuple(one.pod.pod for one in cluster.simulation.scheduler.queue.ranked())
    return plan_of(cluster, REQUEST, PlanQuestion(queue, known.types, TimeBudget(20.0), limits=known.limits))


def consolidated(objects: list[dict[str, Any]], known: AutoscaledTypes) -> NodePlan:
    question = ConsolidationQuestion(
        TimeBudget(20.0), known.types, flags=DrainFlags(ignore_daemonsets=True), kept=known.kept, least=known.least,
        prices=known.prices,
    )  # fmt: skip
    return consolidation_of(moorage.Cluster(read_given(objects, custom=KINDS), Options()), REQUEST, question)


TOO_FEW = "NodePool general: its limit of {} is reached"
#: limits of the NodePool → what is bought, why no more
LIMITS = {
    "none": (None, {"general-large-on-demand": 1, "general-small-on-demand": 1}, ""),
    "of nodes": ({"nodes": "1"}, {"general-large-on-demand": 1}, TOO_FEW.format("nodes")),
    "of cpu": ({"cpu": "9"}, {"general-small-on-demand": 2}, TOO_FEW.format("cpu")),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "bought", "why"), LIMITS.values(), ids=LIMITS)
def test_a_plan_keeps_to_what_node_pools_may_launch(limits, bought, why):
    found = planned([pool(limits=limits), *pods(6)])
    assert found.nodes == bought
    assert ([text for left in found.left for text in left.why if text.startswith("NodePool")] or [""])[0] == why


def test_nodes_that_exist_count_for_the_limit():
    found = planned([pool(limits={"nodes": "2"}), karpenter_node("n"), *pods(1, "4", "n"), *pods(20)])
    assert sum(found.nodes.values()) == 1


def test_a_plan_has_the_taints_and_labels_of_the_pool():
    found = planned([pool(taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]), *pods(1)])
    assert [one.plugin for one in found.unplaceable[0].why] == ["TaintToleration"] * 2


def test_a_plan_counts_with_the_prices_that_overlays_leave():
    asked = [{"key": INSTANCE_TYPE, "operator": "In", "values": ["large"]}]
    overlay = {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "cheap"},
               "spec": {"requirements": asked, "price": "0.5"}}  # fmt: skip
    assert (planned([pool(), *pods(1)]).nodes, planned([pool(), overlay, *pods(1)]).nodes) == (
        {"general-small-on-demand": 1}, {"general-large-on-demand": 1},
    )  # fmt: skip


def test_limits_bind_together_and_one_by_one():
    types = (NodeType(name="a", max=2), NodeType(name="b"))
    assert limits_of(types) == (TypeLimit("a: its max of 2 is reached", 2, {"a": 1.0}),)


def test_an_existing_node_costs_what_its_offering_costs():
    nodes = [karpenter_node("cheap", "spot"), karpenter_node("dear"), karpenter_node("away", **{ZONE: "c"}), a_node("other")]
    given = read_given([pool(), *nodes], custom=KINDS)
    assert of_karpenter(given, PRICES).prices == {"cheap": 0.4, "dear": 1.0, "away": 0.4}
    from_file = list(offers_of_types(types_of_offerings(PRICES.types, WELL_KNOWN), given.nodes))
    known = types_of_nodes(given.nodes, from_file)
    assert {name: offer.type.name for name, offer in known.items()} == {"cheap": "small-spot", "dear": "small-on-demand"}


def test_karpenter_keeps_a_node_whose_pod_must_not_be_disrupted():
    nodes = [karpenter_node(name) for name in ("n1", "n2", "n3")]
    held = pods(1, "1", "n1", {"karpenter.sh/do-not-disrupt": "true"})
    objects = [pool(), *nodes, a_node("n4"), *held, *pods(1, "1", "n2"), *pods(1, "1", "n3")]
    known = of_karpenter(read_given(objects, custom=KINDS), PRICES)
    found = consolidated(objects, known)
    assert found.remove == ("n2", "n3")
    assert "do-not-disrupt" in found.blocked["n1"][0].text
    assert found.blocked["n4"][0].text == "Node isn't managed by karpenter"


def cluster_autoscaler(objects: list[dict[str, Any]], least: int, most: int) -> AutoscaledTypes:
    status = f"nodeGroups:\n- name: ng\n  health: {{minSize: {least}, maxSize: {most}}}\n"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-autoscaler-status"},
              "data": {"status": status}}  # fmt: skip
    kinds = ("configmaps.v1.",)
    return of_cluster_autoscaler(read_given([*objects, config], custom=kinds), None, 0.0)


def test_a_node_group_grows_to_its_maximum_and_keeps_its_minimum():
    nodes = [a_node(f"n{at}", **{"eks.amazonaws.com/nodegroup": "ng"}) for at in range(3)]
    waiting = [*nodes, *(pod for name in ("n0", "n1", "n2") for pod in pods(1, "4", name)), *pods(4)]
    assert planned(waiting, cluster_autoscaler(waiting, 1, 5)).nodes == {"ng": 2}
    idle = [*nodes, *pods(1, "1", "n0")]
    found = consolidated(idle, cluster_autoscaler(idle, 2, 5))
    assert len(found.remove) == 1
    assert {one.text for why in found.blocked.values() for one in why} == {"node group ng has its minimum of 2 nodes"}


def test_cluster_autoscaler_keeps_nodes_by_its_drain_rules():
    nodes = [a_node(f"n{at}", **{"eks.amazonaws.com/nodegroup": "ng"}) for at in range(2)]
    unsafe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    objects = [*nodes, a_node("alone"), *pods(1, "1", "n0", unsafe)]
    kept = cluster_autoscaler(objects, 0, 5).kept
    assert {name: why[0].rule for name, why in kept.items()} == {"n0": "NotSafeToEvictAnnotation", "alone": "NotAutoscaled"}
