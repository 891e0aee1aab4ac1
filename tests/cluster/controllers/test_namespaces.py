"""Deleting a namespace: what goes first, what is waited for, and what its conditions say meanwhile."""

import copy

import pytest

from moorage.api.documents.statuses import ApiError
from moorage.cluster.controllers.all_controllers import all_controllers
from moorage.cluster.controllers.nodes.hollow_nodes import STANDARD_CLASS
from moorage.cluster.controllers.nodes.kubelets import Kubelets

TEAM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
SLOW = {"moorage.dev/stop-seconds": "20"}
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
"""


def pod(name="slow", **annotations):
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or SLOW},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }  # fmt: skip


def config(name="kept", *finalizers):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": list(finalizers)}}


@pytest.fixture
def cluster(lab):
    cluster = lab(*[one for one in all_controllers() if not isinstance(one, Kubelets)])
    cluster.apply(TEAM)
    cluster.settle()
    return cluster


def conditions(cluster):
    held = cluster.get("namespaces", "team")["status"].get("conditions", ())
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in held}


def test_an_empty_namespace_is_deleted(cluster):
    cluster.delete("namespaces", "team")
    assert cluster.get("namespaces", "team")["status"]["phase"] == "Terminating"
    cluster.settle()
    assert cluster.get("namespaces", "team") is None
    assert cluster.get("serviceaccounts", "default", "team") is None
    assert cluster.reports == []


def test_pods_terminate_gracefully_and_first(cluster):
    for document in (pod(), config()):
        cluster.apply(document, "team")
    cluster.advance(2)
    cluster.delete("namespaces", "team")
    cluster.advance(19)
    assert cluster.get("pods", "slow", "team")["metadata"]["deletionGracePeriodSeconds"] == 30
    assert cluster.get("configmaps", "kept", "team")
    assert conditions(cluster)["NamespaceContentRemaining"] == (
        "True", "SomeResourcesRemain", "Some resources are remaining: pods. has 1 resource instances",
    )  # fmt: skip
    cluster.advance(2)
    assert cluster.get("namespaces", "team") is None
    assert cluster.get("configmaps", "kept", "team") is None


def test_finalizers_delay_deletion_and_set_conditions(cluster):
    cluster.apply(config("a", "example.com/hold"), "team")
    cluster.apply(config("b", "example.com/hold"), "team")
    cluster.delete("namespaces", "team")
    cluster.advance(60)
    assert conditions(cluster) == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "All resources successfully discovered"),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False", "ParsedGroupVersions", "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": (
            "True", "SomeResourcesRemain", "Some resources are remaining: configmaps. has 2 resource instances",
        ),
        "NamespaceFinalizersRemaining": (
            "True", "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances",
        ),
    }  # fmt: skip
    before = cluster.get("namespaces", "team")["status"]["conditions"]
    for name in "ab":
        assert cluster.get("configmaps", name, "team")
        cluster.edit("configmaps", name, lambda held: held["metadata"].pop("finalizers"), "team")
        cluster.advance(1)
        if name == "a":
            after = cluster.get("namespaces", "team")["status"]["conditions"]
            assert [one["lastTransitionTime"] for one in after] == [one["lastTransitionTime"] for one in before]
    assert cluster.get("namespaces", "team") is None


def test_a_namespace_waits_for_its_own_finalizers(cluster):
    cluster.edit("namespaces", "team", lambda held: held["metadata"].update(finalizers=["example.com/hold"]), "")
    cluster.delete("namespaces", "team")
    cluster.settle()
    held = cluster.get("namespaces", "team")
    assert (held["spec"], held["metadata"]["finalizers"]) == ({}, ["example.com/hold"])
    assert conditions(cluster)["NamespaceContentRemaining"][0] == "False"
    cluster.edit("namespaces", "team", lambda held: held["metadata"].pop("finalizers"), "")
    assert cluster.get("namespaces", "team") is None


def test_controllers_stop_silently_in_a_terminating_namespace(cluster):
    cluster.apply(DEPLOYMENT, "team")
    cluster.advance(5)
    assert len(cluster.names("pods")) == 3
    cluster.delete("namespaces", "team")
    cluster.advance(5)
    assert cluster.get("namespaces", "team") is None
    assert cluster.reports == []
    for resource in ("pods", "replicasets", "deployments"):
        assert cluster.names(resource) == []
    assert [one for one in cluster.all("events") if one["metadata"]["namespace"] == "team"] == []


DAEMONS = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: i}]}
"""


