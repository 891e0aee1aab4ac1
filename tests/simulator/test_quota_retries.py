"""Pods that a quota refused are created in the run, once other pods leave room for them."""

from __future__ import annotations

import pytest

from moorage.laboratory.change.least_change import ChangeLimits
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.explain.explain_run import ExplainOptions, explain_cluster
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.simulate import Options


def meta(name, namespace="default"):
    return {"name": name, "namespace": namespace}


def spec(cpu, **more):
    return {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}], **more}


def node(cpu):
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
    }  # fmt: skip


def workload(name, replicas, cpu="500m", kind="Deployment", **more):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec(cpu)}
    return {
        "apiVersion": "apps/v1", "kind": kind, "metadata": meta(name),
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **more},
    }  # fmt: skip


QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta("compute"), "spec": {"hard": {"requests.cpu": "3"}}}
LOW = {"apiVersion": "v1", "kind": "Pod", "metadata": meta("low"), "spec": spec("2", nodeName="n1")}
HIGH = {"apiVersion": "v1", "kind": "Pod", "metadata": meta("high", "other"), "spec": spec("4500m", priorityClassName="high")}
CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
BARE = {"apiVersion": "v1", "kind": "Pod", "metadata": meta("bare"), "spec": spec("500m")}


def simulated(*documents):
    return simulate_cluster(read_given([CLASS, *documents]), Options())[1]


def test_a_victim_leaves_its_share_to_what_was_refused():
    run = simulated(node("6"), QUOTA, LOW, HIGH, workload("web", 3))
    assert [one.state for one in run.pods if one.name in {"low", "high"}] == ["Placed", "Preempted"]
    web = [one for one in run.pods if one.name.startswith("web-")]
    assert [one.state for one in web] == ["Placed"] * 3
    assert sorted(one.arrived_s for one in web) == [0, 0, 30]
    assert run.refused == ()
    assert any(
        note.text.startswith("1 pod created when other pods had left room in a quota: default/web-") for note in run.notes
    )


def test_what_was_refused_first_is_created_first_and_the_rest_stays_refused():
    run = simulated(node("6"), QUOTA, LOW, HIGH, workload("a", 2), workload("b", 1), workload("c", 4))
    assert [one.name[0] for one in run.pods if one.arrived_s] == ["b", "c", "c", "c"]
    assert [(one.workload, len(one.names), one.wanted) for one in run.refused] == [("Deployment/c", 1, 4)]
    assert "used: requests.cpu=3" in run.refused[0].message


def test_a_pod_that_is_replaced_leaves_nothing():
    simulation = Simulation.from_objects(CLASS, node("5"), QUOTA, workload("web", 7))
    simulation.run()
    simulation.add(HIGH)
    simulation.run()
    assert simulation.totals().preempted == 5
    assert len(simulation.pods) == 7


def test_what_a_person_creates_is_tried_once():
    run = simulated(node("6"), QUOTA, LOW, HIGH, BARE, {**BARE, "metadata": meta("more")}, {**BARE, "metadata": meta("most")})
    assert [one.names for one in run.refused] == [("most",)]


def test_a_stateful_set_gets_its_claims_with_the_pod():
    claims = [
        {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    ]
    store = workload("db", 3, kind="StatefulSet", serviceName="db", volumeClaimTemplates=claims)
    store["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/d"}]
    free = {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s", "annotations": {
            "storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "x",
        "volumeBindingMode": "WaitForFirstConsumer",
    }  # fmt: skip
    run = simulated(node("6"), QUOTA, LOW, HIGH, free, store)
    assert [one.state for one in run.pods if one.name.startswith("db-")] == ["Placed"] * 3
    assert len(run.volumes) == 3


def test_a_simulation_over_time_creates_them_too():
    simulation = Simulation.from_objects(node("6"), QUOTA, LOW, workload("web", 3))
    simulation.run()
    assert len(simulation.pods) == 3
    simulation.evict("default/low", grace_s=5)
    simulation.run()
    assert len(simulation.pods) == 3
    assert simulation.totals().placed == 3


def test_explain_knows_a_pod_that_was_created_late():
    what = ExplainOptions(("deployment/web",), limits=ChangeLimits(probes=0))
    found = explain_cluster(read_given([CLASS, node("6"), QUOTA, LOW, HIGH, workload("web", 3)]), Options(), what)
    assert [one.outcome for one in found] == ["placed"] * 3


@pytest.mark.parametrize("quota", [True, False])
def test_without_quotas_nothing_changes(quota):
    run = simulate_cluster(read_given([CLASS, node("6"), LOW, HIGH, workload("web", 3)]), Options(quota=quota))[1]
    assert all(one.arrived_s == 0 for one in run.pods)
