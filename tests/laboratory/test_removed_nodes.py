"""While a transaction has removed nodes, decisions on the cached path equal those that ask every plugin about every node."""

from __future__ import annotations

import random

import pytest

import moorage
from moorage.cycle.cycle import Cycle
from moorage.cycle.pod_class import CachedClass
from moorage.cycle.removed_rows import GONE, moved_rows
from moorage.state.pod_info import PodInfo
from tests.laboratory.random_world import HOST, ZONE

SHAPES = ("plain", "large", "port", "tolerant", "selects", "prefers")


def node(name, pick):
    labels = {HOST: name, ZONE: pick("abc"), "disk": pick(["ssd", "hdd"])}
    taints = [{"key": "t", "effect": "NoSchedule"}] if pick([0, 0, 1]) else []
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": pick([2, 4]), "memory": "8Gi", "pods": 8}},
    }  # fmt: skip


def pod(name, shape, on=""):
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1500m" if shape == "large" else "200m"}}}
    spec = {"containers": [container], **({"nodeName": on} if on else {})}
    if shape == "port":
        container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    if shape == "tolerant":
        spec["tolerations"] = [{"operator": "Exists"}]
    if shape == "selects":
        spec["nodeSelector"] = {"disk": "ssd"}
    if shape == "prefers":
        term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["hdd"]}]}
        spec["affinity"] = {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": term}]}
        }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def compare(cluster):
    """Compare what is decided for a pod of each shape with what a cycle decides that keeps nothing."""
    scheduler = cluster.scheduler
    for shape in SHAPES:
        waiting = cluster.pod(f"new-{shape}")
        (told,) = cluster.schedule([waiting], dry_run=True)
        plain = Cycle(scheduler.cycle.seed, by_class=False).decide(
            scheduler.profiles["default-scheduler"], PodInfo(waiting), scheduler.snapshot
        )
        assert (told.node, told.feasible, told.evaluated) == (plain.node, plain.feasible, plain.evaluated), shape


def act(cluster, pick, serial):
    nodes = cluster.nodes["name"].tolist()
    placed = [row["name"] for row in cluster.pods if row["node"]]
    acts = {
        "remove": lambda: len(nodes) > 3 and cluster.remove(f"node/{pick(nodes)}"),
        "label": lambda: cluster.apply(f"node/{pick(nodes)} labels.disk={pick(['ssd', 'hdd'])}"),
        "taint": lambda: cluster.apply(f"node/{pick(nodes)} unschedulable={pick(['true', 'false'])}"),
        "place": lambda: cluster.add(pod(f"more-{serial}", pick(SHAPES), pick(nodes))),
        "evict": lambda: placed and cluster.evict(pick(placed), grace_s=0),
        "add": lambda: cluster.add(node(f"m-{serial}", pick)),
    }
    acts[pick(["remove"] * 4 + list(acts))]()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_decisions_without_nodes_equal_decisions_that_ask_about_every_node(seed, monkeypatch):
    chance = random.Random(seed)
    pick, used = chance.choice, []
    decide = CachedClass.decide_without

    def counting(*args):
        found = decide(*args)
        used.append(found is not None)
        return found

    monkeypatch.setattr(CachedClass, "decide_without", counting)
    placed = [pod(f"old-{at}", pick(SHAPES), f"n{chance.randrange(9)}") for at in range(16)]
    waiting = [pod(f"new-{shape}", shape) for shape in SHAPES]
    cluster = moorage.Cluster.from_objects([node(f"n{at}", pick) for at in range(9)], placed, waiting)
    compare(cluster)
    for serial in range(12):
        with cluster.transaction():
            for step in range(pick([1, 2, 4])):
                with cluster.transaction() as inner:
                    act(cluster, pick, f"{serial}-{step}")
                    compare(cluster)
                    if pick([True, True, False]):
                        inner.commit()
            compare(cluster)
        if pick([True, False]):
            compare(cluster)
        if not pick(range(4)):
            act(cluster, pick, f"{serial}-kept")
            compare(cluster)
    assert sum(used) > len(used) // 4, "the path without nodes decides too rarely for this test to mean anything"


def test_rows_are_followed_through_several_removals():
    # rows 0-4; the node of row 4 takes row 1, the one of row 3 takes row 4's place in row 1, the last one just goes
    removals = ((7, 1, 4), (8, 1, 3), (9, 2, 2))
    whole = moved_rows(removals, 7)
    assert whole.now == {1: GONE, 4: GONE, 2: GONE, 3: 1}
    assert whole.present([1], 5) == {1: GONE, 4: GONE, 2: GONE, 3: 1}
    assert moved_rows(removals, 8).now == {1: GONE, 3: 1, 2: GONE}
    assert moved_rows(removals, 6) is None


def test_a_node_that_was_updated_before_it_was_removed_is_judged_when_it_is_back():
    ssd = [node(f"n{at}", lambda values: values[0]) for at in range(3)]
    cluster = moorage.Cluster.from_objects(ssd, [pod(f"new-{shape}", shape) for shape in SHAPES])
    compare(cluster)
    cluster.apply("node/n1 labels.disk=hdd")
    with cluster.transaction():
        cluster.remove("node/n1")
        compare(cluster)
    compare(cluster)
    assert cluster.can_schedule("new-selects").nodes == ["n0", "n2"]
