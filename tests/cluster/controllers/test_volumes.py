"""Claims get volumes, found or made; both stay for as long as they are needed."""

import pytest

from moorage.rules.volumes.volumes import Volumes

CLASSES = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: quick}
provisioner: example.com/quick
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: late}
provisioner: example.com/late
volumeBindingMode: WaitForFirstConsumer
allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a, b]}]}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: by-hand}
provisioner: kubernetes.io/no-provisioner
"""
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s, labels: {tier: %s}}
spec:
  capacity: {storage: %s}
  accessModes: [ReadWriteOnce]
  storageClassName: by-hand
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: /x}
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: "%s"
  resources: {requests: {storage: 5Gi}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: c, image: i}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
"""


@pytest.fixture
def cluster(lab):
    made = lab(Volumes())
    made.apply(CLASSES)
    yield made
    assert made.reports == []


def claim(cluster):
    held = cluster.get("persistentvolumeclaims", "data")
    return held["status"]["phase"], held["spec"].get("volumeName")


def told(cluster):
    return [one["reason"] for one in cluster.all("events")]


def test_a_volume_is_provisioned(cluster):
    cluster.apply(CLAIM % "quick")
    cluster.settle()
    phase, name = claim(cluster)
    held = cluster.get("persistentvolumeclaims", "data")
    assert (phase, name) == ("Bound", f"pvc-{held['metadata']['uid']}")
    assert held["status"]["capacity"] == {"storage": "5Gi"}
    assert held["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
    for name_of_it in ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"):
        assert held["metadata"]["annotations"][name_of_it] == "example.com/quick"
    volume = cluster.get("persistentvolumes", name)
    assert volume["status"]["phase"] == "Bound"
    assert volume["spec"]["claimRef"]["uid"] == held["metadata"]["uid"]
    assert volume["spec"]["csi"]["driver"] == "example.com.quick"  # no driver has a name with a slash
    assert told(cluster) == ["ExternalProvisioning", "ProvisioningSucceeded"]


def test_the_smallest_matching_volume_is_bound(cluster):
    for name, size in (("small", "1Gi"), ("large", "50Gi"), ("right", "10Gi")):
        cluster.apply(VOLUME % (name, "t", size))
    cluster.settle()
    assert {one["status"]["phase"] for one in cluster.all("persistentvolumes")} == {"Available"}
    cluster.apply(CLAIM % "by-hand")
    cluster.settle()
    assert claim(cluster) == ("Bound", "right")


def test_a_bound_claim_reports_the_attributes_class_of_its_volume(cluster):
    driven = "volumeAttributesClassName: fast\n  csi: {driver: d, volumeHandle: h}"
    cluster.apply((VOLUME % ("a", "x", "5Gi")).replace("hostPath: {path: /x}", driven))
    cluster.apply((CLAIM % "by-hand") + "  volumeAttributesClassName: fast\n")
    cluster.settle()
    status = cluster.get("persistentvolumeclaims", "data")["status"]
    assert (status["phase"], status["currentVolumeAttributesClassName"]) == ("Bound", "fast")


def test_a_selector_narrows_the_choice(cluster):
    for name, tier in (("a", "slow"), ("b", "fast")):
        cluster.apply(VOLUME % (name, tier, "10Gi"))
    cluster.apply((CLAIM % "by-hand").rstrip() + "\n  selector: {matchLabels: {tier: fast}}\n")
    cluster.settle()
    assert claim(cluster) == ("Bound", "b")


def test_a_pending_claim_is_bound_to_a_later_volume(cluster):
    cluster.apply(CLAIM % "by-hand")
    cluster.settle()
    assert claim(cluster) == ("Pending", None)
    cluster.apply(VOLUME % ("a", "t", "10Gi"))
    cluster.settle()
    assert claim(cluster) == ("Bound", "a")


WAITS = {"": "FailedBinding", "nowhere": "ProvisioningFailed", "late": "WaitForFirstConsumer"}


@pytest.mark.parametrize(("class_name", "reason"), WAITS.items())
def test_a_pending_claim_reports_what_it_waits_for(cluster, class_name, reason):
    cluster.apply(CLAIM % class_name)
    cluster.settle()
    assert claim(cluster) == ("Pending", None)
    assert told(cluster) == [reason]


def test_a_storage_class_created_later_is_used(cluster):
    cluster.delete("storageclasses", "quick")
    cluster.apply(CLAIM % "quick")
    cluster.settle()
    assert claim(cluster) == ("Pending", None)
    cluster.apply(CLASSES.split("---", maxsplit=1)[0])
    cluster.settle()
    assert claim(cluster)[0] == "Bound"


def select(node):
    return lambda held: held["metadata"].setdefault("annotations", {}).update({"volume.kubernetes.io/selected-node": node})


def test_a_volume_is_provisioned_on_the_selected_node(cluster):
    cluster.edit("nodes", "n2", lambda node: node["metadata"].update(labels={"zone": "b"}))
    cluster.apply(CLAIM % "late")
    cluster.settle()
    cluster.edit("persistentvolumeclaims", "data", select("n2"))
    cluster.settle()
    phase, name = claim(cluster)
    assert phase == "Bound"
    (term,) = cluster.get("persistentvolumes", name)["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "zone", "operator": "In", "values": ["b"]}]


def test_a_deleted_selected_node_is_cleared(cluster):
    cluster.apply(CLAIM % "late")
    cluster.edit("persistentvolumeclaims", "data", select("gone"))
    cluster.settle()
    assert "volume.kubernetes.io/selected-node" not in cluster.get("persistentvolumeclaims", "data")["metadata"].get(
        "annotations", {}
    )


def test_a_prebound_volume_is_bound_to_a_waiting_claim(cluster):
    cluster.apply(CLAIM % "late")
    cluster.apply(
        (VOLUME % ("a", "t", "10Gi"))
        .replace("by-hand", "late")
        .replace("spec:", "spec:\n  claimRef: {namespace: default, name: data}")
    )
    cluster.settle()
    assert claim(cluster) == ("Bound", "a")


def test_a_pod_waits_for_its_volume(cluster):
    cluster.apply(CLAIM % "by-hand")
    cluster.apply(POD)
    cluster.advance(5)
    assert cluster.get("pods", "web")["status"]["phase"] == "Pending"
    cluster.apply(VOLUME % ("a", "t", "10Gi"))
    cluster.advance(2)
    assert cluster.get("pods", "web")["status"]["phase"] == "Running"


def test_a_used_claim_stays_until_its_pod_is_deleted_and_its_volume_follows(cluster):
    cluster.apply(CLAIM % "quick")
    cluster.apply(POD)
    cluster.advance(2)
    cluster.delete("persistentvolumeclaims", "data")
    cluster.settle()
    assert claim(cluster)[0] == "Bound"
    cluster.delete("pods", "web")
    cluster.settle()
    assert cluster.get("persistentvolumeclaims", "data") is None
    assert cluster.all("persistentvolumes") == []


def test_a_claim_does_not_stay_for_a_pod_without_a_node(cluster):
    cluster.apply(CLAIM % "quick")
    cluster.apply(POD.replace("spec:", "spec:\n  schedulingGates: [{name: example.com/wait}]"))
    cluster.settle()
    cluster.delete("persistentvolumeclaims", "data")
    cluster.settle()
    assert cluster.get("persistentvolumeclaims", "data") is None
    assert cluster.get("pods", "web") is not None


def test_a_claim_stays_for_a_pod_that_ended_until_that_is_deleted(cluster):
    cluster.apply(CLAIM % "quick")
    cluster.apply(POD.replace("spec:", "spec:\n  restartPolicy: Never").replace("image: i", "image: i, command: ['true']"))
    cluster.advance(5)
    assert cluster.get("pods", "web")["status"]["phase"] == "Succeeded"
    cluster.delete("persistentvolumeclaims", "data")
    cluster.settle()
    assert claim(cluster)[0] == "Bound"
    cluster.delete("pods", "web")
    cluster.settle()
    assert cluster.get("persistentvolumeclaims", "data") is None


def test_a_retained_volume_becomes_released(cluster):
    cluster.apply(VOLUME % ("a", "t", "10Gi"))
    cluster.apply(CLAIM % "by-hand")
    cluster.settle()
    cluster.delete("persistentvolumeclaims", "data")
    cluster.settle()
    assert cluster.get("persistentvolumes", "a")["status"]["phase"] == "Released"
    cluster.apply(CLAIM % "by-hand")
    cluster.settle()
    assert claim(cluster) == ("Pending", None)


def test_a_bound_volume_is_not_deleted_under_its_claim(cluster):
    cluster.apply(VOLUME % ("a", "t", "10Gi"))
    cluster.apply(CLAIM % "by-hand")
    cluster.settle()
    cluster.delete("persistentvolumes", "a")
    cluster.settle()
    assert cluster.get("persistentvolumes", "a") is not None
    cluster.delete("persistentvolumeclaims", "data")
    cluster.settle()
    assert cluster.get("persistentvolumes", "a") is None
