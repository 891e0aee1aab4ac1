"""A cluster that a program reads, looks at and schedules."""

from __future__ import annotations

import json

import pytest

import moorage
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.cluster_objects import key_of
from moorage.laboratory.edit import object_edits
from moorage.testing.builders import a_node, a_pod

NODES = [
    a_node(f"n{at}", {"disk": "ssd" if at else "hdd"}, allocatable={"cpu": "2", "memory": "4Gi", "pods": 10}) for at in range(2)
]
HELD = """
apiVersion: v1
kind: Pod
metadata: {name: held}
spec: {nodeName: n0, containers: [{name: c, resources: {requests: {cpu: 1500m}}}]}
"""


def asking(name, cpu, **spec):
    return a_pod(name, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec).pod


@pytest.fixture
def cluster():
    return moorage.Cluster.from_objects(NODES, HELD, asking("small", "400m"), asking("large", "3"))


def test_reads_what_simulate_reads():
    cluster = moorage.Cluster.read("examples/demo")
    _, run = moorage.simulate_cluster(moorage.read(["examples/demo"]), moorage.Options())
    assert cluster.run() == run
    assert {note.kind for note in cluster.notes} == {note.kind for note in run.notes}


def test_objects_of_a_cluster_make_the_same_cluster():
    cluster = moorage.Cluster.read("examples/demo")
    again = moorage.Cluster.from_objects(cluster.objects())
    assert again.objects() == cluster.objects()
    assert again.run().pods == cluster.run().pods
    assert len(again.input().nodes) == 8


def test_pods_that_arrived_later_are_known(cluster):
    before = cluster.simulation.arrivals
    cluster.add(asking("late", "1m"), asking("later", "1m"))
    cluster.schedule(["small", "late"])  # a bound pod does not arrive again
    assert [pod.name for pod in cluster.simulation.arrived_after(before)] == ["late", "later"]
    with cluster.transaction():
        cluster.remove("late")
        assert [pod.name for pod in cluster.simulation.arrived_after(before)] == ["later"]
    assert [pod.name for pod in cluster.simulation.arrived_after(before)] == ["late", "later"]


def test_schedules_pods_one_after_the_other(cluster):
    small, large = cluster.schedule()
    assert (small.pod, small.node, large.node) == ("default/small", "n1", None)
    assert large.message.startswith("0/2 nodes are available: 2 Insufficient cpu. ")
    assert cluster.pod("small").spec.node_name == "n1"
    assert cluster.now_s == 0


def test_limits_the_search_to_nodes(cluster):
    (placed,) = cluster.schedule(["small"], nodes=["n0"])
    assert placed.node == "n0"
    with pytest.raises(InputError, match="no node has the name 'n9'"):
        cluster.schedule(["large"], nodes=["n9"])


def test_says_where_a_pod_could_go(cluster):
    before = cluster.objects()
    fits = cluster.can_schedule("large")
    assert not fits
    assert fits.verdicts["reason"].tolist() == ["Insufficient cpu"] * 2
    assert cluster.can_schedule("small").nodes == ["n0", "n1"]
    assert cluster.can_schedule("small", nodes=["n1"]).nodes == ["n1"]
    assert cluster.objects() == before


def test_takes_objects_in_every_form(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n9}\nstatus: {allocatable: {cpu: 1, pods: 5}}\n")
    cluster = moorage.Cluster.from_objects(path, HELD.replace("n0", "n9").replace("1500m", "100m"))
    cluster.add({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "d"}, "spec": {"containers": [{"name": "c"}]}})
    assert cluster.pods["name"].tolist() == ["held", "d"]
    cluster.apply(cluster.pod("d").replace(spec=cluster.pod("d").spec.replace(priority=7)))
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "d", "labels": {"a": "b"}}})
    assert (cluster.pod("d").priority, cluster.pod("d").labels) == (7, {"a": "b"})
    assert cluster.get("no/n9") == cluster.get("node/n9")
    with pytest.raises(InputError, match="pod/default/d exists already"):
        cluster.add({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "d"}, "spec": {"containers": [{"name": "c"}]}})


