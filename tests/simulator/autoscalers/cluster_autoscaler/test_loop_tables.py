"""Tables of cluster-autoscaler's own tests of its estimator, of balancing and of the budgets of deletion, at 87d9c45c02^."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.core import Pod
from moorage.simulator.autoscalers.cluster_autoscaler.flags import AutoscalerFlags
from moorage.simulator.autoscalers.cluster_autoscaler.loop import NodeRemoval, cropped
from moorage.simulator.autoscalers.cluster_autoscaler.packing import PackingSnapshot
from moorage.simulator.autoscalers.cluster_autoscaler.scale_up import GroupSize, NodeTemplate, balanced, estimate, pod_groups
from moorage.simulator.simulate import Options, prepare
from moorage.testing.builders import a_node, a_pod

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def pods(count: int, cpu: int, memory: int, name: str = "estimatee", port: int = 0, **spec: Any) -> list[Pod]:
    container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": f"{cpu}m", "memory": str(memory)}}}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    return [a_pod(f"{name}-{at}", {"app": "estimatee"}, containers=[container], **spec).pod for at in range(count)]


def spread(skew: int, key: str, least: int) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "estimatee"}}
    rule = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [{**rule, "minDomains": least}]}


def node(cpu: int, memory: int, name: str, zone: str) -> Any:
    return a_node(name, {HOST: name, ZONE: zone}, allocatable={"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": 10})


# estimator/binpacking_estimator_test.go, TestBinpackingEstimate: cpu, memory, groups, limit; nodes, pods
ESTIMATES = {
    "simple resource-based binpacking": (1000, 2000, [pods(10, 350, 1000)], None, 5, 10),
    "pods-per-node bound binpacking": (10000, 20000, [pods(20, 10, 100)], None, 2, 20),
    "hostport conflict forces pod-per-node": (1000, 5000, [pods(8, 200, 1000, port=5555)], None, 8, 8),
    "limiter cuts binpacking": (1000, 5000, [pods(20, 500, 1000)], 5, 5, 10),
    "decreasing ordered pods are processed first": (
        1000, 5000, [pods(10, 50, 1000, "small"), pods(10, 500, 1000, "large")], 5, 5, 10
    ),
    "hostname topology spreading with maxSkew=2 forces 2 pods/node": (
        1000, 5000, [pods(8, 200, 200, **spread(2, HOST, 1))], None, 4, 8
    ),
    "zonal topology spreading with maxSkew=2 only allows 2 pods to schedule": (
        1000, 5000, [pods(8, 20, 100, **spread(2, ZONE, 1))], None, 1, 2
    ),
    "hostname topology spreading with maxSkew=1 with a large scaleup handles scheduling pods retroactively": (
        1000, 5000, [pods(12, 20, 100, **spread(1, HOST, 3))], None, 3, 12
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cpu", "memory", "groups", "most", "count", "placed"), ESTIMATES.values(), ids=ESTIMATES)
def test_estimates(cpu, memory, groups, most, count, placed):
    scratch, _ = prepare(Options())
    scratch.load([node(100, 100, "oldnode", "zone-jupiter")])
    packed = PackingSnapshot(scratch)
    found, held = estimate(packed, groups, NodeTemplate(node(cpu, memory, "template", "zone-mars")), most)
    assert (found, len(held)) == (count, placed)
    assert packed.order == ["oldnode"]
    if len(groups) == 2:
        assert all(pod.name.startswith("large") for pod in held)


# processors/nodegroupset/balancing_processor_test.go: (size, maximum) of groups, nodes to add, nodes that each gets
FOUR = [(1, 10), (3, 10), (5, 10), (5, 10)]
SMALL, TWO, LAST = (1, 1), (1, 3), (3, 10)
BALANCES = {
    "a single group, one node": ([(1, 10)], 1, [1]),
    "a single group, several nodes": ([(1, 10)], 4, [4]),
    "one node": (FOUR, 1, [1, 0, 0, 0]),
    "several nodes to one group": (FOUR, 2, [2, 0, 0, 0]),
    "groups of different sizes, divisible": (FOUR, 4, [3, 1, 0, 0]),
    "all groups, divisible": (FOUR, 10, [5, 3, 1, 1]),
    "one group at its maximum": ([SMALL], 1, [0]),
    "the smallest at its maximum": ([SMALL, TWO], 1, [0, 1]),
    "too many nodes": ([SMALL, TWO], 5, [0, 2]),
    "the first is full before the next": ([TWO, (3, 10)], 4, [2, 2]),
}


@pytest.mark.parametrize(("sizes", "count", "more"), BALANCES.values(), ids=BALANCES)
def test_balances(sizes, count, more):
    template = NodeTemplate(a_node("t"))
    groups = [GroupSize(f"ng{at}", 1, most, size, template) for at, (size, most) in enumerate(sizes)]
    found = balanced(groups, count)
    assert [found.get(group.name, 0) for group in groups] == more


def removals(count: int, group: str = "test-ng") -> list[NodeRemoval]:
    return [NodeRemoval(f"{group}/{at}") for at in range(count)]


FIVE_DRAINS = AutoscalerFlags(max_drain_parallelism=5)

# core/scaledown/budgets/budgets_test.go, TestCropNodesToBudgets, without atomic groups: empty, drains, in progress of both;
# how many of each may go
BUDGETS = {
    "no nodes": ([], [], 0, 0, 0, 0),
    "empty nodes within max limit": (removals(10), [], 0, 0, 10, 0),
    "empty nodes exceeding max limit": (removals(11), [], 0, 0, 10, 0),
    "empty nodes with deletions in progress, within budget": (removals(8), [], 1, 1, 8, 0),
    "empty nodes with deletions in progress, exceeding budget": (removals(10), [], 1, 1, 8, 0),
    "empty nodes with deletions in progress, 0 budget left": (removals(10), [], 5, 5, 0, 0),
    "empty nodes with deletions in progress, budget exceeded": (removals(10), [], 50, 50, 0, 0),
    "drain nodes within max limit": ([], removals(5), 0, 0, 0, 5),
    "multiple drain node groups": ([], [*removals(5), *removals(5, "test-ng-2")], 0, 0, 0, 5),
    "drain nodes exceeding max limit": ([], removals(6), 0, 0, 0, 5),
}


@pytest.mark.parametrize(("empty", "drains", "going_empty", "going", "first", "second"), BUDGETS.values(), ids=BUDGETS)
def test_crops_nodes_to_budgets(empty, drains, going_empty, going, first, second):
    group_of = {one.name: one.name.partition("/")[0] for one in (*empty, *drains)}
    found = cropped(empty, drains, group_of, FIVE_DRAINS, going_empty, going)
    assert ([one.name for one in found[0]], [one.name for one in found[1]]) == (
        [one.name for one in empty[:first]], [one.name for one in drains[:second]],
    )  # fmt: skip


def owned(name: str, owner: str, cpu: str = "1", **labels: str) -> Pod:
    references = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}] if owner else []
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return a_pod(name, labels, metadata={"ownerReferences": references}, containers=[container]).pod


# core/scaleup/equivalence/groups_test.go: pods, the sizes of their groups
GROUPS = {
    "of one controller": ([owned("a", "rs"), owned("b", "rs")], [2]),
    "of two controllers": ([owned("a", "rs"), owned("b", "rs2")], [1, 1]),
    "with other requests": ([owned("a", "rs"), owned("b", "rs", "2")], [1, 1]),
    "with other labels": ([owned("a", "rs"), owned("b", "rs", x="y")], [1, 1]),
    "without a controller": ([owned("a", ""), owned("b", "")], [1, 1]),
    "too many that differ": (
        [*(owned(f"p{at}", "rs", str(at + 1)) for at in range(11)), owned("q", "rs", "11"), owned("r", "rs", "1")],
        [2, *[1] * 11],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "sizes"), GROUPS.values(), ids=GROUPS)
def test_groups_of_equal_pods(given, sizes):
    assert [len(group) for group in pod_groups(given)] == sizes
