"""``moorage run`` on a whole cluster: controllers finish what it begins. On ``moorage up``, and on a real one if it is named.

The real one is that of MOORAGE_TEST_KUBECONFIG, whose user must be allowed to do everything. If MOORAGE_TEST_KUBE_SCHEDULER
names a program, that schedules on ``moorage up``, too: a cluster that is good for kube-scheduler.
"""

import http.client
import os
import signal
import ssl
import time

import pytest

from tests.live.server.whole_cluster import (
    CLAIMS,
    JSON_PATCH,
    MERGE,
    NAMED,
    OURS,
    RBAC,
    SLICES,
    STORAGE,
    THEIRS,
    Refused,
    a_cluster,
)
from tests.ports import reserve_port

pytestmark = pytest.mark.slow

WAITS = "WaitForFirstConsumer"


@pytest.fixture(scope="module", params=["embedded", "real", "kube-scheduler"])
def cluster(request, tmp_path_factory):
    """The cluster; where it is called kube-scheduler, that of ``moorage up``, with kube-scheduler in the place of ours."""
    is_real = request.param == "real"
    if request.param == "kube-scheduler":
        if THEIRS not in os.environ:
            pytest.skip(f"{THEIRS} names no program")
        with a_cluster(tmp_path_factory.mktemp("cluster"), is_real=False, program=os.environ[THEIRS]) as made:
            yield made
        return
    if is_real and NAMED not in os.environ:
        pytest.skip(f"{NAMED} names no cluster")
    with a_cluster(tmp_path_factory.mktemp("cluster"), is_real=is_real) as made:
        yield made


@pytest.fixture
def place(cluster):
    with cluster.place() as made:
        yield made


def test_pods_are_placed_explained_and_preempted(place):
    place.node("n1")
    place.make(
        "/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass", place.named("high"), "scheduling.k8s.io/v1",
        namespaced=False, value=9,
    )  # fmt: skip
    place.scheduler()
    place.pod("low", cpu="2", terminationGracePeriodSeconds=30)
    place.pod("stuck", cpu="8")
    assert place.bound("low") == ["n1"]
    condition = place.until(lambda: place.condition("stuck"))
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"].endswith(" Preemption is not helpful for scheduling.")
    place.ask("PATCH", f"{place.pods}/low/status", {"status": {"phase": "Running"}}, MERGE)
    place.pod("high", cpu="2", priorityClassName=place.named("high"))
    mark = place.until(lambda: place.condition("low", "DisruptionTarget") if _ends(place, "low") else None)
    assert (mark["status"], mark["reason"]) == ("True", "PreemptionByScheduler")
    assert place.get("low")["metadata"]["deletionGracePeriodSeconds"] == 30
    assert place.until(lambda: place.get("high")["status"].get("nominatedNodeName")) == place.named("n1")
    place.end("low")
    assert place.bound("high") == ["n1"]
    assert "nominatedNodeName" not in place.until(lambda: place.condition("high") and place.get("high"))["status"]
    (preempted,) = place.until(lambda: place.events("Preempted", "low"))
    assert "related" not in preempted  # as of kube-scheduler, which cannot name a pod there
    (scheduled,) = place.until(lambda: place.events("Scheduled", "high"))
    said = [scheduled[key] for key in ("type", "action", "note", "reportingController")]
    assert said == ["Normal", "Binding", f"Successfully assigned {place.name}/high to {place.named('n1')}", place.name]
    (failed, *_) = place.until(lambda: place.events("FailedScheduling", "stuck"))
    assert (failed["type"], failed["action"]) == ("Warning", "Scheduling")
    assert place.complaints() == []


def _ends(place, name):
    try:
        return place.get(name)["metadata"].get("deletionTimestamp")
    except Refused:
        return False


def test_two_schedulers_share_a_cluster_by_scheduler_name(place):
    """The cluster's program, and ours beside it: each places the pods that ask for it, and neither those of the other."""
    for number in range(3):
        place.node(f"n{number}", cpu="8")
    place.scheduler(leads=False)
    place.scheduler(leads=False, program=OURS, profile=place.named("second"))
    names = [f"p{number}" for number in range(12)]
    for name in names:
        place.pod(name, cpu="500m", schedulerName=place.name if name in names[::2] else place.named("second"))
    place.bound(*names)
    told = place.until(lambda: (found := place.events("Scheduled")) and len(found) == len(names) and found)
    who = {one["regarding"]["name"]: one["reportingController"] for one in told}
    assert who == {name: place.name if name in names[::2] else place.named("second") for name in names}
    assert place.complaints() == []