def test_controllers_update_status_and_create_no_pods(cluster):
    cluster.apply(DEPLOYMENT.replace("replicas: 3", "replicas: 150"), "team")
    cluster.apply(DAEMONS, "team")
    cluster.apply(pod(), "team")
    cluster.advance(5)
    assert len(cluster.names("pods")) == 154
    cluster.delete("namespaces", "team")
    cluster.advance(5)
    assert cluster.names("pods") == ["slow"]
    (replica_set,) = cluster.all("replicasets")
    assert replica_set["status"]["replicas"] == 0
    assert cluster.get("daemonsets", "agent", "team")["status"]["numberReady"] == 0
    cluster.advance(20)
    assert (cluster.get("namespaces", "team"), cluster.reports) == (None, [])


def test_only_the_finalize_subresource_changes_finalizers(cluster):
    cluster.edit("namespaces", "team", lambda held: held.update(spec={"finalizers": ["example.com/mine"]}), "")
    assert cluster.get("namespaces", "team")["spec"] == {"finalizers": ["kubernetes"]}
    mine = {"finalizers": ["kubernetes", "example.com/mine"]}
    cluster.edit("namespaces", "team", lambda held: held.update(spec=mine), "", "finalize")
    cluster.delete("namespaces", "team")
    cluster.settle()
    assert cluster.get("namespaces", "team")["spec"] == {"finalizers": ["example.com/mine"]}
    cluster.edit("namespaces", "team", lambda held: held.update(spec={}), "", "finalize")
    assert cluster.get("namespaces", "team") is None
    with pytest.raises(ApiError, match="neither a standard finalizer name"):
        cluster.apply({**TEAM, "spec": {"finalizers": ["mine"]}})


def test_without_a_controller_the_store_empties_the_namespace(lab):
    cluster = lab()
    cluster.apply(TEAM)
    cluster.apply(pod(), "team")
    cluster.advance(1)
    cluster.delete("namespaces", "team")
    assert (cluster.get("pods", "slow", "team"), cluster.get("namespaces", "team")) == (None, None)


def test_the_store_empties_namespaces_after_controllers_stop(cluster):
    cluster.apply(pod(), "team")
    cluster.advance(1)
    cluster.manager.close()
    cluster.delete("namespaces", "team")
    assert cluster.get("namespaces", "team") is None


def test_restarted_controllers_continue_a_deletion(cluster):
    cluster.apply(pod(), "team")
    cluster.advance(1)
    cluster.delete("namespaces", "team")
    cluster.advance(5)
    cluster.restart(*[one for one in all_controllers() if not isinstance(one, Kubelets)])
    cluster.advance(30)
    assert cluster.get("namespaces", "team") is None


def test_the_lease_namespace_is_recreated(cluster):
    cluster.delete("namespaces", "kube-node-lease")
    cluster.advance(60)
    assert cluster.get("namespaces", "kube-node-lease")["status"]["phase"] == "Active"
    assert len(cluster.names("leases")) == 3


ALL_SORTS = """
apiVersion: batch/v1
kind: Job
metadata: {name: long}
spec:
  parallelism: 3
  completions: 9
  template:
    metadata: {annotations: {moorage.dev/run-seconds: "1000"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: often}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db}
spec: {minAvailable: 2, selector: {matchLabels: {app: db}}}
"""


def test_any_content_is_deleted_without_errors(cluster):
    # Without a scheduler, claims do not learn the nodes of their pods.
    cluster.apply({**copy.deepcopy(STANDARD_CLASS), "volumeBindingMode": "Immediate"})
    for document in (DEPLOYMENT, DAEMONS, ALL_SORTS):
        cluster.apply(document, "team")
    cluster.apply(pod(), "team")
    cluster.advance(130)
    assert len([one for one in cluster.all("pods") if one["status"]["phase"] == "Running"]) == 3 + 3 + 3 + 2 + 1
    assert len(cluster.names("persistentvolumes")) == 2
    cluster.delete("namespaces", "team")
    cluster.advance(10)
    assert cluster.names("pods") == ["slow"]
    assert "active" not in cluster.get("jobs", "long", "team")["status"]
    cluster.advance(70)
    assert cluster.get("namespaces", "team") is None
    assert cluster.names("persistentvolumes") == []
    assert cluster.reports == []
