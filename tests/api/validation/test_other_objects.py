"""Test what the API server rejects in nodes, workloads, storage and device objects."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.core import LimitRange, Namespace, Node, ReplicationController
from moorage.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from moorage.api.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttributesClass,
)
from moorage.api.validation import validate
from moorage.api.workloads import (
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    StatefulSet,
)

META = {"name": "x", "namespace": "default"}


def faults(kind: type, data: dict) -> list[str]:
    """Return ``path: kind of fault`` for each fault."""
    found = msgspec.convert({"metadata": META, **data}, kind)
    return [f"{fault.field}: {fault.kind}" for fault in validate(found)]


def expression(operator: str, *values: str, key: str = "k") -> dict:
    return {"key": key, "operator": operator, "values": list(values)}


# -- nodes and the cluster ------------------------------------------------------------------------------------------------


def taint(effect: str = "NoSchedule", key: str = "k", value: str = "") -> dict:
    return {"key": key, "value": value, "effect": effect}


NODES = {
    "sound": ({"spec": {"taints": [taint(), taint("NoExecute")]}, "status": {"allocatable": {"cpu": "4", "pods": "110"}}}, []),
    "an empty node": ({}, []),
    "taint twice": ({"spec": {"taints": [taint(value="a"), taint(value="b")]}}, ["metadata.taints[1]: Duplicate value"]),
    "taint effect": ({"spec": {"taints": [taint("Foo")]}}, ["metadata.taints[0].effect: Unsupported value"]),
    "no taint effect": ({"spec": {"taints": [taint("")]}}, ["metadata.taints[0].effect: Required value"]),
    "no taint key": ({"spec": {"taints": [taint(key="")]}}, ["metadata.taints[0].key: Invalid value"] * 2),
    "taint value": ({"spec": {"taints": [taint(value="a b")]}}, ["metadata.taints[0].value: Invalid value"]),
    "negative": ({"status": {"allocatable": {"cpu": "-1"}}}, ["status.allocatable.cpu: Invalid value"]),
    "no number": ({"status": {"capacity": {"memory": "NaN"}}}, ["status.capacity.memory: Invalid value"]),
    "a fractional number of pods": ({"status": {"capacity": {"pods": "1.5"}}}, ["status.capacity.pods: Invalid value"]),
    "no pods": ({"status": {"allocatable": {"pods": "0"}}}, []),
    "more allocatable than capacity": ({"status": {"capacity": {"cpu": "1"}, "allocatable": {"cpu": "2"}}}, []),
    "10 000 labels": ({"metadata": {"name": "x", "labels": {f"k{i}": "v" for i in range(10_000)}}}, []),
    "an address as name": ({"metadata": {"name": "10.0.0.1"}}, []),
    "in a namespace": ({"metadata": {"name": "x", "namespace": "a"}}, ["metadata.namespace: Forbidden"]),
}


@pytest.mark.parametrize(("node", "expected"), NODES.values(), ids=NODES)
def test_nodes(node, expected):
    assert faults(Node, {"metadata": {"name": "x"}, **node}) == expected


OTHERS = {  # kind, object → faults
    "namespace": (Namespace, {"metadata": {"name": "a.b"}}, ["metadata.name: Invalid value"]),
    "limit range": (
        LimitRange,
        {"spec": {"limits": [{"type": "Container", "max": {"cpu": "-1"}}]}},
        [],
    ),
    "limit range with a type twice": (
        LimitRange,
        {"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}},
        ["spec.limits[1].type: Duplicate value"],
    ),
    "limit range of pods": (
        LimitRange,
        {"spec": {"limits": [{"type": "Pod", "default": {"cpu": "1"}}]}},
        ["spec.limits[0].default: Forbidden"],
    ),
    "priority class": (PriorityClass, {"metadata": {"name": "x"}, "value": 10**9}, []),
    "priority class above the maximum": (PriorityClass, {"metadata": {"name": "x"}, "value": 10**9 + 1}, ["value: Forbidden"]),
    "priority class with a system name": (
        PriorityClass,
        {"metadata": {"name": "system-mine"}, "value": 1},
        ["metadata.name: Forbidden"],
    ),
    "built-in priority class": (PriorityClass, {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}, []),
    "priority class policy": (
        PriorityClass,
        {"metadata": {"name": "x"}, "preemptionPolicy": "Maybe"},
        ["preemptionPolicy: Unsupported value"],
    ),
    "budget": (PodDisruptionBudget, {"spec": {"minAvailable": "50%", "selector": {}}}, []),
    "budget with both fields": (
        PodDisruptionBudget,
        {"spec": {"minAvailable": 1, "maxUnavailable": 1}},
        ["spec: Invalid value"],
    ),
    "budget in percent": (PodDisruptionBudget, {"spec": {"minAvailable": "101%"}}, ["spec.minAvailable: Invalid value"]),
    "budget with an invalid value": (
        PodDisruptionBudget,
        {"spec": {"maxUnavailable": "most"}},
        ["spec.maxUnavailable: Invalid value"],
    ),
    "negative budget": (PodDisruptionBudget, {"spec": {"maxUnavailable": -1}}, ["spec.maxUnavailable: Invalid value"]),
    "budget selector": (
        PodDisruptionBudget,
        {"spec": {"selector": {"matchExpressions": [expression("Foo")]}}},
        ["spec.selector.matchExpressions[0].operator: Invalid value"],
    ),
    "negative disruptions allowed": (
        PodDisruptionBudget,
        {"status": {"disruptionsAllowed": -1}},
        ["status.disruptionsAllowed: Invalid value"],
    ),
}


@pytest.mark.parametrize(("kind", "data", "expected"), OTHERS.values(), ids=OTHERS)
def test_other_objects(kind, data, expected):
    assert faults(kind, data) == expected


# -- workloads ----------------------------------------------------------------------------------------------------------

TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}}
SELECTOR = {"matchLabels": {"app": "a"}}
WORKLOAD = {"selector": SELECTOR, "template": TEMPLATE}
MISMATCH = "spec.template.metadata.labels: Invalid value"
WORKLOADS = {
    "sound": ({}, []),
    "replicas -1": ({"replicas": -1}, ["spec.replicas: Invalid value"]),
    "replicas 2^31": ({"replicas": 2**31}, ["spec.replicas: Invalid value"]),
    "no selector": ({"selector": None}, ["spec.selector: Required value", MISMATCH]),
    "an empty selector": ({"selector": {}}, ["spec.selector: Invalid value"]),
    "a selector of other labels": ({"selector": {"matchLabels": {"app": "b"}}}, [MISMATCH]),
    "an invalid selector": (
        {"selector": {"matchExpressions": [expression("Foo")]}},
        ["spec.selector.matchExpressions[0].operator: Invalid value", "spec.selector: Invalid value"],
    ),
    "an invalid template": (
        {"template": {**TEMPLATE, "spec": {"containers": []}}},
        ["spec.template.spec.containers: Required value"],
    ),
    "restart policy Never": (
        {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}},
        ["spec.template.spec.restartPolicy: Unsupported value"],
    ),
}


@pytest.mark.parametrize("kind", [Deployment, ReplicaSet, StatefulSet, DaemonSet])
@pytest.mark.parametrize(("changes", "expected"), WORKLOADS.values(), ids=WORKLOADS)
def test_workloads(kind, changes, expected):
    if kind is DaemonSet and "replicas" in changes:
        expected = []
    if kind is DaemonSet and {"spec.selector: Required value", "spec.selector: Invalid value"} & {*expected} and expected[1:]:
        expected = [one for one in expected if not one.startswith("spec.selector: ")]  # its selector has fewer checks
    assert faults(kind, {"spec": {**WORKLOAD, **changes}}) == expected


def test_stateful_sets():
    assert faults(StatefulSet, {"spec": {**WORKLOAD, "podManagementPolicy": "Slow", "ordinals": {"start": -1}}}) == [
        "spec.podManagementPolicy: Invalid value",
        "spec.ordinals.start: Invalid value",
    ]


def test_replication_controllers():
    assert faults(ReplicationController, {"spec": {"selector": {"app": "a"}, "template": TEMPLATE}}) == []
    assert faults(ReplicationController, {"spec": {}}) == ["spec.selector: Required value", "spec.template: Required value"]
    assert faults(ReplicationController, {"spec": {"selector": {"app": "b"}, "template": TEMPLATE}}) == [MISMATCH]


ONCE = {"metadata": TEMPLATE["metadata"], "spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}
JOBS = {
    "sound": ({"template": ONCE, "parallelism": 2, "completions": 5, "completionMode": "Indexed"}, []),
    "restart policy Always": ({"template": TEMPLATE}, ["template.spec.restartPolicy: Required value"]),
    "parallelism -1": ({"template": ONCE, "parallelism": -1}, ["parallelism: Invalid value"]),
    "mode": ({"template": ONCE, "completionMode": "Odd"}, ["completionMode: Unsupported value"]),
    "indexed without completions": (
        {"template": ONCE, "completionMode": "Indexed", "parallelism": 1},
        ["completions: Required value"],
    ),
}


@pytest.mark.parametrize(("spec", "expected"), JOBS.values(), ids=JOBS)
def test_jobs(spec, expected):
    assert faults(Job, {"spec": spec}) == [f"spec.{fault}" for fault in expected]
    cron = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    assert faults(CronJob, {"spec": cron}) == [f"spec.jobTemplate.spec.{fault}" for fault in expected]


def test_job_names_leave_room_for_pod_suffixes():
    assert faults(Job, {"metadata": {**META, "name": "a" * 64}, "spec": {"template": ONCE}}) == ["metadata.name: Invalid value"]
    cron = {
        "metadata": {**META, "name": "a" * 53},
        "spec": {"concurrencyPolicy": "Maybe", "jobTemplate": {"spec": {"template": ONCE}}},
    }
    assert faults(CronJob, cron) == [
        "metadata.name: Invalid value",
        "spec.schedule: Required value",
        "spec.concurrencyPolicy: Unsupported value",
    ]


# -- storage and devices --------------------------------------------------------------------------------------------------

VOLUME = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
ZONE = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression("In", "a")]}]}}
STORAGE = {
    "volume": (PersistentVolume, {"spec": {**VOLUME, "nodeAffinity": ZONE}}, []),
    "volume without a source": (
        PersistentVolume,
        {"spec": {}},
        ["spec.accessModes: Required value", "spec.capacity: Required value", "spec.capacity: Unsupported value"],
    ),
    "volume of size zero": (
        PersistentVolume,
        {"spec": {**VOLUME, "capacity": {"storage": "0"}}},
        ["spec.capacity[storage]: Invalid value"],
    ),
    "local volume": (PersistentVolume, {"spec": {**VOLUME, "local": {"path": "/x"}}}, ["spec.nodeAffinity: Required value"]),
    "volume mode": (PersistentVolume, {"spec": {**VOLUME, "volumeMode": "Odd"}}, ["spec.volumeMode: Unsupported value"]),
    "volume affinity": (
        PersistentVolume,
        {"spec": {**VOLUME, "nodeAffinity": {"required": {"nodeSelectorTerms": []}}}},
        ["spec.nodeAffinity.required.nodeSelectorTerms: Required value"],
    ),
    "claim": (
        PersistentVolumeClaim,
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
        [],
    ),
    "claim without a request": (
        PersistentVolumeClaim,
        {"spec": {}},
        ["spec.accessModes: Required value", "spec.resources[storage]: Required value"],
    ),
    "claim modes": (
        PersistentVolumeClaim,
        {"spec": {"accessModes": ["ReadWriteOncePod", "ReadWriteOnce", "Odd"], "resources": {"requests": {"storage": "0"}}}},
        ["spec.accessModes: Unsupported value", "spec.accessModes: Forbidden", "spec.resources[storage]: Invalid value"],
    ),
    "class": (StorageClass, {"provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}, []),
    "class without provisioner": (
        StorageClass,
        {"volumeBindingMode": "Odd"},
        ["provisioner: Required value", "volumeBindingMode: Unsupported value"],
    ),
    "class topologies": (
        StorageClass,
        {
            "provisioner": "x",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": ["a", "a"]}, {"key": "z", "values": []}]}],
        },
        [
            "allowedTopologies[0].matchLabelExpressions[0].values: Duplicate value",
            "allowedTopologies[0].matchLabelExpressions[1].values: Required value",
            "allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value",
        ],
    ),
    "attributes class": (VolumeAttributesClass, {"driverName": "x", "parameters": {"k": "v" * ((256 << 10) - 1)}}, []),
    "attributes class with too many parameters": (
        VolumeAttributesClass,
        {"driverName": "x", "parameters": {"k": "v" * (256 << 10)}},
        ["parameters: Too long"],
    ),
    "CSI node": (CSINode, {"spec": {"drivers": [{"name": "a", "allocatable": {"count": 0}}]}}, []),
    "CSI node limits": (
        CSINode,
        {"spec": {"drivers": [{"name": "a", "allocatable": {"count": -1}}, {"name": "a"}]}},
        ["spec.drivers[0].allocatable.count: Invalid value", "spec.drivers[1].name: Duplicate value"],
    ),
    "capacity": (CSIStorageCapacity, {"storageClassName": "x", "capacity": "-1"}, ["capacity: Invalid value"]),
}


@pytest.mark.parametrize(("kind", "data", "expected"), STORAGE.values(), ids=STORAGE)
def test_storage(kind, data, expected):
    meta = META if kind in (PersistentVolumeClaim, CSIStorageCapacity) else {"name": "x"}
    assert faults(kind, {"metadata": meta, **data}) == expected


def request(**exactly: object) -> dict:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}]}}


SLICE = {"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"}
DEVICES = {
    "claim": (ResourceClaim, {"spec": request()}, []),
    "request without a class": (
        ResourceClaim,
        {"spec": request(deviceClassName="")},
        ["spec.devices.requests[0].exactly.deviceClassName: Required value"],
    ),
    "request for zero devices": (
        ResourceClaim,
        {"spec": request(count=0)},
        ["spec.devices.requests[0].exactly.count: Invalid value"],
    ),
    "request for all devices": (ResourceClaim, {"spec": request(allocationMode="All", count=0)}, []),
    "request with an unknown mode": (
        ResourceClaim,
        {"spec": {"devices": {"requests": [{"name": "r"}]}}},
        ["spec.devices.requests[0]: Required value"],
    ),
    "two requests of one name": (
        ResourceClaim,
        {"spec": {"devices": {"requests": request()["devices"]["requests"] * 2}}},
        ["spec.devices.requests[1].name: Duplicate value"],
    ),
    "constraint on an unknown request": (
        ResourceClaim,
        {"spec": {"devices": {**request()["devices"], "constraints": [{"requests": ["q"], "matchAttribute": "a/b"}]}}},
        ["spec.devices.constraints[0].requests[0]: Invalid value"],
    ),
    "empty CEL expression": (
        ResourceClaim,
        {"spec": request(selectors=[{"cel": {"expression": ""}}])},
        ["spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value"],
    ),
    "template": (
        ResourceClaimTemplate,
        {"spec": {"spec": request(allocationMode="Odd")}},
        ["spec.spec.devices.requests[0].exactly.allocationMode: Unsupported value"],
    ),
    "class": (DeviceClass, {"metadata": {"name": "x"}, "spec": {"selectors": [{}]}}, ["spec.selectors[0].cel: Required value"]),
    "slice": (ResourceSlice, {"metadata": {"name": "x"}, "spec": SLICE}, []),
    "slice without a node": (
        ResourceSlice,
        {"metadata": {"name": "x"}, "spec": {**SLICE, "nodeName": None}},
        ["spec: Required value"],
    ),
    "slice with a device twice": (
        ResourceSlice,
        {
            "metadata": {"name": "x"},
            "spec": {**SLICE, "devices": [{"name": "a"}, {"name": "a", "taints": [{"key": "k", "effect": "Odd"}]}]},
        },
        ["spec.devices[1].name: Duplicate value", "spec.devices[1].taints[0].effect: Unsupported value"],
    ),
}


@pytest.mark.parametrize(("kind", "data", "expected"), DEVICES.values(), ids=DEVICES)
def test_devices(kind, data, expected):
    assert faults(kind, data) == expected


def test_messages_use_the_api_servers_words():
    found = msgspec.convert({"metadata": META, "spec": {**WORKLOAD, "selector": {"matchLabels": {"app": "b"}}}}, Deployment)
    (fault,) = validate(found)
    assert str(fault) == (
        'spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`'
    )