def test_scheduling_gates_hold_a_pod_until_they_are_removed(place):
    place.node("n1")
    place.scheduler()
    place.pod("gated", schedulingGates=[{"name": "example.com/g"}])
    place.pod("free")
    place.bound("free")
    assert place.condition("gated")["reason"] == "SchedulingGated"
    place.ask("PATCH", f"{place.pods}/gated", [{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH)
    assert place.bound("gated") == ["n1"]
    assert place.complaints() == []


def test_a_claim_is_bound_to_a_volume_on_the_node_of_its_pod(place):
    """The volume is there, and the scheduler says whose it is; the controller has the last word."""
    place.node("n1", disk="no")
    place.node("n2", disk="yes")
    _storage_class(place, "kubernetes.io/no-provisioner")
    place.make(
        "/api/v1/persistentvolumes", "PersistentVolume", place.named("v"), namespaced=False,
        spec={
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": place.named("sc"),
            "local": {"path": "/nowhere"}, "persistentVolumeReclaimPolicy": "Retain",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["yes"]}]},
            ]}},
        },
    )  # fmt: skip
    place.scheduler()
    _claim(place)
    assert place.bound("user") == ["n2"]
    claim = place.ask("GET", f"{place.inside}/persistentvolumeclaims/c")
    assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == ("Bound", place.named("v"))
    assert claim["metadata"]["annotations"].get("volume.kubernetes.io/selected-node") in {None, place.named("n2")}
    assert place.complaints() == []


def test_a_volume_is_provisioned_for_the_selected_node(place):
    """The scheduler names the node; who makes volumes of that class is played here."""
    place.node("n1")
    _storage_class(place, "example.com/maker")
    place.scheduler()
    _claim(place)
    path = f"{place.inside}/persistentvolumeclaims/c"
    node = "volume.kubernetes.io/selected-node"
    claim = place.until(lambda: (one := place.ask("GET", path))["metadata"].get("annotations", {}).get(node) and one)
    assert claim["metadata"]["annotations"][node] == place.named("n1")
    # No volume is there yet, unless the controllers of `moorage up` were quick: they provision for every class.
    assert place.node_of("user") in {"", "n1", place.named("n1")}
    meta = claim["metadata"]
    place.make(
        "/api/v1/persistentvolumes", "PersistentVolume", place.named("v"), namespaced=False,
        spec={
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": place.named("sc"),
            "hostPath": {"path": "/nowhere"}, "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"kind": "PersistentVolumeClaim", "name": "c", "namespace": place.name, "uid": meta["uid"]},
        },
    )  # fmt: skip
    assert place.bound("user") == ["n1"]
    assert place.complaints() == []


def _storage_class(place, provisioner):
    more = {"provisioner": provisioner, "volumeBindingMode": WAITS}
    place.make(STORAGE, "StorageClass", place.named("sc"), "storage.k8s.io/v1", namespaced=False, **more)


def _claim(place):
    wants = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    path = f"{place.inside}/persistentvolumeclaims"
    place.make(path, "PersistentVolumeClaim", "c", spec={**wants, "storageClassName": place.named("sc")})
    place.pod("user", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])


