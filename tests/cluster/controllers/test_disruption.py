"""Disruption budgets: how many pods may go."""

import pytest

from moorage.api.documents.object_fields import REPLICA_SETS
from moorage.api.documents.statuses import ApiError
from moorage.rules.store.subresources import evict
from moorage.rules.workloads.deployment import Deployments
from moorage.rules.workloads.disruption import Disruption
from moorage.rules.workloads.replica_set import ReplicaSets

SHOP = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 10
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}, annotations: {moorage.dev/stop-seconds: "5", moorage.dev/ready-seconds: "5"}}
    spec: {containers: [{name: c, image: i}]}
"""
BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: calm}
spec: {selector: {matchLabels: {app: shop}}, %s}
"""
STRAY = "{apiVersion: v1, kind: Pod, metadata: {name: stray, labels: {app: shop}}, spec: {containers: [{name: c, image: i}]}}"


@pytest.fixture
def cluster(lab):
    made = lab(Deployments(), ReplicaSets(REPLICA_SETS), Disruption())
    made.apply(SHOP)
    made.advance(6)
    yield made
    assert made.reports == []


def budget(cluster, spec):
    cluster.apply(BUDGET % spec)
    cluster.settle()


def numbers(cluster):
    status = cluster.get("poddisruptionbudgets", "calm")["status"]
    return [status[name] for name in ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")]


COUNTED = {
    "at least so many": ("minAvailable: 7", [10, 7, 10, 3]),
    "at least a share": ("minAvailable: 75%", [10, 8, 10, 2]),
    "at most so many missing": ("maxUnavailable: 4", [10, 6, 10, 4]),
    "at most a share missing": ("maxUnavailable: 25%", [10, 7, 10, 3]),
    "none": ("maxUnavailable: 0", [10, 10, 10, 0]),
}


@pytest.mark.parametrize(("spec", "expected"), COUNTED.values(), ids=COUNTED)
def test_it_counts(cluster, spec, expected):
    budget(cluster, spec)
    assert numbers(cluster) == expected
    held = cluster.get("poddisruptionbudgets", "calm")
    assert held["status"]["observedGeneration"] == held["metadata"]["generation"]
    wanted = ("True", "SufficientPods") if expected[-1] else ("False", "InsufficientPods")
    assert cluster.condition("poddisruptionbudgets", "calm", "DisruptionAllowed") == wanted


def send_away(cluster, name):
    evict(cluster.store, "default", name, {"metadata": {"name": name}})


def test_evictions_use_allowed_disruptions_until_replaced(cluster):
    budget(cluster, "minAvailable: 8")
    names = cluster.names("pods")
    send_away(cluster, names[0])
    send_away(cluster, names[1])
    with pytest.raises(ApiError, match="Cannot evict pod"):
        send_away(cluster, names[2])
    cluster.settle()
    assert numbers(cluster) == [12, 8, 8, 0], "two are ending, and two are there in their place"
    cluster.advance(15)
    assert numbers(cluster) == [10, 8, 10, 2]


def test_scaling_changes_what_is_expected(cluster):
    budget(cluster, "maxUnavailable: 20%")
    cluster.patch("deployments", "shop", replicas=5)
    cluster.advance(10)
    assert numbers(cluster) == [5, 4, 5, 1]


def test_a_pod_without_a_controller_cannot_be_counted_in_percent(cluster):
    cluster.apply(STRAY)
    cluster.edit("pods", "stray", lambda pod: pod["metadata"].update(ownerReferences=[
        {"apiVersion": "acme.io/v1", "kind": "Rocket", "name": "r", "uid": "u", "controller": True}]))  # fmt: skip
    budget(cluster, "maxUnavailable: 20%")
    assert numbers(cluster)[-1] == 0
    assert cluster.condition("poddisruptionbudgets", "calm", "DisruptionAllowed") == ("False", "SyncFailed")


def test_an_empty_selector_covers_all(cluster):
    cluster.apply(
        "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: calm}, spec: {selector: {}, minAvailable: 9}}"
    )
    cluster.settle()
    assert numbers(cluster) == [10, 9, 10, 1]


def told(cluster):
    budgets = [one for one in cluster.all("events") if one["involvedObject"]["kind"] == "PodDisruptionBudget"]
    return [(one["type"], one["reason"], one["message"]) for one in budgets]


def test_pods_without_a_controller_are_reported_and_not_counted(cluster):
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "lone"}}}
    cluster.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"}, "spec": budget})
    cluster.settle()
    assert told(cluster) == [("Normal", "NoPods", "No matching pods found")]
    spec = {"containers": [{"name": "c", "image": "i"}]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lone", "labels": {"app": "lone"}}, "spec": spec})
    cluster.settle()
    status = cluster.get("poddisruptionbudgets", "keep")["status"]
    assert (status["expectedPods"], status["disruptionsAllowed"]) == (0, 0)
    assert [(one["reason"], one["message"]) for one in status["conditions"]] == [("InsufficientPods", "")]
    kind, reason, text = told(cluster)[-1]
    assert (kind, reason) == ("Warning", "UnmanagedPods")
    shown = "&LabelSelector{MatchLabels:map[string]string{app: lone,},MatchExpressions:[]LabelSelectorRequirement{},}"
    assert f"(selector: {shown}) were found to be unmanaged" in text
