"""Published cases of other tools, with the answers that their pages and tests give.

cluster-capacity: README.md and pkg/framework/simulator_test.go. Disruption budgets: the example of the Kubernetes documentation
on disruptions, and budgets that block every drain. Cluster autoscaler: estimator/binpacking_estimator_test.go.
"""

from __future__ import annotations

import pytest

import moorage


def node(name, cpu, memory="4Gi", pods="110", **labels):
    labels = {"kubernetes.io/hostname": name, **labels}
    status = {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def spec(cpu, memory="100Mi", **more):
    return {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}], **more}


def template(cpu, memory="100Mi", **more):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "small-pod"}, "spec": spec(cpu, memory, **more)}


def workload(kind, name, replicas, of):
    labels = {"app": name}
    selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
    inner = {"metadata": {"labels": labels}, "spec": of}
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    return {
        "apiVersion": version, "kind": kind, "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": inner},
    }  # fmt: skip


def budget(name, **fields):
    selector = {"selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {**fields, **selector},
    }


# -- cluster-capacity ----------------------------------------------------------------------------------------------------

FOUR = [node(f"kube-node-{number}", "2", "4G") for number in range(1, 5)]


def test_52_instances_fit_on_four_nodes():
    found = moorage.Cluster.from_objects(*FOUR).capacity(template("150m"))
    assert (found.instances, found.fail_type, found.upper_bound) == (52, "Unschedulable", 52)
    assert set(found.per_node.values()) == {13}
    assert "4 Insufficient cpu" in found.message


def test_46_instances_fit_beside_six_pods_of_a_replication_controller():
    others = workload("ReplicationController", "nginx", 6, spec("150m"))
    found = moorage.Cluster.from_objects(*FOUR, others).capacity(template("150m"))
    assert found.instances == 46
    assert sorted(found.per_node.values()) == [11, 11, 12, 12]


@pytest.mark.parametrize(("limit", "fail_type", "instances"), [(6, "LimitReached", 6), (0, "Unschedulable", 9)])
def test_the_prediction_ends_as_that_of_cluster_capacity(limit, fail_type, instances):
    nodes = [node("test-node-1", "300m", "1e9", "3"), node("test-node-2", "400m", "2e9", "3"),
             node("test-node-3", "1200m", "1e9", "3")]  # fmt: skip
    found = moorage.Cluster.from_objects(*nodes).capacity(template("100m", "5e6"), limit=limit)
    assert (found.fail_type, found.instances) == (fail_type, instances)


# -- disruptions -----------------------------------------------------------------------------------------------------------


def test_the_example_of_the_documentation_ends_in_a_deadlock():
    """Of three replicas two must be available: node-1 drains, then node-2 waits for a pod that finds no room."""
    nodes = [node("node-1", "2"), node("node-2", "3"), node("node-3", "1")]
    cluster = moorage.Cluster.from_objects(
        *nodes,
        workload("ReplicaSet", "app", 3, spec("1")),
        workload("ReplicaSet", "x", 1, spec("1")),
        budget("app", minAvailable=2),
    )
    names = [pod.key for pod in cluster.input().pods if pod.name.startswith("app-")]
    (other,) = (pod.key for pod in cluster.input().pods if pod.name.startswith("x-"))
    for name, on in [*zip(names, ["node-1", "node-2", "node-3"], strict=True), (other, "node-1")]:
        cluster.bind(name, on)
    assert cluster.drain("node-1").possible
    cluster.apply("node/node-1 unschedulable=true")
    cluster.evict(names[0], other)
    cluster.run()
    found = cluster.drain("node-2")
    assert not found.possible
    assert found.deadlock
    apps = [one for one in found.pods if one.pod.startswith("default/app-")]
    assert sorted(one.outcome for one in apps) == ["never", "pending"]
    assert [one.budget for one in apps if one.outcome == "never"] == ["default/app"]


TRAPS = {
    "one replica that must be available": (1, {"minAvailable": 1}),
    "as many as there are": (3, {"minAvailable": 3}),
    "all of them": (2, {"minAvailable": "100%"}),
    "none may be unavailable": (3, {"maxUnavailable": 0}),
}


@pytest.mark.parametrize(("replicas", "rule"), TRAPS.values(), ids=TRAPS)
def test_a_budget_that_never_allows_a_disruption_blocks_the_drain(replicas, rule):
    nodes = [node("node-1", "8"), node("node-2", "8")]
    cluster = moorage.Cluster.from_objects(*nodes, workload("ReplicaSet", "app", replicas, spec("1")), budget("app", **rule))
    for pod in cluster.input().pods:
        cluster.bind(pod.key, "node-1")
    found = cluster.drain("node-1")
    assert not found.possible
    assert {one.outcome for one in found.pods} == {"never"}
    assert {one.budget for one in found.pods} == {"default/app"}
    assert cluster.drain("node-1", disable_eviction=True).possible


# -- cluster autoscaler ----------------------------------------------------------------------------------------------------

PACKINGS = {
    "resources": (10, {"cpu": "350m", "memory": "1000M"}, {"cpu": "1000m", "memory": "5000M"}, {}, 5),
    "pods of a node": (20, {"cpu": "20m", "memory": "100M"}, {"cpu": "1000m", "memory": "5000M", "pods": "10"}, {}, 2),
    "host ports": (8, {"cpu": "200m", "memory": "1000M"}, {"cpu": "1000m", "memory": "5000M"}, {"port": 5555}, 8),
}


@pytest.mark.parametrize(("count", "asks", "has", "more", "nodes"), PACKINGS.values(), ids=PACKINGS)
def test_as_many_nodes_as_the_estimator_of_the_cluster_autoscaler(count, asks, has, more, nodes):
    of = spec(asks["cpu"], asks["memory"])
    if more:
        of["containers"][0]["ports"] = [{"containerPort": more["port"], "hostPort": more["port"]}]
    new = node("new", has["cpu"], has["memory"], has.get("pods", "110"))
    cluster = moorage.Cluster.from_objects(workload("ReplicaSet", "app", count, of))
    found = cluster.plan([{"name": "new", "price": 1, "node": new}])
    assert found.nodes == {"new": nodes}
    assert found.lower_bound <= nodes