def test_devices_are_allocated_and_released(place):
    """One device, two pods by template: the second gets it when the first is gone."""
    place.node("n1")
    driver = f"{place.name}.example.com"
    place.make(
        f"{CLAIMS}/deviceclasses", "DeviceClass", place.named("d"), "resource.k8s.io/v1", namespaced=False,
        spec={"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
    )  # fmt: skip
    place.make(
        SLICES, "ResourceSlice", place.named("s"), "resource.k8s.io/v1", namespaced=False,
        spec={
            "driver": driver, "nodeName": place.named("n1"), "devices": [{"name": "d0"}],
            "pool": {"name": place.named("n1"), "generation": 1, "resourceSliceCount": 1},
        },
    )  # fmt: skip
    requests = [{"name": "r", "exactly": {"deviceClassName": place.named("d")}}]
    place.make(
        f"{CLAIMS}/namespaces/{place.name}/resourceclaimtemplates", "ResourceClaimTemplate", "t", "resource.k8s.io/v1",
        spec={"spec": {"devices": {"requests": requests}}},
    )  # fmt: skip
    place.scheduler()
    wants = {
        "resourceClaims": [{"name": "d", "resourceClaimTemplateName": "t"}],
        "resources": {"claims": [{"name": "d"}]},
        "terminationGracePeriodSeconds": 0,
    }
    place.pod("first", cpu="100m", **wants)
    assert place.bound("first") == ["n1"]
    (claim,) = place.ask("GET", f"{CLAIMS}/namespaces/{place.name}/resourceclaims")["items"]
    (given,) = claim["status"]["allocation"]["devices"]["results"]
    assert (given["driver"], given["device"], given["pool"]) == (driver, "d0", place.named("n1"))
    assert [one["name"] for one in claim["status"]["reservedFor"]] == ["first"]
    place.pod("second", cpu="100m", **wants)
    condition = place.until(lambda: _unschedulable(place, "second", "cannot allocate all claims"))
    assert "1 cannot allocate all claims" in condition["message"]
    place.end("first")
    assert place.bound("second") == ["n1"]
    assert place.complaints() == []


def _unschedulable(place, name, text):
    condition = place.condition(name)
    return condition if text in condition.get("message", "") else None


def test_replicas_compete_for_one_lease(place):
    place.node("n1")
    first = place.scheduler()
    place.until(place.holder)
    second = place.scheduler()
    place.pod("one", cpu="100m")
    place.bound("one")
    place.until(lambda: "Handlers synced" in second.log.read_text())
    holder = place.holder()
    begin = time.monotonic()
    first.send_signal(signal.SIGTERM)
    place.pod("two", cpu="100m")
    place.bound("two")
    assert time.monotonic() - begin < 5.0 + 3.0  # five are promised; the machine may be busy
    assert first.wait(10) == 0
    assert place.holder() not in {"", holder}
    assert place.until(lambda: place.events("LeaderElection"))
    second.send_signal(signal.SIGTERM)
    assert second.wait(10) == 0
    assert place.complaints() == []


def test_the_cache_matches_the_api_server(place):
    place.node("n1")
    process = place.scheduler(leads=False)
    names = [f"p{number}" for number in range(5)]
    for name in names:
        place.pod(name, cpu="100m")
    place.bound(*names)
    time.sleep(0.2)
    process.send_signal(signal.SIGUSR2)
    place.until(lambda: "Dump of scheduling queue" in process.log.read_text())
    assert "Cache mismatch" not in process.log.read_text()
    assert place.complaints() == []


def test_access_to_metrics_is_authorized_by_the_cluster(place):
    """Tokens are reviewed there, and so is what their owners may."""
    port = reserve_port()
    place.make(
        f"{RBAC}/clusterroles", "ClusterRole", place.named("m"), "rbac.authorization.k8s.io/v1", namespaced=False,
        rules=[{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    )  # fmt: skip
    place.make(
        f"{RBAC}/clusterrolebindings", "ClusterRoleBinding", place.named("m"), "rbac.authorization.k8s.io/v1", namespaced=False,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": place.named("m")},
        subjects=[{"kind": "ServiceAccount", "name": "known", "namespace": place.name}],
    )  # fmt: skip
    known, other = place.token("known"), place.token("other")
    process = place.scheduler(f"--secure-port={port}", leads=False, delegates=True)
    place.until(lambda: "Serving securely on" in process.log.read_text())
    place.until(lambda: "Handlers synced" in process.log.read_text())
    assert [_status(port, "/metrics", token) for token in (known, other, "", "made up")] == [200, 403, 403, 401]
    assert [_status(port, path, "") for path in ("/healthz", "/livez", "/readyz")] == [200, 200, 200]
    (complaint,) = place.complaints()
    assert "invalid bearer token" in complaint


def _status(port, path, token):
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=ssl._create_unverified_context())
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status
    finally:
        connection.close()
