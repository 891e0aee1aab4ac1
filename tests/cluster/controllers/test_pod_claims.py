"""Claims that come with a pod, and what becomes of them after it."""

import pytest

from moorage.cluster.controllers.upkeep.garbage_collector import GarbageCollector
from moorage.cluster.controllers.upkeep.pod_group_protection import PodGroupProtection
from moorage.rules.volumes.pod_claims import EphemeralVolumes, ResourceClaims
from moorage.rules.volumes.volumes import Volumes

SCRATCH = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: quick}
provisioner: example.com/quick
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: c, image: i}]
  volumes:
  - name: scratch
    ephemeral:
      volumeClaimTemplate:
        metadata: {labels: {tier: scratch}}
        spec: {accessModes: [ReadWriteOnce], storageClassName: quick, resources: {requests: {storage: 1Gi}}}
"""
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec:
  metadata: {labels: {tier: gpu}}
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: train, annotations: {moorage.dev/run-seconds: "20"}}
spec:
  restartPolicy: Never
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
  containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]
"""


@pytest.fixture
def cluster(lab):
    made = lab(EphemeralVolumes(), Volumes(), ResourceClaims(), GarbageCollector())
    yield made
    assert made.reports == []


def test_an_ephemeral_volume_gets_a_claim_deleted_with_the_pod(cluster):
    cluster.apply(SCRATCH)
    cluster.advance(2)
    claim = cluster.get("persistentvolumeclaims", "web-scratch")
    assert claim["metadata"]["labels"] == {"tier": "scratch"}
    assert claim["metadata"]["ownerReferences"][0]["name"] == "web"
    assert cluster.get("pods", "web")["status"]["phase"] == "Running"
    cluster.delete("pods", "web")
    cluster.settle()
    assert cluster.all("persistentvolumeclaims") == []
    assert cluster.all("persistentvolumes") == []


def test_a_foreign_claim_of_the_same_name_is_reported(cluster):
    documents = SCRATCH.split("---")
    cluster.apply(documents[0])
    cluster.apply("""
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: web-scratch}
spec: {accessModes: [ReadWriteOnce], storageClassName: quick, resources: {requests: {storage: 1Gi}}}
""")
    cluster.apply(documents[1])
    cluster.settle()
    assert "was not created for pod default/web (pod is not owner)" in [one["message"] for one in cluster.all("events")][-1]


