"""Test the report of references to missing objects."""

from __future__ import annotations

import json

import pytest

from moorage.basis.inputs.files import InputFile
from moorage.simulator.cluster_reader import read_sources
from moorage.simulator.missing_references import find_missing


def made(
    kind: str, name: str, spec: dict | None = None, version: str = "v1", status: dict | None = None, **metadata: object
) -> dict:
    head = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}
    return {**head, "spec": spec or {}, "status": status or {}}


def missing(*objects: dict) -> list[str]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return [str(found) for found in find_missing(read_sources([InputFile("in", text.encode())], validated=False))]


CLAIMING = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
DEVICES = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
RESOURCE, STORAGE = "resource.k8s.io/v1", "storage.k8s.io/v1"
CASES = {
    "nothing": ([made("Pod", "p", {}), made("Node", "n")], []),
    "a node": ([made("Pod", "p", {"nodeName": "n"})], ["1 Pod refers to 1 Node not in the input: n"]),
    "a pod that ended": ([made("Pod", "p", {"nodeName": "n"}, status={"phase": "Succeeded"})], []),
    "a claim": ([made("Pod", "p", CLAIMING)], ["1 Pod refers to 1 PersistentVolumeClaim not in the input: default/data"]),
    "a claim that exists": ([made("Pod", "p", CLAIMING), made("PersistentVolumeClaim", "data")], []),
    "a claim in another namespace": (
        [made("Pod", "p", CLAIMING), made("PersistentVolumeClaim", "data", namespace="other")],
        ["1 Pod refers to 1 PersistentVolumeClaim not in the input: default/data"],
    ),
    "many": (
        [made("Pod", f"p{i}", {"nodeName": f"n{i % 5}"}) for i in range(12)],
        ["12 Pods refer to 5 Nodes not in the input: n0, n1, n2 and 2 more"],
    ),
    "volumes and classes of claims": (
        [
            made("PersistentVolumeClaim", "a", {"volumeName": "pv", "storageClassName": "fast"}),
            made("PersistentVolumeClaim", "b", {"storageClassName": "fast"}),
            made("PersistentVolumeClaim", "c", {"storageClassName": ""}),
        ],
        [
            "1 PersistentVolumeClaim refers to 1 PersistentVolume not in the input: pv",
            "1 PersistentVolumeClaim refers to 1 StorageClass not in the input: fast",
        ],
    ),
    "classes of existing pods": (
        [made("Pod", "p", {"priorityClassName": "gone"}, creationTimestamp="2024-01-01T00:00:00Z")],
        ["1 Pod refers to 1 PriorityClass not in the input: gone"],
    ),
    "built-in classes": (
        [made("Pod", "p", {"priorityClassName": "system-node-critical"}, creationTimestamp="2024-01-01T00:00:00Z")],
        [],
    ),
    "device claims and templates": (
        [
            made(
                "Pod",
                "p",
                {"resourceClaims": [{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimTemplateName": "t"}]},
            )
        ],
        [
            "1 Pod refers to 1 ResourceClaim not in the input: default/x",
            "1 Pod refers to 1 ResourceClaimTemplate not in the input: default/t",
        ],
    ),
    "a template whose claim exists": (
        [
            made(
                "Pod",
                "p",
                {"resourceClaims": [{"name": "b", "resourceClaimTemplateName": "t"}]},
                status={"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}]},
            ),
            made("ResourceClaim", "made", {}, RESOURCE),
        ],
        [],
    ),
    "device classes and slices": (
        [made("ResourceClaim", "c", DEVICES, RESOURCE), made("ResourceSlice", "s", {"nodeName": "n"}, RESOURCE)],
        [
            "1 ResourceClaim refers to 1 DeviceClass not in the input: gpu",
            "1 ResourceSlice refers to 1 Node not in the input: n",
        ],
    ),
    "CSI nodes and drivers": (
        [
            made("CSINode", "n", {}, STORAGE),
            made("VolumeAttachment", "a", {"source": {"persistentVolumeName": "pv"}}, STORAGE),
        ],
        [
            "1 CSINode refers to 1 Node not in the input: n",
            "1 VolumeAttachment refers to 1 PersistentVolume not in the input: pv",
        ],
    ),
}


@pytest.mark.parametrize(("objects", "lines"), CASES.values(), ids=CASES)
def test_missing_references(objects, lines):
    assert missing(*objects) == lines
