"""Test nodes that fail and come back: taints, evictions after tolerations, replacements, and deleted nodes."""

from __future__ import annotations

import pytest

import moorage
from moorage.laboratory.dynamics.failing_nodes import FailingNodes
from moorage.laboratory.dynamics.pod_arrivals import DAY, HOUR, Exponential, PodArrivals, Poisson
from moorage.laboratory.dynamics.state_recorder import StateRecorder
from moorage.testing.builders import a_node, a_pod


def node(name):
    return a_node(name, allocatable={"cpu": "4", "memory": "8Gi", "pods": 110})


def pod(name, owner="ReplicaSet", **spec):
    references = [{"apiVersion": "apps/v1", "kind": owner, "name": "set", "uid": "u", "controller": True}]
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    return a_pod(name, metadata={"ownerReferences": references}, containers=[container], **spec).pod


def first_only(down_s, mode="unreachable"):
    """Let n1 fail once, after 1000 s."""
    return FailingNodes(1000.0, down_s, mode=mode, where=lambda one: one.name == "n1")


def history(process, *pods, until=1990.0):
    """Return the times at which the set of (pod, node) and the taints of n1 changed."""
    sim = moorage.Simulation.from_objects(node("n1"), node("n2"), *pods)
    sim.use(process)
    seen = []
    while (time_s := sim.step()) is not None and time_s <= until:
        taints = [t.key for n in sim.objects() if n.metadata.name == "n1" for t in n.spec.taints if t.effect == "NoExecute"]
        state = (sorted((one["name"].split("-")[0], one["node"]) for one in sim.pods), len(taints), len(sim.nodes))
        if not seen or seen[-1][1:] != state:
            seen.append((time_s, *state))
    return seen


def test_an_unreachable_node_is_tainted_and_its_pods_are_replaced_after_their_tolerations():
    seen = history(first_only(600.0), pod("web-1", nodeName="n1"))
    assert seen == [
        (1000.0, [("web", "n1")], 0, 2),
        (1050.0, [("web", "n1")], 1, 2),  # silent for 50 s
        (1350.0, [("web", "n2")], 1, 2),  # tolerated for 300 s
        (1600.0, [("web", "n2")], 0, 2),
    ]


def test_a_node_that_is_back_in_time_keeps_its_pods():
    assert history(first_only(300.0), pod("web-1", nodeName="n1")) == [
        (1000.0, [("web", "n1")], 0, 2),
        (1050.0, [("web", "n1")], 1, 2),
        (1300.0, [("web", "n1")], 0, 2),
    ]
    assert history(first_only(40.0), pod("web-1", nodeName="n1")) == [(1000.0, [("web", "n1")], 0, 2)]


def test_tolerations_and_owners_decide_who_leaves():
    quick = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}
    pods = [
        pod("quick-1", nodeName="n1", tolerations=[quick]), pod("db-0", "StatefulSet", nodeName="n1"),
        pod("agent-1", "DaemonSet", nodeName="n1"),
    ]  # fmt: skip
    last = history(first_only(600.0), *pods)
    assert (1060.0, [("agent", "n1"), ("db", "n1"), ("quick", "n2")], 1, 2) in last
    assert last[-1] == (1600.0, [("agent", "n1"), ("db", "n1"), ("quick", "n2")], 0, 2)


def test_a_deleted_node_takes_its_pods_and_comes_back():
    seen = history(first_only(600.0, "deleted"), pod("web-1", nodeName="n1"))
    assert [(time_s, pods, nodes) for time_s, pods, _, nodes in seen] == [
        (1000.0, [("web", "n1")], 1),
        (1040.0, [("web", "n2")], 1),
        (1600.0, [("web", "n2")], 2),
    ]


@pytest.mark.slow
def test_many_failures_cost_the_expected_share_of_the_nodes_and_lose_no_pod():
    sim = moorage.Simulation.from_objects([node(f"n{at}") for at in range(20)], seed=4)
    failing = sim.use(FailingNodes(Exponential(20 * HOUR), Exponential(2 * HOUR)))
    sim.use(PodArrivals(Poisson(15), pod("job", "Job"), lifetime=Exponential(3000.0), until_s=4 * DAY))
    recorder = sim.use(StateRecorder(600.0))
    totals = sim.run(until=5 * DAY)
    assert totals.deleted > 0
    assert totals.arrived == totals.finished + totals.deleted
    assert totals.pending == 0
    expected = 20 * 20 / 22 + 20 * 2 / 22 * (50 / 7200)
    assert abs(recorder.mean("nodes", since_s=DAY) - expected) < 1.5
    assert abs(failing.count - 20 * 120 / 22) < 40
