"""Earlier releases through the program: the same cluster, and what each of them makes of it."""

from __future__ import annotations

import json

import pytest

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv, labels: {failure-domain.beta.kubernetes.io/zone: a}}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOncePod]
  storageClassName: local
  csi: {driver: csi.example.com, volumeHandle: one}
  claimRef: {kind: PersistentVolumeClaim, name: data, namespace: default, uid: u}
status: {phase: Bound}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default, uid: u, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec:
  accessModes: [ReadWriteOncePod]
  storageClassName: local
  volumeName: pv
  resources: {requests: {storage: 1Gi}}
status: {phase: Bound}
"""


def a_pod(name, node="", **spec):
    body = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {}), **spec}
    return "---\n" + json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}) + "\n"


def messages(moorage, folder, cluster, *options):
    """Return the message of each pending pod; the empty text for a placed one."""
    (folder / "cluster.yaml").write_text(cluster)
    ran = moorage("simulate", "-f", folder / "cluster.yaml", "-o", "json", *options)
    return {pod["name"]: pod.get("message", "") for pod in json.loads(ran.out)["pods"]}


OLD_ZONE = "0/1 nodes are available: 1 node(s) had no available volume zone."
TAKEN = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"

FORMERLY_TAKEN = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


def test_volume_plugins_follow_the_release(moorage, tmp_path):
    uses = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    cluster = CLUSTER + a_pod("held", "n1", **uses) + a_pod("new", **uses)
    assert messages(moorage, tmp_path, cluster, "--emulate", "1.21")["new"] == OLD_ZONE
    assert TAKEN in messages(moorage, tmp_path, cluster, "--emulate", "1.36")["new"]
    assert FORMERLY_TAKEN in messages(moorage, tmp_path, cluster, "--emulate", "1.33")["new"]
    same = cluster.replace("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
    assert messages(moorage, tmp_path, same, "--emulate", "1.21")["new"] == "", "the claim is shared"


@pytest.mark.parametrize(
    ("kubelet", "told"),
    [
        ("v1.33.3", "(kube-scheduler 1.33.3 semantics"),
        ("v1.34.5-gke.1", "note: the kubelets report 1.34.5; 1.34.7 is the nearest release that is known"),
        ("v1.38.0", "error: --emulate auto: release 1.38.0 is not known; the nearest is 1.37.2"),
        ("", "error: --emulate auto: no node has status.nodeInfo.kubeletVersion; name the release"),
    ],
)
def test_auto_is_the_release_of_the_kubelets(moorage, tmp_path, kubelet, told):
    of = f"status: {{nodeInfo: {{kubeletVersion: '{kubelet}'}}, allocatable"
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("status: {allocatable", of) + a_pod("new"))
    ran = moorage("simulate", "-f", tmp_path / "cluster.yaml", "--emulate", "auto")
    assert told in ran.out + ran.err


def disks(*names):
    return {"volumes": [{"name": name, "gcePersistentDisk": {"pdName": name}} for name in names]}


LIMITED = {  # options, is the pod with three disks placed?
    "what is usual": ([], True),
    "as many": (["--max-pd-vols", "3"], True),
    "fewer": (["--max-pd-vols", "2"], False),
}


@pytest.mark.parametrize(("options", "placed"), LIMITED.values(), ids=LIMITED)
def test_the_disk_limit_of_a_node_can_be_set(moorage, tmp_path, monkeypatch, options, placed):
    monkeypatch.setenv("KUBE_MAX_PD_VOLS", "1")  # which is for moorage run
    found = messages(moorage, tmp_path, CLUSTER + a_pod("new", **disks("a", "b", "c")), "--emulate", "1.21", *options)
    assert found["new"] == ("" if placed else "0/1 nodes are available: 1 node(s) exceed max volume count.")


def test_a_number_of_disks_is_above_0(moorage, tmp_path):
    ran = moorage("simulate", "-f", tmp_path, "--max-pd-vols", "0")
    assert ran.status == 1
    assert "Invalid value for '--max-pd-vols': 0 is not in the range x>=1." in ran.err


@pytest.mark.parametrize(("release", "kept"), [("1.20", False), ("1.21", True)])
def test_ephemeral_volumes_are_known_since_1_21(moorage, tmp_path, release, kept):
    claim = {
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}
    }
    pod = a_pod("new", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": claim}}])
    told = messages(moorage, tmp_path, CLUSTER + pod, "--emulate", release)["new"]
    assert bool(told) is kept, told