def test_workloads_get_the_pods_that_they_lack():
    web = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, selector: {matchLabels: {a: b}}, "
        "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}}\n"
    )
    cluster = moorage.Cluster.from_objects(NODES)
    cluster.add(web)
    assert len(cluster.pods) == 2
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3}})
    assert len(cluster.pods) == 3
    assert all(cluster.schedule())
    evicted = cluster.pods[0]["name"]
    cluster.evict(evicted, grace_s=0)
    assert evicted not in cluster.pods["name"]
    assert [row["state"] for row in cluster.pods] == ["Placed", "Placed", "Pending"]
    cluster.remove("deploy/web")
    assert len(cluster.pods) == 3


def test_time_passes_until_a_change_to_come(cluster):
    cluster.schedule()
    cluster.at(30, "node/n1 allocatable.cpu=8")
    assert {pod.name: pod.node for pod in cluster.run(20).pods}["large"] == ""
    assert {pod.name: pod.node for pod in cluster.run().pods}["large"] == "n1"
    assert cluster.now_s >= 30


def test_shows_columns(cluster, tmp_path):
    assert cluster.nodes["cpu_milli_requested"].tolist() == [1500, 0]
    assert cluster.pods[0] | {"state": "Placed", "node": "n0", "cpu_milli": 1500} == cluster.pods[0]
    cluster.nodes.to_csv(tmp_path / "nodes.csv")
    assert (tmp_path / "nodes.csv").read_text().splitlines()[1].startswith("n0,,False,1,10,2000,1500,")


def test_an_answer_is_written_as_a_page(cluster, tmp_path):
    answer = cluster.explain("large")
    answer.to_html(tmp_path / "answer.html")
    page = (tmp_path / "answer.html").read_text()
    assert page.startswith("<!doctype html>")
    assert json.dumps(answer.summary)[1:-1] in page


@pytest.mark.parametrize("limits", [{"may": ["boss"]}, {"may": "pod"}, {"may": []}, {"alternatives": -1}, {"probes": -1}])
def test_limits_of_the_search_are_checked(cluster, limits):
    cluster.schedule()
    with pytest.raises(InputError, match=next(iter(limits))):
        cluster.least_change("large", **limits)


def test_changes_are_not_planned_in_the_past(cluster):
    cluster.run(until_s=5)
    with pytest.raises(InputError, match="4 s is before the present time of the cluster, 5 s"):
        cluster.at(4, "node/n0 unschedulable=true")


def test_a_preferred_term_costs_no_more_than_a_look_at_each_pod(monkeypatch):
    """Its change is one of a workload, so it goes through all pods: once, not once for each of them."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    metadata = {"namespace": "default", "labels": {"app": "web"}}
    pods = [
        {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {**metadata, "name": f"p{at}", "uid": f"p{at}", **({"ownerReferences": [owner]} if at < 2 else {})},
            "spec": {"containers": [{"name": "c"}], **({"affinity": rule} if at < 2 else {})},
        }
        for at in range(300)
    ]  # fmt: skip
    cluster = moorage.Cluster.from_objects(*pods)
    keys = []
    monkeypatch.setattr(object_edits, "key_of", lambda obj: keys.append(obj) or key_of(obj))
    old = '{"labelSelector":{"matchLabels":{"app":"web"}},"topologyKey":"kubernetes.io/hostname"}'
    cluster.apply(Change("pod", "prefer", "pod/default/p0", "affinity.podAntiAffinity", old))
    rules = [pod.spec.affinity.pod_anti_affinity for pod in map(cluster.pod, ("p0", "p1"))]
    assert [len(one.required_during_scheduling_ignored_during_execution) for one in rules] == [0, 0]
    assert len(keys) <= 600
