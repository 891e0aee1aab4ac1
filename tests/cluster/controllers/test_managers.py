"""Who is named as the manager of what controllers and kubelets write: the programs that they are part of in Kubernetes."""

import copy

import pytest

from moorage.api.fields.managed_fields import FieldManager
from moorage.cluster.controllers.all_controllers import all_controllers
from moorage.cluster.controllers.nodes.kubelets import Kubelets

CONTROLLERS = ("kube-controller-manager", "")
DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
    "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}  # fmt: skip


@pytest.fixture
def cluster(lab):
    cluster = lab(*[one for one in all_controllers() if not isinstance(one, Kubelets)])
    user = FieldManager("user", version="apps/v1")
    cluster.store.create(cluster.kind("deployments"), "default", copy.deepcopy(DEPLOYMENT), manager=user)
    cluster.advance(30)
    return cluster


def managers(found):
    """Return who manages what of an object, as far as its uppermost fields."""
    held = found["metadata"].get("managedFields") or ()
    return {(one["manager"], one.get("subresource", "")): set(one["fieldsV1"]) for one in held}


def test_each_write_names_its_upstream_program_as_manager(cluster):
    deployment = managers(cluster.get("deployments", "web"))
    assert deployment["kube-controller-manager", "status"] == {"f:metadata", "f:status"}
    assert deployment["user", ""] == {"f:spec"}
    for pod in cluster.all("pods"):
        assert managers(pod) == {CONTROLLERS: {"f:metadata", "f:spec"}, ("kubelet", "status"): {"f:status"}}
    for replica_set in cluster.all("replicasets"):
        assert managers(replica_set)["kube-controller-manager", "status"] == {"f:status"}
    assert all(("kubelet", "") in managers(lease) for lease in cluster.all("leases"))
    assert all(managers(event).keys() == {CONTROLLERS} for event in cluster.all("events"))


def test_a_user_owns_a_field_until_a_controller_writes_it_again(cluster):
    store, kind = cluster.store, cluster.kind("deployments")

    def annotate(held):
        held["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "7"

    store.change(kind, "default", "web", annotate, manager=FieldManager("user", version="apps/v1"))
    assert "f:metadata" in managers(cluster.get("deployments", "web"))["user", ""]
    cluster.advance(1)
    held = cluster.get("deployments", "web")
    assert held["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    assert "f:metadata" not in managers(held)["user", ""]


def test_writing_the_same_again_changes_nothing(cluster):
    version = cluster.get("deployments", "web")["metadata"]["resourceVersion"]
    cluster.advance(120)
    assert cluster.get("deployments", "web")["metadata"]["resourceVersion"] == version
    assert cluster.reports == []
