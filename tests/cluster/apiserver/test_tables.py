"""Table rows, compared with those of kube-apiserver v1.36.2 for the same objects."""

import pytest

from moorage.api.documents.served_kinds import KINDS
from moorage.cluster.apiserver.tables.tables import table

NOW = 1_580_000_000.0  # 2020-01-26T00:53:20Z
MADE = "2020-01-26T00:52:20Z"  # a minute earlier
LONG_AGO = "2020-01-01T00:00:00Z"  # 25 days earlier


def cells(kind, document, group="", name="x"):
    found = next(one for one in KINDS if (one.group, one.kind) == (group, kind))
    document = {**document, "metadata": {"name": name, "creationTimestamp": MADE, **document.get("metadata", {})}}
    shown = table(found, [document], NOW, "None")
    (row,) = shown["rows"]
    return dict(zip((one["name"] for one in shown["columnDefinitions"]), row["cells"], strict=True)), row


def status(name, state, ready=False, restarts=0, **more):
    return {"name": name, "state": state, "ready": ready, "restartCount": restarts, **more}


INIT = {"initContainers": [{"name": "i", "image": "i"}]}
TWO_INITS = {"initContainers": [{"name": "i"}, {"name": "k"}]}
SIDECAR = {"initContainers": [{"name": "i", "restartPolicy": "Always"}]}
RUNS = {"running": {"startedAt": LONG_AGO}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
FAILED_BEFORE = {"lastState": {"terminated": {"exitCode": 3, "finishedAt": LONG_AGO}}}
GATED = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
INITIALIZED = [{"type": "Initialized", "status": "True"}]
READY = [{"type": "Ready", "status": "True"}]


def of(*containers, **more):
    return {"phase": "Running", "containerStatuses": list(containers), **more}


def starting(*inits, **more):
    return {"phase": "Pending", "initContainerStatuses": list(inits), **more}


PODS = {  # spec, status: ready, state, restarts
    "waits for a node": ({}, {"phase": "Pending"}, "0/2", "Pending", "0"),
    "is gated": ({}, {"phase": "Pending", "conditions": GATED}, "0/2", "SchedulingGated", "0"),
    "runs, restarted": (
        {}, of(status("c", RUNS, True, 3, **FAILED_BEFORE), status("d", RUNS, True, 1)), "2/2", "Running", "4 (25d ago)",
    ),
    "crashes": ({}, of(status("c", {"waiting": {"reason": "CrashLoopBackOff"}}, restarts=3), status("d", DONE)), "0/2",
                "CrashLoopBackOff", "3"),
    "one is done, and it is ready": ({}, of(status("c", DONE), status("d", RUNS, True), conditions=READY), "1/2",
                                     "Running", "0"),
    "one is done, and it is not": ({}, of(status("c", DONE), status("d", RUNS, True)), "1/2", "NotReady", "0"),
    "ended with a code and a signal": (
        {}, of(status("c", {"terminated": {"exitCode": 7}}), status("d", {"terminated": {"exitCode": 137, "signal": 9}}),
               phase="Failed"),
        "0/2", "ExitCode:7", "0",
    ),
    "failed before it was done": (
        {}, of(status("c", DONE), status("d", {"terminated": {"exitCode": 2, "reason": "Error"}})), "0/2", "Error", "0",
    ),
    "was evicted": ({}, {"phase": "Failed", "reason": "Evicted"}, "0/2", "Evicted", "0"),
    "initialises its second": (
        TWO_INITS, starting(status("i", {"terminated": {"exitCode": 0}}, True, 2), status("k", RUNS)), "0/2", "Init:1/2", "2",
    ),
    "failed to initialise": (
        INIT, starting(status("i", {"terminated": {"exitCode": 3}}, restarts=2, **FAILED_BEFORE)),
        "0/2", "Init:ExitCode:3", "2 (25d ago)",
    ),
    "was killed initialising": (
        INIT, starting(status("i", {"terminated": {"exitCode": 3, "signal": 9}}, restarts=2)), "0/2", "Init:Signal:9", "2",
    ),
    "waits to initialise again": (
        INIT, starting(status("i", {"waiting": {"reason": "CrashLoopBackOff"}}, restarts=2)), "0/2",
        "Init:CrashLoopBackOff", "2",
    ),
    "begins to initialise": (INIT, starting(status("i", {"waiting": {"reason": "PodInitializing"}})), "0/2", "Init:0/1", "0"),
    "was initialised": (
        INIT, of(status("c", {"running": {}}, True), status("d", {"running": {}}), conditions=INITIALIZED,
                 initContainerStatuses=[status("i", {"terminated": {"exitCode": 0}}, True, 2)]),
        "1/2", "Running", "0",
    ),
    "has a sidecar": (
        SIDECAR, of(status("c", {"running": {}}, True), status("d", {"running": {}}), conditions=INITIALIZED,
                    initContainerStatuses=[status("i", RUNS, True, 2, started=True, **FAILED_BEFORE)]),
        "2/3", "Running", "2 (25d ago)",
    ),
    "starts its sidecar": (SIDECAR, starting(status("i", RUNS, restarts=2)), "0/3", "Init:0/1", "2"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "found", "ready", "state", "restarts"), PODS.values(), ids=PODS)
def test_status_of_a_pod(spec, found, ready, state, restarts):
    spec = {"containers": [{"name": "c"}, {"name": "d"}], **spec}
    shown, _ = cells("Pod", {"spec": spec, "status": found})
    assert (shown["Ready"], shown["Status"], shown["Restarts"], shown["Age"]) == (ready, state, restarts, "60s")


GOING = {  # status of a pod that is being deleted: its state
    "runs": ({"phase": "Running"}, "Terminating"),
    "is lost": ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
    "has ended": ({"phase": "Succeeded"}, "Succeeded"),
}


@pytest.mark.parametrize(("found", "state"), GOING.values(), ids=GOING)
def test_status_of_a_terminating_pod(found, state):
    shown, row = cells("Pod", {"metadata": {"deletionTimestamp": MADE}, "spec": {"containers": []}, "status": found})
    assert shown["Status"] == state
    assert [one["reason"] for one in row.get("conditions", ())] == (["Succeeded"] if state == "Succeeded" else [])


def test_wide_cells_of_a_pod():
    gates = [{"conditionType": "a/b"}, {"conditionType": "c/d"}]
    found = {"phase": "Running", "podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::1"}], "nominatedNodeName": "n2",
             "conditions": [{"type": "a/b", "status": "True"}]}  # fmt: skip
    shown, row = cells("Pod", {"spec": {"containers": [], "readinessGates": gates, "nodeName": "n1"}, "status": found})
    wide = [shown[name] for name in ("IP", "Node", "Nominated Node", "Readiness Gates")]
    assert wide == ["10.0.0.2", "n1", "n2", "1/2"]
    assert row["object"] is None


TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "nginx:1"}, {"name": "d", "image": "x/y:2"}]}}
SELECTOR = {
    "matchLabels": {"a": "b"},
    "matchExpressions": [
        {"key": "z", "operator": "In", "values": ["2", "1"]}, {"key": "y", "operator": "Exists"},
        {"key": "x", "operator": "DoesNotExist"}, {"key": "w", "operator": "NotIn", "values": ["q"]},
    ],
}  # fmt: skip
SHOWN_SELECTOR = "a=b,w notin (q),!x,y,z in (1,2)"
OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "w", "controller": True}
LOAD_BALANCER = {"loadBalancer": {"ingress": [{"ip": "5.6.7.8"}, {"hostname": "h.example"}]}}
EVENT = {"involvedObject": {"kind": "Pod", "name": "run", "fieldPath": "spec.containers{c}"}, "reason": "R", "type": "Normal",
         "message": " hello \n"}  # fmt: skip
REPORTED = {"reportingComponent": "rc", "reportingInstance": "ri", "eventTime": "2020-01-01T00:00:00.000000Z"}
PLACES = [{"ip": f"1.1.1.{i}"} for i in range(1, 5)]
JOB = {"template": TEMPLATE, "selector": SELECTOR}


def job(*conditions, **more):
    return {"conditions": [{"type": one, "status": "True"} for one in conditions], **more}


