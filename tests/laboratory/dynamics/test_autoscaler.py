"""Test the autoscaler: expanders by hand-worked scores, estimates, scale-up, scale-down, and consolidation."""

from __future__ import annotations

from math import tanh

import pytest

import moorage
from moorage.errors import InputError
from moorage.laboratory.dynamics import (
    HOUR,
    AtTimes,
    ClusterAutoscaler,
    Consolidation,
    Diurnal,
    Exponential,
    NodePool,
    PodArrivals,
    StateRecorder,
    Unremovable,
)
from moorage.simulator.autoscalers.cluster_autoscaler.flags import EXPANDERS, ExpansionOption
from moorage.testing.builders import a_node, a_pod


def node(name="node", cpu="4", memory="16Gi", labels=None, **spec):
    return a_node(name, labels, allocatable={"cpu": cpu, "memory": memory, "pods": 110}, **spec)


def pod(name="p", cpu="1", memory="1Gi", owner="ReplicaSet", metadata=None, **spec):
    references = [{"apiVersion": "apps/v1", "kind": owner, "name": "set", "uid": "u", "controller": True}] if owner else []
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    metadata = {"ownerReferences": references, **(metadata or {})}
    return a_pod(name, {"app": name[0]}, metadata=metadata, containers=[container], **spec).pod


SMALL = NodePool(name="small", node=node(cpu="2", memory="8Gi"), price=0.1, max=20, provision_s=60.0)
LARGE = NodePool(name="large", node=node(cpu="8", memory="32Gi"), price=0.3, max=20, provision_s=60.0)


def scaled(*objects, pools=(SMALL, LARGE), until=HOUR, process=None, **kwargs):
    sim = moorage.Simulation.from_objects(*objects, seed=1)
    if process is not None:
        sim.use(process)
    scaler = sim.use(ClusterAutoscaler(pools, **kwargs))
    sim.run(until=until)
    return sim, scaler


# -- expanders --------------------------------------------------------------------------------------------------------


def option(pool, cpu, memory, price, count, *pods):
    infos = tuple(
        a_pod(f"p{at}", containers=[{"resources": {"requests": {"cpu": c, "memory": m}}}]) for at, (c, m) in enumerate(pods)
    )
    return ExpansionOption(pool, node(pool, cpu, memory), price, count, infos)


A = option("a", "2", "8Gi", 0.1, 1, ("1", "4Gi"))  # wastes 0.5 + 0.5
B = option("b", "8", "32Gi", 0.3, 1, ("1", "4Gi"), ("5", "20Gi"))  # wastes 0.25 + 0.25
BY_EXPANDER = {"least-waste": ["b"], "most-pods": ["b"], "random": ["a", "b"]}


@pytest.mark.parametrize(("expander", "best"), BY_EXPANDER.items())
def test_expanders_choose(expander, best):
    assert [one.pool for one in EXPANDERS[expander]([A, B], 5)] == best
    assert [one.pool for one in EXPANDERS[expander]([A], 5)] == ["a"]


def test_the_price_expander_weighs_price_and_size():
    unit = min(0.1 / (2 + 0.13 * 8), 0.3 / (8 + 0.13 * 32))
    stable = unit * (0.5 + 0.13 * 500 / 1024)

    def score(one, cpu, worth, preferred):
        paid = (one.price * one.count + stable) / (unit * worth + stable)
        unfitness = max(preferred / cpu, cpu / preferred)
        return ((unfitness - 1) * (1 - tanh((one.count - 1) / 15)) + 1) * paid

    for nodes, preferred in ((2, 1), (5, 2), (20, 4), (60, 8), (150, 16), (1000, 32)):
        scores = {"a": score(A, 2, 1 + 0.13 * 4, preferred), "b": score(B, 8, 6 + 0.13 * 24, preferred)}
        assert [one.pool for one in EXPANDERS["price"]([A, B], nodes)] == [min(scores, key=scores.get)], nodes


# -- scale-up ---------------------------------------------------------------------------------------------------------


def test_pods_that_do_not_fit_get_nodes_after_the_delay():
    sim, scaler = scaled([pod(f"p{at}") for at in range(5)], pools=(SMALL,), until=200.0)
    assert [(one.time_s, one.action, len(one.nodes)) for one in scaler.events] == [
        (10.0, "up", 3), (70.0, "ready", 1), (70.0, "ready", 1), (70.0, "ready", 1),
    ]  # fmt: skip
    assert sim.totals().pending == 0
    assert 70.0 <= sim.totals().wait_p99_s <= 80.0  # the pods may be in backoff when the nodes come
    assert scaler.sizes() == {"small": 3}
    assert scaler.cost() == pytest.approx(0.1 * 3 * 130 / 3600)