def allocate(cluster):
    """Do what the scheduler does for the pod."""
    (claim,) = cluster.all("resourceclaims")
    pod = cluster.get("pods", "train")
    name = claim["metadata"]["name"]
    result = {
        "request": "gpu", "driver": "d", "pool": "p", "device": "gpu-0",
        "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"],
    }  # fmt: skip
    user = {"resource": "pods", "name": "train", "uid": pod["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    held = ["resource.kubernetes.io/delete-protection"]
    cluster.edit("resourceclaims", name, lambda one: one["metadata"].update(finalizers=held))
    cluster.edit("resourceclaims", name, lambda one: one.update(status=status), subresource="status")
    return name


def test_a_claim_is_created_from_a_template_and_named_in_the_pod(cluster):
    cluster.schedules = False
    cluster.apply(TEMPLATE)
    cluster.apply(POD)
    cluster.settle()
    (claim,) = cluster.all("resourceclaims")
    assert claim["metadata"]["name"].startswith("train-gpu-")
    assert claim["metadata"]["labels"] == {"tier": "gpu"}
    assert claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"] == "gpu"
    statuses = cluster.get("pods", "train")["status"]["resourceClaimStatuses"]
    assert statuses == [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]


def test_a_template_created_later_is_used(cluster):
    cluster.schedules = False
    cluster.apply(POD)
    cluster.settle()
    assert [one["reason"] for one in cluster.all("events")] == ["FailedResourceClaimCreation"]
    cluster.apply(TEMPLATE)
    cluster.settle()
    assert len(cluster.all("resourceclaims")) == 1


def test_devices_are_ready_and_released_when_the_pod_finishes(cluster):
    cluster.schedules = False
    cluster.apply(TEMPLATE)
    cluster.apply(POD)
    cluster.settle()
    name = allocate(cluster)
    cluster.settle()
    (device,) = cluster.get("resourceclaims", name)["status"]["devices"]
    assert [(one["type"], one["status"]) for one in device["conditions"]] == [("Attached", "True")]
    cluster.schedules = True
    cluster.advance(25)
    assert cluster.get("pods", "train")["status"]["phase"] == "Succeeded"
    assert cluster.get("resourceclaims", name) is None


def test_a_shared_claim_drops_deleted_pods_and_stays(cluster):
    cluster.apply("""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
""")
    cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}")
    cluster.settle()
    uid = cluster.get("pods", "a")["metadata"]["uid"]
    users = [
        {"resource": "pods", "name": "a", "uid": uid},
        {"resource": "pods", "name": "a", "uid": "of another life"},
        {"resource": "pods", "name": "b", "uid": "gone"},
        {"resource": "rockets", "apiGroup": "acme.io", "name": "r", "uid": "r"},
    ]
    status = {"allocation": {"devices": {"results": []}}, "reservedFor": users}
    cluster.edit("resourceclaims", "shared", lambda one: one.update(status=status), subresource="status")
    cluster.settle()
    assert cluster.get("resourceclaims", "shared")["status"]["reservedFor"] == [users[0], users[3]]
    cluster.edit("resourceclaims", "shared", lambda one: one["status"].update(reservedFor=[users[2]]), subresource="status")
    cluster.settle()
    assert "allocation" not in cluster.get("resourceclaims", "shared")["status"]


def test_a_claim_under_allocation_stays_protected(cluster):
    cluster.apply("""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: begun, finalizers: [resource.kubernetes.io/delete-protection]}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
""")
    cluster.settle()
    assert cluster.get("resourceclaims", "begun")["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]


GROUP = """
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: gang}
spec:
  schedulingPolicy: {gang: {minCount: 2}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
"""


def of_gang(name):
    return POD.replace("name: train,", f"name: {name},").replace("spec:\n", "spec:\n  schedulingGroup: {podGroupName: gang}\n")


ORDERS = {"group first": (GROUP, TEMPLATE), "template last": (GROUP,), "group last": (TEMPLATE,)}


def lab_for_groups(lab):
    gates = "GenericWorkload=true,DRAWorkloadResourceClaims=true"
    made = lab(ResourceClaims(for_groups=True), GarbageCollector(), PodGroupProtection(), gates=gates, release="1.37")
    made.schedules = False
    return made


def test_a_pod_of_a_group_without_claims_waits_for_its_group_and_has_claims_of_its_own(lab):
    made = lab_for_groups(lab)
    made.apply(TEMPLATE)
    made.apply(of_gang("a"))
    made.advance(5)
    assert made.all("resourceclaims") == []
    made.apply(GROUP.replace("  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]\n", ""))
    made.advance(1)
    (claim,) = made.all("resourceclaims")
    assert claim["metadata"]["ownerReferences"][0]["name"] == "a"


@pytest.mark.parametrize("order", ORDERS)
def test_a_group_has_one_claim_that_its_pods_use(lab, order):
    made = lab_for_groups(lab)
    before = ORDERS[order]
    for text in (*before, of_gang("a"), *(one for one in (TEMPLATE, GROUP) if one not in before), of_gang("b")):
        made.apply(text)
        made.advance(1)
    (claim,) = made.all("resourceclaims")
    assert claim["metadata"]["ownerReferences"][0]["name"] == "gang"
    asked = [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]
    for kind, name in (("podgroups", "gang"), ("pods", "a"), ("pods", "b")):
        assert made.get(kind, name)["status"]["resourceClaimStatuses"] == asked
    uid = made.get("podgroups", "gang")["metadata"]["uid"]
    user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": uid}
    status = {"allocation": {"devices": {}}, "reservedFor": [user]}
    made.edit("resourceclaims", claim["metadata"]["name"], lambda held: held.update(status=status), subresource="status")
    made.delete("pods", "a")
    made.settle()
    assert made.get("resourceclaims", claim["metadata"]["name"])["status"]["reservedFor"] == [user]
    made.delete("pods", "b")
    made.delete("podgroups", "gang")
    made.advance(60)
    assert made.all("resourceclaims") == []
    assert made.reports == []