OBJECTS = {  # group and kind, object: cells but the name and the age
    "a deployment": (
        ("apps", "Deployment"),
        {"spec": {"replicas": 3, "template": TEMPLATE, "selector": SELECTOR},
         "status": {"readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2}},
        ["2/3", 1, 2, "c,d", "nginx:1,x/y:2", SHOWN_SELECTOR],
    ),
    "a replica set": (
        ("apps", "ReplicaSet"),
        {"spec": {"replicas": 3, "template": TEMPLATE, "selector": SELECTOR}, "status": {"replicas": 2}},
        [3, 2, 0, "c,d", "nginx:1,x/y:2", SHOWN_SELECTOR],
    ),
    "a replication controller": (
        ("", "ReplicationController"), {"spec": {"replicas": 2, "template": TEMPLATE, "selector": {"a": "b"}},
                                        "status": {"replicas": 2, "readyReplicas": 1}},
        [2, 2, 1, "c,d", "nginx:1,x/y:2", "a=b"],
    ),
    "a stateful set": (("apps", "StatefulSet"), {"spec": {"replicas": 2, "template": TEMPLATE}, "status": {"readyReplicas": 1}},
                       ["1/2", "c,d", "nginx:1,x/y:2"]),
    "a daemon set": (
        ("apps", "DaemonSet"),
        {"spec": {"selector": SELECTOR, "template": {"spec": {"containers": [], "nodeSelector": {"k": "v", "j": "w"}}}},
         "status": {"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2,
                    "numberAvailable": 1}},
        [5, 4, 3, 2, 1, "j=w,k=v", "", "", SHOWN_SELECTOR],
    ),
    "a revision": (("apps", "ControllerRevision"), {"metadata": {"ownerReferences": [OWNER]}, "revision": 3},
                   ["daemonset.apps/w", 3]),
    "a revision without an owner": (("apps", "ControllerRevision"), {"revision": 1}, ["<none>", 1]),
    "a new job": (("batch", "Job"), {"spec": {**JOB, "parallelism": 1}, "status": {}},
                  ["Running", "0/1", "", "c,d", "nginx:1,x/y:2", SHOWN_SELECTOR]),
    "a job that is done": (
        ("batch", "Job"),
        {"spec": {**JOB, "completions": 3},
         "status": job("SuccessCriteriaMet", "Complete", succeeded=3, startTime=LONG_AGO,
                       completionTime="2020-01-01T00:05:00Z")},
        ["Complete", "3/3", "5m", "c,d", "nginx:1,x/y:2", SHOWN_SELECTOR],
    ),
    "a job about to fail": (
        ("batch", "Job"), {"spec": {**JOB, "parallelism": 4}, "status": job("FailureTarget", startTime=LONG_AGO)},
        ["FailureTarget", "0/1 of 4", "25d", "c,d", "nginx:1,x/y:2", SHOWN_SELECTOR],
    ),
    "a job that goes": (
        ("batch", "Job"), {"metadata": {"deletionTimestamp": MADE}, "spec": JOB, "status": job("Suspended")},
        ["Terminating", "0/1", "", "c,d", "nginx:1,x/y:2", SHOWN_SELECTOR],
    ),
    "a cron job": (
        ("batch", "CronJob"),
        {"spec": {"schedule": "@daily", "timeZone": "Etc/UTC", "suspend": True,
                  "jobTemplate": {"spec": {"template": TEMPLATE}}},
         "status": {"active": [{"name": "x"}], "lastScheduleTime": LONG_AGO}},
        ["@daily", "Etc/UTC", "True", 1, "25d", "c,d", "nginx:1,x/y:2", "<none>"],
    ),
    "a budget": (("policy", "PodDisruptionBudget"), {"spec": {"maxUnavailable": 0}, "status": {}}, ["N/A", "0", 0]),
    "a headless service": (("", "Service"), {"spec": {"type": "ClusterIP", "clusterIPs": ["None"], "ports": [
        {"port": 80, "protocol": "TCP"}]}}, ["ClusterIP", "None", "<none>", "80/TCP", "<none>"]),
    "a name": (("", "Service"), {"spec": {"type": "ExternalName", "externalName": "a.b.c"}},
               ["ExternalName", "<none>", "a.b.c", "<none>", "<none>"]),
    "a port of nodes": (
        ("", "Service"),
        {"spec": {"type": "NodePort", "clusterIP": "10.0.0.9", "externalIPs": ["1.2.3.4", "1.2.3.5"],
                  "selector": {"b": "c", "a": "b"},
                  "ports": [{"port": 80, "nodePort": 30793}, {"port": 81, "nodePort": 30162, "protocol": "UDP"}]}},
        ["NodePort", "10.0.0.9", "1.2.3.4,1.2.3.5", "80:30793/TCP,81:30162/UDP", "a=b,b=c"],
    ),
    "a balancer to come": (("", "Service"), {"spec": {"type": "LoadBalancer"}},
                           ["LoadBalancer", "<none>", "<pending>", "<none>", "<none>"]),
    "a balancer": (
        ("", "Service"), {"spec": {"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]}, "status": LOAD_BALANCER},
        ["LoadBalancer", "<none>", "5.6.7.8,h.example,9.9.9.9", "<none>", "<none>"],
    ),
    "endpoints": (("", "Endpoints"), {"subsets": [{"addresses": PLACES, "ports": [{"port": 80}]}]},
                  ["1.1.1.1:80,1.1.1.2:80,1.1.1.3:80 + 1 more..."]),
    "endpoints nowhere": (("", "Endpoints"), {}, ["<none>"]),
    "a volume": (
        ("", "PersistentVolume"),
        {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany", "ReadWriteOnce"], "storageClassName": "k",
                  "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"},
                  "volumeMode": "Filesystem"}, "status": {"phase": "Failed", "reason": "Bad"}},
        ["1Gi", "RWO,ROX", "Retain", "Failed", "n/c", "k", "<unset>", "Bad", "Filesystem"],
    ),
    "a claim": (
        ("", "PersistentVolumeClaim"),
        {"spec": {"volumeName": "v", "storageClassName": "k", "volumeMode": "Filesystem"},
         "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}},
        ["Bound", "v", "2Gi", "RWO,RWX", "k", "<unset>", "Filesystem"],
    ),
    "a claim that goes": (
        ("", "PersistentVolumeClaim"), {"metadata": {"deletionTimestamp": MADE}, "spec": {}, "status": {"phase": "Pending"}},
        ["Terminating", "", "", "", "", "<unset>", "<unset>"],
    ),
    "a driver": (
        ("storage.k8s.io", "CSIDriver"),
        {"spec": {"tokenRequests": [{"audience": "a"}, {"audience": "b"}],
                  "volumeLifecycleModes": ["Persistent", "Ephemeral"]}},
        [True, False, False, "a,b", False, "Persistent,Ephemeral"],
    ),
    "a node's drivers": (("storage.k8s.io", "CSINode"), {"spec": {"drivers": [{"name": "a"}]}}, [1]),
    "an attachment": (("storage.k8s.io", "VolumeAttachment"),
                      {"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}},
                      ["a", "pv", "n", False]),
    "a reserved claim": (("resource.k8s.io", "ResourceClaim"), {"status": {"allocation": {}, "reservedFor": [{}]}},
                         ["allocated,reserved"]),
    "a claim to come": (("resource.k8s.io", "ResourceClaim"), {}, ["pending"]),
    "a gone claim": (("resource.k8s.io", "ResourceClaim"),
                     {"metadata": {"deletionTimestamp": MADE}, "status": {"allocation": {}}},
                     ["deleted,allocated"]),
    "a slice": (("resource.k8s.io", "ResourceSlice"), {"spec": {"driver": "d.example", "pool": {"name": "p"}}},
                ["", "d.example", "p"]),
    "a node": (
        ("", "Node"),
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/": "",
                                 "kubernetes.io/role": "boss"}},
         "spec": {"unschedulable": True},
         "status": {"conditions": [{"type": "Ready", "status": "False"}],
                    "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}, {"type": "InternalIP", "address": "1.1.1.2"}],
                    "nodeInfo": {"kubeletVersion": "v1.2", "kernelVersion": "k", "architecture": "amd64"}}},
        ["NotReady,SchedulingDisabled", "boss,control-plane", "v1.2", "1.1.1.1", "<none>", "<unknown>", "k (amd64)",
         "<unknown>"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "document", "expected"), OBJECTS.values(), ids=OBJECTS)
def test_cells_of_other_kinds(kind, document, expected):
    shown, _ = cells(kind[1], document, kind[0])
    assert (shown.pop("Name"), shown.pop("Age")) == ("x", "60s")
    assert list(shown.values()) == expected


EVENTS = {  # event: last seen, source, first seen, count
    "of a component": ({"source": {"component": "k", "host": "h"}, "firstTimestamp": LONG_AGO, "lastTimestamp": LONG_AGO,
                        "count": 3}, ["25d", "k, h", "25d", 3]),
    "without any time": ({}, ["<unknown>", "", "<unknown>", 1]),
    "reported once": (REPORTED, ["25d", "rc, ri", "25d", 1]),
    "a series": ({**REPORTED, "series": {"count": 5, "lastObservedTime": "2020-01-02T00:00:00.000000Z"}},
                 ["24d", "rc, ri", "25d", 5]),
}  # fmt: skip


@pytest.mark.parametrize(("event", "expected"), EVENTS.values(), ids=EVENTS)
def test_cells_of_an_event(event, expected):
    shown, _ = cells("Event", {**EVENT, **event})
    assert [shown[name] for name in ("Last Seen", "Source", "First Seen", "Count")] == expected
    assert [shown[name] for name in ("Object", "Subobject", "Message")] == ["pod/run", "spec.containers{c}", "hello"]


def test_some_kinds_show_their_creation_time():
    for group, kind in (("", "LimitRange"), ("rbac.authorization.k8s.io", "Role"), ("storage.k8s.io", "CSIStorageCapacity")):
        assert cells(kind, {}, group)[0] == {"Name": "x", "Created At": MADE}


def test_the_default_class_is_marked():
    annotated = {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "a/b"}
    shown, _ = cells("StorageClass", annotated, "storage.k8s.io")
    assert list(shown.values()) == ["x (default)", "a/b", "Delete", "Immediate", False, "60s"]


def test_columns_state_their_type():
    kind = next(one for one in KINDS if one.kind == "CSIDriver")
    columns = {
        one["name"]: (one["type"], one["format"], one["priority"]) for one in table(kind, [], NOW, "None")["columnDefinitions"]
    }
    assert columns["Name"] == ("string", "name", 0)
    assert columns["AttachRequired"] == ("boolean", "", 0)
    assert table(kind, [], NOW, "None", heading=False)["columnDefinitions"] is None