def test_nodes_on_order_count_and_limits_hold():
    sim, scaler = scaled([pod(f"p{at}") for at in range(9)], pools=(NodePool(name="s", node=SMALL.node, max=2),))
    assert scaler.sizes() == {"s": 2}
    assert sim.totals().pending == 5
    _, fewest = scaled([], pools=(NodePool(name="s", node=SMALL.node, min=3),), flags=["--scale-down-unneeded-time=1m"])
    assert fewest.sizes() == {"s": 3}


def test_no_nodes_are_added_for_pods_that_they_would_not_help():
    gated = pod("g", schedulingGates=[{"name": "x"}])
    others = [pod("big", "99"), pod("far", nodeSelector={"zone": "b"}), pod("low", priority=-11), gated]
    sim, scaler = scaled(others)
    assert scaler.events == []
    assert sim.totals().pending == 4


def test_the_least_waste_pool_is_chosen_and_like_nodes_belong_to_the_pool():
    old = node("pool-1", "8", "32Gi", {"karpenter.sh/nodepool": "big"})
    pools = (SMALL, NodePool(name="big", like="pool-1", max=2, provision_s=60.0))
    sim, scaler = scaled([old], [pod(f"p{at}", "7", "26Gi") for at in range(3)], pools=pools)
    assert scaler.sizes() == {"small": 0, "big": 2}
    assert sim.totals().pending == 1


def test_constraints_between_pods_are_respected():
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "p"}}, "topologyKey": "kubernetes.io/hostname"}
    ]}}  # fmt: skip
    host = node("old", "8", labels={"kubernetes.io/hostname": "old"})
    sim, scaler = scaled([host], [pod(f"p{at}", "500m", affinity=apart) for at in range(4)], pools=(SMALL,))
    assert scaler.sizes() == {"small": 3}
    assert sim.totals().pending == 0


# -- scale-down -------------------------------------------------------------------------------------------------------

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
HOST = {"kubernetes.io/hostname": "n1"}
KEPT = {  # what is on the idle node, and whether the node is removed
    "nothing": ([], True),
    "a pod that fits elsewhere": ([pod("p", nodeName="pool-1")], True),
    "a pod without a controller": ([pod("p", owner="", nodeName="pool-1")], False),
    "one that says that it may go": (
        [pod("p", owner="", metadata={"annotations": {SAFE: "true"}}, nodeName="pool-1")],
        True,
    ),
    "one that says that it may not": (
        [pod("p", metadata={"annotations": {SAFE: "false"}}, nodeName="pool-1")], False,
    ),
    "a pod with local data": ([pod("p", volumes=[{"name": "v", "emptyDir": {}}], nodeName="pool-1")], False),
    "a pod that fits nowhere else": ([pod("p", nodeSelector=HOST, nodeName="pool-1")], False),
    "a daemon": ([pod("p", owner="DaemonSet", nodeName="pool-1")], True),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "goes"), KEPT.values(), ids=KEPT)
def test_an_idle_node_goes_if_its_pods_may_and_can(pods, goes):
    pool = NodePool(name="old", like="pool-1")
    idle = node("pool-1", labels={**HOST, "karpenter.sh/nodepool": "old"})
    sim, scaler = scaled([idle, node("fixed")], pods, pools=(pool,))
    assert scaler.sizes() == {"old": 0 if goes else 1}
    assert {one["name"] for one in sim.nodes} == ({"fixed"} if goes else {"fixed", "pool-1"})
    assert sim.totals().pending == 0
    if goes:
        assert scaler.events[-1].time_s == (625.0 if not pods or "DaemonSet" in str(pods) else 650.0)


