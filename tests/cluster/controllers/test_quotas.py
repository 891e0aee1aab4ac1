"""What quotas say is used of them: counted when they are made, when limits change, and when something goes or takes less."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.documents.object_fields import REPLICA_SETS
from moorage.api.documents.statuses import ApiError
from moorage.api.quantity import parse
from moorage.cluster.controllers.upkeep.status_controllers import ResourceQuotas
from moorage.rules.store.store import DeleteOptions
from moorage.rules.workloads.deployment import Deployments
from moorage.rules.workloads.replica_set import ReplicaSets


@pytest.fixture
def cluster(lab):
    return lab(ResourceQuotas())


def quota(name="q", scopes=(), **hard):
    limits = {resource.replace("_", "."): amount for resource, amount in hard.items()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name},
            "spec": {"hard": limits, "scopes": list(scopes)}}  # fmt: skip


def pod(name, cpu="1", **spec):
    resources = {"requests": {"cpu": cpu}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}], **spec}}  # fmt: skip


def status(cluster, name="q"):
    return cluster.get("resourcequotas", name)["status"]


def used(cluster, name="q"):
    return status(cluster, name)["used"]


def test_a_new_quota_counts_existing_objects(cluster):
    cluster.apply(pod("a"))
    cluster.apply(pod("b", "500m"))
    cluster.apply(quota(pods="5", requests_cpu="4", configmaps="9", **{"count/widgets.example.com": "3"}))
    assert status(cluster) == {}
    cluster.settle()
    assert used(cluster) == {"pods": "2", "requests.cpu": "1500m", "configmaps": "0"}  # no evaluator counts widgets
    assert status(cluster)["hard"] == {"pods": "5", "requests.cpu": "4", "configmaps": "9", "count/widgets.example.com": "3"}


def test_new_limits_apply_after_a_recount(cluster):
    cluster.apply(quota(pods="5"))
    cluster.apply(pod("a"))
    cluster.settle()
    cluster.edit("resourcequotas", "q", lambda held: held["spec"].update(hard={"cpu": "1"}))
    cluster.settle()
    assert status(cluster) == {"hard": {"cpu": "1"}, "used": {"cpu": "1"}}
    with pytest.raises(ApiError, match="exceeded quota: q, requested: cpu=1, used: cpu=1, limited: cpu=1"):
        cluster.apply(pod("b"))


def test_deleted_objects_release_quota(cluster):
    cluster.apply(quota(pods="1", configmaps="1"))
    cluster.settle()
    cluster.apply(pod("a"))
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}})
    assert used(cluster) == {"pods": "1", "configmaps": "1"}
    for resource, name in (("pods", "a"), ("configmaps", "m")):
        cluster.store.delete(cluster.kind(resource), "default", name, DeleteOptions(grace_s=0))
    cluster.settle()
    assert used(cluster) == {"pods": "0", "configmaps": "0"}
    cluster.apply(pod("b"))


def test_a_finished_pod_releases_compute_but_counts_as_an_object(cluster):
    cluster.apply(quota(pods="1", cpu="1", **{"count/pods": "5"}))
    cluster.settle()
    cluster.apply(pod("a"))
    cluster.edit("pods", "a", lambda held: held.update(status={**held["status"], "phase": "Succeeded"}), subresource="status")
    cluster.settle()
    assert used(cluster) == {"pods": "0", "cpu": "0", "count/pods": "1"}


def test_a_pod_past_its_grace_period_releases_quota(lab):
    cluster = lab(ResourceQuotas(), nodes=0)
    cluster.apply(quota(pods="1"))
    cluster.settle()
    cluster.apply(pod("a", nodeName="lost"))
    cluster.store.delete(cluster.kind("pods"), "default", "a", DeleteOptions(grace_s=30))
    cluster.settle()
    assert used(cluster) == {"pods": "1"}
    cluster.advance(50)
    assert used(cluster) == {"pods": "1"}
    cluster.advance(15)
    assert used(cluster) == {"pods": "0"}


def test_a_changed_service_type_and_a_smaller_claim_are_recounted(cluster):
    cluster.apply(quota(services_nodeports="3", requests_storage="9Gi"))
    cluster.settle()
    ports = [{"name": "p", "port": 80}]
    cluster.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}}
    )
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": claim})
    for held, storage in (("4Gi", "4Gi"), ("3Gi", "3Gi"), ("1Gi", "2Gi")):
        given_ = {"phase": "Pending", "allocatedResources": {"storage": held}}
        cluster.edit("persistentvolumeclaims", "c", lambda one, given_=given_: one.update(status=given_), subresource="status")
        cluster.settle()
        assert used(cluster) == {"services.nodeports": "1", "requests.storage": storage}
    cluster.edit("services", "s", lambda held: held["spec"].update(type="ClusterIP"))
    cluster.settle()
    assert used(cluster)["services.nodeports"] == "0"


def test_a_foreign_status_write_is_overwritten(cluster):
    cluster.apply(quota(pods="9"))
    cluster.settle()
    cluster.edit("resourcequotas", "q", lambda held: held["status"].update(hard={"pods": "1"}), subresource="status")
    cluster.advance(200)
    assert status(cluster)["hard"] == {"pods": "1"}
    cluster.advance(101)
    assert status(cluster) == {"hard": {"pods": "9"}, "used": {"pods": "0"}}


def test_creations_alone_trigger_no_recount(cluster):
    cluster.apply(quota(pods="9"))
    cluster.settle()
    before = cluster.manager.looks["resourcequota-controller"]
    for name in "abc":
        cluster.apply(pod(name))
        cluster.settle()
    assert cluster.manager.looks["resourcequota-controller"] == before
    assert used(cluster) == {"pods": "3"}


def test_large_recounts_are_batched_over_deletions(lab):
    cluster = lab(ResourceQuotas(), nodes=0)
    cluster.apply(quota(pods="900"))
    cluster.settle()
    for number in range(260):
        cluster.apply(pod(f"p{number}"))
    seen = []
    for number in range(4):
        cluster.delete("pods", f"p{number}")
        cluster.settle()
        seen.append(used(cluster)["pods"])
    assert seen == ["259"] * 4
    cluster.advance(0.1)
    assert used(cluster) == {"pods": "256"}
    cluster.delete("pods", "p4")
    cluster.edit("resourcequotas", "q", lambda held: held["spec"].update(hard={"pods": "800"}))
    cluster.settle()  # new limits are not waited for
    assert status(cluster) == {"hard": {"pods": "800"}, "used": {"pods": "255"}}


def test_a_deployment_gets_its_missing_pods_when_quota_is_free(lab):
    cluster = lab(ResourceQuotas(), Deployments(), ReplicaSets(REPLICA_SETS))
    cluster.apply(quota(pods="2"))
    cluster.settle()
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 4, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
    cluster.settle()
    assert len(cluster.all("pods")) == 2
    told = [one["message"] for one in cluster.all("events") if one["reason"] == "FailedCreate"]
    assert told
    assert all("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2" in text for text in told)
    (replica_set,) = cluster.all("replicasets")
    (condition,) = replica_set["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    cluster.edit("resourcequotas", "q", lambda held: held["spec"].update(hard={"pods": "3"}))
    cluster.advance(1200)
    assert len(cluster.all("pods")) == 3
    assert used(cluster) == {"pods": "3"}


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "short pod", "config map", "resize", "delete", "end", "deadline"]),
        st.integers(0, 3),
        st.sampled_from(["100m", "1", "1500m"]),
    ),
    max_size=25,
)


@given(deeds=DEEDS)
@settings(max_examples=30, deadline=None)
def test_charged_usage_equals_counted_usage(lab_class, deeds):
    """Whatever happened: counting again finds what the status says, and admission never went beyond a limit."""
    cluster = lab_class(ResourceQuotas(), nodes=0)
    cluster.apply(quota("all", pods="3", cpu="3", configmaps="2", **{"count/pods": "4"}))
    cluster.apply(quota("short", ["Terminating"], pods="2", requests_cpu="1500m"))
    cluster.apply(quota("rest", ["NotTerminating", "NotBestEffort"], cpu="2500m"))
    cluster.settle()
    for deed, number, amount in deeds:
        with suppress(ApiError):
            act(cluster, deed, f"p{number}", amount)
        for one in cluster.all("resourcequotas"):
            held = one["status"]
            assert all(parse(amount) <= parse(held["hard"][name]) for name, amount in held["used"].items())
        if number % 2:
            cluster.settle()
    cluster.settle()
    found = {name: status(cluster, name) for name in ("all", "short", "rest")}
    cluster.restart(ResourceQuotas())
    cluster.settle()
    assert {name: status(cluster, name) for name in found} == found


def act(cluster, deed, name, amount):
    there = cluster.get("pods", name)
    match deed:
        case "pod" if not there:
            cluster.apply(pod(name, amount))
        case "short pod" if not there:
            cluster.apply(pod(name, amount, activeDeadlineSeconds=99))
        case "config map" if not cluster.get("configmaps", name):
            cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        case "resize" if there:
            asked = {"requests": {"cpu": amount}}
            cluster.edit("pods", name, lambda held: held["spec"]["containers"][0].update(resources=asked), subresource="resize")
        case "delete" if there:
            cluster.store.delete(cluster.kind("pods"), "default", name, DeleteOptions(grace_s=0))
        case "end" if there:
            cluster.edit("pods", name, lambda held: held["status"].update(phase="Failed"), subresource="status")
        case "deadline" if there:
            cluster.edit("pods", name, lambda held: held["spec"].update(activeDeadlineSeconds=50))