def test_a_busy_node_stays_and_a_budget_keeps_its_pods():
    pool, labels = NodePool(name="old", like="pool-1"), {"karpenter.sh/nodepool": "old"}
    _, scaler = scaled([node("pool-1", labels=labels), node("f")], pod("p", "2", nodeName="pool-1"), pools=(pool,))
    assert scaler.sizes() == {"old": 0}  # half of its cpu is requested: at the threshold a node may go
    _, scaler = scaled([node("pool-1", labels=labels), node("f")], pod("p", "2100m", nodeName="pool-1"), pools=(pool,))
    assert scaler.sizes() == {"old": 1}
    assert scaler.why_kept("pool-1") == Unremovable(
        "NotUnderutilized", "cpu requested (52.5% of allocatable) is above the scale-down utilization threshold"
    )
    spec = {"selector": {"matchLabels": {"app": "p"}}, "minAvailable": 1}
    named = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "default"}}
    budget = {**named, "spec": spec, "status": {"disruptionsAllowed": 0}}
    _, scaler = scaled([node("pool-1", labels=labels), node("f")], pod("p", nodeName="pool-1"), budget, pools=(pool,))
    assert scaler.sizes() == {"old": 1}


WHY = {  # what is on the node, the pool's minimum, the reason and the pod
    "a pod without a controller": ([pod("p", owner="", nodeName="pool-1")], 0, "BlockedByPod: NotReplicated", "default/p"),
    "a pod with local data": (
        [pod("p", volumes=[{"name": "v", "emptyDir": {}}], nodeName="pool-1")], 0,
        "BlockedByPod: LocalStorageRequested", "default/p",
    ),
    "a pod that fits nowhere else": ([pod("p", nodeSelector=HOST, nodeName="pool-1")], 0, "NoPlaceToMovePods", "default/p"),
    "the minimum": ([], 1, "NodeGroupMinSizeReached", ""),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "least", "reason", "name"), WHY.values(), ids=WHY)
def test_a_node_that_stays_has_a_reason(pods, least, reason, name):
    pool = NodePool(name="old", like="pool-1", min=least)
    idle = node("pool-1", labels={**HOST, "karpenter.sh/nodepool": "old"})
    _, scaler = scaled([idle, node("fixed")], pods, pools=(pool,))
    found = scaler.why_kept("pool-1")
    assert (found.reason, found.pod) == (reason, name)
    assert found.text
    assert scaler.why_kept("fixed").reason == "NotAutoscaled"
    with pytest.raises(InputError, match="no node has the name"):
        scaler.why_kept("nowhere")


@pytest.mark.slow
def test_a_cluster_follows_the_day():
    arrivals = PodArrivals(Diurnal(30, amplitude=0.9), pod("job", "1", owner="Job"), lifetime=Exponential(1800.0))
    sim = moorage.Simulation.from_objects(node("base", "4"), seed=3)
    sim.use(arrivals)
    scaler = sim.use(ClusterAutoscaler([SMALL, LARGE], expander="price"))
    recorder = sim.use(StateRecorder(600.0))
    totals = sim.run(until=24 * HOUR)
    nodes = recorder.columns()["nodes"]
    assert nodes[6 * 13 : 6 * 16].mean() > 2 * nodes[6 * 2 : 6 * 5].mean()
    assert totals.wait_p50_s < 130.0
    added, removed = (sum(len(one.nodes) for one in scaler.events if one.action == kind) for kind in ("ready", "down"))
    assert added - removed == sum(scaler.sizes().values())
    assert removed > 3


def test_consolidation_removes_nodes_whose_pods_fit_elsewhere():
    sim = moorage.Simulation.from_objects(
        [node(f"n{at}") for at in range(4)],
        [pod(f"p{at}", "500m", nodeName=f"n{at}") for at in range(4)],
        pod("own", owner="", nodeName="n0"),
    )
    tidy = sim.use(Consolidation(600.0))
    sim.run(until=HOUR)
    assert len(sim.nodes) == 1
    assert "n0" not in tidy.removed
    assert len(tidy.removed) == 3
    assert {one["node"] for one in sim.pods} == {"n0"}


WRONG = {
    "no pools": lambda: scaled([], pools=()),
    "two of one name": lambda: scaled([], pools=(SMALL, SMALL)),
    "an unknown expander": lambda: ClusterAutoscaler([SMALL], expander="luck"),
    "a minimum above the maximum": lambda: scaled([], pools=(NodePool(name="s", node=SMALL.node, min=3, max=2),)),
    "no such node": lambda: scaled([], pools=(NodePool(name="s", like="x"),)),
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_an_idle_autoscaler_lets_a_batch_pass():
    sim, scaler = scaled(
        [], pools=(LARGE,), process=PodArrivals(AtTimes([60.0]), pod("p", "1"), lifetime=600.0, batch=8), until=3 * HOUR
    )
    assert [one.action for one in scaler.events] == ["up", "ready", "down"]
    assert (sim.totals().finished, len(sim.nodes)) == (8, 0)
